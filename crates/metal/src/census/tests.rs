//! The two ways to know the frames of large mappings: both must say the same, and where the faster one fails or
//! errs, the other one answers and says so.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mprotect};
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{ForkResult, fork};
use study::census::{Backing, Folio};
use study::size::PageSize;

use super::tables::PageTables;
use super::{FrameSource, Observer, ProcessCensus, geometry};
use crate::host::{Host, KernelVersion};
use crate::memory::{Mapping, base_page};

const MIB: usize = 1 << 20;
const BOTH: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

fn own() -> u32 {
    std::process::id()
}

/// Memory of all kinds in one mapping: base pages with holes, pages of zeros, folios mapped in part and whole, pages
/// without access, and swapped ones where there is swap.
fn motley() -> Mapping {
    let memory = Mapping::aligned(40 * MIB, PageSize::M2, BOTH, MapFlags::MAP_PRIVATE).unwrap();
    advise(&memory, 0..16 * MIB, MmapAdvise::MADV_NOHUGEPAGE);
    advise(&memory, 16 * MIB..32 * MIB, MmapAdvise::MADV_HUGEPAGE);
    let page = base_page().bytes() as usize;
    advise(&memory, 32 * MIB..40 * MIB, MmapAdvise::MADV_HUGEPAGE);
    (32 * MIB..40 * MIB).step_by(page).for_each(|at| write(&memory, at));
    (0..4 * MIB).step_by(3 * page).for_each(|at| write(&memory, at));
    (4 * MIB..8 * MIB).step_by(page).for_each(|at| write(&memory, at));
    (8 * MIB..12 * MIB).step_by(2 * page).for_each(|at| read(&memory, at));
    (12 * MIB..14 * MIB).step_by(page).for_each(|at| write(&memory, at));
    (16 * MIB..26 * MIB).step_by(page).for_each(|at| write(&memory, at));
    advise(&memory, 5 * MIB..5 * MIB + 7 * page, MmapAdvise::MADV_DONTNEED);
    advise(&memory, 18 * MIB + page..18 * MIB + 9 * page, MmapAdvise::MADV_DONTNEED);
    advise(&memory, 13 * MIB..14 * MIB, MmapAdvise::MADV_PAGEOUT);
    protect(&memory, 12 * MIB..12 * MIB + 5 * page, ProtFlags::PROT_NONE);
    protect(&memory, 20 * MIB..20 * MIB + page, ProtFlags::PROT_READ);
    protect(&memory, 20 * MIB..20 * MIB + page, BOTH);
    protect(&memory, 22 * MIB + 3 * page..22 * MIB + 8 * page, ProtFlags::PROT_NONE);
    // Folios behind base pages without access, in a mapping that is large enough to be walked by itself.
    (32 * MIB..40 * MIB).step_by(2 * MIB).for_each(|at| {
        protect(&memory, at..at + page, ProtFlags::PROT_READ);
        protect(&memory, at..at + page, BOTH);
    });
    protect(&memory, 33 * MIB..39 * MIB, ProtFlags::PROT_NONE);
    memory
}

fn write(memory: &Mapping, at: usize) {
    assert!(at < memory.bytes());
    // SAFETY: inside the mapping, which nothing else uses.
    unsafe { memory.start().add(at).write_volatile(1) };
}

fn read(memory: &Mapping, at: usize) {
    assert!(at < memory.bytes());
    // SAFETY: inside the mapping.
    unsafe { memory.start().add(at).read_volatile() };
}

fn advise(memory: &Mapping, part: Range<usize>, advice: MmapAdvise) {
    assert!(part.end <= memory.bytes());
    // SAFETY: inside the mapping, of whose content nothing depends.
    let _ = unsafe { madvise(memory.start().add(part.start).cast(), part.len(), advice) };
}

fn protect(memory: &Mapping, part: Range<usize>, access: ProtFlags) {
    assert!(part.end <= memory.bytes());
    // SAFETY: inside the mapping; nobody touches what is closed.
    unsafe { mprotect(memory.start().add(part.start).cast(), part.len(), access) }.unwrap();
}

/// An observer that reads page tables however small a process is; `None`, and the reason, where it cannot.
fn observer() -> Option<Observer> {
    let observer = Observer::open().with_kernel_memory();
    if !observer.sees_folios() {
        testing::skip("root, for folios");
        return None;
    }
    match observer.tables() {
        Ok(_) => Some(observer),
        Err(reason) if is_known_kernel() && (reason.contains("was not found") || reason.contains("has no")) => {
            panic!("{reason}")
        }
        Err(reason) => {
            testing::skip(reason);
            None
        }
    }
}

