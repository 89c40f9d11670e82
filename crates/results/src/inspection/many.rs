//! Many processes, a row each, and below it why it is not larger.

use policy::inspect::Summary;
use policy::size::{PageSize, format_bytes};

use super::words::cause_clause;
use crate::text::{fold, printable};

/// A row a process, that with most bytes that could be larger first. The first cause is below its row.
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

/// The share that larger pages than base pages map already.
fn larger(one: &Summary, base: PageSize) -> String {
    let larger = one.census.bytes_where(|mapping| mapping.effective() > base);
    match one.resident_bytes {
        0 => String::new(),
        all => format!("{:.0} %", larger.min(all) as f64 / all as f64 * 100.0),
    }
}
