//! Models where Linux places mappings.
//!
//! A recorder under QEMU's user emulation sees the addresses that QEMU chooses: upwards from one place, never aligned for huge
//! pages. Addresses determine which pages can be large and how many tables there are. So recorded addresses are translated to
//! those that Linux 6.18 chooses without randomisation (`linux` has the differences between architectures): programs at
//! `ELF_ET_DYN_BASE`, the heap directly behind them (`load_elf_binary`, fs/binfmt_elf.c), mappings downwards from `mmap_base` into
//! the highest gap that is large enough (`vm_unmapped_area_info`, mm/mmap.c). Anonymous mappings of whole huge pages, and files of
//! at least one, are aligned for them (`thp_get_unmapped_area_vmflags`, mm/huge_memory.c), unless the program asks for an address
//! and there is room (`arch_get_unmapped_area_topdown`, arch/x86/kernel/sys_x86_64.c). A mapping that grows by `mremap` and may
//! move stays in place if there is room (`expand_vma`, mm/mremap.c). With randomisation the same mappings are shifted by whole
//! pages: `random`.
//!
//! Under a policy of pool pages a program's calls are replaced by others: `pool` serves them, and `of_pool` maps addresses back.

mod change;
pub(crate) mod linux;
mod of_pool;
mod pool;
mod random;
mod reservations;
mod taken;

use std::collections::BTreeMap;

use ::policy::Mechanism;
use trace::{Call, Event, Image};

pub(crate) use change::Change;
pub(crate) use linux::Home;
use linux::{EMULATED, INTERPRETER_BYTES, NEAR_BYTES, PAGE, STACK_BYTES, pages};
use pool::Pool;
use random::Places;
pub(crate) use random::{Bits, Draw};
use reservations::Reservations;
use taken::{Asked, Taken};

const MAP_FIXED: u64 = 0x10;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const MREMAP_FIXED: u64 = 2;
const MREMAP_DONTUNMAP: u64 = 4;

/// A stretch of recorded addresses and the distance by which it is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    end: u64,
    distance: u64,
}

/// The parameters in which layouts of the same program differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scheme {
    /// The policy, if it uses pages of a pool.
    pub pool: Option<Mechanism>,
    /// The draw of randomisation; `None` without randomisation.
    pub draw: Option<Draw>,
    /// The parameters of the architecture and the kernel.
    pub home: Home,
}

/// Translates recorded addresses to Linux's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    scheme: Scheme,
    /// The addresses of the program's parts.
    places: Places,
    /// The pieces by recorded address.
    pieces: BTreeMap<u64, Piece>,
    /// The addresses in use, in Linux's layout.
    taken: Taken,
    /// The file of the last region event, and the distance by which it was moved.
    file: Option<(String, u64)>,
    /// The beginning of the heap, as recorded.
    heap: Option<u64>,
    /// The beginning of the heap under a pool policy.
    heap_begins: u64,
    /// The state of the pool under such a policy.
    pool: Option<Pool>,
    /// Mappings from which the program may cut out an aligned part.
    reservations: Reservations,
    /// Recorded ranges whose translation changed since the last call of [`Layout::take_changed`].
    changed: Vec<(u64, u64)>,
}

impl Layout {
    /// The layout of a program that a process executes; `image` only distinguishes programs.
    pub fn new(scheme: Scheme, image: Image) -> Layout {
        let places = Places::of(scheme, image);
        let (pool, taken) = (scheme.pool.map(Pool::new), Taken::below(&places));
        Layout { scheme, places, taken, pool, ..Layout::default() }
    }

    /// The layout of another program that this one's process executes.
    pub fn anew(&self, image: Image) -> Layout {
        Layout { pool: self.pool.as_ref().map(Pool::executed), ..Layout::new(self.scheme, image) }
    }

    /// The layout of a copy made by fork.
    pub fn forked(&self) -> Layout {
        Layout { pool: self.pool.as_ref().map(Pool::forked), ..self.clone() }
    }

    /// Translates a recorded address.
    pub fn address(&self, recorded: u64) -> u64 {
        match self.pieces.range(..=recorded).next_back() {
            Some((_, piece)) if recorded < piece.end => recorded.wrapping_add(piece.distance),
            _ => recorded,
        }
    }

    /// Drops all reservations: no part is cut out of earlier mappings.
    #[cfg(test)]
    pub fn uses_all(&mut self) {
        self.reservations = Reservations::default();
    }

