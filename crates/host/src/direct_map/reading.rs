//! Reads the leaves from the kernel's counters, or if it has none, from a dump of its page tables.

use std::collections::BTreeMap;
use std::io;

use policy::Unsupported;
use policy::size::{PageSize, parse_bytes};

use super::{Changes, Leaves, Marker, Source, changes, ptdump};
use crate::{Host, HostError, absent};

/// Reads the leaves of the direct map. The error says why they are not visible, and how to make them visible.
pub fn leaves(host: &Host) -> Result<Leaves, Unsupported> {
    let meminfo = host.root().required("/proc/meminfo")?;
    if let Some(leaves) = counted_leaves(&meminfo, host)? {
        return Ok(leaves);
    }
    let dump = host.root().text(Source::Ptdump.file()).map_err(unreadable)?;
    ptdump::parse(&dump, host.page_sizes()).ok_or_else(|| Unsupported {
        reason: format!(
            "{} has no section \"Linear Mapping\", or the ranges in it add up to 2^64 bytes or more",
            Source::Ptdump.file()
        ),
        remedy: "report it with the file's first lines".into(),
    })
}

/// Leaves from the counters of /proc/meminfo, with the bounds of their error; `None` where the kernel has no such counters.
pub(crate) fn counted_leaves(meminfo: &str, host: &Host) -> Result<Option<Leaves>, HostError> {
    let bytes = of_meminfo(meminfo);
    if bytes.is_empty() {
        return Ok(None);
    }
    let too_large = |path: &str| absent::unexpected(host.root(), path, "less than 2^64 bytes in all", "more");
    sum(bytes.values().copied()).ok_or_else(|| too_large("/proc/meminfo"))?;
    let changes = changes(host)?;
    let boot_bytes = at_boot(&bytes, &changes);
    // A capture may lack the file.
    let pages = absent::text(host.root(), "/proc/zoneinfo")?.map(|zoneinfo| present_pages(&zoneinfo));
    let memory = |pages: Vec<u64>| sum(pages.into_iter())?.checked_mul(host.page_sizes().base.bytes());
    let memory_bytes = pages.filter(|pages| !pages.is_empty()).map(memory);
    let memory_bytes = memory_bytes.map(|bytes| bytes.ok_or_else(|| too_large("/proc/zoneinfo"))).transpose()?;
    let split_bytes = still_split(marked(host), &changes);
    let (contiguous_bytes, source) = (BTreeMap::new(), Source::Meminfo);
    Ok(Some(Leaves { bytes, contiguous_bytes, boot_bytes, split_bytes, memory_bytes, source }))
}

/// The sum; `None` where it exceeds 64 bits.
fn sum(mut values: impl Iterator<Item = u64>) -> Option<u64> {
    values.try_fold(0u64, |sum, value| sum.checked_add(value))
}

/// What the marker records as split. Empty where it cannot be read or parsed, which [`super::mark_of`] reports: the bounds are
/// then wider and still correct.
fn marked(host: &Host) -> BTreeMap<PageSize, u64> {
    let boot_id = host.root().required("/proc/sys/kernel/random/boot_id").ok();
    let marker = boot_id.and_then(|boot_id| Marker::of_boot(host.root(), boot_id.trim()).ok().flatten());
    marker.map(|marker| marker.split_bytes).unwrap_or_default()
}

/// The part of the recorded bytes that is certainly still split: each collapse since boot may have merged split leaves.
fn still_split(split_bytes: BTreeMap<PageSize, u64>, changes: &[Changes]) -> BTreeMap<PageSize, u64> {
    let collapsed = |leaf: &PageSize| {
        let changes = changes.iter().find(|changes| changes.leaf == *leaf);
        changes.and_then(|changes| changes.collapses).unwrap_or(0).saturating_mul(leaf.bytes())
    };
    split_bytes.into_iter().map(|(leaf, bytes)| (leaf, bytes.saturating_sub(collapsed(&leaf)))).collect()
}

/// The counters as they were at boot. A split moves the bytes of one leaf from its counter to that of the next smaller leaf;
/// a collapse moves them back.
fn at_boot(bytes: &BTreeMap<PageSize, u64>, changes: &[Changes]) -> BTreeMap<PageSize, u64> {
    let mut at_boot: BTreeMap<PageSize, i128> = bytes.iter().map(|(leaf, bytes)| (*leaf, i128::from(*bytes))).collect();
    for change in changes {
        let (Some(splits), Some(smaller)) = (change.splits, bytes.range(..change.leaf).next_back()) else { continue };
        let leaves = i128::from(splits) - i128::from(change.collapses.unwrap_or(0));
        let moved = leaves * i128::from(change.leaf.bytes());
        *at_boot.entry(change.leaf).or_default() += moved;
        *at_boot.entry(*smaller.0).or_default() -= moved;
    }
    at_boot.into_iter().map(|(leaf, bytes)| (leaf, u64::try_from(bytes).unwrap_or(0))).collect()
}

/// The lines `present` of all zones (mm/vmstat.c, `zoneinfo_show_print`).
fn present_pages(zoneinfo: &str) -> Vec<u64> {
    let pages = |line: &str| line.trim().strip_prefix("present")?.trim().parse::<u64>().ok();
    zoneinfo.lines().filter_map(pages).collect()
}

/// Lines such as `DirectMap2M:     2080768 kB` (`arch_report_meminfo`, arch/x86/mm/pat/set_memory.c).
fn of_meminfo(meminfo: &str) -> BTreeMap<PageSize, u64> {
    let entry = |line: &str| {
        let (leaf, kilobytes) = line.strip_prefix("DirectMap")?.split_once(':')?;
        let leaf = PageSize::new(parse_bytes(&leaf.to_ascii_uppercase()).ok()?).ok()?;
        let kilobytes: u64 = kilobytes.split_whitespace().next()?.parse().ok()?;
        Some((leaf, kilobytes.checked_mul(1024)?))
    };
    meminfo.lines().filter_map(entry).collect()
}

