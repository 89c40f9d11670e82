//! Tests of reclaim, and of pages that several processes share: pages in swap and pages of shared memory.

use super::tests::{M2, START, event, mmap, space, write_all};
use super::*;
use trace::Call;

const BYTES: u64 = 64 << 10;

fn read_all(space: &mut dyn Space, begin: u64, bytes: u64) {
    (begin..begin + bytes).step_by(4096).for_each(|va| {
        space.access(va, false).unwrap();
    });
}

fn map_shared(space: &mut dyn Space, begin: u64, bytes: u64) {
    let call = Call::Mmap { address: begin, bytes, protection: 3, flags: 0x21, file: -1, offset: 0, file_system: None };
    space.event(&event(call, begin)).unwrap();
}

fn unmap(space: &mut dyn Space, address: u64, bytes: u64) {
    space.event(&event(Call::Munmap { address, bytes }, 0)).unwrap();
}

/// Uses up the machine's 1M of memory, so that everything else is swapped out.
fn swap_out_everything(space: &mut dyn Space) {
    mmap(space, START + 8 * M2, 4 << 20);
    write_all(space, START + 8 * M2, 4 << 20);
    unmap(space, START + 8 * M2, 4 << 20);
}

fn space_of_1m(policy: &str) -> Box<dyn Space> {
    space("cascade-lake", policy, Physical { bytes: 1 << 20, ..Physical::default() })
}

/// A process and its forked child, with all their memory in swap. Returns the child's number.
fn forked_and_swapped() -> (Box<dyn Space>, u32) {
    let mut space = space_of_1m("base");
    mmap(&mut *space, START, BYTES);
    write_all(&mut *space, START, BYTES);
    let child = space.fork().unwrap();
    swap_out_everything(&mut *space);
    assert_eq!(space.costs().anonymous_bytes, 0);
    (space, child)
}

#[test]
fn a_page_of_two_processes_is_read_from_swap_once() {
    let (mut space, child) = forked_and_swapped();
    // After one process has read the pages in, the other finds them in memory.
    let before = space.costs();
    read_all(&mut *space, START, BYTES);
    assert_eq!(space.costs().swap_faults - before.swap_faults, 16);
    space.enter(child);
    read_all(&mut *space, START, BYTES);
    let both = space.costs();
    assert_eq!((both.swap_faults - before.swap_faults, both.faults() - before.faults()), (16, 16));
    assert_eq!(space.physical(START), {
        space.enter(0);
        space.physical(START)
    });
    // The process that writes gets copies. The other then has the pages exclusively.
    write_all(&mut *space, START, BYTES);
    assert_eq!(space.costs().copied_bytes - both.copied_bytes, BYTES);
    space.enter(child);
    write_all(&mut *space, START, BYTES);
    let wrote = space.costs();
    assert_eq!((wrote.copied_bytes - both.copied_bytes, wrote.write_faults - both.write_faults), (BYTES, 32));
}

#[test]
fn a_store_to_a_page_that_another_process_has_read_in_copies_it_in_the_same_fault() {
    let (mut space, child) = forked_and_swapped();
    read_all(&mut *space, START, BYTES);
    space.enter(child);
    let before = space.costs();
    write_all(&mut *space, START, BYTES);
    let wrote = space.costs();
    assert_eq!((wrote.faults() - before.faults(), wrote.copied_bytes - before.copied_bytes), (16, BYTES));
    // The first process has the pages to itself now.
    space.enter(0);
    write_all(&mut *space, START, BYTES);
    assert_eq!(space.costs().copied_bytes, wrote.copied_bytes);
}

#[test]
fn a_store_to_a_shared_page_in_swap_copies_it_in_the_same_fault() {
    let (mut space, child) = forked_and_swapped();
    let before = space.costs();
    write_all(&mut *space, START, BYTES);
    let wrote = space.costs();
    assert_eq!((wrote.swap_faults - before.swap_faults, wrote.copied_bytes - before.copied_bytes), (16, BYTES));
    assert_eq!(wrote.faults(), before.faults());
    // The last process that references a page has it exclusively.
    space.enter(child);
    write_all(&mut *space, START, BYTES);
    let last = space.costs();
    assert_eq!((last.copied_bytes, last.write_faults), (wrote.copied_bytes, wrote.write_faults));
}

#[test]
fn exit_drops_references_to_swap_slots() {
    let (mut space, child) = forked_and_swapped();
    space.end(child).unwrap();
    let before = space.costs();
    write_all(&mut *space, START, BYTES);
    let after = space.costs();
    assert_eq!((after.swap_faults - before.swap_faults, after.copied_bytes), (16, before.copied_bytes));
}

