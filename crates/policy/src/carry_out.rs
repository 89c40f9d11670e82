//! Carries out decided actions on a [`Kernel`]: the tracer implements it with a stopped task, the model with its own VMAs.

use crate::call::{Call, Vma, map, mremap};
use crate::decide::{Actions, Space, Then, View};
use crate::heap::Step;
use crate::size::PageSize;

/// Makes calls on behalf of the program. Negative results are negated error numbers.
pub trait Kernel: View {
    /// An error after which the program cannot continue.
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
    fn check_mapped(&mut self, range: (u64, u64)) -> Result<i64, Self::Error>;

    /// Takes note of where new memory is. `_before` bytes of other memory were advised earlier.
    fn placed(&mut self, _range: (u64, u64), _before: u64) {}

    /// Fills the present pages of `[start, end)` with zeros; returns whether it succeeded.
    fn zero(&mut self, start: u64, end: u64) -> bool;

    /// Whether the seccomp filters that the program has installed itself allow a call.
    fn allows(&mut self, call: &Call) -> bool;

    /// Records that a call was answered and not made.
    fn record_answer(&mut self, action: &'static str);
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
/// As [`Kernel::call`].
pub fn carry_out<K: Kernel>(
    actions: Actions,
    base: PageSize,
    space: &mut Space,
    kernel: &mut K,
) -> Result<Outcome, K::Error> {
    let result = match actions {
        Actions::Pass => return Ok(Outcome::Pass),
        Actions::Answer { result, action } => {
            action.into_iter().for_each(|action| kernel.record_answer(action));
            result
        }
        Actions::AnswerWhereMapped { start, bytes, action } => {
            let result = kernel.check_mapped((start, bytes))?;
            if result == 0 {
                kernel.record_answer(action);
            }
            result
        }
        Actions::Map { call, bytes, then } => {
            let address = match call {
                Some(call) => kernel.call(&call)?,
                None => kernel.original_call()?,
            };
            if !is_error(address) {
                do_then(kernel, space, then, (address as u64, bytes))?;
            }
            address
        }
        Actions::Grow { call, then } => grow(kernel, base, space, &call, then)?,
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
                    kernel.record_answer(action);
                }
                result
            }
        }
        Actions::Zero { start, end, action } => {
            if !kernel.zero(start, end) {
                return Ok(Outcome::Pass);
            }
            kernel.record_answer(action);
            start as i64
        }
    };
    Ok(Outcome::Returned(result))
}

fn do_then<K: Kernel>(kernel: &mut K, space: &mut Space, then: Then, range: (u64, u64)) -> Result<(), K::Error> {
    if then.advice.is_some() {
        let joined = kernel.vma_at(range.0).filter(|vma| vma.is_anonymous);
        if joined.is_some() || !then.only_anonymous {
            advise(kernel, space, then, with_joined(joined, range))?;
        }
    }
    match then.populate {
        Some(how) => kernel.advise(range, how),
        None => Ok(()),
    }
}

