//! System calls: what they do to VMAs and to what is mapped.

use paging::{Format, Sizes};
use trace::{Call, Event};

use super::*;

pub(super) const PROT_READ: u64 = 1;
pub(super) const PROT_WRITE: u64 = 2;
pub(super) const PROT_EXEC: u64 = 4;

// include/uapi/asm-generic/mman-common.h and mman.h: the same on x86-64, arm64 and riscv64.
const MAP_SHARED: u64 = 1;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_GROWSDOWN: u64 = 0x100;
const MAP_STACK: u64 = 0x2_0000;
const MAP_POPULATE: u64 = 0x8000;
const MREMAP_DONTUNMAP: u64 = 4;
const MADV_DONTNEED: u64 = 4;
const MADV_HUGEPAGE: u64 = 14;
const MADV_NOHUGEPAGE: u64 = 15;
const MADV_POPULATE_READ: u64 = 22;
const MADV_POPULATE_WRITE: u64 = 23;
const MADV_DONTNEED_LOCKED: u64 = 24;
const PR_SET_THP_DISABLE: u64 = 41;
/// System calls count in base pages of 4K: what was recorded ran with those.
const CALL_PAGE_BYTES: u64 = 4096;

impl<F: Format> Paged<F> {
    pub(super) fn hear(&mut self, event: &Event) -> Result<(), SpaceError> {
        if event.result < 0 && event.result > -4096 {
            return Ok(());
        }
        let result = event.result as u64;
        if let (Granule::Direct(leaf_bytes), Call::Region { address, bytes, .. }) = (self.granule, &event.call) {
            return self.map_directly(*address, address.saturating_add(*bytes), leaf_bytes);
        }
        match &event.call {
            Call::Mmap { bytes, protection, flags, file, .. } => {
                let backing = backing(*flags, *file);
                // MAP_STACK means VM_NOHUGEPAGE since Linux 6.7 (mm/mmap.c).
                let advice = if flags & MAP_STACK != 0 { Advice::NoHuge } else { Advice::None };
                let end = end_of(result, *bytes);
                self.unmap_range(result, end)?;
                self.own.vmas.insert(result, Vma { end, protection: *protection, backing, advice });
                let populate = flags & MAP_POPULATE != 0 || self.prefault && backing == Backing::Anonymous;
                if populate && protection & (PROT_READ | PROT_WRITE) != 0 {
                    self.populate(result, end, protection & PROT_WRITE != 0)?;
                }
            }
            Call::Region { address, bytes, protection, name } => {
                let backing = match name.as_str() {
                    "" | "[heap]" => Backing::Anonymous,
                    "[stack]" => Backing::Stack,
                    name if name.starts_with("[anon") => Backing::Anonymous,
                    _ => Backing::File,
                };
                let end = end_of(*address, *bytes);
                if name == "[heap]" {
                    self.own.heap_end = Some(*address);
                    return self.set_heap_end(end);
                }
                self.own.vmas.insert(*address, Vma { end, protection: *protection, backing, advice: Advice::None });
            }
            Call::Munmap { address, bytes } => self.unmap_range(*address, end_of(*address, *bytes))?,
            Call::Mprotect { address, bytes, protection } => {
                self.protect_range(*address, end_of(*address, *bytes), *protection)?;
            }
            Call::Mremap { address, old_bytes, new_bytes, flags, .. } => {
                let keeps = flags & MREMAP_DONTUNMAP != 0;
                self.remap(*address, end_of(0, *old_bytes), result, end_of(0, *new_bytes), keeps)?;
            }
            Call::Brk { .. } => self.set_heap_end(result)?,
            Call::Madvise { address, bytes, advice } => self.advise(*address, end_of(*address, *bytes), *advice)?,
            Call::Prctl { option: PR_SET_THP_DISABLE, argument } => self.own.thp_disabled = *argument != 0,
            Call::Exec { .. } => self.exec()?,
            Call::Prctl { .. }
            | Call::Clone { .. }
            | Call::Exit { .. }
            | Call::Seen
            | Call::Window { .. }
            | Call::Outside { .. } => {}
        }
        Ok(())
    }

    /// The whole base pages that a range of system-call pages frees: those in which no VMA has a part.
    fn pages_within(&self, begin: u64, end: u64) -> (u64, u64) {
        let (mut first, mut last) = (begin & !(self.base - 1), end.next_multiple_of(self.base));
        if first < begin && self.own.vmas.any_in(first, begin) {
            first += self.base;
        }
        if end < last && self.own.vmas.any_in(end, last) {
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
            self.witness(first, last)?;
        }
        self.own.vmas.remove(begin, end);
        if first < last {
            self.drop_range(first, last)?;
        }
        Ok(())
    }

