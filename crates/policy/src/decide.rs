//! Decides what a policy does to a system call.
//!
//! [`decide`] returns the decision as data, [`Actions`]; [`crate::carry_out`] carries it out. The steps after a call depend on
//! its result, so a decision describes ranges in terms of that result.
//!
//! Under `hugetlb-*` policies each step depends on the result of the step before. [`crate::pool`] decides them one by one.

use crate::call::{Call, Vma, madv, map, pr, prot};
use crate::guards;
use crate::heap::{Heap, Step};
use crate::mechanism::Mechanism;
use crate::windows::Windows;

/// State of an address space that is kept between calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The heap that brk grows.
    pub heap: Heap,
    /// The value that the program gave to PR_SET_THP_DISABLE and that was not passed on. PR_GET_THP_DISABLE returns it.
    pub thp_disable: u64,
    /// Bytes that were advised so far, in the order in which the program asked for them ([`Windows`]).
    pub advised_bytes: u64,
}

/// What to do with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actions {
    /// Make the call unchanged.
    Pass,
    /// Do not make the call; return this result.
    Answer {
        /// The result that the program receives.
        result: i64,
        /// The text that records the answer; `None` where the answer matches the real state.
        action: Option<&'static str>,
    },
    /// Do not make the call; return 0 if the range is mapped, otherwise the kernel's error.
    AnswerWhereMapped {
        /// First address of the range.
        start: u64,
        /// Length in bytes.
        bytes: u64,
        /// The text that records the answer.
        action: &'static str,
    },
    /// Make the mmap, possibly with other flags; then advise or populate the new mapping.
    Map {
        /// The call to make; `None` for the program's own call.
        call: Option<Call>,
        /// Length of the mapping in bytes.
        bytes: u64,
        /// What to do with the new mapping.
        then: Then,
    },
    /// Make an mremap that makes a mapping longer, even if different advice has split the mapping into several VMAs; then
    /// advise the memory by which it grew.
    Grow {
        /// The program's own call.
        call: Call,
        /// What to do with the new memory.
        then: Then,
    },
    /// Move the end of the heap; then advise or populate the memory by which it grew.
    MoveHeap {
        /// How to move the end of the heap.
        step: Step,
        /// What to do with the new memory.
        then: Then,
    },
    /// Make another call in place of the program's.
    Replace {
        /// The call to make.
        call: Call,
        /// Whether to make the program's own call if this one is refused.
        fall_back_to_original: bool,
        /// The text that records the answer.
        action: &'static str,
    },
    /// Do not map a guard page: leave the existing memory in place, and fill it with zeros like fresh memory. If that fails, make
    /// the call unchanged.
    Zero {
        /// First address of the range.
        start: u64,
        /// The address after the last.
        end: u64,
        /// The text that records the answer.
        action: &'static str,
    },
}

/// What to do with memory after it has been mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Then {
    /// Advice for the memory, including the mappings that it was merged with.
    pub advice: Option<u64>,
    /// The parts of the memory that get the advice; `None`: all of it.
    pub windows: Option<Windows>,
    /// Advice that populates the memory, without the mappings that it was merged with.
    pub populate: Option<u64>,
    /// Apply this only if the memory is anonymous, which the call's arguments do not show.
    pub only_anonymous: bool,
}

impl Then {
    /// What a policy does to memory that it advises.
    pub fn of(mechanism: &Mechanism) -> Then {
        Then { advice: mechanism.advice, windows: mechanism.windows, populate: None, only_anonymous: false }
    }
}

/// Facts about a program's memory that a decision may query.
pub trait View {
    /// Returns the mapping that contains an address.
    fn vma_at(&mut self, address: u64) -> Option<Vma>;

    /// Whether the kernel supports PR_THP_DISABLE_EXCEPT_ADVISED.
    fn excepts_advised(&mut self) -> bool;
}

