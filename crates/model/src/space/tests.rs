//! Compares demand paging with numbers worked out by hand.

mod pool_space;

use super::*;
use crate::layout::{Layout, LayoutParameters};
use crate::machine::built_in;
use pool_space::PoolSpace;
use trace::{Call, Event, Image};

/// An address near the end of the lower half, aligned for every page size.
const HIGH: u64 = 0x7f00_0000_0000;
pub(super) const M2: u64 = 2 << 20;
/// An address that every machine has, aligned for every page size.
pub(super) const START: u64 = 1 << 37;

/// An empty address space. Under a hugetlb policy it also handles the program's calls, and takes recorded addresses.
pub(super) fn space(machine: &str, policy: &str, physical: Physical) -> Box<dyn Space> {
    let plan = Plan::new(&policy.parse().unwrap(), &built_in(machine).unwrap()).unwrap();
    let space = new(&plan, &physical).unwrap();
    if plan.mechanism.hugetlb {
        let parameters = LayoutParameters { pool: Some(plan.mechanism), ..LayoutParameters::default() };
        Box::new(PoolSpace { layout: Layout::new(parameters, Image::default()), space })
    } else {
        space
    }
}

pub(super) fn event(call: Call, result: u64) -> Event {
    Event { run: 0, order: 0, call, result: result as i64 }
}

pub(super) fn mmap(space: &mut dyn Space, address: u64, bytes: u64) {
    let call = Call::Mmap { address, bytes, protection: 3, flags: 0x22, file: -1, offset: 0, file_system: None };
    space.event(&event(call, address)).unwrap();
}

pub(super) fn write_all(space: &mut dyn Space, begin: u64, bytes: u64) {
    for va in (begin..begin + bytes).step_by(4096) {
        space.access(va, true).unwrap();
    }
}

/// An address space with `bytes` of memory mapped at [`START`], every page written.
pub(super) fn written(machine: &str, policy: &str, bytes: u64) -> Box<dyn Space> {
    let mut space = space(machine, policy, Physical::default());
    mmap(&mut *space, START, bytes);
    write_all(&mut *space, START, bytes);
    space
}

pub(super) fn advise(space: &mut dyn Space, address: u64, bytes: u64, advice: u64) {
    space.event(&event(Call::Madvise { address, bytes, advice }, 0)).unwrap();
}

/// An address space with 64M of memory mapped at [`START`], every page written.
pub(super) fn touched(machine: &str, policy: &str) -> Box<dyn Space> {
    let mut space = space(machine, policy, Physical::default());
    mmap(&mut *space, START, 64 << 20);
    write_all(&mut *space, START, 64 << 20);
    space
}

#[test]
fn faults_and_tables_match_arithmetic() {
    const M64: u64 = 64 << 20;
    // The number of faults, and the bytes of the tables: one table of each upper level, and the tables that contain the leaves.
    for (machine, policy, faults, tables) in [
        ("cascade-lake", "base", M64 / 4096, 4096 * (3 + 32)),
        ("cascade-lake", "mthp-64k", M64 / 65536, 4096 * (3 + 32)),
        ("cascade-lake", "thp", 32, 4096 * 3),
        ("cascade-lake", "hugetlb-2m", 32, 4096 * 3),
        ("neoverse-n1", "contig-64k", 2 * M64 / 65536, 4096 * (3 + 32)),
        ("neoverse-n1", "base-16k", M64 / 16384, 16 + 16384 * (2 + 2)),
        ("neoverse-n1", "base-64k", M64 / 65536, 512 + 65536 * 2),
        ("neoverse-n1", "hugetlb-32m", 2, 4096 * 3),
        ("rva23", "base", M64 / 4096, 4096 * (3 + 32)),
        ("rva23", "base-64k", M64 / 65536, 4096 + 65536 * (2 + 2)),
        ("sifive-u74", "base-64k", M64 / 65536, 4096 + 65536 * (1 + 2)),
        ("sifive-u74", "base", M64 / 4096, 4096 * (2 + 32)),
    ] {
        let space = touched(machine, policy);
        let costs = space.costs();
        assert_eq!((costs.faults(), costs.anonymous_faults), (faults, faults), "{machine} {policy}");
        assert_eq!(costs.table_bytes, tables, "{machine} {policy}");
        assert_eq!((costs.zeroed_bytes, costs.anonymous_bytes), (M64, M64), "{machine} {policy}");
        let census = space.census().unwrap();
        assert_eq!(census.mapped_bytes.values().sum::<u64>(), M64, "{machine} {policy}");
        assert_eq!((census.table_bytes, census.illegal), (tables, 0), "{machine} {policy}");
    }
}