    fn protect_range(&mut self, begin: u64, end: u64, protection: u64) -> Result<(), SpaceError> {
        if begin >= end || protection == 0 && self.no_guards && self.is_inside_anonymous(begin, end) {
            return Ok(());
        }
        self.own.vmas.change(begin, end, |vma| vma.protection = protection);
        let (first, last) = self.pages_within(begin, end);
        if first >= last {
            return Ok(());
        }
        self.give_up_reservations(first, last);
        let parts = self.parts(first, last)?;
        if parts.is_empty() {
            return Ok(());
        }
        self.count_splits(first, last);
        let huge = self.huge_bytes();
        let cut = |part: &&Part| Some(part.leaf_bytes) == huge && part.bytes < part.leaf_bytes;
        self.lose_huge_leaves(parts.iter().filter(cut).count() as u64);
        for (begin, end, writable) in stretches(&parts) {
            let attributes = self.attributes(protection, writable && protection & PROT_WRITE != 0);
            self.own.tables.protect(begin, end - begin, attributes)?;
        }
        self.note_tables();
        Ok(())
    }

    /// Whether a range has anonymous memory of one VMA around it: a guard page is made.
    fn is_inside_anonymous(&self, begin: u64, end: u64) -> bool {
        self.own.vmas.find(begin).is_some_and(|(first, vma)| {
            vma.backing == Backing::Anonymous && vma.end >= end && (first < begin || vma.end > end)
        })
    }

    /// The heap's end, as the kernel has it: under policies of large pages it grows in whole ones, as `pagelab` makes it
    /// do on a running kernel (crates/metal/src/tracer/heap.rs).
    fn set_heap_end(&mut self, end: u64) -> Result<(), SpaceError> {
        let step = match self.granule {
            Granule::Mthp(bytes) | Granule::Thp(bytes) | Granule::Hugetlb(bytes) => bytes,
            Granule::Base | Granule::Contig64k | Granule::Direct(_) => 1,
        };
        let end = match self.own.heap_end {
            Some(before) if end > before => end.next_multiple_of(step),
            Some(before) if end.next_multiple_of(step) == before => before,
            _ => end,
        };
        match self.own.heap_end.replace(end) {
            Some(before) if before < end => {
                let protection = PROT_READ | PROT_WRITE;
                let vma = Vma { end, protection, backing: Backing::Anonymous, advice: Advice::None };
                let before = self.pool_begin(before.next_multiple_of(CALL_PAGE_BYTES));
                let end = end.next_multiple_of(CALL_PAGE_BYTES);
                self.own.vmas.insert(before, Vma { end, ..vma });
                if self.prefault { self.populate(before, end, true) } else { Ok(()) }
            }
            Some(before) if before > end => {
                self.unmap_range(end.next_multiple_of(CALL_PAGE_BYTES), before.next_multiple_of(CALL_PAGE_BYTES))
            }
            _ => Ok(()),
        }
    }

    /// Where a heap that has grown from `before` on begins: with pages of a pool `pagelab` puts it at the beginning of one.
    fn pool_begin(&self, before: u64) -> u64 {
        match self.granule {
            Granule::Hugetlb(bytes) if !self.own.vmas.any_in(before & !(bytes - 1), before) => before & !(bytes - 1),
            _ => before,
        }
    }

    fn advise(&mut self, begin: u64, end: u64, advice: u64) -> Result<(), SpaceError> {
        match advice {
            MADV_HUGEPAGE => self.own.vmas.change(begin, end, |vma| vma.advice = Advice::Huge),
            MADV_NOHUGEPAGE => self.own.vmas.change(begin, end, |vma| vma.advice = Advice::NoHuge),
            MADV_DONTNEED | MADV_DONTNEED_LOCKED => {
                // Only whole base pages are given back, also where those of the model are larger.
                let (first, last) = (begin.next_multiple_of(self.base), end & !(self.base - 1));
                if first < last {
                    self.witness(first, last)?;
                    self.drop_range(first, last)?;
                }
            }
            MADV_POPULATE_READ => self.populate(begin, end, false)?,
            MADV_POPULATE_WRITE => self.populate(begin, end, true)?,
            _ => {}
        }
        Ok(())
    }

