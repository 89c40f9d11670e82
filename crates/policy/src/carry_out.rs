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

    /// Makes the program's own call. The program is stopped at the entry of this call.
    ///
    /// # Errors
    /// As [`Kernel::call`].
    fn original_call(&mut self) -> Result<i64, Self::Error>;

    /// Applies advice to `(address, bytes)` and records a refusal.
    ///
    /// # Errors
    /// As [`Kernel::call`].
    fn advise(&mut self, range: (u64, u64), advice: u64) -> Result<(), Self::Error>;

    /// Checks whether all of `(address, bytes)` is mapped. Returns 0 if it is, otherwise a negated error number.
    ///
    /// # Errors
    /// As [`Kernel::call`].
    fn check_mapped(&mut self, range: (u64, u64)) -> Result<i64, Self::Error>;

    /// Records where new memory is. `_before` is the number of bytes that were advised before it.
    fn placed(&mut self, _range: (u64, u64), _before: u64) {}

    /// Fills the present pages of `[start, end)` with zeros; returns whether it succeeded.
    fn zero(&mut self, start: u64, end: u64) -> bool;

    /// Whether the seccomp filters that the program itself has installed allow a call.
    fn allows(&mut self, call: &Call) -> bool;

    /// Records that the program got a result other than that of its own call. `action` describes what was done instead.
    fn record_answer(&mut self, action: &'static str);
}

/// How a call was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call must still be made, unchanged.
    Pass,
    /// The call was handled. The program receives this result.
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
                follow_up(kernel, space, then, (address as u64, bytes))?;
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

/// Advises and populates a new mapping `(address, bytes)`.
fn follow_up<K: Kernel>(kernel: &mut K, space: &mut Space, then: Then, range: (u64, u64)) -> Result<(), K::Error> {
    if then.advice.is_some() {
        let merged = kernel.vma_at(range.0).filter(|vma| vma.is_anonymous);
        if merged.is_some() || !then.only_anonymous {
            advise(kernel, space, then, with_merged(merged, range))?;
        }
    }
    match then.populate {
        Some(how) => kernel.advise(range, how),
        None => Ok(()),
    }
}

/// Advises new memory: all of it alike, or each window as the policy asks.
///
/// # Errors
/// As [`Kernel::call`].
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

/// A new mapping `(address, bytes)`, extended by the mappings that the kernel merged it with. None of them has the
/// advice yet, because the kernel does not merge mappings with different advice (`can_vma_merge_left`, mm/vma.c).
fn with_merged(merged: Option<Vma>, range: (u64, u64)) -> (u64, u64) {
    match merged {
        Some(vma) if vma.length_bytes() >= range.1 => (vma.start, vma.length_bytes()),
        _ => range,
    }
}

/// Makes an mremap that grows a mapping. The kernel refuses it with EFAULT if the advice of the windows has split the
/// mapping into several VMAs. In this case the last VMA grows in place if it can. Otherwise, if the program allows a
/// move (MREMAP_MAYMOVE), each VMA moves to a new mapping.
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

/// Grows the last VMA of a mapping in place. Returns whether that was possible.
fn grow_in_place<K: Kernel>(kernel: &mut K, pieces: &[Vma], more: u64) -> Result<bool, K::Error> {
    let Some(last) = pieces.last() else { return Ok(false) };
    let (address, old_bytes) = (last.start, last.length_bytes());
    let call = Call::Mremap { address, old_bytes, new_bytes: old_bytes + more, flags: 0, new_address: 0 };
    Ok(kernel.allows(&call) && !is_error(kernel.call(&call)?))
}

/// Moves the VMAs of a mapping to the beginning of a new mapping of `bytes`, and keeps their distances. Returns the new
/// address. If a VMA cannot be moved, moves those before it back and returns the error.
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
    let new_address_of = |piece: &Vma| target as u64 + (piece.start - first.start);
    for (at, piece) in pieces.iter().enumerate() {
        let result = kernel.call(&move_call(piece.start, piece.length_bytes(), new_address_of(piece)))?;
        if is_error(result) {
            let moved: Vec<(u64, &Vma)> = pieces[..at].iter().map(|piece| (new_address_of(piece), piece)).collect();
            // First the part of the target without VMAs: near vm.max_map_count the kernel refuses to move a VMA, and one VMA
            // fewer can decide.
            let free = new_address_of(piece);
            kernel.call(&Call::Munmap { address: free, bytes: target as u64 + bytes - free })?;
            move_back(kernel, &moved)?;
            return Ok(result);
        }
    }
    Ok(target)
}

