//! Translates recorded addresses to those that Linux would have chosen.
//!
//! A recorder under QEMU's user emulation sees the addresses that QEMU chooses: upwards from one address, never aligned to huge
//! pages. But addresses determine which pages can be large, and how many tables there are. So recorded addresses are translated to
//! those that Linux 6.18 chooses without randomisation (`linux` has the differences between architectures):
//! - A position-independent program is at `ELF_ET_DYN_BASE`, and its heap directly behind it (`load_elf_binary`, fs/binfmt_elf.c).
//! - Mappings are placed downwards from `mmap_base`, each in the highest gap that is large enough (`vm_unmapped_area`, mm/mmap.c).
//! - Anonymous mappings of whole huge pages, and file mappings with at least one, are aligned to huge pages
//!   (`thp_get_unmapped_area_vmflags`, mm/huge_memory.c).
//! - A mapping for which the program passes an address gets it if it is free (`arch_get_unmapped_area_topdown`,
//!   arch/x86/kernel/sys_x86_64.c).
//! - A mapping that grows by `mremap` stays in place if there is room (`expand_vma`, mm/mremap.c).
//!
//! With randomisation, the same mappings are shifted by whole pages (`random`).
//!
//! A hugetlb policy replaces a program's calls by others: `pool` serves them, and `pool_translation` updates the translation.

mod aligned;
mod change;
pub(crate) mod linux;
mod pieces;
mod pool;
mod pool_translation;
mod random;
mod reservations;
mod start;
mod used_ranges;

use std::collections::BTreeMap;

use ::policy::Mechanism;
use ::policy::call::madv;
use ::policy::ranges::Ranges;
use trace::{Call, Event, Image};

use crate::call::{Affected, affected};
use aligned::{AlignedMappings, AlignedPart};
pub(crate) use aligned::{changed, may_have_part};
pub(crate) use change::Change;
pub(crate) use linux::Platform;
use linux::{NEAR_BYTES, pages};
use pieces::Piece;
use pool::HugetlbProcess;
use random::Places;
pub(crate) use random::{RandomBits, Randomisation};
use reservations::Reservations;
use used_ranges::{MappingRequest, UsedRanges};

const MAP_FIXED: u64 = 0x10;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const MREMAP_FIXED: u64 = 2;
const MREMAP_DONTUNMAP: u64 = 4;

/// The parameters that determine the layout of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LayoutParameters {
    /// The mechanism of a hugetlb policy; `None` for other policies.
    pub pool: Option<Mechanism>,
    /// `None` without randomisation.
    pub randomisation: Option<Randomisation>,
    /// The parameters that depend on the architecture and the kernel.
    pub platform: Platform,
}

/// The translation of a process's recorded addresses to Linux's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    parameters: LayoutParameters,
    /// Where the program's parts are.
    places: Places,
    /// The translated pieces, by recorded address.
    pieces: BTreeMap<u64, Piece>,
    /// The addresses in use, in Linux's layout.
    used_ranges: UsedRanges,
    /// The file of the last region event, and the distance by which its regions are moved.
    file: Option<(String, u64)>,
    /// The recorded start of the heap.
    heap: Option<u64>,
    /// The recorded end of the heap.
    heap_end: u64,
    /// Whether the program's allocator aligns the end of the heap to large pages.
    aligns_heap: bool,
    /// The start of the heap under a hugetlb policy.
    pool_heap_start: u64,
    /// The process's state under a hugetlb policy.
    pool: Option<HugetlbProcess>,
    /// Mappings that the program may trim to an aligned part.
    reservations: Reservations,
    /// Mappings in which the program may use an aligned part without unmapping the rest.
    aligned: AlignedMappings,
    /// Recorded ranges that a forked child does not get (MADV_DONTFORK).
    not_forked: Ranges<()>,
    /// Recorded ranges whose translation changed since the last call of [`Layout::take_changed`].
    changed: Vec<(u64, u64)>,
}

