//! Words shared by all views of an inspection.

use std::collections::BTreeMap;

use policy::cause::Cause;
use policy::census::{Backing, Census, Folio, Mapping};
use policy::inspect::{Explained, Region};
use policy::size::{PageSize, format_bytes};

/// The size under which a mapping is shown, and whether it may belong to a larger folio that is not visible.
pub fn shown_size(mapping: &Mapping) -> (PageSize, bool) {
    (mapping.effective(), mapping.folio == Folio::Unknown)
}

/// Memory by leaf and folio size, largest first: `1.5G by 2M, 3M by 64K, 12M by 4K`. `4K?` means base-page entries
/// whose folio is not visible, `pool` means hugetlb pages.
pub fn sizes(census: &Census) -> String {
    let mut by_size: BTreeMap<(PageSize, bool, bool), u64> = BTreeMap::new();
    for (mapping, bytes) in census.rows().filter(|(mapping, _)| mapping.backing != Backing::Zero) {
        let (size, unseen) = shown_size(mapping);
        *by_size.entry((size, unseen, mapping.backing == Backing::Hugetlb)).or_default() += bytes;
    }
    let shown = |((size, unseen, pool), bytes): (&(PageSize, bool, bool), &u64)| {
        let (unseen, pool) = (if *unseen { "?" } else { "" }, if *pool { " pool" } else { "" });
        format!("{} by {size}{unseen}{pool}", format_bytes(*bytes))
    };
    by_size.iter().rev().map(shown).collect::<Vec<_>>().join(", ")
}

/// A cause and the memory that it explains, as one clause.
pub fn cause_clause(cause: &Cause, bytes: u64) -> String {
    format!("{}: {}", format_bytes(bytes), cause.describe())
}

/// The most remedies of a cause that are shown as text; JSON has all.
const MAX_REMEDIES: usize = 3;

/// Everything known about a cause, one line each: bytes and clause, what holds with it, candidates, evidence, remedies.
pub fn cause_lines(one: &Explained) -> Vec<String> {
    let clause = cause_clause(&one.cause, one.bytes);
    let also = one.also.iter().map(|cause| format!("  and: {}", cause.describe_also()));
    let or = one.or.iter().map(|cause| format!("  or: {}", cause.describe()));
    let apart = (!one.or.is_empty()).then(|| "  these cannot be distinguished from what is visible".to_string());
    let evidence = (!one.evidence.is_empty()).then(|| format!("  seen: {}", one.evidence.join("; ")));
    let remedies = one.remedies.iter().take(MAX_REMEDIES).enumerate().map(|(at, remedy)| {
        let title = if at == 0 { "remedy, not tried" } else { "or" };
        format!("  {title}: {}", remedy.describe())
    });
    std::iter::once(clause).chain(also).chain(or).chain(apart).chain(evidence).chain(remedies).collect()
}

/// Whether a region is shown: it has memory, or a cause.
pub fn is_shown(region: &Region) -> bool {
    !region.census.is_empty() || !region.causes.is_empty()
}
