//! Copy on write, freeing of tables, and partly freed folios. The expected counts were measured on Linux 6.18 (x86-64) with
//! `getrusage` and `VmPTE`.

use super::tests::{M2, START, advise, event, mmap, space, write_all, written};
use super::*;
use trace::Call;

const M1: u64 = M2 / 2;
const DONTNEED: u64 = 4;
const FREE: u64 = 8;

fn protect(space: &mut dyn Space, address: u64, bytes: u64, protection: u64) {
    space.event(&event(Call::Mprotect { address, bytes, protection }, 0)).unwrap();
}

fn protect_and_back(space: &mut dyn Space, address: u64, bytes: u64) {
    protect(space, address, bytes, 1);
    protect(space, address, bytes, 3);
}

fn munmap(space: &mut dyn Space, address: u64, bytes: u64) {
    space.event(&event(Call::Munmap { address, bytes }, 0)).unwrap();
}

fn read_all(space: &mut dyn Space, begin: u64, bytes: u64) {
    for va in (begin..begin + bytes).step_by(4096) {
        space.access(va, false).unwrap();
    }
}

/// The number of faults and of copied pages during an action.
fn counted(space: &mut dyn Space, action: impl FnOnce(&mut dyn Space)) -> (u64, u64) {
    let before = space.costs();
    action(space);
    let after = space.costs();
    (after.faults() - before.faults(), (after.copied_bytes - before.copied_bytes) / 4096)
}

fn tables(space: &dyn Space) -> u64 {
    space.costs().table_bytes / 4096
}

#[test]
fn mprotect_does_not_make_shared_pages_writable_again() {
    for (policy, pages, faults_after_exit) in [("base", 1024, 1024), ("mthp-64k", 1024, 1024), ("thp", 1024, 2)] {
        let mut space = written("cascade-lake", policy, 2 * M2);
        let store = |space: &mut dyn Space| {
            protect_and_back(space, START, 2 * M2);
            write_all(space, START, 2 * M2);
        };
        assert_eq!(counted(&mut *space, store), (0, 0), "{policy}: exclusive pages");
        let child = space.fork().unwrap();
        space.enter(child);
        assert_eq!(counted(&mut *space, store), (pages, pages), "{policy}: each page is copied");
        assert_eq!(counted(&mut *space, store), (0, 0), "{policy}: copies are exclusive to the child");
        space.enter(0);
        space.end(child).unwrap();
        assert_eq!(counted(&mut *space, store), (faults_after_exit, 0), "{policy}: a fault each, without copies");
        assert_eq!(counted(&mut *space, store), (0, 0), "{policy}: exclusive to the parent again");
    }
}

#[test]
fn an_older_kernel_copies_each_page_of_a_large_folio() {
    for (policy, faults, copies) in [("base", 1024, 0), ("mthp-64k", 1024, 1024), ("thp", 2, 0)] {
        let mut space = written("cascade-lake", policy, 2 * M2);
        space.set_kernel(Kernel { reuses_large_folios: false, ..Kernel::default() });
        let child = space.fork().unwrap();
        space.end(child).unwrap();
        let store = |space: &mut dyn Space| write_all(space, START, 2 * M2);
        assert_eq!(counted(&mut *space, store), (faults, copies), "{policy}: no other process has it");
        assert_eq!(counted(&mut *space, store), (0, 0), "{policy}: now exclusive");
    }
}

#[test]
fn copies_the_last_page_of_a_folio_to_free_the_rest() {
    let mut space = written("cascade-lake", "mthp-64k", 1 << 16);
    let child = space.fork().unwrap();
    space.end(child).unwrap();
    munmap(&mut *space, START, 14 * 4096);
    let last = START + 15 * 4096;
    assert_eq!(counted(&mut *space, |space| write_all(space, last - 4096, 4096)), (1, 0));
    munmap(&mut *space, last - 4096, 4096);
    assert_eq!(space.costs().unmapped_bytes, 15 * 4096);
    assert_eq!(counted(&mut *space, |space| write_all(space, last, 4096)), (1, 1));
    assert_eq!(space.costs().unmapped_bytes, 0);
}

