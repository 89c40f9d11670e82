//! [`Views`]: which memory of a program is backed by hugetlb pages without the program's knowledge, and what its calls mean
//! for those pages.
//!
//! The program's view has the granularity of base pages; the kernel's has that of the pool. Where both agree, a call is passed
//! on. Where a call concerns part of a large page, the page stays and only the program's view changes: a part that was unmapped
//! reads as zero when it is mapped again, and the page's protection is the union of what its parts ask for. This module only
//! keeps the records; the code that serves the calls carries out the actions that it returns.

use crate::call::prot::NONE;
use crate::extent::Removal;
use crate::ranges::Ranges;
use crate::size::PageSize;

/// Protection bits as mprotect takes them.
pub type Protection = u64;

/// A change to the kernel's mappings or to their content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// munmap of the range.
    Unmap(u64, u64),
    /// mprotect of the range.
    Protect(u64, u64, Protection),
    /// Fill the range with zeros.
    Zero(u64, u64),
}

/// Both views of one address space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Views {
    /// Ranges backed by hugetlb pages, in whole pages.
    backed: Ranges<()>,
    /// The ranges inside the backed ranges that the program sees as mapped, with their protection.
    visible: Ranges<Protection>,
    /// Inaccessible reservations that were never opened and therefore hold nothing yet.
    untouched: Ranges<()>,
    /// Ranges whose memory was ever moved from hugetlb pages to base pages while the program ran.
    moved: Ranges<()>,
    /// The backed ranges that the program has locked. The kernel does not record these locks, because hugetlb pages are never
    /// reclaimed.
    locked: Ranges<()>,
    /// Pages that the pool must still provide because this memory is a copy made by fork.
    pub promised_pages: u64,
    /// The heap that brk grows.
    pub heap: PoolHeap,
}

/// The heap made of hugetlb pages. It begins at a page boundary of the pool, a little above the kernel's heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolHeap {
    /// First address; 0 before the first call of brk.
    pub start: u64,
    /// The end that the program was given.
    pub program_end: u64,
    /// The end of the memory mapped for it; a multiple of the page size.
    pub mapped_end: u64,
    /// Whether the program has unmapped, replaced or moved parts of it.
    pub has_holes: bool,
}

/// How to drop the content of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Whole pages, merged, that the kernel can drop.
    pub whole: Vec<(u64, u64)>,
    /// Parts of pages that must be filled with zeros.
    pub partial: Vec<(u64, u64)>,
}

impl Views {
    /// Whether the range touches memory backed by the pool.
    pub fn concerns(&self, start: u64, end: u64) -> bool {
        self.backed.overlaps(start, end)
    }

    /// The parts of a range that are not backed by the pool.
    pub fn ordinary(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.backed.gaps(start, end)
    }

    /// The parts of a range that are backed by the pool.
    pub fn backed_parts(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.backed.within(start, end).into_iter().map(|(s, e, ())| (s, e)).collect()
    }

    /// Records that the pool backs whole pages, of which the program sees a part.
    pub fn back(&mut self, pages: (u64, u64), seen: (u64, u64), protection: Protection) {
        self.backed.set(pages.0, pages.1, ());
        self.visible.set(seen.0, seen.1, protection);
        self.untouched.clear(pages.0, pages.1);
    }

    /// Records a fresh inaccessible reservation.
    pub fn reserve(&mut self, start: u64, end: u64) {
        self.untouched.set(start, end, ());
    }

    /// Records that a range may hold content by now.
    pub fn mark_touched(&mut self, start: u64, end: u64) {
        self.untouched.clear(start, end);
    }

    /// Whole pages inside untouched reservations that a range touches, with neighbours merged.
    pub fn convertible(&self, start: u64, end: u64, size: PageSize) -> Vec<(u64, u64)> {
        let reserved = self.untouched.within(0, u64::MAX).into_iter().filter(|(s, e, ())| *s < end && start < *e);
        reserved
            .map(|(s, e, ())| {
                let (low, high) = outline(start.max(s), end.min(e), size);
                interior(low.max(s), high.min(e), size)
            })
            .filter(|(s, e)| s < e)
            .collect()
    }

