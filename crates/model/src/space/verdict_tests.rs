//! Tests whether a policy holds, and which causes are reported if it does not.

use ::policy::cause::Cause;
use ::policy::size::PageSize;
use trace::Call;

use super::tests::{M2, START, advise, event, mmap, space, touched, write_all, written};
use super::*;

/// Whether the policy held, the covered and the concerned bytes, and the first cause with its bytes.
fn judged(space: &dyn Space) -> (String, u64, u64, Option<(Cause, Option<u64>)>) {
    let verdict = space.verdict().unwrap();
    let first = verdict.causes.first().map(|share| (share.cause.clone(), share.bytes));
    (verdict.holding.to_string(), verdict.covered_bytes, verdict.concerned_bytes, first)
}

#[test]
fn policies_hold_on_aligned_memory_on_every_machine() {
    for (machine, policy) in [
        ("cascade-lake", "base"),
        ("cascade-lake", "mthp-64k"),
        ("cascade-lake", "thp"),
        ("cascade-lake", "hugetlb-2m"),
        ("neoverse-n1", "contig-64k"),
        ("neoverse-n1", "base-64k"),
        ("neoverse-n1", "hugetlb-64k"),
        ("rva23", "base-64k"),
        // Policies that try THP first, then blocks of 64K or base pages of 64K.
        ("rva23", "base-64k+thp"),
        ("neoverse-n1", "contig-64k+thp"),
        ("neoverse-n1", "base-64k+thp"),
        ("apple-m1", "thp"),
    ] {
        let all = (64 << 20, 64 << 20, None);
        let (holding, covered, concerned, cause) = judged(&*touched(machine, policy));
        assert_eq!((covered, concerned, cause), all, "{machine} {policy}");
        assert_eq!(holding, "held", "{machine} {policy}");
    }
}

#[test]
fn names_a_cause_for_memory_not_mapped_as_requested() {
    // Creates mappings and returns the range to write: first address and bytes.
    type Make = fn(&mut dyn Space) -> (u64, u64);
    let cases: [(&str, Make, &str, Cause, u64); 8] = [
        ("thp", |space| mapped(space, START, M2 / 2), "not held", Cause::MappingTooSmall, M2 / 2),
        ("mthp-64k", |space| mapped(space, START, 32 << 10), "not held", Cause::MappingTooSmall, 32 << 10),
        ("hugetlb-1g", |space| mapped(space, START, M2), "not held", Cause::MappingTooSmall, M2),
        ("thp", |space| mapped(space, START + M2 / 2, M2), "not held", Cause::NoAlignedSlot, M2),
        ("thp", |space| mapped(space, START + M2 / 2, 2 * M2), "partly", Cause::NoAlignedSlot, M2),
        (
            "thp",
            |space| {
                mapped_with(space, 0x2_0022, M2);
                (START, M2)
            },
            "not held",
            Cause::AdvisedAgainst,
            M2,
        ),
        (
            "mthp-64k",
            |space| {
                // Each mapping is too small to be advised, but the kernel merges the two.
                mmap(space, START, 32 << 10);
                mapped(space, START + (32 << 10), 32 << 10);
                (START, 64 << 10)
            },
            "not held",
            Cause::MappedInPieces { advised_bytes: 64 << 10 },
            64 << 10,
        ),
        (
            "mthp-64k",
            |space| {
                mmap(space, START, 64 << 10);
                space.access(START, false).unwrap();
                (START + 4096, 4096)
            },
            "not held",
            Cause::ZeroPageInSlot,
            4096,
        ),
    ];
    for (policy, make, holding, cause, bytes) in cases {
        let mut space = space("cascade-lake", policy, Physical::default());
        let (begin, written) = make(&mut *space);
        write_all(&mut *space, begin, written);
        let (found, _, _, first) = judged(&*space);
        assert_eq!((found.as_str(), first), (holding, Some((cause, Some(bytes)))), "{policy}");
    }
}

/// Creates a mapping at [`START`] with these flags.
fn mapped_with(space: &mut dyn Space, flags: u64, bytes: u64) {
    let call = Call::Mmap { address: START, bytes, protection: 3, flags, file: -1, offset: 0, file_system: None };
    space.event(&event(call, START)).unwrap();
}

/// A program cannot disable the large pages of a policy, as under `compare`. Under the proposal of 2016, which no kernel has,
/// the program's calls take effect, and PR_SET_THP_DISABLE persists across execve.
#[test]
fn calls_against_the_policy_are_answered() {
    let against = |space: &mut dyn Space| {
        space.event(&event(Call::Prctl { option: 41, argument: 1 }, 0)).unwrap();
        space.event(&event(Call::exec("a"), 0)).unwrap();
        mmap(space, START, M2);
        advise(space, START, M2 / 2, 15);
        write_all(space, START, M2);
    };
    for policy in ["thp", "mthp-64k"] {
        let mut space = space("cascade-lake", policy, Physical::default());
        against(&mut *space);
        let verdict = space.verdict().unwrap();
        let answered: Vec<(&str, u64)> = verdict.answered.iter().map(|one| (one.call.as_str(), one.times)).collect();
        assert_eq!(answered, [("madvise(MADV_NOHUGEPAGE)", 1), ("prctl(PR_SET_THP_DISABLE, 1)", 1)], "{policy}");
        assert_eq!((verdict.covered_bytes, verdict.causes), (M2, vec![]), "{policy}");
    }
    let mut proposal = space("cortex-a57", "contig-64k", Physical::default());
    against(&mut *proposal);
    assert_eq!((proposal.costs().folds, judged(&*proposal).1), (0, 0));
}

