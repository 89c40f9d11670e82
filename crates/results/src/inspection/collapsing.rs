//! The results of MADV_COLLAPSE, region by region.

use policy::inspect::{Collapsed, Inspection, Region, collapse_refusal};
use policy::size::{PageSize, format_bytes};
use serde_json::{Value, json};

use crate::text::{fold, printable};

/// A warning that precedes every result.
const CHANGES: &str = "MADV_COLLAPSE changes how the process is mapped, and cannot be undone";

/// Bytes within the address range of a collapse that are mapped by leaves of this size or larger.
fn by_leaves(inspection: &Inspection, collapsed: &Collapsed, leaf: PageSize) -> u64 {
    let inside = |region: &&Region| region.start < collapsed.end && region.end > collapsed.start;
    let bytes = |region: &Region| region.census.bytes_where(|mapping| mapping.leaf >= leaf);
    inspection.regions.iter().filter(inside).map(bytes).sum()
}

/// One paragraph per region: bytes gained, time, refusals.
pub fn text(before: &Inspection, after: &Inspection, collapsed: &[Collapsed], leaf: PageSize, width: usize) -> String {
    let paragraph = |one: &Collapsed| {
        let name = before.regions.iter().find(|region| region.start == one.start).map(|region| region.kind.describe());
        let gained = gained(before, after, one, leaf);
        let head = format!(
            "  {:x}-{:x} {}: {} gained of {} asked for, {:.1} ms",
            one.start,
            one.end,
            printable(&name.unwrap_or_default()),
            format_bytes(gained),
            format_bytes(one.asked_bytes),
            one.took_s * 1e3
        );
        let refused =
            one.refused.iter().map(|(errno, slots)| format!("    refused {slots} times: {}", collapse_refusal(*errno)));
        std::iter::once(head).chain(refused).map(|line| fold(&line, width, 6)).collect::<Vec<_>>().join("\n")
    };
    let paragraphs: Vec<String> = collapsed.iter().map(paragraph).collect();
    if paragraphs.is_empty() {
        "nothing to collapse: no region could be larger".into()
    } else {
        format!("{CHANGES}\n{}", paragraphs.join("\n"))
    }
}

/// How much more memory large leaves map after the collapse.
fn gained(before: &Inspection, after: &Inspection, one: &Collapsed, leaf: PageSize) -> u64 {
    by_leaves(after, one, leaf).saturating_sub(by_leaves(before, one, leaf))
}

/// The results as a part of the JSON document.
pub fn document(before: &Inspection, after: &Inspection, collapsed: &[Collapsed], leaf: PageSize) -> Value {
    let row = |one: &Collapsed| {
        let refused = one
            .refused
            .iter()
            .map(|(errno, slots)| json!({ "errno": errno, "slots": slots, "text": collapse_refusal(*errno) }));
        json!({
            "start": one.start,
            "end": one.end,
            "asked_bytes": one.asked_bytes,
            "gained_bytes": gained(before, after, one, leaf),
            "took_s": one.took_s,
            "refused": refused.collect::<Vec<_>>(),
        })
    };
    collapsed.iter().map(row).collect()
}
