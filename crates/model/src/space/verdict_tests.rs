//! Whether a policy holds, and why not.

use study::cause::Cause;
use study::size::PageSize;
use trace::Call;

use super::tests::{M2, PLACE, advise, event, mmap, space, touched, write_all, written};
use super::*;

/// The holding, covered and concerned bytes, and the first cause with its bytes.
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
    // Makes mappings and says what of them is to be written.
    type Make = fn(&mut dyn Space) -> (u64, u64);
    let cases: [(&str, Make, &str, Cause, u64); 10] = [
        ("thp", |space| mapped(space, PLACE, M2 / 2), "not held", Cause::MappingTooSmall, M2 / 2),
        ("mthp-64k", |space| mapped(space, PLACE, 32 << 10), "not held", Cause::MappingTooSmall, 32 << 10),
        ("hugetlb-1g", |space| mapped(space, PLACE, M2), "not held", Cause::MappingTooSmall, M2),
        ("thp", |space| mapped(space, PLACE + M2 / 2, M2), "not held", Cause::NoAlignedSlot, M2),
        ("thp", |space| mapped(space, PLACE + M2 / 2, 2 * M2), "partly", Cause::NoAlignedSlot, M2),
        (
            "thp",
            |space| {
                mmap(space, PLACE, M2);
                advise(space, PLACE, M2, 15);
                (PLACE, M2)
            },
            "not held",
            Cause::AdvisedAgainst,
            M2,
        ),
        (
            "thp",
            |space| {
                space.event(&event(Call::Prctl { option: 41, argument: 1 }, 0)).unwrap();
                mapped(space, PLACE, M2)
            },
            "not held",
            Cause::DisabledForProcess,
            M2,
        ),
        (
            "mthp-64k",
            |space| {
                mmap(space, PLACE, 64 << 10);
                advise(space, PLACE, 64 << 10, 15);
                space.access(PLACE, true).unwrap();
                advise(space, PLACE, 64 << 10, 14);
                (PLACE, 64 << 10)
            },
            "not held",
            Cause::TouchedBeforeEligible,
            64 << 10,
        ),
        (
            "mthp-64k",
            |space| {
                // Each is too small to be advised, and the kernel joins them all the same.
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

fn mapped(space: &mut dyn Space, begin: u64, bytes: u64) -> (u64, u64) {
    mmap(space, begin, bytes);
    (begin, bytes)
}

#[test]
fn memory_that_goes_is_looked_at_before() {
    for goes in [
        Call::Munmap { address: PLACE, bytes: M2 },
        Call::Madvise { address: PLACE, bytes: M2, advice: 4 },
        Call::Mmap { address: PLACE, bytes: M2, protection: 3, flags: 0x32, file: -1, offset: 0 },
        Call::Exec { program: "a".into() },
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

/// What is left of a page counts as it was before, as `compare` counts it, until something else is there or the process ends.
#[test]
fn a_page_that_goes_in_parts_goes_as_it_was() {
    for (policy, bytes) in [("thp", M2), ("mthp-64k", 64 << 10)] {
        let mut space = written("cascade-lake", policy, bytes);
        for half in [0, bytes / 2] {
            space.event(&event(Call::Munmap { address: PLACE + half, bytes: bytes / 2 }, 0)).unwrap();
        }
        let (_, covered, concerned, cause) = judged(&*space);
        // Of a folio that PTEs map a look at a part of it finds a part.
        let is_leaf = policy == "thp";
        let cut = (!is_leaf).then_some((Cause::FolioPartlyMapped, Some(bytes)));
        assert_eq!((covered, concerned, cause), (if is_leaf { bytes } else { 0 }, bytes, cut), "{policy}");
    }
}

/// A write after a fork copies base pages: on both sides that is the cause, and not that memory was cut.
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

/// Slots that held a page and were filled again are not called touched early; a pool without pages is named.
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
