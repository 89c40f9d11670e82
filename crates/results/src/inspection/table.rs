//! The tables of an inspection.

use policy::inspect::{Inspection, Region};
use policy::size::format_bytes;

use crate::grid::last_folded;

/// What the process is and how much of it could be larger, in a few lines.
pub fn summary(inspection: &Inspection) -> String {
    let process = &inspection.process;
    let head = format!(
        "process {} ({}): {} resident, {} of it could be larger",
        process.pid,
        crate::printable(&process.name),
        format_bytes(inspection.resident_bytes()),
        format_bytes(inspection.could_be_larger_bytes()),
    );
    let partial = inspection.partial.iter().map(|why| format!("  partial: {}", crate::printable(why)));
    std::iter::once(head).chain(partial).collect::<Vec<_>>().join("\n")
}

/// A row for every region that has memory.
pub fn regions(inspection: &Inspection, width: usize) -> String {
    let with_memory = inspection.regions.iter().filter(|region| !region.census.is_empty());
    let rows = with_memory.map(|region| {
        [
            format!("{:x}-{:x}", region.start, region.end),
            region.kind.describe(),
            format_bytes(region.length_bytes()),
            format_bytes(region.resident_bytes()),
            leaves(region),
            why(region),
        ]
    });
    last_folded(["addresses", "what", "size", "resident", "leaves", "why not larger"], rows, width)
}

fn leaves(region: &Region) -> String {
    let leaf = |(leaf, bytes): &(policy::size::PageSize, u64)| format!("{leaf}: {}", format_bytes(*bytes));
    region.census.bytes_by_leaf().iter().rev().map(leaf).collect::<Vec<_>>().join(" ")
}

fn why(region: &Region) -> String {
    let clause = |explained: &policy::inspect::Explained| {
        format!("{}: {}", format_bytes(explained.bytes), explained.cause.describe())
    };
    region.causes.iter().map(clause).collect::<Vec<_>>().join("; ")
}
