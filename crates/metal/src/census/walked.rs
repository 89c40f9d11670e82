//! Large anonymous mappings of one process, looked at by its page tables in the kernel's memory; and checked.

use study::census::Folio;
use study::size::PageSize;

use super::folio::Orders;
use super::looking::Looking;
use super::maps::Vma;
use super::region::{self, Region};
use super::tables::{Kinds, PageTables, Space};
use super::{CensusError, FrameSource, scan};

/// Places of one mapping that are looked at in the other way too, beside its first and its last page.
const MOST_PLACES: u64 = 64;
/// A mapping has a place for so many bytes, up to that.
const PLACE_BYTES: u64 = 1 << 20;

/// The page tables of the process.
pub struct Tables<'a> {
    tables: &'a PageTables,
    space: Space,
}

impl Looking<'_> {
    /// The process's page tables, where reading them is worth it and possible; where it is not possible, the reason
    /// is noted.
    pub(super) fn tables(&self, vmas: &[Vma], start: u64, end: u64) -> Option<Tables<'_>> {
        let worth_bytes = self.observer.worth_tables_bytes.filter(|_| self.observer.sees_folios())?;
        let large = vmas.iter().filter(|vma| region::is_large_anonymous(vma));
        let large_bytes: u64 = large.map(|vma| vma.end.min(end).saturating_sub(vma.start.max(start))).sum();
        if large_bytes == 0 || large_bytes < worth_bytes || self.resident_bytes()? < worth_bytes {
            return None;
        }
        if worth_bytes > 0 && self.folios_of_system().is_some_and(|folios| folios.none()) {
            return None;
        }
        let opened = self.observer.tables().map_err(str::to_string).and_then(|tables| {
            let space = tables.space(&self.pagemap).map_err(|error| error.to_string())?;
            let space = space.ok_or("the address space was not found in the kernel's memory")?;
            Ok(Tables { tables, space })
        });
        let (source, tables) = match opened {
            Ok(tables) => (FrameSource::KernelMemory { left_bytes: 0 }, Some(tables)),
            Err(reason) => (FrameSource::PagemapInstead { reason }, None),
        };
        *self.frames.borrow_mut() = source;
        tables
    }

    /// What the process has in memory (`/proc/PID/statm`, the second number, in pages).
    fn resident_bytes(&self) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.pid)).ok()?;
        text.split(' ').nth(1)?.parse::<u64>().ok()?.checked_mul(self.observer.base.bytes())
    }

    /// What is present in a part of a large anonymous mapping. Where the tables fail, or say something else than
    /// pagemap and kpageflags, that is noted and there is no answer: nothing that they said may stand.
    pub(super) fn by_tables(&self, tables: &Tables, vma: &Vma, from: u64, to: u64) -> Result<Vec<Region>, CensusError> {
        let reason = match self.walked(tables, vma, from, to)? {
            Some((regions, left_bytes)) => match self.disagreement(vma, from, to, &regions)? {
                None => {
                    self.add_left(left_bytes);
                    return Ok(regions);
                }
                Some(address) => format!("page tables and pagemap did not say the same of address {address:#x}"),
            },
            None => "the kernel's memory could not be read".to_string(),
        };
        *self.frames.borrow_mut() = FrameSource::PagemapInstead { reason };
        Ok(Vec::new())
    }

    fn add_left(&self, bytes: u64) {
        if let FrameSource::KernelMemory { left_bytes } = &mut *self.frames.borrow_mut() {
            *left_bytes += bytes;
        }
    }

    /// What the tables say, with what they leave to PAGEMAP_SCAN, and how much that is; `None` where they fail.
    fn walked(
        &self,
        tables: &Tables,
        vma: &Vma,
        from: u64,
        to: u64,
    ) -> Result<Option<(Vec<Region>, u64)>, CensusError> {
        let observer = self.observer;
        let around = self.surroundings(vma, None);
        let kind = |categories| region::classify(categories, &around);
        let (Some(present), Some(zero)) = (kind(scan::PRESENT), kind(scan::PRESENT | scan::ZERO)) else {
            return Ok(None);
        };
        let kinds = Kinds { present, zero };
        let orders = self.folios_of_system().map_or(Orders::Any, |folios| folios.orders(observer.base));
        let walk = |from, to| tables.tables.walk(tables.space, from, to, kinds, &orders);
        let parts = super::parallel::map(from, to, observer.chunk_alignment(), observer.threads, walk);
        let Ok(parts) = parts else { return Ok(None) };
        let (mut regions, mut left_bytes) = (Vec::new(), 0);
        for part in parts {
            regions.extend(part.regions);
            for (from, to) in part.unread {
                left_bytes += to - from;
                regions.extend(self.by_scan(vma, from, to)?);
            }
        }
        Ok(Some((joined(regions), left_bytes)))
    }

    /// An address of which pagemap and kpageflags say something else.
    fn disagreement(&self, vma: &Vma, from: u64, to: u64, regions: &[Region]) -> Result<Option<u64>, CensusError> {
        for address in places(from, to, self.observer.base) {
            let (start, end) = folio_around(regions, address, from..to, self.observer.base);
            if self.by_scan(vma, start, end)? != part(regions, start, end) {
                return Ok(Some(address));
            }
        }
        Ok(None)
    }
}

/// Regions in the order of addresses, neighbours of one kind as one.
fn joined(mut regions: Vec<Region>) -> Vec<Region> {
    regions.sort_by_key(|region| region.start);
    let mut result = Vec::with_capacity(regions.len());
    regions.into_iter().for_each(|found| region::push(&mut result, found));
    result
}

/// The first page, the last, and others that no power of two divides evenly: multiples of the golden section.
fn places(from: u64, to: u64, base: PageSize) -> impl Iterator<Item = u64> {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let pages = (to - from) / base.bytes();
    let inner = ((to - from) / PLACE_BYTES).min(MOST_PLACES);
    let spread = (1..=inner).map(move |at| ((GOLDEN.wrapping_mul(at) as u128 * pages as u128) >> 64) as u64);
    let both = [0, pages.saturating_sub(1)].into_iter().filter(move |_| pages > 0);
    both.chain(spread).map(move |page| from + page * base.bytes())
}

/// The folio that holds an address, if it is mapped whole; else its page.
fn folio_around(regions: &[Region], address: u64, within: std::ops::Range<u64>, base: PageSize) -> (u64, u64) {
    let at = regions.partition_point(|region| region.end <= address);
    let size = match regions.get(at).filter(|region| region.start <= address).map(|region| region.mapping.folio) {
        Some(Folio::Whole(size)) => size,
        _ => base,
    };
    let start = size.align_down(address);
    (start.max(within.start), (start + size.bytes()).min(within.end))
}

/// What of the regions lies between two addresses.
fn part(regions: &[Region], start: u64, end: u64) -> Vec<Region> {
    let first = regions.partition_point(|region| region.end <= start);
    let inside = regions[first..].iter().take_while(|region| region.start < end);
    inside.map(|region| Region { start: region.start.max(start), end: region.end.min(end), ..*region }).collect()
}
