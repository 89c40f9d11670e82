//! Tables that are given back, and what is left over at the end.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::history::{Memory, Step};
use super::replay::Replay;
use super::violation::Broken;
use crate::format::Format;

impl<F: Format> Replay<'_, F> {
    pub(super) fn release(&mut self, step: usize, pa: u64, bytes: u64) {
        for ((level, va), table) in self.pointers_to(pa, bytes) {
            let Some(slot) = self.slot(level, va) else { continue };
            let points = |value: u64| self.is_table(level, value) && self.format.table_address(value) == table;
            let at = Step { step, pa: slot.pa, va, level, old: 0, new: 0 };
            let held = slot.held.iter().find(|held| points(held.value) && held.is_walked);
            let told = match (slot.memory.value().filter(|value| points(*value)), held) {
                (Some(value), _) => Some((Broken::ReleasedReachable, value, value)),
                (None, Some(held)) => Some((held.reproach(Broken::ReusedTooEarly), held.value, held.new)),
                (None, None) => None,
            };
            if let Some((broken, old, new)) = told {
                self.tell(broken, Step { old, new, ..at });
            }
        }
        let tables: Vec<u64> = self.pointers.range(pa..pa.saturating_add(bytes)).map(|(table, _)| *table).collect();
        for table in tables {
            self.pointers.remove(&table);
        }
        self.forget(pa, bytes);
    }

    /// The memory is no table any more.
    pub(super) fn forget(&mut self, pa: u64, bytes: u64) {
        let places: Vec<(u64, (u8, u64))> =
            self.places.range(pa..pa.saturating_add(bytes)).map(|(pa, place)| (*pa, *place)).collect();
        for (pa, (level, va)) in places {
            self.places.remove(&pa);
            if let Some(slot) = self.slots[usize::from(level)].get_mut(&va).filter(|slot| slot.pa == pa) {
                slot.memory = Memory::Unknown;
            }
        }
    }

    pub(super) fn end(&mut self, step: usize) {
        self.judge_groups(step, 0, u64::MAX);
        // What was in a table that was unlinked is no violation of its own.
        let mut tables: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for level in (0..self.geometry.levels()).rev() {
            let span = self.geometry.span(level);
            let stale: Vec<u64> = self.stale[usize::from(level)].iter().copied().collect();
            for va in stale {
                let Some(slot) = self.slot(level, va) else { continue };
                let pa = slot.pa;
                let Some(held) = slot.held.iter().find(|held| held.must_go).cloned() else { continue };
                if tables.get(&held.step).is_some_and(|(from, to)| *from <= va && va < *to) {
                    continue;
                }
                if self.is_table(level, held.value) {
                    tables.insert(held.step, (va, va + span));
                }
                let at = Step { step: held.step, pa, va, level, old: held.value, new: held.new };
                self.tell(held.reproach(Broken::NeverInvalidated), at);
            }
        }
    }
}
