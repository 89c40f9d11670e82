//! Serving a program's memory calls so that its large anonymous memory comes from a hugetlb pool and the program does not
//! notice: lengths are made to fit, parts of pages are kept by bookkeeping (`views`), and what the pool cannot give, or cannot
//! express, is ordinary memory, with the cause noted.
//!
//! What is done next depends on what came of the step before, so no list of actions can be decided ahead: [`decide`] gives a
//! [`Decision`], which says one [`Step`] after the other, each when it is told what came of the last. Both are data.
//! [`carry_out`] does them by a [`PoolKernel`]: the tracer's is a stopped task, the model's has addresses and VMAs, and no content.
//!
//! Other threads of the program run meanwhile, and their small mappings are not watched. So no range that
//! the program holds is ever unmapped before something else stands in its place: the kernel could give the
//! hole to another thread. New memory is made elsewhere and moved into place (mremap with MREMAP_FIXED).
//!
//! `mapping`, `moving`, `changing` and `parts` each serve some of the calls; `pages` puts pool pages and base pages in
//! each other's place for all of them.

mod changing;
mod decision;
mod mapping;
mod moving;
mod pages;
mod parts;
mod views;

pub use decision::{Decision, Step, Told};
pub use views::{PoolHeap, Views};

use crate::call::{Call, Deed, Vma, map, mremap, prot};
use crate::carry_out::{Kernel, Outcome, is_error};
use crate::cause::Cause;
use crate::mechanism::Mechanism;
use crate::size::PageSize;
use decision::Line;
use views::Protection;

const READ_WRITE: Protection = prot::READ | prot::WRITE;
const PRIVATE_ANONYMOUS: u64 = map::PRIVATE | map::ANONYMOUS;
/// mremap to a place of the caller's choice.
const MOVE_TO: u64 = mremap::MAY_MOVE | mremap::FIXED;
/// No file.
const NO_FILE: u64 = u64::MAX;
// include/uapi/asm-generic/errno-base.h, negated.
const EPERM: i64 = -1;
const ENOMEM: i64 = -12;
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;

/// What is copied of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Base pages that hold something else than zeros; the others stay holes.
    Filled,
    /// All of it.
    All,
}

/// Where the kernel writes before a task runs on, as the task has registered it by rseq(2). Where it cannot write it kills the
/// task (`__rseq_handle_notify_resume`, kernel/rseq.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RseqArea {
    /// Its first byte.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
    /// What the task proves itself with.
    pub signature: u64,
}

/// Who makes calls in a program's name where its memory comes from a pool.
pub trait PoolKernel: Kernel {
    /// Makes the call that the program came for, about another range: `(address, bytes)`.
    ///
    /// # Errors
    /// As [`Kernel::call`].
    fn own_call_on(&mut self, range: (u64, u64)) -> Result<i64, Self::Error>;

    /// Copies what a range of so many bytes holds to another one; says whether it could.
    fn copy(&mut self, from: u64, to: u64, bytes: u64, content: Content) -> bool;

    /// Has the kernel write no more to the task's rseq(2) area by itself, where that lies in these pages; returns it then.
    ///
    /// # Errors
    /// As [`Kernel::call`].
    fn give_up_rseq(&mut self, _pages: (u64, u64)) -> Result<Option<RseqArea>, Self::Error> {
        Ok(None)
    }

    /// Has the kernel write there again.
    ///
    /// # Errors
    /// As [`Kernel::call`].
    fn take_up_rseq(&mut self, _area: RseqArea) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Pages of the pool that are free and not promised to any mapping.
    fn unreserved_pages(&mut self) -> u64;

    /// Notes why memory is not as asked, and how much.
    fn note(&mut self, cause: Cause, bytes: u64);
}

/// What a policy of pages of a pool does to a call.
pub fn decide<'a>(mechanism: &'a Mechanism, views: &'a mut Views, call: &Call) -> Decision<'a> {
    let call = *call;
    Decision::by(move |line| async move {
        match (Serving { mechanism, views, line }).serve(&call).await {
            Ok(Some(result)) | Err(Halt(result)) => Outcome::Returned(result),
            Ok(None) => Outcome::Pass,
        }
    })
}

/// What is done to a process that fork has just made: where the pool may not suffice for the copies that writing
/// will make, beside `promised` pages for other processes, it gets ordinary memory now.
pub fn decide_copy<'a>(mechanism: &'a Mechanism, views: &'a mut Views, promised: u64) -> Decision<'a> {
    Decision::by(move |line| async move {
        (Serving { mechanism, views, line }).copy_made(promised).await;
        Outcome::Pass
    })
}