/// Advises new memory, each window of it as the policy asks.
///
/// # Errors
/// The kernel refuses a call.
pub fn advise<K: Kernel>(kernel: &mut K, space: &mut Space, then: Then, range: (u64, u64)) -> Result<(), K::Error> {
    let Some(advice) = then.advice else { return Ok(()) };
    let before = space.advised_bytes;
    space.advised_bytes += range.1;
    kernel.placed(range, before);
    match then.windows {
        Some(windows) => {
            windows.parts(before, range).into_iter().try_for_each(|(part, advice)| kernel.advise(part, advice))
        }
        None => kernel.advise(range, advice),
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

/// Makes an mremap that makes a mapping longer. The kernel refuses it (EFAULT) where windows have made several VMAs of the mapping.
/// Then the last VMA grows in place if it can. Otherwise each VMA moves to a new mapping, as the kernel would have moved them all.
fn grow<K: Kernel>(
    kernel: &mut K,
    base: PageSize,
    space: &mut Space,
    call: &Call,
    then: Then,
) -> Result<i64, K::Error> {
    let mut result = kernel.original_call()?;
    let Call::Mremap { address, old_bytes, new_bytes, flags, .. } = *call else { return Ok(result) };
    let (Some(old_bytes), Some(new_bytes)) = (base.align_up(old_bytes), base.align_up(new_bytes)) else {
        return Ok(result);
    };
    if result == -EFAULT
        && let Some(pieces) = pieces(kernel, (address, old_bytes)).filter(|pieces| pieces.len() > 1)
    {
        let grown = grow_in_place(kernel, &pieces, new_bytes - old_bytes)?;
        result = match grown {
            true => address as i64,
            false if flags == mremap::MAY_MOVE => move_pieces(kernel, &pieces, new_bytes)?,
            false => result,
        };
        if !is_error(result) {
            kernel.record_answer("mremap of a mapping that windows divide");
        }
    }
    if !is_error(result) {
        advise_grown(kernel, space, then, (result as u64 + old_bytes, new_bytes - old_bytes))?;
    }
    Ok(result)
}

/// EFAULT (include/uapi/asm-generic/errno-base.h).
const EFAULT: i64 = 14;

/// Lets the last VMA of a mapping grow where it is. Returns whether that was possible.
fn grow_in_place<K: Kernel>(kernel: &mut K, pieces: &[Vma], more: u64) -> Result<bool, K::Error> {
    let Some(last) = pieces.last() else { return Ok(false) };
    let (address, old_bytes) = (last.start, last.length_bytes());
    let call = Call::Mremap { address, old_bytes, new_bytes: old_bytes + more, flags: 0, new_address: 0 };
    Ok(kernel.allows(&call) && !is_error(kernel.call(&call)?))
}

/// Moves the VMAs of a mapping, in their order, to the beginning of a new mapping of this length. Returns the new address. If
/// a VMA cannot be moved, moves all of them back.
fn move_pieces<K: Kernel>(kernel: &mut K, pieces: &[Vma], bytes: u64) -> Result<i64, K::Error> {
    let (first, last) = (&pieces[0], &pieces[pieces.len() - 1]);
    let flags = map::PRIVATE | map::ANONYMOUS;
    let call = Call::Mmap { address: 0, bytes, protection: last.protection, flags, file: u64::MAX, offset: 0 };
    if !kernel.allows(&call) {
        return Ok(-EFAULT);
    }
    let target = kernel.call(&call)?;
    if is_error(target) {
        return Ok(target);
    }
    let moved = |from: u64, bytes: u64, to: u64| Call::Mremap {
        address: from,
        old_bytes: bytes,
        new_bytes: bytes,
        flags: mremap::MAY_MOVE | mremap::FIXED,
        new_address: to,
    };
    let place = |piece: &Vma| target as u64 + (piece.start - first.start);
    for (at, piece) in pieces.iter().enumerate() {
        let result = kernel.call(&moved(piece.start, piece.length_bytes(), place(piece)))?;
        if is_error(result) {
            for piece in &pieces[..at] {
                kernel.call(&moved(place(piece), piece.length_bytes(), piece.start))?;
            }
            kernel.call(&Call::Munmap { address: target as u64, bytes })?;
            return Ok(result);
        }
    }
    Ok(target)
}

/// Advises the memory by which a mapping grew, unless it is a file's.
fn advise_grown<K: Kernel>(kernel: &mut K, space: &mut Space, then: Then, range: (u64, u64)) -> Result<(), K::Error> {
    match kernel.vma_at(range.0) {
        Some(vma) if vma.is_anonymous => advise(kernel, space, then, range),
        _ => Ok(()),
    }
}

/// The parts of a range that are VMAs of their own, cut to the range; `None` where a part is not mapped or not anonymous.
fn pieces<K: Kernel>(kernel: &mut K, (start, bytes): (u64, u64)) -> Option<Vec<Vma>> {
    let end = start.checked_add(bytes)?;
    let mut pieces: Vec<Vma> = Vec::new();
    let mut at = start;
    while at < end {
        let vma = kernel.vma_at(at).filter(|vma| vma.is_anonymous && vma.end > at)?;
        pieces.push(Vma { start: at, end: vma.end.min(end), ..vma });
        at = vma.end;
    }
    Some(pieces)
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
            space.heap.record_answer(end);
            (end, None)
        }
        Step::Pass => {
            let end = kernel.original_call()? as u64;
            space.heap.record_pass(end);
            (end, None)
        }
        Step::Grow { wanted, asked } => {
            let mut end = kernel.call(&Call::Brk { end: wanted })? as u64;
            if end != wanted && wanted != asked {
                end = kernel.call(&Call::Brk { end: asked })? as u64;
            }
            space.heap.record_growth(asked, end)
        }
    };
    if let Some((from, to)) = grown {
        let from = base.align_down(from);
        advise(kernel, space, then, (from, to - from))?;
        if let Some(how) = then.populate {
            kernel.advise((from, to - from), how)?;
        }
    }
    Ok(end as i64)
}

/// Whether a result is an error number, negated.
pub fn is_error(result: i64) -> bool {
    (-4095..0).contains(&result)
}
