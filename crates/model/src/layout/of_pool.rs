//! A recorded program under a pool policy: its calls at the addresses that it has under the policy, and the translation
//! of recorded addresses after each call.

use ::policy::call::{Call, map, mremap};
use ::policy::carry_out::is_error;
use trace::Event;

use super::Layout;
use super::change::Change;
use super::linux::pages;
use super::pool::Pool;

impl Layout {
    /// The changes that a recorded call makes under the policy.
    pub(super) fn by_pool(&mut self, event: &Event) -> Vec<Change> {
        let mut changes = Vec::new();
        match event.call.clone() {
            trace::Call::Region { address, bytes, name, .. } if name == "[heap]" => {
                self.move_heap(event, address, &mut changes);
                self.move_heap(event, address.saturating_add(bytes), &mut changes);
            }
            trace::Call::Region { address, bytes, protection, name } => {
                let to = self.region(address, pages(bytes), &name);
                if let Some(pool) = &mut self.pool {
                    pool.begins_with(to, pages(bytes), protection, name.is_empty() || name.starts_with("[anon"));
                }
                let call = trace::Call::Region { address: to, bytes, protection, name };
                changes.push(Change::Call(Event { call, ..event.clone() }));
            }
            trace::Call::Mmap { address, bytes, protection, flags, file, offset, .. } => {
                let recorded = event.result as u64;
                let is_fixed = flags & (map::FIXED | map::FIXED_NOREPLACE) != 0;
                let address = if is_fixed { self.address(recorded) } else { self.hint(address, pages(bytes)) };
                let call = Call::Mmap { address, bytes, protection, flags, file: file as u64, offset };
                self.serve(call, event, &mut changes, |layout, to| {
                    if !(is_fixed && layout.means(recorded, bytes, to)) {
                        layout.mean_instead(recorded, pages(bytes), to)
                    }
                    if !is_fixed {
                        layout.reservations.note(&event.call, recorded, to);
                    }
                });
            }
            trace::Call::Munmap { address, bytes } => {
                let trimmed = self.trim(address, pages(bytes));
                let is_trimmed = trimmed.is_some();
                for (begin, bytes) in trimmed.unwrap_or_else(|| self.parts(address, pages(bytes))) {
                    self.serve(Call::Munmap { address: begin, bytes }, event, &mut changes, |_, _| {});
                }
                if !is_trimmed {
                    self.forget(address, address.saturating_add(pages(bytes)));
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
            // A mapping cannot be moved onto itself.
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
                let keeps = flags & !(mremap::MAY_MOVE | mremap::FIXED) != 0;
                let call = Call::Mremap { address: from, old_bytes, new_bytes, flags, new_address };
                self.serve(call, event, &mut changes, |layout, to| {
                    if !keeps {
                        layout.forget(address, address.saturating_add(pages(old_bytes)));
                    }
                    layout.mean_instead(recorded, pages(new_bytes), to);
                });
            }
            // A heap cannot end before it begins: no kernel has let that succeed.
            trace::Call::Brk { .. } if self.heap.is_some_and(|begin| (event.result as u64) < begin) => {
                changes.push(Change::Call(event.clone()));
            }
            trace::Call::Brk { .. } => self.move_heap(event, event.result as u64, &mut changes),
            trace::Call::Exec { .. } => {
                self.pool = self.pool.as_ref().map(Pool::executed);
                changes.push(Change::Call(event.clone()));
            }
            _ => changes.push(Change::Call(event.clone())),
        }
        changes
    }

    /// Moves the recorded end of the heap. The first call shows where the heap begins.
    fn move_heap(&mut self, event: &Event, recorded: u64, changes: &mut Vec<Change>) {
        if self.heap.is_none() {
            self.heap = Some(recorded);
            self.serve(Call::Brk { end: 0 }, event, changes, |layout, to| layout.heap_begins = to);
        }
        let begin = self.heap.unwrap_or(recorded);
        let end = self.heap_begins.wrapping_add(recorded.wrapping_sub(begin));
        self.serve(Call::Brk { end }, event, changes, |layout, to| {
            if to == end {
                let before = layout.pieces.get(&begin).map_or(begin, |piece| piece.end);
                layout.mean_instead(begin, pages(before.max(recorded) - begin), layout.heap_begins);
            }
        });
    }

    /// Has the policy serve a call, and passes its result to `then` unless it failed.
    fn serve(&mut self, call: Call, event: &Event, changes: &mut Vec<Change>, then: impl FnOnce(&mut Layout, u64)) {
        let heap = self.heap_place(self.heap.unwrap_or_default());
        let Some(pool) = &mut self.pool else { return };
        let result = pool.serve(call, event, heap, &mut self.taken, changes);
        if is_error(result) { changes.push(Change::Refused) } else { then(self, result as u64) }
    }

    /// Whether all of a recorded range is already translated to `to`.
    fn means(&self, recorded: u64, bytes: u64, to: u64) -> bool {
        self.parts(recorded, pages(bytes)) == [(to, pages(bytes))]
            && self.pieces.range(..=recorded).next_back().is_some_and(|(_, piece)| recorded < piece.end)
    }

    /// Replaces the translation of a recorded range.
    fn mean_instead(&mut self, recorded: u64, bytes: u64, to: u64) {
        self.forget(recorded, recorded.saturating_add(bytes));
        self.mean(recorded, bytes, to);
    }
}
