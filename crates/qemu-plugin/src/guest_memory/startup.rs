// SPDX-License-Identifier: GPL-2.0-or-later
//! The initial state of a program: its memory, and the pages that the kernel writes before its first instruction (arguments and
//! environment on the stack, and the rest of the page after initialised data).
//!
//! QEMU does this work itself. The page tables of its process show which pages it has written: they are private and not zero.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::guest_memory::owned::{self, Owned};
use crate::guest_memory::regions::{self, Region};
use crate::guest_memory::segments;
use crate::guest_memory::{GuestMemory, PAGE_BYTES};

/// The program's memory in this process at its start.
pub struct Loaded {
    /// The regions, with the names that the kernel would give them.
    pub regions: Vec<Region>,
    /// The addresses of the pages that Linux would have written.
    pub written: Vec<u64>,
    /// The page that represents the vDSO, where QEMU provides none and the program's start would read it.
    pub read: Option<u64>,
}

/// Adds to `own` the memory that the program has when it begins, for a process in which that memory is mixed with QEMU's own.
pub fn find(own: &mut Owned, all: &[Region], base: u64, contents: &impl GuestMemory) {
    let Ok(pagemap) = File::open("/proc/self/pagemap") else { return };
    for stack in regions::stacks(all, regions::stack_bytes(stack_limit()), page_bytes()) {
        let used = used_pages(&pagemap, &stack, base, contents).next();
        if let Some(vector) = used.and_then(|used| owned::vector(&stack, used, contents)) {
            own.add_initial(&stack, &vector, contents);
        }
    }
}

/// Examines the program's memory. `base` is the host address of its address 0; `heap` is empty until the program has called brk.
pub fn loaded(mut regions: Vec<Region>, base: u64, heap: Range<u64>, contents: &impl GuestMemory) -> Loaded {
    let mut written: Vec<u64> = Vec::new();
    if let Ok(pagemap) = File::open("/proc/self/pagemap") {
        written.extend(regions.iter().flat_map(|region| used_pages(&pagemap, &region.range, base, contents)));
    }
    let stacks = regions::stacks(&regions, regions::stack_bytes(stack_limit()), page_bytes());
    let used = |stack: &Range<u64>| written.iter().copied().find(|page| stack.contains(page));
    if let Some((stack, used)) = stacks.into_iter().find_map(|stack| used(&stack).map(|used| (stack, used))) {
        regions::show_stack(&mut regions, stack, used);
    }
    let heap = heap.start & !(PAGE_BYTES - 1)..heap.end.next_multiple_of(PAGE_BYTES);
    regions::name_part(&mut regions, heap, "[heap]");
    name_vdso(&mut regions, contents);
    let read = name_vdso_substitute(&mut regions, contents);
    segments::split_by_segment(&mut regions, contents);
    written.retain(|page| is_written_by_linux(*page, &regions));
    Loaded { regions, written, read }
}

/// Whether Linux would have written a page: on the stack, or of a program's file. In anonymous memory QEMU writes more than
/// Linux: tables that real processors keep elsewhere (`target_cpu_copy_regs`, linux-user/i386/cpu_loop.c), and code for signals.
fn is_written_by_linux(page: u64, regions: &[Region]) -> bool {
    let region = regions.iter().find(|region| region.range.contains(&page));
    region.is_some_and(|region| region.name == "[stack]" || region.name.starts_with('/'))
}

/// Number of pagemap entries that are read at once.
const ENTRIES: usize = 1 << 12;

/// The pages of a range that are private to this process: neither file pages nor absent.
fn own_pages(pagemap: &File, range: &Range<u64>, base: u64) -> Vec<u64> {
    let mut own = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let count = (((range.end - at) / PAGE_BYTES) as usize).min(ENTRIES);
        let mut entries = vec![0; count * 8];
        let offset = base.wrapping_add(at) / PAGE_BYTES * 8;
        if count == 0 || pagemap.read_exact_at(&mut entries, offset).is_err() {
            break;
        }
        let entries = entries.as_chunks::<8>().0.iter().map(|entry| u64::from_le_bytes(*entry));
        let pages = (at..).step_by(PAGE_BYTES as usize);
        own.extend(pages.zip(entries).filter(|(_, entry)| is_own(*entry)).map(|(page, _)| page));
        at += count as u64 * PAGE_BYTES;
    }
    own
}

