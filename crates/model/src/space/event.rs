//! System calls and their effect on VMAs and mappings.

use ::policy::call::map;
use paging::{Format, InputAddress};
use trace::{Call, Event};

use super::error::SpaceError;
use super::paged::AddressSpaces;
use super::part::{Part, merged, ranges_by};
use super::process::Heap;
use super::vma::{Advice, AtFork, Backing, Locked, Object, Vma};
use super::witness;
use crate::accounting::Accounting;
use crate::address::Pa;
use crate::call::{self, Affected, PAGE_BYTES as CALL_PAGE_BYTES, PROT_READ, PROT_WRITE};
use crate::policy::MappingUnit;

// include/uapi/asm-generic/mman-common.h and mman.h: the same on x86-64, arm64 and riscv64.
const MAP_SHARED: u64 = 1;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_GROWSDOWN: u64 = 0x100;
const MREMAP_DONTUNMAP: u64 = 4;
const PR_SET_THP_DISABLE: u64 = 41;

impl<F: Format> AddressSpaces<F> {
    /// Applies a call under the policy. A call that no kernel allows has no effect.
    pub(super) fn apply(&mut self, event: &Event) -> Result<(), SpaceError> {
        if event.result < 0 && event.result > -4096 {
            return Ok(());
        }
        if let (MappingUnit::Direct(leaf_bytes), Call::Region { address, bytes, .. }) =
            (self.plan.mapping_unit, &event.call)
        {
            return self.map_directly(*address, address.saturating_add(*bytes), leaf_bytes);
        }
        self.observations.compare_inspects = witness::compare_inspects(&event.call);
        match call::affected(event) {
            Affected::Empty => Ok(()),
            Affected::Range(begin, bytes) if self.checked(begin, bytes).is_none() => self.refuse(),
            Affected::Range(..) | Affected::NoRange => self.apply_policy(event),
        }
    }

    /// Applies a call as the program made it, without the policy.
    pub(super) fn apply_unchanged(&mut self, event: &Event) -> Result<(), SpaceError> {
        match call::affected(event) {
            Affected::Empty => Ok(()),
            Affected::NoRange => self.apply_other(event),
            Affected::Range(begin, bytes) => match self.checked(begin, bytes) {
                Some((begin, end)) => self.apply_to_range(event, begin, end),
                None => self.refuse(),
            },
        }
    }

    /// A range in whole 4K pages; `None` if no program can map the range.
    pub(super) fn checked(&self, begin: u64, bytes: u64) -> Option<(u64, u64)> {
        call::user_range(begin, bytes, self.user_end)
    }

    /// Counts a call that has no effect: no kernel allows it, or it fails under the policy.
    pub(super) fn refuse(&mut self) -> Result<(), SpaceError> {
        self.costs.refused_calls += 1;
        Ok(())
    }

