//! [`FrameScanner`] gives what PAGEMAP_SCAN reports, on kernels before 6.7. It reads page by page from pagemap and
//! kpageflags, and PMD leaves from smaps. It needs root, reads each mapping as a whole, and is meant for small mappings.
//!
//! smaps has only the sum of a mapping's PMD leaves. Leaves map whole, aligned folios of their size, so a mapping's leaves are known
//! where that sum is zero, or equals the sum of such folios. The huge zero page is not in that sum: it is always mapped by a leaf, because
//! a split maps the base zero page in its place (`__split_huge_zero_page_pmd`, mm/huge_memory.c).

use std::fs::File;
use std::io;

use policy::size::PageSize;

use super::folio::{FrameFlags, HEAD, TAIL};
use super::frames::{self, FlagsReader};
use super::scan::{self, PageRegion};

/// Bit of a pagemap entry: a page of a file, or of shared memory.
const FILE: u64 = 1 << 61;
/// Bit of kpageflags: the zero page, of base or of PMD size.
const ZERO_PAGE: u64 = 1 << 24;

/// A mapping, with the facts that smaps has about it.
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// The sum of its PMD leaves.
    pub pmd_mapped_bytes: u64,
    /// Whether it belongs to a hugetlb pool.
    pub is_hugetlb: bool,
}

/// Why the leaves of a mapping are not known.
#[derive(Debug, thiserror::Error)]
pub enum FrameScanError {
    /// Some of its folios are mapped by leaves of their size and others are not.
    #[error("some large folios are mapped by leaves of their size and others are not")]
    Ambiguous,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads pages of one process.
pub struct FrameScanner<'a> {
    pub pagemap: &'a File,
    /// `/proc/kpageflags`.
    pub flags: &'a File,
    pub base: PageSize,
    pub pmd: Option<PageSize>,
}

impl FrameScanner<'_> {
    /// The regions of present pages of a mapping, in address order.
    pub fn scan(&self, mapping: &Mapping) -> Result<Vec<PageRegion>, FrameScanError> {
        let base = self.base.bytes();
        let mut entries = vec![0; ((mapping.end - mapping.start) / base) as usize];
        let read = frames::read_entries(self.pagemap, mapping.start / base, &mut entries)?;
        entries.truncate(read);
        let mut flags = FlagsReader::new(self.flags);
        let mut categories = entries
            .iter()
            .map(|entry| categories(*entry, mapping, &mut flags))
            .collect::<io::Result<Vec<Option<u64>>>>()?;
        if let Some(pmd) = self.pmd.filter(|_| !mapping.is_hugetlb) {
            let pages = (pmd.bytes() / base) as usize;
            let first = ((pmd.align_up(mapping.start).unwrap_or(mapping.end) - mapping.start) / base) as usize;
            let slots = (first..(entries.len() + 1).saturating_sub(pages)).step_by(pages);
            let folios = whole_folios(&entries, slots, pages, &mut flags)?;
            let is_zero = |first: &usize| categories[*first].is_some_and(|known| known & scan::ZERO != 0);
            let (mut leaves, memory): (Vec<usize>, Vec<usize>) = folios.into_iter().partition(is_zero);
            if mapping.pmd_mapped_bytes > 0 {
                if memory.len() as u64 * pmd.bytes() != mapping.pmd_mapped_bytes {
                    return Err(FrameScanError::Ambiguous);
                }
                leaves.extend(memory);
            }
            for at in leaves.into_iter().flat_map(|first| first..first + pages) {
                categories[at] = categories[at].map(|known| known | scan::HUGE);
            }
        }
        let mut regions = Vec::new();
        for (at, categories) in categories.into_iter().enumerate() {
            let start = mapping.start + at as u64 * base;
            if let Some(categories) = categories {
                scan::push_region(&mut regions, PageRegion { start, end: start + base, categories });
            }
        }
        Ok(regions)
    }
}

/// The categories of a page apart from those of leaves; `None` for a page that is not present.
fn categories(entry: u64, mapping: &Mapping, flags: &mut FlagsReader) -> io::Result<Option<u64>> {
    if entry & frames::PRESENT == 0 {
        return Ok(None);
    }
    let is_zero = flags.at(entry & frames::FRAME)? & ZERO_PAGE != 0;
    let with = |is_set: bool, category: u64| if is_set { category } else { 0 };
    let found = with(is_zero, scan::ZERO) | with(entry & FILE != 0, scan::FILE) | with(mapping.is_hugetlb, scan::HUGE);
    Ok(Some(scan::PRESENT | found))
}

/// The slots that a whole, aligned folio of their size fills.
fn whole_folios(
    entries: &[u64],
    slots: impl Iterator<Item = usize>,
    pages: usize,
    flags: &mut FlagsReader,
) -> io::Result<Vec<usize>> {
    let mut found = Vec::new();
    for first in slots {
        let slot = &entries[first..first + pages];
        let head = slot[0] & frames::FRAME;
        let follows =
            |(at, entry): (usize, &u64)| *entry & frames::PRESENT != 0 && *entry & frames::FRAME == head + at as u64;
        let is_in_place = head.is_multiple_of(pages as u64) && slot.iter().enumerate().all(follows);
        if is_in_place && flags.at(head)? & HEAD != 0 && flags.at(head + pages as u64 - 1)? & TAIL != 0 {
            found.push(first);
        }
    }
    Ok(found)
}