#[test]
fn frees_a_table_with_the_last_vma_in_its_range() {
    let mut space = written("cascade-lake", "base", 2 * M2);
    assert_eq!(tables(&*space), 5);
    munmap(&mut *space, START + M1, M1);
    assert_eq!(tables(&*space), 5);
    munmap(&mut *space, START, M1);
    assert_eq!(tables(&*space), 4);
    // A table is also kept for a VMA that was never touched.
    mmap(&mut *space, START + (1 << 30), 4096);
    write_all(&mut *space, START + (1 << 30), 4096);
    mmap(&mut *space, START + (1 << 30) + M2, 4096);
    assert_eq!(tables(&*space), 6);
    munmap(&mut *space, START + (1 << 30), 4096);
    assert_eq!(tables(&*space), 5);
    munmap(&mut *space, START + (1 << 30) + M2, 4096);
    munmap(&mut *space, START + M2, M2);
    assert_eq!(tables(&*space), 1);
}

#[test]
fn madvise_frees_a_table_only_if_it_drops_all_its_pages() {
    for (pt_reclaim, machine, kept) in [
        (None, "cascade-lake", 4),
        (Some(false), "cascade-lake", 5),
        (None, "neoverse-n1", 5),
        (Some(true), "rva23", 4),
    ] {
        let mut space = space(machine, "base", Physical::default());
        space.set_kernel(Kernel { pt_reclaim, ..Kernel::default() });
        mmap(&mut *space, START, 2 * M2);
        write_all(&mut *space, START, 2 * M2);
        let all = tables(&*space);
        advise(&mut *space, START, M1, DONTNEED);
        advise(&mut *space, START + M1, M1, DONTNEED);
        assert_eq!((tables(&*space), space.costs().anonymous_bytes), (all, M2), "{machine}");
        advise(&mut *space, START, M2 + 4096, DONTNEED);
        assert_eq!(tables(&*space), all - (5 - kept), "{machine} {pt_reclaim:?}");
    }
}

#[test]
fn maps_no_huge_page_where_a_table_exists() {
    let mut space = written("cascade-lake", "thp", 2 * M2);
    advise(&mut *space, START, M1, DONTNEED);
    advise(&mut *space, START + M1, M1, DONTNEED);
    assert_eq!(counted(&mut *space, |space| write_all(space, START, M2)).0, 512);
    advise(&mut *space, START, 2 * M2, DONTNEED);
    assert_eq!(counted(&mut *space, |space| write_all(space, START, 2 * M2)).0, 2);
    // No leaf maps the huge zero page either where a table exists.
    advise(&mut *space, START, M1, DONTNEED);
    advise(&mut *space, START + M1, M1, DONTNEED);
    assert_eq!(counted(&mut *space, |space| read_all(space, START, M2)).0, 512);
}

#[test]
fn fork_copies_empty_tables_but_no_vma_without_anonymous_pages() {
    let mut space = written("cascade-lake", "base", M2);
    advise(&mut *space, START, M1, DONTNEED);
    advise(&mut *space, START + M1, M1, DONTNEED);
    mmap(&mut *space, START + 8 * M2, M2);
    read_all(&mut *space, START + 8 * M2, M2);
    assert_eq!(tables(&*space), 5);
    let child = space.fork().unwrap();
    space.enter(child);
    assert_eq!(tables(&*space), 5 + 4);
    assert_eq!(counted(&mut *space, |space| read_all(space, START + 8 * M2, M2)).0, 512);
    // A VMA with an anonymous page is copied, including its zeros.
    space.enter(0);
    write_all(&mut *space, START + 8 * M2, 4096);
    let child = space.fork().unwrap();
    space.enter(child);
    assert_eq!(counted(&mut *space, |space| read_all(space, START + 8 * M2, M2)).0, 0);
}

