//! Compares fork, reclaim, the direct map and the heap with numbers worked out by hand.

use super::tests::{M2, START, event, mmap, space, write_all, written};
use super::*;
use crate::address::Pa;
use trace::Call;

pub(super) fn groups(space: &dyn Space) -> Vec<(u64, u64, u64)> {
    let census = space.census().unwrap();
    census.mapped_bytes.iter().map(|(size, bytes)| (size.leaf_bytes, size.group_bytes, *bytes)).collect()
}

#[test]
fn copies_a_page_at_the_first_write_after_a_fork() {
    for policy in ["base", "mthp-64k"] {
        let mut space = written("cascade-lake", policy, M2);
        let before = space.costs();
        let child = space.fork().unwrap();
        let forked = space.costs();
        // The same memory is mapped twice, by two sets of tables.
        assert_eq!((forked.faults(), forked.zeroed_bytes), (before.faults(), before.zeroed_bytes));
        assert_eq!((forked.anonymous_bytes, forked.table_bytes), (2 * M2, 2 * before.table_bytes));
        assert!(!space.take_invalidations().is_empty());
        assert!(space.enter(child));
        write_all(&mut *space, START, M2 / 4);
        let wrote = space.costs();
        assert_eq!((wrote.write_faults - forked.write_faults, wrote.copied_bytes), (128, M2 / 4), "{policy}");
        // Only the parent still has the first page; both still have the last one.
        assert!(space.enter(0));
        space.access(START, true).unwrap();
        assert_eq!((space.costs().write_faults - wrote.write_faults, space.costs().copied_bytes), (1, M2 / 4));
        space.access(START + M2 - 8, true).unwrap();
        assert_eq!(space.costs().copied_bytes, M2 / 4 + 4096);
        // After the child has ended, its parent's pages are exclusive to the parent.
        space.end(child).unwrap();
        assert!(!space.enter(child));
        let ended = space.costs();
        assert_eq!((ended.anonymous_bytes, ended.table_bytes), (M2, before.table_bytes));
        write_all(&mut *space, START, M2);
        assert_eq!(space.costs().copied_bytes, ended.copied_bytes);
        assert_eq!(space.costs().write_faults - ended.write_faults, 510, "{policy}");
        let ends: u64 = space.census_at_ends().unwrap().mapped_bytes.values().sum();
        assert_eq!(ends, 2 * M2);
    }
}

#[test]
fn fork_copies_the_tables_of_the_vdso_without_entries() {
    const G: u64 = 1 << 30;
    for (is_read, more_tables) in [(false, 0), (true, 1)] {
        let mut space = written("cascade-lake", "base", M2);
        let call = Call::Region { address: START + G, bytes: 4096, protection: 1, name: "[vdso]".into() };
        space.event(&event(call, 0)).unwrap();
        let before = space.costs().table_bytes;
        if is_read {
            space.access(START + G, false).unwrap();
        }
        let read = space.costs();
        // A read adds two tables: the one with the leaf, and the one above it.
        assert_eq!(read.table_bytes - before, 2 * more_tables * 4096);
        let child = space.fork().unwrap();
        assert!(space.enter(child));
        assert_eq!(space.costs().table_bytes, 2 * read.table_bytes);
        assert_eq!(space.costs().anonymous_bytes, 2 * read.anonymous_bytes);
    }
}

#[test]
fn a_write_after_a_fork_splits_the_shared_huge_page() {
    let mut space = written("cascade-lake", "thp", 2 * M2);
    let child = space.fork().unwrap();
    assert_eq!(groups(&*space), [(M2, M2, 4 * M2)]);
    assert_eq!(space.costs().deposited_table_bytes, 4 * 4096);
    space.enter(child);
    space.access(START + 4096, true).unwrap();
    let costs = space.costs();
    assert_eq!((costs.write_faults, costs.copied_bytes, costs.splits), (1, 4096, 1));
    assert_eq!(groups(&*space), [(4096, 4096, M2), (M2, M2, 3 * M2)]);
    // A second write to the same huge page does not split it again.
    space.access(START + 8192, true).unwrap();
    assert_eq!((space.costs().copied_bytes, space.costs().splits), (8192, 1));
    space.enter(0);
    space.end(child).unwrap();
    // After the child has ended, one fault each makes the parent's huge pages writable.
    let before = space.costs().write_faults;
    write_all(&mut *space, START, 2 * M2);
    assert_eq!((space.costs().write_faults - before, space.costs().copied_bytes), (2, 8192));
    assert_eq!(groups(&*space), [(M2, M2, 2 * M2)]);
}

