//! The page sizes of the running kernel, and the [`AnonymousFolios`] that currently exist, by size.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use host::if_exists;
use nix::unistd::{SysconfVar, sysconf};
use policy::size::PageSize;

use super::CensusError;
use super::folio::Orders;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// The base page of the running kernel.
pub fn base_page() -> PageSize {
    let bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().expect("POSIX requires PAGE_SIZE");
    PageSize::new(bytes as u64).expect("a page of the kernel has a size of a power of two")
}

/// The size of a PMD leaf; `None` where the kernel has no THP.
pub fn pmd_leaf() -> Result<Option<PageSize>, CensusError> {
    pmd_leaf_in(&Path::new(THP).join("hpage_pmd_size"))
}

fn pmd_leaf_in(file: &Path) -> Result<Option<PageSize>, CensusError> {
    let failed = |error| CensusError::Io { path: file.display().to_string(), error };
    let Some(text) = if_exists(host::content(file)).map_err(failed)? else { return Ok(None) };
    let size = text.trim().parse().ok().and_then(|bytes| PageSize::new(bytes).ok());
    let wrong = || failed(io::Error::other(format!("expected a size in bytes, found {:?}", text.trim())));
    size.map(Some).ok_or_else(wrong)
}

/// The counters `hugepages-*kB/stats/nr_anon` (Linux 6.12), kept open for repeated reading. `None` if the directory
/// cannot be listed or an existing counter cannot be opened.
pub struct FolioCounters(Option<Vec<(PageSize, File)>>);

/// The number of anonymous folios of each size above the base page in the whole system, PMD-mapped or not.
///
/// The kernel counts a folio when it is made. If a counter is 0 after a process was stopped, the process had no folio of that
/// size then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnonymousFolios(BTreeMap<PageSize, u64>);

impl FolioCounters {
    /// The counters of the running kernel, if it has them.
    pub fn open() -> FolioCounters {
        FolioCounters::open_below(Path::new(THP))
    }

    /// The counters below `directory`. The kernel never uses a size without such a file for anonymous folios
    /// (`THP_ORDERS_ALL_ANON`, include/linux/huge_mm.h).
    fn open_below(directory: &Path) -> FolioCounters {
        let open = || -> io::Result<Vec<(PageSize, File)>> {
            let mut counters = Vec::new();
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                let Some(size) = entry.file_name().to_str().and_then(folder_size) else { continue };
                let file = if_exists(File::open(entry.path().join("stats/nr_anon")))?;
                counters.extend(file.map(|file| (size, file)));
            }
            Ok(counters)
        };
        // Without the counters no size can be excluded, and the flags of every frame are read.
        FolioCounters(open().ok())
    }

    /// The current values; `None` where the kernel does not report them.
    pub fn read(&self) -> Option<AnonymousFolios> {
        let counts: Option<BTreeMap<PageSize, u64>> =
            self.0.iter().flatten().map(|(size, file)| Some((*size, read_number(file)?))).collect();
        counts.filter(|counts| !counts.is_empty()).map(AnonymousFolios)
    }
}

fn read_number(file: &File) -> Option<u64> {
    let mut text = [0u8; 24];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
}

impl AnonymousFolios {
    /// Whether there is an anonymous folio of this size.
    pub fn exist(&self, size: PageSize) -> bool {
        self.0.get(&size).is_some_and(|count| *count > 0)
    }

    /// Whether no anonymous folio is larger than a base page.
    pub fn has_no_large_folio(&self) -> bool {
        self.0.values().all(|count| *count == 0)
    }

    /// The orders that currently exist.
    pub fn orders(&self, base: PageSize) -> Orders {
        let existing = self.0.iter().filter(|(_, count)| **count > 0);
        Orders::Only(existing.map(|(size, _)| size.order(base)).collect())
    }
}

/// The size in the name of a directory such as `hugepages-64kB`.
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
        assert_eq!(FolioCounters::open_below(directory.path()).read(), None);
        let put = |size: &str, text: &str| {
            let stats = directory.path().join(format!("hugepages-{size}/stats"));
            fs::create_dir_all(&stats).unwrap();
            fs::write(stats.join("nr_anon"), text).unwrap();
        };
        put("64kB", "0\n");
        fs::create_dir_all(directory.path().join("hugepages-8kB/stats")).unwrap();
        assert!(FolioCounters::open_below(directory.path()).read().unwrap().has_no_large_folio());
        put("2048kB", "3\n");
        let folios = FolioCounters::open_below(directory.path()).read().unwrap();
        assert!(folios.exist(PageSize::M2) && !folios.exist(PageSize::K64) && !folios.has_no_large_folio());
        assert_eq!(folios.orders(PageSize::K4), Orders::Only(vec![9]));
        put("128kB", "?");
        assert_eq!(FolioCounters::open_below(directory.path()).read(), None);
    }

    #[test]
    fn a_counter_that_cannot_be_read_does_not_say_that_there_is_no_such_folio() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("hugepages-64kB/stats")).unwrap();
        fs::write(directory.path().join("hugepages-64kB/stats/nr_anon"), "0\n").unwrap();
        fs::create_dir_all(directory.path().join("hugepages-2048kB/stats/nr_anon")).unwrap();
        assert_eq!(FolioCounters::open_below(directory.path()).read(), None, "a directory in place of the counter");
        fs::remove_dir(directory.path().join("hugepages-2048kB/stats/nr_anon")).unwrap();
        fs::remove_dir(directory.path().join("hugepages-2048kB/stats")).unwrap();
        fs::write(directory.path().join("hugepages-2048kB/stats"), "").unwrap();
        assert_eq!(FolioCounters::open_below(directory.path()).read(), None, "a file in place of the directory");
    }

    #[test]
    fn a_leaf_whose_size_cannot_be_read_is_not_missing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hpage_pmd_size");
        assert_eq!(pmd_leaf_in(&file).unwrap(), None);
        assert!(pmd_leaf_in(directory.path()).is_err());
        fs::write(&file, "huge\n").unwrap();
        assert!(pmd_leaf_in(&file).unwrap_err().to_string().contains("\"huge\""));
        fs::write(&file, "2097152\n").unwrap();
        assert_eq!(pmd_leaf_in(&file).unwrap(), Some(PageSize::M2));
    }
}
