//! Where Linux puts mappings.
//!
//! A recorder under QEMU's user emulation sees the addresses that QEMU chooses: upwards from one place, never aligned for
//! huge pages. Which pages can be large and how many tables there are depends on addresses, so recorded ones are
//! translated to those that Linux 6.18 on x86-64 chooses without randomisation: programs at `ELF_ET_DYN_BASE`, the heap
//! directly behind them (`load_elf_binary`, fs/binfmt_elf.c), mappings downwards from `mmap_base` into the highest gap that is
//! large enough (`vm_unmapped_area_info`, mm/mmap.c), anonymous ones of whole huge pages and files of at least one aligned for
//! them (`thp_get_unmapped_area_vmflags`, mm/huge_memory.c). What grows by `mremap` and may move stays where there is room
//! (`expand_vma`, mm/mremap.c). With randomisation the same mappings lie elsewhere by whole pages, the heap anywhere in 1G
//! behind its program (`arch_randomize_brk`, arch/x86/kernel/process.c), and one table more or less is chance.
//!
//! Under a policy of pool pages memory that comes from the pool is of whole pages: `pool`.

mod pool;
mod taken;

use std::collections::BTreeMap;

use trace::{Call, Event};

use pool::Pool;
use taken::Taken;

const PAGE: u64 = 4096;
/// What aligned mappings are aligned for.
const HUGE: u64 = 2 << 20;
/// Where position-independent programs go (`ELF_ET_DYN_BASE`, arch/x86/include/asm/elf.h, less a page).
const PROGRAM: u64 = 0x5555_5555_4000;
/// What a stack may grow to (the default of `ulimit -s`).
const STACK_BYTES: u64 = 8 << 20;
/// The end of user addresses (`TASK_SIZE` with four levels).
const STACK_END: u64 = 0x7fff_ffff_f000;
/// `mmap_base`: below the gap for a stack of 8M and its randomisation.
const MMAP_BASE: u64 = 0x7fff_f7ff_f000;
/// The vdso and its data, which are mapped after the interpreter and before anything else: six pages of `[vvar]` and
/// `[vvar_vclock]`, two of code (`map_vdso`, arch/x86/entry/vdso/vma.c).
const VDSO_BYTES: u64 = 8 * PAGE;
/// What an interpreter takes, which is mapped first of all: ld.so of glibc 2.36. Where one is larger its end lies above
/// `mmap_base`, where nothing else is.
const INTERPRETER_BYTES: u64 = 53 * PAGE;
/// QEMU puts position-independent programs here and above (`TASK_UNMAPPED_BASE`); what is below is where it was linked for.
const EMULATED: u64 = 0x40_0000_0000;

const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const MREMAP_FIXED: u64 = 2;
const MREMAP_DONTUNMAP: u64 = 4;

/// A stretch of recorded addresses and how far it is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    end: u64,
    distance: u64,
}

/// From recorded addresses to Linux's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    /// By recorded address.
    pieces: BTreeMap<u64, Piece>,
    /// Linux's addresses that are taken.
    taken: Taken,
    /// The file whose memory was told of last, and how far it was moved.
    file: Option<(String, u64)>,
    /// Where the heap begins, as recorded.
    heap: Option<u64>,
    /// What comes from a pool of huge pages.
    pool: Option<Pool>,
    /// Recorded addresses that mean something else since they were taken last.
    changed: Vec<(u64, u64)>,
}

fn pages(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(PAGE).unwrap_or(!(PAGE - 1))
}

impl Layout {
    /// That of a program whose memory comes from a pool of pages of so many bytes, where it can.
    pub fn of_pool(page_bytes: Option<u64>) -> Layout {
        Layout { pool: page_bytes.map(Pool::new), ..Layout::default() }
    }

    /// What a recorded address is.
    pub fn address(&self, recorded: u64) -> u64 {
        match self.pieces.range(..=recorded).next_back() {
            Some((_, piece)) if recorded < piece.end => recorded.wrapping_add(piece.distance),
            _ => recorded,
        }
    }