fn unreadable(error: io::Error) -> Unsupported {
    let missing = "/proc/meminfo has no lines DirectMap* on this architecture";
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => "run as root".into(),
        _ => "as root: mount -t debugfs none /sys/kernel/debug; the kernel needs CONFIG_PTDUMP_DEBUGFS=y as well"
            .to_string(),
    };
    Unsupported { reason: format!("{missing}, and {} cannot be read: {error}", Source::Ptdump.file()), remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(bytes: BTreeMap<PageSize, u64>, changes: &[Changes], memory_bytes: Option<u64>) -> Leaves {
        let boot_bytes = at_boot(&bytes, changes);
        let (contiguous_bytes, split_bytes) = Default::default();
        Leaves { bytes, contiguous_bytes, boot_bytes, split_bytes, memory_bytes, source: Source::Meminfo }
    }

    /// A machine of 24G whose counters showed 26G at boot, before and after nearly all of it was split.
    #[test]
    fn memory_counted_twice_is_in_no_share() {
        let change = |leaf, splits| Changes { leaf, splits: Some(splits), collapses: Some(0) };
        let of = |k4: u64, m2: u64, g1: u64, splits: [u64; 2]| {
            let bytes = BTreeMap::from([(PageSize::K4, k4 << 20), (PageSize::M2, m2 << 20), (PageSize::G1, g1 << 30)]);
            let changes = [change(PageSize::M2, splits[0]), change(PageSize::G1, splits[1])];
            leaves(bytes, &changes, Some(24 << 30))
        };
        let booted = of(28, 2020, 24, [4, 0]);
        assert_eq!(booted.certain(PageSize::G1), 22 << 30);
        assert_eq!(booted.certain(PageSize::M2), 0, "all of it may be counted twice");
        let shares = [PageSize::K4, PageSize::M2, PageSize::G1].map(|leaf| booted.share(leaf));
        assert_eq!(shares, ["0.0 to 0.1 %", "0.0 to 8.2 %", "91.7 to 100.0 %"]);
        assert_eq!(booted.counted_twice_bytes(), Some(2 << 30));
        // 23 leaves of 1G were split, and 11,264 of 2M.
        let split = of(28 + 22_528, 2020 + 23 * 1024 - 22_528, 1, [4 + 11_264, 23]);
        assert_eq!(split.boot_bytes[&PageSize::K4], 20 << 20);
        assert_eq!(split.certain(PageSize::K4), (28 + 22_528 - 20) << 20);
        assert!(split.ratio(PageSize::K4) > 0.9 && split.ratio(PageSize::G1) == 0.0);
    }

    /// A machine of 8G whose counters showed 10G at boot: all its 1G frames were split, but two leaves of 1G stay counted for
    /// good.
    #[test]
    fn bytes_split_by_a_demotion_are_certain_whatever_is_counted() {
        let bytes =
            BTreeMap::from([(PageSize::K4, 64 << 20), (PageSize::M2, (8 << 30) - (64 << 20)), (PageSize::G1, 2 << 30)]);
        let split = |splits| Changes { leaf: PageSize::G1, splits: Some(splits), collapses: Some(0) };
        let mut leaves = leaves(bytes, &[split(4)], Some(8 << 30));
        assert_eq!(leaves.certain(PageSize::M2), (6 << 30) - (64 << 20), "by counters");
        assert_eq!(leaves.possible(PageSize::G1), 2 << 30);
        leaves.record_split(PageSize::G1, 8 << 30);
        leaves.record_split(PageSize::G1, 7 << 30);
        assert_eq!(leaves.certain(PageSize::M2), (8 << 30) - (64 << 20));
        assert_eq!(leaves.possible(PageSize::G1), 0);
        assert_eq!(
            (leaves.certain(PageSize::K4), leaves.possible(PageSize::K4)),
            (0, 64 << 20),
            "1G leaves say nothing about 4K"
        );
    }

    #[test]
    fn split_bytes_that_may_have_been_collapsed_are_not_certain() {
        let collapses = |collapses| Changes { leaf: PageSize::G1, splits: Some(9), collapses };
        let still = |changes| still_split(BTreeMap::from([(PageSize::G1, 8 << 30)]), &[changes])[&PageSize::G1] >> 30;
        assert_eq!([Some(3), Some(0), Some(9), None].map(|count| still(collapses(count))), [5, 8, 0, 8]);
    }

    #[test]
    fn present_pages_are_those_of_all_zones() {
        let text = "Node 0, zone DMA\n  pages free 1\n        present  3998\nNode 0, zone Normal\n        present  2\n";
        assert_eq!((present_pages(text), present_pages("")), (vec![3998, 2], vec![]));
    }

    #[test]
    fn assigns_lines_of_meminfo_to_leaf_sizes() {
        let text = "MemFree: 1 kB\nDirectMap4k:      100 kB\nDirectMap2M:  2048 kB\nDirectMap1G:  0 kB\n";
        let leaves = leaves(of_meminfo(text), &[], None);
        assert_eq!((leaves.of(PageSize::K4), leaves.of(PageSize::M2)), (102_400, 2 << 20));
        assert_eq!((leaves.above(PageSize::K4), leaves.below(PageSize::M2)), (2 << 20, 102_400));
        assert!((leaves.ratio(PageSize::M2) - 0.9534).abs() < 1e-4);
        assert!(of_meminfo("DirectMap: 3 kB\nDirectMapXX: 5 kB\nDirectMap4k: many\n").is_empty());
    }
}
