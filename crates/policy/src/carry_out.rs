//! Carries out decided actions on a [`Kernel`]: the tracer implements it with a stopped task, the model with its own VMAs.

use crate::call::{Call, Vma};
use crate::decide::{Actions, Space, Then, View};
use crate::heap::Step;
use crate::size::PageSize;

/// Makes calls on behalf of the program. Negative results are negated error numbers.
pub trait Kernel: View {
    /// The error after which the program cannot continue.
    type Error;

    /// Makes a call and returns its raw result.
    ///
    /// # Errors
    /// When the program cannot continue. A call that the kernel refuses is not an error.
    fn call(&mut self, call: &Call) -> Result<i64, Self::Error>;

    /// Makes the program's own call, at whose entry it was stopped.
    ///
    /// # Errors
    /// As [`Kernel::call`].
    fn original_call(&mut self) -> Result<i64, Self::Error>;

    /// Applies advice to `(address, bytes)` and records a refusal.
    ///
    /// # Errors
    /// As [`Kernel::call`].
    fn advise(&mut self, range: (u64, u64), advice: u64) -> Result<(), Self::Error>;

    /// Checks whether all of `(address, bytes)` is mapped: 0 if it is, otherwise the kernel's error.
    ///
    /// # Errors
    /// As [`Kernel::call`].
    fn look(&mut self, range: (u64, u64)) -> Result<i64, Self::Error>;

    /// Fills the present pages of `[start, end)` with zeros; returns whether it succeeded.
    fn zero(&mut self, start: u64, end: u64) -> bool;

    /// Whether the seccomp filters that the program has installed itself allow a call.
    fn allows(&mut self, call: &Call) -> bool;

    /// Records a call that was answered in place of the kernel.
    fn answered(&mut self, action: &'static str);
}

/// How a call was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call is still to be made, unchanged.
    Pass,
    /// The call was handled and returns this result.
    Returned(i64),
}

/// Carries out decided actions.
///
/// # Errors
/// Those of the kernel.
pub fn carry_out<K: Kernel>(
    actions: Actions,
    base: PageSize,
    space: &mut Space,
    kernel: &mut K,
) -> Result<Outcome, K::Error> {
    let result = match actions {
        Actions::Pass => return Ok(Outcome::Pass),
        Actions::Answer { result, action } => {
            action.into_iter().for_each(|action| kernel.answered(action));
            result
        }
        Actions::AnswerWhereMapped { start, bytes, action } => {
            let result = kernel.look((start, bytes))?;
            if result == 0 {
                kernel.answered(action);
            }
            result
        }
        Actions::Map { call, bytes, then } => {
            let address = match call {
                Some(call) => kernel.call(&call)?,
                None => kernel.original_call()?,
            };
            if !is_error(address) {
                do_then(kernel, then, (address as u64, bytes))?;
            }
            address
        }
        Actions::MoveHeap { step, then } => move_heap(kernel, base, space, step, then)?,
        Actions::Replace { call, fall_back_to_original, action } => {
            if !kernel.allows(&call) {
                return Ok(Outcome::Pass);
            }
            let result = kernel.call(&call)?;
            if is_error(result) && fall_back_to_original {
                kernel.original_call()?
            } else {
                if !is_error(result) {
                    kernel.answered(action);
                }
                result
            }
        }
        Actions::Zero { start, end, action } => {
            if !kernel.zero(start, end) {
                return Ok(Outcome::Pass);
            }
            kernel.answered(action);
            start as i64
        }
    };
    Ok(Outcome::Returned(result))
}

fn do_then<K: Kernel>(kernel: &mut K, then: Then, range: (u64, u64)) -> Result<(), K::Error> {
    if let Some(advice) = then.advice {
        let joined = kernel.vma_at(range.0).filter(|vma| vma.is_anonymous);
        if joined.is_some() || !then.only_anonymous {
            kernel.advise(with_joined(joined, range), advice)?;
        }
    }
    match then.populate {
        Some(how) => kernel.advise(range, how),
        None => Ok(()),
    }
}

/// A fresh mapping `(address, bytes)`, extended by the mappings that the kernel merged it with. None of these has the advice yet,
/// because mappings with different advice are not merged (`can_vma_merge_left`, mm/vma.c).
fn with_joined(joined: Option<Vma>, range: (u64, u64)) -> (u64, u64) {
    match joined {
        Some(vma) if vma.length_bytes() >= range.1 => (vma.start, vma.length_bytes()),
        _ => range,
    }
}

fn move_heap<K: Kernel>(
    kernel: &mut K,
    base: PageSize,
    space: &mut Space,
    step: Step,
    then: Then,
) -> Result<i64, K::Error> {
    let (end, grown) = match step {
        Step::Answer { end } => {
            space.heap.answered(end);
            (end, None)
        }
        Step::Pass => {
            let end = kernel.original_call()? as u64;
            space.heap.passed(end);
            (end, None)
        }
        Step::Grow { wanted, asked } => {
            let mut end = kernel.call(&Call::Brk { end: wanted })? as u64;
            if end != wanted && wanted != asked {
                end = kernel.call(&Call::Brk { end: asked })? as u64;
            }
            space.heap.grown(asked, end)
        }
    };
    if let Some((from, to)) = grown {
        let from = base.align_down(from);
        for advice in [then.advice, then.populate].into_iter().flatten() {
            kernel.advise((from, to - from), advice)?;
        }
    }
    Ok(end as i64)
}

/// Whether a result is an error number, negated.
pub fn is_error(result: i64) -> bool {
    (-4095..0).contains(&result)
}
