//! The inspection of one process for a terminal: its memory by kind, the causes, and the large pages that the kernel
//! could provide.

use std::collections::BTreeMap;

use policy::cause::Cause;
use policy::census::{Backing, Census};
use policy::inspect::{BasePageSupport, ChangedSetting, Contents, Inspection, Jemalloc, Kind, ThpMode};
use policy::judge::THP;
use policy::size::format_bytes;

use super::why::why;
use super::words::{is_shown, larger_folios, leaves};
use crate::grid::last_two_folded;
use crate::text::{fold, printable};

/// The whole output. With `all_regions`, it lists every region instead of each kind of region.
pub fn process(inspection: &Inspection, all_regions: bool, width: usize) -> String {
    let memory = if all_regions { super::regions(inspection, width) } else { kinds(inspection, width) };
    // With all regions, each region lists its own causes.
    let causes = if all_regions { String::new() } else { why(inspection, width) };
    let refused = refused(inspection, width);
    let remarks = remarks(inspection).into_iter().map(|line| fold(&line, width, 4));
    let head = head(inspection).into_iter().chain(command(inspection)).chain(remarks);
    let head = head.collect::<Vec<_>>().join("\n");
    joined([
        head,
        memory,
        causes,
        refused,
        supply(inspection, width),
        base_pages(inspection, width),
        sight(inspection, width),
    ])
}

/// The same output for a small screen: the causes first, and the command last because it can be long.
pub fn answer_first(inspection: &Inspection, width: usize) -> String {
    let folded = |line: String| fold(&line, width, 4);
    let head = head(inspection).into_iter().chain(remarks(inspection)).map(folded).collect::<Vec<_>>().join("\n");
    let (memory, refused) = (kinds(inspection, width), refused(inspection, width));
    let command = command(inspection).map(folded).unwrap_or_default();
    joined([
        head,
        why(inspection, width),
        memory,
        refused,
        supply(inspection, width),
        base_pages(inspection, width),
        sight(inspection, width),
        command,
    ])
}

fn joined<const N: usize>(parts: [String; N]) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn command(inspection: &Inspection) -> Option<String> {
    let words = &inspection.process.command;
    (!words.is_empty()).then(|| format!("  command: {}", printable(&words.join(" "))))
}

/// How much is mapped, and how much of it could be larger.
fn head(inspection: &Inspection) -> [String; 1] {
    [summary(inspection)]
}

/// `process 7 (redis-server): 73.1M resident, 70.0M of it could be larger, which would add 16K`
pub fn summary(inspection: &Inspection) -> String {
    let about = &inspection.process;
    format!(
        "process {} ({}): {} resident, {} of it could be larger, which would add {}",
        about.pid,
        printable(&about.name),
        format_bytes(inspection.resident_bytes()),
        format_bytes(inspection.could_be_larger_bytes()),
        format_bytes(inspection.bloat_bytes()),
    )
}

/// What limits the process's large pages, and what its memory contains.
fn remarks(inspection: &Inspection) -> Vec<String> {
    let about = &inspection.process;
    let mut lines = Vec::new();
    if let Some(holder) = &inspection.supply.leaseholder {
        let holder = printable(holder);
        let changed = ChangedSetting::describe(&inspection.supply.changed_settings);
        let changed = changed.map(|what| format!("; {}", printable(&what))).unwrap_or_default();
        lines.push(format!(
            "  the settings are those of {holder}: causes and remedies are about them, not about the host's own{changed}"
        ));
    }
    if about.thp == ThpMode::Disabled {
        lines.push("  PR_SET_THP_DISABLE is in force".into());
    }
    if let Some(bytes) = about.swap_bytes.filter(|bytes| *bytes > 0) {
        lines.push(format!("  swapped out: {}", format_bytes(bytes)));
    }
    if let Some(stage) = &about.second_stage {
        lines.push(format!("  {}", printable(&stage.describe())));
    }
    let worth = inspection.resident_bytes() / 100;
    if let Some(bytes) = about.lazy_free_bytes.filter(|bytes| *bytes > worth) {
        lines.push(format!("  freed by MADV_FREE, not reclaimed yet: {}", format_bytes(bytes)));
    }
    if let Some(bytes) = about.held_unmapped_bytes.filter(|bytes| *bytes > worth) {
        let bytes = format_bytes(bytes);
        lines.push(format!(
            "  held but not mapped: {bytes} more, the rest of folios that are mapped in part (another process may map it)"
        ));
    }
    lines.extend(about.contents.map(|contents| of_contents(&contents)));
    lines.extend(inspection.partial.iter().map(|why| format!("  partial: {}", printable(why))));
    lines
}