/// Whether an entry of `/proc/PID/pagemap` (proc(5)) is for a page that is present or swapped and not a file page.
const fn is_own(entry: u64) -> bool {
    let (present, swapped, of_file) = (entry >> 63 & 1, entry >> 62 & 1, entry >> 61 & 1);
    present | swapped == 1 && of_file == 0
}

/// Private pages that are not all zeros.
fn used_pages(pagemap: &File, range: &Range<u64>, base: u64, contents: &impl GuestMemory) -> impl Iterator<Item = u64> {
    own_pages(pagemap, range, base).into_iter().filter(|page| is_used(*page, contents))
}

fn is_used(page: u64, contents: &impl GuestMemory) -> bool {
    let mut bytes = [0; PAGE_BYTES as usize];
    let read = contents.read(page, &mut bytes);
    bytes[..read].iter().any(|byte| *byte != 0)
}

/// The base page size that QEMU was configured with, to which it rounds the stack and the memory after it (`QEMU_PAGESIZE`,
/// linux-user/main.c); 4K by default.
fn page_bytes() -> u64 {
    let configured = std::env::var("QEMU_PAGESIZE").ok().and_then(|text| text.parse::<u64>().ok());
    configured.filter(|bytes| bytes.is_power_of_two() && *bytes > PAGE_BYTES).unwrap_or(PAGE_BYTES)
}

fn stack_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a plain system call on a local variable.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Names the vDSO: read-only anonymous memory that holds an ELF file (QEMU 8.2 and newer).
fn name_vdso(regions: &mut [Region], contents: &impl GuestMemory) {
    for region in regions.iter_mut().filter(|region| region.name.is_empty()) {
        let mut begin = [0; 4];
        let readable = region.protection == libc::PROT_READ as u64;
        if readable && contents.read(region.range.start, &mut begin) == 4 && begin == *b"\x7fELF" {
            region.name = "[vdso]".to_owned();
        }
    }
}

/// The symbols that glibc looks for in the vDSO when a program without an interpreter starts (`setup_vdso_pointers`,
/// sysdeps/unix/sysv/linux/dl-vdso-setup.h): the arm64 name and the name on other architectures. Programs with other libraries
/// only look for the time, when they first need it.
const VDSO_SYMBOLS: [&[u8]; 2] = [b"\0__kernel_clock_getres\0", b"\0__vdso_clock_getres\0"];

/// A QEMU without a vDSO (before 8.2) has a page after the stack of a program without an interpreter, for returns from signals.
/// If the program looks for functions in the vDSO when it starts, this page represents the vDSO and gets its name. Returns its
/// address.
fn name_vdso_substitute(regions: &mut [Region], contents: &impl GuestMemory) -> Option<u64> {
    let mut files: Vec<&str> =
        regions.iter().map(|region| region.name.as_str()).filter(|name| name.starts_with('/')).collect();
    files.dedup();
    if files.len() != 1 || regions.iter().any(|region| region.name == "[vdso]") {
        return None;
    }
    let names_symbol = |region: &Region| region.name.starts_with('/') && holds(&region.range, contents);
    if !regions.iter().any(names_symbol) {
        return None;
    }
    let stack = regions.iter().position(|region| region.name == "[stack]")?;
    let (stack_end, after) = (regions[stack].range.end, regions.get_mut(stack + 1)?);
    let is_signal_page = after.name.is_empty()
        && after.range.start == stack_end
        && [PAGE_BYTES, page_bytes()].contains(&(after.range.end - stack_end))
        && after.protection & libc::PROT_WRITE as u64 == 0;
    if !is_signal_page {
        return None;
    }
    "[vdso]".clone_into(&mut after.name);
    Some(after.range.start)
}

