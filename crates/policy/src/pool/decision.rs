//! [`Decision`]: decides step by step what a hugetlb policy does to a call. A step and its result are data.
//!
//! The modules next to this one handle each call in an async function, which waits only for the results of its steps. There is no
//! executor: the caller that holds the decision polls the future for the next step.

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::{Content, GroupLimit, RseqArea};
use crate::call::{Call, Vma};
use crate::carry_out::Outcome;
use crate::cause::Cause;

/// An action on a program's memory, or a query about it. Each variant links to the result that it receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make a call on behalf of the program: [`StepResult::Result`].
    Call(Call),
    /// Make the program's own call: [`StepResult::Result`].
    OriginalCall,
    /// Make the program's own call on another range `(address, bytes)`: [`StepResult::Result`].
    OwnCallOn((u64, u64)),
    /// Apply advice to `(address, bytes)` and record a refusal: [`StepResult::Done`].
    Advise((u64, u64), u64),
    /// Fill the present pages from the first address up to the second with zeros: [`StepResult::Could`].
    Zero(u64, u64),
    /// Copy the content of a range: [`StepResult::Could`].
    Copy {
        /// First address of the source.
        from: u64,
        /// First address of the copy.
        to: u64,
        /// Length in bytes.
        bytes: u64,
        /// Which pages to copy.
        content: Content,
    },
    /// Stop the kernel from writing to the task's rseq(2) area, if that is in these pages: [`StepResult::Rseq`].
    SuspendRseq((u64, u64)),
    /// Let the kernel write to the rseq(2) area again: [`StepResult::Done`].
    ResumeRseq(RseqArea),
    /// Query whether the seccomp filters that the program has installed itself allow a call: [`StepResult::Could`].
    IsAllowed(Call),
    /// Query the mapping that contains an address: [`StepResult::Vma`].
    VmaAt(u64),
    /// Query how many pages of the pool are free and not reserved for a mapping: [`StepResult::Pages`].
    UnreservedPages,
    /// Query what the task's control groups let it take from the pool: [`StepResult::Limit`].
    GroupLimit,
    /// Record why memory is not as asked, and how many bytes: [`StepResult::Done`].
    Note(Cause, u64),
    /// Record a call that was answered in place of the kernel: [`StepResult::Done`].
    Answered(&'static str),
    /// The call is completely handled.
    End(Outcome),
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepResult {
    /// The step is done. Also the value to pass before the first step.
    Done,
    /// The result of a call; negative values are negated error numbers.
    Result(i64),
    /// Whether the step succeeded.
    Could(bool),
    /// A mapping, if there is one at the address.
    Vma(Option<Vma>),
    /// The area that the kernel no longer writes to, if there is one.
    Rseq(Option<RseqArea>),
    /// Number of pages in the pool.
    Pages(u64),
    /// What control groups let the task take.
    Limit(GroupLimit),
}

/// The decision on one call, as far as it has been made. It changes the views of memory together with its steps, so a decision
/// that is dropped early leaves them in the state after the last step.
pub struct Decision<'a> {
    rest: Pin<Box<dyn Future<Output = Outcome> + 'a>>,
    channel: StepChannel,
}

impl<'a> Decision<'a> {
    /// A decision made by a future, which requests its steps through the channel.
    pub(super) fn new<F: Future<Output = Outcome> + 'a>(serve: impl FnOnce(StepChannel) -> F) -> Decision<'a> {
        let channel = StepChannel::default();
        Decision { rest: Box::pin(serve(channel.clone())), channel }
    }

    /// The next step, given the result of the previous one; [`StepResult::Done`] at the beginning. Must not be called after the end.
    pub fn next(&mut self, result: StepResult) -> Step {
        self.channel.0.borrow_mut().result = Some(result);
        match self.rest.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Step::End(outcome),
            Poll::Pending => self.channel.0.borrow_mut().asked.take().expect("a pending future has requested a step"),
        }
    }
}

impl fmt::Debug for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision").field("channel", &self.channel).finish_non_exhaustive()
    }
}

/// How a decision requests steps and receives their results.
#[derive(Clone, Debug, Default)]
pub(super) struct StepChannel(Rc<RefCell<Exchange>>);

#[derive(Debug, Default)]
struct Exchange {
    asked: Option<Step>,
    result: Option<StepResult>,
}

impl StepChannel {
    /// Requests a step and waits for its result.
    pub async fn ask(&self, step: Step) -> StepResult {
        *self.0.borrow_mut() = Exchange { asked: Some(step), result: None };
        std::future::poll_fn(|_| self.0.borrow_mut().result.take().map_or(Poll::Pending, Poll::Ready)).await
    }
}