#[test]
fn new_memory_of_a_child_shares_no_folio_window_with_inherited_memory() {
    let mut space = space("cascade-lake", "mthp-64k", Physical::default());
    mmap(&mut *space, START, M1 + 4096);
    write_all(&mut *space, START, M1);
    let child = space.fork().unwrap();
    let grow = |space: &mut dyn Space| {
        mmap(space, START + M1 + 4096, M1);
        write_all(space, START + M1 + 4096, (1 << 16) - 4096);
    };
    assert_eq!(counted(&mut *space, grow).0, 1);
    space.enter(child);
    assert_eq!(counted(&mut *space, grow).0, 15);
}

#[test]
fn mremap_does_not_duplicate_tables() {
    let mremap = |space: &mut dyn Space, to: u64, flags| {
        let call = Call::Mremap { address: START, old_bytes: M2, new_bytes: M2, flags, new_address: to };
        space.event(&event(call, to)).unwrap();
    };
    // The flags are MREMAP_MAYMOVE and MREMAP_FIXED; the last two cases add MREMAP_DONTUNMAP, which keeps the old mapping.
    for (flags, to, after) in [(3, START + 8 * M2, 4), (7, START + 8 * M2, 4), (7, START + 8 * M2 + 4096, 6)] {
        let mut space = written("cascade-lake", "base", M2);
        mremap(&mut *space, to, flags);
        assert_eq!((tables(&*space), space.costs().table_peak_bytes / 4096), (after, after), "{flags}");
    }
}

#[test]
fn advice_on_a_part_of_a_folio_splits_the_folio() {
    for (policy, bytes, splits) in [("mthp-64k", 1 << 16, 0), ("thp", M2, 1)] {
        let mut space = written("cascade-lake", policy, 2 * bytes);
        advise(&mut *space, START, bytes, FREE);
        assert_eq!(space.costs().folio_splits, 0, "{policy}: advice on a whole folio does not split it");
        let before = space.verdict().unwrap();
        assert_eq!(
            (before.concerned_bytes, before.covered_bytes),
            (3 * bytes, 3 * bytes),
            "{policy}: MADV_FREE inspects the range"
        );
        advise(&mut *space, START + bytes, 4096, FREE);
        let costs = space.costs();
        assert_eq!((costs.folio_splits, costs.splits, costs.anonymous_bytes), (1, splits, 2 * bytes), "{policy}");
        let verdict = space.verdict().unwrap();
        // A page counts as requested if a PMD leaf mapped it, but not if it was one PTE of a folio.
        assert_eq!(verdict.covered_bytes, 2 * bytes + splits * 4096, "{policy}");
        // The pages are still mapped, so there is no fault.
        assert_eq!(counted(&mut *space, |space| write_all(space, START, 2 * bytes)), (0, 0));
        // A folio that a child also maps is not split.
        let child = space.fork().unwrap();
        advise(&mut *space, START, 4096, FREE);
        assert_eq!(space.costs().folio_splits, 1, "{policy}");
        space.end(child).unwrap();
        advise(&mut *space, START, 4096, 20);
        assert_eq!(space.costs().folio_splits, 2, "{policy}: cold");
    }
}

/// mremap of pages that were never touched creates destination tables, because the source has a table that a neighbour needed.
/// `VmPTE` of Linux 6.18 shows this.
#[test]
fn mremap_makes_tables_at_the_destination_even_without_pages() {
    const BYTES: u64 = 27 * 4096;
    let mut space = space("cascade-lake", "base", Physical::default());
    mmap(&mut *space, START, BYTES + 4096);
    space.access(START + BYTES, true).unwrap();
    let before = space.costs();
    // The destination begins one page below the end of one table, so the rest is in the next table.
    let to = START + 4 * M2 - 4096;
    let call = Call::Mremap { address: START, old_bytes: BYTES, new_bytes: M2, flags: 1, new_address: 0 };
    space.event(&event(call, to)).unwrap();
    let costs = space.costs();
    assert_eq!(costs.table_bytes, before.table_bytes + 2 * 4096);
    assert_eq!((costs.faults(), costs.anonymous_bytes), (before.faults(), before.anonymous_bytes));
    // The tables are freed with the mapping.
    space.event(&event(Call::Munmap { address: to, bytes: M2 }, 0)).unwrap();
    assert_eq!(space.costs().table_bytes, before.table_bytes);
}