    /// The views of a process that fork makes: locks are not inherited.
    pub fn forked(&self) -> Views {
        Views { locked: Ranges::default(), promised_pages: 0, ..self.clone() }
    }

    /// All ranges that the pool backs.
    pub fn all_backed(&self) -> Vec<(u64, u64)> {
        self.backed_parts(0, u64::MAX)
    }

    /// Bytes that the pool backs, whether touched or not.
    pub fn backed_bytes(&self) -> u64 {
        self.all_backed().iter().map(|(start, end)| end - start).sum()
    }

    /// Whether the memory at an address was moved to other pages.
    pub fn was_moved(&self, address: u64) -> bool {
        self.moved.overlaps(address, address.saturating_add(1))
    }

    /// Records that memory is about to be moved to other pages.
    pub fn record_move(&mut self, pages: (u64, u64)) {
        self.moved.set(pages.0, pages.1, ());
    }

    /// Records that the program unmaps a range; returns what the kernel must unmap.
    pub fn unmap(&mut self, start: u64, end: u64, size: PageSize) -> Vec<Action> {
        let mut actions: Vec<Action> =
            self.ordinary(start, end).into_iter().map(|(s, e)| Action::Unmap(s, e)).collect();
        actions.extend(self.unmap_in_view(start, end, size).into_iter().map(|(s, e)| Action::Unmap(s, e)));
        self.untouched.clear(start, end);
        actions
    }

    /// The ranges that the kernel would unmap if the program unmapped this range.
    pub fn unmapped_with(&self, start: u64, end: u64, size: PageSize) -> Vec<(u64, u64)> {
        let range = |action| match action {
            Action::Unmap(s, e) => Some((s, e)),
            Action::Protect(..) | Action::Zero(..) => None,
        };
        self.clone().unmap(start, end, size).into_iter().filter_map(range).collect()
    }

    /// The ranges that the kernel gives back when memory is unmapped or dropped: a hugetlb page is given back whole, together
    /// with the last part that the program uses of it.
    pub fn given_back(&self, removal: &Removal, size: PageSize) -> Vec<(u64, u64)> {
        match *removal {
            Removal::Unmapped(start, end) => self.unmapped_with(start, end, size),
            Removal::Dropped(start, end) => {
                [self.drop_content(start, end, size).whole, self.ordinary(start, end)].concat()
            }
            Removal::Freed(start, end) => self.ordinary(start, end),
        }
    }

    /// The memory that the heap loses when it is to end at `asked`.
    pub fn heap_removal(&self, asked: u64, base: PageSize) -> Option<Removal> {
        let (from, to) = (base.align_up(asked)?, self.heap.program_end);
        (self.heap.start > 0 && asked >= self.heap.start && from < to).then_some(Removal::Dropped(from, to))
    }

    /// Records that the program unmaps, replaces or moves a range; if the range is in the heap, the heap then has a hole.
    pub fn note_heap_hole(&mut self, start: u64, end: u64) {
        self.heap.has_holes |= start < self.heap.mapped_end && self.heap.start < end;
    }

    /// Whether the program sees part of the backed pages in a range as unmapped.
    pub fn has_hole(&self, start: u64, end: u64) -> bool {
        self.backed_parts(start, end).into_iter().any(|(s, e)| !self.visible.covers(s, e))
    }

    /// Records that the program has locked a range (mlock), for the part that the pool backs.
    pub fn lock(&mut self, start: u64, end: u64) {
        self.backed_parts(start, end).into_iter().for_each(|(s, e)| self.locked.set(s, e, ()));
    }

    /// Records that the program has unlocked a range.
    pub fn unlock(&mut self, start: u64, end: u64) {
        self.locked.clear(start, end);
    }

    /// The parts of a range that the program has locked.
    pub fn locked_parts(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.locked.within(start, end).into_iter().map(|(s, e, ())| (s, e)).collect()
    }