    /// Takes the recorded ranges whose translation changed.
    pub fn take_changed(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.changed)
    }

    /// Translates a recorded call to Linux's addresses. The result has several changes if the call spans mappings that
    /// are not adjacent in Linux's layout, or if a policy replaces it by other calls.
    pub fn translate(&mut self, event: &Event) -> Vec<Change> {
        if event.result < 0 && event.result > -4096 {
            return vec![Change::Call(event.clone())];
        }
        self.reservations.hear(event);
        if self.pool.is_some() {
            return self.by_pool(event);
        }
        self.moved(event).into_iter().map(Change::Call).collect()
    }

    /// The calls at Linux's addresses that correspond to a recorded one.
    fn moved(&mut self, event: &Event) -> Vec<Event> {
        let one = |call: Call, result: u64| vec![Event { call, result: result as i64, ..event.clone() }];
        let result = event.result as u64;
        match event.call.clone() {
            Call::Region { address, bytes, protection, name } => {
                let address = self.region(address, pages(bytes), &name);
                one(Call::Region { address, bytes, protection, name }, result)
            }
            Call::Mmap { address, bytes, protection, flags, file, offset, file_system } => {
                let to = if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
                    self.fixed(result, pages(bytes))
                } else {
                    let hint = self.hint(address, pages(bytes));
                    let asked = Asked { bytes, flags, offset, file_system, has_hint: hint != 0 };
                    let to = self.taken.place_for(&asked, hint);
                    self.cut(result, result + pages(bytes));
                    self.add(result, pages(bytes), to);
                    self.reservations.note(&event.call, result, to);
                    to
                };
                let address = if address == 0 { 0 } else { to };
                one(Call::Mmap { address, bytes, protection, flags, file, offset, file_system }, to)
            }
            Call::Munmap { address, bytes } => {
                let parts = match self.trim(address, pages(bytes)) {
                    Some(parts) => {
                        parts.iter().for_each(|(begin, bytes)| self.taken.free(*begin, begin + bytes));
                        parts
                    }
                    None => {
                        let parts = self.parts(address, pages(bytes));
                        self.cut(address, address.saturating_add(pages(bytes)));
                        parts
                    }
                };
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
                let keeps = flags & MREMAP_DONTUNMAP != 0;
                let may_stay = result == address || flags & MREMAP_FIXED == 0 && !keeps;
                let (old_end, new_end) = (from.saturating_add(old_own), from.saturating_add(new_own));
                let stays = may_stay && old_own > 0 && self.taken.may_end_at(old_end, new_end);
                let is_fixed = flags & MREMAP_FIXED != 0 && self.is_piece(result, new_own);
                let place = if is_fixed { Some(self.address(result)) } else { stays.then_some(from) };
                let to = self.remap((address, if keeps { 0 } else { old_own }), (result, new_own), place);
                let new_address = if new_address == 0 { 0 } else { to };
                one(Call::Mremap { address: from, old_bytes, new_bytes, flags, new_address }, to)
            }
            // A heap cannot end before it begins: no kernel has let that succeed.
            Call::Brk { .. } if self.heap.is_some_and(|begin| result < begin) => vec![event.clone()],
            Call::Brk { address } => {
                let end = self.heap(result);
                let address = if address == 0 { 0 } else { address.wrapping_sub(result).wrapping_add(end) };
                one(Call::Brk { address }, end)
            }
            call => one(call, result),
        }
    }

    /// The hint for a mapping of `bytes` for which the program passed the hint `recorded`; 0 means anywhere. The
    /// program computed an address near one of its mappings from that mapping, so the hint moves with it.
    fn hint(&self, recorded: u64, bytes: u64) -> u64 {
        if recorded == 0 {
            return 0;
        }
        let below = self.pieces.range(..recorded).next_back();
        let above = self.pieces.range(recorded..).next();
        let below = below.map(|(_, piece)| (recorded.saturating_sub(piece.end), piece.distance));
        let above = above.map(|(begin, piece)| (begin.saturating_sub(recorded.saturating_add(bytes)), piece.distance));
        // On a tie the first wins: an address behind a mapping.
        let nearest = below.into_iter().chain(above).min_by_key(|(gap, _)| *gap);
        let distance = nearest.filter(|(gap, _)| *gap <= NEAR_BYTES).map_or(0, |(_, distance)| distance);
        recorded.wrapping_add(distance)
    }

    /// Places memory that existed at the beginning: the program and its heap, its interpreter, its stack.
    fn region(&mut self, address: u64, bytes: u64, name: &str) -> u64 {
        let has_name = !name.starts_with('[') && !name.is_empty();
        if address < EMULATED {
            // A program that must be at its link address. The next file is its interpreter.
            if has_name {
                self.file = Some((name.to_owned(), 0));
            }
            self.add(address, bytes, address);
            return address;
        }
        let before = self.pieces.range(..address).next_back().filter(|(_, piece)| piece.end == address);
        let (is_next, is_behind_stack) = match before {
            Some((_, piece)) => (true, piece.end.wrapping_add(piece.distance) == self.places.stack_end),
            None => (false, false),
        };
        let to = match (name, &self.file) {
            ("[stack]", _) => {
                // The room into which the stack may grow belongs to it.
                let all = bytes.max(STACK_BYTES);
                let end = self.places.stack_end;
                self.add((address + bytes).saturating_sub(all), all, end - all);
                return end - bytes;
            }
            ("[heap]", _) => {
                self.heap = Some(address);
                self.heap(address);
                return self.heap(address + bytes).wrapping_sub(bytes);
            }
            // The mapping that QEMU puts behind the stack of a program without an interpreter. It represents the vdso,
            // and has its name if the program reads it.
            ("" | "[vdso]", _) if is_behind_stack && bytes <= self.places.vdso_bytes => {
                let end = self.places.mmap_base;
                self.taken.take(end - self.places.vdso_bytes, end);
                end - bytes.next_multiple_of(self.places.base_bytes)
            }
            // Parts of a file keep their distances, and a mapping without a name directly behind the file stays behind it.
            (_, Some((file, distance))) if file == name || name.is_empty() && is_next => {
                address.wrapping_add(*distance)
            }
            (_, None) if has_name => self.places.program,
            _ if has_name => {
                // The interpreter, with the vdso below it.
                let end = self.places.mmap_base;
                let to = end - INTERPRETER_BYTES.next_multiple_of(self.places.base_bytes);
                self.taken.take(to - self.places.vdso_bytes, end);
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

    /// Translates the recorded end of the heap.
    fn heap(&mut self, end: u64) -> u64 {
        let begin = *self.heap.get_or_insert(end);
        let distance = match self.pieces.get(&begin) {
            Some(piece) => piece.distance,
            None => self.heap_place(begin).wrapping_sub(begin),
        };
        self.cut(begin, end.max(self.pieces.get(&begin).map_or(begin, |piece| piece.end)));
        self.add(begin, pages(end) - (begin & !(PAGE - 1)), begin.wrapping_add(distance));
        end.wrapping_add(distance)
    }

    /// The address at which Linux begins the heap, which was recorded to begin at `begin`.
    fn heap_place(&self, begin: u64) -> u64 {
        let Places { program, heap_gap_bytes, .. } = self.places;
        let program_end = self.taken.last_end_below(program + (1 << 40)).unwrap_or(program);
        pages(program_end) + heap_gap_bytes + (begin & (PAGE - 1))
    }

    /// A mapping at a fixed address: inside the program's mappings, or where nothing was moved.
    fn fixed(&mut self, recorded: u64, bytes: u64) -> u64 {
        let to = self.address(recorded);
        if !self.is_piece(recorded, bytes) {
            self.cut(recorded, recorded + bytes);
            self.add(recorded, bytes, to);
        }
        to
    }

    /// Whether a recorded range is in one piece.
    fn is_piece(&self, recorded: u64, bytes: u64) -> bool {
        self.pieces.range(..=recorded).next_back().is_some_and(|(_, piece)| recorded + bytes <= piece.end)
    }

    /// Replaces a recorded range, in bytes, by another one, which stays at the address `stays` or gets a new one.
    fn remap(&mut self, (old, old_bytes): (u64, u64), (new, new_bytes): (u64, u64), stays: Option<u64>) -> u64 {
        let to = stays.unwrap_or_else(|| self.taken.place_memory(new_bytes));
        if old_bytes > 0 {
            self.cut(old, old + old_bytes);
        }
        self.cut(new, new + new_bytes);
        self.add(new, new_bytes, to);
        to
    }

    /// The ranges, in Linux's addresses, to unmap when a program unmaps an end of a reservation to leave an aligned part.
    fn trim(&mut self, address: u64, bytes: u64) -> Option<Vec<(u64, u64)>> {
        let trimmed = self.reservations.trim(address, bytes)?;
        self.forget(trimmed.recorded.0, trimmed.recorded.1);
        let (recorded, bytes, to) = trimmed.kept;
        self.mean(recorded, bytes, to);
        Some(trimmed.unmapped)
    }

    /// The ranges of Linux's addresses for a recorded range.
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

    /// Removes the translation of a recorded range, and frees its addresses.
    fn cut(&mut self, begin: u64, end: u64) {
        for (from, to) in self.forget(begin, end) {
            self.taken.free(from, to);
        }
    }

    /// Removes the translation of a recorded range; returns the ranges that it translated to.
    fn forget(&mut self, begin: u64, end: u64) -> Vec<(u64, u64)> {
        let first = self.pieces.range(..=begin).next_back().map_or(begin, |(at, _)| *at);
        let touched: Vec<(u64, Piece)> = self.pieces.range(first..end).map(|(at, piece)| (*at, *piece)).collect();
        let mut forgotten = Vec::new();
        for (at, piece) in touched.into_iter().filter(|(_, piece)| piece.end > begin) {
            self.pieces.remove(&at);
            if at < begin {
                self.pieces.insert(at, Piece { end: begin, ..piece });
            }
            if piece.end > end {
                self.pieces.insert(end, piece);
            }
            let (from, to) = (at.max(begin), piece.end.min(end));
            forgotten.push((from.wrapping_add(piece.distance), to.wrapping_add(piece.distance)));
            self.changed.push((from, to));
        }
        forgotten
    }

    fn add(&mut self, recorded: u64, bytes: u64, to: u64) {
        if bytes > 0 {
            self.mean(recorded, bytes, to);
            self.taken.take(to, to.saturating_add(bytes));
        }
    }

    /// Adds a translation for a recorded range.
    fn mean(&mut self, recorded: u64, bytes: u64, to: u64) {
        if bytes > 0 {
            let piece = Piece { end: recorded.saturating_add(bytes), distance: to.wrapping_sub(recorded) };
            self.pieces.insert(recorded, piece);
            self.changed.push((recorded, piece.end));
        }
    }
}

#[cfg(test)]
mod tests;
