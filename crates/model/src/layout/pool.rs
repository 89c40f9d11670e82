//! A process under a hugetlb policy: carries out what `policy::pool` decides about its calls, on addresses and VMAs without
//! content.
//!
//! The pool never runs out, because the model does not know how many pages it has.

use std::convert::Infallible;

use ::policy::Mechanism;
use ::policy::call::{Call, Vma, map, mremap};
use ::policy::carry_out::{Kernel, Outcome};
use ::policy::cause::Cause;
use ::policy::decide::View;
use ::policy::extent::{InspectedRemovals, Removal};
use ::policy::pool::{Content, PoolKernel, Views, carry_out, decide};
use ::policy::ranges::Ranges;
use ::policy::size::PageSize;
use trace::Event;

use super::change::Change;
use super::linux::pages;
use super::used_ranges::{MappingRequest, UsedRanges};

// include/uapi/asm-generic/errno-base.h, negated.
const ENOMEM: i64 = -12;
const EFAULT: i64 = -14;
const EEXIST: i64 = -17;

/// The properties of a VMA on which the result of calls depends. Adjacent VMAs with the same properties are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapped {
    protection: u64,
    backing: Backing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    Anonymous {
        /// The total distance by which mremap has moved this VMA with its content. VMAs with different distances are not merged
        /// (`vma->vm_pgoff`).
        moved_by: u64,
    },
    Hugetlb {
        /// Each mapping of hugetlb pages has its own file, so it is never merged.
        number: u64,
    },
    File,
}

/// The state of a process whose memory comes from the hugetlb pool if possible.
#[derive(Clone, Debug)]
pub(super) struct HugetlbProcess {
    mechanism: Mechanism,
    /// The program's view of its memory, and the kernel's.
    views: Views,
    vmas: Ranges<Mapped>,
    /// Number of hugetlb mappings so far.
    mappings: u64,
}

impl HugetlbProcess {
    /// A process without memory. Lengths are counted in 4K base pages, as in the recording, even if the machine has larger base
    /// pages.
    pub fn new(mechanism: Mechanism) -> HugetlbProcess {
        let mechanism = Mechanism { base: PageSize::K4, ..mechanism };
        HugetlbProcess { mechanism, views: Views::default(), vmas: Ranges::default(), mappings: 0 }
    }

    /// The state of a forked child.
    pub fn forked(&self) -> HugetlbProcess {
        HugetlbProcess { views: self.views.forked(), ..self.clone() }
    }

    /// The state after the process has executed another program.
    pub fn executed(&self) -> HugetlbProcess {
        HugetlbProcess { mappings: self.mappings, ..HugetlbProcess::new(self.mechanism) }
    }

    /// Adds memory with which the program starts.
    pub fn add_existing(&mut self, begin: u64, bytes: u64, protection: u64, is_anonymous: bool) {
        let backing = if is_anonymous { Backing::Anonymous { moved_by: 0 } } else { Backing::File };
        self.vmas.set(begin, begin.saturating_add(bytes), Mapped { protection, backing });
    }

    /// Serves a call of the program, with addresses in Linux's layout, as the policy does, and returns its result. `heap` is the
    /// kernel's start of the heap; `event` is the call as recorded.
    pub fn serve(
        &mut self,
        call: Call,
        event: &Event,
        heap: u64,
        used_ranges: &mut UsedRanges,
        changes: &mut Vec<Change>,
    ) -> i64 {
        let HugetlbProcess { mechanism, views, vmas, mappings } = self;
        let removal = match call {
            Call::Brk { end } => views.heap_removal(end, mechanism.base),
            _ => Removal::by(&call, mechanism.base),
        };
        if let Some(removal) = removal {
            let is_inspected = InspectedRemovals::Large.includes(&removal, &call);
            let ranges = views.given_back(&removal, mechanism.large).into_iter();
            changes.extend(ranges.map(|(begin, end)| Change::Freed { begin, bytes: end - begin, is_inspected }));
        }
        let mut addresses = Addresses {
            own: call,
            event,
            heap,
            page_bytes: mechanism.large.bytes(),
            used_ranges,
            vmas,
            mappings,
            changes,
        };
        let served = carry_out(decide(mechanism, views, &call), &mut addresses);
        match served.unwrap_or_else(|never| match never {}) {
            Outcome::Returned(result) => result,
            Outcome::Pass => addresses.make(&call),
        }
    }
}