    /// Removes a range from the program's view. Returns the whole pages with no visible part left; they no longer count as
    /// backed.
    pub fn unmap_in_view(&mut self, start: u64, end: u64, size: PageSize) -> Vec<(u64, u64)> {
        let touched = self.backed_parts(start, end);
        self.visible.clear(start, end);
        self.locked.clear(start, end);
        let mut free = Ranges::default();
        for (s, e) in touched {
            for page in pages(s, e, size).filter(|page| !self.visible.overlaps(page.0, page.1)) {
                free.set(page.0, page.1, ());
            }
        }
        let free: Vec<(u64, u64)> = free.within(0, u64::MAX).into_iter().map(|(s, e, ())| (s, e)).collect();
        for (s, e) in &free {
            self.backed.clear(*s, *e);
        }
        free
    }

    /// Pages in which a part cannot have `protection`, because the rest of the page has another one. Parts that were never
    /// opened do not count: they hold nothing, and the program does not expect to use them.
    pub fn protection_conflicts(
        &self,
        start: u64,
        end: u64,
        protection: Protection,
        size: PageSize,
    ) -> Vec<(u64, u64)> {
        let opened = |(_, _, asked): &(u64, u64, Protection)| *asked != NONE;
        let disagrees = |page: &(u64, u64)| {
            let part = (start.max(page.0), end.min(page.1));
            let mut rest = self.visible.within(page.0, part.0);
            rest.extend(self.visible.within(part.1, page.1));
            let closes = protection == NONE && self.visible.within(part.0, part.1).iter().any(opened);
            match protection {
                NONE => closes && rest.iter().any(opened),
                _ => rest.iter().filter(|part| opened(part)).any(|(_, _, asked)| *asked != protection),
            }
        };
        self.backed_parts(start, end).into_iter().flat_map(|(s, e)| pages(s, e, size)).filter(disagrees).collect()
    }

    /// Records that the program changes the protection of a range without protection conflicts. Returns what the kernel must
    /// change, and whether a page now allows more than some part of it asks for.
    pub fn protect(&mut self, start: u64, end: u64, protection: Protection, size: PageSize) -> (Vec<Action>, bool) {
        let (mut actions, mut widened) = (Vec::new(), false);
        for (s, e) in self.backed_parts(start, end) {
            for page in pages(s, e, size) {
                let before = self.union(page);
                for (from, to, _) in self.visible.within(page.0.max(s), page.1.min(e)) {
                    self.visible.set(from, to, protection);
                }
                let after = self.union(page);
                widened |= self.visible.within(page.0, page.1).iter().any(|(_, _, asked)| *asked != after);
                if after != before {
                    actions.push(Action::Protect(page.0, page.1, after));
                }
            }
        }
        (joined(actions), widened)
    }

    /// Records that the program maps a range afresh, without [protection conflicts](Views::protection_conflicts), inside pages
    /// that it also uses otherwise. The range must read as zero. Returns the necessary actions.
    pub fn map_in_view(&mut self, start: u64, end: u64, protection: Protection, size: PageSize) -> Vec<Action> {
        let mut actions = Vec::new();
        for page in pages(start, end, size) {
            let before = self.union(page);
            self.visible.set(start.max(page.0), end.min(page.1), protection);
            let after = self.union(page);
            if after != before {
                actions.push(Action::Protect(page.0, page.1, after));
            }
        }
        // After the protection is set: memory that is not writable cannot be filled with zeros.
        let mut actions = joined(actions);
        actions.push(Action::Zero(start, end));
        actions
    }

    /// Whether a range is backed but not used by the program.
    pub fn is_slack(&self, start: u64, end: u64) -> bool {
        self.backed.covers(start, end) && !self.visible.overlaps(start, end)
    }

    /// Whether the program uses the pages of a range for nothing but this range.
    pub fn is_exclusive(&self, start: u64, end: u64, size: PageSize) -> bool {
        let (low, high) = outline(start, end, size);
        let others = self.visible.overlaps(low, start) || self.visible.overlaps(end, high);
        size.align_down(start) == start && self.backed.covers(low, high) && !others
    }

