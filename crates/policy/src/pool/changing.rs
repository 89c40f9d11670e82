//! Serves the calls that change existing memory: mprotect, madvise, and those that only base pages support.

use super::views::{Action, Dropped, Protection, outline};
use super::{CallServer, EINVAL, PartResult, Served};
use crate::call::prot::{NONE, WRITE};
use crate::call::{Call, madv};
use crate::carry_out::is_error;
use crate::cause::Cause;
use crate::guards;

/// Advice that the kernel refuses for locked memory.
const NOT_LOCKED: [u64; 3] = [madv::DONTNEED, madv::COLD, madv::PAGEOUT];
const HINTS: [u64; 13] = [
    madv::NORMAL,
    madv::RANDOM,
    madv::SEQUENTIAL,
    madv::WILLNEED,
    madv::FREE,
    madv::MERGEABLE,
    madv::UNMERGEABLE,
    madv::HUGEPAGE,
    madv::NOHUGEPAGE,
    madv::COLD,
    madv::PAGEOUT,
    madv::COLLAPSE,
    madv::GUARD_REMOVE,
];

impl CallServer<'_> {
    pub(super) async fn mprotect(&mut self, start: u64, bytes: u64, protection: Protection) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        if protection != NONE {
            for pages in self.views.convertible(start, end, self.size()) {
                self.convert(pages, NONE).await?;
            }
        }
        if !self.views.concerns(start, end) {
            if protection != NONE {
                self.views.mark_touched(start, end);
            }
            return Ok(None);
        }
        let protection_conflicts = self.views.protection_conflicts(start, end, protection, self.size());
        if self.keeps_guard_open(start, end, protection) {
            self.record_answer(guards::CLOSED).await;
            return Ok(Some(0));
        }
        for page in protection_conflicts {
            self.demote(page).await?;
        }
        let mut result = 0;
        for (s, e) in self.views.ordinary(start, end) {
            let here = self.call(&Call::Mprotect { address: s, bytes: e - s, protection }).await;
            self.views.mark_touched(s, e);
            result = if result == 0 { here } else { result };
        }
        let (actions, widened) = self.views.protect(start, end, protection, self.size());
        if widened {
            self.note(Cause::ProtectionWidened, end - start).await;
        }
        self.carry_out(&actions).await?;
        Ok(Some(self.or_enomem_for_hole(start, end, result)))
    }

    /// Whether closing a range makes a guard that stays open: the policy leaves guards open, and other parts of the same page are
    /// accessible.
    pub(super) fn keeps_guard_open(&self, start: u64, end: u64, protection: Protection) -> bool {
        let small = guards::is_small(start, end, self.mechanism.base);
        self.mechanism.no_guards
            && protection == NONE
            && small
            && !self.views.protection_conflicts(start, end, NONE, self.size()).is_empty()
    }

    /// Serves a call that hugetlb pages do not support as the program expects: the range is replaced by base pages first.
    pub(super) async fn on_base_pages(&mut self, start: u64, bytes: u64) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        self.demote_range(start, end).await?;
        self.views.mark_touched(start, end);
        Ok(None)
    }

    pub(super) async fn madvise(&mut self, start: u64, bytes: u64, how: u64) -> Served {
        let Some(end) = self.end_of(start, bytes) else { return Ok(None) };
        if !self.views.concerns(start, end) {
            return Ok(None);
        }
        // Locked memory is not reclaimed (`can_madv_lru_vma` in mm/madvise.c). The kernel does not see the hugetlb pages as
        // locked.
        if NOT_LOCKED.contains(&how) && !self.views.locked_parts(start, end).is_empty() {
            return Ok(Some(EINVAL));
        }
        let served = match how {
            madv::DONTNEED | madv::DONTNEED_LOCKED => self.drop_content(start, end, how).await,
            madv::DONTFORK | madv::DOFORK => {
                for page in self.views.shared_ends(start, end, self.size()) {
                    self.demote(page).await?;
                }
                self.advise_pages(start, end, how).await
            }
            madv::DONTDUMP | madv::DODUMP | madv::POPULATE_READ | madv::POPULATE_WRITE => {
                self.advise_pages(start, end, how).await
            }
            madv::WIPEONFORK | madv::KEEPONFORK | madv::GUARD_INSTALL => {
                self.demote_range(start, end).await?;
                Ok(None)
            }
            // For the kernel, hugetlb pages have a file; for the program this memory has none.
            madv::REMOVE => Ok(Some(EINVAL)),
            // The kernel may ignore hints, so they are ignored here. Hugetlb pages are neither merged, reclaimed nor resized, and
            // contain no guards that could be removed.
            _ if HINTS.contains(&how) => {
                // A call with zero bytes shows whether the kernel supports the advice.
                self.call_or_fail(&Call::Madvise { address: start, bytes: 0, advice: how }).await?;
                let result = self.advise_ordinary(start, end, how).await?;
                Ok(Some(result))
            }
            _ => Ok(None),
        };
        Ok(served?.map(|result| self.or_enomem_for_hole(start, end, result)))
    }

    /// Advises all memory that the pool does not back, even after an error; returns the first error.
    async fn advise_ordinary(&mut self, start: u64, end: u64, how: u64) -> PartResult<i64> {
        let mut result = 0;
        for (s, e) in self.views.ordinary(start, end) {
            let here = self.call(&Call::Madvise { address: s, bytes: e - s, advice: how }).await;
            result = if result == 0 { here } else { result };
        }
        Ok(result)
    }

    pub(super) async fn drop_content(&mut self, start: u64, end: u64, how: u64) -> Served {
        let Dropped { whole, partial } = self.views.drop_content(start, end, self.size());
        // Where control groups may refuse a fault, the next touch of a page that was given back may fail. So whole pages are
        // kept and zeroed.
        let is_kept = !whole.is_empty() && self.group_limit().await.may_refuse_copies;
        for (s, e) in partial.into_iter().chain(whole.into_iter().filter(|_| is_kept)) {
            // Memory that is not writable cannot be filled with zeros.
            if self.views.seen_in((s, e)).iter().any(|(_, _, protection)| protection & WRITE == 0) {
                self.demote(outline(s, e, self.size())).await?;
            }
        }
        let result = self.advise_ordinary(start, end, how).await?;
        let Dropped { whole, partial } = self.views.drop_content(start, end, self.size());
        for (s, e) in whole {
            let call = Call::Madvise { address: s, bytes: e - s, advice: madv::DONTNEED };
            // Before Linux 5.18 the content of hugetlb pages cannot be dropped.
            if is_kept || is_error(self.call(&call).await) {
                self.carry_out(&[Action::Zero(s, e)]).await?;
            }
        }
        for (s, e) in partial {
            self.carry_out(&[Action::Zero(s, e)]).await?;
        }
        Ok(Some(result))
    }

    async fn advise_pages(&mut self, start: u64, end: u64, how: u64) -> Served {
        let mut result = self.advise_ordinary(start, end, how).await?;
        for (s, e) in self.views.backed_parts(start, end) {
            let (s, e) = outline(s, e, self.size());
            let here = self.call(&Call::Madvise { address: s, bytes: e - s, advice: how }).await;
            result = if result == 0 { here } else { result };
        }
        Ok(Some(result))
    }
}
