//! Held (allocated) memory and its unmapped part: handwritten cases, and random programs compared with their tables.

use std::collections::BTreeSet;

use super::physical_layout::is_memory;
use super::tests::{M2, START, advise, event, mmap, space, write_all, written};
use super::*;
use crate::tlb::next_random;
use trace::Call;

const K4: u64 = 4 << 10;
const K64: u64 = 64 << 10;
const DONTNEED: u64 = 4;

/// Held memory, resident memory of all processes, unmapped held memory, and the peak of the unmapped held memory.
fn held(space: &dyn Space) -> [u64; 4] {
    let costs = space.costs();
    [costs.held_bytes, costs.resident_bytes(), costs.held_unmapped_bytes, costs.held_unmapped_peak_bytes]
}

#[test]
fn the_first_touch_allocates_a_whole_block_and_maps_one_page() {
    let mut space = space("cortex-a57", "contig-64k", Physical::default());
    mmap(&mut *space, START, 16 * K64);
    for window in 0..16 {
        space.access(START + window * K64 + 5 * K4, true).unwrap();
    }
    assert_eq!(held(&*space), [16 * K64, 16 * K4, 16 * (K64 - K4), 16 * (K64 - K4)]);
    // The second fault maps the rest of the block.
    space.access(START, true).unwrap();
    assert_eq!(held(&*space), [16 * K64, K64 + 15 * K4, 15 * (K64 - K4), 16 * (K64 - K4)]);
    space.event(&event(Call::Munmap { address: START, bytes: 16 * K64 }, 0)).unwrap();
    assert_eq!(held(&*space), [0, 0, 0, 16 * (K64 - K4)]);
    assert_eq!(space.costs().held_peak_bytes, 16 * K64);
}

#[test]
fn other_policies_map_all_allocated_memory_at_once() {
    // The held memory after one page is touched. Then all four figures of `held` after everything except that page is dropped.
    for (machine, policy, all, after_drop) in [
        ("cascade-lake", "base", K4, [K4, K4, 0, 0]),
        ("cascade-lake", "mthp-64k", K64, [K64, K4, K64 - K4, K64 - K4]),
        ("neoverse-n1", "mthp-64k", K64, [K64, K4, K64 - K4, K64 - K4]),
        ("cascade-lake", "thp", M2, [M2, K4, M2 - K4, M2 - K4]),
        ("cascade-lake", "hugetlb-2m", M2, [M2, M2, 0, 0]),
        ("neoverse-n1", "base-64k", K64, [K64, K64, 0, 0]),
        ("rva23", "base-64k", K64, [K64, K64, 0, 0]),
        ("sifive-u74", "base-64k", K64, [K64, K64, 0, 0]),
        ("cortex-a57", "contig-64k+thp", M2, [M2, K4, M2 - K4, M2 - K4]),
        ("cortex-a57", "base-64k+thp", K64, [K64, K64, 0, 0]),
    ] {
        let mut space = space(machine, policy, Physical::default());
        mmap(&mut *space, START, M2);
        space.access(START, true).unwrap();
        assert_eq!(held(&*space), [all, all, 0, 0], "{machine} {policy}");
        advise(&mut *space, START + K4, M2 - K4, DONTNEED);
        assert_eq!(held(&*space), after_drop, "{machine} {policy}");
    }
}

#[test]
fn uses_blocks_only_where_thp_does_not_fit() {
    let mut space = space("cortex-a57", "contig-64k+thp", Physical::default());
    mmap(&mut *space, START, M2 + M2 / 2);
    space.access(START, true).unwrap();
    space.access(START + M2, true).unwrap();
    assert_eq!(held(&*space), [M2 + K64, M2 + K4, K64 - K4, K64 - K4]);
    space.access(START + M2 + K4, true).unwrap();
    assert_eq!((space.costs().faults(), space.costs().folds), (3, 1));
    let found: Vec<(u64, u64, u64)> = space
        .census()
        .unwrap()
        .mapped_bytes
        .iter()
        .map(|(size, bytes)| (size.leaf_bytes, size.group_bytes, *bytes))
        .collect();
    assert_eq!(found, [(K4, K64, K64), (M2, M2, M2)]);
}

#[test]
fn thp_with_64k_base_pages_spans_one_table() {
    for (machine, leaf_bytes, thp_bytes) in
        [("cortex-a57", 512 << 20, 512 << 20), ("sifive-u74", M2, 32 << 20), ("rva23", M2, 32 << 20)]
    {
        // The mapping is one page larger than a THP.
        let mut space = space(machine, "base-64k+thp", Physical::default());
        mmap(&mut *space, START, thp_bytes + K64);
        space.access(START + K64, true).unwrap();
        space.access(START + thp_bytes, true).unwrap();
        assert_eq!(held(&*space), [thp_bytes + K64, thp_bytes + K64, 0, 0], "{machine}");
        let leaf = space.access(START, true).unwrap();
        assert_eq!((leaf.leaf_bytes, leaf.faulted), (leaf_bytes, false), "{machine}");
        assert_eq!((space.costs().faults(), space.costs().splits), (2, 0), "{machine}");
        // A table of base pages is deposited, and the split uses it.
        assert_eq!(space.costs().deposited_table_bytes, K64, "{machine}");
        advise(&mut *space, START, K64, DONTNEED);
        let costs = space.costs();
        assert_eq!((costs.splits, costs.deposited_table_bytes, costs.held_unmapped_bytes), (1, 0, K64), "{machine}");
        space.event(&event(Call::Munmap { address: START, bytes: thp_bytes + K64 }, 0)).unwrap();
        assert_eq!(held(&*space)[..3], [0, 0, 0], "{machine}");
    }
}