#[test]
fn fork_keeps_contiguous_groups_and_a_write_unfolds_one() {
    let mut space = written("neoverse-n1", "mthp-64k", 1 << 20);
    let child = space.fork().unwrap();
    assert_eq!(groups(&*space), [(4096, 65536, 2 << 20)]);
    space.enter(child);
    space.access(START, true).unwrap();
    assert_eq!((space.costs().unfolds, space.costs().copied_bytes), (1, 4096));
    assert_eq!(groups(&*space), [(4096, 4096, 65536), (4096, 65536, (2 << 20) - 65536)]);
}

#[test]
fn copy_on_write_copies_a_whole_pool_page() {
    let mut space = written("cascade-lake", "hugetlb-2m", 2 * M2);
    let child = space.fork().unwrap();
    space.enter(child);
    write_all(&mut *space, START, M2);
    let costs = space.costs();
    assert_eq!((costs.write_faults, costs.copied_bytes, costs.zeroed_bytes), (1, M2, 2 * M2));
    assert_eq!(groups(&*space), [(M2, M2, 4 * M2)]);
}

#[test]
fn a_pool_page_stays_whole_after_munmap_of_a_part() {
    let unmap = |space: &mut dyn Space| {
        space.event(&event(Call::Munmap { address: START, bytes: M2 / 2 }, 0)).unwrap();
    };
    let mut space = written("cascade-lake", "hugetlb-2m", M2);
    unmap(&mut *space);
    // No other process maps the hugetlb page, so its remaining half becomes writable again.
    space.event(&event(Call::Mprotect { address: START + M2 / 2, bytes: M2 / 2, protection: 1 }, 0)).unwrap();
    space.event(&event(Call::Mprotect { address: START + M2 / 2, bytes: M2 / 2, protection: 3 }, 0)).unwrap();
    space.access(START + M2 - 4096, true).unwrap();
    let costs = space.costs();
    assert_eq!((costs.write_faults, costs.copied_bytes, costs.anonymous_bytes), (1, 0, M2));
    let mut space = written("cascade-lake", "hugetlb-2m", M2);
    let child = space.fork().unwrap();
    space.enter(child);
    unmap(&mut *space);
    // This mapping is too small for a hugetlb page, so it gets ordinary memory at another address.
    mmap(&mut *space, START, M2 / 2);
    write_all(&mut *space, START, M2);
    assert_eq!((space.costs().copied_bytes, space.costs().anonymous_bytes), (M2, 2 * M2 + M2 / 2));
}

#[test]
fn parent_and_child_have_the_same_shared_memory() {
    let mut space = space("cascade-lake", "base", Physical::default());
    let call = Call::Mmap {
        address: START,
        bytes: 1 << 20,
        protection: 3,
        flags: 0x21,
        file: -1,
        offset: 0,
        file_system: None,
    };
    space.event(&event(call, START)).unwrap();
    write_all(&mut *space, START, 64 << 10);
    let child = space.fork().unwrap();
    space.enter(child);
    write_all(&mut *space, START, 128 << 10);
    let costs = space.costs();
    assert_eq!((costs.anonymous_faults, costs.zeroed_bytes, costs.copied_bytes), (16 + 32, 128 << 10, 0));
}

#[test]
fn swaps_out_when_memory_is_short_and_swaps_in_on_access() {
    let limit = Physical { bytes: 1 << 20, ..Physical::default() };
    for (policy, swapped_pages) in [("base", 512), ("mthp-64k", 512), ("thp", 512)] {
        let mut space = space("cascade-lake", policy, limit);
        mmap(&mut *space, START, M2);
        write_all(&mut *space, START, M2);
        let costs = space.costs();
        assert!(costs.anonymous_bytes <= 1 << 20, "{policy}: {}", costs.anonymous_bytes);
        assert!(costs.resident_peak_bytes <= 1 << 20);
        assert!(costs.swapped_out_bytes >= 1 << 20 && costs.swap_faults == 0, "{policy}: {costs:?}");
        // Sequential access reclaims every page before it is touched again: the worst case of the clock algorithm.
        write_all(&mut *space, START, M2);
        let again = space.costs();
        let missing = 512 - costs.anonymous_bytes / 4096;
        assert!((missing..=swapped_pages).contains(&again.swap_faults), "{policy}: {}", again.swap_faults);
        assert_eq!(again.faults(), costs.faults());
        assert_eq!(again.zeroed_bytes, costs.zeroed_bytes, "{policy}");
        // Unmapping also frees the swap slots.
        space.event(&event(Call::Munmap { address: START, bytes: M2 }, 0)).unwrap();
        mmap(&mut *space, START, M2);
        space.access(START, true).unwrap();
        assert_eq!(space.costs().swap_faults, again.swap_faults);
    }
}