/// A kernel that has only addresses and VMAs, and records the changes to memory.
struct Addresses<'a> {
    /// The program's own call.
    own: Call,
    /// The recorded event of that call.
    event: &'a Event,
    heap: u64,
    page_bytes: u64,
    used_ranges: &'a mut UsedRanges,
    vmas: &'a mut Ranges<Mapped>,
    mappings: &'a mut u64,
    changes: &'a mut Vec<Change>,
}

impl Addresses<'_> {
    /// Makes a call. It succeeds if it would succeed on a kernel with enough memory.
    fn make(&mut self, call: &Call) -> i64 {
        match *call {
            Call::Mmap { .. } => self.mmap(call),
            Call::Mremap { address, old_bytes, new_bytes, flags, new_address } => {
                self.mremap((address, pages(old_bytes)), pages(new_bytes), flags, new_address)
            }
            Call::Munmap { address, bytes } => {
                let end = address.saturating_add(pages(bytes));
                self.used_ranges.free(address, end);
                self.vmas.clear(address, end);
                self.record(trace::Call::Munmap { address, bytes }, 0)
            }
            Call::Mprotect { address, bytes, protection } => {
                for (begin, end, mapped) in self.vmas.within(address, address.saturating_add(pages(bytes))) {
                    self.vmas.set(begin, end, Mapped { protection, ..mapped });
                }
                self.record(trace::Call::Mprotect { address, bytes, protection }, 0)
            }
            Call::Madvise { bytes: 0, .. } => 0,
            Call::Madvise { address, bytes, advice } => self.record(trace::Call::Madvise { address, bytes, advice }, 0),
            Call::Brk { .. } => self.heap as i64,
            // A trace does not contain these calls.
            Call::ProcessMadvise { .. } | Call::Prctl { .. } | Call::OnRange { .. } => 0,
        }
    }

    /// Records a call that was made, and returns its result.
    fn record(&mut self, call: trace::Call, result: i64) -> i64 {
        self.changes.push(Change::Call(Event { call, result, ..self.event.clone() }));
        result
    }

    /// The type of the file system of the file that the program maps, if it maps one.
    fn file_system(&self) -> Option<u64> {
        match self.event.call {
            trace::Call::Mmap { file_system, .. } => file_system,
            _ => None,
        }
    }

    fn mmap(&mut self, call: &Call) -> i64 {
        let Call::Mmap { address, bytes, protection, flags, file, offset } = *call else { return EFAULT };
        let (rounded_bytes, is_hugetlb) = (pages(bytes), flags & map::HUGETLB != 0);
        let is_free = || self.used_ranges.is_free(address, address.saturating_add(rounded_bytes));
        if flags & map::FIXED == 0 && flags & map::FIXED_NOREPLACE != 0 && !is_free() {
            return EEXIST;
        }
        let to = match flags & (map::FIXED | map::FIXED_NOREPLACE) {
            0 if is_hugetlb => self.used_ranges.place_hugetlb(address, rounded_bytes, self.page_bytes),
            0 if *call == self.own => {
                let request =
                    MappingRequest { bytes, flags, offset, file_system: self.file_system(), has_hint: address != 0 };
                self.used_ranges.place_mapping(&request, address)
            }
            0 => self.used_ranges.place_anonymous(bytes),
            _ => address,
        };
        self.used_ranges.take(to, to.saturating_add(rounded_bytes));
        let backing = match flags & map::ANONYMOUS != 0 {
            true if is_hugetlb => {
                *self.mappings += 1;
                Backing::Hugetlb { number: *self.mappings }
            }
            true if flags & map::TYPE == map::PRIVATE && flags & map::GROWSDOWN == 0 => {
                Backing::Anonymous { moved_by: 0 }
            }
            _ => Backing::File,
        };
        self.vmas.set(to, to.saturating_add(rounded_bytes), Mapped { protection, backing });
        let (file, file_system) = (file as i64, self.file_system());
        self.record(trace::Call::Mmap { address: to, bytes, protection, flags, file, offset, file_system }, to as i64)
    }

    fn mremap(&mut self, (old, old_bytes): (u64, u64), new_bytes: u64, flags: u64, target: u64) -> i64 {
        let (old_end, grown_end) = (old.saturating_add(old_bytes), old.saturating_add(new_bytes));
        // Only a range in one VMA can grow (`check_prep_vma`, mm/mremap.c).
        if new_bytes > old_bytes && self.vmas.within(old, old_end).len() > 1 {
            return EFAULT;
        }
        let keeps_old = flags & !(mremap::MAY_MOVE | mremap::FIXED) != 0;
        let may_move = flags & mremap::MAY_MOVE != 0;
        let stays = flags & mremap::FIXED == 0
            && !keeps_old
            && old_bytes > 0
            && self.used_ranges.may_end_at(old_end, grown_end);
        if !stays && !may_move {
            return ENOMEM;
        }
        let moved = self.vmas.within(old, old.saturating_add(old_bytes.min(new_bytes)));
        let to = if flags & mremap::FIXED != 0 {
            target
        } else if stays {
            old
        } else {
            self.used_ranges.place_anonymous(new_bytes)
        };
        if !keeps_old {
            self.vmas.clear(old, old_end);
            self.used_ranges.free(old, old_end);
        }
        let distance = to.wrapping_sub(old);
        self.used_ranges.take(to, to.saturating_add(new_bytes));
        self.vmas.clear(to, to.saturating_add(new_bytes));
        for (begin, end, mapped) in &moved {
            let backing = match mapped.backing {
                Backing::Anonymous { moved_by } => Backing::Anonymous { moved_by: moved_by.wrapping_add(distance) },
                other => other,
            };
            self.vmas.set(begin.wrapping_add(distance), end.wrapping_add(distance), Mapped { backing, ..*mapped });
        }
        let grown_from = to.saturating_add(old_bytes);
        if let Some((_, _, last)) = self.vmas.at(grown_from.saturating_sub(1)).filter(|_| new_bytes > old_bytes) {
            self.vmas.set(grown_from, to.saturating_add(new_bytes), last);
        }
        let call = trace::Call::Mremap { address: old, old_bytes, new_bytes, flags, new_address: to };
        self.record(call, to as i64)
    }
}

