//! Replaces base pages by hugetlb pages and the reverse, with their content, and carries out the actions that the views return.

use super::mapping::{moved, ordinary};
use super::views::{Action, Protection, outline};
use super::{
    CallServer, Content, ENOMEM, ENOSPC, EPERM, EarlyReturn, NO_FILE, PRIVATE_ANONYMOUS, PartResult, READ_WRITE, Step,
};
use crate::call::{Call, RangeOperation, madv, map, prot};
use crate::carry_out::is_error;
use crate::cause::Cause;

impl CallServer<'_> {
    /// Replaces ordinary memory that holds nothing yet by hugetlb pages: all of it if possible, otherwise as much as the pool has
    /// pages for.
    pub(super) async fn convert(&mut self, pages: (u64, u64), protection: Protection) -> PartResult<()> {
        if pages.0 >= pages.1 {
            return Ok(());
        }
        let mut refusal = self.place(pages, protection).await;
        if !is_error(refusal) {
            return Ok(());
        }
        let mut start = pages.0;
        while pages.1 - pages.0 > self.size().bytes() && start < pages.1 {
            let page = (start, start + self.size().bytes());
            let placed = self.place(page, protection).await;
            if is_error(placed) {
                refusal = placed;
                break;
            }
            start = page.1;
        }
        let size = self.size();
        let cause = if refusal == ENOSPC { Cause::PoolLimited { size } } else { Cause::PoolExhausted { size } };
        self.note(cause, pages.1 - start).await;
        self.views.mark_touched(start, pages.1);
        Ok(())
    }

    /// Replaces other memory by fresh hugetlb pages. Returns the raw result: an error if the pool has too few pages.
    async fn place(&mut self, pages: (u64, u64), protection: Protection) -> i64 {
        let bytes = pages.1 - pages.0;
        let made = self.map_pages(0, bytes, protection, PRIVATE_ANONYMOUS).await;
        if is_error(made) {
            return made;
        }
        let result = self.call(&moved((made as u64, bytes), pages.0)).await;
        if is_error(result) {
            self.discard(made as u64, bytes).await;
            return result;
        }
        self.views.back(pages, pages, protection);
        result
    }

    pub(super) async fn demote_range(&mut self, start: u64, end: u64) -> PartResult<()> {
        for (s, e) in self.views.backed_parts(start, end) {
            self.demote(outline(s, e, self.size())).await?;
        }
        Ok(())
    }

    /// Replaces whole pages by base pages, with their content. If another thread writes to the pages in the meantime, it
    /// faults; the tracer handles the fault afterwards and lets the thread retry. Only a write by the kernel in the meantime,
    /// in a system call of another thread, fails with EFAULT.
    ///
    /// Base pages that held only zeros are absent afterwards: a program that handles faults there (userfaultfd) gets them again,
    /// as if it had never written there.
    pub(super) async fn demote(&mut self, pages: (u64, u64)) -> PartResult<()> {
        let (seen, locked) = (self.views.seen_in(pages), self.views.locked_parts(pages.0, pages.1));
        // The rseq area cannot be written while the pages are frozen.
        let rseq = self.suspend_rseq(pages).await;
        let replaced = self.replace_by_base_pages(pages, &seen).await;
        if let Some(area) = rseq {
            self.channel.ask(Step::ResumeRseq(area)).await;
        }
        if replaced.is_err() {
            self.note(Cause::NotGivenBack, pages.1 - pages.0).await;
            return replaced;
        }
        self.views.demote(pages);
        self.note(Cause::Demoted, pages.1 - pages.0).await;
        self.shape(pages, &seen).await?;
        for (s, e) in locked {
            // Memory beyond RLIMIT_MEMLOCK stays unlocked; the limit does not count hugetlb pages.
            self.call(&Call::OnRange { address: s, bytes: e - s, operation: RangeOperation::Lock }).await;
        }
        Ok(())
    }

    async fn replace_by_base_pages(&mut self, pages: (u64, u64), seen: &[(u64, u64, Protection)]) -> PartResult<()> {
        let (start, bytes) = (pages.0, pages.1 - pages.0);
        let copy = self.call_or_fail(&ordinary(0, bytes, READ_WRITE, 0)).await?;
        self.views.record_move(pages);
        let frozen = self.call(&Call::Mprotect { address: start, bytes, protection: prot::READ }).await;
        let mut is_copied = !is_error(frozen);
        for (s, e, _) in seen {
            is_copied = is_copied && self.copy(*s, copy + (s - start), e - s, Content::Filled).await;
        }
        if !is_copied || is_error(self.call(&moved((copy, bytes), start)).await) {
            let unions = self.views.unions(pages.0, pages.1, self.size());
            self.carry_out(&unions).await?;
            self.discard(copy, bytes).await;
            return Err(EarlyReturn(ENOMEM));
        }
        Ok(())
    }

    /// Gives the ordinary memory that replaces pages the mappings and protections that the program sees.
    async fn shape(&mut self, pages: (u64, u64), seen: &[(u64, u64, Protection)]) -> PartResult<()> {
        let mut actions = Vec::new();
        let mut at = pages.0;
        for (s, e, protection) in seen {
            actions.extend((at < *s).then_some(Action::Unmap(at, *s)));
            actions.extend((*protection != READ_WRITE).then_some(Action::Protect(*s, *e, *protection)));
            at = *e;
        }
        actions.extend((at < pages.1).then_some(Action::Unmap(at, pages.1)));
        self.carry_out(&actions).await
    }

    /// mmap of whole hugetlb pages for `bytes`. Returns the raw result. Where control groups may refuse a fault, the pages are
    /// faulted in at once, so that a refusal is an error here and not a SIGBUS later.
    pub(super) async fn map_pages(&mut self, address: u64, bytes: u64, protection: Protection, flags: u64) -> i64 {
        let Some(bytes) = self.size().align_up(bytes) else { return ENOMEM };
        let limit = self.group_limit().await;
        if bytes / self.size().bytes() > limit.room_pages {
            return ENOSPC;
        }
        let size = u64::from(self.size().bytes().trailing_zeros()) << map::HUGE_SHIFT;
        let flags = flags | map::HUGETLB | size;
        let first = if limit.may_refuse_faults { READ_WRITE } else { protection };
        let start = self.call(&Call::Mmap { address, bytes, protection: first, flags, file: NO_FILE, offset: 0 }).await;
        if is_error(start) || !limit.may_refuse_faults {
            return start;
        }
        let result = self.fill((start as u64, bytes), protection).await;
        if is_error(result) {
            self.discard(start as u64, bytes).await;
            return result;
        }
        start
    }

    /// Faults in the pages of a fresh mapping `(address, bytes)` that may be read and written, then sets its protection.
    async fn fill(&mut self, (address, bytes): (u64, u64), protection: Protection) -> i64 {
        let taken = self.call(&Call::Madvise { address, bytes, advice: madv::POPULATE_WRITE }).await;
        match (taken, protection) {
            (EPERM, _) => EPERM,
            (taken, _) if is_error(taken) => ENOSPC,
            (taken, READ_WRITE) => taken,
            _ => self.call(&Call::Mprotect { address, bytes, protection }).await,
        }
    }

    /// Faults in a mapping for which the program itself requested pages of the pool, where control groups may refuse a fault. A
    /// refusal is an error of the program's mmap: without the policy the pool might be empty, and the program would get that
    /// error too.
    pub(super) async fn fill_requested(&mut self, (address, bytes): (u64, u64)) -> i64 {
        let filled = self.call(&Call::Madvise { address, bytes, advice: madv::POPULATE_WRITE }).await;
        if !is_error(filled) {
            return address as i64;
        }
        self.discard(address, bytes).await;
        if filled != EPERM {
            self.note(Cause::PoolLimited { size: self.size() }, bytes).await;
        }
        ENOMEM
    }

    pub(super) async fn note_refusal(&mut self, error: i64, bytes: u64) {
        let size = self.size();
        let cause = match error {
            ENOMEM => Cause::PoolExhausted { size },
            ENOSPC => Cause::PoolLimited { size },
            _ => Cause::NoAlignedSlot,
        };
        self.note(cause, bytes).await;
    }

    /// Carries out the actions that the views return. The first failure (splitting a mapping fails at `vm.max_map_count`) becomes
    /// the result of the program's call.
    pub(super) async fn carry_out(&mut self, actions: &[Action]) -> PartResult<()> {
        for action in actions {
            match *action {
                Action::Unmap(s, e) => {
                    self.call_or_fail(&Call::Munmap { address: s, bytes: e - s }).await?;
                }
                Action::Protect(s, e, protection) => {
                    self.call_or_fail(&Call::Mprotect { address: s, bytes: e - s, protection }).await?;
                }
                Action::Zero(s, e) if self.could(Step::Zero(s, e)).await => {}
                Action::Zero(..) => return Err(EarlyReturn(ENOMEM)),
            }
        }
        Ok(())
    }
}