    fn populate(&mut self, begin: u64, end: u64, store: bool) -> Result<(), SpaceError> {
        for (from, vma) in self.own.vmas.within(begin, end) {
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

    fn exec(&mut self) -> Result<(), SpaceError> {
        for (begin, vma) in self.own.vmas.all().collect::<Vec<_>>() {
            self.unmap_range(begin, vma.end)?;
        }
        (self.own.heap_end, self.own.thp_disabled) = (None, false);
        Ok(())
    }

    fn remap(&mut self, old: u64, old_bytes: u64, new: u64, new_bytes: u64, keeps: bool) -> Result<(), SpaceError> {
        let moved = old_bytes.min(new_bytes);
        let vmas = self.own.vmas.within(old, old + moved);
        if new == old {
            if new_bytes < old_bytes {
                return self.unmap_range(old + new_bytes, old + old_bytes);
            }
        } else {
            self.unmap_range(new, new + new_bytes)?;
            self.move_pages(old, moved, new)?;
            if !keeps {
                self.unmap_range(old, old + old_bytes)?;
            }
            for (begin, vma) in &vmas {
                self.own.vmas.insert(begin - old + new, Vma { end: vma.end - old + new, ..*vma });
            }
        }
        if let Some((_, vma)) = vmas.last().filter(|_| new_bytes > old_bytes) {
            self.own.vmas.insert(new + old_bytes, Vma { end: new + new_bytes, ..*vma });
        }
        Ok(())
    }

    /// Moves what is mapped. Leaves stay as large as the new address lets them.
    fn move_pages(&mut self, old: u64, bytes: u64, new: u64) -> Result<(), SpaceError> {
        let (first, last) = self.pages_within(old, old + bytes);
        let distance = new.wrapping_sub(old);
        if first >= last || distance & (self.base - 1) != 0 {
            // The pages of the model are larger than the distance: what was there is touched again.
            return Ok(());
        }
        // Nor can a page go where another mapping has a part of one.
        let (to, to_end) = self.pages_within(new, new + bytes);
        let (first, last) = (first.max(to.wrapping_sub(distance)), last.min(to_end.wrapping_sub(distance)));
        if first >= last {
            return Ok(());
        }
        let parts = self.parts(first, last)?;
        self.unmap(first, last, &parts)?;
        let swapped: Vec<u64> = self.own.swapped.range(first..last).copied().collect();
        self.forget_swapped(first, last);
        self.own.swapped.extend(swapped.into_iter().map(|page| page.wrapping_add(distance)));
        for part in joined(parts) {
            let to = part.va.wrapping_add(distance);
            let vma = self.own.vmas.find(part.va).map_or(PROT_READ | PROT_WRITE, |(_, vma)| vma.protection);
            let sizes = Sizes { largest_bytes: part.leaf_bytes.max(self.base), contiguous: part.grouped };
            if part.leaf_bytes > self.base && to & (part.leaf_bytes - 1) != 0 {
                self.costs.splits += part.bytes.div_ceil(part.leaf_bytes);
            }
            let attributes = self.attributes(vma, part.writable);
            self.map(to, part.pa, part.bytes, sizes, attributes)?;
            self.folios.moved(part.pa, part.bytes, self.number, to);
        }
        Ok(())
    }
}

/// Stretches of parts that lie side by side and may or may not become writable: what stands in for other memory (zeros,
/// files) may not.
pub(super) fn stretches(parts: &[Part]) -> Vec<(u64, u64, bool)> {
    let mut stretches: Vec<(u64, u64, bool)> = Vec::new();
    for part in parts {
        let own = part.pa < ZERO_PA || part.pa >= FILES_PA && part.writable;
        match stretches.last_mut() {
            Some((_, end, writable)) if *end == part.va && *writable == own => *end += part.bytes,
            _ => stretches.push((part.va, part.va + part.bytes, own)),
        }
    }
    stretches
}

/// Joins parts of contiguous memory, so that groups are mapped as such again.
pub(super) fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for part in parts {
        match all.last_mut() {
            Some(before)
                if before.va + before.bytes == part.va
                    && before.pa + before.bytes == part.pa
                    && (before.leaf_bytes, before.grouped, before.writable)
                        == (part.leaf_bytes, part.grouped, part.writable) =>
            {
                before.bytes += part.bytes;
            }
            _ => all.push(part),
        }
    }
    all
}

fn backing(flags: u64, file: i64) -> Backing {
    let anonymous = flags & MAP_ANONYMOUS != 0 || file < 0;
    match (anonymous, flags & MAP_SHARED != 0) {
        (true, false) if flags & MAP_GROWSDOWN != 0 => Backing::Stack,
        (true, false) => Backing::Anonymous,
        (true, true) => Backing::Shared,
        (false, false) => Backing::File,
        (false, true) => Backing::SharedFile,
    }
}

/// Where a range of system-call pages ends.
fn end_of(begin: u64, bytes: u64) -> u64 {
    begin.saturating_add(bytes).checked_next_multiple_of(CALL_PAGE_BYTES).unwrap_or(!(CALL_PAGE_BYTES - 1))
}
