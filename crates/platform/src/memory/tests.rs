//! Tests of the memory of processes, with made-up statuses.

use policy::census::{Backing, Folio, Mapping};
use policy::size::PageSize;

use super::*;
use census::Region;

const MIB: u64 = 1 << 20;

/// An examination of `start..end` MiB, all of which is anonymous memory.
fn found(start: u64, end: u64) -> ProcessCensus {
    let mapping = Mapping { backing: Backing::Anonymous, leaf: PageSize::K4, folio: Folio::Whole(PageSize::K4) };
    let (start, end) = (start * MIB, end * MIB);
    let vma =
        Vma { start, end, protection: 3, shared: false, device: (0, 0), inode: 0, offset: 0, name: String::new() };
    let mut census = Census::default();
    census.add(mapping, end - start);
    let areas = vec![Area { vma, regions: vec![Region { start, end, mapping }] }];
    ProcessCensus { pid: 1, census, source: Source::PagemapScan, folios_of_system: None, areas }
}

fn status(most_resident: u64, anonymous: u64, other: u64, hugetlb: u64) -> Status {
    let text = format!(
        "VmHWM:\t{} kB\nRssAnon:\t{} kB\nRssFile:\t{} kB\nRssShmem: 0 kB\nVmData: 0 kB\nVmPTE: 0 kB\n\
         HugetlbPages: {} kB\n",
        most_resident << 10,
        anonymous << 10,
        other << 10,
        hugetlb << 10
    );
    Status::parse(&text).unwrap()
}

fn peak(memory: &Memory) -> (u64, u64, u64) {
    let Peak { seen_bytes, least_bytes, most_bytes } = memory.peak();
    (seen_bytes / MIB, least_bytes / MIB, most_bytes / MIB)
}

#[test]
fn memory_freed_before_the_end_is_missing_from_the_peak() {
    let mut memory = Memory::default();
    memory.measure(status(400, 12, 8, 0));
    memory.look(&found(0, 12));
    assert_eq!(peak(&memory), (12, 392, 400));
}

#[test]
fn counts_memory_once_however_often_it_is_examined() {
    let mut memory = Memory::default();
    for _ in 0..200 {
        memory.measure(status(400, 4, 8, 0));
        memory.look(&found(0, 4));
        memory.removed(0, 4 * MIB);
    }
    memory.look(&found(2, 6));
    assert_eq!(peak(&memory), (6, 392, 400));
}

/// The rest of a large page counts as it was before, until something else is there.
#[test]
fn the_rest_of_a_cut_large_page_counts_as_before() {
    let mut memory = Memory::default();
    let mut left = found(0, 1);
    memory.remains.note(&left.areas[0].regions, PageSize::M2);
    assert_eq!(memory.remains.uncut_parts(0, 2 * MIB), [(0, 2 * MIB)], "base pages are what they were");
    left.areas[0].regions[0].mapping.leaf = PageSize::M2;
    memory.remains.note(&left.areas[0].regions, PageSize::M2);
    assert_eq!(memory.remains.uncut_parts(MIB / 2, 2 * MIB), [(MIB, 2 * MIB)]);
    let before = memory.before_the_cut(MIB / 2, 2 * MIB);
    assert_eq!(before.census.bytes_by_leaf(), [(PageSize::M2, MIB / 2)]);
    memory.removed(MIB / 2, 2 * MIB);
    assert_eq!(memory.remains.uncut_parts(0, MIB), [(MIB / 2, MIB)]);
    assert!(memory.before_the_cut(MIB / 2, MIB).census.is_empty());
}

#[test]
fn memory_examined_before_the_peak_is_no_part_of_it() {
    let mut memory = Memory::default();
    memory.measure(status(108, 100, 8, 0));
    memory.look(&found(0, 100));
    memory.removed(0, 100 * MIB);
    assert_eq!(peak(&memory), (100, 100, 108));
    memory.measure(status(308, 10, 8, 0));
    memory.look(&found(0, 10));
    assert_eq!(peak(&memory), (10, 300, 308));
}

