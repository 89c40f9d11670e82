//! [`Activity`]: what the kernel does around page sizes, for a live view. It has faults, failed allocations, collapses,
//! compaction, and free memory.

use std::collections::BTreeMap;

use policy::size::PageSize;

use super::counters::{self, Counters};
use super::read::{self, HostError};
use super::{Host, KHUGEPAGED, THP, hugetlb_file, state};

/// All page faults, from /proc/vmstat. A fault counts once, whatever page size it got (mm/memory.c, `mm_account_fault`); major
/// faults are included.
pub const FAULTS: &str = "pgfault";
/// Page faults that waited for I/O, from /proc/vmstat.
pub const MAJOR_FAULTS: &str = "pgmajfault";
/// How often khugepaged has gone through all processes (`khugepaged/full_scans`).
pub const FULL_SCANS: &str = "khugepaged/full_scans";

/// One reading of the whole system. Rates are differences between two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// [`Host::counters`], extended by [`FAULTS`], [`MAJOR_FAULTS`] and [`FULL_SCANS`].
    pub counters: Counters,
    /// Free blocks of the buddy allocator by order, summed over all zones.
    pub free_blocks_by_order: Vec<u64>,
    /// Free blocks by order, for each NUMA node.
    pub free_blocks_by_node: BTreeMap<u32, Vec<u64>>,
    /// Total memory in bytes (`MemTotal`); absent where /proc/meminfo does not have it.
    pub memory_bytes: Option<u64>,
    /// Memory available to new programs in bytes (`MemAvailable`).
    pub available_bytes: Option<u64>,
    /// Anonymous folios of each size (`hugepages-*kB/stats/nr_anon`, Linux 6.12); empty on older kernels.
    pub anonymous_folios: BTreeMap<PageSize, u64>,
    /// The hugetlb pools that have pages, by size.
    pub pools: BTreeMap<PageSize, Pool>,
}

/// A pool of hugetlb pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Number of pages in the pool.
    pub pages: u64,
    /// Pages that are not in use; some may be reserved.
    pub free: u64,
}

impl Activity {
    /// Free memory in blocks of at least `size`, in bytes.
    pub fn free_bytes_from(&self, size: PageSize, base: PageSize) -> u64 {
        let orders = self.free_blocks_by_order.iter().enumerate().skip(size.order(base) as usize);
        orders.map(|(order, blocks)| blocks * (base.bytes() << order)).sum()
    }
}

pub fn read(host: &Host) -> Result<Activity, HostError> {
    let vmstat = host.root.required("/proc/vmstat")?;
    let meminfo = host.root.required("/proc/meminfo")?;
    let buddyinfo = host.root.required("/proc/buddyinfo")?;
    let kilobytes = |key: &str| read::keyed_bytes(&meminfo, key);
    let full_scans = host.number(&format!("{KHUGEPAGED}/full_scans"))?.map(|scans| (FULL_SCANS, scans));
    let faults = [FAULTS, MAJOR_FAULTS].map(|name| Some((name, line(&vmstat, name)?)));
    let counters = counters::of(host, &vmstat)?.with(faults.into_iter().flatten().chain(full_scans));
    Ok(Activity {
        counters,
        free_blocks_by_order: state::free_blocks(host, &buddyinfo)?,
        free_blocks_by_node: state::free_blocks_by_node(host, &buddyinfo)?,
        memory_bytes: kilobytes("MemTotal"),
        available_bytes: kilobytes("MemAvailable"),
        anonymous_folios: anonymous_folios(host)?,
        pools: pools(host)?,
    })
}

/// The number of a line `name number`.
fn line(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

fn anonymous_folios(host: &Host) -> Result<BTreeMap<PageSize, u64>, HostError> {
    let sizes = host.page_sizes.mthp.iter().chain(&host.page_sizes.pmd);
    let count = |size: &PageSize| {
        let path = format!("{THP}/hugepages-{}kB/stats/nr_anon", size.bytes() >> 10);
        Ok(host.number(&path)?.map(|count| (*size, count)))
    };
    sizes.filter_map(|size| count(size).transpose()).collect()
}

fn pools(host: &Host) -> Result<BTreeMap<PageSize, Pool>, HostError> {
    let pool = |size: &PageSize| {
        let number = |file: &str| host.required_number(&hugetlb_file(*size, file));
        Ok((*size, Pool { pages: number("nr_hugepages")?, free: number("free_hugepages")? }))
    };
    let pools: Result<Vec<(PageSize, Pool)>, HostError> = host.page_sizes.hugetlb.iter().map(pool).collect();
    Ok(pools?.into_iter().filter(|(_, pool)| pool.pages > 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(name: &str) -> Host {
        let root = format!("{}/../../fixtures/host/{name}", env!("CARGO_MANIFEST_DIR"));
        Host::open(root).unwrap()
    }

    #[test]
    fn a_captured_host_has_every_part_of_the_activity() {
        let host = captured("x86_64-6.18");
        let activity = host.activity().unwrap();
        let counters = host.counters().unwrap();
        assert!(counters.iter().all(|(name, value)| activity.counters.get(name) == Some(value)), "{activity:?}");
        assert!(activity.counters.get(FAULTS) > activity.counters.get(MAJOR_FAULTS), "{activity:?}");
        assert!(activity.memory_bytes > activity.available_bytes, "{activity:?}");
        assert_eq!(activity.free_blocks_by_order.len(), 11);
        let of_order = |order: usize| activity.free_blocks_by_node.values().filter_map(move |blocks| blocks.get(order));
        let by_node: Vec<u64> = (0..11).map(|order| of_order(order).sum()).collect();
        assert_eq!(by_node, activity.free_blocks_by_order, "the nodes add up");
        let all = activity.free_bytes_from(PageSize::K4, PageSize::K4);
        let large = activity.free_bytes_from(PageSize::M2, PageSize::K4);
        assert!(large < all && large.is_multiple_of(2 << 20), "{large} of {all}");
    }

    #[test]
    fn counters_that_an_old_kernel_lacks_are_absent() {
        let activity = captured("x86_64-5.10").activity().unwrap();
        assert!(activity.anonymous_folios.is_empty());
        assert_eq!(activity.counters.get("hugepages-64kB/anon_fault_alloc"), None);
    }
}
