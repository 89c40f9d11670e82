//! Calls that no kernel allows, and VMA edges inside large leaves.

use super::tests::{M2, START, event, mmap, space, write_all, written};
use super::*;
use crate::costs::Costs;
use trace::Call;

const K64: u64 = 64 << 10;

/// Mapped bytes by leaf size.
fn leaves(space: &dyn Space) -> Vec<(u64, u64)> {
    space.census().unwrap().mapped_bytes.iter().map(|(size, bytes)| (size.leaf_bytes, *bytes)).collect()
}

/// Calls with addresses or lengths that no kernel accepts, and their recorded results.
fn refused() -> Vec<(Call, u64)> {
    const LAST: u64 = u64::MAX - 4095;
    let mmap =
        |bytes| Call::Mmap { address: 0, bytes, protection: 3, flags: 0x22, file: -1, offset: 0, file_system: None };
    let mremap =
        |address, old_bytes, new_bytes| Call::Mremap { address, old_bytes, new_bytes, flags: 1, new_address: 0 };
    vec![
        (mmap(4096), START + 1),
        (mmap(0), START + M2),
        (mmap(u64::MAX), START + M2),
        (mmap(4096), LAST - 4096),
        (Call::Munmap { address: START + 7, bytes: 4096 }, 0),
        (Call::Munmap { address: START, bytes: 0 }, 0),
        (Call::Munmap { address: LAST, bytes: u64::MAX }, 0),
        (Call::Mprotect { address: LAST, bytes: 8192, protection: 1 }, 0),
        (Call::Mprotect { address: START + 1, bytes: 4096, protection: 1 }, 0),
        (Call::Madvise { address: START + 1, bytes: M2, advice: 4 }, 0),
        (Call::Madvise { address: LAST, bytes: M2, advice: 14 }, 0),
        (Call::Madvise { address: START, bytes: u64::MAX, advice: 23 }, 0),
        (mremap(LAST, M2, M2), START + M2),
        (mremap(START, u64::MAX, M2), START + M2),
        (mremap(START, M2, u64::MAX), START + M2),
        (mremap(START, M2, M2), LAST - M2),
        (mremap(START, M2, M2), START + M2 + 1),
        (mremap(START + 1, 4096, 4096), START + M2),
        (mremap(START, M2, 0), START + M2),
        (mremap(START, M2, M2), START + 4096),
        (Call::Brk { address: 0 }, u64::MAX - 8191),
        (Call::Region { address: LAST, bytes: u64::MAX, protection: 3, name: String::new() }, 0),
    ]
}

#[test]
fn counts_and_ignores_calls_that_no_kernel_allows() {
    let policies = [
        ("cascade-lake", "base"),
        ("cascade-lake", "thp+prefault"),
        ("cascade-lake", "hugetlb-2m"),
        ("neoverse-n1", "contig-64k"),
        ("neoverse-n1", "base-64k"),
        ("sifive-u74", "base-64k"),
        ("neoverse-n1", "contig-64k+thp"),
        ("rva23", "base-64k+thp"),
    ];
    for (machine, policy) in policies {
        for (call, result) in refused() {
            let mut space = written(machine, policy, M2);
            let before = space.costs();
            space.event(&event(call.clone(), result)).unwrap();
            assert_eq!(space.costs(), Costs { refused_calls: 1, ..before.clone() }, "{machine} {policy} {call:?}");
            write_all(&mut *space, START, M2);
            assert_eq!(space.costs().faults(), before.faults(), "{machine} {policy} {call:?}");
        }
    }
}

#[test]
fn accepts_empty_ranges_that_kernels_allow() {
    let mut space = written("cascade-lake", "base", M2);
    let before = space.costs();
    space.event(&event(Call::Mprotect { address: START, bytes: 0, protection: 0 }, 0)).unwrap();
    space.event(&event(Call::Madvise { address: START, bytes: 0, advice: 4 }, 0)).unwrap();
    assert_eq!(space.costs(), before);
}

