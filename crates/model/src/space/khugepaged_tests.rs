//! Compares the collapses of khugepaged, and their times, with numbers worked out by hand.

use super::kernel_tests::groups;
use super::tests::{M2, START, event, mmap, space, write_all};
use super::*;
use trace::Call;

/// Maps the second half of a 2M window, and advises huge pages for the whole window.
fn second_half(space: &mut dyn Space, window: u64) {
    mmap(space, window + M2 / 2, M2 / 2);
    space.event(&event(Call::Madvise { address: window, bytes: M2, advice: 14 }, 0)).unwrap();
}

#[test]
fn khugepaged_collapses_eight_windows_per_scan() {
    let second = Kernel::default().instructions_per_s as u64;
    let mut space = space("cascade-lake", "thp", Physical::default());
    // 20 windows with a quarter of their pages, touched while the mappings were too small for huge pages.
    for window in 0..20 {
        mmap(&mut *space, START + window * M2, M2 / 2);
        write_all(&mut *space, START + window * M2, M2 / 4);
        second_half(&mut *space, START + window * M2);
    }
    let before = space.costs();
    assert_eq!((before.anonymous_faults, before.deposited_table_bytes), (20 * 128, 0));
    // khugepaged sleeps first. Then it collapses eight windows per scan.
    space.advance(10 * second - 1).unwrap();
    assert_eq!((space.costs().collapses, space.costs().scanned_pages), (0, 0));
    for (at, collapses) in [(10, 8), (19, 8), (20, 16), (30, 20)] {
        space.advance(at * second).unwrap();
        assert_eq!(space.costs().collapses, collapses, "after {at} s");
    }
    let costs = space.costs();
    assert_eq!(costs.collapse_copied_bytes, 20 * M2 / 4);
    assert_eq!(costs.zeroed_bytes - before.zeroed_bytes, 20 * M2 * 3 / 4);
    assert_eq!((costs.anonymous_bytes, costs.deposited_table_bytes), (20 * M2, 20 * 4096));
    assert_eq!(costs.faults(), before.faults());
    assert_eq!(groups(&*space), [(M2, M2, 20 * M2)]);
}

#[test]
fn khugepaged_skips_sparse_ranges_and_stops_at_zero_pages_to_scan() {
    let collapses = |max_ptes_none, pages_to_scan| {
        let mut space = space("cascade-lake", "thp", Physical::default());
        let khugepaged = Khugepaged {
            max_ptes_none: Some(max_ptes_none),
            pages_to_scan,
            scan_sleep_s: 1.0,
            ..Khugepaged::default()
        };
        space.set_kernel(Kernel { khugepaged, ..Kernel::default() });
        mmap(&mut *space, START, M2 / 2);
        write_all(&mut *space, START, M2 / 2);
        second_half(&mut *space, START);
        space.advance(100 << 32).unwrap();
        space.costs().collapses
    };
    assert_eq!([collapses(255, None), collapses(256, None), collapses(256, Some(0))], [0, 1, 0]);
}

/// Two processes with `windows` windows each, of which two are half populated and the others empty. Memory is too small to
/// collapse them all.
fn scanned(windows: u64) -> Box<dyn Space> {
    let mut space = space("cascade-lake", "thp", Physical { bytes: 3 * M2, ..Physical::default() });
    mmap(&mut *space, START, windows * M2);
    for window in 0..2 {
        space.access(START + window * M2, false).unwrap();
        space.event(&event(Call::Madvise { address: START + window * M2, bytes: M2, advice: 4 }, 0)).unwrap();
        mmap(&mut *space, START + window * M2, M2 / 2);
        write_all(&mut *space, START + window * M2, M2 / 2);
        second_half(&mut *space, START + window * M2);
    }
    space.fork().unwrap();
    space
}

#[test]
fn counts_repeated_scans_as_if_it_had_run_them() {
    let sleep = 10 * Kernel::default().instructions_per_s as u64;
    for windows in [2, 3, 7, 20, 100] {
        let (mut one_by_one, mut at_once) = (scanned(windows), scanned(windows));
        (1..=333).for_each(|wake| one_by_one.advance(wake * sleep).unwrap());
        at_once.advance(333 * sleep).unwrap();
        assert_eq!(one_by_one.costs(), at_once.costs(), "{windows}");
        assert!(at_once.costs().scanned_pages >= 333 * 512 * windows.min(8), "{windows}: {:?}", at_once.costs());
        // One more scan shows that khugepaged is at the same position in both.
        one_by_one.advance(334 * sleep).unwrap();
        at_once.advance(334 * sleep).unwrap();
        assert_eq!(one_by_one.costs(), at_once.costs(), "{windows}");
    }
}

