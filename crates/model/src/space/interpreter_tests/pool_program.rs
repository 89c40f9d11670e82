//! A traced program under a hugetlb policy (`PoolProgram`), for tests: it carries out the tracer's calls on a naive kernel that
//! has one entry per page, at the addresses that Linux on x86-64 chooses.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use ::policy::Mechanism;
use ::policy::call::{Call, Vma, madv, map, mremap, prot};
use ::policy::carry_out::{Kernel, Outcome};
use ::policy::cause::Cause;
use ::policy::census::Advice;
use ::policy::decide::View;
use ::policy::pool::{Content, PoolKernel, Views, carry_out, decide};

use super::PAGE;
use super::pool_verdict::Observations;
use crate::layout::linux::{HUGE, MMAP_BASE, PROGRAM, VDSO_BYTES};

/// The properties of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub protection: u64,
    /// The number of the hugetlb mapping that contains the page.
    pub pool: Option<u64>,
    pub is_file: bool,
    /// The distance by which mremap moved it.
    moved_by: u64,
}

/// A copy of memory, with the offsets of the pages that it copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Copied {
    pub from: u64,
    pub to: u64,
    pub bytes: u64,
    pub pages: Vec<u64>,
}

/// A traced program whose memory comes from a pool.
pub(super) struct PoolProgram {
    pub mechanism: Mechanism,
    pub views: Views,
    pub pages: BTreeMap<u64, Page>,
    pub present: BTreeSet<u64>,
    pub copies: Vec<Copied>,
    pub noted: BTreeMap<Cause, u64>,
    pub answered: Vec<&'static str>,
    /// Pages that map the zero page: a read populated them, and they are not hugetlb pages.
    pub zeros: BTreeSet<u64>,
    /// The advice of pages that have any.
    pub advice: BTreeMap<u64, Advice>,
    pub observations: Observations,
    /// The mappings for the judge: their ends by their first addresses.
    pub mappings: BTreeMap<u64, u64>,
    /// Pages that the program has written.
    filled: BTreeSet<u64>,
    /// Number of hugetlb mappings so far.
    pool_mappings: u64,
    /// The call that the program is making.
    current_call: Call,
}

fn pages(start: u64, bytes: u64) -> impl Iterator<Item = u64> {
    (start..start + bytes.next_multiple_of(PAGE)).step_by(PAGE as usize)
}

impl PoolProgram {
    pub fn new(policy: &str, mechanism: Mechanism) -> PoolProgram {
        PoolProgram {
            mechanism,
            views: Views::default(),
            pages: BTreeMap::new(),
            present: BTreeSet::new(),
            copies: Vec::new(),
            noted: BTreeMap::new(),
            answered: Vec::new(),
            zeros: BTreeSet::new(),
            advice: BTreeMap::new(),
            observations: Observations::under(policy),
            mappings: BTreeMap::new(),
            filled: BTreeSet::new(),
            pool_mappings: 0,
            current_call: Call::Brk { end: 0 },
        }
    }

    /// Handles a call of the program as the tracer does and returns its result.
    pub fn handle_call(&mut self, call: Call) -> i64 {
        self.current_call = call;
        self.inspect_before(&call);
        let (mechanism, mut views) = (self.mechanism, std::mem::take(&mut self.views));
        let outcome = carry_out(decide(&mechanism, &mut views, &call), self).unwrap();
        self.views = views;
        match outcome {
            Outcome::Returned(result) => result,
            Outcome::Pass => self.apply(&call),
        }
    }

    /// Stores to a page that the program may write.
    pub fn write(&mut self, page: u64) {
        self.touch(page);
        self.filled.insert(page);
    }

    /// Makes a page present, and also the rest of its hugetlb page if it has one.
    fn touch(&mut self, page: u64) {
        self.zeros.remove(&page);
        let large = self.mechanism.large;
        let touched = match self.pages[&page].pool {
            Some(_) => (large.align_down(page), large.bytes()),
            None => (page, PAGE),
        };
        if !self.present.contains(&page) {
            self.present.extend(pages(touched.0, touched.1));
        }
    }

    pub fn may_write(&self, page: u64) -> bool {
        self.pages.get(&page).is_some_and(|page| page.protection & prot::WRITE != 0)
    }