/// How much of the large pages contains only zeros.
fn of_contents(contents: &Contents) -> String {
    let [zero, read] = [contents.zero_bytes, contents.read_bytes].map(format_bytes);
    let unread = match contents.unread_bytes {
        0 => String::new(),
        bytes => format!("; {} were not read", format_bytes(bytes)),
    };
    format!(
        "  contents: {zero} of {read} in large pages hold only zeros, which shrink_underused could return{unread} (large pages: leaves \
         and whole folios above the base page)"
    )
}

/// The sum over all regions of one kind.
#[derive(Default)]
struct KindTotals {
    regions: u64,
    length_bytes: u64,
    resident_bytes: u64,
    could_be_larger_bytes: u64,
    census: Census,
}

fn kinds(inspection: &Inspection, width: usize) -> String {
    let mut kinds: BTreeMap<String, KindTotals> = BTreeMap::new();
    for region in inspection.regions.iter().filter(|region| is_shown(region)) {
        let kind = kinds.entry(region.kind.family()).or_default();
        kind.regions += 1;
        kind.length_bytes += region.length_bytes();
        kind.resident_bytes += region.resident_bytes();
        kind.could_be_larger_bytes += region.benefit.bytes;
        kind.census.merge(&region.census);
    }
    let mut kinds: Vec<(String, KindTotals)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, kind)| std::cmp::Reverse((kind.could_be_larger_bytes, kind.resident_bytes)));
    let rows = kinds.into_iter().map(|(name, kind)| {
        [
            name,
            kind.regions.to_string(),
            format_bytes(kind.length_bytes),
            format_bytes(kind.resident_bytes),
            format_bytes(kind.could_be_larger_bytes),
            leaves(&kind.census),
            larger_folios(&kind.census),
        ]
    });
    let header = ["kind", "regions", "size", "resident", "could be larger", "by leaf", "larger folios"];
    last_two_folded(header, rows, width)
}

/// Requests of the command for hugetlb pages that the kernel refused; empty if there were none.
pub fn refused(inspection: &Inspection, width: usize) -> String {
    let requests = inspection.refused_requests.iter().flatten();
    let lines: Vec<String> = requests
        .flat_map(|request| {
            let cause = Cause::from(request);
            let remedy = policy::remedy::of_cause(&cause).map(|remedy| format!("  remedy: {remedy}"));
            let seen = request.seen().into_iter().map(|seen| format!("  seen: {seen}"));
            std::iter::once(cause.describe()).chain(seen).chain(remedy).collect::<Vec<_>>()
        })
        .map(|line| fold(&format!("  {}", printable(&line)), width, 6))
        .collect();
    if lines.is_empty() {
        String::new()
    } else {
        format!("requests for hugetlb pages that were refused\n{}", lines.join("\n"))
    }
}