#[test]
fn each_policy_has_its_leaves_and_groups() {
    for (machine, policy, leaf, group) in [
        ("cascade-lake", "base", 4096, 4096),
        ("cascade-lake", "mthp-64k", 4096, 4096),
        ("cascade-lake", "thp", 2 << 20, 2 << 20),
        ("neoverse-n1", "mthp-64k", 4096, 65536),
        ("neoverse-n1", "mthp-32k", 4096, 4096),
        ("neoverse-n1", "contig-64k", 4096, 65536),
        ("neoverse-n1", "hugetlb-64k", 4096, 65536),
        ("neoverse-n1", "hugetlb-32m", 2 << 20, 32 << 20),
        ("neoverse-n1", "base-64k", 65536, 65536),
        ("rva23", "base-64k", 4096, 65536),
        ("sifive-u74", "base-64k", 4096, 4096),
    ] {
        let census = touched(machine, policy).census().unwrap();
        let found: Vec<(u64, u64)> =
            census.mapped_bytes.keys().map(|size| (size.leaf_bytes, size.group_bytes)).collect();
        assert_eq!(found, [(leaf, group)], "{machine} {policy}");
    }
}

#[test]
fn finds_runs_that_a_tlb_entry_can_map() {
    let mut space = touched("zen-2", "mthp-64k");
    let va = START;
    let leaf = space.access(va, false).unwrap();
    assert_eq!((leaf.leaf_bytes, leaf.group_bytes, space.run_bytes(va, &leaf)), (4096, 4096, 65536));
}

#[test]
fn a_read_maps_the_zero_page_and_a_write_replaces_it() {
    for (policy, zeros, resident) in [("base", 2, 4096), ("mthp-64k", 2, 4096), ("thp", 1, 2 << 20)] {
        let mut space = space("cascade-lake", policy, Physical::default());
        mmap(&mut *space, HIGH, 4 << 20);
        assert!(!space.access(HIGH, false).unwrap().writable);
        space.access(HIGH + 4096, false).unwrap();
        assert_eq!((space.costs().zero_faults, space.costs().resident_bytes()), (zeros, 0), "{policy}");
        assert!(space.access(HIGH, true).unwrap().writable);
        assert!(!space.take_invalidations().is_empty(), "{policy}");
        assert_eq!((space.costs().write_faults, space.costs().resident_bytes()), (1, resident), "{policy}");
    }
}

#[test]
fn fault_around_maps_sixteen_file_pages_and_a_write_copies_one() {
    let mut space = space("cascade-lake", "base", Physical::default());
    let call =
        Call::Mmap { address: HIGH, bytes: 256 << 10, protection: 3, flags: 2, file: 3, offset: 0, file_system: None };
    space.event(&event(call, HIGH)).unwrap();
    for va in (HIGH..HIGH + (256 << 10)).step_by(4096) {
        space.access(va, false).unwrap();
    }
    assert_eq!((space.costs().file_faults, space.costs().file_bytes), (4, 256 << 10));
    space.access(HIGH, true).unwrap();
    space.access(HIGH, true).unwrap();
    let costs = space.costs();
    assert_eq!((costs.write_faults, costs.copied_bytes, costs.anonymous_bytes), (1, 4096, 4096));
}

#[test]
fn unmapping_a_part_splits_its_leaf_and_unfolds_its_group() {
    for (machine, policy, splits, unfolds) in
        [("cascade-lake", "thp", 1, 0), ("neoverse-n1", "mthp-64k", 0, 1), ("neoverse-n1", "contig-64k", 0, 1)]
    {
        let mut space = space(machine, policy, Physical::default());
        mmap(&mut *space, HIGH, 4 << 20);
        write_all(&mut *space, HIGH, 4 << 20);
        space.take_invalidations();
        space.event(&event(Call::Munmap { address: HIGH, bytes: 8192 }, 0)).unwrap();
        let costs = space.costs();
        assert_eq!((costs.splits, costs.unfolds), (splits, unfolds), "{policy}");
        assert_eq!(costs.anonymous_bytes, (4 << 20) - 8192, "{policy}");
        assert!(!space.take_invalidations().is_empty(), "{policy}");
        // The second munmap unmaps the rest and frees all tables except the root.
        space.event(&event(Call::Munmap { address: HIGH, bytes: 4 << 20 }, 0)).unwrap();
        assert_eq!((space.costs().resident_bytes(), space.costs().unmapped_bytes), (0, 0), "{policy}");
        assert_eq!(space.costs().table_bytes, 4096, "{policy}");
    }
}

