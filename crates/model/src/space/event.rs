//! System calls and their effect on VMAs and mappings.

use ::policy::call::map;
use paging::{Format, InputAddress};
use trace::{Call, Event};

use super::error::SpaceError;
use super::paged::Paged;
use super::part::{Part, joined, stretches};
use super::process::Heap;
use super::vma::{Advice, Backing, Object, Vma};
use super::witness;
use crate::address::Pa;
use crate::call::{self, Object as About, PAGE_BYTES as CALL_PAGE_BYTES, PROT_READ, PROT_WRITE};
use crate::policy::Granule;
use crate::promise::Promise;

// include/uapi/asm-generic/mman-common.h and mman.h: the same on x86-64, arm64 and riscv64.
const MAP_SHARED: u64 = 1;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_GROWSDOWN: u64 = 0x100;
const MREMAP_DONTUNMAP: u64 = 4;
const MADV_DONTNEED: u64 = 4;
const MADV_FREE: u64 = 8;
const MADV_HUGEPAGE: u64 = 14;
const MADV_NOHUGEPAGE: u64 = 15;
const MADV_COLD: u64 = 20;
const MADV_POPULATE_READ: u64 = 22;
const MADV_POPULATE_WRITE: u64 = 23;
const MADV_DONTNEED_LOCKED: u64 = 24;
const PR_SET_THP_DISABLE: u64 = 41;
impl<F: Format> Paged<F> {
    /// Applies the effect of a call. A call that a kernel would have refused has no effect.
    pub(super) fn hear(&mut self, event: &Event) -> Result<(), SpaceError> {
        if event.result < 0 && event.result > -4096 {
            return Ok(());
        }
        if let (Granule::Direct(leaf_bytes), Call::Region { address, bytes, .. }) = (self.plan.granule, &event.call) {
            return self.map_directly(*address, address.saturating_add(*bytes), leaf_bytes);
        }
        self.seen.is_looked_at = witness::is_looked_at(&event.call);
        match call::object(event) {
            About::Nothing => Ok(()),
            About::Range(begin, bytes) if self.checked(begin, bytes).is_none() => self.refuse(),
            About::Range(..) | About::Else => self.by_policy(event),
        }
    }

    /// Applies the effect of a call without the policy's changes.
    pub(super) fn make(&mut self, event: &Event) -> Result<(), SpaceError> {
        match call::object(event) {
            About::Nothing => Ok(()),
            About::Else => self.hear_other(event),
            About::Range(begin, bytes) => match self.checked(begin, bytes) {
                Some((begin, end)) => self.hear_range(event, begin, end),
                None => self.refuse(),
            },
        }
    }

    /// A range in whole pages of system calls, if programs can have it.
    pub(super) fn checked(&self, begin: u64, bytes: u64) -> Option<(u64, u64)> {
        call::range(begin, bytes, self.user_end)
    }

    /// Counts a call that no kernel would have allowed.
    pub(super) fn refuse(&mut self) -> Result<(), SpaceError> {
        self.costs.refused_calls += 1;
        Ok(())
    }

    fn hear_range(&mut self, event: &Event, begin: u64, end: u64) -> Result<(), SpaceError> {
        match &event.call {
            Call::Mmap { protection, flags, file, .. } => self.mmap(begin, end, *protection, *flags, *file),
            Call::Region { address, name, .. } if name == "[heap]" => {
                (self.processes.running.heap, self.processes.running.policy.heap) = Default::default();
                self.by_policy(&brk_to(event, *address))?;
                self.by_policy(&brk_to(event, end))
            }
            Call::Region { protection, name, .. } => self.region(begin, end, *protection, name),
            Call::Munmap { .. } => self.unmap_range(begin, end),
            Call::Mprotect { protection, .. } => self.protect_range(begin, end, *protection),
            Call::Madvise { advice, .. } => self.advise(begin, end, *advice),
            Call::Mremap { address, old_bytes, flags, .. } => match self.checked(*address, (*old_bytes).max(1)) {
                Some((old, old_end)) if begin == old || end <= old || old_end <= begin => {
                    let keeps = flags & MREMAP_DONTUNMAP != 0;
                    self.remap(old, if *old_bytes == 0 { old } else { old_end }, begin, end, keeps)
                }
                _ => self.refuse(),
            },
            _ => Ok(()),
        }
    }

