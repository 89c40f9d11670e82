//! Many processes for the terminal, one row each, followed by the reason why their memory is not mapped larger.

use policy::census::{Backing, Census, Folio, Mapping};
use policy::inspect::Summary;
use policy::size::{PageSize, format_bytes};

use super::words::cause_clause;
use crate::text::{fold, printable};

/// One row per process; the process with the most bytes that could be mapped larger comes first. Its first cause follows each row.
/// The last row is the sum.
pub fn processes(summaries: &[Summary], base: PageSize, width: usize) -> String {
    let mut sorted: Vec<&Summary> = summaries.iter().collect();
    sorted.sort_by_key(|one| std::cmp::Reverse((one.could_be_larger_bytes, one.resident_bytes)));
    let header = row(
        ["pid", "name", "resident", "could be larger", "would add", "is larger", "larger folios"].map(String::from)
    );
    let rows = sorted.iter().map(|one| {
        let name = [one.process.pid.to_string(), printable(&one.process.name)];
        let cause = one.first_cause.as_ref().map(|(cause, bytes)| cause_clause(cause, *bytes));
        let partial = one.partial.first().map(|why| format!("partial: {why}"));
        let below = [cause, partial]
            .into_iter()
            .flatten()
            .map(|line| fold(&format!("{:10}{}", "", printable(&line)), width, 12));
        std::iter::once(row(cells(name, &Sizes::of(one), base))).chain(below).collect::<Vec<_>>().join("\n")
    });
    std::iter::once(header).chain(rows).chain(sum(summaries, base, width)).collect::<Vec<_>>().join("\n")
}

/// The row of the sum, and a note on memory that it counts several times.
fn sum(summaries: &[Summary], base: PageSize, width: usize) -> Vec<String> {
    if summaries.len() < 2 {
        return Vec::new();
    }
    let mut sum = Sizes::default();
    summaries.iter().for_each(|one| sum.add(&Sizes::of(one)));
    let name = ["sum".to_owned(), format!("{} processes", summaries.len())];
    let note = "what several processes map, such as libraries and shared memory, counts in each of them";
    vec![row(cells(name, &sum, base)), fold(&format!("{:10}{note}", ""), width, 12)]
}

/// The sizes that a row shows.
#[derive(Default)]
struct Sizes {
    resident_bytes: u64,
    could_be_larger_bytes: u64,
    bloat_bytes: u64,
    census: Census,
}

impl Sizes {
    fn of(one: &Summary) -> Sizes {
        let Summary { resident_bytes, could_be_larger_bytes, bloat_bytes, ref census, .. } = *one;
        Sizes { resident_bytes, could_be_larger_bytes, bloat_bytes, census: census.clone() }
    }

    fn add(&mut self, other: &Sizes) {
        self.resident_bytes += other.resident_bytes;
        self.could_be_larger_bytes += other.could_be_larger_bytes;
        self.bloat_bytes += other.bloat_bytes;
        self.census.merge(&other.census);
    }
}

fn cells([pid, name]: [String; 2], sizes: &Sizes, base: PageSize) -> [String; 7] {
    let larger = sizes.census.bytes_where(|mapping| is_memory(mapping) && mapping.leaf > base);
    [
        pid,
        name,
        format_bytes(sizes.resident_bytes),
        format_bytes(sizes.could_be_larger_bytes),
        format_bytes(sizes.bloat_bytes),
        share(sizes, larger),
        folios(sizes),
    ]
}

fn row([pid, name, resident, could, add, larger, folios]: [String; 7]) -> String {
    format!("{pid:>8}  {name:<16} {resident:>8}  {could:>15}  {add:>9}  {larger:>9}  {folios:>13}")
        .trim_end()
        .to_string()
}

/// Whether the mapping is memory of the process. The zero page is not.
fn is_memory(mapping: &Mapping) -> bool {
    mapping.backing != Backing::Zero
}

/// A share of the resident memory.
fn share(one: &Sizes, bytes: u64) -> String {
    match one.resident_bytes {
        0 => String::new(),
        all => format!("{:.0} %", bytes.min(all) as f64 / all as f64 * 100.0),
    }
}

/// The share of memory in folios that are larger than the leaves that map them. It is a lower bound if some folios are not
/// visible.
fn folios(one: &Sizes) -> String {
    let bytes = one.census.bytes_where(|mapping| is_memory(mapping) && mapping.larger_folio().is_some());
    let unseen = one.census.bytes_where(|mapping| is_memory(mapping) && mapping.folio == Folio::Unknown);
    match (unseen, bytes) {
        (0, _) => share(one, bytes),
        (_, 0) => "?".into(),
        _ => format!(">= {}", share(one, bytes)),
    }
}
