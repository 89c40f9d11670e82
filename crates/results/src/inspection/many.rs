//! Many processes, one row each, followed by the reason why their memory is not mapped larger.

use policy::inspect::Summary;
use policy::size::{PageSize, format_bytes};

use super::words::cause_clause;
use crate::text::{fold, printable};

/// One row per process, the one with the most bytes that could be mapped larger first. The first cause follows its row.
pub fn processes(summaries: &[Summary], base: PageSize, width: usize) -> String {
    let mut sorted: Vec<&Summary> = summaries.iter().collect();
    sorted.sort_by_key(|one| std::cmp::Reverse((one.could_be_larger_bytes, one.resident_bytes)));
    let header = row(["pid", "name", "resident", "could be larger", "would add", "is larger"].map(String::from));
    let rows = sorted.into_iter().map(|one| {
        let cells = [
            one.process.pid.to_string(),
            printable(&one.process.name),
            format_bytes(one.resident_bytes),
            format_bytes(one.could_be_larger_bytes),
            format_bytes(one.bloat_bytes),
            larger(one, base),
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

fn row([pid, name, resident, could, add, larger]: [String; 6]) -> String {
    format!("{pid:>8}  {name:<16} {resident:>8}  {could:>15}  {add:>9}  {larger}").trim_end().to_string()
}

/// The share of memory already mapped by pages larger than base pages.
fn larger(one: &Summary, base: PageSize) -> String {
    let larger = one.census.bytes_where(|mapping| mapping.effective() > base);
    match one.resident_bytes {
        0 => String::new(),
        all => format!("{:.0} %", larger.min(all) as f64 / all as f64 * 100.0),
    }
}
