//! Every region of an inspected process for the terminal, one paragraph each.

use policy::inspect::{Inspection, Region};
use policy::size::format_bytes;

use super::words::{cause_lines, is_shown, sizes};
use crate::text::{fold, printable};

/// Maximum number of cuts shown with their positions.
const SHOWN_CUTS: usize = 3;

/// Every region with memory or a cause.
pub fn regions(inspection: &Inspection, width: usize) -> String {
    let shown = inspection.regions.iter().filter(|region| is_shown(region));
    shown.map(|region| paragraph(region, width)).collect::<Vec<_>>().join("\n")
}

fn paragraph(region: &Region, width: usize) -> String {
    let shared = if region.shared { "shared" } else { "private" };
    let target = match (region.target, region.aligned) {
        (Some(size), true) => format!(", aligned to {size}"),
        (Some(size), false) => format!(", not aligned to {size}"),
        (None, _) => String::new(),
    };
    let mut lines = vec![
        format!("{:x}-{:x}  {}", region.start, region.end, printable(&region.kind.describe())),
        format!(
            "  {}, {shared}{target}; resident {}: {}",
            format_bytes(region.length_bytes()),
            format_bytes(region.resident_bytes()),
            sizes(&region.census)
        ),
    ];
    if !region.recognised_by.is_empty() {
        lines.push(format!("  recognised: {}", printable(&region.recognised_by)));
    }
    lines.extend(swap(region).into_iter().chain(win(region)).chain(runs(region)).chain(cuts(region)));
    lines.extend(region.causes.iter().flat_map(cause_lines).map(|line| format!("  {}", printable(&line))));
    lines.iter().map(|line| fold(line, width, 6)).collect::<Vec<_>>().join("\n")
}

fn swap(region: &Region) -> Option<String> {
    let bytes = region.swap_bytes.filter(|bytes| *bytes > 0)?;
    Some(format!("  swapped out: {}", format_bytes(bytes)))
}

fn win(region: &Region) -> Option<String> {
    let target = region.target?;
    (region.benefit.bytes > 0).then(|| {
        format!(
            "  could be larger: {} in {} slots of {target}, which would add {}",
            format_bytes(region.benefit.bytes),
            region.benefit.slots,
            format_bytes(region.benefit.absent_bytes)
        )
    })
}

fn runs(region: &Region) -> Option<String> {
    let runs = region.tlb_runs?;
    (runs.k16_bytes > 0).then(|| {
        format!(
            "  contiguous and aligned, so that one TLB entry could hold it: {} by 16K, {} by 32K, {} by 64K",
            format_bytes(runs.k16_bytes),
            format_bytes(runs.k32_bytes),
            format_bytes(runs.k64_bytes)
        )
    })
}

fn cuts(region: &Region) -> Option<String> {
    (region.cut_count > 0).then(|| {
        let shown = region.cuts.iter().take(SHOWN_CUTS).map(|cut| format!("{} at {:#x}", cut.by.describe(), cut.start));
        let more = region.cut_count.saturating_sub(SHOWN_CUTS as u64);
        let more = (more > 0).then(|| format!("{more} more"));
        let cuts = shown.chain(more).collect::<Vec<_>>().join(", ");
        format!("  cut into {} mappings: {cuts}", region.vmas)
    })
}