fn move_call(from: u64, bytes: u64, to: u64) -> Call {
    let flags = mremap::MAY_MOVE | mremap::FIXED;
    Call::Mremap { address: from, old_bytes: bytes, new_bytes: bytes, flags, new_address: to }
}

/// Moves VMAs back from these addresses. One that the kernel refuses to move keeps its content where it is.
fn move_back<K: Kernel>(kernel: &mut K, moved: &[(u64, &Vma)]) -> Result<(), K::Error> {
    for (address, piece) in moved.iter().rev() {
        kernel.call(&move_call(*address, piece.length_bytes(), piece.start))?;
    }
    Ok(())
}

/// Advises the memory by which a mapping grew, if it is private anonymous memory.
fn advise_grown<K: Kernel>(kernel: &mut K, space: &mut Space, then: Then, range: (u64, u64)) -> Result<(), K::Error> {
    match kernel.vma_at(range.0) {
        Some(vma) if vma.is_anonymous => advise(kernel, space, then, range),
        _ => Ok(()),
    }
}

/// The VMAs of a range, clipped to it. `None` if a part of it is not mapped or not private anonymous memory.
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

/// Whether a raw result is a negated error number.
pub fn is_error(result: i64) -> bool {
    (-4095..0).contains(&result)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel with these results, one for each call that is made.
    struct Scripted {
        results: Vec<i64>,
        calls: Vec<Call>,
    }

    impl View for Scripted {
        fn vma_at(&mut self, _address: u64) -> Option<Vma> {
            None
        }

        fn excepts_advised(&mut self) -> bool {
            false
        }
    }

    impl Kernel for Scripted {
        type Error = ();

        fn call(&mut self, call: &Call) -> Result<i64, ()> {
            self.calls.push(*call);
            Ok(self.results[self.calls.len() - 1])
        }

        fn original_call(&mut self) -> Result<i64, ()> {
            Err(())
        }

        fn advise(&mut self, _range: (u64, u64), _advice: u64) -> Result<(), ()> {
            Ok(())
        }

        fn check_mapped(&mut self, _range: (u64, u64)) -> Result<i64, ()> {
            Ok(0)
        }

        fn zero(&mut self, _start: u64, _end: u64) -> bool {
            false
        }

        fn allows(&mut self, _call: &Call) -> bool {
            true
        }

        fn record_answer(&mut self, _action: &'static str) {}
    }

    /// The result of moving two VMAs of 64K to 1M, and the calls after the mmap.
    fn moved(results: &[i64]) -> (i64, Vec<Call>) {
        let vma = |start| Vma { start, end: start + (64 << 10), protection: 3, is_anonymous: true, is_named: false };
        let pieces = [vma(0x10000), vma(0x20000)];
        let mut kernel = Scripted { results: [&[1 << 20], results].concat(), calls: Vec::new() };
        let result = move_pieces(&mut kernel, &pieces, 256 << 10).unwrap();
        (result, kernel.calls.split_off(1))
    }

    #[test]
    fn memory_that_was_moved_is_never_unmapped() {
        const ENOMEM: i64 = -12;
        let (target, second) = (1u64 << 20, (1u64 << 20) + (64 << 10));
        assert_eq!(moved(&[0, 0]).0, 1 << 20);
        // The second VMA stays where it is. Its place is unmapped first, then the first VMA returns, or keeps its content.
        let rest = Call::Munmap { address: second, bytes: 192 << 10 };
        let back = move_call(target, 64 << 10, 0x10000);
        for returned in [0x10000, ENOMEM] {
            let (result, calls) = moved(&[0, ENOMEM, 0, returned]);
            assert_eq!((result, &calls[2..]), (ENOMEM, &[rest, back][..]));
        }
        // Nothing was moved, so all of the new mapping is unmapped at once.
        let (result, calls) = moved(&[ENOMEM, 0]);
        assert_eq!((result, &calls[1..]), (ENOMEM, &[Call::Munmap { address: target, bytes: 256 << 10 }][..]));
    }
}