#[test]
fn reclaims_and_frees_base_pages_of_several_entries() {
    for (machine, policy) in [("sifive-u74", "base-64k"), ("rva23", "base-64k"), ("neoverse-n1", "base-64k")] {
        let mut space = super::tests::space(machine, policy, Physical { bytes: 1 << 20, ..Physical::default() });
        mmap(&mut *space, START, M2);
        write_all(&mut *space, START, M2);
        let costs = space.costs();
        assert_eq!((costs.swapped_out_bytes, costs.splits), (1 << 20, 0), "{machine}");
        write_all(&mut *space, START, M2);
        assert_eq!(space.costs().swap_faults, 32, "{machine}");
        // The child also touches a page outside all VMAs. Its end must free that page too.
        let child = space.fork().unwrap();
        space.enter(child);
        space.access(START + 8 * M2, true).unwrap();
        space.enter(0);
        space.end(child).unwrap();
        space.event(&event(Call::exec("a"), 0)).unwrap();
        assert_eq!((space.costs().anonymous_bytes, space.costs().unmapped_bytes), (0, 0), "{machine}");
    }
}

#[test]
fn swaps_out_only_the_mapped_pages_of_a_folio() {
    let mut space = space_of_1m("mthp-64k");
    mmap(&mut *space, START, BYTES);
    write_all(&mut *space, START, BYTES);
    let child = space.fork().unwrap();
    // Both processes unmap the same half of the folio. The folio is not split, because two processes map it.
    unmap(&mut *space, START, BYTES / 2);
    space.enter(child);
    unmap(&mut *space, START, BYTES / 2);
    space.enter(0);
    swap_out_everything(&mut *space);
    let before = space.costs();
    read_all(&mut *space, START + BYTES / 2, BYTES / 2);
    assert_eq!(space.costs().swap_faults - before.swap_faults, 8);
    // Swapped out: the mapped half of the folio, and at least 3M of the 4M that `swap_out_everything` writes.
    let rest = before.swapped_out_bytes - BYTES / 2;
    assert!(rest.is_multiple_of(BYTES) && rest >= 3 << 20, "{rest}");
}

#[test]
fn shared_memory_is_identified_by_object_and_not_by_address() {
    let mut space = space("cascade-lake", "base", Physical::default());
    map_shared(&mut *space, START, BYTES);
    write_all(&mut *space, START, BYTES);
    let child = space.fork().unwrap();
    space.enter(child);
    // At another address, the object still has the same pages.
    let call = Call::Mremap { address: START, old_bytes: BYTES, new_bytes: BYTES, flags: 1, new_address: 0 };
    space.event(&event(call, START + M2)).unwrap();
    read_all(&mut *space, START + M2, BYTES);
    let moved = space.costs();
    // One read fault maps all sixteen pages (fault-around), because they are in memory.
    assert_eq!((moved.anonymous_faults, moved.zeroed_bytes), (17, BYTES));
    let own = space.physical(START + M2);
    // Another object at the same address has different pages.
    map_shared(&mut *space, START, BYTES);
    write_all(&mut *space, START, BYTES);
    assert_eq!(space.costs().zeroed_bytes, 2 * BYTES);
    space.enter(0);
    assert_eq!(space.physical(START), own);
}

#[test]
fn shared_memory_keeps_its_pages_until_its_last_mapping_is_removed() {
    let mut space = space("cascade-lake", "base", Physical::default());
    map_shared(&mut *space, START, BYTES);
    let child = space.fork().unwrap();
    space.enter(child);
    write_all(&mut *space, START, BYTES);
    space.enter(0);
    space.end(child).unwrap();
    assert_eq!((space.costs().held_bytes, space.costs().held_unmapped_bytes), (BYTES, BYTES));
    let before = space.costs().faults();
    read_all(&mut *space, START, BYTES);
    assert_eq!((space.costs().faults() - before, space.costs().held_unmapped_bytes), (1, 0));
    unmap(&mut *space, START, BYTES / 2);
    assert_eq!(space.costs().held_bytes, BYTES);
    unmap(&mut *space, START + BYTES / 2, BYTES / 2);
    assert_eq!((space.costs().held_bytes, space.costs().held_unmapped_bytes), (0, 0));
}

#[test]
fn shared_memory_is_still_shared_after_swap_in() {
    let mut space = space_of_1m("base");
    map_shared(&mut *space, START, BYTES);
    write_all(&mut *space, START, BYTES);
    let child = space.fork().unwrap();
    space.enter(child);
    write_all(&mut *space, START, BYTES);
    swap_out_everything(&mut *space);
    assert_eq!(space.costs().anonymous_bytes, 0);
    let before = space.costs();
    write_all(&mut *space, START, BYTES);
    space.enter(0);
    write_all(&mut *space, START, BYTES);
    let back = space.costs();
    assert_eq!((back.swap_faults - before.swap_faults, back.faults() - before.faults()), (16, 16));
    assert_eq!((back.copied_bytes, back.zeroed_bytes), (before.copied_bytes, before.zeroed_bytes));
    let own = space.physical(START);
    space.enter(child);
    assert_eq!(space.physical(START), own);
}
