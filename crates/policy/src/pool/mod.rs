//! Serves a program's memory calls so that its large anonymous memory comes from a hugetlb pool without the program noticing.
//! Lengths are rounded to pages of the pool, and parts of pages are tracked (`views`). Memory that the pool cannot provide or
//! cannot express is ordinary memory, and the cause is recorded.
//!
//! Each step depends on the result of the step before, so a list of actions cannot be decided in advance. [`decide`] returns a
//! [`Decision`], which yields one [`Step`] at a time, each after it has received the result of the previous one. Steps and
//! results are data. [`carry_out`] carries the steps out on a [`PoolKernel`]: the tracer implements it with a stopped task; the
//! model has addresses and VMAs but no content.
//!
//! Other threads of the program run in the meantime, and their small mappings are not traced. Therefore no range that the program
//! uses is ever unmapped before its replacement is in place: the kernel could give the hole to another thread. New memory is made
//! elsewhere and moved into place (mremap with MREMAP_FIXED).
//!
//! `mapping`, `moving`, `changing` and `parts` each serve some of the calls; `pages` replaces hugetlb pages by base pages, and
//! the reverse, for all of them.

mod changing;
mod decision;
mod mapping;
mod moving;
mod pages;
mod parts;
#[cfg(test)]
mod tests;
mod views;

pub use decision::{Decision, Step, StepResult};
pub use views::{PoolHeap, Views};

use crate::call::{Call, RangeOperation, Vma, map, mremap, prot};
use crate::carry_out::{Kernel, Outcome, is_error};
use crate::cause::Cause;
use crate::mechanism::Mechanism;
use crate::size::PageSize;
use decision::StepChannel;
use views::Protection;

const READ_WRITE: Protection = prot::READ | prot::WRITE;
const PRIVATE_ANONYMOUS: u64 = map::PRIVATE | map::ANONYMOUS;
/// Flags of mremap to an address that the caller chooses.
const MOVE_TO: u64 = mremap::MAY_MOVE | mremap::FIXED;
/// The file descriptor -1, for memory without a file.
const NO_FILE: u64 = u64::MAX;
// include/uapi/asm-generic/errno-base.h, negated.
const EPERM: i64 = -1;
const ENOMEM: i64 = -12;
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
/// Marks a mapping for which control groups leave no room. mmap never returns this error number. Inside the kernel, it is the
/// error of a fault that finds no room (`alloc_hugetlb_folio`, mm/hugetlb.c).
const ENOSPC: i64 = -28;

/// Which pages of a range are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Only base pages that are not all zeros; the others stay holes.
    Filled,
    /// All pages.
    All,
}

/// The area that a task has registered with rseq(2), to which the kernel writes before the task returns to user space. If the
/// kernel cannot write there, it kills the task (`__rseq_handle_notify_resume`, kernel/rseq.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RseqArea {
    /// First address of the area.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// The signature with which the task registered it.
    pub signature: u64,
}

/// What the control groups of a task let it take from the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimit {
    /// Number of pages that the groups leave room for.
    pub room_pages: u64,
    /// Whether the groups may refuse a fault on a page that mmap has reserved, which raises SIGBUS. Other processes of the
    /// groups can take the room at any time, so only a page that is present is safe.
    pub may_refuse_faults: bool,
    /// Whether the groups may refuse a fault on a page that is not reserved: a CoW copy after fork, or a page that was freed
    /// before.
    pub may_refuse_copies: bool,
}

impl GroupLimit {
    /// No limit.
    pub const NONE: GroupLimit =
        GroupLimit { room_pages: u64::MAX, may_refuse_faults: false, may_refuse_copies: false };
}

/// Makes calls on behalf of a program whose memory comes from a hugetlb pool.
pub trait PoolKernel: Kernel {
    /// Makes the program's own call on another range `(address, bytes)`.
    ///
    /// # Errors
    /// As [`Kernel::call`].
    fn own_call_on(&mut self, range: (u64, u64)) -> Result<i64, Self::Error>;

    /// Copies `bytes` bytes from one range to another; returns whether it succeeded.
    fn copy(&mut self, from: u64, to: u64, bytes: u64, content: Content) -> bool;

    /// Stops the kernel from writing to the task's rseq(2) area, if that is in these pages, and returns the area.
    ///
    /// # Errors
    /// As [`Kernel::call`].
    fn suspend_rseq(&mut self, _pages: (u64, u64)) -> Result<Option<RseqArea>, Self::Error> {
        Ok(None)
    }

    /// Lets the kernel write to the rseq(2) area again.
    ///
    /// # Errors
    /// As [`Kernel::call`].
    fn resume_rseq(&mut self, _area: RseqArea) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Number of pages in the pool that are free and not reserved for a mapping.
    fn unreserved_pages(&mut self) -> u64;

