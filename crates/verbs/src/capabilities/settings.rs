//! The system settings under which `capabilities` tries a size.

use host::{Host, HostError, KHUGEPAGED, THP, hugetlb_file};
use policy::capability::Kind;
use policy::size::PageSize;

/// Settings as path and value.
pub type Settings = Vec<(String, String)>;

/// The settings that enable only this size, and only for advised memory, so that khugepaged has little to scan, and other programs get
/// large folios only in memory that they advise. Settings that the kernel lacks are left out.
pub fn enabling_only(host: &Host, size: PageSize, folio_sizes: &[PageSize]) -> Result<Settings, HostError> {
    let pmd = host.page_sizes().pmd;
    const FILES: [(&str, &str); 2] = [("enabled", "madvise"), ("shmem_enabled", "advise")];
    let value = |is_enabled: bool, advised: &str| String::from(if is_enabled { advised } else { "never" });
    let mut wanted = Settings::new();
    for folio_size in folio_sizes {
        for (file, advised) in FILES {
            wanted.push((size_file(*folio_size, file), value(*folio_size == size, advised)));
        }
    }
    for (file, advised) in FILES {
        wanted.push((format!("{THP}/{file}"), value(pmd == Some(size), advised)));
    }
    wanted.push((format!("{THP}/defrag"), "madvise".to_owned()));
    wanted.extend(khugepaged_limits(host));
    existing(host, wanted)
}

/// The settings with which khugepaged collapses a range however many of its PTEs are none, swapped out or shared, and may reclaim and
/// compact memory to get a large page.
fn khugepaged_limits(host: &Host) -> Settings {
    let sizes = host.page_sizes();
    let Some(pmd) = sizes.pmd else { return Settings::new() };
    let max_ptes = (pmd.bytes() / sizes.base.bytes() - 1).to_string();
    let limits = ["max_ptes_none", "max_ptes_swap", "max_ptes_shared"].map(|name| khugepaged(name, &max_ptes));
    limits.into_iter().chain([khugepaged("defrag", "1")]).collect()
}

/// The settings with which khugepaged scans now (writing a sleep wakes it), up to 1,048,576 pages at a time, and again 20 ms later.
pub fn scanning(host: &Host) -> Result<Settings, HostError> {
    existing(
        host,
        vec![
            khugepaged("alloc_sleep_millisecs", "10"),
            khugepaged("pages_to_scan", "1048576"),
            khugepaged("scan_sleep_millisecs", "20"),
        ],
    )
}

/// The setting that gives a pool at least `pages` free pages; empty if the pool has them already, or does not exist.
pub fn pool(host: &Host, size: PageSize, pages: u64) -> Result<Settings, HostError> {
    let path = hugetlb_file(size, "nr_hugepages");
    let (Some(now), Some(free)) = (host.number(&path)?, host.number(&hugetlb_file(size, "free_hugepages"))?) else {
        return Ok(Settings::new());
    };
    // Reserved pages are free, but promised to others.
    let reserved = host.number(&hugetlb_file(size, "resv_hugepages"))?.unwrap_or(0);
    let missing = pages.saturating_sub(free.saturating_sub(reserved));
    Ok(if missing == 0 { Settings::new() } else { vec![(path, (now + missing).to_string())] })
}

/// The setting of this size for anonymous memory or shmem, or the pool's nr_hugepages, and whether the kernel has it. Files have none.
pub fn size_setting(host: &Host, kind: Kind, size: PageSize) -> Result<(String, bool), HostError> {
    let path = match kind {
        Kind::Hugetlb => hugetlb_file(size, "nr_hugepages"),
        _ if kind.is_shmem() => size_file(size, "shmem_enabled"),
        _ => size_file(size, "enabled"),
    };
    let has = host.has(&path)?;
    Ok((path, has))
}

fn khugepaged(name: &str, value: &str) -> (String, String) {
    (format!("{KHUGEPAGED}/{name}"), value.to_owned())
}

fn size_file(size: PageSize, file: &str) -> String {
    format!("{THP}/hugepages-{}kB/{file}", size.bytes() >> 10)
}

fn existing(host: &Host, wanted: Settings) -> Result<Settings, HostError> {
    let mut found = Settings::new();
    for setting in wanted {
        if host.has(&setting.0)? {
            found.push(setting);
        }
    }
    Ok(found)
}
