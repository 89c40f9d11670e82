//! Many processes, one row each, followed by the reason why their memory is not mapped larger.

use policy::census::{Backing, Folio, Mapping};
use policy::inspect::Summary;
use policy::size::{PageSize, format_bytes};

use super::words::cause_clause;
use crate::text::{fold, printable};

/// One row per process, the one with the most bytes that could be mapped larger first. The first cause follows its row.
pub fn processes(summaries: &[Summary], base: PageSize, width: usize) -> String {
    let mut sorted: Vec<&Summary> = summaries.iter().collect();
    sorted.sort_by_key(|one| std::cmp::Reverse((one.could_be_larger_bytes, one.resident_bytes)));
    let header = row(
        ["pid", "name", "resident", "could be larger", "would add", "is larger", "larger folios"].map(String::from)
    );
    let rows = sorted.into_iter().map(|one| {
        let cells = [
            one.process.pid.to_string(),
            printable(&one.process.name),
            format_bytes(one.resident_bytes),
            format_bytes(one.could_be_larger_bytes),
            format_bytes(one.bloat_bytes),
            share(one, one.census.bytes_where(|mapping| is_memory(mapping) && mapping.leaf > base)),
            folios(one),
        ];
        let cause = one.first_cause.as_ref().map(|(cause, bytes)| cause_clause(cause, *bytes));
        let partial = one.partial.first().map(|why| format!("partial: {why}"));
        let below = [cause, partial]
            .into_iter()
            .flatten()
            .map(|line| fold(&format!("{:10}{}", "", printable(&line)), width, 12));
        std::iter::once(row(cells)).chain(below).collect::<Vec<_>>().join("\n")
    });
    std::iter::once(header).chain(rows).collect::<Vec<_>>().join("\n")
}

fn row([pid, name, resident, could, add, larger, folios]: [String; 7]) -> String {
    format!("{pid:>8}  {name:<16} {resident:>8}  {could:>15}  {add:>9}  {larger:>9}  {folios:>13}")
        .trim_end()
        .to_string()
}

/// Whether it is memory of the process: the zero page is not.
fn is_memory(mapping: &Mapping) -> bool {
    mapping.backing != Backing::Zero
}

/// A share of the resident memory.
fn share(one: &Summary, bytes: u64) -> String {
    match one.resident_bytes {
        0 => String::new(),
        all => format!("{:.0} %", bytes.min(all) as f64 / all as f64 * 100.0),
    }
}

/// The share of memory in folios that are larger than the leaves that map them; a lower bound where folios are not visible.
fn folios(one: &Summary) -> String {
    let bytes = one.census.bytes_where(|mapping| is_memory(mapping) && mapping.larger_folio().is_some());
    let unseen = one.census.bytes_where(|mapping| is_memory(mapping) && mapping.folio == Folio::Unknown);
    match (unseen, bytes) {
        (0, _) => share(one, bytes),
        (_, 0) => "?".into(),
        _ => format!(">= {}", share(one, bytes)),
    }
}