#[test]
fn mprotect_unfolds_a_group_only_if_it_covers_a_part_of_it() {
    let mut space = space("neoverse-n1", "mthp-64k", Physical::default());
    mmap(&mut *space, HIGH, 1 << 20);
    write_all(&mut *space, HIGH, 1 << 20);
    space.event(&event(Call::Mprotect { address: HIGH, bytes: 128 << 10, protection: 1 }, 0)).unwrap();
    assert_eq!(space.costs().unfolds, 0);
    space.event(&event(Call::Mprotect { address: HIGH, bytes: 4096, protection: 3 }, 0)).unwrap();
    assert_eq!(space.costs().unfolds, 1);
    let census = space.census().unwrap();
    let groups: Vec<(u64, u64)> = census.mapped_bytes.iter().map(|(size, bytes)| (size.group_bytes, *bytes)).collect();
    assert_eq!(groups, [(4096, 64 << 10), (65536, (1 << 20) - (64 << 10))]);
}

#[test]
fn folds_a_group_again_when_its_last_page_gets_the_protection_of_the_others() {
    // The pages to protect, the pages to make writable again, and the expected number of groups that are folded again.
    for (policy, protected, back, again) in [
        ("mthp-64k", (15, 1), (15, 1), 1),
        // Linux tries to fold a group only when it sets the last page of the group.
        ("mthp-64k", (3, 1), (3, 1), 0),
        // Pages that already have the protection are left unchanged.
        ("mthp-64k", (3, 1), (3, 13), 0),
        ("mthp-64k", (8, 8), (8, 8), 1),
        ("mthp-64k", (8, 8), (9, 7), 0),
        ("mthp-128k", (31, 1), (31, 1), 1),
        ("thp", (31, 1), (31, 1), 1),
        // The pages of a `contig-64k` block belong to separate folios, and hugetlb pages are never folded again.
        ("contig-64k", (15, 1), (15, 1), 0),
        ("hugetlb-64k", (15, 1), (15, 1), 0),
        ("base", (15, 1), (15, 1), 0),
    ] {
        let mut space = written("neoverse-n1", policy, M2);
        let before = space.costs().folds;
        for ((page, pages), protection) in [(protected, 1), (back, 3)] {
            let call = Call::Mprotect { address: START + page * 4096, bytes: pages * 4096, protection };
            space.event(&event(call, 0)).unwrap();
        }
        assert_eq!(space.costs().folds - before, again, "{policy} {protected:?} {back:?}");
        let grouped: u64 = space
            .census()
            .unwrap()
            .mapped_bytes
            .iter()
            .map(|(size, bytes)| u64::from(size.group_bytes > size.leaf_bytes) * bytes)
            .sum();
        let all = if policy == "base" { 0 } else { M2 - (1 - again) * (64 << 10) };
        assert_eq!(grouped, all, "{policy} {protected:?} {back:?}");
    }
}

#[test]
fn pool_pages_ignore_advice_and_are_dropped_only_whole() {
    let mut space = space("cascade-lake", "hugetlb-2m", Physical::default());
    mmap(&mut *space, START, 3 * M2);
    advise(&mut *space, START, 3 * M2, 15);
    write_all(&mut *space, START, 3 * M2);
    assert_eq!((space.costs().faults(), space.costs().resident_bytes()), (3, 3 * M2));
    // The range begins inside the first page and ends inside the last page, so only the page between them is dropped.
    advise(&mut *space, START + 4096, 2 * M2, 4);
    assert_eq!((space.costs().splits, space.costs().resident_bytes()), (0, 2 * M2));
    assert!(space.physical(START + M2).is_none() && space.physical(START + 2 * M2).is_some());
    advise(&mut *space, START + 4096, 4096, 4);
    write_all(&mut *space, START, 3 * M2);
    assert_eq!((space.costs().faults(), space.costs().splits), (4, 0));
}

#[test]
fn mremap_keeps_large_leaves_if_the_new_address_is_aligned() {
    for (to, leaves) in [(HIGH + (1 << 30), 2 << 20), (HIGH + (1 << 30) + 4096, 4096)] {
        let mut space = space("cascade-lake", "thp", Physical::default());
        mmap(&mut *space, HIGH, 4 << 20);
        write_all(&mut *space, HIGH, 4 << 20);
        let call = Call::Mremap { address: HIGH, old_bytes: 4 << 20, new_bytes: 8 << 20, flags: 1, new_address: 0 };
        space.event(&event(call, to)).unwrap();
        let census = space.census().unwrap();
        let found: Vec<u64> = census.mapped_bytes.keys().map(|size| size.leaf_bytes).collect();
        assert_eq!((found, space.costs().anonymous_bytes), (vec![leaves], 4 << 20));
        let faults = space.costs().faults();
        space.access(to + (4 << 20) - 8, true).unwrap();
        assert_eq!(space.costs().faults(), faults);
        space.access(to + (8 << 20) - 8, true).unwrap();
        assert_eq!(space.costs().faults(), faults + 1);
    }
}

