//! Words that all views of an inspection share.

use std::collections::BTreeMap;

use policy::cause::Cause;
use policy::census::{Backing, Census, Folio};
use policy::inspect::{Explained, Region};
use policy::size::{PageSize, format_bytes};

/// The memory that is mapped by one kind of page-table entry.
#[derive(Default)]
struct LeafMemory {
    bytes: u64,
    /// Bytes in folios that are larger than the leaf and mapped completely.
    folios: BTreeMap<PageSize, u64>,
}

/// A kind of page-table entry: the size that it maps, whether its folios are invisible to the inspection, and whether
/// it maps hugetlb pages.
type Leaf = (PageSize, bool, bool);

/// The present memory, by the kind of entry that maps it. The zero page does not count.
fn by_leaf(census: &Census) -> BTreeMap<Leaf, LeafMemory> {
    let mut leaves: BTreeMap<Leaf, LeafMemory> = BTreeMap::new();
    for (mapping, bytes) in census.rows().filter(|(mapping, _)| mapping.backing != Backing::Zero) {
        let leaf = (mapping.leaf, mapping.folio == Folio::Unknown, mapping.backing == Backing::Hugetlb);
        let leaf_memory = leaves.entry(leaf).or_default();
        leaf_memory.bytes += bytes;
        if let Some(folio) = mapping.larger_folio() {
            *leaf_memory.folios.entry(folio).or_default() += bytes;
        }
    }
    leaves
}

fn mapped((size, unseen, pool): Leaf, bytes: u64) -> String {
    let (unseen, pool) = (if unseen { "?" } else { "" }, if pool { " pool" } else { "" });
    format!("{} by {size}{unseen}{pool}", format_bytes(bytes))
}

fn folios_in_words(folios: &BTreeMap<PageSize, u64>) -> String {
    let held = folios.iter().rev().map(|(size, bytes)| format!("{} of {size}", format_bytes(*bytes)));
    held.collect::<Vec<_>>().join(", ")
}

/// Memory by the entries that map it, largest first: `1.5G by 2M, 12M by 4K`. `4K?` means base-page entries whose folio is not
/// visible, `pool` means hugetlb pages.
pub fn leaves(census: &Census) -> String {
    let leaves = by_leaf(census);
    leaves.iter().rev().map(|(leaf, leaf_memory)| mapped(*leaf, leaf_memory.bytes)).collect::<Vec<_>>().join(", ")
}

/// Memory in folios that are larger than the entries that map them, largest first: `32M of 2M, 3M of 64K`.
pub fn larger_folios(census: &Census) -> String {
    let mut folios: BTreeMap<PageSize, u64> = BTreeMap::new();
    for (size, bytes) in by_leaf(census).values().flat_map(|leaf_memory| &leaf_memory.folios) {
        *folios.entry(*size).or_default() += bytes;
    }
    folios_in_words(&folios)
}

/// The result of `leaves` with larger folios in parentheses: `1.5G by 2M, 12M by 4K (folios: 3M of 64K)`.
pub fn sizes(census: &Census) -> String {
    let shown = |(leaf, leaf_memory): (&Leaf, &LeafMemory)| match folios_in_words(&leaf_memory.folios) {
        held if held.is_empty() => mapped(*leaf, leaf_memory.bytes),
        held => format!("{} (folios: {held})", mapped(*leaf, leaf_memory.bytes)),
    };
    by_leaf(census).iter().rev().map(shown).collect::<Vec<_>>().join(", ")
}

/// The memory that a cause explains, and the cause, as one clause.
pub fn cause_clause(cause: &Cause, bytes: u64) -> String {
    format!("{}: {}", format_bytes(bytes), cause.describe())
}

/// Maximum number of remedies shown for a cause; JSON has all.
const MAX_REMEDIES: usize = 3;

/// Everything known about a cause, one line each: bytes and clause, further causes, alternatives, evidence, remedies.
pub fn cause_lines(one: &Explained) -> Vec<String> {
    let clause = cause_clause(&one.cause, one.bytes);
    let also = one.also.iter().map(|cause| format!("  and: {}", cause.describe_also()));
    let or = one.or.iter().map(|cause| format!("  or: {}", cause.describe()));
    let apart = (!one.or.is_empty()).then(|| "  these cannot be distinguished from what is visible".to_string());
    let evidence = (!one.evidence.is_empty()).then(|| format!("  seen: {}", one.evidence.join("; ")));
    let remedies = one.remedies.iter().take(MAX_REMEDIES).enumerate().map(|(at, remedy)| {
        let title = if at == 0 { "remedy, not tried" } else { "or" };
        let pool =
            remedy.pool_bytes().map(|bytes| format!(" (the pool takes {} from all other memory)", format_bytes(bytes)));
        format!("  {title}: {}{}", remedy.describe(), pool.unwrap_or_default())
    });
    std::iter::once(clause).chain(also).chain(or).chain(apart).chain(evidence).chain(remedies).collect()
}

/// Whether a region is listed: only if it has memory or a cause.
pub fn is_shown(region: &Region) -> bool {
    !region.census.is_empty() || !region.causes.is_empty()
}

#[cfg(test)]
mod tests {
    use policy::census::Mapping;

    use super::*;

    #[test]
    fn a_leaf_is_what_maps_memory_and_a_larger_folio_is_shown_apart() {
        let mut census = Census::default();
        let mut add = |backing, leaf, folio, mib: u64| census.add(Mapping { backing, leaf, folio }, mib << 20);
        let (k4, k64, m2) = (PageSize::K4, PageSize::K64, PageSize::M2);
        add(Backing::Anonymous, k4, Folio::Whole(m2), 32);
        add(Backing::Shmem, k4, Folio::Whole(k64), 1);
        add(Backing::Anonymous, k4, Folio::Part(m2), 3);
        add(Backing::Anonymous, m2, Folio::Whole(m2), 8);
        add(Backing::File, k4, Folio::Unknown, 5);
        add(Backing::Hugetlb, k64, Folio::Whole(k64), 7);
        add(Backing::Zero, k4, Folio::Whole(k4), 9);
        assert_eq!(leaves(&census), "8M by 2M, 7M by 64K pool, 5M by 4K?, 36M by 4K");
        assert_eq!(larger_folios(&census), "32M of 2M, 1M of 64K");
        assert_eq!(sizes(&census), "8M by 2M, 7M by 64K pool, 5M by 4K?, 36M by 4K (folios: 32M of 2M, 1M of 64K)");
        assert_eq!(sizes(&Census::default()), "");
    }
}
