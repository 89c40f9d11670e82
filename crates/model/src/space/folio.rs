//! Folios: memory that was allocated together, where it is mapped, and how much of it still is.

use std::collections::{BTreeMap, BTreeSet};

use super::buddy::Buddy;
use super::cost::Costs;
use super::swap_cache::CacheKey;
use crate::address::Pa;

/// Size of a block in the proposal of 2016, in bytes.
pub(super) const CONTIG_BYTES: u64 = 64 << 10;

/// All folios, by physical address.
#[derive(Clone, Debug)]
pub struct Folios {
    base: u64,
    folios: BTreeMap<Pa, Folio>,
    /// Folios with pages that nothing maps: those that Linux queues to be split (`deferred_split_folio`).
    partial: BTreeSet<Pa>,
    /// Number of such folios so far.
    cut: u64,
    /// Blocks of the proposal of 2016 of which one page is mapped, by process and by the block's input address.
    reserved: BTreeMap<(u32, u64), Reserved>,
}

/// A folio.
#[derive(Clone, Debug)]
pub struct Folio {
    /// Size in bytes.
    pub bytes: u64,
    /// Whether it was touched since reclaim last checked it.
    pub accessed: bool,
    /// Whether it belongs to a pool; such a folio is never reclaimed.
    pub pinned: bool,
    /// The key by which processes that do not map it can find it; such a folio has one page.
    key: Option<CacheKey>,
    /// How each page is mapped.
    pages: Pages,
    first: Place,
    /// The places in other processes, after a fork.
    others: Vec<Place>,
}

/// A folio as one process maps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedFolio {
    /// Size of the folio in bytes.
    pub bytes: u64,
    /// Whether the process maps all of it.
    pub is_whole: bool,
    /// Whether it belongs to a pool.
    pub pinned: bool,
}

/// The position at which a process maps a folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub process: u32,
    /// The input address of the folio's beginning, even if that part is not mapped.
    pub va: u64,
    /// Number of its pages that are mapped.
    pages: u64,
}

/// The mapping state of a page.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// How often it is mapped.
    count: u16,
    /// No other process can have it, so it may become writable without a fault (`PageAnonExclusive`,
    /// include/linux/page-flags.h). A fork clears this, and a write fault that finds the page unshared sets it again.
    is_exclusive: bool,
}

impl Page {
    /// A page that was allocated for the process that maps it.
    const NEW: Page = Page { count: 1, is_exclusive: true };
}

/// The pages of a folio; most have one.
#[derive(Clone, Debug)]
enum Pages {
    One(Page),
    Many(Box<[Page]>),
}

impl Pages {
    fn all(&self) -> &[Page] {
        match self {
            Pages::One(page) => std::slice::from_ref(page),
            Pages::Many(pages) => pages,
        }
    }

    fn all_mut(&mut self) -> &mut [Page] {
        match self {
            Pages::One(page) => std::slice::from_mut(page),
            Pages::Many(pages) => pages,
        }
    }
}

/// A block of memory of which one page is mapped.
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
    /// The places at which it is mapped.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        std::iter::once(self.first).chain(self.others.iter().copied()).filter(|place| place.pages != 0)
    }

    fn place(&mut self, process: u32) -> Option<&mut Place> {
        std::iter::once(&mut self.first).chain(&mut self.others).find(|place| place.process == process)
    }
}

impl Folios {
    /// No folios yet; `base` is the base page size in bytes.
    pub fn new(base: u64) -> Folios {
        Folios { base, folios: BTreeMap::new(), partial: BTreeSet::new(), cut: 0, reserved: BTreeMap::new() }
    }

    /// Adds a folio that a process maps completely. It counts as touched.
    pub fn add(&mut self, pa: Pa, bytes: u64, process: u32, va: u64, pinned: bool) {
        let pages = bytes / self.base;
        let first = Place { process, va, pages };
        let pages =
            if pages == 1 { Pages::One(Page::NEW) } else { Pages::Many(vec![Page::NEW; pages as usize].into()) };
        let folio = Folio { bytes, accessed: false, pinned, key: None, pages, first, others: Vec::new() };
        self.folios.insert(pa, folio);
    }

    /// The key of the folio at a physical address.
    pub fn key(&self, pa: Pa) -> Option<CacheKey> {
        self.folios.get(&pa)?.key
    }

    /// Sets the key of the folio at a physical address, which has one page.
    pub fn set_key(&mut self, pa: Pa, key: CacheKey) {
        if let Some(folio) = self.folios.get_mut(&pa) {
            folio.key = Some(key);
        }
    }

