//! Folios: memory that was allocated together, and how processes map it.

use std::collections::{BTreeMap, BTreeSet};

use super::buddy::Buddy;
use super::folio_pages::{Page, Pages};
use super::swap_cache::CacheKey;
use crate::address::Pa;
use crate::costs::Costs;

/// Block size in bytes of the proposal of 2016 (`contig-64k`): a fault reserves a block, of which one page is mapped first.
pub(super) const CONTIG_BYTES: u64 = 64 << 10;

/// All folios, by physical address.
#[derive(Clone, Debug)]
pub struct Folios {
    base: u64,
    folios: BTreeMap<Pa, Folio>,
    /// Partly mapped folios. Linux queues such folios for a split (`deferred_split_folio`).
    partial: BTreeSet<Pa>,
    /// Number of folios that became partly mapped so far (`split_deferred`).
    ever_partly_mapped_count: u64,
    /// Blocks of the proposal of 2016 of which only one page is mapped, by process and input address.
    reserved: BTreeMap<(u32, u64), Reserved>,
}

/// Memory that was allocated together.
#[derive(Clone, Debug)]
pub struct Folio {
    pub bytes: u64,
    /// Whether a process has touched it since reclaim last checked it.
    pub accessed: bool,
    /// Whether it is a hugetlb page, which is never reclaimed.
    pub is_hugetlb: bool,
    /// The key by which a process that does not map the folio finds it. Only folios of one page have keys.
    key: Option<CacheKey>,
    /// The state of each page.
    pages: Pages,
    first: FolioMapping,
    /// How further processes map the folio, after a fork.
    others: Vec<FolioMapping>,
}

/// A folio as one process maps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedFolio {
    /// Size of the folio in bytes.
    pub bytes: u64,
    /// Whether the process maps all its pages.
    pub is_whole: bool,
    /// Whether it is a hugetlb page.
    pub is_hugetlb: bool,
}

/// The address at which a process maps a folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolioMapping {
    pub process: u32,
    /// The input address of the folio's first page, even if that page is not mapped.
    pub va: u64,
    /// Number of pages that the process maps.
    pages: u64,
}

/// A reserved block (proposal of 2016): one page is mapped, the rest is still unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The block's physical address.
    pub pa: Pa,
    /// Size of the block in bytes.
    pub bytes: u64,
    /// Offset of the mapped page in the block.
    pub offset: u64,
    /// Size of the mapped page in bytes.
    pub page_bytes: u64,
}

impl Folio {
    /// How each process maps it.
    pub fn mappings(&self) -> impl Iterator<Item = FolioMapping> + '_ {
        std::iter::once(self.first).chain(self.others.iter().copied()).filter(|mapping| mapping.pages != 0)
    }

    fn mapping_mut(&mut self, process: u32) -> Option<&mut FolioMapping> {
        std::iter::once(&mut self.first).chain(&mut self.others).find(|mapping| mapping.process == process)
    }
}

impl Folios {
    /// Without folios; `base` is the base page size in bytes.
    pub fn new(base: u64) -> Folios {
        Folios {
            base,
            folios: BTreeMap::new(),
            partial: BTreeSet::new(),
            ever_partly_mapped_count: 0,
            reserved: BTreeMap::new(),
        }
    }

    /// Adds a folio that a process maps completely. It does not count as touched yet.
    pub fn add(&mut self, pa: Pa, bytes: u64, process: u32, va: u64, is_hugetlb: bool) {
        let pages = bytes / self.base;
        let first = FolioMapping { process, va, pages };
        let pages =
            if pages == 1 { Pages::One(Page::NEW) } else { Pages::Many(vec![Page::NEW; pages as usize].into()) };
        let folio = Folio { bytes, accessed: false, is_hugetlb, key: None, pages, first, others: Vec::new() };
        self.folios.insert(pa, folio);
    }

    /// The key of the folio that begins at a physical address.
    pub fn key(&self, pa: Pa) -> Option<CacheKey> {
        self.folios.get(&pa)?.key
    }

    /// Sets the key of the folio that begins at a physical address. The folio must have one page.
    pub fn set_key(&mut self, pa: Pa, key: CacheKey) {
        if let Some(folio) = self.folios.get_mut(&pa) {
            folio.key = Some(key);
        }
    }

