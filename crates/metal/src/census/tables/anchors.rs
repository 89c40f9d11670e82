//! Where the kernel has mapped all memory and its `struct page`s: found by pages of this process's own.
//!
//! The direct map (`page_offset_base`) and the array of `struct page`s (`vmemmap_base`) begin at multiples of 1 GiB
//! (`kernel_randomize_memory`, arch/x86/mm/kaslr.c) below any address inside of them that is known: a task's structure
//! lies in the first, a pointer to a page of its kernel stack into the second. So few beginnings are possible, and
//! each is tried on a page whose frame pagemap tells: in the direct map it must hold what this process wrote to it,
//! and its `struct page` must say its address (`index` of private anonymous memory is the page's number in the
//! address space). All are tried from the lowest on, because below both there is nothing that could be read.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags};
use paging::format::Format;
use paging::format::x86_64::X86_64;
use study::size::PageSize;

use super::layout::Layout;
use super::{Located, Unavailable, frame_of, locate, mm_of_file};
use crate::census::frames::{FRAME, PRESENT, read_entries};
use crate::census::scan::{self, Scanner};
use crate::kernel_memory::{Copier, Request};
use crate::memory::Mapping;

/// Both areas begin at multiples of this.
const ALIGNMENT_BYTES: u64 = 1 << 30;
/// Pages that are written to for the search.
const PAGES: usize = 16;
/// Words that are written to each.
const MARK_WORDS: usize = 8;
/// How often the search is made: the kernel may move a page while it is looked for.
const ATTEMPTS: usize = 3;

/// Where things are, and how tables are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchors {
    /// Where physical address 0 is mapped.
    pub direct_map: u64,
    /// The `struct page` of frame 0.
    pub vmemmap: u64,
    /// The format of page tables.
    pub format: X86_64,
    /// The frame of the page of zeros.
    pub zero_frame: u64,
}

/// Finds them.
///
/// # Errors
/// What was not found.
pub fn find(copier: &mut Copier, layout: &Layout, base: PageSize) -> Result<Anchors, Unavailable> {
    let mut result = search(copier, layout, base);
    for _ in 1..ATTEMPTS {
        if result.is_ok() {
            break;
        }
        result = search(copier, layout, base);
    }
    result
}

fn search(copier: &mut Copier, layout: &Layout, base: PageSize) -> Result<Anchors, Unavailable> {
    let own = Own::new(base).map_err(Unavailable::NoPages)?;
    let zero_frame = own.zero_frame().map_err(Unavailable::NoPages)?;
    let frames = highest_frame().ok_or(Unavailable::NoEnd)?;
    let found =
        |what, result: io::Result<Option<u64>>| result.map_err(Unavailable::Bpf)?.ok_or(Unavailable::NotFound(what));
    let direct_map = found("the direct map", own.direct_map(copier, frames))?;
    let vmemmap = found("the array of page structures", own.vmemmap(copier, layout, frames))?;
    let format = own.format(copier, layout, direct_map).map_err(Unavailable::Bpf)?;
    let format = format.ok_or(Unavailable::NotFound("the page table of this process"))?;
    Ok(Anchors { direct_map, vmemmap, format, zero_frame })
}

/// Memory of this process: pages with marks, and one behind them that was only read.
struct Own {
    memory: Mapping,
    base: PageSize,
    pagemap: File,
    marks: Vec<[u64; MARK_WORDS]>,
    frames: Vec<u64>,
}

