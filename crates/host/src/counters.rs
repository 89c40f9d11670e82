//! [`Counters`]: the kernel's event counters of allocations, splits, failures and compaction.

use std::collections::BTreeMap;

use super::absent;
use super::read::HostError;
use super::{Host, Root, THP};

/// Prefixes of the lines of /proc/vmstat that count events of large pages and of compaction (mm/vmstat.c, `vmstat_text`).
const VMSTAT: [&str; 5] = ["thp_", "compact_", "htlb_", "direct_map_level", "pgmigrate_"];

/// Windows that khugepaged has collapsed into large pages (mm/khugepaged.c, `khugepaged_pages_collapsed`).
pub const COLLAPSED: &str = "khugepaged/pages_collapsed";
/// Large pages that were allocated for such windows, and for those of MADV_COLLAPSE (mm/khugepaged.c, `alloc_charge_folio`).
pub const COLLAPSE_ALLOCATIONS: &str = "thp_collapse_alloc";
/// Anonymous page faults that did not get a page of PMD size (mm/huge_memory.c, `vma_alloc_anon_folio_pmd`).
pub const FALLBACKS: &str = "thp_fault_fallback";
/// Allocations that waited for compaction (mm/page_alloc.c, `__alloc_pages_direct_compact`).
pub const COMPACTIONS: &str = "compact_stall";
/// Allocations that succeeded after waiting for compaction (in the same function).
pub const COMPACTED: &str = "compact_success";

/// A file that contains one counter.
#[derive(Clone, Debug)]
pub struct CounterFile {
    name: String,
    path: String,
}

impl CounterFile {
    /// Its path on the running host.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// Event counters of the whole system since boot.
///
/// Names are those of /proc/vmstat (`thp_fault_fallback`), `hugepages-64kB/anon_fault_fallback` for the counters of a folio size,
/// and `khugepaged/pages_collapsed`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    values: BTreeMap<String, u64>,
}

impl Counters {
    /// The value of a counter; `None` where this kernel has none of that name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.values.get(name).copied()
    }

    /// How much a counter increased from `self` to `later`; `None` where this is not known.
    pub fn increase(&self, later: &Counters, name: &str) -> Option<u64> {
        later.get(name)?.checked_sub(self.get(name)?)
    }

    /// These counters, extended by others.
    pub(crate) fn with<'a>(mut self, others: impl Iterator<Item = (&'a str, u64)>) -> Counters {
        self.values.extend(others.map(|(name, value)| (name.to_string(), value)));
        self
    }

    /// All counters by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.values.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// How much each counter moved from `self` to `later`; counters that did not move are left out. A counter that only one of
    /// the two has is left out, because its movement is not known.
    pub fn delta(&self, later: &Counters) -> BTreeMap<String, u64> {
        let moved = |(name, before): (&String, &u64)| {
            let by = later.values.get(name)?.checked_sub(*before)?;
            (by > 0).then(|| (name.clone(), by))
        };
        self.values.iter().filter_map(moved).collect()
    }
}

/// The counter files of the host, without gauges (`nr_anon`).
pub fn list(root: &Root) -> Result<Vec<CounterFile>, HostError> {
    let counter = |name: String, file: &str| CounterFile { name, path: format!("{THP}/{file}") };
    let mut counters = Vec::new();
    for size in absent::names(root, THP)?.iter().filter(|name| name.starts_with("hugepages-")) {
        let names = absent::names(root, &format!("{THP}/{size}/stats"))?;
        let counts = names.iter().filter(|name| !name.starts_with("nr_"));
        counters.extend(counts.map(|name| counter(format!("{size}/{name}"), &format!("{size}/stats/{name}"))));
    }
    if absent::exists(root, &format!("{THP}/{COLLAPSED}"))? {
        counters.push(counter(COLLAPSED.to_string(), COLLAPSED));
    }
    Ok(counters)
}

pub fn read(host: &Host) -> Result<Counters, HostError> {
    of(host, &host.root.required("/proc/vmstat")?)
}

/// The counters of the host, with those of /proc/vmstat taken from `text`, which has just been read.
pub fn of(host: &Host, text: &str) -> Result<Counters, HostError> {
    let mut values = vmstat(text);
    for CounterFile { name, path } in &host.counters {
        let unexpected = |found: &str| absent::unexpected(&host.root, path, "the number of a counter", found);
        let number = |text: String| text.trim().parse().map_err(|_| unexpected(&text));
        let value = absent::text(&host.root, path)?.map(number).transpose()?;
        values.extend(value.map(|value| (name.clone(), value)));
    }
    Ok(Counters { values })
}

fn vmstat(text: &str) -> BTreeMap<String, u64> {
    let counter = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        let wanted = VMSTAT.iter().any(|prefix| name.starts_with(prefix));
        Some((name.to_string(), value.trim().parse().ok().filter(|_| wanted)?))
    };
    text.lines().filter_map(counter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_has_only_counters_with_a_known_increase() {
        let counters = |text: &str| Counters { values: vmstat(text) };
        let before = counters("nr_free_pages 5\nthp_fault_alloc 3\nthp_split_page 9\ncompact_stall 1\n");
        let later = counters("nr_free_pages 9\nthp_fault_alloc 7\nthp_split_page 9\nthp_zero_page_alloc 4\n");
        assert_eq!(before.get("nr_free_pages"), None);
        assert_eq!(before.delta(&later), BTreeMap::from([("thp_fault_alloc".to_string(), 4)]));
    }
}
