//! The page sizes that the kernel offers.

use std::path::Path;

use policy::PageSizes;
use policy::size::PageSize;

use super::absent;
use super::read::{self, HostError};
use super::{HUGETLB, THP};

/// Reads the page sizes of the host under `root`.
pub fn read(root: &Path) -> Result<PageSizes, HostError> {
    let base = base_page(root)?;
    let pmd = pmd_leaf(root)?;
    let mut mthp = Vec::new();
    for size in sizes(root, THP)?.into_iter().filter(|size| pmd.is_none_or(|pmd| *size < pmd)) {
        // A size whose folder has no `enabled` is for shared memory only (order 1; mm/huge_memory.c,
        // `thpsize_create`): anonymous memory cannot have it.
        if absent::exists(root, &super::thp_size_enabled(size))? {
            mthp.push(size);
        }
    }
    Ok(PageSizes { base, pmd, mthp, hugetlb: sizes(root, HUGETLB)? })
}

/// The base page: of the running kernel from sysconf(3); of a captured one from the first mapping in
/// `/proc/self/smaps`, whose kernel page size is the base page.
fn base_page(root: &Path) -> Result<PageSize, HostError> {
    let wrong = |path: &str, found: String| HostError::Unexpected {
        path: read::under(root, path),
        expected: "a base page size that is a power of two of at least 1K",
        found,
    };
    let bytes = if root == Path::new("/") {
        let bytes = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
        bytes.expect("POSIX requires PAGE_SIZE") as u64
    } else {
        let smaps = read::required(root, "/proc/self/smaps")?;
        let kilobytes = read::keyed_number(&smaps, "KernelPageSize");
        kilobytes.ok_or_else(|| wrong("/proc/self/smaps", "no line KernelPageSize".into()))? << 10
    };
    PageSize::new(bytes).map_err(|_| wrong("/proc/self/smaps", bytes.to_string()))
}

/// The PMD leaf that THP maps; `None` where the kernel has no THP. Since Linux 4.10 a file says it;
/// without it the size is not guessed.
fn pmd_leaf(root: &Path) -> Result<Option<PageSize>, HostError> {
    if !absent::exists(root, &format!("{THP}/enabled"))? {
        return Ok(None);
    }
    let path = format!("{THP}/hpage_pmd_size");
    let text = read::required(root, &path)?;
    let size = text.trim().parse().ok().and_then(|bytes| PageSize::new(bytes).ok());
    size.map(Some).ok_or_else(|| HostError::Unexpected {
        path: read::under(root, &path),
        expected: "a size in bytes",
        found: text.trim().to_string(),
    })
}

/// The sizes in the names `hugepages-64kB` of a folder, smallest first.
fn sizes(root: &Path, folder: &str) -> Result<Vec<PageSize>, HostError> {
    let size = |name: &String| {
        let kilobytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        PageSize::new(kilobytes.checked_mul(1024)?).ok()
    };
    let mut sizes: Vec<PageSize> = absent::names(root, folder)?.iter().filter_map(size).collect();
    sizes.sort();
    Ok(sizes)
}