/// Whether nothing but a mistake can keep the kernel's structures from being found: this was written for Linux up to
/// 6.18, and memory encryption changes page tables.
fn is_known_kernel() -> bool {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_encrypted = processor.split_whitespace().any(|flag| matches!(flag, "sme" | "sev"));
    let version = Host::open("/").unwrap().kernel_version();
    !is_encrypted && version.is_some_and(|version| version <= KernelVersion(6, 18))
}

fn look(observer: &Observer, pid: u32, part: Range<u64>) -> ProcessCensus {
    observer.range_with_places(pid, part.start, part.end).unwrap()
}

/// The first difference, because there are thousands of regions.
fn assert_areas(seen: &ProcessCensus, expected: &ProcessCensus) {
    for (one, other) in seen.areas.iter().zip(&expected.areas) {
        assert_eq!(one.vma, other.vma);
        let differs = one.regions.iter().zip(&other.regions).find(|(one, other)| one != other);
        assert_eq!(differs, None, "in {:?}", one.vma);
        assert_eq!(one.regions.len(), other.regions.len(), "in {:?}", one.vma);
    }
    assert_eq!(seen.areas.len(), expected.areas.len());
}

/// Looks in both ways until nothing changed in between: the kernel moves and joins pages of its own accord.
fn assert_equal(observer: &Observer, pid: u32, part: Range<u64>) -> ProcessCensus {
    let pagemap = Observer::open().without_kernel_memory();
    for _ in 0..5 {
        let before = look(&pagemap, pid, part.clone());
        let seen = look(observer, pid, part.clone());
        let after = look(&pagemap, pid, part.clone());
        if before.areas == after.areas {
            assert_eq!(before.frames, FrameSource::Pagemap);
            assert_areas(&seen, &before);
            assert_eq!(seen.census, before.census);
            return seen;
        }
    }
    panic!("the kernel changed the memory each time")
}

/// The same, of an observer that reads page tables.
fn assert_same(observer: &Observer, pid: u32, part: Range<u64>) -> ProcessCensus {
    let seen = assert_equal(observer, pid, part);
    assert!(matches!(seen.frames, FrameSource::KernelMemory { .. }), "{:?}", seen.frames);
    seen
}

#[test]
fn both_ways_say_the_same_of_memory_of_all_kinds() {
    let Some(observer) = observer() else { return };
    let memory = motley();
    let seen = assert_same(&observer, own(), memory.addresses());
    let bytes = |kind: &dyn Fn(Backing, Folio) -> bool| {
        seen.census.bytes_where(|mapping| kind(mapping.backing, mapping.folio)) as usize
    };
    assert_eq!(bytes(&|backing, _| backing == Backing::Zero), 2 * MIB);
    assert!(bytes(&|_, folio| folio == Folio::Whole(base_page())) >= 4 * MIB);
    if geometry::pmd_leaf().is_some() && seen.census.bytes_by_leaf().len() > 1 {
        assert!(bytes(&|_, folio| matches!(folio, Folio::Part(_))) > 0, "{:?}", seen.census);
    }
    // A part that cuts tables and folios, and one that no table is for.
    let Range { start, .. } = memory.addresses();
    assert_same(&observer, own(), start + (19 << 20) + 4096..start + (27 << 20) - 4096);
    assert_same(&observer, own(), start + (26 << 20)..start + (31 << 20));
}

#[test]
fn both_ways_say_the_same_of_a_process_that_shares_its_memory() {
    let Some(observer) = observer() else { return };
    let memory = motley();
    // SAFETY: the child touches memory of its own, stops, and leaves without running any of Rust's code.
    let ForkResult::Parent { child } = (unsafe { fork() }).unwrap() else {
        (0..30 * MIB).step_by(5 << 16).for_each(|at| {
            if !(12 * MIB..13 * MIB).contains(&at) && !(22 * MIB..23 * MIB).contains(&at) {
                write(&memory, at);
            }
        });
        let _ = raise(Signal::SIGSTOP);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    };
    waitpid(child, Some(WaitPidFlag::WUNTRACED)).unwrap();
    let seen = catch_unwind(AssertUnwindSafe(|| {
        assert_same(&observer, child.as_raw() as u32, memory.addresses());
        assert_same(&observer, own(), memory.addresses());
        assert_same(&observer, child.as_raw() as u32, 0..u64::MAX);
    }));
    let pagemap = std::fs::File::open(format!("/proc/{child}/pagemap")).unwrap();
    let space = || observer.tables().unwrap().space(&pagemap).unwrap();
    let living = space();
    kill(child, Signal::SIGKILL).unwrap();
    waitpid(child, None).unwrap();
    seen.unwrap();
    assert!(living.is_some() && space().is_none(), "the tables of what has ended are nobody's");
}