impl Layout {
    /// The empty layout of a program. `image` selects its randomisation.
    pub fn new(parameters: LayoutParameters, image: Image) -> Layout {
        let places = Places::of(parameters, image);
        let (pool, used_ranges) = (parameters.pool.map(HugetlbProcess::new), UsedRanges::below(&places));
        Layout { parameters, places, used_ranges, pool, ..Layout::default() }
    }

    /// The layout of the program that this process executes next.
    pub fn executed(&self, image: Image) -> Layout {
        Layout { pool: self.pool.as_ref().map(HugetlbProcess::executed), ..Layout::new(self.parameters, image) }
    }

    /// The layout of a forked child.
    pub fn forked(&self) -> Layout {
        let mut child = Layout { pool: self.pool.as_ref().map(HugetlbProcess::forked), ..self.clone() };
        for (begin, end, ()) in std::mem::take(&mut child.not_forked).within(0, u64::MAX) {
            child.release(begin, end);
        }
        child
    }

    /// Translates a recorded address.
    pub fn address(&self, recorded: u64) -> u64 {
        match self.pieces.range(..=recorded).next_back() {
            Some((_, piece)) if recorded < piece.end => recorded.wrapping_add(piece.distance),
            _ => recorded,
        }
    }

    /// Assumes from now on that the program aligns no part of its current mappings.
    #[cfg(test)]
    pub fn drop_reservations(&mut self) {
        self.reservations = Reservations::default();
        self.aligned = AlignedMappings::default();
    }