#[test]
fn simulates_khugepaged_quickly_over_any_time() {
    for scan_sleep_s in [10.0, 1e-300] {
        // 64T of addresses, nearly all of them unmapped.
        let mut space = scanned(1 << 25);
        let khugepaged = Khugepaged { scan_sleep_s, ..Kernel::default().khugepaged };
        space.set_kernel(Kernel { khugepaged, ..Kernel::default() });
        for instructions in [1 << 40, u64::MAX - 1, u64::MAX] {
            space.advance(instructions).unwrap();
        }
        assert!(space.costs().scanned_pages > 0);
    }
}

/// A 2M window without 64K folios, because only half of each 64K was mapped when it was touched. Each 64K has `touched_pages`
/// present pages.
fn without_folios(policy: &str, touched_pages: u64) -> Box<dyn Space> {
    let mut space = space("cascade-lake", policy, Physical::default());
    const K64: u64 = 64 << 10;
    for folio in 0..32 {
        mmap(&mut *space, START + folio * K64, K64 / 2);
        write_all(&mut *space, START + folio * K64, touched_pages * 4096);
        mmap(&mut *space, START + folio * K64 + K64 / 2, K64 / 2);
    }
    space.event(&event(Call::Madvise { address: START, bytes: M2, advice: 14 }, 0)).unwrap();
    space
}

#[test]
fn khugepaged_collapses_to_folios_as_the_kernel_does() {
    let collapses_under = |policy, touched_pages, khugepaged: Khugepaged, smaller: &[u64]| {
        let mut space = without_folios(policy, touched_pages);
        space.set_kernel(Kernel { khugepaged, smaller_folios: smaller.to_vec(), ..Kernel::default() });
        let before = space.costs();
        space.advance(100 << 32).unwrap();
        let costs = space.costs();
        assert_eq!(costs.faults(), before.faults());
        assert_eq!(costs.collapse_copied_bytes, if costs.collapses == 0 { 0 } else { before.anonymous_bytes });
        (costs.collapses, (costs.anonymous_bytes - before.anonymous_bytes) >> 10)
    };
    let collapses =
        |touched_pages, khugepaged, smaller| collapses_under("mthp-64k", touched_pages, khugepaged, smaller);
    let makes = Khugepaged { makes_folios: true, scan_sleep_s: 1.0, ..Khugepaged::default() };
    assert_eq!(collapses(2, Khugepaged { makes_folios: false, ..makes }, &[]), (0, 0));
    // With the default max_ptes_none 2 of 16 pages are enough, and the missing ones are zeroed.
    assert_eq!(collapses(2, makes, &[]), (32, 32 * (64 - 8)));
    // With any other value all pages must be present: 4 of 16 are too few for 64K, but enough for one folio of 16K.
    let strict = Khugepaged { max_ptes_none: Some(0), ..makes };
    assert_eq!(collapses(4, strict, &[]), (0, 0));
    assert_eq!(collapses(4, strict, &[16 << 10]), (32, 0));
    assert_eq!(collapses(4, Khugepaged { max_ptes_none: Some(510), ..makes }, &[16 << 10]), (32, 0));
    // THP is tried first: with the default max_ptes_none one huge page replaces all, with 0 the enabled folios.
    assert_eq!(collapses_under("thp", 4, makes, &[16 << 10]), (1, 2048 - 32 * 16));
    assert_eq!(collapses_under("thp", 4, strict, &[16 << 10]), (32, 0));
    assert_eq!(collapses_under("thp", 4, Khugepaged { makes_folios: false, ..strict }, &[16 << 10]), (0, 0));
    assert_eq!(collapses_under("thp", 4, strict, &[]), (0, 0));
}

#[test]
fn khugepaged_keeps_existing_folios() {
    let mut space = space("cascade-lake", "mthp-64k", Physical::default());
    let khugepaged = Khugepaged { makes_folios: true, scan_sleep_s: 1.0, ..Khugepaged::default() };
    space.set_kernel(Kernel { khugepaged, ..Kernel::default() });
    mmap(&mut *space, START, M2);
    write_all(&mut *space, START, M2 / 2);
    let before = space.costs();
    space.advance(100 << 32).unwrap();
    assert_eq!((space.costs().collapses, space.costs().anonymous_bytes), (0, before.anonymous_bytes));
}