    fn apply(&mut self, call: &Call) -> i64 {
        match *call {
            Call::Mmap { address, bytes, protection, flags, .. } => self.mmap((address, bytes), protection, flags),
            Call::Munmap { address, bytes } => {
                self.check_ends(address, bytes);
                pages(address, bytes).for_each(|page| self.forget(page));
                0
            }
            Call::Mprotect { address, bytes, protection } => {
                self.check_ends(address, bytes);
                let all = self.pages.range_mut(address..address + bytes.next_multiple_of(PAGE));
                all.for_each(|(_, page)| page.protection = protection);
                0
            }
            Call::Madvise { address, bytes, advice } => {
                match advice {
                    madv::DONTNEED | madv::DONTNEED_LOCKED => {
                        self.check_ends(address, bytes);
                        pages(address, bytes).for_each(|page| {
                            self.present.remove(&page);
                            self.filled.remove(&page);
                            self.zeros.remove(&page);
                        });
                    }
                    madv::HUGEPAGE => self.advice.extend(pages(address, bytes).map(|page| (page, Advice::Huge))),
                    madv::POPULATE_WRITE => {
                        pages(address, bytes).for_each(|page| self.touch(page));
                    }
                    _ => {}
                }
                0
            }
            Call::Mremap { address, old_bytes, new_bytes, flags, new_address } => {
                self.mremap((address, old_bytes), new_bytes, flags, new_address)
            }
            Call::Brk { .. } => PROGRAM as i64,
            Call::ProcessMadvise { .. } | Call::Prctl { .. } | Call::OnRange { .. } => 0,
        }
    }

    /// Checks that no end of a range is inside a hugetlb page, because the kernel refuses such a range.
    fn check_ends(&self, address: u64, bytes: u64) {
        let of = |page: u64| self.pages.get(&page).and_then(|page| page.pool);
        for edge in [address, address + bytes.next_multiple_of(PAGE)] {
            let is_inside = edge % self.mechanism.large.bytes() != 0;
            assert!(!is_inside || of(edge).is_none() || of(edge - PAGE).is_none(), "{edge:#x} is inside a pool page");
        }
    }

    fn forget(&mut self, page: u64) {
        self.pages.remove(&page);
        self.present.remove(&page);
        self.filled.remove(&page);
        self.zeros.remove(&page);
        self.advice.remove(&page);
    }

    fn mmap(&mut self, (address, bytes): (u64, u64), protection: u64, flags: u64) -> i64 {
        let (is_pool, is_file) = (flags & map::HUGETLB != 0, flags & map::ANONYMOUS == 0);
        let to = match flags & (map::FIXED | map::FIXED_NOREPLACE) {
            0 if is_pool => {
                let large = self.mechanism.large;
                large.align_down(self.highest_gap(bytes + large.bytes() - PAGE) + large.bytes() - PAGE)
            }
            0 if is_file && bytes >= HUGE => aligned(self.highest_gap(bytes + HUGE)),
            0 if is_file => self.highest_gap(bytes),
            0 => self.choose_address(bytes),
            _ => address,
        };
        if flags & map::FIXED_NOREPLACE != 0 && pages(to, bytes).any(|page| self.pages.contains_key(&page)) {
            return -17;
        }
        self.check_ends(to, bytes);
        self.pool_mappings += u64::from(is_pool);
        let of = Page { protection, pool: is_pool.then_some(self.pool_mappings), is_file, moved_by: 0 };
        pages(to, bytes).for_each(|page| {
            self.forget(page);
            self.pages.insert(page, of);
        });
        if flags & map::STACK != 0 {
            self.advice.extend(pages(to, bytes).map(|page| (page, Advice::NoHuge)));
        }
        if flags & map::POPULATE != 0 && protection != prot::NONE {
            pages(to, bytes).for_each(|page| self.touch(page));
            // A populated read-only page of anonymous memory maps the zero page. File pages have content.
            let are_zeros = protection & prot::WRITE == 0 && !is_pool && !is_file;
            self.zeros.extend(pages(to, bytes).filter(|_| are_zeros));
        }
        to as i64
    }