    /// The single protection that the program gave to a backed range; `None` where the range has holes or several protections, or
    /// is not completely backed.
    pub fn uniform_protection(&self, start: u64, end: u64) -> Option<Protection> {
        match self.visible.within(start, end)[..] {
            [(s, e, protection)] if (s, e) == (start, end) => Some(protection),
            _ => None,
        }
    }

    /// The pages at the ends of a range that the program also uses outside the range.
    pub fn shared_ends(&self, start: u64, end: u64, size: PageSize) -> Vec<(u64, u64)> {
        let uses_outside = |page: &(u64, u64)| {
            self.visible.overlaps(page.0, start.min(page.1)) || self.visible.overlaps(end.max(page.0), page.1)
        };
        self.backed_parts(start, end).into_iter().flat_map(|(s, e)| pages(s, e, size)).filter(uses_outside).collect()
    }

    /// The parts of a page that the program sees.
    pub fn seen_in(&self, page: (u64, u64)) -> Vec<(u64, u64, Protection)> {
        self.visible.within(page.0, page.1)
    }

    /// Records that base pages now back these pages.
    pub fn demote(&mut self, pages: (u64, u64)) {
        self.backed.clear(pages.0, pages.1);
        self.visible.clear(pages.0, pages.1);
        self.locked.clear(pages.0, pages.1);
    }

    /// The protection of each backed page in a range, as the kernel must have it.
    pub fn unions(&self, start: u64, end: u64, size: PageSize) -> Vec<Action> {
        let backed = self.backed_parts(start, end).into_iter().flat_map(|(s, e)| pages(s, e, size));
        joined(backed.map(|page| Action::Protect(page.0, page.1, self.union(page))).collect())
    }

    /// Splits a range whose content is dropped into whole pages and parts of pages.
    pub fn drop_content(&self, start: u64, end: u64, size: PageSize) -> Dropped {
        let (mut whole, mut partial) = (Ranges::default(), Vec::new());
        for (s, e) in self.backed_parts(start, end) {
            for page in pages(s, e, size) {
                let part = (s.max(page.0), e.min(page.1));
                if self.visible.overlaps(page.0, part.0) || self.visible.overlaps(part.1, page.1) {
                    partial.push(part);
                } else {
                    whole.set(page.0, page.1, ());
                }
            }
        }
        Dropped { whole: whole.within(0, u64::MAX).into_iter().map(|(s, e, ())| (s, e)).collect(), partial }
    }

    fn union(&self, page: (u64, u64)) -> Protection {
        self.visible.within(page.0, page.1).into_iter().fold(0, |union, (_, _, protection)| union | protection)
    }
}

/// The range widened to whole pages.
pub fn outline(start: u64, end: u64, size: PageSize) -> (u64, u64) {
    (size.align_down(start), size.align_up(end).unwrap_or(size.align_down(u64::MAX)))
}

/// The whole pages that a range touches.
pub fn pages(start: u64, end: u64, size: PageSize) -> impl Iterator<Item = (u64, u64)> {
    let (low, high) = outline(start, end, size);
    (low..high).step_by(size.bytes() as usize).map(move |page| (page, page + size.bytes()))
}

/// The whole pages inside a range, as one range; empty where there are none.
pub fn interior(start: u64, end: u64, size: PageSize) -> (u64, u64) {
    let low = size.align_up(start).unwrap_or(end);
    let high = size.align_down(end);
    if low < high { (low, high) } else { (start, start) }
}

/// Merges neighbouring actions that set the same protection.
fn joined(actions: Vec<Action>) -> Vec<Action> {
    let mut joined: Vec<Action> = Vec::new();
    for action in actions {
        match (joined.last_mut(), action) {
            (Some(Action::Protect(_, end, same)), Action::Protect(start, further, protection))
                if *end == start && *same == protection =>
            {
                *end = further;
            }
            _ => joined.push(action),
        }
    }
    joined
}

#[cfg(test)]
mod tests;