impl Own {
    fn new(base: PageSize) -> io::Result<Own> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let memory = Mapping::anonymous((PAGES + 1) * base.bytes() as usize, access, MapFlags::MAP_PRIVATE)?;
        // A kernel without THP refuses the advice and has no need of it.
        let _ = memory.advise(MmapAdvise::MADV_NOHUGEPAGE);
        let random = RandomState::new();
        let marks: Vec<[u64; MARK_WORDS]> =
            (0..PAGES).map(|page| std::array::from_fn(|at| random.hash_one((page, at)))).collect();
        let step = base.bytes() as usize;
        for (page, mark) in marks.iter().enumerate() {
            // SAFETY: the page lies in the mapping, which nothing else uses, and begins at a multiple of a page.
            unsafe { memory.start().add(page * step).cast::<[u64; MARK_WORDS]>().write_volatile(*mark) };
        }
        // SAFETY: the last page of the mapping.
        unsafe { memory.start().add(PAGES * step).read_volatile() };
        let pagemap = File::open("/proc/self/pagemap")?;
        let mut entries = vec![0; PAGES];
        read_entries(&pagemap, memory.addresses().start / base.bytes(), &mut entries)?;
        let frames: Vec<u64> =
            entries.into_iter().filter(|entry| entry & PRESENT != 0).map(|entry| entry & FRAME).collect();
        match frames.len() == PAGES && frames.iter().all(|frame| *frame != 0) {
            true => Ok(Own { memory, base, pagemap, marks, frames }),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    fn address(&self, page: usize) -> u64 {
        self.memory.addresses().start + page as u64 * self.base.bytes()
    }

    /// The frame of the page that was only read, which is the page of zeros.
    fn zero_frame(&self) -> io::Result<u64> {
        let (address, bytes) = (self.address(PAGES), self.base.bytes());
        let mut found = Vec::new();
        Scanner::new().scan(&self.pagemap, address, address + bytes, scan::ZERO, &mut found)?;
        let mut entry = [0];
        read_entries(&self.pagemap, address / bytes, &mut entry)?;
        let is_zero = found.iter().any(|region| region.categories & scan::ZERO != 0) && entry[0] & PRESENT != 0;
        if is_zero {
            Ok(entry[0] & FRAME)
        } else {
            Err(io::Error::other("a page that was only read is not the page of zeros"))
        }
    }

    fn direct_map(&self, copier: &mut Copier, frames: u64) -> io::Result<Option<u64>> {
        let place = |page: usize| self.frames[page] * self.base.bytes();
        let inside = copier.current_task()?;
        let lowest = lowest(inside, frames.saturating_mul(self.base.bytes()));
        first(copier, lowest, inside, PAGES, |page| (place(page), &self.marks[page]))
    }

    fn vmemmap(&self, copier: &mut Copier, layout: &Layout, frames: u64) -> io::Result<Option<u64>> {
        let mut inside = copier.current_task()?;
        for offset in [layout.task_stack_area, layout.area_pages, 0] {
            match copier.word(inside.wrapping_add(offset))? {
                Some(next) if next != 0 => inside = next,
                _ => return Ok(None),
            }
        }
        let indexes: Vec<[u64; 1]> = (0..PAGES).map(|page| [self.address(page) / self.base.bytes()]).collect();
        let place = |page: usize| self.frames[page] * layout.page_bytes + layout.folio_index;
        let lowest = lowest(inside, frames.saturating_mul(layout.page_bytes));
        first(copier, lowest, inside, PAGES, |page| (place(page), &indexes[page]))
    }

    /// The format in which this process's own tables lead to its own frames. Tables whose entries have a bit of
    /// memory encryption (AMD SME, SEV) lead nowhere in either.
    fn format(&self, copier: &mut Copier, layout: &Layout, direct_map: u64) -> io::Result<Option<X86_64>> {
        let task = copier.current_task()?;
        let mm = copier.word(task + layout.task_mm)?;
        if mm.is_none() || mm != mm_of_file(copier, layout, &self.pagemap)? {
            return Ok(None);
        }
        let Some(pgd) = mm.map(|mm| copier.word(mm + layout.mm_pgd)).transpose()?.flatten() else { return Ok(None) };
        for format in [X86_64::new(4, 52), X86_64::new(5, 52)] {
            if self.is_mapped_by(copier, &format, direct_map, pgd)? {
                return Ok(Some(format));
            }
        }
        Ok(None)
    }

    fn is_mapped_by(&self, copier: &mut Copier, format: &X86_64, direct_map: u64, pgd: u64) -> io::Result<bool> {
        let geometry = format.geometry();
        for (page, frame) in self.frames.iter().enumerate() {
            let va = self.address(page);
            let Located::Directory(directory) = locate(copier, format, direct_map, pgd, va)? else { return Ok(false) };
            let Some(entry) = copier.word(directory + 8 * geometry.index(1, va))? else { return Ok(false) };
            if format.kind(1, entry) != paging::format::Kind::Table {
                return Ok(false);
            }
            let leaf = copier.word(direct_map + format.table_address(entry) + 8 * geometry.index(0, va))?;
            if leaf.and_then(|leaf| frame_of(format, leaf)) != Some(*frame) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The lowest beginning of an area of at most `bytes` that holds an address.
fn lowest(inside: u64, bytes: u64) -> u64 {
    inside.saturating_sub(bytes) / ALIGNMENT_BYTES * ALIGNMENT_BYTES
}

/// The first beginning from `lowest` to `inside` behind which all places hold what is known to be there.
fn first<'a, const WORDS: usize>(
    copier: &mut Copier,
    lowest: u64,
    inside: u64,
    places: usize,
    known: impl Fn(usize) -> (u64, &'a [u64; WORDS]),
) -> io::Result<Option<u64>> {
    let mut beginning = lowest;
    while beginning <= inside {
        let mut place = 0;
        while place < places {
            let (offset, expected) = known(place);
            let Some(address) = beginning.checked_add(offset) else { break };
            let readable = copier.copy(&[Request { address, words: WORDS, at: 0 }])?[0];
            if !readable || copier.copies()[..WORDS] != *expected {
                break;
            }
            place += 1;
        }
        if place == places {
            return Ok(Some(beginning));
        }
        let Some(next) = beginning.checked_add(ALIGNMENT_BYTES) else { break };
        beginning = next;
    }
    Ok(None)
}

fn highest_frame() -> Option<u64> {
    end_of_zones(&fs::read_to_string("/proc/zoneinfo").ok()?)
}

/// The frame after the last of all zones (`zoneinfo_show_print`, mm/vmstat.c).
fn end_of_zones(zoneinfo: &str) -> Option<u64> {
    let (mut spanned, mut end) = (0, None);
    for line in zoneinfo.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next().and_then(|word| word.parse::<u64>().ok())) {
            (Some("spanned"), Some(pages)) => spanned = pages,
            (Some("start_pfn:"), Some(first)) => end = end.max(Some(first + spanned)),
            _ => {}
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_ends_with_the_highest_zone() {
        let zone = |spanned, first| {
            format!("Node 0, zone\n  pages free 1\n        spanned  {spanned}\n  start_pfn:  {first}\n")
        };
        assert_eq!(end_of_zones(&(zone(4095, 1) + &zone(100, 5000) + &zone(10, 4096))), Some(5100));
        assert_eq!(end_of_zones("Node 0\n spanned 0\n"), None);
    }

    #[test]
    fn areas_begin_at_or_below_what_they_hold() {
        let gib = ALIGNMENT_BYTES;
        assert_eq!(lowest(7 * gib + 5, 2 * gib), 5 * gib);
        assert_eq!(lowest(7 * gib + 5, 0), 7 * gib);
        assert_eq!(lowest(gib, 5 * gib), 0);
    }
}