    /// Takes the recorded ranges that were given another meaning.
    pub fn take_changed(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.changed)
    }

    /// The calls that do to Linux's addresses what a recorded one did; more than one where it reaches over mappings that
    /// lie apart.
    pub fn translate(&mut self, event: &Event) -> Vec<Event> {
        let one = |call: Call, result: u64| vec![Event { call, result: result as i64, ..event.clone() }];
        if event.result < 0 && event.result > -4096 {
            return vec![event.clone()];
        }
        let result = event.result as u64;
        match event.call.clone() {
            Call::Region { address, bytes, protection, name } => {
                let address = self.region(address, pages(bytes), &name);
                one(Call::Region { address, bytes, protection, name }, result)
            }
            Call::Mmap { address, bytes, protection, flags, file, offset } => {
                let own_bytes = pages(bytes);
                let mut bytes = bytes;
                let to = if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
                    self.fixed(result, own_bytes)
                } else if self.pool.as_ref().is_some_and(|pool| pool.serves(own_bytes, protection, flags)) {
                    bytes = self.whole(own_bytes);
                    self.cut(result, result + own_bytes);
                    let to = self.place_in_pages(bytes);
                    self.back(result, own_bytes, to)
                } else {
                    let aligned = match flags & MAP_ANONYMOUS != 0 {
                        true => (bytes >= HUGE && bytes.is_multiple_of(HUGE)).then_some(0),
                        false => (bytes >= HUGE).then_some(offset),
                    };
                    let to = self.taken.place(pages(bytes), aligned);
                    self.cut(result, result + pages(bytes));
                    self.add(result, pages(bytes), to);
                    to
                };
                one(
                    Call::Mmap { address: if address == 0 { 0 } else { to }, bytes, protection, flags, file, offset },
                    to,
                )
            }
            Call::Munmap { address, bytes } => {
                let mut parts = self.parts(address, pages(bytes));
                self.cut(address, address.saturating_add(pages(bytes)));
                if let Some(pool) = &mut self.pool {
                    let gone = parts.iter().flat_map(|(begin, bytes)| pool.unmap(*begin, begin + bytes));
                    parts = gone.map(|(begin, end)| (begin, end - begin)).collect();
                    parts.iter().for_each(|(begin, bytes)| self.taken.free(*begin, begin + bytes));
                }
                let calls = parts.into_iter().map(|(address, bytes)| Call::Munmap { address, bytes });
                calls.map(|call| Event { call, ..event.clone() }).collect()
            }
            Call::Mprotect { address, bytes, protection } => {
                let parts = self.parts(address, pages(bytes)).into_iter();
                let calls = parts.map(|(address, bytes)| Call::Mprotect { address, bytes, protection });
                calls.map(|call| Event { call, ..event.clone() }).collect()
            }
            Call::Madvise { address, bytes, advice } => {
                let parts = self.parts(address, pages(bytes)).into_iter();
                let calls = parts.map(|(address, bytes)| Call::Madvise { address, bytes, advice });
                calls.map(|call| Event { call, ..event.clone() }).collect()
            }
            Call::Mremap { address, old_bytes, new_bytes, flags, new_address } => {
                let from = self.address(address);
                let (old_own, new_own) = (pages(old_bytes), pages(new_bytes));
                let (mut old_bytes, mut new_bytes) = (old_bytes, new_bytes);
                let to = match self.pool.as_mut().and_then(|pool| pool.take(from, old_own)) {
                    Some(pages_end) => {
                        (old_bytes, new_bytes) = (pages_end - from, self.whole(new_own));
                        self.cut(address, address + old_own);
                        self.cut(result, result + new_own);
                        self.taken.free(from, pages_end);
                        let stays = result == address && self.taken.is_free(from, from + new_bytes);
                        let to = if stays { from } else { self.place_in_pages(new_bytes) };
                        self.back(result, new_own, to)
                    }
                    None => {
                        let may_stay = result == address || flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) == 0;
                        let grows = new_own.saturating_sub(old_own);
                        let (old_end, new_end) = (from.saturating_add(old_own), from.saturating_add(new_own));
                        let stays = may_stay && old_own > 0 && (grows == 0 || self.taken.is_free(old_end, new_end));
                        self.remap((address, old_own), (result, new_own), stays.then_some(from))
                    }
                };
                let new_address = if new_address == 0 { 0 } else { to };
                one(Call::Mremap { address: from, old_bytes, new_bytes, flags, new_address }, to)
            }
            // A heap does not end before it begins: no kernel has let that succeed.
            Call::Brk { .. } if self.heap.is_some_and(|begin| result < begin) => vec![event.clone()],
            Call::Brk { address } => {
                let end = self.heap(result);
                let end = self.pool.as_mut().map_or(end, |pool| pool.move_heap(end));
                let address = if address == 0 { 0 } else { address.wrapping_sub(result).wrapping_add(end) };
                one(Call::Brk { address }, end)
            }
            call => one(call, result),
        }
    }

    /// Memory that was there at the beginning: the program and its heap, its interpreter, its stack.
    fn region(&mut self, address: u64, bytes: u64, name: &str) -> u64 {
        let has_name = !name.starts_with('[') && !name.is_empty();
        if address < EMULATED {
            // A program that must be where it was linked for: the next file is its interpreter.
            if has_name {
                self.file = Some((name.to_owned(), 0));
            }
            self.add(address, bytes, address);
            return address;
        }
        let is_next = self.pieces.range(..address).next_back().is_some_and(|(_, piece)| piece.end == address);
        let to = match (name, &self.file) {
            ("[stack]", _) => {
                // What it may grow by belongs to it.
                let all = bytes.max(STACK_BYTES);
                self.add((address + bytes).saturating_sub(all), all, STACK_END - all);
                return STACK_END - bytes;
            }
            ("[heap]", _) => {
                self.heap = Some(address);
                self.heap(address);
                return self.heap(address + bytes).wrapping_sub(bytes);
            }
            // Parts of a file keep their distances, and what is not of the file goes on behind it.
            (_, Some((file, distance))) if file == name || name.is_empty() && is_next => {
                address.wrapping_add(*distance)
            }
            (_, None) if has_name => PROGRAM,
            _ if has_name => {
                // The interpreter, with the vdso below it.
                let to = MMAP_BASE - INTERPRETER_BYTES;
                self.taken.take(to - VDSO_BYTES, MMAP_BASE);
                to
            }
            _ => self.taken.place(bytes, None),
        };
        if has_name {
            self.file = Some((name.to_owned(), to.wrapping_sub(address)));
        }
        self.add(address, bytes, to);
        to
    }

    /// Where the recorded end of the heap is.
    fn heap(&mut self, end: u64) -> u64 {
        let begin = *self.heap.get_or_insert(end);
        let distance = match self.pieces.get(&begin) {
            Some(piece) => piece.distance,
            None => {
                let program = self.taken.last_end_below(PROGRAM + (1 << 40)).unwrap_or(PROGRAM);
                let place = pages(program) + (begin & (PAGE - 1));
                self.pool.as_mut().map_or(place, |pool| pool.begin_heap(place)).wrapping_sub(begin)
            }
        };
        self.cut(begin, end.max(self.pieces.get(&begin).map_or(begin, |piece| piece.end)));
        self.add(begin, pages(end) - (begin & !(PAGE - 1)), begin.wrapping_add(distance));
        end.wrapping_add(distance)
    }

    /// The highest place for whole pages of the pool (`hugetlb_get_unmapped_area`).
    fn place_in_pages(&self, bytes: u64) -> u64 {
        let page_bytes = self.pool.as_ref().map_or(PAGE, Pool::page_bytes);
        let gap = bytes.checked_add(page_bytes - PAGE).and_then(|bytes| self.taken.gap(bytes));
        // No program has used up all addresses.
        gap.map_or(EMULATED, |(_, end)| (end - bytes) / page_bytes * page_bytes)
    }

    /// A recorded range is the program's part of pages of the pool at `to`.
    fn back(&mut self, recorded: u64, bytes: u64, to: u64) -> u64 {
        self.add(recorded, bytes, to);
        if let Some(pool) = &mut self.pool {
            self.taken.take(to, pool.back(to, bytes));
        }
        to
    }

    fn whole(&self, bytes: u64) -> u64 {
        self.pool.as_ref().map_or(bytes, |pool| pool.whole(bytes))
    }

    /// A mapping at an address that the program chose: inside what it has, or where nothing was moved.
    fn fixed(&mut self, recorded: u64, bytes: u64) -> u64 {
        let to = self.address(recorded);
        let inside = self.pieces.range(..=recorded).next_back().is_some_and(|(_, piece)| recorded + bytes <= piece.end);
        if !inside {
            self.cut(recorded, recorded + bytes);
            self.add(recorded, bytes, to);
        }
        to
    }

    /// Makes of a recorded range, in bytes, another one, which stays at a place or gets one.
    fn remap(&mut self, (old, old_bytes): (u64, u64), (new, new_bytes): (u64, u64), stays: Option<u64>) -> u64 {
        let to = stays.unwrap_or_else(|| self.taken.place(new_bytes, new_bytes.is_multiple_of(HUGE).then_some(0)));
        self.cut(old, old + old_bytes);
        self.cut(new, new + new_bytes);
        self.add(new, new_bytes, to);
        to
    }

    /// The ranges of Linux's addresses behind a recorded one.
    fn parts(&self, begin: u64, bytes: u64) -> Vec<(u64, u64)> {
        let end = begin.saturating_add(bytes);
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let mut at = begin;
        while at < end {
            let inside = self.pieces.range(..=at).next_back().filter(|(_, piece)| piece.end > at);
            let next = match inside {
                Some((_, piece)) => piece.end.min(end),
                None => self.pieces.range(at..end).next().map_or(end, |(next, _)| *next),
            };
            let to = self.address(at);
            match parts.last_mut() {
                Some((before, bytes)) if before.wrapping_add(*bytes) == to => *bytes += next - at,
                _ => parts.push((to, next - at)),
            }
            at = next;
        }
        parts
    }

    /// Forgets a recorded range, and frees what it was.
    fn cut(&mut self, begin: u64, end: u64) {
        let first = self.pieces.range(..=begin).next_back().map_or(begin, |(at, _)| *at);
        let touched: Vec<(u64, Piece)> = self.pieces.range(first..end).map(|(at, piece)| (*at, *piece)).collect();
        for (at, piece) in touched.into_iter().filter(|(_, piece)| piece.end > begin) {
            self.pieces.remove(&at);
            if at < begin {
                self.pieces.insert(at, Piece { end: begin, ..piece });
            }
            if piece.end > end {
                self.pieces.insert(end, piece);
            }
            let (from, to) = (at.max(begin), piece.end.min(end));
            self.taken.free(from.wrapping_add(piece.distance), to.wrapping_add(piece.distance));
            self.changed.push((from, to));
        }
    }

    fn add(&mut self, recorded: u64, bytes: u64, to: u64) {
        if bytes == 0 {
            return;
        }
        let distance = to.wrapping_sub(recorded);
        self.pieces.insert(recorded, Piece { end: recorded.saturating_add(bytes), distance });
        self.taken.take(to, to.saturating_add(bytes));
        self.changed.push((recorded, recorded.saturating_add(bytes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mmap(layout: &mut Layout, recorded: u64, bytes: u64) -> u64 {
        let call = Call::Mmap { address: 0, bytes, protection: 3, flags: 0x22, file: -1, offset: 0 };
        let told = layout.translate(&Event { run: 0, order: 0, call, result: recorded as i64 });
        assert_eq!(told.len(), 1);
        told[0].result as u64
    }

    fn calls(layout: &mut Layout, call: Call, result: u64) -> Vec<Call> {
        let told = layout.translate(&Event { run: 0, order: 0, call, result: result as i64 });
        told.into_iter().map(|event| event.call).collect()
    }

    const TOP: u64 = MMAP_BASE - VDSO_BYTES;

    #[test]
    fn mappings_go_downwards_and_whole_huge_pages_are_aligned() {
        let mut layout = Layout::default();
        assert_eq!(mmap(&mut layout, EMULATED, 8192), TOP - 8192);
        assert_eq!(mmap(&mut layout, EMULATED + 8192, 4096), TOP - 12288);
        let huge = mmap(&mut layout, EMULATED + 12288, 32 << 20);
        assert_eq!(huge % HUGE, 0);
        assert!(huge + (32 << 20) <= TOP - 12288 && huge + (32 << 20) + HUGE > TOP - 12288);
        // The hole above it is used by what fits.
        assert!(mmap(&mut layout, EMULATED + (64 << 20), 4096) > huge);
        assert_eq!(layout.address(EMULATED + 8192 + 5), TOP - 12288 + 5);
        assert_eq!(layout.address(77), 77);
        // What goes leaves a gap, which is used again.
        assert_eq!(calls(&mut layout, Call::Munmap { address: EMULATED, bytes: 8192 }, 0).len(), 1);
        assert_eq!(mmap(&mut layout, EMULATED, 4096), TOP - 4096);
    }

    #[test]
    fn a_call_over_mappings_that_lie_apart_becomes_several() {
        let mut layout = Layout::default();
        mmap(&mut layout, EMULATED, HUGE);
        mmap(&mut layout, EMULATED + HUGE, 4096);
        let protect = Call::Mprotect { address: EMULATED, bytes: HUGE + 4096, protection: 1 };
        let told = calls(&mut layout, protect, 0);
        let total: u64 = told.iter().map(|call| if let Call::Mprotect { bytes, .. } = call { *bytes } else { 0 }).sum();
        assert_eq!((told.len(), total), (2, HUGE + 4096));
    }

    #[test]
    fn a_program_its_heap_and_its_stack_are_where_linux_puts_them() {
        let mut layout = Layout::default();
        let region = |layout: &mut Layout, address, bytes, name: &str| {
            let told = calls(layout, Call::Region { address, bytes, protection: 3, name: name.into() }, 0);
            if let Call::Region { address, .. } = told[0] { address } else { 0 }
        };
        assert_eq!(region(&mut layout, EMULATED, 8192, "/bin/a"), PROGRAM);
        assert_eq!(region(&mut layout, EMULATED + 12288, 4096, "/bin/a"), PROGRAM + 12288);
        assert_eq!(region(&mut layout, EMULATED + 5 * HUGE, 4096, "/bin/a"), PROGRAM + 5 * HUGE);
        assert_eq!(region(&mut layout, EMULATED + (16 << 20), 8192, "[stack]"), STACK_END - 8192);
        let ld = region(&mut layout, EMULATED + (32 << 20), 4096, "/lib/ld.so");
        assert_eq!(region(&mut layout, EMULATED + (32 << 20) + 8192, 4096, "/lib/ld.so"), ld + 8192);
        assert_eq!(ld, MMAP_BASE - INTERPRETER_BYTES);
        assert_eq!(mmap(&mut layout, EMULATED + (40 << 20), 8192), ld - VDSO_BYTES - 8192);
        let brk = |layout: &mut Layout, end| {
            layout.translate(&Event { run: 0, order: 0, call: Call::Brk { address: end }, result: end as i64 })[0]
                .result as u64
        };
        let begin = brk(&mut layout, EMULATED + 5 * HUGE + 20480);
        assert_eq!(begin, PROGRAM + 5 * HUGE + 4096);
        assert_eq!(brk(&mut layout, EMULATED + 5 * HUGE + 20480 + 135168), begin + 135168);
        assert_eq!(layout.address(EMULATED + 5 * HUGE + 20480 + 4096), begin + 4096);
        // A program that is linked for an address stays there.
        assert_eq!(region(&mut layout, 0x40_0000, 4096, "/bin/static"), 0x40_0000);
    }

    #[test]
    fn a_heap_that_would_end_before_it_begins_is_left_where_it_is() {
        let mut layout = Layout::default();
        let begin = EMULATED + 5 * HUGE;
        let to = |layout: &mut Layout, end: u64| {
            let call = Call::Brk { address: end };
            layout.translate(&Event { run: 0, order: 0, call, result: end as i64 })[0].result as u64
        };
        let placed = to(&mut layout, begin);
        assert_eq!(to(&mut layout, begin - 4096), begin - 4096);
        assert_eq!(to(&mut layout, begin + 4096), placed + 4096);
    }

    #[test]
    fn what_grows_in_place_does_so_only_where_there_is_room() {
        let mut layout = Layout::default();
        let first = mmap(&mut layout, EMULATED, 8192);
        let second = mmap(&mut layout, EMULATED + (1 << 20), 8192);
        assert_eq!(first, second + 8192);
        let grow = |address, to| Call::Mremap { address, old_bytes: 8192, new_bytes: to, flags: 1, new_address: 0 };
        // Recorded elsewhere, but there is room here; unless the program says where, or keeps the old place.
        let move_first =
            |flags| Call::Mremap { address: EMULATED, old_bytes: 8192, new_bytes: 4096, flags, new_address: 0 };
        let moved = |layout: &mut Layout, flags| calls(layout, move_first(flags), EMULATED + (2 << 20)).remove(0);
        let to = |call| if let Call::Mremap { address, .. } = call { address } else { 0 };
        assert_eq!(to(moved(&mut layout.clone(), 1)), first);
        let address = |flags: u64| {
            let mut layout = layout.clone();
            moved(&mut layout, flags);
            layout.address(EMULATED + (2 << 20))
        };
        assert_eq!(address(1), first);
        assert_ne!(address(1 | MREMAP_DONTUNMAP), first);
        // Recorded in place, but its neighbour is in the way here.
        let told = layout.translate(&Event {
            run: 0,
            order: 0,
            call: grow(EMULATED + (1 << 20), 16384),
            result: (EMULATED + (1 << 20)) as i64,
        });
        assert_ne!(told[0].result as u64, second);
        assert_eq!(layout.address(EMULATED + (1 << 20)), told[0].result as u64);
    }
}