/// Whether a range contains one of the names. It is read in pieces that overlap by the length of a name.
fn holds(range: &Range<u64>, contents: &impl GuestMemory) -> bool {
    const PIECE_BYTES: usize = 1 << 20;
    let longest = VDSO_SYMBOLS.iter().map(|name| name.len()).max().unwrap_or(0);
    let mut piece = vec![0; PIECE_BYTES + longest];
    (range.start..range.end).step_by(PIECE_BYTES).any(|at| {
        let bytes = ((range.end - at) as usize).min(piece.len());
        let read = contents.read(at, &mut piece[..bytes]);
        VDSO_SYMBOLS.iter().any(|name| piece[..read].windows(name.len()).any(|found| found == *name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory in which the region of one file holds this text.
    struct Text(Vec<u8>);

    impl GuestMemory for Text {
        fn read(&self, address: u64, to: &mut [u8]) -> usize {
            let at = (address - PAGE_BYTES) as usize;
            let bytes = self.0.len().saturating_sub(at).min(to.len());
            to[..bytes].copy_from_slice(&self.0[at..at + bytes]);
            bytes
        }
    }

    #[test]
    fn shows_a_page_for_the_vdso_to_a_program_that_reads_it() {
        let region = |pages: Range<u64>, name: &str| Region {
            range: pages.start * PAGE_BYTES..pages.end * PAGE_BYTES,
            protection: 1,
            name: name.to_owned(),
        };
        let of = |text: &[u8], more: &[Region]| {
            // The name crosses the boundary between two pieces.
            let contents = Text([vec![0; (1 << 20) - 7].as_slice(), text, &[0; 64]].concat());
            let mut regions = vec![region(1..300, "/program"), region(500..508, "[stack]"), region(508..509, "")];
            regions.extend_from_slice(more);
            let read = name_vdso_substitute(&mut regions, &contents);
            (read, regions[2].name.clone())
        };
        let named = (Some(508 * PAGE_BYTES), "[vdso]".to_owned());
        assert_eq!(of(b"\0__kernel_clock_getres\0", &[]), named);
        assert_eq!(of(b"\0__vdso_clock_getres\0", &[]), named);
        let none = (None, String::new());
        assert_eq!(of(b"\0__vdso_clock_gettime\0", &[]), none, "another library looks later, or never");
        assert_eq!(of(b"\0__vdso_clock_getres\0", &[region(600..601, "/interpreter")]), none);
        assert_eq!(of(b"\0__vdso_clock_getres\0", &[region(600..601, "[vdso]")]), none, "this QEMU gives one");
    }

    /// This process's own memory.
    struct Here;

    impl GuestMemory for Here {
        fn read(&self, address: u64, to: &mut [u8]) -> usize {
            // SAFETY: the tests only ask for their own memory.
            to.copy_from_slice(unsafe { std::slice::from_raw_parts(address as *const u8, to.len()) });
            to.len()
        }
    }

    #[test]
    fn pages_that_were_written_are_found() {
        let bytes = 16 * PAGE_BYTES as usize;
        // SAFETY: new memory, which nothing else uses.
        let memory = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let memory = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            *memory.cast::<u8>().add(3 * PAGE_BYTES as usize) = 1;
            *memory.cast::<u8>().add(7 * PAGE_BYTES as usize + 4000) = 1;
            // This page is written, but is still all zeros.
            *memory.cast::<u8>().add(9 * PAGE_BYTES as usize) = 0;
            memory as u64
        };
        // The program's address 0 is one page below.
        let base = memory - PAGE_BYTES;
        struct Shifted(u64);
        impl GuestMemory for Shifted {
            fn read(&self, address: u64, to: &mut [u8]) -> usize {
                Here.read(address + self.0, to)
            }
        }
        let region = Region { range: PAGE_BYTES..PAGE_BYTES + bytes as u64, protection: 3, name: String::new() };
        let heap = 2 * PAGE_BYTES + 10..3 * PAGE_BYTES + 10;
        let of_file = Region { name: "/a file".to_owned(), ..region.clone() };
        let written = loaded(vec![of_file], base, heap.clone(), &Shifted(base)).written;
        assert_eq!(written, [4 * PAGE_BYTES, 8 * PAGE_BYTES]);
        let loaded = loaded(vec![region], base, heap, &Shifted(base));
        assert!(loaded.written.is_empty());
        let names: Vec<_> = loaded.regions.iter().map(|region| region.name.as_str()).collect();
        assert_eq!(names, ["", "[heap]", ""]);
        assert_eq!(loaded.regions[1].range, 2 * PAGE_BYTES..4 * PAGE_BYTES);
    }

    #[test]
    fn an_entry_says_whose_a_page_is() {
        assert!(is_own(1 << 63) && is_own(1 << 62));
        assert!(!is_own(0) && !is_own(1 << 63 | 1 << 61) && !is_own(1 << 61));
    }
}
