//! The table of processes in `top` ([`Layout`]): which columns fit a width, and their cells.

use policy::PageSizes;
use policy::size::format_bytes;

use super::browse::Sort;
use super::view::{Inspected, InspectionState, Row};
use crate::short::{count, fitted, share};
use crate::sizes::{Class, Sizes};

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The process ID.
    Pid,
    /// The process name.
    Name,
    /// Resident bytes.
    Resident,
    /// Page faults per second.
    Faults,
    /// The share of a class of leaves.
    Share(Class),
    /// The share of memory in folios larger than their leaves.
    Folios,
    /// Bytes that could be mapped by larger leaves.
    Larger,
    /// The main cause why that memory is not mapped by larger leaves.
    Cause,
}

/// The emphasis of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Normal text.
    Plain,
    /// Less important.
    Soft,
    /// Good: large pages.
    Good,
    /// Worth attention: memory that could be mapped by larger leaves.
    Attention,
}

/// The columns that are shown, with their widths. One space separates columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout(pub Vec<(Column, usize)>);

/// All columns in order, each with its width and weight. If space is short, columns with the lowest weights are dropped first.
/// Page sizes and what could be larger have high weights, because no other tool shows them.
const COLUMNS: [(Column, usize, u8); 11] = [
    (Column::Pid, 7, 6),
    (Column::Name, 15, 11),
    (Column::Resident, 8, 5),
    (Column::Faults, 8, 1),
    (Column::Share(Class::Base), 5, 9),
    (Column::Share(Class::Contiguous), 5, 7),
    (Column::Share(Class::Pmd), 5, 10),
    (Column::Share(Class::Larger), 5, 7),
    (Column::Folios, 6, 2),
    (Column::Larger, 8, 8),
    (Column::Cause, 24, 3),
];
/// Before a column of this weight or more is dropped, the name is shortened if that makes room for it.
const WORTH_A_NAME: u8 = 6;
/// The width of a short name.
const SHORT_NAME: usize = 8;

impl Layout {
    /// The columns that fit. The remaining width is used for the main cause, or for the name if that column is dropped.
    pub fn of(width: usize, page_sizes: &PageSizes, rows: &[Row]) -> Layout {
        let mut chosen: Vec<(Column, usize, u8)> =
            COLUMNS.into_iter().filter(|(column, ..)| is_used(*column, page_sizes, rows)).collect();
        let needed = |chosen: &[(Column, usize, u8)]| chosen.iter().map(|(_, width, _)| width + 1).sum::<usize>();
        while chosen.len() > 1 && needed(&chosen) > width + 1 {
            let least = (0..chosen.len()).min_by_key(|at| chosen[*at].2).expect("more than one");
            let name = chosen.iter().position(|(column, ..)| *column == Column::Name).expect("dropped last");
            if chosen[least].2 >= WORTH_A_NAME && chosen[name].1 > SHORT_NAME {
                chosen[name].1 = SHORT_NAME;
            } else {
                chosen.remove(least);
            }
        }
        let left = (width + 1).saturating_sub(needed(&chosen));
        let widest = chosen.iter().position(|(column, ..)| *column == Column::Cause);
        let widest = widest.or_else(|| chosen.iter().position(|(column, ..)| *column == Column::Name));
        if let Some(at) = widest {
            chosen[at].1 += left;
        }
        Layout(chosen.into_iter().map(|(column, wide, _)| (column, wide.min(width))).collect())
    }
}

/// Whether a column has any content.
fn is_used(column: Column, page_sizes: &PageSizes, rows: &[Row]) -> bool {
    let seen = || {
        rows.iter().filter_map(|row| if let InspectionState::Done(seen) = &row.inspection { Some(seen) } else { None })
    };
    match column {
        Column::Folios | Column::Share(Class::Pmd) => page_sizes.pmd.is_some(),
        Column::Share(class @ (Class::Contiguous | Class::Larger)) => {
            seen().any(|seen| seen.sizes.class_bytes(class, page_sizes) > 0)
        }
        _ => true,
    }
}