    /// The folio that contains a physical address, with its own address.
    pub fn find(&self, pa: Pa) -> Option<(Pa, &Folio)> {
        let (begin, folio) = self.folios.range(..=pa).next_back()?;
        (pa < *begin + folio.bytes).then_some((*begin, folio))
    }

    /// The folio that contains a physical address, as a process maps it.
    pub fn holding(&self, pa: Pa, process: u32) -> Option<MappedFolio> {
        let (_, folio) = self.find(pa)?;
        let mapped = folio.places().find(|place| place.process == process).map_or(0, |place| place.pages);
        Some(MappedFolio { bytes: folio.bytes, is_whole: mapped * self.base == folio.bytes, pinned: folio.pinned })
    }

    /// Number of folios of which a part was unmapped so far (`split_deferred`).
    pub fn cut(&self) -> u64 {
        self.cut
    }

    fn find_mut(&mut self, pa: Pa) -> Option<(Pa, &mut Folio)> {
        let (begin, folio) = self.folios.range_mut(..=pa).next_back()?;
        (pa < *begin + folio.bytes).then_some((*begin, folio))
    }

    /// Whether `process` can write to the page at `pa`, which is write-protected, without a copy because no other
    /// process maps the folio (`wp_can_reuse_anon_folio`, mm/memory.c). If only one page of a larger folio is left, a
    /// copy is made so that the folio can be freed.
    pub fn can_be_reused(&self, pa: Pa, process: u32) -> bool {
        self.find(pa).is_some_and(|(_, folio)| {
            let mapped: u64 = folio.places().map(|place| place.pages).sum();
            let is_last_page = folio.bytes > self.base && mapped <= 1;
            folio.places().all(|place| place.process == process) && !is_last_page
        })
    }

    /// Whether no other process can have the page at `pa`.
    pub fn is_exclusive(&self, pa: Pa) -> bool {
        self.find(pa).is_some_and(|(begin, folio)| folio.pages.all()[((pa - begin) / self.base) as usize].is_exclusive)
    }

    /// Marks a range that a process maps as exclusive or as possibly shared.
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

    /// The number of processes that map the folio around `pa`.
    pub fn sharers(&self, pa: Pa) -> usize {
        self.find(pa).map_or(0, |(_, folio)| folio.places().count())
    }

    /// The number of mapped pages of the folio at a physical address.
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

    /// Notes that a process maps, at `va`, memory that is mapped elsewhere too, or was a moment ago. The memory is no
    /// longer exclusive.
    pub fn share(&mut self, pa: Pa, bytes: u64, process: u32, va: u64, costs: &mut Costs) {
        let (base, end) = (self.base, pa + bytes);
        let (mut pa, mut va) = (pa, va);
        while pa < end {
            let Some((begin, folio)) = self.find_mut(pa) else { return };
            let next = (begin + folio.bytes).min(end);
            let (first, last) = ((pa - begin) / base, (next - begin) / base);
            for page in &mut folio.pages.all_mut()[first as usize..last as usize] {
                costs.unmapped_bytes -= if page.count == 0 { base } else { 0 };
                *page = Page { count: page.count + 1, is_exclusive: false };
            }
            let start = va.wrapping_sub(pa - begin);
            match folio.place(process) {
                Some(place) => (place.va, place.pages) = (start, place.pages + last - first),
                None => folio.others.push(Place { process, va: start, pages: last - first }),
            }
            if folio.pages.all().iter().all(|page| page.count != 0) {
                self.partial.remove(&begin);
            }
            va += next - pa;
            pa = next;
        }
    }

    /// Notes that a range that a process maps is now at another input address.
    pub fn moved(&mut self, pa: Pa, bytes: u64, process: u32, va: u64) {
        let end = pa + bytes;
        let mut at = pa;
        while at < end {
            let Some((begin, folio)) = self.find_mut(at) else { return };
            let next = begin + folio.bytes;
            if let Some(place) = folio.place(process) {
                place.va = va.wrapping_add(at - pa).wrapping_sub(at - begin);
            }
            at = next;
        }
    }