/// Carries out what is decided, step by step.
///
/// # Errors
/// Those of the kernel: the program cannot go on.
pub fn carry_out<K: PoolKernel>(mut decision: Decision, kernel: &mut K) -> Result<Outcome, K::Error> {
    let mut told = Told::Done;
    loop {
        told = match decision.next(told) {
            Step::Call(call) => Told::Result(kernel.call(&call)?),
            Step::OwnCall => Told::Result(kernel.own_call()?),
            Step::OwnCallOn(range) => Told::Result(kernel.own_call_on(range)?),
            Step::Advise(range, advice) => {
                kernel.advise(range, advice)?;
                Told::Done
            }
            Step::Zero(start, end) => Told::Could(kernel.zero(start, end)),
            Step::Copy { from, to, bytes, content } => Told::Could(kernel.copy(from, to, bytes, content)),
            Step::GiveUpRseq(pages) => Told::Rseq(kernel.give_up_rseq(pages)?),
            Step::TakeUpRseq(area) => {
                kernel.take_up_rseq(area)?;
                Told::Done
            }
            Step::IsAllowed(call) => Told::Could(kernel.allows(&call)),
            Step::VmaAt(address) => Told::Vma(kernel.vma_at(address)),
            Step::UnreservedPages => Told::Pages(kernel.unreserved_pages()),
            Step::Note(cause, bytes) => {
                kernel.note(cause, bytes);
                Told::Done
            }
            Step::Answered(said) => {
                kernel.answered(said);
                Told::Done
            }
            Step::End(outcome) => return Ok(outcome),
        };
    }
}

/// One call, with all that serving it needs.
struct Serving<'a> {
    mechanism: &'a Mechanism,
    views: &'a mut Views,
    line: Line,
}

/// The program's call fails with this: serving it comes to an early end.
struct Halt(i64);

/// The result of the program's call; `None` where it is to be made as it is.
type Served = Result<Option<i64>, Halt>;
/// What comes of a part of serving it.
type Part<T> = Result<T, Halt>;

impl Serving<'_> {
    async fn serve(&mut self, call: &Call) -> Served {
        match *call {
            Call::Mmap { .. } => self.mmap_populated(call).await,
            Call::Munmap { address, bytes } => self.munmap(address, bytes).await,
            Call::Mprotect { address, bytes, protection } => self.mprotect(address, bytes, protection).await,
            Call::Mremap { .. } => self.mremap(call).await,
            Call::Madvise { address, bytes, advice } => self.madvise(address, bytes, advice).await,
            Call::Brk { end } => self.brk(end).await,
            Call::OnRange { address, bytes, deed } => self.on_range(address, bytes, deed).await,
            Call::ProcessMadvise { .. } | Call::Prctl { .. } => Ok(None),
        }
    }

    async fn copy_made(&mut self, promised: u64) {
        let size = self.size();
        let all = self.views.all_backed();
        let needed: u64 = all.iter().map(|(start, end)| (end - start) / size.bytes()).sum();
        if needed == 0 || needed + promised <= self.unreserved_pages().await {
            self.views.promised_pages = needed;
            return;
        }
        for pages in all {
            // What cannot be given back is noted.
            let _ = self.demote(pages).await;
        }
        self.note(Cause::PoolExhausted { size }, needed * size.bytes()).await;
    }

    /// Makes a call in the program's name, unless its own filters would refuse it. The raw result.
    async fn call(&mut self, call: &Call) -> i64 {
        if !self.could(Step::IsAllowed(*call)).await {
            self.note(Cause::FilteredByProgram, 0).await;
            return EPERM;
        }
        self.result(Step::Call(*call)).await
    }

    /// Like [`Serving::call`]; where the kernel refuses it the program's own call fails the same way.
    async fn must(&mut self, call: &Call) -> Part<u64> {
        must(self.call(call).await)
    }

    /// munmap of whole ranges that nobody needs any more.
    async fn discard(&mut self, address: u64, bytes: u64) {
        self.call(&Call::Munmap { address, bytes }).await;
    }

    /// The raw result of a step that is a call.
    async fn result(&mut self, step: Step) -> i64 {
        match self.line.ask(step).await {
            Told::Result(result) => result,
            other => unreachable!("the result of a call is {other:?}"),
        }
    }

    /// Whether a step could be done.
    async fn could(&mut self, step: Step) -> bool {
        match self.line.ask(step).await {
            Told::Could(could) => could,
            other => unreachable!("whether a step could be done is {other:?}"),
        }
    }

    async fn own_call(&mut self) -> i64 {
        self.result(Step::OwnCall).await
    }

    async fn advise(&mut self, range: (u64, u64), advice: u64) {
        self.line.ask(Step::Advise(range, advice)).await;
    }

    async fn copy(&mut self, from: u64, to: u64, bytes: u64, content: Content) -> bool {
        self.could(Step::Copy { from, to, bytes, content }).await
    }

    async fn vma_at(&mut self, address: u64) -> Option<Vma> {
        match self.line.ask(Step::VmaAt(address)).await {
            Told::Vma(vma) => vma,
            other => unreachable!("a mapping is {other:?}"),
        }
    }

    async fn give_up_rseq(&mut self, pages: (u64, u64)) -> Option<RseqArea> {
        match self.line.ask(Step::GiveUpRseq(pages)).await {
            Told::Rseq(area) => area,
            other => unreachable!("an area is {other:?}"),
        }
    }

    async fn unreserved_pages(&mut self) -> u64 {
        match self.line.ask(Step::UnreservedPages).await {
            Told::Pages(pages) => pages,
            other => unreachable!("free pages are {other:?}"),
        }
    }

    async fn note(&mut self, cause: Cause, bytes: u64) {
        self.line.ask(Step::Note(cause, bytes)).await;
    }

    async fn answered(&mut self, said: &'static str) {
        self.line.ask(Step::Answered(said)).await;
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

    /// What the kernel answers where memory is missing, in place of a success.
    fn unless_hole(&self, start: u64, end: u64, result: i64) -> i64 {
        if result == 0 && self.views.has_hole(start, end) { ENOMEM } else { result }
    }

    /// The end of a range as the kernel rounds it; `None` for what it refuses.
    fn end_of(&self, start: u64, bytes: u64) -> Option<u64> {
        let end = start.checked_add(self.base_up(bytes)?)?;
        (self.is_base_aligned(start) && start < end).then_some(end)
    }

    async fn on_range(&mut self, start: u64, bytes: u64, deed: Deed) -> Served {
        match deed {
            Deed::Lock => self.lock(start, bytes).await,
            Deed::Unlock => self.unlock(start, bytes).await,
            Deed::Ask => self.ask(start, bytes).await,
            Deed::Name => self.name(start, bytes).await,
            Deed::Bind => self.on_whole_pages(start, bytes).await,
            Deed::NeedBasePages => self.on_base_pages(start, bytes).await,
        }
    }
}