#[test]
fn keeps_recently_used_pages_in_memory() {
    let mut space = space("cascade-lake", "base", Physical { bytes: 1 << 20, ..Physical::default() });
    mmap(&mut *space, START, 16 * M2);
    // One page is used all the time; the other pages are streamed through once.
    for page in 1..4096 {
        space.access(START + page * 4096, true).unwrap();
        space.access(START, true).unwrap();
    }
    // Touches before the first reclaim are not recorded, so the page may be reclaimed once, but never again.
    assert!(space.costs().swap_faults <= 1, "{:?}", space.costs());
    assert!(!space.take_cleared_accessed().is_empty());
}

#[test]
fn reclaim_unfolds_groups_and_splits_huge_pages() {
    let mut space = space("neoverse-n1", "contig-64k", Physical { bytes: 1 << 20, ..Physical::default() });
    mmap(&mut *space, START, M2);
    write_all(&mut *space, START, M2);
    let costs = space.costs();
    assert!(costs.unfolds > 0 && costs.swapped_out_bytes >= 1 << 20, "{costs:?}");
    let mut space = super::tests::space("cascade-lake", "thp", Physical { bytes: 2 * M2, ..Physical::default() });
    mmap(&mut *space, START, 4 * M2);
    write_all(&mut *space, START, 3 * M2);
    let costs = space.costs();
    assert!(costs.splits > 0 && costs.swapped_out_bytes >= M2, "{costs:?}");
}

#[test]
fn splits_partly_mapped_folios_before_it_swaps() {
    let mut space = space("cascade-lake", "thp", Physical { bytes: 2 * M2, ..Physical::default() });
    mmap(&mut *space, START, 8 * M2);
    write_all(&mut *space, START, 2 * M2);
    space.event(&event(Call::Munmap { address: START, bytes: M2 / 2 }, 0)).unwrap();
    assert_eq!(space.costs().unmapped_bytes, M2 / 2);
    write_all(&mut *space, START + 2 * M2, M2 / 2);
    let costs = space.costs();
    assert_eq!((costs.folio_splits, costs.unmapped_bytes, costs.swapped_out_bytes), (1, 0, 0));
}

#[test]
fn falls_back_to_a_smaller_enabled_folio() {
    let kernel = Kernel { smaller_folios: vec![16 << 10, 32 << 10], ..Kernel::default() };
    let mut space = space("cascade-lake", "mthp-64k", Physical::default());
    space.set_kernel(kernel);
    // A mapping of 48K contains no window of 64K, but one of 32K and one of 16K.
    mmap(&mut *space, START, 48 << 10);
    write_all(&mut *space, START, 48 << 10);
    assert_eq!(space.costs().anonymous_faults, 2);
    // In each 2M block, another user has one page. The smaller free blocks are used until none is left.
    let scarce = Physical { bytes: M2, fragmentation: 1.0, seed: 1 };
    let mut space = super::tests::space("cascade-lake", "mthp-1m", scarce);
    space.set_kernel(Kernel { smaller_folios: vec![64 << 10], ..Kernel::default() });
    mmap(&mut *space, START, 4 * M2);
    write_all(&mut *space, START, 1 << 20);
    write_all(&mut *space, START + (1 << 20), 512 << 10);
    let costs = space.costs();
    assert!(costs.allocation_fallbacks >= 1 && (9..40).contains(&costs.anonymous_faults), "{costs:?}");
}