    /// What the task's control groups let it take from the pool.
    fn group_limit(&mut self) -> GroupLimit {
        GroupLimit::NONE
    }

    /// Records why memory is not as asked, and how many bytes.
    fn note(&mut self, cause: Cause, bytes: u64);
}

/// Decides what a hugetlb policy does to a call.
pub fn decide<'a>(mechanism: &'a Mechanism, views: &'a mut Views, call: &Call) -> Decision<'a> {
    let call = *call;
    Decision::new(move |channel| async move {
        match (CallServer { mechanism, views, channel }).serve(&call).await {
            Ok(Some(result)) | Err(EarlyReturn(result)) => Outcome::Returned(result),
            Ok(None) => Outcome::Pass,
        }
    })
}

/// Decides what to do with the memory of a child that fork has just made. The child gets ordinary memory at once if control
/// groups may refuse CoW copies, or if the pool may have too few pages for them in addition to the `promised` pages of other
/// processes.
pub fn decide_copy<'a>(mechanism: &'a Mechanism, views: &'a mut Views, promised: u64) -> Decision<'a> {
    Decision::new(move |channel| async move {
        (CallServer { mechanism, views, channel }).serve_fork(promised).await;
        Outcome::Pass
    })
}

/// Carries out a decision step by step.
///
/// # Errors
/// As [`Kernel::call`]: the program cannot continue.
pub fn carry_out<K: PoolKernel>(mut decision: Decision, kernel: &mut K) -> Result<Outcome, K::Error> {
    let mut result = StepResult::Done;
    loop {
        result = match decision.next(result) {
            Step::Call(call) => StepResult::Result(kernel.call(&call)?),
            Step::OriginalCall => StepResult::Result(kernel.original_call()?),
            Step::OwnCallOn(range) => StepResult::Result(kernel.own_call_on(range)?),
            Step::Advise(range, advice) => {
                kernel.advise(range, advice)?;
                StepResult::Done
            }
            Step::Zero(start, end) => StepResult::Could(kernel.zero(start, end)),
            Step::Copy { from, to, bytes, content } => StepResult::Could(kernel.copy(from, to, bytes, content)),
            Step::SuspendRseq(pages) => StepResult::Rseq(kernel.suspend_rseq(pages)?),
            Step::ResumeRseq(area) => {
                kernel.resume_rseq(area)?;
                StepResult::Done
            }
            Step::IsAllowed(call) => StepResult::Could(kernel.allows(&call)),
            Step::VmaAt(address) => StepResult::Vma(kernel.vma_at(address)),
            Step::UnreservedPages => StepResult::Pages(kernel.unreserved_pages()),
            Step::GroupLimit => StepResult::Limit(kernel.group_limit()),
            Step::Note(cause, bytes) => {
                kernel.note(cause, bytes);
                StepResult::Done
            }
            Step::Answered(action) => {
                kernel.record_answer(action);
                StepResult::Done
            }
            Step::End(outcome) => return Ok(outcome),
        };
    }
}

/// One call, with everything needed to serve it.
struct CallServer<'a> {
    mechanism: &'a Mechanism,
    views: &'a mut Views,
    channel: StepChannel,
}

/// The program's call fails with this negated error number; serving it ends early.
struct EarlyReturn(i64);

/// The result of the program's call; `None` where the call is to be made unchanged.
type Served = Result<Option<i64>, EarlyReturn>;
/// The result of a step towards serving a call.
type PartResult<T> = Result<T, EarlyReturn>;

