//! Compares demand paging with arithmetic.

mod served;

use super::*;
use crate::layout::{Layout, Scheme};
use crate::machine::built_in;
use served::Served;
use trace::{Call, Event, Image};

const BASE: u64 = 0x7f00_0000_0000;
pub(super) const M2: u64 = 2 << 20;
/// An address aligned for every size.
pub(super) const PLACE: u64 = 1 << 37;

/// An empty address space. Under a pool policy it includes the code that serves the program's calls, at recorded addresses.
pub(super) fn space(machine: &str, policy: &str, physical: Physical) -> Box<dyn Space> {
    let plan = Plan::new(&policy.parse().unwrap(), &built_in(machine).unwrap()).unwrap();
    let space = new(&plan, &physical).unwrap();
    if plan.mechanism.hugetlb {
        let scheme = Scheme { pool: Some(plan.mechanism), ..Scheme::default() };
        Box::new(Served { layout: Layout::new(scheme, Image::default()), space })
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

/// A machine with `bytes` of memory mapped at [`PLACE`], every page written.
pub(super) fn written(machine: &str, policy: &str, bytes: u64) -> Box<dyn Space> {
    let mut space = space(machine, policy, Physical::default());
    mmap(&mut *space, PLACE, bytes);
    write_all(&mut *space, PLACE, bytes);
    space
}

pub(super) fn advise(space: &mut dyn Space, address: u64, bytes: u64, advice: u64) {
    space.event(&event(Call::Madvise { address, bytes, advice }, 0)).unwrap();
}

/// Maps 64M of memory at a multiple of 64M and writes every page.
pub(super) fn touched(machine: &str, policy: &str) -> Box<dyn Space> {
    let mut space = space(machine, policy, Physical::default());
    mmap(&mut *space, BASE & 0x3f_ffff_ffff | 1 << 37, 64 << 20);
    write_all(&mut *space, BASE & 0x3f_ffff_ffff | 1 << 37, 64 << 20);
    space
}

#[test]
fn faults_and_tables_are_what_arithmetic_says() {
    const M64: u64 = 64 << 20;
    // Faults, then tables: one of each upper level, and those that hold the leaves.
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
fn leaves_and_groups_are_those_of_the_policy() {
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
fn neighbours_that_hardware_can_store_as_one_are_seen() {
    let mut space = touched("zen-2", "mthp-64k");
    let va = BASE & 0x3f_ffff_ffff | 1 << 37;
    let leaf = space.access(va, false).unwrap();
    assert_eq!((leaf.leaf_bytes, leaf.group_bytes, space.run_bytes(va, &leaf)), (4096, 4096, 65536));
}

#[test]
fn a_read_maps_zeros_and_a_write_replaces_them() {
    for (policy, zeros, resident) in [("base", 2, 4096), ("mthp-64k", 2, 4096), ("thp", 1, 2 << 20)] {
        let mut space = space("cascade-lake", policy, Physical::default());
        mmap(&mut *space, BASE, 4 << 20);
        assert!(!space.access(BASE, false).unwrap().writable);
        space.access(BASE + 4096, false).unwrap();
        assert_eq!((space.costs().zero_faults, space.costs().resident_bytes()), (zeros, 0), "{policy}");
        assert!(space.access(BASE, true).unwrap().writable);
        assert!(!space.take_invalidations().is_empty(), "{policy}");
        assert_eq!((space.costs().write_faults, space.costs().resident_bytes()), (1, resident), "{policy}");
    }
}

#[test]
fn a_file_is_mapped_sixteen_pages_at_a_fault_and_copied_when_it_is_written() {
    let mut space = space("cascade-lake", "base", Physical::default());
    let call =
        Call::Mmap { address: BASE, bytes: 256 << 10, protection: 3, flags: 2, file: 3, offset: 0, file_system: None };
    space.event(&event(call, BASE)).unwrap();
    for va in (BASE..BASE + (256 << 10)).step_by(4096) {
        space.access(va, false).unwrap();
    }
    assert_eq!((space.costs().file_faults, space.costs().file_bytes), (4, 256 << 10));
    space.access(BASE, true).unwrap();
    space.access(BASE, true).unwrap();
    let costs = space.costs();
    assert_eq!((costs.write_faults, costs.copied_bytes, costs.anonymous_bytes), (1, 4096, 4096));
}

#[test]
fn a_part_that_goes_splits_a_leaf_and_takes_a_group_apart() {
    for (machine, policy, splits, unfolds) in
        [("cascade-lake", "thp", 1, 0), ("neoverse-n1", "mthp-64k", 0, 1), ("neoverse-n1", "contig-64k", 0, 1)]
    {
        let mut space = space(machine, policy, Physical::default());
        mmap(&mut *space, BASE, 4 << 20);
        write_all(&mut *space, BASE, 4 << 20);
        space.take_invalidations();
        space.event(&event(Call::Munmap { address: BASE, bytes: 8192 }, 0)).unwrap();
        let costs = space.costs();
        assert_eq!((costs.splits, costs.unfolds), (splits, unfolds), "{policy}");
        assert_eq!(costs.anonymous_bytes, (4 << 20) - 8192, "{policy}");
        assert!(!space.take_invalidations().is_empty(), "{policy}");
        // Everything that is left is unmapped, and all tables except the root are freed.
        space.event(&event(Call::Munmap { address: BASE, bytes: 4 << 20 }, 0)).unwrap();
        assert_eq!((space.costs().resident_bytes(), space.costs().unmapped_bytes), (0, 0), "{policy}");
        assert_eq!(space.costs().table_bytes, 4096, "{policy}");
    }
}

#[test]
fn a_protected_part_of_a_group_is_taken_apart_and_a_whole_one_is_not() {
    let mut space = space("neoverse-n1", "mthp-64k", Physical::default());
    mmap(&mut *space, BASE, 1 << 20);
    write_all(&mut *space, BASE, 1 << 20);
    space.event(&event(Call::Mprotect { address: BASE, bytes: 128 << 10, protection: 1 }, 0)).unwrap();
    assert_eq!(space.costs().unfolds, 0);
    space.event(&event(Call::Mprotect { address: BASE, bytes: 4096, protection: 3 }, 0)).unwrap();
    assert_eq!(space.costs().unfolds, 1);
    let census = space.census().unwrap();
    let groups: Vec<(u64, u64)> = census.mapped_bytes.iter().map(|(size, bytes)| (size.group_bytes, *bytes)).collect();
    assert_eq!(groups, [(4096, 64 << 10), (65536, (1 << 20) - (64 << 10))]);
}

#[test]
fn a_group_is_folded_again_when_its_last_page_gets_the_protection_of_the_others() {
    // The protected pages, those that get their protection back, and how often a group is folded again.
    for (policy, protected, back, again) in [
        ("mthp-64k", (15, 1), (15, 1), 1),
        // Linux tries to fold a group only when the last page of the group is set.
        ("mthp-64k", (3, 1), (3, 1), 0),
        // Pages that already have the protection are left unchanged.
        ("mthp-64k", (3, 1), (3, 13), 0),
        ("mthp-64k", (8, 8), (8, 8), 1),
        ("mthp-64k", (8, 8), (9, 7), 0),
        ("mthp-128k", (31, 1), (31, 1), 1),
        ("thp", (31, 1), (31, 1), 1),
        // Pages of the block were allocated separately; and nothing is left of a pool page.
        ("contig-64k", (15, 1), (15, 1), 0),
        ("hugetlb-64k", (15, 1), (15, 1), 0),
        ("base", (15, 1), (15, 1), 0),
    ] {
        let mut space = written("neoverse-n1", policy, M2);
        let before = space.costs().folds;
        for ((page, pages), protection) in [(protected, 1), (back, 3)] {
            let call = Call::Mprotect { address: PLACE + page * 4096, bytes: pages * 4096, protection };
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
fn pages_of_a_pool_heed_no_advice_and_are_not_dropped_in_part() {
    let mut space = space("cascade-lake", "hugetlb-2m", Physical::default());
    mmap(&mut *space, PLACE, 3 * M2);
    advise(&mut *space, PLACE, 3 * M2, 15);
    write_all(&mut *space, PLACE, 3 * M2);
    assert_eq!((space.costs().faults(), space.costs().resident_bytes()), (3, 3 * M2));
    // From the middle of the first into the last: the one between is dropped.
    advise(&mut *space, PLACE + 4096, 2 * M2, 4);
    assert_eq!((space.costs().splits, space.costs().resident_bytes()), (0, 2 * M2));
    assert!(space.physical(PLACE + M2).is_none() && space.physical(PLACE + 2 * M2).is_some());
    advise(&mut *space, PLACE + 4096, 4096, 4);
    write_all(&mut *space, PLACE, 3 * M2);
    assert_eq!((space.costs().faults(), space.costs().splits), (4, 0));
}

#[test]
fn moved_memory_stays_large_where_the_new_place_lets_it() {
    for (to, leaves) in [(BASE + (1 << 30), 2 << 20), (BASE + (1 << 30) + 4096, 4096)] {
        let mut space = space("cascade-lake", "thp", Physical::default());
        mmap(&mut *space, BASE, 4 << 20);
        write_all(&mut *space, BASE, 4 << 20);
        let call = Call::Mremap { address: BASE, old_bytes: 4 << 20, new_bytes: 8 << 20, flags: 1, new_address: 0 };
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
fn without_large_blocks_pages_are_small_and_without_memory_there_are_none() {
    let fragmented = Physical { bytes: 1 << 30, fragmentation: 1.0, seed: 1 };
    let mut space = super::tests::space("cascade-lake", "thp", fragmented);
    mmap(&mut *space, BASE, 4 << 20);
    write_all(&mut *space, BASE, 4 << 20);
    let costs = space.costs();
    assert_eq!((costs.anonymous_faults, costs.deposited_table_bytes), (1024, 0));
    assert_eq!(costs.allocation_fallbacks, 2);
    // A pool page takes all memory and is never reclaimed.
    let mut small =
        super::tests::space("cascade-lake", "hugetlb-2m", Physical { bytes: 2 << 20, ..Physical::default() });
    let call = Call::Mmap {
        address: BASE,
        bytes: 4 << 20,
        protection: 3,
        flags: 0x32,
        file: -1,
        offset: 0,
        file_system: None,
    };
    small.event(&event(call, BASE)).unwrap();
    small.access(BASE, true).unwrap();
    let failed = small.access(BASE + (2 << 20), true);
    assert_eq!(failed, Err(SpaceError::OutOfMemory { va: BASE + (2 << 20), base_bytes: 4096 }));
}

#[test]
fn the_heap_grows_and_the_stack_too() {
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
fn guards_stay_open_under_a_policy_without_guards_and_memory_is_there_under_prefault() {
    let eligible = |policy: &str| {
        let mut space = super::tests::space("cascade-lake", policy, Physical::default());
        mmap(&mut *space, BASE, 4 << 20);
        space
            .event(&event(Call::Mprotect { address: BASE + (2 << 20) - 4096, bytes: 4096, protection: 0 }, 0))
            .unwrap();
        space.access(BASE, true).unwrap();
        space.costs().anonymous_bytes
    };
    assert_eq!((eligible("thp"), eligible("thp+no-guards")), (4096, 2 << 20));
    let mut space = super::tests::space("cascade-lake", "thp+prefault", Physical::default());
    mmap(&mut *space, BASE, 4 << 20);
    assert_eq!((space.costs().anonymous_bytes, space.costs().faults()), (4 << 20, 2));
}

#[test]
fn the_second_fault_in_a_contiguous_block_is_a_read_too_and_what_is_in_its_way_ends_it() {
    let mut space = space("cortex-a57", "contig-64k", Physical::default());
    mmap(&mut *space, PLACE, M2);
    space.access(PLACE, true).unwrap();
    space.access(PLACE + 5 * 4096, false).unwrap();
    assert_eq!((space.costs().faults(), space.costs().folds, space.costs().zero_faults), (2, 1, 0));
    space.access(PLACE + 9 * 4096, true).unwrap();
    assert_eq!(space.costs().faults(), 2);
    // A page is mapped in the next block while no block is wanted.
    let next = PLACE + (64 << 10);
    space.access(next, true).unwrap();
    advise(&mut *space, next, 64 << 10, 15);
    space.access(next + 4096, true).unwrap();
    advise(&mut *space, next, 64 << 10, 14);
    write_all(&mut *space, next, 64 << 10);
    let costs = space.costs();
    assert_eq!((costs.folds, costs.anonymous_bytes, costs.zeroed_bytes), (1, 128 << 10, 128 << 10));
    // A block whose other pages were never mapped is freed as a whole.
    space.event(&event(Call::Munmap { address: PLACE, bytes: M2 }, 0)).unwrap();
    assert_eq!((space.costs().anonymous_bytes, space.costs().unmapped_bytes), (0, 0));
}
