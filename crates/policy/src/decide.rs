//! What a policy does to a call.
//!
//! [`decide`] says it as data, [`Actions`]; [`crate::carry_out`] does it. What is done after a call depends on what came of it, so a
//! decision names ranges by the call's result.
//!
//! Under policies of `hugetlb-*` each step depends on what came of the one before: [`crate::pool`] decides them one by one.

use crate::call::{Call, Vma, madv, map, pr, prot};
use crate::guards;
use crate::heap::{Heap, Step};
use crate::mechanism::Mechanism;

/// What is remembered of an address space between calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The heap.
    pub heap: Heap,
    /// What PR_SET_THP_DISABLE was told and not passed on, to be repeated to PR_GET_THP_DISABLE.
    pub thp_disable: u64,
}

/// What is done to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actions {
    /// It is made as it is.
    Pass,
    /// It is not made, and returns this.
    Answer {
        /// The result.
        result: i64,
        /// What is said of it; `None` where the program is told no more than the truth.
        said: Option<&'static str>,
    },
    /// It is not made, and returns 0 where there is memory in the range.
    AnswerWhereMapped {
        /// The first address.
        start: u64,
        /// Bytes.
        bytes: u64,
        /// What is said of it.
        said: &'static str,
    },
    /// It is made with other flags of mmap, or as it is; then more is done with what it mapped.
    Map {
        /// The call; `None`: the program's own.
        call: Option<Call>,
        /// Bytes that it maps.
        bytes: u64,
        /// What is done then.
        then: Then,
    },
    /// The end of the heap is moved, and more is done with what it has grown by.
    MoveHeap {
        /// How.
        step: Step,
        /// What is done then.
        then: Then,
    },
    /// Another call is made in its place; where that one is refused and `or_own` is set, the program's own.
    Instead {
        /// The call.
        call: Call,
        /// Whether the program's own is made where it is refused.
        or_own: bool,
        /// What is said of it.
        said: &'static str,
    },
    /// A guard page is not mapped: what is there stays, and holds zeros as fresh memory does. Where that cannot be, the call is
    /// made as it is.
    Zero {
        /// The first address.
        start: u64,
        /// The address after the last.
        end: u64,
        /// What is said of it.
        said: &'static str,
    },
}

/// What is done with memory once it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Then {
    /// It is given this advice, with all that it was joined with.
    pub advice: Option<u64>,
    /// It is populated by this advice, and nothing beside it.
    pub populate: Option<u64>,
    /// Only if it is anonymous memory, which the call alone does not say.
    pub only_anonymous: bool,
}

/// What a decision may ask of a program's memory.
pub trait View {
    /// The mapping that holds an address.
    fn vma_at(&mut self, address: u64) -> Option<Vma>;

    /// Whether the kernel knows PR_THP_DISABLE_EXCEPT_ADVISED.
    fn excepts_advised(&mut self) -> bool;
}