    fn hear_other(&mut self, event: &Event) -> Result<(), SpaceError> {
        match &event.call {
            Call::Brk { .. } => {
                if self.brk(event.result as u64)? == event.result as u64 {
                    Ok(())
                } else {
                    self.refuse()
                }
            }
            Call::Prctl { option: PR_SET_THP_DISABLE, argument } => {
                self.processes.running.thp_disabled = *argument != 0;
                Ok(())
            }
            Call::Exec { .. } => {
                self.unmap_everything()?;
                // PR_SET_THP_DISABLE persists across execve (`MMF_INIT_MASK`, include/linux/mm_types.h).
                let thp_disable = self.processes.running.policy.thp_disable;
                self.processes.running.policy = ::policy::Space { thp_disable, ..::policy::Space::default() };
                (self.processes.running.heap, self.processes.running.has_forked) = (None, false);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Creates a mapping. MAP_STACK means VM_NOHUGEPAGE since Linux 6.7 (mm/mmap.c).
    pub(super) fn mmap(
        &mut self,
        begin: u64,
        end: u64,
        protection: u64,
        flags: u64,
        file: i64,
    ) -> Result<(), SpaceError> {
        let backing = self.backing(begin, flags, file);
        let advice = if flags & map::STACK != 0 { Advice::NoHuge } else { Advice::None };
        self.unmap_range(begin, end)?;
        let promise = Promise::of_mapping(protection, flags);
        self.processes.running.vmas.insert(begin, Vma { end, protection, backing, advice, promise, anon: None });
        if map::populates(flags) && protection & (PROT_READ | PROT_WRITE) != 0 {
            self.populate(begin, end, protection & PROT_WRITE != 0)?;
        }
        Ok(())
    }

    /// The backing of a new mapping. Each shared anonymous mapping is an object of its own. Pool pages are recognized
    /// if the policy uses them.
    fn backing(&mut self, begin: u64, flags: u64, file: i64) -> Backing {
        let anonymous = flags & MAP_ANONYMOUS != 0 || file < 0;
        match (anonymous, flags & MAP_SHARED != 0) {
            (true, false) if flags & map::HUGETLB != 0 && self.plan.mechanism.hugetlb => Backing::Pool,
            (true, false) if flags & MAP_GROWSDOWN != 0 => Backing::Stack,
            (true, false) => Backing::Anonymous,
            (true, true) => Backing::Shared(Object { number: self.swap_cache.object(), origin: begin }),
            (false, false) => Backing::File,
            (false, true) => Backing::SharedFile,
        }
    }

    /// Adds memory that existed when recording began.
    fn region(&mut self, begin: u64, end: u64, protection: u64, name: &str) -> Result<(), SpaceError> {
        let backing = match name {
            "" => Backing::Anonymous,
            "[stack]" => Backing::Stack,
            "[vdso]" => Backing::Vdso,
            name if name.starts_with("[anon") => Backing::Anonymous,
            _ => Backing::File,
        };
        self.unmap_range(begin, end)?;
        let (advice, promise) = (Advice::None, Promise::of_mapping(protection, 0));
        self.processes.running.vmas.insert(begin, Vma { end, protection, backing, advice, promise, anon: None });
        self.begin_early(begin, end, protection, backing)
    }

    /// The whole base pages that a range of system-call pages frees: those that no other VMA shares.
    pub(super) fn pages_within(&self, begin: u64, end: u64) -> (u64, u64) {
        let (mut first, mut last) = (begin & !(self.base - 1), end.next_multiple_of(self.base));
        if first < begin && self.processes.running.vmas.any_in(first, begin) {
            first += self.base;
        }
        if end < last && self.processes.running.vmas.any_in(end, last) {
            last -= self.base;
        }
        (first, last.max(first))
    }

    pub(super) fn unmap_range(&mut self, begin: u64, end: u64) -> Result<(), SpaceError> {
        if begin >= end {
            return Ok(());
        }
        let (first, last) = self.pages_within(begin, end);
        if first < last {
            self.witness_call(first, last)?;
        }
        self.remove_range(begin, end)
    }

    /// Unmaps a range that was inspected before.
    fn remove_range(&mut self, begin: u64, end: u64) -> Result<(), SpaceError> {
        let (first, last) = self.pages_within(begin, end);
        self.processes.running.vmas.remove(begin, end);
        if first < last {
            self.drop_range(first, last)?;
            self.free_tables(first, last)?;
        }
        Ok(())
    }

    /// Unmaps everything that the running process has mapped, including memory without a VMA.
    pub(super) fn unmap_everything(&mut self) -> Result<(), SpaceError> {
        self.witness_end()?;
        for (begin, vma) in self.processes.running.vmas.all().collect::<Vec<_>>() {
            self.remove_range(begin, vma.end)?;
        }
        for part in joined(self.processes.running.all_parts()?) {
            self.drop_range(part.va, part.va + part.bytes)?;
            self.free_tables(part.va, part.va + part.bytes)?;
        }
        self.forget_swapped(0, u64::MAX);
        Ok(())
    }

    /// Changes the protection of a range. VMAs that already have it are left unchanged (`mprotect_fixup`, mm/mprotect.c).
    pub(super) fn protect_range(&mut self, begin: u64, end: u64, protection: u64) -> Result<(), SpaceError> {
        // The beginning and end of each, and whether it is of a pool.
        let mut changed: Vec<(u64, u64, bool)> = Vec::new();
        for (begin, vma) in
            self.processes.running.vmas.within(begin, end).iter().filter(|(_, vma)| vma.protection != protection)
        {
            let of_pool = vma.backing == Backing::Pool;
            match changed.last_mut().filter(|(_, end, before)| end == begin && *before == of_pool) {
                Some((_, end, _)) => *end = vma.end,
                None => changed.push((*begin, vma.end, of_pool)),
            }
        }
        changed.into_iter().try_for_each(|(begin, end, of_pool)| {
            // `hugetlb_change_protection` (mm/hugetlb.c) treats a writable private page as one to be copied.
            self.change_protection(begin, end, protection, !of_pool && protection & PROT_WRITE != 0)
        })
    }

    /// Changes the protection of VMAs and of the memory mapped there; `may_write` says whether stores then need no fault.
    fn change_protection(&mut self, begin: u64, end: u64, protection: u64, may_write: bool) -> Result<(), SpaceError> {
        self.processes.running.vmas.change(begin, end, |vma| {
            vma.protection = protection;
            vma.promise = vma.promise.protected(protection, vma.anon.is_some());
        });
        let (first, last) = self.pages_within(begin, end);
        if first >= last {
            return Ok(());
        }
        self.give_up_reservations(first, last);
        let parts = self.parts(first, last)?;
        let stretches = stretches(&parts, |part| may_write && self.may_become_writable(part));
        for (begin, end, writable) in stretches {
            let attributes = self.attributes(protection, writable);
            self.protect(begin, end, attributes)?;
        }
        self.fold_again(&parts)
    }

    /// Forms contiguous groups again whose last page is among the parts, which got their protection one by one. A
    /// group's memory must be of one folio, with one protection (`contpte_try_fold`, arch/arm64/include/asm/pgtable.h).
    fn fold_again(&mut self, parts: &[Part]) -> Result<(), SpaceError> {
        let format = self.processes.running.tables.format();
        let bytes = self.base << format.group_bits_at(0);
        if format.run_bits() != 0 || bytes == self.base {
            return Ok(());
        }
        for part in parts.iter().filter(|part| part.bytes == self.base && (part.va + self.base) & (bytes - 1) == 0) {
            let first_pa = (part.pa.0 + self.base).checked_sub(bytes).map(Pa);
            let is_of_one_folio = |first_pa: Pa| {
                let found = self.memory.folios.find(first_pa).filter(|(_, folio)| !folio.pinned);
                found.is_some_and(|(at, folio)| part.pa < at + folio.bytes)
            };
            let is_single = self.leaf(part.va).is_some_and(|leaf| leaf.group_bytes == leaf.leaf_bytes);
            if is_single
                && first_pa.is_some_and(is_of_one_folio)
                && self.processes.running.tables.fold(InputAddress(part.va)).is_ok()
            {
                self.costs.folds += 1;
            }
        }
        Ok(())
    }

    /// Moves the end of the heap, if nothing is in the way, and returns the new end. The first call defines where the
    /// heap begins.
    pub(super) fn brk(&mut self, asked: u64) -> Result<u64, SpaceError> {
        let Some(heap) = self.processes.running.heap else {
            if asked >= self.user_end {
                return Ok(0);
            }
            self.processes.running.heap = Some(Heap::beginning(asked));
            return Ok(asked);
        };
        let page = |address: u64| address.next_multiple_of(CALL_PAGE_BYTES);
        let is_free = asked <= heap.end || !self.processes.running.vmas.any_in(page(heap.end), asked);
        if asked < heap.begin || asked > self.user_end || !is_free {
            return Ok(heap.end);
        }
        self.processes.running.heap = Some(Heap { end: asked, ..heap });
        if asked < heap.end {
            self.unmap_range(page(asked), page(heap.end))?;
        } else if asked > heap.end {
            let (begin, end) = (page(heap.end), page(asked));
            let (protection, backing) = (PROT_READ | PROT_WRITE, Backing::Anonymous);
            let vma = Vma { end, protection, backing, advice: Advice::None, promise: Promise::Kept, anon: None };
            self.processes.running.vmas.insert(begin, vma);
        }
        Ok(asked)
    }

    pub(super) fn advise(&mut self, begin: u64, end: u64, advice: u64) -> Result<(), SpaceError> {
        match advice {
            // Such advice has no effect on pool pages, and under a pool policy other memory is never huge.
            MADV_HUGEPAGE | MADV_NOHUGEPAGE if matches!(self.plan.granule, Granule::Hugetlb(_)) => Ok(()),
            MADV_HUGEPAGE => self.advise_size(begin, end, Advice::Huge),
            MADV_NOHUGEPAGE => self.advise_size(begin, end, Advice::NoHuge),
            MADV_DONTNEED | MADV_DONTNEED_LOCKED => {
                // Only whole base pages are freed, even if the model's are larger.
                let (first, last) = (begin.next_multiple_of(self.base), end & !(self.base - 1));
                if first < last {
                    self.witness_call(first, last)?;
                    self.drop_range(first, last)?;
                    self.reclaim_tables(first, last)?;
                }
                Ok(())
            }
            MADV_FREE => self.advise_free(begin, end),
            MADV_COLD => self.advise_cold(begin, end),
            MADV_POPULATE_READ => self.populate(begin, end, false),
            MADV_POPULATE_WRITE => self.populate(begin, end, true),
            _ => Ok(()),
        }
    }

    fn advise_size(&mut self, begin: u64, end: u64, advice: Advice) -> Result<(), SpaceError> {
        self.processes.running.vmas.change(begin, end, |vma| vma.advice = advice);
        self.split_at_edge(begin)?;
        Ok(self.split_at_edge(end)?)
    }

    /// Touches every page of a range, up to the first VMA that must not be touched in this way (`check_vma_flags`,
    /// mm/gup.c). A kernel cannot populate more than the machine's memory.
    fn populate(&mut self, begin: u64, end: u64, store: bool) -> Result<(), SpaceError> {
        let needed = if store { PROT_WRITE } else { PROT_READ | PROT_WRITE };
        for (from, vma) in self.processes.running.vmas.within(begin, end) {
            if vma.protection & needed == 0 {
                return Ok(());
            }
            if vma.end - from > self.memory.bytes {
                return Err(SpaceError::OutOfMemory { va: from, base_bytes: self.base });
            }
            let mut at = from & !(self.base - 1);
            while at < vma.end {
                let present = self.leaf(at).filter(|leaf| leaf.writable || !store);
                if present.is_none() {
                    self.fault(at, store)?;
                }
                at += self.base;
            }
        }
        Ok(())
    }
}

/// The event that moves the end of the heap to `end`.
fn brk_to(event: &Event, end: u64) -> Event {
    Event { call: Call::Brk { address: end }, result: end as i64, ..event.clone() }
}