    /// The folio that contains a physical address, with the address at which it begins.
    pub fn find(&self, pa: Pa) -> Option<(Pa, &Folio)> {
        let (begin, folio) = self.folios.range(..=pa).next_back()?;
        (pa < *begin + folio.bytes).then_some((*begin, folio))
    }

    /// The folio that contains a physical address, as a process maps it.
    pub fn mapped_by(&self, pa: Pa, process: u32) -> Option<MappedFolio> {
        let (_, folio) = self.find(pa)?;
        let mapped = folio.mappings().find(|mapping| mapping.process == process).map_or(0, |mapping| mapping.pages);
        Some(MappedFolio {
            bytes: folio.bytes,
            is_whole: mapped * self.base == folio.bytes,
            is_hugetlb: folio.is_hugetlb,
        })
    }

    /// Number of folios that became partly mapped so far (`split_deferred`).
    pub fn ever_partly_mapped_count(&self) -> u64 {
        self.ever_partly_mapped_count
    }

    fn find_mut(&mut self, pa: Pa) -> Option<(Pa, &mut Folio)> {
        let (begin, folio) = self.folios.range_mut(..=pa).next_back()?;
        (pa < *begin + folio.bytes).then_some((*begin, folio))
    }

    /// Whether `process` may make its write-protected page at `pa` writable without a copy, because no other process maps
    /// the folio (`wp_can_reuse_anon_folio`, mm/memory.c). The last mapped page of a large folio is copied nevertheless, so
    /// that the folio can be freed.
    pub fn can_be_reused(&self, pa: Pa, process: u32) -> bool {
        self.find(pa).is_some_and(|(_, folio)| {
            let mapped: u64 = folio.mappings().map(|mapping| mapping.pages).sum();
            let is_last_page = folio.bytes > self.base && mapped <= 1;
            folio.mappings().all(|mapping| mapping.process == process) && !is_last_page
        })
    }

    /// Whether the page at `pa` is exclusive to one process.
    pub fn is_exclusive(&self, pa: Pa) -> bool {
        self.find(pa).is_some_and(|(begin, folio)| folio.pages.all()[((pa - begin) / self.base) as usize].is_exclusive)
    }

    /// Marks the pages of a range as exclusive to one process, or as possibly shared.
    pub fn set_exclusive(&mut self, pa: Pa, bytes: u64, is_exclusive: bool) {
        let (base, end) = (self.base, pa + bytes);
        let mut pa = pa;
        while pa < end {
            let Some((begin, folio)) = self.find_mut(pa) else { return };
            let next = (begin + folio.bytes).min(end);
            let (first, last) = ((pa - begin) / base, (next - begin) / base);
            folio.pages.all_mut()[first as usize..last as usize]
                .iter_mut()
                .for_each(|page| page.is_exclusive = is_exclusive);
            pa = next;
        }
    }

    /// Records a store to the page at `pa`.
    pub fn note_store(&mut self, pa: Pa) {
        let base = self.base;
        if let Some((begin, folio)) = self.find_mut(pa) {
            folio.pages.all_mut()[((pa - begin) / base) as usize].is_stored_to = true;
        }
    }

    /// Whether a process has stored to the page at `pa`.
    pub fn is_stored_to(&self, pa: Pa) -> bool {
        self.find(pa).is_some_and(|(begin, folio)| folio.pages.all()[((pa - begin) / self.base) as usize].is_stored_to)
    }

    /// The number of processes that map the folio that contains `pa`.
    pub fn sharers(&self, pa: Pa) -> usize {
        self.find(pa).map_or(0, |(_, folio)| folio.mappings().count())
    }

    /// The number of mapped pages of the folio that begins at a physical address.
    pub fn mapped_pages(&self, pa: Pa) -> u64 {
        let mapped = |folio: &Folio| folio.pages.all().iter().filter(|page| page.count != 0).count() as u64;
        self.folios.get(&pa).map_or(0, mapped)
    }

    /// Marks a folio as touched.
    pub fn touch(&mut self, pa: Pa) {
        if let Some((_, folio)) = self.find_mut(pa) {
            folio.accessed = true;
        }
    }