    /// Takes the recorded ranges whose translation changed.
    pub fn take_changed(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.changed)
    }

    /// Translates a recorded call to changes at Linux's addresses: several if the call spans mappings that are not adjacent in
    /// Linux's layout, or if a policy replaces it by other calls.
    pub fn translate(&mut self, event: &Event) -> Vec<Change> {
        if event.result < 0 && event.result > -4096 {
            return vec![Change::Call(event.clone())];
        }
        self.reservations.apply(event);
        self.aligned.apply(event);
        self.apply_fork_advice(event);
        if let Some(part) = self.aligned.advised(&event.call) {
            self.move_aligned_part(part);
        }
        if self.pool.is_some() {
            return self.translate_for_pool(event);
        }
        self.translated_calls(event).into_iter().map(Change::Call).collect()
    }

    /// The calls at Linux's addresses for a recorded call, without a hugetlb policy.
    fn translated_calls(&mut self, event: &Event) -> Vec<Event> {
        let one = |call: Call, result: u64| vec![Event { call, result: result as i64, ..event.clone() }];
        let result = event.result as u64;
        match event.call.clone() {
            Call::Region { address, bytes, protection, name } => {
                let address = self.place_region(address, pages(bytes), &name);
                one(Call::Region { address, bytes, protection, name }, result)
            }
            Call::Mmap { address, bytes, protection, flags, file, offset, file_system } => {
                let to = if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
                    self.place_fixed(result, pages(bytes))
                } else {
                    let hint = self.translated_hint(address, pages(bytes));
                    let request = MappingRequest { bytes, flags, offset, file_system, has_hint: hint != 0 };
                    let to = self.used_ranges.place_mapping(&request, hint);
                    self.release(result, result + pages(bytes));
                    self.add(result, pages(bytes), to);
                    self.note(&event.call, result, to);
                    to
                };
                let address = if address == 0 { 0 } else { to };
                one(Call::Mmap { address, bytes, protection, flags, file, offset, file_system }, to)
            }
            Call::Munmap { address, bytes } => {
                let parts = match self.ranges_to_unmap(address, pages(bytes)) {
                    Some(parts) => {
                        parts.iter().for_each(|(begin, bytes)| self.used_ranges.free(*begin, begin + bytes));
                        parts
                    }
                    None => {
                        let parts = self.parts(address, pages(bytes));
                        self.release(address, address.saturating_add(pages(bytes)));
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
                let mut parts = self.parts(address, pages(bytes));
                if let Some((_, bytes)) = parts.last_mut().filter(|_| address.saturating_add(bytes) == self.heap_end) {
                    *bytes = bytes.saturating_add(self.heap_padding());
                }
                let calls = parts.into_iter().map(|(address, bytes)| Call::Madvise { address, bytes, advice });
                calls.map(|call| Event { call, ..event.clone() }).collect()
            }
            Call::Mlock { .. } | Call::Hole { .. } => self.split_call(event),
            Call::Mremap { address, old_bytes, new_bytes, flags, new_address } => {
                let from = self.address(address);
                let (old_rounded, new_rounded) = (pages(old_bytes), pages(new_bytes));
                let keeps_old = flags & MREMAP_DONTUNMAP != 0;
                let may_stay = result == address || flags & MREMAP_FIXED == 0 && !keeps_old;
                let (old_end, new_end) = (from.saturating_add(old_rounded), from.saturating_add(new_rounded));
                let stays = may_stay && old_rounded > 0 && self.used_ranges.may_end_at(old_end, new_end);
                let is_fixed = flags & MREMAP_FIXED != 0 && self.is_piece(result, new_rounded);
                let place = if is_fixed { Some(self.address(result)) } else { stays.then_some(from) };
                let to = self.remap((address, if keeps_old { 0 } else { old_rounded }), (result, new_rounded), place);
                let new_address = if new_address == 0 { 0 } else { to };
                one(Call::Mremap { address: from, old_bytes, new_bytes, flags, new_address }, to)
            }
            // A heap cannot end before its start: no kernel lets that succeed.
            Call::Brk { .. } if self.heap.is_some_and(|begin| result < begin) => vec![event.clone()],
            Call::Brk { address } => {
                let end = self.move_heap_end(result);
                let address = if address == 0 { 0 } else { address.wrapping_sub(result).wrapping_add(end) };
                one(Call::Brk { address }, end)
            }
            call => one(call, result),
        }
    }

    /// Translates the hint `recorded` for a mapping of `bytes`; 0 means no hint. A program computes a hint near one of its mappings
    /// from the address of that mapping, so the hint moves by the same distance.
    fn translated_hint(&self, recorded: u64, bytes: u64) -> u64 {
        if recorded == 0 {
            return 0;
        }
        let below = self.pieces.range(..recorded).next_back();
        let above = self.pieces.range(recorded..).next();
        let below = below.map(|(_, piece)| (recorded.saturating_sub(piece.end), piece.distance));
        let above = above.map(|(begin, piece)| (begin.saturating_sub(recorded.saturating_add(bytes)), piece.distance));
        // On a tie the hint follows the mapping below it.
        let nearest = below.into_iter().chain(above).min_by_key(|(gap, _)| *gap);
        let distance = nearest.filter(|(gap, _)| *gap <= NEAR_BYTES).map_or(0, |(_, distance)| distance);
        recorded.wrapping_add(distance)
    }

    /// Places a mapping with MAP_FIXED and returns its address.
    fn place_fixed(&mut self, recorded: u64, bytes: u64) -> u64 {
        let to = self.fixed_address(recorded, bytes);
        if !self.is_piece(recorded, bytes) {
            self.release(recorded, recorded + bytes);
            self.add(recorded, bytes, to);
        }
        to
    }

    /// The address of a mapping with MAP_FIXED: inside one of the program's mappings, in a hole near one, or as recorded.
    fn fixed_address(&self, recorded: u64, bytes: u64) -> u64 {
        let inside = self.pieces.range(..=recorded).next_back().filter(|(_, piece)| recorded < piece.end);
        let in_hole = self.translated_hint(recorded, bytes);
        match inside {
            Some((_, piece)) => recorded.wrapping_add(piece.distance),
            None if self.used_ranges.is_free(in_hole, in_hole.saturating_add(bytes)) => in_hole,
            None => recorded,
        }
    }

    /// Whether a whole recorded range is translated by one piece.
    fn is_piece(&self, recorded: u64, bytes: u64) -> bool {
        self.pieces.range(..=recorded).next_back().is_some_and(|(_, piece)| recorded + bytes <= piece.end)
    }

    /// Replaces a recorded range by another one, which has the address `place` or a new one. Returns the address.
    fn remap(&mut self, (old, old_bytes): (u64, u64), (new, new_bytes): (u64, u64), place: Option<u64>) -> u64 {
        let to = place.unwrap_or_else(|| self.used_ranges.place_anonymous(new_bytes));
        if old_bytes > 0 {
            self.release(old, old + old_bytes);
        }
        self.release(new, new + new_bytes);
        self.add(new, new_bytes, to);
        to
    }

    /// Notes a new mapping, because the program may align a part of it.
    fn note(&mut self, call: &Call, recorded: u64, to: u64) {
        self.reservations.note(call, recorded, to);
        self.aligned.note(call, recorded, to);
    }

    /// Processes the pages of a new mapping that the program touches first, in order. They may show that it has aligned a part of
    /// the mapping.
    pub fn first_touched(&mut self, recorded: u64, touched: &[u64]) {
        if let Some(part) = self.aligned.touched(recorded, touched) {
            self.move_aligned_part(part);
        }
    }

    /// Notes which memory a forked child does not get.
    fn apply_fork_advice(&mut self, event: &Event) {
        match event.call {
            Call::Madvise { address, bytes, advice: madv::DONTFORK } => {
                self.not_forked.set(address, address.saturating_add(pages(bytes)), ());
            }
            Call::Madvise { address, bytes, advice: madv::DOFORK } => {
                self.not_forked.clear(address, address.saturating_add(pages(bytes)));
            }
            Call::Mprotect { .. } => {}
            // A moved or grown mapping keeps the advice (`copy_vma`, mm/vma.c).
            Call::Mremap { address, old_bytes, new_bytes, .. } => {
                let kept = self.not_forked.at(address).is_some();
                self.not_forked.clear(address, address.saturating_add(pages(old_bytes)));
                if kept && event.result > 0 {
                    let begin = event.result as u64;
                    self.not_forked.set(begin, begin.saturating_add(pages(new_bytes)), ());
                }
            }
            _ => changed(event).into_iter().for_each(|(begin, end)| self.not_forked.clear(begin, end)),
        }
    }

    /// Moves the aligned part of a mapping to an aligned address in Linux's layout. The program uses nothing between the mapping's
    /// first page and the part, nor behind the part.
    fn move_aligned_part(&mut self, part: AlignedPart) {
        let AlignedPart { recorded: (begin, end), to, begin: kept, begin_to: kept_to } = part;
        self.remove_translation(begin, end);
        self.add_translation(begin, (kept - begin).min(kept_to - to), to);
        self.add_translation(kept, (end - kept).min(to + (end - begin) - kept_to), kept_to);
    }

    /// The ranges, in Linux's layout, to unmap when a program trims an end of a reservation to an aligned part, or unmaps a whole
    /// mapping with an aligned part. Removes their translation. `None` for any other recorded range.
    fn ranges_to_unmap(&mut self, address: u64, bytes: u64) -> Option<Vec<(u64, u64)>> {
        if let Some(to) = self.aligned.take(address, bytes) {
            self.remove_translation(address, address.saturating_add(bytes));
            return Some(vec![(to, bytes)]);
        }
        let trimmed = self.reservations.trim(address, bytes)?;
        self.remove_translation(trimmed.recorded.0, trimmed.recorded.1);
        let (recorded, bytes, to) = trimmed.kept;
        self.add_translation(recorded, bytes, to);
        Some(trimmed.unmapped)
    }

    /// The calls at Linux's addresses for an mlock or a hole in a file, which no policy changes.
    fn split_call(&self, event: &Event) -> Vec<Event> {
        let Affected::Range(begin, bytes) = affected(event) else { return vec![event.clone()] };
        let parts = self.parts(begin, pages(bytes)).into_iter();
        let calls = parts.map(|(address, bytes)| match event.call {
            Call::Mlock { flags, .. } => Call::Mlock { address, bytes, flags },
            _ => Call::Hole { address, bytes },
        });
        calls.map(|call| Event { call, ..event.clone() }).collect()
    }
}

#[cfg(test)]
mod tests;