#[test]
fn memory_that_changes_all_the_time_does_no_harm() {
    let Some(observer) = observer() else { return };
    let memory = motley();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let page = base_page().bytes() as usize;
            while !stop.load(Ordering::Relaxed) {
                advise(&memory, 4 * MIB..12 * MIB, MmapAdvise::MADV_DONTNEED);
                (4 * MIB..12 * MIB).step_by(page).for_each(|at| write(&memory, at));
                advise(&memory, 16 * MIB..22 * MIB, MmapAdvise::MADV_DONTNEED);
                (16 * MIB..22 * MIB).step_by(page).for_each(|at| write(&memory, at));
            }
        });
        for _ in 0..50 {
            let seen = look(&observer, own(), memory.addresses());
            let regions: Vec<_> = seen.areas.iter().flat_map(|area| &area.regions).collect();
            assert!(regions.windows(2).all(|pair| pair[0].end <= pair[1].start), "in order, and none twice");
            assert!(seen.census.total_bytes() <= memory.bytes() as u64);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_same(&observer, own(), memory.addresses());
}

#[test]
fn what_cannot_be_read_is_said_and_read_otherwise() {
    let Some(observer) = observer() else { return };
    let refused = Observer { tables: OnceLock::from(Err("no reason".to_string())), ..observer };
    let memory = motley();
    let seen = assert_equal(&refused, own(), memory.addresses());
    assert_eq!(seen.frames, FrameSource::PagemapInstead { reason: "no reason".into() });
}

#[test]
fn what_is_read_from_the_wrong_place_is_not_believed() {
    let Some(observer) = observer() else { return };
    let Ok(tables) = PageTables::open(base_page()) else { unreachable!("it has just been opened") };
    let misled = Observer { tables: OnceLock::from(Ok(tables.misled())), ..observer };
    let memory = motley();
    let pagemap = look(&Observer::open().without_kernel_memory(), own(), memory.addresses());
    let folios = |mapping: &study::census::Mapping| matches!(mapping.folio, Folio::Part(_));
    if pagemap.census.bytes_where(folios) == 0 {
        return testing::skip("THP, and free memory in blocks of PMD size");
    }
    let seen = assert_equal(&misled, own(), memory.addresses());
    assert!(
        matches!(&seen.frames, FrameSource::PagemapInstead { reason } if reason.contains("did not say the same")),
        "{:?}",
        seen.frames
    );
}

#[test]
fn what_changes_while_it_is_read_is_read_again() {
    let Some(observer) = observer() else { return };
    let memory = Arc::new(Mapping::aligned(32 * MIB, PageSize::M2, BOTH, MapFlags::MAP_PRIVATE).unwrap());
    let page = base_page().bytes() as usize;
    advise(&memory, 0..32 * MIB, MmapAdvise::MADV_NOHUGEPAGE);
    (0..32 * MIB).step_by(page).for_each(|at| write(&memory, at));
    let changing = Arc::clone(&memory);
    let tables = PageTables::open(base_page()).map(|tables| {
        tables.with_meanwhile(move || advise(&changing, 4 * MIB..4 * MIB + page, MmapAdvise::MADV_DONTNEED))
    });
    let observer = Observer { tables: OnceLock::from(tables.map_err(|error| error.to_string())), ..observer };
    let seen = look(&observer, own(), memory.addresses());
    let FrameSource::KernelMemory { left_bytes } = seen.frames else { panic!("{:?}", seen.frames) };
    assert!((2 << 20..32 << 20).contains(&left_bytes), "the table with the page, and no other: {left_bytes}");
    assert_eq!(seen.census.total_bytes() as usize, 32 * MIB - page, "the page that went is not in it");
}

#[test]
fn small_processes_are_not_worth_it() {
    let memory = motley();
    assert_eq!(look(&Observer::open(), own(), memory.addresses()).frames, FrameSource::Pagemap);
}