    /// Records that a process now maps existing memory at `va`. The memory is no longer exclusive.
    pub fn share(&mut self, pa: Pa, bytes: u64, process: u32, va: u64, costs: &mut Costs) {
        let (base, end) = (self.base, pa + bytes);
        let (mut pa, mut va) = (pa, va);
        while pa < end {
            let Some((begin, folio)) = self.find_mut(pa) else { return };
            let next = (begin + folio.bytes).min(end);
            let (first, last) = ((pa - begin) / base, (next - begin) / base);
            for page in &mut folio.pages.all_mut()[first as usize..last as usize] {
                costs.unmapped_bytes -= if page.count == 0 { base } else { 0 };
                *page = Page { count: page.count + 1, is_exclusive: false, ..*page };
            }
            let start = va.wrapping_sub(pa - begin);
            match folio.mapping_mut(process) {
                Some(mapping) => (mapping.va, mapping.pages) = (start, mapping.pages + last - first),
                None => folio.others.push(FolioMapping { process, va: start, pages: last - first }),
            }
            if folio.pages.all().iter().all(|page| page.count != 0) {
                self.partial.remove(&begin);
            }
            va += next - pa;
            pa = next;
        }
    }

    /// Records that a process now maps a range at another input address.
    pub fn move_mapping(&mut self, pa: Pa, bytes: u64, process: u32, va: u64) {
        let end = pa + bytes;
        let mut at = pa;
        while at < end {
            let Some((begin, folio)) = self.find_mut(at) else { return };
            let next = begin + folio.bytes;
            if let Some(mapping) = folio.mapping_mut(process) {
                mapping.va = va.wrapping_add(at - pa).wrapping_sub(at - begin);
            }
            at = next;
        }
    }

    /// Records that a process no longer maps a range. Frees the folios that nothing maps any more, except pages of shared
    /// memory.
    pub fn unmap(&mut self, pa: Pa, bytes: u64, process: u32, buddy: &mut Buddy, costs: &mut Costs) {
        let (base, end) = (self.base, pa + bytes);
        let mut pa = pa;
        while pa < end {
            let Some((begin, folio)) = self.find_mut(pa) else { return };
            let next = (begin + folio.bytes).min(end);
            let (first, last) = ((pa - begin) / base, (next - begin) / base);
            for page in &mut folio.pages.all_mut()[first as usize..last as usize] {
                page.count -= 1;
                costs.unmapped_bytes += if page.count == 0 { base } else { 0 };
            }
            if let Some(mapping) = folio.mapping_mut(process) {
                mapping.pages -= last - first;
            }
            folio.others.retain(|mapping| mapping.pages != 0);
            if matches!(folio.key, Some(CacheKey::Shared(..))) {
                // The folio belongs to its shared memory object until the object is freed.
            } else if folio.pages.all().iter().all(|page| page.count == 0) {
                let bytes = folio.bytes;
                costs.unmapped_bytes -= bytes;
                self.folios.remove(&begin);
                self.partial.remove(&begin);
                buddy.release(begin, bytes);
            } else if folio.pages.all().iter().any(|page| page.count == 0) {
                self.ever_partly_mapped_count += u64::from(self.partial.insert(begin));
            }
            pa = next;
        }
    }

    /// Frees a page of shared memory that nothing maps.
    pub fn free_shared(&mut self, pa: Pa, buddy: &mut Buddy, costs: &mut Costs) {
        if let Some(folio) = self.folios.get(&pa).filter(|folio| folio.mappings().next().is_none()) {
            let bytes = folio.bytes;
            costs.unmapped_bytes -= bytes;
            self.folios.remove(&pa);
            buddy.release(pa, bytes);
        }
    }

    /// Splits a partly mapped folio into pages and frees those that nothing maps, as the shrinker of the deferred-split
    /// queue does (mm/huge_memory.c). Returns `false` if there is no such folio.
    pub fn split_partial_folio(&mut self, buddy: &mut Buddy, costs: &mut Costs) -> bool {
        let has_one_process = |begin: &&Pa| self.folios.get(begin).is_some_and(|folio| folio.mappings().count() == 1);
        let Some(begin) = self.partial.iter().find(has_one_process).copied() else { return false };
        self.split(begin, buddy, costs)
    }