    /// Notes that a process no longer maps a range of memory. A folio of which nothing is mapped is freed.
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
            if let Some(place) = folio.place(process) {
                place.pages -= last - first;
            }
            folio.others.retain(|place| place.pages != 0);
            if folio.pages.all().iter().all(|page| page.count == 0) {
                let bytes = folio.bytes;
                costs.unmapped_bytes -= bytes;
                self.folios.remove(&begin);
                self.partial.remove(&begin);
                buddy.release(begin, bytes);
            } else if folio.pages.all().iter().any(|page| page.count == 0) {
                self.cut += u64::from(self.partial.insert(begin));
            }
            pa = next;
        }
    }

    /// Splits a partly mapped folio into pages and frees those that nothing maps, as the shrinker of the deferred-split
    /// queue does (mm/huge_memory.c). Returns `false` if there is none.
    pub fn split_a_partial_one(&mut self, buddy: &mut Buddy, costs: &mut Costs) -> bool {
        let is_one = |begin: &&Pa| self.folios.get(begin).is_some_and(|folio| folio.places().count() == 1);
        let Some(begin) = self.partial.iter().find(is_one).copied() else { return false };
        self.split(begin, buddy, costs)
    }

    /// Splits the folio around a physical address into pages and frees those that nothing maps (`split_folio`). Returns
    /// `false` for a single page, a pool page, or a folio that several processes map, because the model does not track
    /// which of them maps which page.
    pub fn split(&mut self, pa: Pa, buddy: &mut Buddy, costs: &mut Costs) -> bool {
        let Some((begin, folio)) = self.find(pa) else { return false };
        if folio.bytes == self.base || folio.pinned || folio.places().count() > 1 {
            return false;
        }
        self.partial.remove(&begin);
        let Some(folio) = self.folios.remove(&begin) else { return false };
        let (base, place) = (self.base, folio.places().next());
        let (pinned, accessed) = (folio.pinned, folio.accessed);
        for (index, page) in folio.pages.all().iter().enumerate() {
            let offset = index as u64 * base;
            if page.count == 0 {
                costs.unmapped_bytes -= base;
                buddy.release(begin + offset, base);
                continue;
            }
            let first = place.map_or(Place { process: 0, va: 0, pages: 0 }, |place| Place {
                va: place.va.wrapping_add(offset),
                pages: 1,
                ..place
            });
            let pages = Pages::One(*page);
            let page = Folio { bytes: base, accessed, pinned, key: None, pages, first, others: Vec::new() };
            self.folios.insert(begin + offset, page);
        }
        costs.folio_splits += 1;
        true
    }

    /// The first folio at or after a physical address; wraps around at the end.
    pub fn next(&mut self, from: Pa) -> Option<(Pa, &mut Folio)> {
        let at = self.folios.range(from..).next().or_else(|| self.folios.first_key_value()).map(|(at, _)| *at)?;
        self.folios.get_mut(&at).map(|folio| (at, folio))
    }

    /// The number of folios.
    pub fn len(&self) -> usize {
        self.folios.len()
    }

    /// Adds a block of which one page is mapped.
    pub fn reserve(&mut self, process: u32, va: u64, reserved: Reserved) {
        self.reserved.insert((process, va), reserved);
    }

    /// Total bytes of such blocks that are not mapped.
    pub fn reserved_rest_bytes(&self) -> u64 {
        self.reserved.len() as u64 * (CONTIG_BYTES - self.base.min(CONTIG_BYTES))
    }

    /// The block at an input address of which one page is mapped.
    pub fn reservation(&self, process: u32, va: u64) -> Option<&Reserved> {
        self.reserved.get(&(process, va))
    }

    /// Removes and returns the block at an input address.
    pub fn take_reservation(&mut self, process: u32, va: u64) -> Option<Reserved> {
        self.reserved.remove(&(process, va))
    }

    /// Gives up the blocks in a range of input addresses: their unmapped parts are freed.
    pub fn give_up_reservations(&mut self, process: u32, begin: u64, end: u64, buddy: &mut Buddy) {
        let overlaps = |((_, va), reserved): (&(u32, u64), &Reserved)| (va + reserved.bytes > begin).then_some(*va);
        let own = self.reserved.range((process, 0)..(process, end));
        let given_up: Vec<u64> = own.rev().map_while(overlaps).collect();
        for reserved in given_up.iter().filter_map(|va| self.reserved.remove(&(process, *va))) {
            let pages = (0..reserved.bytes).step_by(reserved.page_bytes as usize);
            pages
                .filter(|at| *at != reserved.offset)
                .for_each(|at| buddy.release(reserved.pa + at, reserved.page_bytes));
        }
    }

    /// Gives up a block of which one page is mapped, of any process, because memory is short. Returns `false` if there is none.
    pub fn give_up_a_reservation(&mut self, buddy: &mut Buddy) -> bool {
        let Some(((process, va), reserved)) = self.reserved.first_key_value().map(|(at, reserved)| (*at, *reserved))
        else {
            return false;
        };
        self.give_up_reservations(process, va, va + reserved.bytes, buddy);
        true
    }
}
