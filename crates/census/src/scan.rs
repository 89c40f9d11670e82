//! The two ioctls of the census: PAGEMAP_SCAN (Linux 6.7) on `/proc/PID/pagemap` and PROCMAP_QUERY
//! (Linux 6.11) on `/proc/PID/maps`; both are declared in include/uapi/linux/fs.h.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::maps::Vma;

/// Page of a file, of shared memory, or another page that is not anonymous.
pub const FILE: u64 = 1 << 2;
/// Page that is present.
pub const PRESENT: u64 = 1 << 3;
/// The shared page of zeros, of base or of PMD size.
pub const ZERO: u64 = 1 << 5;
/// Page that is mapped by a PMD leaf, or a hugetlb page of any size.
pub const HUGE: u64 = 1 << 6;

/// A run of pages of the same categories; the kernel's `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageRegion {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// What was found, as far as it was asked for.
    pub categories: u64,
}

/// The kernel's `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// The kernel's `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct QueryArgument {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const PAGEMAP_SCAN: libc::Ioctl = libc::_IOWR::<ScanArgument>(b'f' as u32, 16);
const PROCMAP_QUERY: libc::Ioctl = libc::_IOWR::<QueryArgument>(b'f' as u32, 17);
const QUERY_SHARED: u64 = 1 << 3;
const QUERY_COVERING_OR_NEXT: u64 = 1 << 4;
const NAME_BYTES: usize = libc::PATH_MAX as usize;

/// Reads the categories of the pages that are present.
pub struct Scanner {
    buffer: Vec<PageRegion>,
}

impl Scanner {
    /// Regions that one call of the kernel can return.
    const REGIONS: usize = 1024;

    /// A scanner with its buffer.
    pub fn new() -> Scanner {
        Scanner { buffer: vec![PageRegion::default(); Scanner::REGIONS] }
    }

    /// Appends the regions of present pages in `start..end` to `found`, in the order of addresses;
    /// neighbours of the same categories are one region. `wanted` are the categories to report: to ask
    /// for [`FILE`] costs a look at every page's `struct page`, about three times the scan itself.
    ///
    /// # Errors
    /// `ENOTTY` on kernels before 6.7; `ESRCH` or an empty answer where the process is gone.
    pub fn scan(
        &mut self,
        pagemap: &File,
        start: u64,
        end: u64,
        wanted: u64,
        found: &mut Vec<PageRegion>,
    ) -> io::Result<()> {
        let mut at = start;
        while at < end {
            let (count, walk_end) = self.scan_once(pagemap, at, end, wanted)?;
            for region in &self.buffer[..count] {
                push_region(found, *region);
            }
            // The kernel fills the buffer in several walks and, where the last of them reaches the end,
            // leaves the end of the one before in `walk_end` (do_pagemap_scan, fs/proc/task_mmu.c, 6.7 to
            // 6.18): what was returned may reach further.
            let returned = self.buffer[..count].last().map_or(0, |region| region.end);
            let next = walk_end.max(returned);
            if next <= at {
                break;
            }
            at = next;
        }
        Ok(())
    }

    fn scan_once(&mut self, pagemap: &File, start: u64, end: u64, wanted: u64) -> io::Result<(usize, u64)> {
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start,
            end,
            vec: self.buffer.as_mut_ptr() as u64,
            vec_len: self.buffer.len() as u64,
            category_mask: PRESENT,
            return_mask: wanted | PRESENT,
            ..ScanArgument::default()
        };
        // SAFETY: `argument` has the layout that PAGEMAP_SCAN reads and writes, and `vec`/`vec_len`
        // describe `self.buffer`, which nothing else uses during the call.
        let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &mut argument) };
        if count < 0 { Err(io::Error::last_os_error()) } else { Ok((count as usize, argument.walk_end)) }
    }
}

/// Appends a region, or lengthens the last one that it continues.
pub fn push_region(found: &mut Vec<PageRegion>, region: PageRegion) {
    match found.last_mut() {
        Some(last) if last.end == region.start && last.categories == region.categories => last.end = region.end,
        _ => found.push(region),
    }
}

/// The mapping at `address` or the next one above, with its page size (`vma_kernel_pagesize`: larger
/// than a base page for hugetlb and device DAX only); `None` above the last mapping.
///
/// # Errors
/// `ENOTTY` on kernels before 6.11.
pub fn query_vma(maps: &File, address: u64) -> io::Result<Option<(Vma, u64)>> {
    let mut name = [0u8; NAME_BYTES];
    let mut argument = QueryArgument {
        size: size_of::<QueryArgument>() as u64,
        query_flags: QUERY_COVERING_OR_NEXT,
        query_addr: address,
        vma_name_size: name.len() as u32,
        vma_name_addr: name.as_mut_ptr() as u64,
        ..QueryArgument::default()
    };
    // SAFETY: `argument` has the layout that PROCMAP_QUERY reads and writes, and the name's address and
    // size describe `name`, which nothing else uses during the call.
    let status = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &mut argument) };
    if status < 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ENOENT) { Ok(None) } else { Err(error) };
    }
    let length = (argument.vma_name_size as usize).saturating_sub(1).min(name.len());
    let vma = Vma {
        start: argument.vma_start,
        end: argument.vma_end,
        // PROCMAP_QUERY_VMA_READABLE, _WRITABLE and _EXECUTABLE have the values of PROT_*.
        protection: argument.vma_flags & (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as u64,
        shared: argument.vma_flags & QUERY_SHARED != 0,
        device: (argument.dev_major, argument.dev_minor),
        inode: argument.inode,
        name: String::from_utf8_lossy(&name[..length]).into_owned(),
    };
    Ok(Some((vma, argument.vma_page_size)))
}