#[test]
fn falls_back_to_base_pages_and_fails_without_memory() {
    let fragmented = Physical { bytes: 1 << 30, fragmentation: 1.0, seed: 1 };
    let mut space = super::tests::space("cascade-lake", "thp", fragmented);
    mmap(&mut *space, HIGH, 4 << 20);
    write_all(&mut *space, HIGH, 4 << 20);
    let costs = space.costs();
    assert_eq!((costs.anonymous_faults, costs.deposited_table_bytes), (1024, 0));
    assert_eq!(costs.allocation_fallbacks, 2);
    // A hugetlb page takes all memory and is never reclaimed.
    let mut small =
        super::tests::space("cascade-lake", "hugetlb-2m", Physical { bytes: 2 << 20, ..Physical::default() });
    let call = Call::Mmap {
        address: HIGH,
        bytes: 4 << 20,
        protection: 3,
        flags: 0x32,
        file: -1,
        offset: 0,
        file_system: None,
    };
    small.event(&event(call, HIGH)).unwrap();
    small.access(HIGH, true).unwrap();
    let failed = small.access(HIGH + (2 << 20), true);
    assert_eq!(failed, Err(SpaceError::OutOfMemory { va: HIGH + (2 << 20), base_bytes: 4096 }));
}

#[test]
fn the_heap_and_the_stack_grow() {
    let mut space = space("cascade-lake", "base", Physical::default());
    space.event(&event(Call::Brk { address: 0 }, 0x5000_0800)).unwrap();
    space.event(&event(Call::Brk { address: 0x5010_0000 }, 0x5010_0000)).unwrap();
    space.access(0x500f_ff00, true).unwrap();
    let stack = Call::Region { address: 0x7fff_0000_0000, bytes: 8192, protection: 3, name: "[stack]".into() };
    space.event(&event(stack, 0)).unwrap();
    space.access(0x7fff_0000_0000 - 64, true).unwrap();
    assert_eq!((space.costs().faults(), space.costs().outside_bytes), (2, 0));
    space.access(0x1234_5000, true).unwrap();
    assert_eq!((space.costs().faults(), space.costs().outside_bytes), (3, 4096));
}

#[test]
fn no_guards_keeps_guard_pages_writable_and_prefault_populates() {
    let anonymous_bytes = |policy: &str| {
        let mut space = super::tests::space("cascade-lake", policy, Physical::default());
        mmap(&mut *space, HIGH, 4 << 20);
        space
            .event(&event(Call::Mprotect { address: HIGH + (2 << 20) - 4096, bytes: 4096, protection: 0 }, 0))
            .unwrap();
        space.access(HIGH, true).unwrap();
        space.costs().anonymous_bytes
    };
    assert_eq!((anonymous_bytes("thp"), anonymous_bytes("thp+no-guards")), (4096, 2 << 20));
    let mut space = super::tests::space("cascade-lake", "thp+prefault", Physical::default());
    mmap(&mut *space, HIGH, 4 << 20);
    assert_eq!((space.costs().anonymous_bytes, space.costs().faults()), (4 << 20, 2));
    assert_eq!(space.costs().populated_faults, 2);
    // Only the pages that a call populates take no exception.
    let mut space = super::tests::space("cascade-lake", "base", Physical::default());
    mmap(&mut *space, HIGH, 64 << 10);
    space.access(HIGH, true).unwrap();
    space.event(&event(Call::Madvise { address: HIGH, bytes: 32 << 10, advice: 23 }, 0)).unwrap();
    write_all(&mut *space, HIGH, 64 << 10);
    assert_eq!((space.costs().faults(), space.costs().populated_faults), (16, 7));
}

#[test]
fn a_second_fault_maps_the_rest_of_a_block_unless_another_page_is_mapped() {
    let mut space = space("cortex-a57", "contig-64k", Physical::default());
    mmap(&mut *space, START, M2);
    space.access(START, true).unwrap();
    space.access(START + 5 * 4096, false).unwrap();
    assert_eq!((space.costs().faults(), space.costs().folds, space.costs().zero_faults), (2, 1, 0));
    space.access(START + 9 * 4096, true).unwrap();
    assert_eq!(space.costs().faults(), 2);
    // In the next block another page is mapped while advice forbids blocks.
    let next = START + (64 << 10);
    space.access(next, true).unwrap();
    advise(&mut *space, next, 64 << 10, 15);
    space.access(next + 4096, true).unwrap();
    advise(&mut *space, next, 64 << 10, 14);
    write_all(&mut *space, next, 64 << 10);
    let costs = space.costs();
    assert_eq!((costs.folds, costs.anonymous_bytes, costs.zeroed_bytes), (1, 128 << 10, 128 << 10));
    // Freeing the mapped page of a reserved block frees the whole block.
    space.event(&event(Call::Munmap { address: START, bytes: M2 }, 0)).unwrap();
    assert_eq!((space.costs().anonymous_bytes, space.costs().unmapped_bytes), (0, 0));
}