#[test]
fn thp_falls_back_to_the_largest_enabled_folio_that_fits() {
    for (policy, faults) in [("thp", 2), ("default+always", 2), ("default+madvise", 144), ("default+never", 144)] {
        let mut space = space("cascade-lake", policy, Physical::default());
        space.set_kernel(Kernel { smaller_folios: vec![64 << 10, 512 << 10], ..Kernel::default() });
        // 576K contain no window of 2M, but one of 512K and one of 64K.
        mmap(&mut *space, START, 576 << 10);
        write_all(&mut *space, START, 576 << 10);
        assert_eq!(space.costs().anonymous_faults, faults, "{policy}");
        // A read maps the zero page alone.
        mmap(&mut *space, START + M2, 576 << 10);
        space.access(START + M2, false).unwrap();
        assert_eq!((space.costs().anonymous_faults, space.costs().zero_faults), (faults, 1), "{policy}");
        // Where a huge page fits, it is used.
        let before = space.costs().anonymous_faults;
        mmap(&mut *space, START + 2 * M2, M2);
        write_all(&mut *space, START + 2 * M2, M2);
        let is_huge = groups(&*space).contains(&(M2, M2, M2));
        assert_eq!((is_huge, space.costs().anonymous_faults - before == 1), (faults == 2, faults == 2), "{policy}");
    }
    let mut space = space("cascade-lake", "default+madvise", Physical::default());
    space.set_kernel(Kernel { smaller_folios: vec![64 << 10, 512 << 10], ..Kernel::default() });
    mmap(&mut *space, START, 576 << 10);
    space.event(&event(Call::Madvise { address: START, bytes: 576 << 10, advice: 14 }, 0)).unwrap();
    write_all(&mut *space, START, 576 << 10);
    assert_eq!(space.costs().anonymous_faults, 2, "advised memory has folios");
    // In each 2M block, another user has one page: no huge page can be allocated, but folios can.
    let scarce = Physical { bytes: 4 * M2, fragmentation: 1.0, seed: 1 };
    let mut space = super::tests::space("cascade-lake", "thp", scarce);
    space.set_kernel(Kernel { smaller_folios: vec![64 << 10], ..Kernel::default() });
    mmap(&mut *space, START, M2);
    write_all(&mut *space, START, M2);
    let costs = space.costs();
    assert!(costs.allocation_fallbacks >= 1 && (32..50).contains(&costs.anonymous_faults), "{costs:?}");
}

#[test]
fn the_direct_map_has_the_expected_tables_and_no_faults() {
    const G: u64 = 1 << 30;
    for (policy, tables, leaves) in [
        // The root and one table; below it one table for each 1G; below those one for each 2M.
        ("direct-map-1g", 2 * 4096, vec![(G, 4 * G)]),
        ("direct-map-2m", (2 + 4) * 4096, vec![(M2, 4 * G)]),
        ("direct-map-4k", (2 + 4 + 2048) * 4096, vec![(4096, 4 * G)]),
    ] {
        let mut space = space("cascade-lake", policy, Physical::default());
        space.assume(4 * G, 8 * G).unwrap();
        for at in [4 * G, 5 * G + 12345, 8 * G - 8] {
            let leaf = space.access(at, true).unwrap();
            assert!(!leaf.faulted && leaf.writable && space.physical(at) == Some(Pa(at)), "{policy}");
        }
        let census = space.census().unwrap();
        let found: Vec<(u64, u64)> =
            census.mapped_bytes.iter().map(|(size, bytes)| (size.leaf_bytes, *bytes)).collect();
        assert_eq!((census.table_bytes, found), (tables, leaves), "{policy}");
        assert_eq!((space.costs().faults(), space.costs().outside_bytes), (0, 0));
        assert_eq!(census.illegal, 0);
    }
    // Where an end of memory is not a multiple of the leaf size, smaller leaves map the rest.
    let mut space = space("cascade-lake", "direct-map-1g", Physical::default());
    let region = Call::Region { address: G - 4096, bytes: G + 4096 + M2, protection: 7, name: "System RAM".into() };
    space.event(&event(region, 0)).unwrap();
    let found: Vec<u64> = space.census().unwrap().mapped_bytes.keys().map(|size| size.leaf_bytes).collect();
    assert_eq!(found, [4096, M2, G]);
    space.access(64 * G, false).unwrap();
    assert_eq!((space.costs().faults(), space.costs().outside_bytes), (0, 4096));
}

#[test]
fn a_heap_grows_in_pages_of_the_policy() {
    for (policy, faults, zeroed) in [("base", 33, 33 * 4096), ("mthp-64k", 3, 3 << 16), ("hugetlb-2m", 1, M2)] {
        let mut space = space("cascade-lake", policy, Physical::default());
        let begin = START + M2 / 2;
        space.event(&event(Call::Brk { address: 0 }, begin)).unwrap();
        space.event(&event(Call::Brk { address: begin + 33 * 4096 }, begin + 33 * 4096)).unwrap();
        write_all(&mut *space, begin, 33 * 4096);
        let costs = space.costs();
        assert_eq!((costs.faults(), costs.zeroed_bytes, costs.outside_bytes), (faults, zeroed, 0), "{policy}");
    }
}
