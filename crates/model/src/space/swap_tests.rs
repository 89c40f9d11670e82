//! Pages that several processes share: in swap, and of shared memory.

use super::tests::{M2, PLACE, event, mmap, space, write_all};
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

/// Uses up the machine's megabyte of memory, so that everything else is swapped out.
fn press(space: &mut dyn Space) {
    mmap(space, PLACE + 8 * M2, 4 << 20);
    write_all(space, PLACE + 8 * M2, 4 << 20);
    unmap(space, PLACE + 8 * M2, 4 << 20);
}

fn short(policy: &str) -> Box<dyn Space> {
    space("cascade-lake", policy, Physical { bytes: 1 << 20, ..Physical::default() })
}

/// A process and its copy, with all of their memory in swap.
fn forked_and_swapped() -> (Box<dyn Space>, u32) {
    let mut space = short("base");
    mmap(&mut *space, PLACE, BYTES);
    write_all(&mut *space, PLACE, BYTES);
    let child = space.fork().unwrap();
    press(&mut *space);
    assert_eq!(space.costs().anonymous_bytes, 0);
    (space, child)
}

#[test]
fn a_page_that_two_processes_have_comes_back_from_swap_once() {
    let (mut space, child) = forked_and_swapped();
    // After one has read it in, the other finds it in memory.
    let before = space.costs();
    read_all(&mut *space, PLACE, BYTES);
    assert_eq!(space.costs().swap_faults - before.swap_faults, 16);
    space.enter(child);
    read_all(&mut *space, PLACE, BYTES);
    let both = space.costs();
    assert_eq!((both.swap_faults - before.swap_faults, both.faults() - before.faults()), (16, 16));
    assert_eq!(space.physical(PLACE), {
        space.enter(0);
        space.physical(PLACE)
    });
    // The process that writes gets a copy, and the other then has its page exclusively.
    write_all(&mut *space, PLACE, BYTES);
    assert_eq!(space.costs().copied_bytes - both.copied_bytes, BYTES);
    space.enter(child);
    write_all(&mut *space, PLACE, BYTES);
    let wrote = space.costs();
    assert_eq!((wrote.copied_bytes - both.copied_bytes, wrote.write_faults - both.write_faults), (BYTES, 32));
}

#[test]
fn a_store_to_a_page_in_swap_that_another_process_knows_copies_it_at_the_same_fault() {
    let (mut space, child) = forked_and_swapped();
    let before = space.costs();
    write_all(&mut *space, PLACE, BYTES);
    let wrote = space.costs();
    assert_eq!((wrote.swap_faults - before.swap_faults, wrote.copied_bytes - before.copied_bytes), (16, BYTES));
    assert_eq!(wrote.faults(), before.faults());
    // The last process with a reference to a page has it exclusively.
    space.enter(child);
    write_all(&mut *space, PLACE, BYTES);
    let last = space.costs();
    assert_eq!((last.copied_bytes, last.write_faults), (wrote.copied_bytes, wrote.write_faults));
}

#[test]
fn a_process_that_ends_gives_up_its_pages_in_swap() {
    let (mut space, child) = forked_and_swapped();
    space.end(child).unwrap();
    let before = space.costs();
    write_all(&mut *space, PLACE, BYTES);
    let after = space.costs();
    assert_eq!((after.swap_faults - before.swap_faults, after.copied_bytes), (16, before.copied_bytes));
}

#[test]
fn base_pages_of_several_entries_are_reclaimed_and_end_as_others() {
    for (machine, policy) in [("sifive-u74", "base-64k"), ("rva23", "base-64k"), ("neoverse-n1", "base-64k")] {
        let mut space = super::tests::space(machine, policy, Physical { bytes: 1 << 20, ..Physical::default() });
        mmap(&mut *space, PLACE, M2);
        write_all(&mut *space, PLACE, M2);
        let costs = space.costs();
        assert_eq!((costs.swapped_out_bytes, costs.splits), (1 << 20, 0), "{machine}");
        write_all(&mut *space, PLACE, M2);
        assert_eq!(space.costs().swap_faults, 32, "{machine}");
        // This includes a page that no VMA describes.
        let child = space.fork().unwrap();
        space.enter(child);
        space.access(PLACE + 8 * M2, true).unwrap();
        space.enter(0);
        space.end(child).unwrap();
        space.event(&event(Call::exec("a"), 0)).unwrap();
        assert_eq!((space.costs().anonymous_bytes, space.costs().unmapped_bytes), (0, 0), "{machine}");
    }
}

#[test]
fn only_what_is_mapped_of_a_folio_goes_to_swap() {
    let mut space = short("mthp-64k");
    mmap(&mut *space, PLACE, BYTES);
    write_all(&mut *space, PLACE, BYTES);
    let child = space.fork().unwrap();
    // Half of the folio is unmapped in both; with two processes it is not split into pages.
    unmap(&mut *space, PLACE, BYTES / 2);
    space.enter(child);
    unmap(&mut *space, PLACE, BYTES / 2);
    space.enter(0);
    press(&mut *space);
    let before = space.costs();
    read_all(&mut *space, PLACE + BYTES / 2, BYTES / 2);
    assert_eq!(space.costs().swap_faults - before.swap_faults, 8);
    // Of the 4M that passed through one megabyte all but the last were swapped out, and half of the folio.
    let pressed = before.swapped_out_bytes - BYTES / 2;
    assert!(pressed.is_multiple_of(BYTES) && pressed >= 3 << 20, "{pressed}");
}

#[test]
fn shared_memory_is_known_by_its_object_and_not_by_its_address() {
    let mut space = space("cascade-lake", "base", Physical::default());
    map_shared(&mut *space, PLACE, BYTES);
    write_all(&mut *space, PLACE, BYTES);
    let child = space.fork().unwrap();
    space.enter(child);
    // The same object at another address has the same pages.
    let call = Call::Mremap { address: PLACE, old_bytes: BYTES, new_bytes: BYTES, flags: 1, new_address: 0 };
    space.event(&event(call, PLACE + M2)).unwrap();
    read_all(&mut *space, PLACE + M2, BYTES);
    let moved = space.costs();
    assert_eq!((moved.anonymous_faults, moved.zeroed_bytes), (32, BYTES));
    let own = space.physical(PLACE + M2);
    // Another object at the same address has other pages.
    map_shared(&mut *space, PLACE, BYTES);
    write_all(&mut *space, PLACE, BYTES);
    assert_eq!(space.costs().zeroed_bytes, 2 * BYTES);
    space.enter(0);
    assert_eq!(space.physical(PLACE), own);
}

#[test]
fn shared_memory_comes_back_from_swap_shared() {
    let mut space = short("base");
    map_shared(&mut *space, PLACE, BYTES);
    write_all(&mut *space, PLACE, BYTES);
    let child = space.fork().unwrap();
    space.enter(child);
    write_all(&mut *space, PLACE, BYTES);
    press(&mut *space);
    assert_eq!(space.costs().anonymous_bytes, 0);
    let before = space.costs();
    write_all(&mut *space, PLACE, BYTES);
    space.enter(0);
    write_all(&mut *space, PLACE, BYTES);
    let back = space.costs();
    assert_eq!((back.swap_faults - before.swap_faults, back.faults() - before.faults()), (16, 16));
    assert_eq!((back.copied_bytes, back.zeroed_bytes), (before.copied_bytes, before.zeroed_bytes));
    let own = space.physical(PLACE);
    space.enter(child);
    assert_eq!(space.physical(PLACE), own);
}