    fn apply_to_range(&mut self, event: &Event, begin: u64, end: u64) -> Result<(), SpaceError> {
        match &event.call {
            Call::Mmap { protection, flags, file, .. } => self.mmap(begin, end, *protection, *flags, *file),
            Call::Region { address, name, .. } if name == "[heap]" => {
                (self.processes.running.heap, self.processes.running.policy.heap) = Default::default();
                self.apply_policy(&brk_to(event, *address))?;
                self.apply_policy(&brk_to(event, end))
            }
            Call::Region { protection, name, .. } => self.region(begin, end, *protection, name),
            Call::Munmap { .. } => self.unmap_range(begin, end),
            Call::Mprotect { protection, .. } => self.protect_range(begin, end, *protection),
            Call::Madvise { advice, .. } => self.advise(begin, end, *advice),
            Call::Mlock { flags, .. } => self.lock(begin, end, *flags),
            Call::Hole { .. } => self.share_hole(begin, end),
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

    fn apply_other(&mut self, event: &Event) -> Result<(), SpaceError> {
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
            Call::Mlockall { flags } => self.lock_all(*flags),
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

    /// Creates a mapping. MAP_STACK means VM_NOHUGEPAGE since Linux 6.7 (`calc_vm_flag_bits`, include/linux/mman.h).
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
        let accounting = Accounting::of_mapping(protection, flags);
        let locked = if flags & map::LOCKED != 0 { Locked::All } else { self.processes.running.lock_future };
        self.processes.running.vmas.insert(
            begin,
            Vma { end, protection, backing, advice, accounting, anon: None, at_fork: AtFork::Copied, locked },
        );
        if (map::populates(flags) || locked == Locked::All) && protection & (PROT_READ | PROT_WRITE) != 0 {
            // Loads populate shared memory (`populate_vma_page_range`, mm/gup.c).
            self.populate(begin, end, protection & PROT_WRITE != 0 && flags & MAP_SHARED == 0)?;
        }
        Ok(())
    }

    /// Handles a hole in a file (`Call::Hole`): turns shared file mappings in a range into shared memory, because the file is
    /// in memory and has no pages there yet.
    fn share_hole(&mut self, begin: u64, end: u64) -> Result<(), SpaceError> {
        let object = Object { number: self.swap_cache.new_object(), origin: begin };
        self.change_vmas(begin, end, |vma| {
            if vma.backing == Backing::SharedFile {
                vma.backing = Backing::Shared(object);
            }
        })
    }

    /// The backing of a new mapping. Each shared anonymous mapping is a new object. MAP_HUGETLB has an effect only under a
    /// hugetlb policy.
    fn backing(&mut self, begin: u64, flags: u64, file: i64) -> Backing {
        let anonymous = flags & MAP_ANONYMOUS != 0 || file < 0;
        match (anonymous, flags & MAP_SHARED != 0) {
            (true, false) if flags & map::HUGETLB != 0 && self.plan.mechanism.hugetlb => Backing::Hugetlb,
            (true, false) if flags & MAP_GROWSDOWN != 0 => Backing::Stack,
            (true, false) => Backing::Anonymous,
            (true, true) => Backing::Shared(Object { number: self.swap_cache.new_object(), origin: begin }),
            (false, false) => Backing::File,
            (false, true) => Backing::SharedFile,
        }
    }

    /// Adds memory that the program had when recording began.
    fn region(&mut self, begin: u64, end: u64, protection: u64, name: &str) -> Result<(), SpaceError> {
        let backing = match name {
            "" => Backing::Anonymous,
            "[stack]" => Backing::Stack,
            "[vdso]" => Backing::Vdso,
            name if name.starts_with("[anon") => Backing::Anonymous,
            _ => Backing::File,
        };
        self.unmap_range(begin, end)?;
        let (advice, accounting) = (Advice::None, Accounting::of_mapping(protection, 0));
        self.processes.running.vmas.insert(
            begin,
            Vma {
                end,
                protection,
                backing,
                advice,
                accounting,
                anon: None,
                at_fork: AtFork::Copied,
                locked: Locked::No,
            },
        );
        self.apply_to_initial_memory(begin, end, protection, backing)
    }

    /// The base pages that become free when a range of 4K pages is unmapped. A base page at an end of the range is excluded if
    /// another VMA also uses it.
    pub(super) fn pages_within(&self, begin: u64, end: u64) -> (u64, u64) {
        let (mut first, mut last) = (begin & !(self.base - 1), end.next_multiple_of(self.base));
        if first < begin && self.processes.running.vmas.overlaps(first, begin) {
            first += self.base;
        }
        if end < last && self.processes.running.vmas.overlaps(end, last) {
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

    /// Unmaps a range that was already inspected for the verdict.
    fn remove_range(&mut self, begin: u64, end: u64) -> Result<(), SpaceError> {
        let (first, last) = self.pages_within(begin, end);
        let vmas = self.processes.running.vmas.within(begin, end);
        self.unmapped_objects.extend(vmas.iter().filter_map(|(_, vma)| vma.backing.object()));
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
        for part in merged(self.processes.running.all_parts()?) {
            self.drop_range(part.va, part.va + part.bytes)?;
            self.free_tables(part.va, part.va + part.bytes)?;
        }
        self.drop_swapped(0, u64::MAX);
        Ok(())
    }

    /// Changes the protection of a range. VMAs that already have it are left unchanged (`mprotect_fixup`, mm/mprotect.c).
    pub(super) fn protect_range(&mut self, begin: u64, end: u64, protection: u64) -> Result<(), SpaceError> {
        // Begin and end of each range, and whether it is a hugetlb mapping.
        let mut changed: Vec<(u64, u64, bool)> = Vec::new();
        for (begin, vma) in
            self.processes.running.vmas.within(begin, end).iter().filter(|(_, vma)| vma.protection != protection)
        {
            let is_pool = vma.backing == Backing::Hugetlb;
            match changed.last_mut().filter(|(_, end, before)| end == begin && *before == is_pool) {
                Some((_, end, _)) => *end = vma.end,
                None => changed.push((*begin, vma.end, is_pool)),
            }
        }
        changed.into_iter().try_for_each(|(begin, end, is_pool)| {
            // `hugetlb_change_protection` (mm/hugetlb.c) treats a writable private page as one to be copied.
            self.change_protection(begin, end, protection, !is_pool && protection & PROT_WRITE != 0)
        })
    }

    /// Changes the protection of VMAs and of their mapped memory. If `may_write` is `true`, a page becomes writable at once,
    /// unless its first store needs a fault.
    fn change_protection(&mut self, begin: u64, end: u64, protection: u64, may_write: bool) -> Result<(), SpaceError> {
        self.processes.running.vmas.change(begin, end, |vma| {
            vma.protection = protection;
            vma.accounting = vma.accounting.protected(protection, vma.anon.is_some());
        });
        let (first, last) = self.pages_within(begin, end);
        if first >= last {
            return Ok(());
        }
        self.release_reservations(first, last);
        let parts = self.parts(first, last)?;
        let ranges = ranges_by(&parts, |part| may_write && self.may_become_writable(part));
        for (begin, end, writable) in ranges {
            let attributes = self.attributes(protection, writable);
            self.protect(begin, end, attributes)?;
        }
        self.fold_groups(&parts)
    }

    /// Folds contiguous groups whose last page is one of these parts: the kernel sets their protection page by page and
    /// tries to fold at the last page of a group (`contpte_try_fold`, arch/arm64/include/asm/pgtable.h). All pages of the
    /// group must belong to one folio and have the same protection.
    fn fold_groups(&mut self, parts: &[Part]) -> Result<(), SpaceError> {
        let format = self.processes.running.tables.format();
        let bytes = self.base << format.group_bits_at(0);
        if format.run_bits() != 0 || bytes == self.base {
            return Ok(());
        }
        for part in parts.iter().filter(|part| part.bytes == self.base && (part.va + self.base) & (bytes - 1) == 0) {
            let first_pa = (part.pa.0 + self.base).checked_sub(bytes).map(Pa);
            let is_one_folio = |first_pa: Pa| {
                let found = self.memory.folios.find(first_pa).filter(|(_, folio)| !folio.is_hugetlb);
                found.is_some_and(|(at, folio)| part.pa < at + folio.bytes)
            };
            let is_single = self.leaf(part.va).is_some_and(|leaf| leaf.group_bytes == leaf.leaf_bytes);
            if is_single
                && first_pa.is_some_and(is_one_folio)
                && self.processes.running.tables.fold(InputAddress(part.va)).is_ok()
            {
                self.costs.folds += 1;
            }
        }
        Ok(())
    }

    /// Moves the end of the heap to `requested`, if no mapping is in the way, and returns the resulting end. The first call
    /// sets where the heap begins.
    pub(super) fn brk(&mut self, requested: u64) -> Result<u64, SpaceError> {
        let Some(heap) = self.processes.running.heap else {
            if requested >= self.user_end {
                return Ok(0);
            }
            self.processes.running.heap = Some(Heap::beginning(requested));
            return Ok(requested);
        };
        let page = |address: u64| address.next_multiple_of(CALL_PAGE_BYTES);
        let is_free = requested <= heap.end || !self.processes.running.vmas.overlaps(page(heap.end), requested);
        if requested < heap.begin || requested > self.user_end || !is_free {
            return Ok(heap.end);
        }
        self.processes.running.heap = Some(Heap { end: requested, ..heap });
        if requested < heap.end {
            self.unmap_range(page(requested), page(heap.end))?;
        } else if requested > heap.end {
            let (begin, end) = (page(heap.end), page(requested));
            let (protection, backing) = (PROT_READ | PROT_WRITE, Backing::Anonymous);
            let vma = Vma {
                end,
                protection,
                backing,
                advice: Advice::None,
                accounting: Accounting::Accounted,
                anon: None,
                at_fork: AtFork::Copied,
                locked: self.processes.running.lock_future,
            };
            self.processes.running.vmas.insert(begin, vma);
            if vma.locked == Locked::All {
                self.populate(begin, end, true)?;
            }
        }
        Ok(requested)
    }
}

/// The event that moves the end of the heap to `end`.
fn brk_to(event: &Event, end: u64) -> Event {
    Event { call: Call::Brk { address: end }, result: end as i64, ..event.clone() }
}