#[test]
fn advises_a_small_mapping_once_it_is_merged_with_its_neighbour() {
    let mut space = space("cascade-lake", "mthp-64k", Physical::default());
    // Each mapping has half a window: too small to be advised, although two adjacent mappings form a window.
    for half in 0..4 {
        mmap(&mut *space, START + half * (K64 / 2), K64 / 2);
    }
    write_all(&mut *space, START, K64);
    assert_eq!(space.costs().anonymous_faults, 16);
    mmap(&mut *space, START + 2 * K64, 2 * K64);
    write_all(&mut *space, START, 4 * K64);
    assert_eq!(space.costs().anonymous_faults, 16 + 3);
    // Small mappings above advised memory are not merged with it.
    mmap(&mut *space, START + 4 * K64, K64 / 2);
    mmap(&mut *space, START + 4 * K64 + K64 / 2, K64 / 2);
    write_all(&mut *space, START + 4 * K64, K64);
    assert_eq!(space.costs().anonymous_faults, 19 + 16);
    // A small mapping that grows is advised.
    let small = START + 16 * K64;
    mmap(&mut *space, small, K64 / 2);
    let grow = Call::Mremap { address: small, old_bytes: K64 / 2, new_bytes: 2 * K64, flags: 1, new_address: 0 };
    space.event(&event(grow, small)).unwrap();
    write_all(&mut *space, small, 2 * K64);
    assert_eq!(space.costs().anonymous_faults, 35 + 2);
}

#[test]
fn advises_adjacent_pieces_of_a_sixteenth_of_a_folio_but_not_smaller_ones() {
    let mut space = space("cascade-lake", "thp", Physical::default());
    for piece in 0..16 {
        mmap(&mut *space, START + piece * (M2 / 16), M2 / 16);
    }
    write_all(&mut *space, START, M2);
    assert_eq!(space.costs().anonymous_faults, 1);
    for piece in 0..32 {
        mmap(&mut *space, START + 2 * M2 + piece * (M2 / 32), M2 / 32);
    }
    write_all(&mut *space, START + 2 * M2, M2);
    assert_eq!(space.costs().anonymous_faults, 1 + 512);
}

#[test]
fn heap_shrinks_to_the_requested_end_and_grows_by_whole_folios() {
    let mut space = space("cascade-lake", "thp", Physical::default());
    let brk = |space: &mut dyn Space, end| space.event(&event(Call::Brk { address: end }, end)).unwrap();
    for end in [START, START + M2 + 4096, START + M2 / 2] {
        brk(&mut *space, end);
        write_all(&mut *space, START, end - START);
    }
    let costs = space.costs();
    assert_eq!((costs.anonymous_faults, costs.splits), (2, 1), "two folios, one of them split");
    assert_eq!(costs.anonymous_bytes, M2 / 2);
    // The heap's freed end is not inspected by `pagelab compare`.
    assert_eq!(space.left_out().concerned_bytes, 2 * M2 - M2 / 2);
    brk(&mut *space, START + M2 / 2 + 4096);
    space.access(START + M2, true).unwrap();
    assert_eq!((space.costs().anonymous_faults, space.costs().outside_bytes), (3, 4096), "up to the next folio only");
}

#[test]
fn refuses_brk_below_the_heap_or_into_a_mapping() {
    let mut space = space("cascade-lake", "thp", Physical::default());
    let brk = |space: &mut dyn Space, end| space.event(&event(Call::Brk { address: end }, end)).unwrap();
    let heap = START - (1 << 20);
    brk(&mut *space, heap);
    mmap(&mut *space, START, M2);
    write_all(&mut *space, START, M2);
    let before = space.costs();
    brk(&mut *space, heap - 4096);
    brk(&mut *space, START + 4096);
    assert_eq!(space.costs(), Costs { refused_calls: 2, ..before.clone() });
    // The heap grows in whole pages of 2M, but at most up to the next mapping.
    brk(&mut *space, heap + 4096);
    write_all(&mut *space, heap, 1 << 20);
    assert_eq!((space.costs().outside_bytes, space.costs().splits), (0, 0));
    assert_eq!(leaves(&*space), [(4096, 1 << 20), (M2, M2)]);
}

#[test]
fn refuses_to_populate_more_than_the_machines_memory() {
    let mut space = space("cascade-lake", "base", Physical { bytes: 1 << 30, ..Physical::default() });
    let call =
        Call::Mmap { address: 0, bytes: 1 << 45, protection: 3, flags: 0x8022, file: -1, offset: 0, file_system: None };
    let failed = space.event(&event(call, 1 << 40));
    assert_eq!(failed, Err(SpaceError::OutOfMemory { va: 1 << 40, base_bytes: 4096 }));
}