    fn mremap(&mut self, (old, old_bytes): (u64, u64), new_bytes: u64, flags: u64, target: u64) -> i64 {
        let (old_bytes, new_bytes) = (old_bytes.next_multiple_of(PAGE), new_bytes.next_multiple_of(PAGE));
        let moved: Vec<(u64, Page)> =
            pages(old, old_bytes.min(new_bytes)).map(|page| (page, self.pages[&page])).collect();
        let first = moved[0].1;
        if new_bytes > old_bytes && moved.iter().any(|(_, page)| *page != first) {
            return -14;
        }
        let is_fixed = flags & mremap::FIXED != 0;
        let grown = pages(old + old_bytes, new_bytes.saturating_sub(old_bytes));
        let stays = !is_fixed && grown.into_iter().all(|page| !self.pages.contains_key(&page));
        if !stays && flags & mremap::MAY_MOVE == 0 {
            return -12;
        }
        let to = if is_fixed {
            target
        } else if stays {
            old
        } else {
            self.choose_address(new_bytes)
        };
        let distance = to.wrapping_sub(old);
        let was = |pages: &BTreeSet<u64>| moved.iter().map(|(page, _)| pages.contains(page)).collect::<Vec<bool>>();
        let (present, filled, zeros) = (was(&self.present), was(&self.filled), was(&self.zeros));
        let advice: Vec<Option<Advice>> = moved.iter().map(|(page, _)| self.advice.get(page).copied()).collect();
        pages(old, old_bytes).chain(pages(to, new_bytes)).for_each(|page| self.forget(page));
        for (index, (page, of)) in moved.iter().enumerate() {
            let (page, moved_by) = (page.wrapping_add(distance), of.moved_by.wrapping_add(distance));
            let moved_by = if of.pool.is_some() || of.is_file { 0 } else { moved_by };
            self.pages.insert(page, Page { moved_by, ..*of });
            self.present.extend(present[index].then_some(page));
            self.filled.extend(filled[index].then_some(page));
            self.zeros.extend(zeros[index].then_some(page));
            self.advice.extend(advice[index].map(|advice| (page, advice)));
        }
        if new_bytes > old_bytes {
            let last = self.pages[&(to + old_bytes - PAGE)];
            let grown = || pages(to + old_bytes, new_bytes - old_bytes);
            self.pages.extend(grown().map(|page| (page, last)));
            let advice = advice.last().copied().flatten();
            self.advice.extend(advice.into_iter().flat_map(|advice| grown().map(move |page| (page, advice))));
        }
        to as i64
    }

    /// The address that Linux chooses for `bytes` of memory.
    fn choose_address(&self, bytes: u64) -> u64 {
        if bytes >= HUGE && bytes.is_multiple_of(HUGE) {
            aligned(self.highest_gap(bytes + HUGE))
        } else {
            self.highest_gap(bytes)
        }
    }

    /// The address of `bytes` at the upper end of the highest gap that is large enough.
    fn highest_gap(&self, bytes: u64) -> u64 {
        let (mut free, mut at) = (0, MMAP_BASE - VDSO_BYTES);
        while free < bytes.next_multiple_of(PAGE) {
            at -= PAGE;
            free = if self.pages.contains_key(&at) { 0 } else { free + PAGE };
        }
        at
    }
}

/// Rounds up to a huge page, as `__thp_get_unmapped_area` (mm/huge_memory.c) does.
fn aligned(begin: u64) -> u64 {
    begin - begin % HUGE + HUGE
}

impl View for PoolProgram {
    fn vma_at(&mut self, address: u64) -> Option<Vma> {
        let at = address & !(PAGE - 1);
        let of = *self.pages.get(&at)?;
        let is_of = |page: &u64| self.pages.get(page) == Some(&of);
        let (mut start, mut end) = (at, at + PAGE);
        while is_of(&(start - PAGE)) {
            start -= PAGE;
        }
        while is_of(&end) {
            end += PAGE;
        }
        let is_anonymous = of.pool.is_none() && !of.is_file;
        Some(Vma { start, end, protection: of.protection, is_anonymous, is_named: false })
    }

    fn excepts_advised(&mut self) -> bool {
        true
    }
}

impl Kernel for PoolProgram {
    type Error = Infallible;

    fn call(&mut self, call: &Call) -> Result<i64, Infallible> {
        Ok(self.apply(call))
    }

    fn original_call(&mut self) -> Result<i64, Infallible> {
        Ok(self.apply(&self.current_call.clone()))
    }

    fn advise(&mut self, (address, bytes): (u64, u64), advice: u64) -> Result<(), Infallible> {
        self.apply(&Call::Madvise { address, bytes, advice });
        Ok(())
    }

    fn check_mapped(&mut self, _: (u64, u64)) -> Result<i64, Infallible> {
        Ok(0)
    }

    fn zero(&mut self, start: u64, end: u64) -> bool {
        self.filled.retain(|page| !(start..end).contains(page));
        true
    }

    fn allows(&mut self, _: &Call) -> bool {
        true
    }

    fn record_answer(&mut self, call: &'static str) {
        self.answered.push(call);
    }
}

impl PoolKernel for PoolProgram {
    fn own_call_on(&mut self, _: (u64, u64)) -> Result<i64, Infallible> {
        Ok(0)
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64, content: Content) -> bool {
        let copied: Vec<u64> = pages(from, bytes)
            .filter(|page| content == Content::All || self.filled.contains(page))
            .map(|page| page - from)
            .collect();
        for at in &copied {
            self.touch(to + at);
            if self.filled.contains(&(from + at)) {
                self.filled.insert(to + at);
            }
        }
        self.copies.push(Copied { from, to, bytes, pages: copied });
        true
    }

    fn unreserved_pages(&mut self) -> u64 {
        u64::MAX
    }

    fn note(&mut self, cause: Cause, bytes: u64) {
        *self.noted.entry(cause).or_default() += bytes;
    }
}