/// A slot that was touched before its mapping was advised does not become a large page.
#[test]
fn reports_memory_touched_before_it_was_advised() {
    let mut space = space("cascade-lake", "mthp-64k", Physical::default());
    mmap(&mut *space, START, 32 << 10);
    write_all(&mut *space, START, 32 << 10);
    // The next mapping merges with the first, and both are advised together.
    mmap(&mut *space, START + (32 << 10), 64 << 10);
    write_all(&mut *space, START, 64 << 10);
    let early = Some((Cause::TouchedBeforeEligible, Some(64 << 10)));
    assert_eq!(judged(&*space), ("not held".to_owned(), 0, 64 << 10, early));
}

/// A guard page is a small inaccessible range: protected inside accessible memory, mapped over it, or left inaccessible between
/// the accessible parts of a reservation.
#[test]
fn finds_the_same_guard_pages_as_the_tracer() {
    let protect = |space: &mut dyn Space, page: u64, pages: u64, protection: u64| {
        let call = Call::Mprotect { address: START + page * 4096, bytes: pages * 4096, protection };
        space.event(&event(call, 0)).unwrap();
    };
    type Guard = fn(&mut dyn Space, &dyn Fn(&mut dyn Space, u64, u64, u64));
    let cases: [(Guard, &str, u64); 4] = [
        (|space, protect| protect(space, 100, 16, 0), "mprotect(PROT_NONE) of a guard page", M2),
        (|space, protect| protect(space, 100, 17, 0), "", 0),
        (|space, _| mapped_guard(space), "mmap(PROT_NONE, MAP_FIXED) of a guard page", M2),
        (
            |space, protect| {
                protect(space, 0, 512, 0);
                protect(space, 0, 255, 3);
                protect(space, 256, 256, 3);
            },
            "mprotect that left a guard page closed, widened over it",
            M2,
        ),
    ];
    for (guard, expected, covered) in cases {
        let mut space = space("cascade-lake", "thp+no-guards", Physical::default());
        mmap(&mut *space, START, M2);
        guard(&mut *space, &protect);
        space.access(START, true).unwrap();
        let verdict = space.verdict().unwrap();
        let answered: Vec<&str> = verdict.answered.iter().map(|one| one.call.as_str()).collect();
        assert_eq!((answered.concat().as_str(), verdict.covered_bytes), (expected, covered));
        let has_no_guard_cause = verdict.causes.iter().any(|share| share.cause == Cause::NoGuardSeen);
        assert_eq!(has_no_guard_cause, expected.is_empty());
    }
}

fn mapped_guard(space: &mut dyn Space) {
    let address = START + 100 * 4096;
    let call = Call::Mmap { address, bytes: 4096, protection: 0, flags: 0x32, file: -1, offset: 0, file_system: None };
    space.event(&event(call, address)).unwrap();
}

/// `+prefault` populates neither reservations, nor read-only memory, nor stacks. The program can populate memory too.
#[test]
fn populates_the_same_ranges_as_the_tracer() {
    for (policy, protection, flags, populated) in [
        ("base+prefault", 3, 0x22, M2),
        ("base+prefault", 3, 0x4022, 0),
        ("base+prefault", 1, 0x22, 0),
        ("base+prefault", 3, 0x2_0022, 0),
        ("base", 3, 0x8022, M2),
        ("base", 3, 0x1_8022, 0),
        ("thp", 3, 0x8022, M2),
        // Inaccessible memory is not populated.
        ("base", 0, 0x8022, 0),
        ("mthp-64k", 0, 0x8022, 0),
        ("thp", 0, 0x8022, 0),
    ] {
        let mut space = space("cascade-lake", policy, Physical::default());
        let call = Call::Mmap { address: START, bytes: M2, protection, flags, file: -1, offset: 0, file_system: None };
        space.event(&event(call, START)).unwrap();
        assert_eq!(space.costs().anonymous_bytes, populated, "{policy} {protection} {flags:#x}");
    }
}

fn mapped(space: &mut dyn Space, begin: u64, bytes: u64) -> (u64, u64) {
    mmap(space, begin, bytes);
    (begin, bytes)
}

#[test]
fn inspects_memory_before_it_is_freed() {
    for freeing_call in [
        Call::Munmap { address: START, bytes: M2 },
        Call::Madvise { address: START, bytes: M2, advice: 4 },
        Call::Mmap { address: START, bytes: M2, protection: 3, flags: 0x32, file: -1, offset: 0, file_system: None },
        Call::exec("a"),
    ] {
        let mut space = space("cascade-lake", "thp", Physical::default());
        assert_eq!(judged(&*space).3, Some((Cause::NothingToSee, None)));
        mmap(&mut *space, START, M2);
        write_all(&mut *space, START, M2);
        space.event(&event(freeing_call, START)).unwrap();
        assert_eq!(space.costs().anonymous_bytes, 0);
        assert_eq!(judged(&*space), ("held".to_owned(), M2, M2, None));
    }
}