#[test]
fn counts_thp_leaves_when_mremap_moves_one_and_a_half() {
    let mut space = written("cascade-lake", "thp", 2 * M2);
    assert_eq!(space.costs().deposited_table_bytes, 2 * 4096);
    // Moves one and a half leaves by a multiple of 2M, so that the whole leaf stays whole.
    let (old, new, bytes) = (START + M2 / 2, START + 4 * M2 + M2 / 2, M2 + M2 / 2);
    let call = Call::Mremap { address: old, old_bytes: bytes, new_bytes: bytes, flags: 1, new_address: 0 };
    space.event(&event(call, new)).unwrap();
    assert_eq!(leaves(&*space), [(4096, M2), (M2, M2)]);
    assert_eq!(space.costs().deposited_table_bytes, 4096);
    for begin in [START, START + 4 * M2] {
        space.event(&event(Call::Munmap { address: begin, bytes: 2 * M2 }, 0)).unwrap();
    }
    assert_eq!((space.costs().deposited_table_bytes, space.costs().table_bytes), (0, 4096));
}

#[test]
fn a_vma_edge_inside_a_leaf_splits_the_leaf() {
    let advise = |space: &mut dyn Space, begin, bytes, advice| {
        space.event(&event(Call::Madvise { address: begin, bytes, advice }, 0)).unwrap();
    };
    // No call created this memory. Advice on a part of it splits its VMA.
    let mut space = space("cascade-lake", "thp", Physical::default());
    space.assume(START, START + 4 * M2).unwrap();
    write_all(&mut *space, START, 4 * M2);
    // An edge between two leaves splits nothing. Advice or a protection that the memory already has splits nothing either.
    advise(&mut *space, START, M2, 14);
    advise(&mut *space, START, M2 / 2, 14);
    space.event(&event(Call::Mprotect { address: START + M2, bytes: M2 / 2, protection: 7 }, 0)).unwrap();
    assert_eq!((space.costs().splits, leaves(&*space)), (0, vec![(M2, 4 * M2)]));
    space.take_invalidations();
    advise(&mut *space, START + M2 + M2 / 2, M2, 14);
    assert_eq!((space.costs().splits, leaves(&*space)), (2, vec![(4096, 2 * M2), (M2, 2 * M2)]));
    assert_eq!(space.costs().deposited_table_bytes, 2 * 4096);
    assert_eq!(space.take_invalidations().len(), 2);
    // The child has the same leaves and the same number of deposited tables.
    let child = space.fork().unwrap();
    assert_eq!(leaves(&*space), [(4096, 4 * M2), (M2, 4 * M2)]);
    assert_eq!((space.costs().deposited_table_bytes, space.costs().splits), (4 * 4096, 2));
    space.end(child).unwrap();
    space.event(&event(Call::Munmap { address: START, bytes: 4 * M2 }, 0)).unwrap();
    assert_eq!((space.costs().deposited_table_bytes, space.costs().table_bytes), (0, 4096));
}

#[test]
fn fork_copies_a_base_page_of_two_vmas_once() {
    let mut space = written("neoverse-n1", "base-64k", 256 << 10);
    space.event(&event(Call::Mprotect { address: START, bytes: 100 << 10, protection: 1 }, 0)).unwrap();
    space.fork().unwrap();
    assert_eq!(space.costs().anonymous_bytes, 2 * (256 << 10));
}

#[test]
fn exit_also_frees_memory_without_a_vma() {
    let mut space = written("cascade-lake", "base", M2);
    let before = space.costs();
    let child = space.fork().unwrap();
    space.enter(child);
    space.access(START + 8 * M2, true).unwrap();
    space.enter(0);
    space.end(child).unwrap();
    let after = space.costs();
    assert_eq!((after.outside_bytes, after.anonymous_bytes), (4096, before.anonymous_bytes));
}

#[test]
fn the_peak_of_all_tables_is_the_peak_of_their_sum() {
    const M64: u64 = 64 << 20;
    let mut space = space("cascade-lake", "thp", Physical::default());
    // A stack (MAP_STACK) has base pages.
    let stack = Call::Mmap {
        address: START,
        bytes: M64,
        protection: 3,
        flags: 0x2_0022,
        file: -1,
        offset: 0,
        file_system: None,
    };
    space.event(&event(stack, START)).unwrap();
    write_all(&mut *space, START, M64);
    // Three upper tables and 32 lowest-level tables. Later, 32 deposited tables replace the latter.
    assert_eq!(space.costs().all_table_peak_bytes, 35 * 4096);
    mmap(&mut *space, START, M64);
    write_all(&mut *space, START, M64);
    let costs = space.costs();
    assert_eq!((costs.table_peak_bytes, costs.deposited_table_bytes), (35 * 4096, 32 * 4096));
    assert_eq!(costs.all_table_peak_bytes, 35 * 4096);
}