/// The hugetlb pools that have pages, and the limits of control groups; only if the process has hugetlb pages or asked for
/// them.
fn pools(inspection: &Inspection) -> Vec<String> {
    let has_pages = inspection.census().bytes_where(|mapping| mapping.backing == Backing::Hugetlb) > 0;
    let is_mapped = inspection.regions.iter().any(|region| matches!(region.kind, Kind::Hugetlb { .. }));
    if !has_pages && !is_mapped && inspection.refused_requests.iter().flatten().next().is_none() {
        return Vec::new();
    }
    let pools = inspection.supply.pools.iter().filter(|pool| pool.pages > 0);
    let limits = inspection.process.hugetlb_limits.iter().map(|limit| format!("hugetlb limit: {}", limit.describe()));
    pools.map(|pool| format!("hugetlb pool: {}", pool.describe())).chain(limits).collect()
}

/// The large pages that the kernel could provide.
fn supply(inspection: &Inspection, width: usize) -> String {
    let supply = &inspection.supply;
    let at = |name: &str| supply.settings.get(&format!("{THP}/{name}")).map_or("?", String::as_str);
    let number = |name: &str| supply.counter(name).map_or("?".to_string(), |value| value.to_string());
    let blocks = supply.free_blocks_by_order.iter().enumerate().rev().filter(|(_, count)| **count > 0).take(4);
    let blocks =
        blocks.map(|(order, count)| format!("{} x {}", count, format_bytes(inspection.supply.base_bytes << order)));
    let lines = [
        format!(
            "available {}; free blocks, largest first: {}",
            format_bytes(supply.available_bytes),
            blocks.collect::<Vec<_>>().join(", ")
        ),
        format!(
            "{}, whole system: thp_fault_alloc {}, thp_fault_fallback {}, compact_fail {}, thp_split_pmd {}",
            supply.counted_since.describe(),
            number("thp_fault_alloc"),
            number("thp_fault_fallback"),
            number("compact_fail"),
            number("thp_split_pmd")
        ),
        format!(
            "khugepaged: defrag {}, pages_to_scan {} every {} ms, max_ptes_none {}; collapsed {}; refused for holes {}, \
             swap {}, sharing {}",
            at("khugepaged/defrag"),
            at("khugepaged/pages_to_scan"),
            at("khugepaged/scan_sleep_millisecs"),
            at("khugepaged/max_ptes_none"),
            number("khugepaged/pages_collapsed"),
            number("thp_scan_exceed_none_pte"),
            number("thp_scan_exceed_swap_pte"),
            number("thp_scan_exceed_share_pte")
        ),
    ];
    let lines = lines.into_iter().chain(pools(inspection));
    let lines = lines.map(|line| fold(&format!("  {}", printable(&line)), width, 4));
    std::iter::once("what the kernel could give".to_string()).chain(lines).collect::<Vec<_>>().join("\n")
}

/// What would keep the program from starting on kernels with larger base pages. Not for x86, which has only 4K.
fn base_pages(inspection: &Inspection, width: usize) -> String {
    if cfg!(target_arch = "x86_64") {
        return String::new();
    }
    let about = &inspection.process;
    let segments = match &about.base_page_support {
        BasePageSupport::Refused(refused) => Some(refused.describe()),
        _ => None,
    };
    let reasons = segments.into_iter().chain(about.jemalloc.iter().flatten().map(Jemalloc::describe));
    let lines: Vec<String> = reasons.map(|line| fold(&format!("  {}", printable(&line)), width, 4)).collect();
    if lines.is_empty() { String::new() } else { format!("on kernels with larger base pages\n{}", lines.join("\n")) }
}

fn sight(inspection: &Inspection, width: usize) -> String {
    /// What distinguishes the one total of this output from those of the kernel.
    const RESIDENT: &str = "resident: present pages, hugetlb pages included (VmRSS and VmHWM in /proc/PID/status leave those out); a \
                            page that others share counts as a whole (Pss in smaps divides it)";
    let lines = inspection.sight.describe().into_iter().chain([RESIDENT.to_owned()]);
    let lines = lines.map(|line| fold(&format!("  {line}"), width, 4));
    std::iter::once("how this was seen".to_string()).chain(lines).collect::<Vec<_>>().join("\n")
}