/// Decides what a policy does to a call.
pub fn decide(mechanism: &Mechanism, space: &mut Space, call: &Call, view: &mut impl View) -> Actions {
    match *call {
        Call::Prctl { option, arguments } => thp_disable(mechanism, space, option as u32, arguments, view),
        _ if mechanism.hugetlb => Actions::Pass,
        Call::Mmap { address, bytes, protection, flags, .. } => {
            if mechanism.no_guards && guards::maps_over(protection, flags) {
                return map_over(mechanism, address, bytes, view).unwrap_or_else(|| mmap(mechanism, call));
            }
            mmap(mechanism, call)
        }
        Call::Mremap { old_bytes, new_bytes, .. }
            if mechanism.windows.is_some() && old_bytes >= mechanism.advised_bytes() =>
        {
            if new_bytes > old_bytes {
                Actions::Grow { call: *call, then: Then::of(mechanism) }
            } else {
                Actions::Pass
            }
        }
        Call::Mremap { old_bytes, new_bytes, .. } => mremap(mechanism, old_bytes, new_bytes),
        Call::Brk { end } if mechanism.advice.is_some() || mechanism.prefault => {
            let populate = mechanism.prefault.then_some(madv::POPULATE_WRITE);
            let then = Then { populate, ..Then::of(mechanism) };
            Actions::MoveHeap { step: space.heap.step(end, mechanism.heap_step()), then }
        }
        Call::Mprotect { address, bytes, protection } if mechanism.no_guards => {
            mprotect(mechanism, address, bytes, protection, view)
        }
        Call::Madvise { address, bytes, advice } => contrary_advice(mechanism, address, bytes, advice),
        // The ranges can cover several windows. Both the call and a call with other advice would undo the windows; the call
        // is passed on.
        Call::ProcessMadvise { .. } if mechanism.windows.is_some() => Actions::Pass,
        Call::ProcessMadvise { ranges, advice: madv::NOHUGEPAGE, flags } => match mechanism.advice {
            Some(advice) => Actions::Replace {
                call: Call::ProcessMadvise { ranges, advice, flags },
                fall_back_to_original: false,
                action: "process_madvise of itself, against the policy",
            },
            None => Actions::Pass,
        },
        Call::Brk { .. }
        | Call::Mprotect { .. }
        | Call::ProcessMadvise { .. }
        | Call::Munmap { .. }
        | Call::OnRange { .. } => Actions::Pass,
    }
}

fn mmap(mechanism: &Mechanism, call: &Call) -> Actions {
    let Call::Mmap { address, bytes, protection, flags, file, offset } = *call else { return Actions::Pass };
    let advice = mechanism.advice.filter(|_| mechanism.advises(bytes, flags));
    // Population that the program requested must come after the advice; otherwise it brings in small pages first.
    let wishes = advice.is_some() && flags & (map::POPULATE | map::NONBLOCK) == map::POPULATE;
    let populates = mechanism.populates(protection, flags);
    if advice.is_none() && !populates {
        return Actions::Pass;
    }
    let flags = if wishes { flags & !map::POPULATE } else { flags };
    let writes = protection & prot::WRITE != 0;
    let populate = if writes { madv::POPULATE_WRITE } else { madv::POPULATE_READ };
    let populate = (populates || wishes).then_some(populate);
    let call = Some(Call::Mmap { address, bytes, protection, flags, file, offset });
    Actions::Map { call, bytes, then: Then { advice, populate, ..Then::of(mechanism) } }
}

fn map_over(mechanism: &Mechanism, start: u64, bytes: u64, view: &mut impl View) -> Option<Actions> {
    let base = mechanism.base;
    let end = start.checked_add(bytes).and_then(|end| base.align_up(end)).filter(|end| *end > start)?;
    let is_guard = base.align_down(start) == start && guards::closes_a_guard(view.vma_at(start), start, end, base);
    is_guard.then_some(Actions::Zero { start, end, action: guards::MAPPED_OVER })
}

/// A mapping keeps its advice when it grows. A mapping that was too small for advice is advised once it has grown enough.
fn mremap(mechanism: &Mechanism, old_bytes: u64, new_bytes: u64) -> Actions {
    let from = mechanism.advised_bytes();
    if mechanism.advice.is_none() || old_bytes >= from || new_bytes < from {
        return Actions::Pass;
    }
    let then = Then { only_anonymous: true, ..Then::of(mechanism) };
    Actions::Map { call: None, bytes: new_bytes, then }
}

