//! How two matrices of capabilities differ, as text.

use policy::capability::{Cell, Matrix, changes};

use super::notes::{Notes, short};
use crate::grid::plain;
use crate::{fold, printable};

/// One row for each cell that differs, and the reasons below the table.
pub fn text(before: &Matrix, after: &Matrix, width: usize) -> String {
    let mut notes = Notes::default();
    let heading = format!("before: Linux {}; after: Linux {}", printable(&before.kernel), printable(&after.kernel));
    let mut side = |matrix: &Matrix, cell: Option<&Cell>| {
        cell.map_or("not tried".to_owned(), |cell| short(matrix, cell, &mut notes))
    };
    let found = changes(before, after);
    let rows: Vec<[String; 5]> = found
        .iter()
        .filter_map(|change| {
            let cell = change.before.or(change.after)?;
            let [was, is] = [side(before, change.before), side(after, change.after)];
            Some([cell.size.to_string(), cell.memory.label(), cell.way.word().to_owned(), was, is])
        })
        .collect();
    if rows.is_empty() {
        return format!("{}\n\nno cell differs", fold(&heading, width, 0));
    }
    let table = plain(["size", "memory", "way", "before", "after"], rows, width);
    let notes: Vec<String> =
        notes.lettered().map(|(letter, reason)| fold(&format!("{letter}  {reason}"), width, 4)).collect();
    [fold(&heading, width, 0), table, notes.join("\n")].join("\n\n").trim_end().to_owned()
}
