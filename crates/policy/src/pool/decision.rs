//! What a policy of pages of a pool does to a call, decided step by step: a step is data, and so is what came of it.
//!
//! How a call is served is written as it is thought, from the first step to the last (the modules beside this one), as a future
//! that waits for nothing but the answer to its last step. No executor is behind it: whoever holds the decision asks for the next
//! step, and is the only one who goes on with it.

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::{Content, RseqArea};
use crate::call::{Call, Vma};
use crate::carry_out::Outcome;
use crate::cause::Cause;

/// The next thing to be done to a program's memory, or to be known of it. What it is answered with stands behind each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes a call in the program's name: [`Told::Result`].
    Call(Call),
    /// Makes the call that the program came for: [`Told::Result`].
    OwnCall,
    /// Makes the call that the program came for, about another range `(address, bytes)`: [`Told::Result`].
    OwnCallOn((u64, u64)),
    /// Adds advice on `(address, bytes)`; a refusal is noted: [`Told::Done`].
    Advise((u64, u64), u64),
    /// Fills what is present of a range, from the first address up to the second, with zeros: [`Told::Could`].
    Zero(u64, u64),
    /// Copies what a range holds: [`Told::Could`].
    Copy {
        /// The first address.
        from: u64,
        /// That of the copy.
        to: u64,
        /// Bytes.
        bytes: u64,
        /// What is copied.
        content: Content,
    },
    /// Has the kernel write no more to the task's rseq(2) area by itself, where that lies in these pages: [`Told::Rseq`].
    GiveUpRseq((u64, u64)),
    /// Has the kernel write there again: [`Told::Done`].
    TakeUpRseq(RseqArea),
    /// Whether the filters that the program has installed for itself let a call through: [`Told::Could`].
    IsAllowed(Call),
    /// The mapping that holds an address: [`Told::Vma`].
    VmaAt(u64),
    /// How many pages of the pool are free and not promised to any mapping: [`Told::Pages`].
    UnreservedPages,
    /// Notes why memory is not as asked, and how many bytes: [`Told::Done`].
    Note(Cause, u64),
    /// Notes a call that was answered in the kernel's place: [`Told::Done`].
    Answered(&'static str),
    /// Nothing is left to be done.
    End(Outcome),
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is done. Also what is told before the first step.
    Done,
    /// The result of a call; error numbers are negative.
    Result(i64),
    /// Whether it could be done.
    Could(bool),
    /// A mapping, if there is one.
    Vma(Option<Vma>),
    /// The area that is given up, if there is one.
    Rseq(Option<RseqArea>),
    /// Pages of the pool.
    Pages(u64),
}

/// What a policy does to one call, as far as it is decided. What it changes in the views of memory it changes with the steps, so
/// one that is dropped before its end leaves them as they stand then.
pub struct Decision<'a> {
    rest: Pin<Box<dyn Future<Output = Outcome> + 'a>>,
    line: Line,
}

impl<'a> Decision<'a> {
    /// The decision that a future makes which asks by this line.
    pub(super) fn by<F: Future<Output = Outcome> + 'a>(serves: impl FnOnce(Line) -> F) -> Decision<'a> {
        let line = Line::default();
        Decision { rest: Box::pin(serves(line.clone())), line }
    }

    /// The next step, when this came of the one before; [`Told::Done`] at the beginning. Nothing may be asked after the end.
    pub fn next(&mut self, told: Told) -> Step {
        self.line.0.borrow_mut().told = Some(told);
        match self.rest.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Step::End(outcome),
            Poll::Pending => self.line.0.borrow_mut().asked.take().expect("what waits has asked"),
        }
    }
}

impl fmt::Debug for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision").field("line", &self.line).finish_non_exhaustive()
    }
}

/// Where a decision asks, and is told.
#[derive(Clone, Debug, Default)]
pub(super) struct Line(Rc<RefCell<Said>>);

#[derive(Debug, Default)]
struct Said {
    asked: Option<Step>,
    told: Option<Told>,
}

impl Line {
    /// Asks for a step, and waits for what comes of it.
    pub async fn ask(&self, step: Step) -> Told {
        *self.0.borrow_mut() = Said { asked: Some(step), told: None };
        std::future::poll_fn(|_| self.0.borrow_mut().told.take().map_or(Poll::Pending, Poll::Ready)).await
    }
}
