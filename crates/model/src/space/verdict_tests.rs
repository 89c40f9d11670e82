//! Whether a policy holds, and why not.

use ::policy::cause::Cause;
use ::policy::size::PageSize;
use trace::Call;

use super::tests::{M2, PLACE, advise, event, mmap, space, touched, write_all, written};
use super::*;

/// The holding, the covered and the concerned bytes, and the first cause with its bytes.
fn judged(space: &dyn Space) -> (String, u64, u64, Option<(Cause, Option<u64>)>) {
    let verdict = space.verdict().unwrap();
    let first = verdict.causes.first().map(|share| (share.cause.clone(), share.bytes));
    (verdict.holding.to_string(), verdict.covered_bytes, verdict.concerned_bytes, first)
}

#[test]
fn a_policy_on_aligned_memory_holds_on_every_machine() {
    for (machine, policy) in [
        ("cascade-lake", "base"),
        ("cascade-lake", "mthp-64k"),
        ("cascade-lake", "thp"),
        ("cascade-lake", "hugetlb-2m"),
        ("neoverse-n1", "contig-64k"),
        ("neoverse-n1", "base-64k"),
        ("neoverse-n1", "hugetlb-64k"),
        ("rva23", "base-64k"),
        // Two leaves; blocks where no leaf fits; base pages where no block fits.
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
fn what_is_not_mapped_as_asked_has_a_cause() {
    // Creates mappings and returns the range to write.
    type Make = fn(&mut dyn Space) -> (u64, u64);
    let cases: [(&str, Make, &str, Cause, u64); 8] = [
        ("thp", |space| mapped(space, PLACE, M2 / 2), "not held", Cause::MappingTooSmall, M2 / 2),
        ("mthp-64k", |space| mapped(space, PLACE, 32 << 10), "not held", Cause::MappingTooSmall, 32 << 10),
        ("hugetlb-1g", |space| mapped(space, PLACE, M2), "not held", Cause::MappingTooSmall, M2),
        ("thp", |space| mapped(space, PLACE + M2 / 2, M2), "not held", Cause::NoAlignedSlot, M2),
        ("thp", |space| mapped(space, PLACE + M2 / 2, 2 * M2), "partly", Cause::NoAlignedSlot, M2),
        (
            "thp",
            |space| {
                mapped_with(space, 0x2_0022, M2);
                (PLACE, M2)
            },
            "not held",
            Cause::AdvisedAgainst,
            M2,
        ),
        (
            "mthp-64k",
            |space| {
                // Each is too small to be advised, and the kernel merges them nevertheless.
                mmap(space, PLACE, 32 << 10);
                mapped(space, PLACE + (32 << 10), 32 << 10);
                (PLACE, 64 << 10)
            },
            "not held",
            Cause::MappedInPieces { advised_bytes: 64 << 10 },
            64 << 10,
        ),
        (
            "mthp-64k",
            |space| {
                mmap(space, PLACE, 64 << 10);
                space.access(PLACE, false).unwrap();
                (PLACE + 4096, 4096)
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

/// A mapping at [`PLACE`] with these flags.
fn mapped_with(space: &mut dyn Space, flags: u64, bytes: u64) {
    let call = Call::Mmap { address: PLACE, bytes, protection: 3, flags, file: -1, offset: 0, file_system: None };
    space.event(&event(call, PLACE)).unwrap();
}

/// Under a policy of large pages a program cannot disable them, as under `compare`. Where no kernel has the policy the
/// program's calls take effect, and PR_SET_THP_DISABLE persists across execve.
#[test]
fn calls_against_the_policy_are_answered() {
    let against = |space: &mut dyn Space| {
        space.event(&event(Call::Prctl { option: 41, argument: 1 }, 0)).unwrap();
        space.event(&event(Call::exec("a"), 0)).unwrap();
        mmap(space, PLACE, M2);
        advise(space, PLACE, M2 / 2, 15);
        write_all(space, PLACE, M2);
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

/// A slot that was touched when the mapping was too small, or not advised yet, does not become a large page.
#[test]
fn what_was_touched_early_is_said_to_be() {
    let mut space = space("cascade-lake", "mthp-64k", Physical::default());
    mmap(&mut *space, PLACE, 32 << 10);
    write_all(&mut *space, PLACE, 32 << 10);
    // It is advised together with the mapping that it merges with.
    mmap(&mut *space, PLACE + (32 << 10), 64 << 10);
    write_all(&mut *space, PLACE, 64 << 10);
    let early = Some((Cause::TouchedBeforeEligible, Some(64 << 10)));
    assert_eq!(judged(&*space), ("not held".to_owned(), 0, 64 << 10, early));
}

/// Guards are found as the tracer finds them: small, inside accessible memory, mapped over it, or left between parts of
/// a reservation.
#[test]
fn guards_are_those_that_the_tracer_finds() {
    let protect = |space: &mut dyn Space, page: u64, pages: u64, protection: u64| {
        let call = Call::Mprotect { address: PLACE + page * 4096, bytes: pages * 4096, protection };
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
    for (guard, said, covered) in cases {
        let mut space = space("cascade-lake", "thp+no-guards", Physical::default());
        mmap(&mut *space, PLACE, M2);
        guard(&mut *space, &protect);
        space.access(PLACE, true).unwrap();
        let verdict = space.verdict().unwrap();
        let answered: Vec<&str> = verdict.answered.iter().map(|one| one.call.as_str()).collect();
        assert_eq!((answered.concat().as_str(), verdict.covered_bytes), (said, covered));
        let is_said = verdict.causes.iter().any(|share| share.cause == Cause::NoGuardSeen);
        assert_eq!(is_said, said.is_empty());
    }
}

fn mapped_guard(space: &mut dyn Space) {
    let address = PLACE + 100 * 4096;
    let call = Call::Mmap { address, bytes: 4096, protection: 0, flags: 0x32, file: -1, offset: 0, file_system: None };
    space.event(&event(call, address)).unwrap();
}

/// Memory that `+prefault` populates, and memory that the program itself populates: not reservations, read-only memory
/// or stacks.
#[test]
fn what_is_populated_is_what_the_tracer_populates() {
    for (policy, protection, flags, populated) in [
        ("base+prefault", 3, 0x22, M2),
        ("base+prefault", 3, 0x4022, 0),
        ("base+prefault", 1, 0x22, 0),
        ("base+prefault", 3, 0x2_0022, 0),
        ("base", 3, 0x8022, M2),
        ("base", 3, 0x1_8022, 0),
        ("thp", 3, 0x8022, M2),
        // Inaccessible memory.
        ("base", 0, 0x8022, 0),
        ("mthp-64k", 0, 0x8022, 0),
        ("thp", 0, 0x8022, 0),
    ] {
        let mut space = space("cascade-lake", policy, Physical::default());
        let call = Call::Mmap { address: PLACE, bytes: M2, protection, flags, file: -1, offset: 0, file_system: None };
        space.event(&event(call, PLACE)).unwrap();
        assert_eq!(space.costs().anonymous_bytes, populated, "{policy} {protection} {flags:#x}");
    }
}

fn mapped(space: &mut dyn Space, begin: u64, bytes: u64) -> (u64, u64) {
    mmap(space, begin, bytes);
    (begin, bytes)
}

#[test]
fn memory_that_goes_is_looked_at_before() {
    for goes in [
        Call::Munmap { address: PLACE, bytes: M2 },
        Call::Madvise { address: PLACE, bytes: M2, advice: 4 },
        Call::Mmap { address: PLACE, bytes: M2, protection: 3, flags: 0x32, file: -1, offset: 0, file_system: None },
        Call::exec("a"),
    ] {
        let mut space = space("cascade-lake", "thp", Physical::default());
        assert_eq!(judged(&*space).3, Some((Cause::NothingToSee, None)));
        mmap(&mut *space, PLACE, M2);
        write_all(&mut *space, PLACE, M2);
        space.event(&event(goes, PLACE)).unwrap();
        assert_eq!(space.costs().anonymous_bytes, 0);
        assert_eq!(judged(&*space), ("held".to_owned(), M2, M2, None));
    }
}

#[test]
fn a_hole_cut_into_a_large_page_is_a_cause_and_so_is_memory_without_large_blocks() {
    let mut cut = space("cascade-lake", "thp", Physical::default());
    mmap(&mut *cut, PLACE, M2);
    write_all(&mut *cut, PLACE, M2);
    cut.event(&event(Call::Munmap { address: PLACE, bytes: 4096 }, 0)).unwrap();
    let (holding, covered, concerned, cause) = judged(&*cut);
    assert_eq!((holding.as_str(), cause), ("not held", Some((Cause::FolioPartlyMapped, Some(M2 - 4096)))));
    assert_eq!((covered, concerned), (4096, M2), "the page that went was part of a whole leaf then");

    let mut full = space("cascade-lake", "thp", Physical { fragmentation: 1.0, ..Physical::default() });
    mmap(&mut *full, PLACE, 2 * M2);
    write_all(&mut *full, PLACE, 2 * M2);
    let fallbacks = full.costs().allocation_fallbacks;
    let fell_back = Cause::AllocationFellBack { counter: "allocation_fallbacks".to_owned(), times: fallbacks };
    assert_eq!(judged(&*full).3, Some((fell_back, Some(2 * M2))));
}

/// The rest of a freed page counts with its former mapping, as in `compare`, until other memory is mapped there or the
/// process ends.
#[test]
fn a_page_that_goes_in_parts_goes_as_it_was() {
    for (policy, bytes) in [("thp", M2), ("mthp-64k", 64 << 10)] {
        let mut space = written("cascade-lake", policy, bytes);
        for half in [0, bytes / 2] {
            space.event(&event(Call::Munmap { address: PLACE + half, bytes: bytes / 2 }, 0)).unwrap();
        }
        let (_, covered, concerned, cause) = judged(&*space);
        // Inspecting a part of a folio that PTEs map finds only a part.
        let is_leaf = policy == "thp";
        let cut = (!is_leaf).then_some((Cause::FolioPartlyMapped, Some(bytes)));
        assert_eq!((covered, concerned, cause), (if is_leaf { bytes } else { 0 }, bytes, cut), "{policy}");
    }
}

/// A write after a fork copies base pages. On both sides this is the cause, and not that memory was cut.
#[test]
fn pages_that_a_fork_has_split_are_said_to_be() {
    for policy in ["thp", "mthp-64k"] {
        let mut space = written("cascade-lake", policy, 2 * M2);
        let child = space.fork().unwrap();
        assert!(space.enter(child));
        space.access(PLACE, true).unwrap();
        let (_, covered, concerned, cause) = judged(&*space);
        let split = if policy == "thp" { M2 } else { 64 << 10 };
        assert_eq!((covered, concerned), (4 * M2 - split, 4 * M2), "{policy}");
        assert_eq!(cause, Some((Cause::SplitAfterFork, Some(split))), "{policy}");
    }
}

/// Slots that held a page and were filled again do not count as touched early; an exhausted pool is reported as the cause.
#[test]
fn the_causes_are_those_of_a_running_kernel() {
    let mut refilled = written("cascade-lake", "thp", M2);
    advise(&mut *refilled, PLACE, M2 / 2, 4);
    write_all(&mut *refilled, PLACE, M2 / 2);
    let verdict = refilled.verdict().unwrap();
    let causes: Vec<(Cause, Option<u64>)> =
        verdict.causes.into_iter().map(|share| (share.cause, share.bytes)).collect();
    let half = Some(M2 / 2);
    assert_eq!(causes, [(Cause::RefilledAfterDrop, half), (Cause::FolioPartlyMapped, half)]);

    let mut empty = space("cascade-lake", "hugetlb-2m", Physical { fragmentation: 1.0, ..Physical::default() });
    mmap(&mut *empty, PLACE, M2);
    write_all(&mut *empty, PLACE, M2);
    assert_eq!(judged(&*empty).3, Some((Cause::PoolExhausted { size: PageSize::M2 }, Some(M2))));
}

#[test]
fn a_contiguous_block_that_was_unfolded_is_told_from_one_that_never_was() {
    let mut space = space("cortex-a57", "contig-64k", Physical::default());
    mmap(&mut *space, PLACE, 128 << 10);
    write_all(&mut *space, PLACE, 64 << 10);
    space.access(PLACE + (64 << 10), true).unwrap();
    let (_, covered, concerned, cause) = judged(&*space);
    assert_eq!((covered, concerned, cause), (64 << 10, 68 << 10, Some((Cause::SlotPartlyPresent, Some(4096)))));
    let call = Call::Mprotect { address: PLACE, bytes: 4096, protection: 1 };
    space.event(&event(call, 0)).unwrap();
    let (holding, covered, _, cause) = judged(&*space);
    assert_eq!((holding.as_str(), covered), ("not held", 0));
    assert_eq!(cause.map(|(cause, _)| cause), Some(Cause::LeafSplit));
}
