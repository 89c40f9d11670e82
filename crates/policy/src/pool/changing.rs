//! Calls that change memory that is there: mprotect, madvise, memory policies.

use policy::call::madv;
use policy::cause::Cause;

use crate::huge_map::{Action, Dropped, NONE, Protection, outline};
use crate::registers::is_error;
use policy::guards;

use super::{Call, DONT_NEED, EINVAL, Halt, Served, WRITE};

const DONT_FORK: u64 = libc::MADV_DONTFORK as u64;
const DO_FORK: u64 = libc::MADV_DOFORK as u64;
const DONT_DUMP: u64 = libc::MADV_DONTDUMP as u64;
const DO_DUMP: u64 = libc::MADV_DODUMP as u64;
const WIPE_ON_FORK: u64 = libc::MADV_WIPEONFORK as u64;
const KEEP_ON_FORK: u64 = libc::MADV_KEEPONFORK as u64;
const REMOVE: u64 = libc::MADV_REMOVE as u64;
/// Advice that the kernel refuses for locked memory.
const NOT_LOCKED: [u64; 3] = [DONT_NEED, libc::MADV_COLD as u64, libc::MADV_PAGEOUT as u64];
const HINTS: [u64; 13] = [
    libc::MADV_NORMAL as u64,
    libc::MADV_RANDOM as u64,
    libc::MADV_SEQUENTIAL as u64,
    libc::MADV_WILLNEED as u64,
    libc::MADV_FREE as u64,
    libc::MADV_MERGEABLE as u64,
    libc::MADV_UNMERGEABLE as u64,
    libc::MADV_HUGEPAGE as u64,
    libc::MADV_NOHUGEPAGE as u64,
    libc::MADV_COLD as u64,
    libc::MADV_PAGEOUT as u64,
    libc::MADV_COLLAPSE as u64,
    madv::GUARD_REMOVE,
];