/// What a policy does to a call.
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
        Call::Mremap { old_bytes, new_bytes, .. } => mremap(mechanism, old_bytes, new_bytes),
        Call::Brk { end } if mechanism.advice.is_some() || mechanism.prefault => {
            let populate = mechanism.prefault.then_some(madv::POPULATE_WRITE);
            let then = Then { advice: mechanism.advice, populate, only_anonymous: false };
            Actions::MoveHeap { step: space.heap.step(end, mechanism.heap_step()), then }
        }
        Call::Mprotect { address, bytes, protection } if mechanism.no_guards => {
            mprotect(mechanism, address, bytes, protection, view)
        }
        Call::Madvise { address, bytes, advice } => contrary_advice(mechanism, address, bytes, advice),
        Call::ProcessMadvise { ranges, advice: madv::NOHUGEPAGE, flags } => match mechanism.advice {
            Some(advice) => Actions::Instead {
                call: Call::ProcessMadvise { ranges, advice, flags },
                or_own: false,
                said: "process_madvise of itself, against the policy",
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
    // The program's own wish to populate comes after the advice, or else small pages are there first.
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
    Actions::Map { call, bytes, then: Then { advice, populate, only_anonymous: false } }
}

fn map_over(mechanism: &Mechanism, start: u64, bytes: u64, view: &mut impl View) -> Option<Actions> {
    let base = mechanism.base;
    let end = start.checked_add(bytes).and_then(|end| base.align_up(end)).filter(|end| *end > start)?;
    let is_guard = base.align_down(start) == start && guards::closes_a_guard(view.vma_at(start), start, end, base);
    is_guard.then_some(Actions::Zero { start, end, said: guards::MAPPED_OVER })
}

/// A mapping keeps its advice when it grows; one that was too small for it gets it when it has outgrown that.
fn mremap(mechanism: &Mechanism, old_bytes: u64, new_bytes: u64) -> Actions {
    let from = mechanism.advised_bytes();
    if mechanism.advice.is_none() || old_bytes >= from || new_bytes < from {
        return Actions::Pass;
    }
    let then = Then { advice: mechanism.advice, populate: None, only_anonymous: true };
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
            Actions::Answer { result: 0, said: Some(guards::CLOSED) }
        } else {
            Actions::Pass
        };
    }
    let (low, high) = guards::without_guards(vma, start, end, base);
    if (low, high) == (start, end) {
        return Actions::Pass;
    }
    let call = Call::Mprotect { address: low, bytes: high - low, protection };
    Actions::Instead { call, or_own: true, said: guards::LEFT_CLOSED }
}

/// madvise calls of the program that contradict the policy are answered: as the kernel would, whether there is memory.
fn contrary_advice(mechanism: &Mechanism, start: u64, bytes: u64, advice: u64) -> Actions {
    let said = match advice {
        madv::NOHUGEPAGE if mechanism.wants_large() => "madvise(MADV_NOHUGEPAGE)",
        madv::GUARD_INSTALL if mechanism.no_guards => "madvise(MADV_GUARD_INSTALL)",
        _ => return Actions::Pass,
    };
    Actions::AnswerWhereMapped { start, bytes, said }
}

/// PR_SET_THP_DISABLE would undo the policy: its calls are answered. The program is told what it would be told without the
/// policy. The rules of the arguments are those of `prctl_set_thp_disable` in kernel/sys.c.
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
        return Actions::Answer { result: space.thp_disable as i64, said: None };
    }
    space.thp_disable = if value == 0 { 0 } else { 1 | flags };
    // What the policy wants too is no news.
    let said = match (mechanism.wants_large(), value != 0, flags) {
        (true, true, _) => Some("prctl(PR_SET_THP_DISABLE, 1)"),
        (false, false, _) => Some("prctl(PR_SET_THP_DISABLE, 0)"),
        (false, true, EXCEPT_ADVISED) => Some("prctl(PR_SET_THP_DISABLE, 1, PR_THP_DISABLE_EXCEPT_ADVISED)"),
        _ => None,
    };
    Actions::Answer { result: 0, said }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::PageSizes;
    use crate::size::PageSize;

    /// A program without memory, on a kernel of Linux 6.18 or later, or before.
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
    fn what_would_undo_the_policy_is_answered_and_what_the_kernel_refuses_is_passed() {
        let (set, get) = (u64::from(pr::SET_THP_DISABLE), u64::from(pr::GET_THP_DISABLE));
        let answer = |said| Actions::Answer { result: 0, said };
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
        // The program is told what it said itself.
        let (thp, mut space, mut view) = (mechanism("thp"), Space::default(), Nothing { excepts_advised: true });
        decide(&thp, &mut space, &Call::Prctl { option: set, arguments: [1, 2, 0, 0] }, &mut view);
        let found = decide(&thp, &mut space, &Call::Prctl { option: get, arguments: [0; 4] }, &mut view);
        assert_eq!(found, Actions::Answer { result: 3, said: None });
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