/// Files that were unmapped since do not increase the computed anonymous memory.
#[test]
fn files_are_no_part_of_the_peak() {
    let mut memory = Memory::default();
    memory.measure(status(320, 20, 300, 0));
    memory.measure(status(321, 20, 1, 0));
    memory.measure(status(321, 20, 1, 0));
    memory.look(&found(0, 20));
    assert_eq!(peak(&memory), (20, 21, 321));
    assert!(!memory.peak().is_unseen() && !memory.peak().is_seen());
}

/// Shared memory that was freed, or files that the kernel reclaimed, look like private memory in the peak of the resident set.
#[test]
fn shared_memory_is_no_part_of_a_peak_that_was_counted() {
    let end = status(16, 1, 8, 0);
    for (sees_all_frees, least) in [(false, 8), (true, 1)] {
        let mut memory = Memory { sees_all_frees, ..Memory::default() };
        memory.measure(end);
        memory.look(&found(0, 1));
        assert_eq!(memory.peak().least_bytes / MIB, least);
    }
    let mut all = PeakMemory::new(true);
    all.record(7, Ok((7, Some(end)))).unwrap();
    all.frees_unwatched(7, Unwatched::Killed);
    all.record(7, Ok((7, Some(status(26, 1, 8, 0))))).unwrap();
    assert_eq!(all.of(7).peak().least_bytes / MIB, 18, "it may have been reaped");
    assert_eq!(all.unwatched(), BTreeSet::from([Unwatched::Killed]));
}

#[test]
fn swapped_memory_is_missing_where_all_frees_are_seen() {
    let mut all = PeakMemory::new(true);
    let swapped = Status { swapped_bytes: 9 * MIB, ..status(16, 7, 1, 0) };
    all.record(7, Ok((7, Some(swapped)))).unwrap();
    all.of(7).look(&found(0, 7));
    assert_eq!(peak(all.of(7)), (7, 16, 16));
    assert_eq!(all.unwatched(), BTreeSet::from([Unwatched::SwappedOut]));
}

#[test]
fn hugetlb_pages_count_as_resident_at_their_peak() {
    let mut memory = Memory::default();
    memory.measure(status(8, 4, 4, 650));
    memory.measure(status(8, 4, 4, 325));
    memory.look(&found(0, 329));
    assert_eq!(peak(&memory), (329, 654, 658));
    assert_eq!((memory.most_resident_bytes, memory.most_hugetlb_bytes), (658 * MIB, 650 * MIB));
}

#[test]
fn small_differences_are_not_counted_and_nothing_is_known_of_nothing() {
    let mut memory = Memory::default();
    memory.measure(status(3, 1, 1, 0));
    memory.look(&found(0, 1));
    assert_eq!(memory.peak().seen_bytes, memory.peak().least_bytes - MIB);
    memory.seen_bytes += 1;
    assert_eq!(memory.peak().seen_bytes, memory.peak().least_bytes);
    assert_eq!(Status::parse("Name: a\nTgid: 7\n"), None, "a zombie");
}

#[test]
fn memory_that_could_not_be_read_makes_no_figure() {
    let mut memory = PeakMemory::default();
    memory.record(7, Ok((7, Some(status(400, 12, 8, 0))))).unwrap();
    assert_eq!(memory.record(8, Ok((7, None))).unwrap(), 7, "a thread of a process without memory");
    assert_eq!(memory.record(9, Err(io::Error::from_raw_os_error(libc::ESRCH))).unwrap(), 9);
    assert_eq!(memory.observations().len(), 3);
    assert_eq!(memory.of(7).peak().most_bytes, 400 * MIB, "what has gone does not lower the peak");
    assert!(memory.record(7, Err(io::Error::from_raw_os_error(libc::EMFILE))).is_err());
    assert_eq!(memory.observations(), []);
}
