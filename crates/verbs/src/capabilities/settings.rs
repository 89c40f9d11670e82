//! The system settings under which `capabilities` tries a size.

use host::{HUGETLB, Host, HostError, KHUGEPAGED, THP, hugetlb_file};
use policy::capability::Kind;
use policy::size::PageSize;

/// Settings as path and value.
pub type Settings = Vec<(String, String)>;

/// The settings that enable only this size, and only for advised memory. So other programs' memory stays as it is, and khugepaged has
/// little to scan. Settings that the kernel lacks are left out.
pub fn open(host: &Host, size: PageSize, folio_sizes: &[PageSize]) -> Result<Settings, HostError> {
    let pmd = host.page_sizes().pmd;
    const FILES: [(&str, &str); 2] = [("enabled", "madvise"), ("shmem_enabled", "advise")];
    let word = |is_wanted: bool, advised: &str| if is_wanted { advised } else { "never" }.to_owned();
    let mut wanted = Settings::new();
    for one in folio_sizes {
        for (file, advised) in FILES {
            wanted.push((size_file(*one, file), word(*one == size, advised)));
        }
    }
    for (file, advised) in FILES {
        wanted.push((format!("{THP}/{file}"), word(pmd == Some(size), advised)));
    }
    wanted.push((format!("{THP}/defrag"), "madvise".to_owned()));
    wanted.extend(khugepaged_limits(host));
    existing(host, wanted)
}

/// The settings that lift khugepaged's limits: it may then fill holes, and collapse swapped and shared pages.
fn khugepaged_limits(host: &Host) -> Settings {
    let sizes = host.page_sizes();
    let Some(pmd) = sizes.pmd else { return Settings::new() };
    let max_ptes = (pmd.bytes() / sizes.base.bytes() - 1).to_string();
    let of = |name: &str, value: &str| (format!("{KHUGEPAGED}/{name}"), value.to_owned());
    let limits = ["max_ptes_none", "max_ptes_swap", "max_ptes_shared"].map(|name| of(name, &max_ptes));
    limits.into_iter().chain([of("defrag", "1")]).collect()
}

/// The settings with which khugepaged scans all memory at once, and again soon after.
pub fn scanning(host: &Host) -> Result<Settings, HostError> {
    let of = |name: &str, value: &str| (format!("{KHUGEPAGED}/{name}"), value.to_owned());
    existing(
        host,
        vec![of("alloc_sleep_millisecs", "10"), of("pages_to_scan", "1048576"), of("scan_sleep_millisecs", "20")],
    )
}

/// The setting that gives a pool at least `pages` free pages; empty if the pool has them already, or does not exist.
pub fn pool(host: &Host, size: PageSize, pages: u64) -> Result<Settings, HostError> {
    let path = hugetlb_file(size, "nr_hugepages");
    let (Some(now), Some(free)) = (host.number(&path)?, host.number(&hugetlb_file(size, "free_hugepages"))?) else {
        return Ok(Settings::new());
    };
    let missing = pages.saturating_sub(free);
    Ok(if missing == 0 { Settings::new() } else { vec![(path, (now + missing).to_string())] })
}

/// The path of the setting that decides whether a kind of memory gets this size, and whether the kernel has that
/// setting.
pub fn deciding(host: &Host, kind: Kind, size: PageSize) -> Result<(String, bool), HostError> {
    let path = match kind {
        Kind::Hugetlb => format!("{HUGETLB}/hugepages-{}kB/nr_hugepages", size.bytes() >> 10),
        _ if kind.is_shmem() => size_file(size, "shmem_enabled"),
        _ => size_file(size, "enabled"),
    };
    let has = host.has(&path)?;
    Ok((path, has))
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