/// The result of a call that must succeed.
fn must(result: i64) -> Part<u64> {
    if is_error(result) { Err(Halt(result)) } else { Ok(result as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PageSizes;

    /// What a decision says, step by step, when it is told this.
    fn said(views: &mut Views, call: Call, told: &[Told]) -> Vec<Step> {
        let size = PageSize::M2;
        let page_sizes = PageSizes { base: PageSize::K4, pmd: Some(size), mthp: vec![], hugetlb: vec![size] };
        let mechanism = Mechanism::of(&"hugetlb-2m".parse().unwrap(), &page_sizes);
        let mut decision = decide(&mechanism, views, &call);
        std::iter::once(&Told::Done).chain(told).map(|told| decision.next(*told)).collect()
    }

    #[test]
    fn what_is_decided_next_follows_from_what_came_of_the_step_before() {
        let flags = PRIVATE_ANONYMOUS;
        let call = Call::Mmap { address: 0, bytes: 3 << 20, protection: READ_WRITE, flags, file: NO_FILE, offset: 0 };
        let flags = flags | map::HUGETLB | 21 << map::HUGE_SHIFT;
        let of_pool =
            Call::Mmap { address: 0, bytes: 4 << 20, protection: READ_WRITE, flags, file: NO_FILE, offset: 0 };
        let asked = [Step::IsAllowed(of_pool), Step::Call(of_pool)];
        let (yes, mut views) = (Told::Could(true), Views::default());
        // The pool has pages.
        let end = Step::End(Outcome::Returned(1 << 30));
        let steps = said(&mut views, call, &[yes, Told::Result(1 << 30)]);
        assert_eq!(steps, [&asked[..], &[end]].concat());
        assert_eq!(views.all_backed(), [(1 << 30, (1 << 30) + (4 << 20))]);
        // It has none: the program's own call, and why.
        let (ordinary, exhausted) = (Told::Result(1 << 31), Cause::PoolExhausted { size: PageSize::M2 });
        let rest = [Step::OwnCall, Step::Note(exhausted, 3 << 20), Step::End(Outcome::Returned(1 << 31))];
        let steps = said(&mut Views::default(), call, &[yes, Told::Result(ENOMEM), ordinary, Told::Done]);
        assert_eq!(steps, [&asked[..], &rest].concat());
        // The program's filters would refuse it.
        let steps = said(&mut Views::default(), call, &[Told::Could(false)]);
        assert_eq!(steps, [asked[0].clone(), Step::Note(Cause::FilteredByProgram, 0)]);
    }

    #[test]
    fn what_concerns_no_page_of_the_pool_is_passed_without_a_step() {
        let call = Call::Munmap { address: 1 << 30, bytes: 4096 };
        assert_eq!(said(&mut Views::default(), call, &[]), [Step::End(Outcome::Pass)]);
    }
}