#[test]
fn reports_holes_in_large_pages_and_failed_allocations() {
    let mut cut = space("cascade-lake", "thp", Physical::default());
    mmap(&mut *cut, START, M2);
    write_all(&mut *cut, START, M2);
    cut.event(&event(Call::Munmap { address: START, bytes: 4096 }, 0)).unwrap();
    let (holding, covered, concerned, cause) = judged(&*cut);
    assert_eq!((holding.as_str(), cause), ("not held", Some((Cause::FolioPartlyMapped, Some(M2 - 4096)))));
    assert_eq!((covered, concerned), (4096, M2), "the freed page was part of a whole leaf when it was freed");

    let mut full = space("cascade-lake", "thp", Physical { fragmentation: 1.0, ..Physical::default() });
    mmap(&mut *full, START, 2 * M2);
    write_all(&mut *full, START, 2 * M2);
    let fallbacks = full.costs().allocation_fallbacks;
    let fell_back = Cause::AllocationFellBack { counter: "allocation_fallbacks".to_owned(), times: fallbacks };
    assert_eq!(judged(&*full).3, Some((fell_back, Some(2 * M2))));
}

/// The remains of a partly freed large page count with their former mapping, as in `compare`, until other memory is mapped
/// there or the process ends.
#[test]
fn a_page_freed_in_parts_counts_as_it_was_mapped() {
    for (policy, bytes) in [("thp", M2), ("mthp-64k", 64 << 10)] {
        let mut space = written("cascade-lake", policy, bytes);
        for half in [0, bytes / 2] {
            space.event(&event(Call::Munmap { address: START + half, bytes: bytes / 2 }, 0)).unwrap();
        }
        let (_, covered, concerned, cause) = judged(&*space);
        // If PTEs map a folio, inspecting a part of it finds only that part.
        let is_leaf = policy == "thp";
        let cut = (!is_leaf).then_some((Cause::FolioPartlyMapped, Some(bytes)));
        assert_eq!((covered, concerned, cause), (if is_leaf { bytes } else { 0 }, bytes, cut), "{policy}");
    }
}

/// A write after a fork copies base pages. The cause is the fork and not a partly freed folio, as in `compare`.
#[test]
fn reports_pages_split_by_a_fork() {
    for policy in ["thp", "mthp-64k"] {
        let mut space = written("cascade-lake", policy, 2 * M2);
        let child = space.fork().unwrap();
        assert!(space.enter(child));
        space.access(START, true).unwrap();
        let (_, covered, concerned, cause) = judged(&*space);
        let split = if policy == "thp" { M2 } else { 64 << 10 };
        assert_eq!((covered, concerned), (4 * M2 - split, 4 * M2), "{policy}");
        assert_eq!(cause, Some((Cause::SplitAfterFork, Some(split))), "{policy}");
    }
}

/// A slot that was dropped and filled again does not count as touched early. An exhausted pool is a cause.
#[test]
fn reports_refilled_slots_and_exhausted_pools() {
    let mut refilled = written("cascade-lake", "thp", M2);
    advise(&mut *refilled, START, M2 / 2, 4);
    write_all(&mut *refilled, START, M2 / 2);
    let verdict = refilled.verdict().unwrap();
    let causes: Vec<(Cause, Option<u64>)> =
        verdict.causes.into_iter().map(|share| (share.cause, share.bytes)).collect();
    let half = Some(M2 / 2);
    assert_eq!(causes, [(Cause::RefilledAfterDrop, half), (Cause::FolioPartlyMapped, half)]);

    let mut empty = space("cascade-lake", "hugetlb-2m", Physical { fragmentation: 1.0, ..Physical::default() });
    mmap(&mut *empty, START, M2);
    write_all(&mut *empty, START, M2);
    assert_eq!(judged(&*empty).3, Some((Cause::PoolExhausted { size: PageSize::M2 }, Some(M2))));
}

#[test]
fn distinguishes_unfolded_contiguous_blocks_from_never_folded_ones() {
    let mut space = space("cortex-a57", "contig-64k", Physical::default());
    mmap(&mut *space, START, 128 << 10);
    write_all(&mut *space, START, 64 << 10);
    space.access(START + (64 << 10), true).unwrap();
    let (_, covered, concerned, cause) = judged(&*space);
    assert_eq!((covered, concerned, cause), (64 << 10, 68 << 10, Some((Cause::SlotPartlyPresent, Some(4096)))));
    let call = Call::Mprotect { address: START, bytes: 4096, protection: 1 };
    space.event(&event(call, 0)).unwrap();
    let (holding, covered, _, cause) = judged(&*space);
    assert_eq!((holding.as_str(), covered), ("not held", 0));
    assert_eq!(cause.map(|(cause, _)| cause), Some(Cause::LeafSplit));
}
