//! The page sizes of the running kernel, and which folio sizes exist at this moment.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nix::unistd::{SysconfVar, sysconf};
use study::size::PageSize;

use super::folio::Orders;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// The base page of the running kernel.
pub fn base_page() -> PageSize {
    let bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096);
    PageSize::new(bytes as u64).unwrap_or(PageSize::K4)
}

/// The size that a PMD leaf maps; `None` where the kernel has no THP.
pub fn pmd_leaf() -> Option<PageSize> {
    let text = fs::read_to_string(Path::new(THP).join("hpage_pmd_size")).ok()?;
    text.trim().parse::<u64>().ok().and_then(|bytes| PageSize::new(bytes).ok())
}

/// How many anonymous folios of each size above the base page exist in the whole system, PMD-mapped or
/// not (`hugepages-*kB/stats/nr_anon`, Linux 6.12); `None` where the kernel does not say.
///
/// What is counted here was counted when the folio was made; so a size that shows 0 after a process was
/// stopped does not occur in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnonymousFolios(BTreeMap<PageSize, u64>);

impl AnonymousFolios {
    /// The counters of this moment.
    pub fn read() -> Option<AnonymousFolios> {
        AnonymousFolios::read_below(Path::new(THP))
    }

    /// The counters below another directory. Sizes without the file cannot be anonymous
    /// (`THP_ORDERS_ALL_ANON`, include/linux/huge_mm.h); PMD size always can.
    fn read_below(directory: &Path) -> Option<AnonymousFolios> {
        let mut counts = BTreeMap::new();
        for entry in fs::read_dir(directory).ok()?.flatten() {
            let name = entry.file_name();
            let Some(size) = name.to_str().and_then(folder_size) else { continue };
            let Ok(text) = fs::read_to_string(entry.path().join("stats/nr_anon")) else { continue };
            counts.insert(size, text.trim().parse().ok()?);
        }
        (!counts.is_empty()).then_some(AnonymousFolios(counts))
    }

    /// Whether there is a folio of this size.
    pub fn exist(&self, size: PageSize) -> bool {
        self.0.get(&size).is_some_and(|count| *count > 0)
    }

    /// Whether no anonymous folio is larger than a base page.
    pub fn none(&self) -> bool {
        self.0.values().all(|count| *count == 0)
    }

    /// The orders that exist.
    pub fn orders(&self, base: PageSize) -> Orders {
        let existing = self.0.iter().filter(|(_, count)| **count > 0);
        Orders::Only(existing.map(|(size, _)| size.order(base)).collect())
    }
}

/// The size that the name of a folder such as `hugepages-64kB` stands for.
pub fn folder_size(name: &str) -> Option<PageSize> {
    let kilobytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    PageSize::new(kilobytes.checked_mul(1024)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_are_missing_or_rubbish_say_nothing() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(AnonymousFolios::read_below(directory.path()), None);
        let put = |size: &str, text: &str| {
            let stats = directory.path().join(format!("hugepages-{size}/stats"));
            fs::create_dir_all(&stats).unwrap();
            fs::write(stats.join("nr_anon"), text).unwrap();
        };
        put("64kB", "0\n");
        fs::create_dir_all(directory.path().join("hugepages-8kB/stats")).unwrap();
        assert!(AnonymousFolios::read_below(directory.path()).unwrap().none());
        put("2048kB", "3\n");
        let folios = AnonymousFolios::read_below(directory.path()).unwrap();
        assert!(folios.exist(PageSize::M2) && !folios.exist(PageSize::K64) && !folios.none());
        assert_eq!(folios.orders(PageSize::K4), Orders::Only(vec![9]));
        put("128kB", "?");
        assert_eq!(AnonymousFolios::read_below(directory.path()), None);
    }
}