fn mprotect(mechanism: &Mechanism, start: u64, bytes: u64, protection: u64, view: &mut impl View) -> Actions {
    let base = mechanism.base;
    let Some(end) = start.checked_add(bytes).and_then(|end| base.align_up(end)) else { return Actions::Pass };
    if base.align_down(start) != start || start == end {
        return Actions::Pass;
    }
    let vma = view.vma_at(start);
    if protection == prot::NONE {
        return if guards::closes_a_guard(vma, start, end, base) {
            Actions::Answer { result: 0, action: Some(guards::CLOSED) }
        } else {
            Actions::Pass
        };
    }
    let (low, high) = guards::without_guards(vma, start, end, base);
    if (low, high) == (start, end) {
        return Actions::Pass;
    }
    let call = Call::Mprotect { address: low, bytes: high - low, protection };
    Actions::Replace { call, fall_back_to_original: true, action: guards::LEFT_CLOSED }
}

/// Answers the program's madvise calls that contradict the policy. The result is the kernel's: it depends on whether the range is
/// mapped.
fn contrary_advice(mechanism: &Mechanism, start: u64, bytes: u64, advice: u64) -> Actions {
    let action = match advice {
        madv::NOHUGEPAGE if mechanism.wants_large() => "madvise(MADV_NOHUGEPAGE)",
        madv::HUGEPAGE if mechanism.windows.is_some() => "madvise(MADV_HUGEPAGE)",
        madv::GUARD_INSTALL if mechanism.no_guards => "madvise(MADV_GUARD_INSTALL)",
        _ => return Actions::Pass,
    };
    Actions::AnswerWhereMapped { start, bytes, action }
}

