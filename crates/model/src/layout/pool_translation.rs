//! The translation of a recorded program under a hugetlb policy: passes the program's calls to [`HugetlbProcess`], and updates the
//! translation of recorded addresses after each call.

use ::policy::call::{Call, map, mremap};
use ::policy::carry_out::is_error;
use trace::Event;

use super::Layout;
use super::change::Change;
use super::linux::pages;
use super::pool::HugetlbProcess;

impl Layout {
    /// The changes that a recorded call causes under the policy.
    pub(super) fn translate_for_pool(&mut self, event: &Event) -> Vec<Change> {
        let mut changes = Vec::new();
        match event.call.clone() {
            trace::Call::Region { address, bytes, name, .. } if name == "[heap]" => {
                self.move_heap(event, address, &mut changes);
                self.move_heap(event, address.saturating_add(bytes), &mut changes);
            }
            trace::Call::Region { address, bytes, protection, name } => {
                let to = self.place_region(address, pages(bytes), &name);
                if let Some(pool) = &mut self.pool {
                    pool.add_existing(to, pages(bytes), protection, name.is_empty() || name.starts_with("[anon"));
                }
                let call = trace::Call::Region { address: to, bytes, protection, name };
                changes.push(Change::Call(Event { call, ..event.clone() }));
            }
            trace::Call::Mmap { address, bytes, protection, flags, file, offset, .. } => {
                let recorded = event.result as u64;
                let is_fixed = flags & (map::FIXED | map::FIXED_NOREPLACE) != 0;
                let address = if is_fixed {
                    self.fixed_address(recorded, pages(bytes))
                } else {
                    self.translated_hint(address, pages(bytes))
                };
                let call = Call::Mmap { address, bytes, protection, flags, file: file as u64, offset };
                self.serve(call, event, &mut changes, |layout, to| {
                    if !(is_fixed && layout.translates_to(recorded, bytes, to)) {
                        layout.replace_translation(recorded, pages(bytes), to)
                    }
                    if !is_fixed {
                        layout.note(&event.call, recorded, to);
                    }
                });
            }
            trace::Call::Munmap { address, bytes } => {
                let unmapped = self.ranges_to_unmap(address, pages(bytes));
                let is_removed = unmapped.is_some();
                for (begin, bytes) in unmapped.unwrap_or_else(|| self.parts(address, pages(bytes))) {
                    self.serve(Call::Munmap { address: begin, bytes }, event, &mut changes, |_, _| {});
                }
                if !is_removed {
                    self.remove_translation(address, address.saturating_add(pages(bytes)));
                }
            }
            trace::Call::Mprotect { address, bytes, protection } => {
                for (address, bytes) in self.parts(address, pages(bytes)) {
                    self.serve(Call::Mprotect { address, bytes, protection }, event, &mut changes, |_, _| {});
                }
            }
            trace::Call::Madvise { address, bytes, advice } => {
                for (address, bytes) in self.parts(address, pages(bytes)) {
                    self.serve(Call::Madvise { address, bytes, advice }, event, &mut changes, |_, _| {});
                }
            }
            // mremap refuses a target that overlaps the old range.
            trace::Call::Mremap { address, old_bytes, new_bytes, .. }
                if event.result as u64 != address
                    && (event.result as u64) < address.saturating_add(old_bytes)
                    && address < (event.result as u64).saturating_add(new_bytes) =>
            {
                changes.push(Change::Refused);
            }
            trace::Call::Mremap { address, old_bytes, new_bytes, flags, .. } => {
                let recorded = event.result as u64;
                let new_address = if flags & mremap::FIXED != 0 { self.address(recorded) } else { 0 };
                let from = self.address(address);
                let keeps_old = flags & !(mremap::MAY_MOVE | mremap::FIXED) != 0;
                let call = Call::Mremap { address: from, old_bytes, new_bytes, flags, new_address };
                self.serve(call, event, &mut changes, |layout, to| {
                    if !keeps_old {
                        layout.remove_translation(address, address.saturating_add(pages(old_bytes)));
                    }
                    layout.replace_translation(recorded, pages(new_bytes), to);
                });
            }
            // A heap cannot end before its start: no kernel lets that succeed.
            trace::Call::Brk { .. } if self.heap.is_some_and(|begin| (event.result as u64) < begin) => {
                changes.push(Change::Call(event.clone()));
            }
            trace::Call::Brk { .. } => self.move_heap(event, event.result as u64, &mut changes),
            trace::Call::Mlock { .. } | trace::Call::Hole { .. } => {
                changes.extend(self.split_call(event).into_iter().map(Change::Call));
            }
            trace::Call::Exec { .. } => {
                self.pool = self.pool.as_ref().map(HugetlbProcess::executed);
                changes.push(Change::Call(event.clone()));
            }
            _ => changes.push(Change::Call(event.clone())),
        }
        changes
    }

    /// Moves the end of the heap to `recorded`. The first call shows the start of the heap.
    fn move_heap(&mut self, event: &Event, recorded: u64, changes: &mut Vec<Change>) {
        if self.heap.is_none() {
            self.heap = Some(recorded);
            self.serve(Call::Brk { end: 0 }, event, changes, |layout, to| layout.pool_heap_start = to);
        }
        let begin = self.heap.unwrap_or(recorded);
        let end = self.pool_heap_start.wrapping_add(recorded.wrapping_sub(begin));
        self.serve(Call::Brk { end }, event, changes, |layout, to| {
            if to == end {
                let before = layout.pieces.get(&begin).map_or(begin, |piece| piece.end);
                layout.replace_translation(begin, pages(before.max(recorded) - begin), layout.pool_heap_start);
            }
        });
    }

    /// Serves a call as the policy does, and passes its result to `then` if it succeeded.
    fn serve(&mut self, call: Call, event: &Event, changes: &mut Vec<Change>, then: impl FnOnce(&mut Layout, u64)) {
        let heap = self.heap_start(self.heap.unwrap_or_default());
        let Some(pool) = &mut self.pool else { return };
        let result = pool.serve(call, event, heap, &mut self.used_ranges, changes);
        if is_error(result) { changes.push(Change::Refused) } else { then(self, result as u64) }
    }

    /// Whether a recorded range is already translated to `to` as a whole.
    fn translates_to(&self, recorded: u64, bytes: u64, to: u64) -> bool {
        self.parts(recorded, pages(bytes)) == [(to, pages(bytes))]
            && self.pieces.range(..=recorded).next_back().is_some_and(|(_, piece)| recorded < piece.end)
    }

    /// Replaces the translation of a recorded range.
    fn replace_translation(&mut self, recorded: u64, bytes: u64, to: u64) {
        self.remove_translation(recorded, recorded.saturating_add(bytes));
        self.add_translation(recorded, bytes, to);
    }
}