impl View for Addresses<'_> {
    fn vma_at(&mut self, address: u64) -> Option<Vma> {
        let (start, end, mapped) = self.vmas.at(address)?;
        let is_anonymous = matches!(mapped.backing, Backing::Anonymous { .. });
        Some(Vma { start, end, protection: mapped.protection, is_anonymous, is_named: false })
    }

    fn excepts_advised(&mut self) -> bool {
        true
    }
}

impl Kernel for Addresses<'_> {
    type Error = Infallible;

    fn call(&mut self, call: &Call) -> Result<i64, Infallible> {
        Ok(self.make(call))
    }

    fn original_call(&mut self) -> Result<i64, Infallible> {
        Ok(self.make(&self.own.clone()))
    }

    fn advise(&mut self, (address, bytes): (u64, u64), advice: u64) -> Result<(), Infallible> {
        self.make(&Call::Madvise { address, bytes, advice });
        Ok(())
    }

    fn check_mapped(&mut self, _: (u64, u64)) -> Result<i64, Infallible> {
        Ok(0)
    }

    fn zero(&mut self, begin: u64, end: u64) -> bool {
        self.changes.push(Change::Write { begin, bytes: end - begin });
        true
    }

    fn allows(&mut self, _: &Call) -> bool {
        true
    }

    fn record_answer(&mut self, call: &'static str) {
        self.changes.push(Change::Answered(call));
    }
}

impl PoolKernel for Addresses<'_> {
    /// No call in a trace is made on a part of its range.
    fn own_call_on(&mut self, _: (u64, u64)) -> Result<i64, Infallible> {
        Ok(0)
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64, content: Content) -> bool {
        self.changes.push(Change::Copy { from, to, bytes, content });
        true
    }

    fn unreserved_pages(&mut self) -> u64 {
        u64::MAX
    }

    fn note(&mut self, cause: Cause, bytes: u64) {
        self.changes.push(Change::Noted(cause, bytes));
    }
}