impl Call<'_, '_> {
    pub(super) fn mprotect(&mut self, [start, bytes, protection, ..]: [u64; 6]) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        if protection != NONE {
            for pages in self.map.convertible(start, end, self.size) {
                self.convert(pages, NONE)?;
            }
        }
        if !self.map.concerns(start, end) {
            if protection != NONE {
                self.map.spoil(start, end);
            }
            return Ok(None);
        }
        let misfits = self.map.misfits(start, end, protection, self.size);
        if self.is_given_up(start, end, protection) {
            self.context.findings.answer(guards::CLOSED);
            return Ok(Some(0));
        }
        for page in misfits {
            self.demote(page)?;
        }
        let mut result = 0;
        for (s, e) in self.map.ordinary(start, end) {
            let here = self.call(libc::SYS_mprotect, [s, e - s, protection, 0, 0, 0])?;
            self.map.spoil(s, e);
            result = if result == 0 { here } else { result };
        }
        let (actions, widened) = self.map.protect(start, end, protection, self.size);
        if widened {
            self.context.findings.cause(Cause::ProtectionWidened, end - start);
        }
        self.carry_out(&actions)?;
        Ok(Some(self.unless_hole(start, end, result)))
    }

    /// Whether closing a range makes a guard inside a page of which more is accessible, and guards are left open.
    pub(super) fn is_given_up(&self, start: u64, end: u64, protection: Protection) -> bool {
        let small = guards::is_small(start, end, self.context.rewriting.base);
        self.context.rewriting.no_guards
            && protection == NONE
            && small
            && !self.map.misfits(start, end, NONE, self.size).is_empty()
    }

    /// A call that pool pages do not support as the program means it: the range is given back first.
    pub(super) fn on_base_pages(&mut self, [start, bytes, ..]: [u64; 6]) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        self.demote_range(start, end)?;
        self.map.spoil(start, end);
        Ok(None)
    }

    /// A memory policy (mbind, set_mempolicy_home_node) holds for whole pages: what shares a page with the range
    /// gets it too.
    pub(super) fn on_whole_pages(&mut self, number: i64, [start, bytes, rest @ ..]: [u64; 6]) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        let mut result = 0;
        let whole = self.map.backed_parts(start, end).into_iter().map(|(s, e)| outline(s, e, self.size));
        let parts: Vec<(u64, u64)> = whole.chain(self.map.ordinary(start, end)).collect();
        for (s, e) in parts {
            let here = self.call(number, [s, e - s, rest[0], rest[1], rest[2], rest[3]])?;
            result = if result == 0 { here } else { result };
        }
        Ok(Some(result))
    }

    pub(super) fn madvise(&mut self, [start, bytes, how, ..]: [u64; 6]) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        if !self.map.concerns(start, end) {
            return Ok(None);
        }
        // What is locked is not reclaimed (`can_madv_lru_vma` in mm/madvise.c); to the kernel pool pages are not locked.
        if NOT_LOCKED.contains(&how) && !self.map.locked_parts(start, end).is_empty() {
            return Ok(Some(EINVAL));
        }
        let served = match how {
            DONT_NEED | madv::DONTNEED_LOCKED => self.drop_content(start, end, how),
            DONT_FORK | DO_FORK => {
                for page in self.map.shared_ends(start, end, self.size) {
                    self.demote(page)?;
                }
                self.advise_pages(start, end, how)
            }
            DONT_DUMP | DO_DUMP | madv::POPULATE_READ | madv::POPULATE_WRITE => self.advise_pages(start, end, how),
            WIPE_ON_FORK | KEEP_ON_FORK | madv::GUARD_INSTALL => {
                self.demote_range(start, end)?;
                Ok(None)
            }
            // To the kernel they have a file, to the program they have none.
            REMOVE => Ok(Some(EINVAL)),
            // Hints, which the kernel may ignore, and so may we: pool pages are neither merged, reclaimed
            // nor of another size. Guards are never among them.
            _ if HINTS.contains(&how) => {
                // The kernel says for no bytes whether it has that advice.
                self.must(libc::SYS_madvise, [start, 0, how, 0, 0, 0])?;
                let result = self.advise_ordinary(start, end, how)?;
                Ok(Some(result))
            }
            _ => Ok(None),
        };
        Ok(served?.map(|result| self.unless_hole(start, end, result)))
    }

    /// The first error that an advice meets on memory that is not the pool's; all of it is advised.
    fn advise_ordinary(&mut self, start: u64, end: u64, how: u64) -> Result<i64, Halt> {
        let mut result = 0;
        for (s, e) in self.map.ordinary(start, end) {
            let here = self.call(libc::SYS_madvise, [s, e - s, how, 0, 0, 0])?;
            result = if result == 0 { here } else { result };
        }
        Ok(result)
    }

    pub(super) fn drop_content(&mut self, start: u64, end: u64, how: u64) -> Served {
        for (s, e) in self.map.drop_content(start, end, self.size).partial {
            // What cannot be written cannot be zeroed.
            if self.map.seen_in((s, e)).iter().any(|(_, _, protection)| protection & WRITE == 0) {
                self.demote(outline(s, e, self.size))?;
            }
        }
        let result = self.advise_ordinary(start, end, how)?;
        let Dropped { whole, partial } = self.map.drop_content(start, end, self.size);
        for (s, e) in whole {
            let dropped = self.call(libc::SYS_madvise, [s, e - s, libc::MADV_DONTNEED as u64, 0, 0, 0])?;
            if is_error(dropped) {
                // Before Linux 5.18 hugetlb pages cannot be dropped.
                self.carry_out(&[Action::Zero(s, e)])?;
            }
        }
        for (s, e) in partial {
            self.carry_out(&[Action::Zero(s, e)])?;
        }
        Ok(Some(result))
    }

    fn advise_pages(&mut self, start: u64, end: u64, how: u64) -> Served {
        let mut result = self.advise_ordinary(start, end, how)?;
        for (s, e) in self.map.backed_parts(start, end) {
            let (s, e) = outline(s, e, self.size);
            let here = self.call(libc::SYS_madvise, [s, e - s, how, 0, 0, 0])?;
            result = if result == 0 { here } else { result };
        }
        Ok(Some(result))
    }
}