/// PR_SET_THP_DISABLE would undo the policy, so its calls are answered. The program sees the same results as without the policy.
/// The argument rules are those of `prctl_set_thp_disable` in kernel/sys.c.
fn thp_disable(
    mechanism: &Mechanism,
    space: &mut Space,
    option: u32,
    [value, flags, fourth, fifth]: [u64; 4],
    view: &mut impl View,
) -> Actions {
    const EXCEPT_ADVISED: u64 = pr::THP_DISABLE_EXCEPT_ADVISED;
    let question = option == pr::GET_THP_DISABLE;
    if !mechanism.answers_thp_disable() || !question && option != pr::SET_THP_DISABLE {
        return Actions::Pass;
    }
    let refused = if question {
        value | flags != 0
    } else {
        flags != 0 && !(value != 0 && flags == EXCEPT_ADVISED && view.excepts_advised())
    };
    if refused || fourth | fifth != 0 {
        return Actions::Pass;
    }
    if question {
        return Actions::Answer { result: space.thp_disable as i64, action: None };
    }
    space.thp_disable = if value == 0 { 0 } else { 1 | flags };
    // A request that agrees with the policy need not be recorded.
    let action = match (mechanism.wants_large(), value != 0, flags) {
        (true, true, _) => Some("prctl(PR_SET_THP_DISABLE, 1)"),
        (false, false, _) => Some("prctl(PR_SET_THP_DISABLE, 0)"),
        (false, true, EXCEPT_ADVISED) => Some("prctl(PR_SET_THP_DISABLE, 1, PR_THP_DISABLE_EXCEPT_ADVISED)"),
        _ => None,
    };
    Actions::Answer { result: 0, action }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::PageSizes;
    use crate::size::PageSize;

    /// A view without mappings, of a kernel that is at least Linux 6.18 or older, depending on `excepts_advised`.
    struct Nothing {
        excepts_advised: bool,
    }

    impl View for Nothing {
        fn vma_at(&mut self, _: u64) -> Option<Vma> {
            None
        }

        fn excepts_advised(&mut self) -> bool {
            self.excepts_advised
        }
    }

    fn mechanism(policy: &str) -> Mechanism {
        let mthp = vec![PageSize::K64];
        let page_sizes = PageSizes { base: PageSize::K4, pmd: Some(PageSize::M2), mthp, hugetlb: vec![PageSize::M2] };
        Mechanism::of(&policy.parse().unwrap(), &page_sizes)
    }

    #[test]
    fn answers_calls_against_the_policy_and_passes_calls_that_the_kernel_refuses() {
        let (set, get) = (u64::from(pr::SET_THP_DISABLE), u64::from(pr::GET_THP_DISABLE));
        let answer = |action| Actions::Answer { result: 0, action };
        let (off, on) = (Some("prctl(PR_SET_THP_DISABLE, 1)"), Some("prctl(PR_SET_THP_DISABLE, 0)"));
        let mostly = Some("prctl(PR_SET_THP_DISABLE, 1, PR_THP_DISABLE_EXCEPT_ADVISED)");
        for (policy, excepts_advised, option, arguments, expected) in [
            ("thp", true, set, [1, 0, 0, 0], answer(off)),
            ("thp", true, set, [1, 2, 0, 0], answer(off)),
            ("thp", false, set, [1, 2, 0, 0], Actions::Pass),
            ("thp", true, set, [0, 2, 0, 0], Actions::Pass),
            ("thp", true, set, [1, 0, 0, 1], Actions::Pass),
            ("thp", true, set | 1 << 32, [0, 0, 0, 0], answer(None)),
            ("base", true, set, [0, 0, 0, 0], answer(on)),
            ("base", true, set, [1, 2, 0, 0], answer(mostly)),
            ("base", true, set, [1, 0, 0, 0], answer(None)),
            ("default", true, set, [1, 0, 0, 0], Actions::Pass),
            ("hugetlb-2m", true, set, [1, 0, 0, 0], Actions::Pass),
            ("thp", true, get, [0, 1, 0, 0], Actions::Pass),
            ("thp", true, 4, [1, 0, 0, 0], Actions::Pass),
        ] {
            let call = Call::Prctl { option, arguments };
            let found = decide(&mechanism(policy), &mut Space::default(), &call, &mut Nothing { excepts_advised });
            assert_eq!(found, expected, "{policy} {call:?}");
        }
        // PR_GET_THP_DISABLE returns what the program set.
        let (thp, mut space, mut view) = (mechanism("thp"), Space::default(), Nothing { excepts_advised: true });
        decide(&thp, &mut space, &Call::Prctl { option: set, arguments: [1, 2, 0, 0] }, &mut view);
        let found = decide(&thp, &mut space, &Call::Prctl { option: get, arguments: [0; 4] }, &mut view);
        assert_eq!(found, Actions::Answer { result: 3, action: None });
    }

    #[test]
    fn a_programs_wish_to_populate_comes_after_the_advice() {
        let private = map::PRIVATE | map::ANONYMOUS;
        let mapped = |policy: &str, protection: u64, flags: u64| {
            let call = Call::Mmap { address: 0, bytes: 2 << 20, protection, flags, file: u64::MAX, offset: 0 };
            match decide(&mechanism(policy), &mut Space::default(), &call, &mut Nothing { excepts_advised: false }) {
                Actions::Map { call: Some(Call::Mmap { flags, .. }), then, .. } => {
                    Some((flags & map::POPULATE != 0, then.advice, then.populate))
                }
                _ => None,
            }
        };
        let (huge, write, read) = (Some(madv::HUGEPAGE), Some(madv::POPULATE_WRITE), Some(madv::POPULATE_READ));
        for (policy, protection, flags, expected) in [
            ("thp", 3, private, Some((false, huge, None))),
            ("thp", 3, private | map::POPULATE, Some((false, huge, write))),
            ("thp", 1, private | map::POPULATE, Some((false, huge, read))),
            ("thp", 3, private | map::POPULATE | map::NONBLOCK, Some((true, huge, None))),
            ("base+prefault", 3, private, Some((false, None, write))),
            ("base+prefault", 3, private | map::NORESERVE, None),
            ("base", 3, private | map::POPULATE, None),
            ("thp", 3, private | map::STACK, None),
            ("thp", 3, map::PRIVATE, None),
        ] {
            assert_eq!(mapped(policy, protection, flags), expected, "{policy} {protection} {flags:#x}");
        }
    }
}