impl CallServer<'_> {
    async fn serve(&mut self, call: &Call) -> Served {
        match *call {
            Call::Mmap { .. } => self.mmap_populated(call).await,
            Call::Munmap { address, bytes } => self.munmap(address, bytes).await,
            Call::Mprotect { address, bytes, protection } => self.mprotect(address, bytes, protection).await,
            Call::Mremap { .. } => self.mremap(call).await,
            Call::Madvise { address, bytes, advice } => self.madvise(address, bytes, advice).await,
            Call::Brk { end } => self.brk(end).await,
            Call::OnRange { address, bytes, operation } => self.on_range(address, bytes, operation).await,
            Call::ProcessMadvise { .. } | Call::Prctl { .. } => Ok(None),
        }
    }

    async fn serve_fork(&mut self, promised: u64) {
        let size = self.size();
        let all = self.views.all_backed();
        let needed: u64 = all.iter().map(|(start, end)| (end - start) / size.bytes()).sum();
        let is_limited = needed > 0 && self.group_limit().await.may_refuse_copies;
        if needed == 0 || !is_limited && needed + promised <= self.unreserved_pages().await {
            self.views.promised_pages = needed;
            return;
        }
        for pages in all {
            // If pages cannot be replaced, `demote` records it.
            let _ = self.demote(pages).await;
        }
        let cause = if is_limited { Cause::PoolLimited { size } } else { Cause::PoolExhausted { size } };
        self.note(cause, needed * size.bytes()).await;
    }

    /// Makes a call on behalf of the program, unless the program's own filters would refuse it. Returns the raw result.
    async fn call(&mut self, call: &Call) -> i64 {
        if !self.could(Step::IsAllowed(*call)).await {
            self.note(Cause::FilteredByProgram, 0).await;
            return EPERM;
        }
        self.result(Step::Call(*call)).await
    }

    /// Like [`CallServer::call`]; if the kernel refuses the call, the program's own call fails with the same error.
    async fn call_or_fail(&mut self, call: &Call) -> PartResult<u64> {
        or_fail(self.call(call).await)
    }

    /// Unmaps a whole range that is no longer needed.
    async fn discard(&mut self, address: u64, bytes: u64) {
        self.call(&Call::Munmap { address, bytes }).await;
    }

    /// The raw result of a step that is a call.
    async fn result(&mut self, step: Step) -> i64 {
        match self.channel.ask(step).await {
            StepResult::Result(result) => result,
            other => unreachable!("the result of a call is {other:?}"),
        }
    }

    /// Whether a step succeeded.
    async fn could(&mut self, step: Step) -> bool {
        match self.channel.ask(step).await {
            StepResult::Could(could) => could,
            other => unreachable!("whether a step succeeded is {other:?}"),
        }
    }

    async fn original_call(&mut self) -> i64 {
        self.result(Step::OriginalCall).await
    }

    async fn advise(&mut self, range: (u64, u64), advice: u64) {
        self.channel.ask(Step::Advise(range, advice)).await;
    }

    async fn copy(&mut self, from: u64, to: u64, bytes: u64, content: Content) -> bool {
        self.could(Step::Copy { from, to, bytes, content }).await
    }

    async fn vma_at(&mut self, address: u64) -> Option<Vma> {
        match self.channel.ask(Step::VmaAt(address)).await {
            StepResult::Vma(vma) => vma,
            other => unreachable!("a mapping is {other:?}"),
        }
    }

    async fn suspend_rseq(&mut self, pages: (u64, u64)) -> Option<RseqArea> {
        match self.channel.ask(Step::SuspendRseq(pages)).await {
            StepResult::Rseq(area) => area,
            other => unreachable!("an area is {other:?}"),
        }
    }

    async fn unreserved_pages(&mut self) -> u64 {
        match self.channel.ask(Step::UnreservedPages).await {
            StepResult::Pages(pages) => pages,
            other => unreachable!("free pages are {other:?}"),
        }
    }

    async fn group_limit(&mut self) -> GroupLimit {
        match self.channel.ask(Step::GroupLimit).await {
            StepResult::Limit(limit) => limit,
            other => unreachable!("a limit is {other:?}"),
        }
    }

    async fn note(&mut self, cause: Cause, bytes: u64) {
        self.channel.ask(Step::Note(cause, bytes)).await;
    }

    async fn record_answer(&mut self, action: &'static str) {
        self.channel.ask(Step::Answered(action)).await;
    }

    fn size(&self) -> PageSize {
        self.mechanism.large
    }

    fn base_up(&self, address: u64) -> Option<u64> {
        self.mechanism.base.align_up(address)
    }

    fn is_base_aligned(&self, address: u64) -> bool {
        self.mechanism.base.align_down(address) == address
    }

    /// Replaces a success by the error that the kernel returns where part of the range is not mapped.
    fn or_enomem_for_hole(&self, start: u64, end: u64, result: i64) -> i64 {
        if result == 0 && self.views.has_hole(start, end) { ENOMEM } else { result }
    }

    /// The end of a range as the kernel rounds it; `None` for arguments that the kernel refuses.
    fn end_of(&self, start: u64, bytes: u64) -> Option<u64> {
        let end = start.checked_add(self.base_up(bytes)?)?;
        (self.is_base_aligned(start) && start < end).then_some(end)
    }

    async fn on_range(&mut self, start: u64, bytes: u64, operation: RangeOperation) -> Served {
        match operation {
            RangeOperation::Lock => self.lock(start, bytes).await,
            RangeOperation::Unlock => self.unlock(start, bytes).await,
            RangeOperation::Query => self.query(start, bytes).await,
            RangeOperation::Name => self.set_name(start, bytes).await,
            RangeOperation::Bind => self.bind(start, bytes).await,
            RangeOperation::NeedBasePages => self.on_base_pages(start, bytes).await,
        }
    }
}

/// The result of a call that must succeed.
fn or_fail(result: i64) -> PartResult<u64> {
    if is_error(result) { Err(EarlyReturn(result)) } else { Ok(result as u64) }
}
