//! [`Scanner`]: the ioctl of the census, PAGEMAP_SCAN (Linux 6.7) on `/proc/PID/pagemap`, declared in
//! include/uapi/linux/fs.h.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Category: page of a file, of shared memory, or another page that is not anonymous.
pub const FILE: u64 = 1 << 2;
/// Category: page that is present.
pub const PRESENT: u64 = 1 << 3;
/// Category: guard inside a mapping (MADV_GUARD_INSTALL); reported since Linux 6.15.
pub const GUARD: u64 = 1 << 8;
/// Category: the shared zero page, of base or of PMD size.
pub const ZERO: u64 = 1 << 5;
/// Category: page that is mapped by a PMD leaf, or a hugetlb page of any size.
pub const HUGE: u64 = 1 << 6;

/// A run of pages with the same categories; the kernel's `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageRegion {
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The categories found, among those requested.
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

const PAGEMAP_SCAN: libc::Ioctl = libc::_IOWR::<ScanArgument>(b'f' as u32, 16);

/// Reads the categories of present pages.
pub struct Scanner {
    buffer: Vec<PageRegion>,
}

impl Scanner {
    /// The most regions that one call of the kernel can return.
    const REGIONS: usize = 1024;

    /// A scanner with its buffer.
    pub fn new() -> Scanner {
        Scanner { buffer: vec![PageRegion::default(); Scanner::REGIONS] }
    }

    /// Appends the regions of present pages in `start..end` to `found`, in address order; neighbours with the same categories are
    /// one region. `wanted` are the categories to report. Requesting [`FILE`] costs an access to every page's `struct page`,
    /// about three times the scan itself. Fails with `ENOTTY` on kernels before 6.7. `ESRCH` or an empty result means that the
    /// process has ended.
    pub fn scan(
        &mut self,
        pagemap: &File,
        start: u64,
        end: u64,
        wanted: u64,
        found: &mut Vec<PageRegion>,
    ) -> io::Result<()> {
        self.scan_for(pagemap, start..end, PRESENT, wanted, found)
    }

    /// As [`Scanner::scan`], for pages with all categories in `all_of`. Fails with `EINVAL` where the kernel does not know a
    /// category.
    pub fn scan_for(
        &mut self,
        pagemap: &File,
        range: Range<u64>,
        all_of: u64,
        wanted: u64,
        found: &mut Vec<PageRegion>,
    ) -> io::Result<()> {
        let (mut at, end) = (range.start, range.end);
        while at < end {
            let (count, walk_end) = self.scan_once(pagemap, at..end, all_of, wanted)?;
            for region in &self.buffer[..count] {
                push_region(found, *region);
            }
            // The kernel fills the buffer in several walks. If the last of them reaches the end, the kernel leaves the end of the
            // previous walk in `walk_end` (do_pagemap_scan, fs/proc/task_mmu.c, 6.7 to 6.18), so the returned regions may extend
            // further.
            let returned = self.buffer[..count].last().map_or(0, |region| region.end);
            let next = walk_end.max(returned);
            if next <= at {
                break;
            }
            at = next;
        }
        Ok(())
    }

    fn scan_once(&mut self, pagemap: &File, range: Range<u64>, all_of: u64, wanted: u64) -> io::Result<(usize, u64)> {
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start: range.start,
            end: range.end,
            vec: self.buffer.as_mut_ptr() as u64,
            vec_len: self.buffer.len() as u64,
            category_mask: all_of,
            return_mask: wanted | all_of,
            ..ScanArgument::default()
        };
        // SAFETY: `argument` has the layout that PAGEMAP_SCAN reads and writes, and `vec`/`vec_len`
        // describe `self.buffer`, which nothing else uses during the call.
        let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &mut argument) };
        if count < 0 { Err(io::Error::last_os_error()) } else { Ok((count as usize, argument.walk_end)) }
    }
}

/// Appends a region, or extends the last one if the region continues it.
pub fn push_region(found: &mut Vec<PageRegion>, region: PageRegion) {
    match found.last_mut() {
        Some(last) if last.end == region.start && last.categories == region.categories => last.end = region.end,
        _ => found.push(region),
    }
}
