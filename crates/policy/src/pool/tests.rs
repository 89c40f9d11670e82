//! Calls under a hugetlb policy, step by step.

use super::*;
use crate::PageSizes;

/// The steps of a decision that receives these results.
fn steps_of(views: &mut Views, call: Call, results: &[StepResult]) -> Vec<Step> {
    let size = PageSize::M2;
    let page_sizes = PageSizes { base: PageSize::K4, pmd: Some(size), mthp: vec![], hugetlb: vec![size] };
    let mechanism = Mechanism::of(&"hugetlb-2m".parse().unwrap(), &page_sizes);
    let mut decision = decide(&mechanism, views, &call);
    std::iter::once(&StepResult::Done).chain(results).map(|results| decision.next(*results)).collect()
}

#[test]
fn the_next_step_follows_from_the_outcome_of_the_last() {
    let flags = PRIVATE_ANONYMOUS;
    let call = Call::Mmap { address: 0, bytes: 3 << 20, protection: READ_WRITE, flags, file: NO_FILE, offset: 0 };
    let flags = flags | map::HUGETLB | 21 << map::HUGE_SHIFT;
    let of_pool = Call::Mmap { address: 0, bytes: 4 << 20, protection: READ_WRITE, flags, file: NO_FILE, offset: 0 };
    let asked = [Step::GroupLimit, Step::IsAllowed(of_pool), Step::Call(of_pool)];
    let (yes, mut views) = (StepResult::Could(true), Views::default());
    let free = StepResult::Limit(GroupLimit::NONE);
    // The pool has enough pages.
    let end = Step::End(Outcome::Returned(1 << 30));
    let steps = steps_of(&mut views, call, &[free, yes, StepResult::Result(1 << 30)]);
    assert_eq!(steps, [&asked[..], &[end]].concat());
    assert_eq!(views.all_backed(), [(1 << 30, (1 << 30) + (4 << 20))]);
    // The pool has no page: the program's own call is made, and the reason is recorded.
    let (ordinary, exhausted) = (StepResult::Result(1 << 31), Cause::PoolExhausted { size: PageSize::M2 });
    let rest = [Step::OriginalCall, Step::Note(exhausted, 3 << 20), Step::End(Outcome::Returned(1 << 31))];
    let results = [free, yes, StepResult::Result(ENOMEM), ordinary, StepResult::Done];
    let steps = steps_of(&mut Views::default(), call, &results);
    assert_eq!(steps, [&asked[..], &rest].concat());
    // The program's own filters would refuse the call.
    let steps = steps_of(&mut Views::default(), call, &[free, StepResult::Could(false)]);
    assert_eq!(steps, [&asked[..2], &[Step::Note(Cause::FilteredByProgram, 0)]].concat());
}

#[test]
fn pages_that_a_control_group_may_refuse_are_present_before_the_program_has_them() {
    let (bytes, pool, protection) = (4 << 20, map::HUGETLB | 21 << map::HUGE_SHIFT, prot::READ);
    let anonymous = |protection, flags| Call::Mmap {
        address: 0,
        bytes,
        protection,
        flags: PRIVATE_ANONYMOUS | flags,
        file: NO_FILE,
        offset: 0,
    };
    let call = anonymous(protection, 0);
    let (yes, start) = (StepResult::Could(true), 1 << 30);
    let limit =
        |room_pages| StepResult::Limit(GroupLimit { room_pages, may_refuse_faults: true, may_refuse_copies: true });
    let mapped = anonymous(READ_WRITE, pool);
    let filled = Call::Madvise { address: start, bytes, advice: crate::call::madv::POPULATE_WRITE };
    let asked =
        [Step::GroupLimit, Step::IsAllowed(mapped), Step::Call(mapped), Step::IsAllowed(filled), Step::Call(filled)];
    let until_filled = [limit(2), yes, StepResult::Result(start as i64), yes];
    // There is room.
    let protect = Call::Mprotect { address: start, bytes, protection };
    let end = Step::End(Outcome::Returned(start as i64));
    let results = [&until_filled[..], &[StepResult::Result(0), yes, StepResult::Result(0)]].concat();
    let expected = [&asked[..], &[Step::IsAllowed(protect), Step::Call(protect), end]].concat();
    assert_eq!(steps_of(&mut Views::default(), call, &results), expected);
    // Another process took it meanwhile: nothing stays, and the cause is recorded.
    let discard = Call::Munmap { address: start, bytes };
    let limited = Step::Note(Cause::PoolLimited { size: PageSize::M2 }, bytes);
    let ordinary = StepResult::Result(1 << 31);
    let end = Step::End(Outcome::Returned(1 << 31));
    let refused = [StepResult::Result(EFAULT), yes, StepResult::Result(0), ordinary, StepResult::Done];
    let rest = [Step::IsAllowed(discard), Step::Call(discard), Step::OriginalCall, limited.clone(), end.clone()];
    let mut views = Views::default();
    assert_eq!(steps_of(&mut views, call, &[&until_filled[..], &refused].concat()), [&asked[..], &rest].concat());
    assert_eq!(views, Views::default());
    // There was none.
    let results = [limit(1), ordinary, StepResult::Done];
    assert_eq!(steps_of(&mut views, call, &results), [Step::GroupLimit, Step::OriginalCall, limited, end]);
}

#[test]
fn gives_back_no_page_that_could_not_be_reserved_again() {
    let (start, bytes) = (1 << 30, 2 << 20);
    let mut views = Views::default();
    views.back((start, start + bytes), (start, start + bytes), READ_WRITE);
    let call = Call::Madvise { address: start, bytes, advice: crate::call::madv::DONTNEED };
    let limit = GroupLimit { room_pages: 9, may_refuse_faults: false, may_refuse_copies: true };
    let limit = StepResult::Limit(limit);
    let steps = steps_of(&mut views, call, &[limit, StepResult::Could(true)]);
    assert_eq!(steps, [Step::GroupLimit, Step::Zero(start, start + bytes), Step::End(Outcome::Returned(0))]);
}

#[test]
fn passes_calls_that_concern_no_pool_page_without_a_step() {
    let call = Call::Munmap { address: 1 << 30, bytes: 4096 };
    assert_eq!(steps_of(&mut Views::default(), call, &[]), [Step::End(Outcome::Pass)]);
}