    /// Splits the folio that contains a physical address into pages and frees those that nothing maps (`split_folio`). Returns
    /// `false` for a single page, for a hugetlb page, and for a folio that several processes map: the model does not track
    /// which process maps which page.
    pub fn split(&mut self, pa: Pa, buddy: &mut Buddy, costs: &mut Costs) -> bool {
        let Some((begin, folio)) = self.find(pa) else { return false };
        if folio.bytes == self.base || folio.is_hugetlb || folio.mappings().count() > 1 {
            return false;
        }
        self.partial.remove(&begin);
        let Some(folio) = self.folios.remove(&begin) else { return false };
        let (base, mapping) = (self.base, folio.mappings().next());
        let (is_hugetlb, accessed) = (folio.is_hugetlb, folio.accessed);
        for (index, page) in folio.pages.all().iter().enumerate() {
            let offset = index as u64 * base;
            if page.count == 0 {
                costs.unmapped_bytes -= base;
                buddy.release(begin + offset, base);
                continue;
            }
            let first = mapping.map_or(FolioMapping { process: 0, va: 0, pages: 0 }, |mapping| FolioMapping {
                va: mapping.va.wrapping_add(offset),
                pages: 1,
                ..mapping
            });
            let pages = Pages::One(*page);
            let page = Folio { bytes: base, accessed, is_hugetlb, key: None, pages, first, others: Vec::new() };
            self.folios.insert(begin + offset, page);
        }
        costs.folio_splits += 1;
        true
    }

    /// The first folio that begins at or after a physical address; after the last one, the first of all.
    pub fn next(&mut self, from: Pa) -> Option<(Pa, &mut Folio)> {
        let at = self.folios.range(from..).next().or_else(|| self.folios.first_key_value()).map(|(at, _)| *at)?;
        self.folios.get_mut(&at).map(|folio| (at, folio))
    }

    pub fn len(&self) -> usize {
        self.folios.len()
    }

    /// Adds a reserved block.
    pub fn reserve(&mut self, process: u32, va: u64, reserved: Reserved) {
        self.reserved.insert((process, va), reserved);
    }

    /// Unmapped bytes of all reserved blocks.
    pub fn reserved_unmapped_bytes(&self) -> u64 {
        self.reserved.len() as u64 * (CONTIG_BYTES - self.base.min(CONTIG_BYTES))
    }

    /// The reserved block at an input address.
    pub fn reservation(&self, process: u32, va: u64) -> Option<&Reserved> {
        self.reserved.get(&(process, va))
    }

    /// Removes and returns the reserved block at an input address.
    pub fn take_reservation(&mut self, process: u32, va: u64) -> Option<Reserved> {
        self.reserved.remove(&(process, va))
    }

    /// Frees the unmapped parts of all reserved blocks that overlap a range of input addresses; the blocks are no longer
    /// reserved.
    pub fn release_reservations(&mut self, process: u32, begin: u64, end: u64, buddy: &mut Buddy) {
        let overlaps = |((_, va), reserved): (&(u32, u64), &Reserved)| (va + reserved.bytes > begin).then_some(*va);
        let own = self.reserved.range((process, 0)..(process, end));
        let released: Vec<u64> = own.rev().map_while(overlaps).collect();
        for reserved in released.iter().filter_map(|va| self.reserved.remove(&(process, *va))) {
            let pages = (0..reserved.bytes).step_by(reserved.page_bytes as usize);
            pages
                .filter(|at| *at != reserved.offset)
                .for_each(|at| buddy.release(reserved.pa + at, reserved.page_bytes));
        }
    }

    /// Releases a reserved block of any process, because memory is short. Returns `false` if there is none.
    pub fn release_one_reservation(&mut self, buddy: &mut Buddy) -> bool {
        let Some(((process, va), reserved)) = self.reserved.first_key_value().map(|(at, reserved)| (*at, *reserved))
        else {
            return false;
        };
        self.release_reservations(process, va, va + reserved.bytes, buddy);
        true
    }
}