#[test]
fn a_page_mapped_by_two_processes_is_held_once() {
    let mut space = written("cascade-lake", "mthp-64k", 2 * K64);
    space.fork().unwrap();
    assert_eq!(held(&*space), [2 * K64, 4 * K64, 0, 0]);
    space.access(START, true).unwrap();
    assert_eq!(held(&*space), [2 * K64 + K4, 4 * K64, 0, 0]);
}

/// Bytes of memory that some process maps, each page counted once.
fn mapped_bytes(space: &mut dyn Space, processes: &[u32], bytes: u64) -> u64 {
    let mut pages = BTreeSet::new();
    for process in processes {
        assert!(space.enter(*process));
        let own = (START..START + bytes).step_by(K4 as usize).filter_map(|va| space.physical(va));
        pages.extend(own.filter(|pa| is_memory(*pa)).map(|pa| pa.0 / K4));
    }
    pages.len() as u64 * K4
}

#[test]
fn held_memory_is_mapped_or_counted_as_unmapped() {
    const BYTES: u64 = 8 << 20;
    for (machine, policy, memory_bytes) in [
        ("cascade-lake", "base", 64 << 20),
        ("cascade-lake", "mthp-64k", 64 << 20),
        ("cascade-lake", "mthp-64k", 3 << 20),
        ("cascade-lake", "thp", 64 << 20),
        ("cortex-a57", "contig-64k", 64 << 20),
        ("cortex-a57", "contig-64k", 3 << 20),
        ("cortex-a57", "contig-64k+thp", 64 << 20),
        ("cortex-a57", "contig-64k+thp", 5 << 20),
        ("neoverse-n1", "base-64k", 64 << 20),
        ("rva23", "base-64k", 3 << 20),
        ("rva23", "base-64k+thp", 64 << 20),
    ] {
        let mut state = memory_bytes ^ policy.len() as u64;
        let mut random = |below: u64| next_random(&mut state) % below;
        let mut space = space(machine, policy, Physical { bytes: memory_bytes, ..Physical::default() });
        mmap(&mut *space, START, BYTES);
        let mut processes = vec![0];
        for step in 0..400 {
            let context = format!("{machine} {policy}, {memory_bytes} bytes, step {step}");
            let begin = START + random(BYTES / K4) * K4;
            let bytes = ((1 + random(40)) * K4).min(START + BYTES - begin);
            let running = processes[random(processes.len() as u64) as usize];
            assert!(space.enter(running), "{context}");
            match random(16) {
                0 => advise(&mut *space, begin, bytes, DONTNEED),
                1 => {
                    space.event(&event(Call::Munmap { address: begin, bytes }, 0)).unwrap();
                    mmap(&mut *space, begin, bytes);
                }
                2 if processes.len() < 3 => processes.push(space.fork().unwrap()),
                3 if running != 0 => {
                    assert!(space.enter(0));
                    space.end(running).unwrap();
                    processes.retain(|process| *process != running);
                }
                4 | 5 => {
                    space.access(begin, false).unwrap();
                }
                _ => write_all(&mut *space, begin, bytes),
            }
            let costs = space.costs();
            let mapped = mapped_bytes(&mut *space, &processes, BYTES);
            assert_eq!(costs.held_bytes, mapped + costs.held_unmapped_bytes, "{context}");
            assert!(costs.held_bytes <= costs.held_peak_bytes && costs.held_bytes <= memory_bytes, "{context}");
            assert!(costs.held_unmapped_bytes <= costs.held_unmapped_peak_bytes, "{context}");
            assert!(mapped <= costs.resident_bytes(), "{context}");
        }
    }
}

#[test]
fn held_is_at_least_resident_and_resident_at_least_touched() {
    for (machine, policy) in [
        ("cascade-lake", "base"),
        ("cascade-lake", "mthp-64k"),
        ("cascade-lake", "thp"),
        ("cascade-lake", "hugetlb-2m"),
        ("cortex-a57", "contig-64k"),
        ("cortex-a57", "contig-64k+thp"),
        ("neoverse-n1", "base-64k"),
        ("rva23", "base-64k"),
        ("rva23", "base-64k+thp"),
    ] {
        let mut space = space(machine, policy, Physical::default());
        mmap(&mut *space, START, 8 << 20);
        let (mut state, mut touched) = (9, BTreeSet::new());
        for _ in 0..500 {
            let va = START + next_random(&mut state) % (8 << 20) / K4 * K4;
            space.access(va, true).unwrap();
            touched.insert(va);
            let costs = space.costs();
            let chain = [costs.held_bytes, costs.resident_bytes(), touched.len() as u64 * K4];
            assert!(chain.is_sorted_by(|more, less| more >= less), "{machine} {policy}: {chain:?}");
        }
    }
}
