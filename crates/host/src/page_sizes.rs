//! The page sizes that the kernel offers.

use std::io;

use policy::PageSizes;
use policy::size::PageSize;

use super::absent;
use super::read::{self, HostError};
use super::{HUGETLB, Root, THP};

/// The largest base page of the 64-bit architectures.
const MAX_BASE: PageSize = PageSize::K64;

/// Reads the page sizes of the host.
pub fn read(root: &Root) -> Result<PageSizes, HostError> {
    let base = base_page(root)?;
    let pmd = pmd_leaf(root, base)?;
    let mut mthp = Vec::new();
    for size in sizes(root, THP)?.into_iter().filter(|size| pmd.is_none_or(|pmd| *size < pmd)) {
        // A size whose directory has no `enabled` is for shared memory only (order 1; mm/huge_memory.c, `thpsize_create`):
        // anonymous memory cannot have it.
        if absent::exists(root, &super::thp_size_enabled(size))? {
            mthp.push(size);
        }
    }
    Ok(PageSizes { base, pmd, mthp, hugetlb: sizes(root, HUGETLB)? })
}

/// The base page size: of the running kernel from sysconf(3); of a captured one from the first mapping in `/proc/self/smaps`,
/// whose kernel page size is the base page size.
fn base_page(root: &Root) -> Result<PageSize, HostError> {
    let wrong = |path: &str, found: String| HostError::Unexpected {
        path: root.under(path),
        expected: "a base page size that is a power of two from 1K to 64K",
        found,
    };
    let bytes = if root.is_live() {
        let bytes = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
        bytes.expect("POSIX requires PAGE_SIZE") as u64
    } else {
        let bytes = kernel_page_bytes(root).map_err(|error| root.unreadable("/proc/self/smaps", error))?;
        bytes.ok_or_else(|| wrong("/proc/self/smaps", "no line KernelPageSize".into()))?
    };
    let base = PageSize::new(bytes).ok().filter(|base| *base <= MAX_BASE);
    base.ok_or_else(|| wrong("/proc/self/smaps", bytes.to_string()))
}

/// The first kernel page size in smaps, in bytes.
fn kernel_page_bytes(root: &Root) -> io::Result<Option<u64>> {
    let (mut lines, mut line) = (root.lines("/proc/self/smaps")?, Vec::new());
    while read::next_line(&mut lines, &mut line)? {
        if let Some(bytes) = read::keyed_bytes(&read::escaped_line(&line), "KernelPageSize") {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// The size of the PMD leaf that THP maps; `None` where the kernel has no THP. Since Linux 4.10 a file contains it; without that
/// file the size is not guessed.
fn pmd_leaf(root: &Root, base: PageSize) -> Result<Option<PageSize>, HostError> {
    if !absent::exists(root, &format!("{THP}/enabled"))? {
        return Ok(None);
    }
    let path = format!("{THP}/hpage_pmd_size");
    let text = root.required(&path)?;
    let size = text.trim().parse().ok().and_then(|bytes| PageSize::new(bytes).ok());
    size.filter(|size| base < *size && *size <= PageSize::G1).map(Some).ok_or_else(|| HostError::Unexpected {
        path: root.under(&path),
        expected: "the size of a PMD leaf in bytes, more than a base page and at most 1G",
        found: text.trim().to_string(),
    })
}

/// The sizes in the names `hugepages-64kB` of a directory, smallest first.
fn sizes(root: &Root, folder: &str) -> Result<Vec<PageSize>, HostError> {
    let size = |name: &String| {
        let kilobytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        PageSize::new(kilobytes.checked_mul(1024)?).ok()
    };
    let mut sizes: Vec<PageSize> = absent::names(root, folder)?.iter().filter_map(size).collect();
    sizes.sort();
    Ok(sizes)
}