impl Column {
    /// The column's heading.
    pub fn heading(self, page_sizes: &PageSizes) -> String {
        match self {
            Column::Pid => "PID".into(),
            Column::Name => "NAME".into(),
            Column::Resident => "RESIDENT".into(),
            Column::Faults => "FAULTS/s".into(),
            Column::Share(Class::Base) => page_sizes.base.to_string(),
            Column::Share(Class::Contiguous) => "cont".into(),
            Column::Share(Class::Pmd) => page_sizes.pmd.map(|pmd| pmd.to_string()).unwrap_or_default(),
            Column::Share(Class::Larger) => "more".into(),
            Column::Folios => "FOLIOS".into(),
            Column::Larger => "TO WIN".into(),
            Column::Cause => "WHY IT IS NOT LARGER".into(),
        }
    }

    /// Whether the column has figures and is right-aligned.
    pub fn is_right(self) -> bool {
        !matches!(self, Column::Name | Column::Cause)
    }

    /// Whether the table is sorted by this column.
    pub fn is_of(self, sort: Sort) -> bool {
        matches!(
            (self, sort),
            (Column::Pid, Sort::Pid)
                | (Column::Name, Sort::Name)
                | (Column::Resident, Sort::Resident)
                | (Column::Faults, Sort::Faults)
                | (Column::Share(Class::Base), Sort::Base)
                | (Column::Larger, Sort::Larger)
        )
    }

    /// The cell's text and tone for a process.
    pub fn cell(self, row: &Row, page_sizes: &PageSizes) -> (String, Tone) {
        match self {
            Column::Pid => (row.pid.to_string(), Tone::Plain),
            Column::Name => (results::printable(&row.name), Tone::Plain),
            Column::Resident => (format_bytes(row.resident_bytes), Tone::Plain),
            Column::Faults => (row.faults_per_s.map_or("-".into(), count), Tone::Plain),
            Column::Share(_) | Column::Folios | Column::Larger | Column::Cause => {
                self.inspection_cell(&row.inspection, page_sizes)
            }
        }
    }

    fn inspection_cell(self, look: &InspectionState, page_sizes: &PageSizes) -> (String, Tone) {
        match (look, self) {
            (InspectionState::Done(seen), _) => self.inspected_cell(seen, page_sizes),
            (InspectionState::Pending, Column::Cause) => ("not looked at yet".into(), Tone::Soft),
            (InspectionState::Pending, _) => ("…".into(), Tone::Soft),
            (InspectionState::Failed(why), Column::Cause) => (results::printable(why), Tone::Soft),
            (InspectionState::Failed(_), _) => ("?".into(), Tone::Soft),
        }
    }

    fn inspected_cell(self, seen: &Inspected, page_sizes: &PageSizes) -> (String, Tone) {
        match self {
            Column::Share(class) => {
                let is_good = class != Class::Base;
                of_ratio(seen.sizes.share(class, page_sizes), is_good, &seen.sizes)
            }
            Column::Folios => of_ratio(seen.sizes.folio_share(), false, &seen.sizes),
            Column::Larger => {
                let mark = if seen.is_old { "~" } else { "" };
                let tone = if seen.larger_bytes > 0 { Tone::Attention } else { Tone::Soft };
                (format!("{mark}{}", format_bytes(seen.larger_bytes)), tone)
            }
            _ => (seen.cause.as_deref().map(results::printable).unwrap_or_default(), Tone::Plain),
        }
    }

    /// Fits a text to the column's width.
    pub fn fitted(self, text: &str, width: usize) -> String {
        fitted(text, width, self.is_right())
    }
}

/// The cell of a share. `is_good`: a share of large leaves.
fn of_ratio(ratio: Option<f64>, is_good: bool, sizes: &Sizes) -> (String, Tone) {
    match ratio {
        Some(ratio) if is_good && ratio > 0.0 => (share(ratio), Tone::Good),
        Some(ratio) => (share(ratio), Tone::Plain),
        None if sizes.total_bytes() == 0 => ("-".into(), Tone::Soft),
        None => ("?".into(), Tone::Soft),
    }
}
