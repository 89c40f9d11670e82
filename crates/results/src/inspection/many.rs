//! Many processes, a row each.

use policy::inspect::Summary;
use policy::size::format_bytes;

use super::words::sizes;
use crate::grid::last_folded;

/// A row a process, that with most bytes that could be larger first.
pub fn processes(summaries: &[Summary], width: usize) -> String {
    let mut sorted: Vec<&Summary> = summaries.iter().collect();
    sorted.sort_by_key(|one| std::cmp::Reverse((one.could_be_larger_bytes, one.resident_bytes)));
    let rows = sorted.into_iter().map(|one| {
        let why =
            one.first_cause.as_ref().map(|(cause, bytes)| format!("{}: {}", format_bytes(*bytes), cause.describe()));
        let partial = (!one.partial.is_empty()).then(|| "(partial)".to_string());
        [
            one.process.pid.to_string(),
            one.process.name.clone(),
            format_bytes(one.resident_bytes),
            format_bytes(one.could_be_larger_bytes),
            format_bytes(one.bloat_bytes),
            sizes(&one.census),
            why.into_iter().chain(partial).collect::<Vec<_>>().join(" "),
        ]
    });
    let header = ["pid", "name", "resident", "could be larger", "would add", "by leaf and folio", "first cause"];
    last_folded(header, rows, width)
}
