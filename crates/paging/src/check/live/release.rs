//! Released tables, and missing invalidations at the end.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::history::{Memory, Step};
use super::replay::Replay;
use super::violation::ViolationKind;
use crate::address::OutputAddress;
use crate::format::Format;

impl<F: Format> Replay<'_, F> {
    pub(super) fn release(&mut self, step: usize, pa: OutputAddress, bytes: u64) {
        for ((level, va), table) in self.pointers_to(pa, bytes) {
            let Some(history) = self.history(level, va) else { continue };
            let points = |value: u64| self.is_table(level, value) && self.format.table_address(value) == table;
            let at = Step { step, pa: history.pa, va, level, old: 0, new: 0 };
            let stale = history.stale.iter().find(|stale| points(stale.value) && stale.may_be_walked);
            let violation = match (history.memory.value().filter(|value| points(*value)), stale) {
                (Some(value), _) => Some((ViolationKind::ReleasedReachable, value, value)),
                (None, Some(stale)) => {
                    Some((stale.violation_kind(ViolationKind::ReusedTooEarly), stale.value, stale.new))
                }
                (None, None) => None,
            };
            if let Some((kind, old, new)) = violation {
                self.report(kind, Step { old, new, ..at });
            }
        }
        let within = self.pointers.range(pa..pa.saturating_add(bytes));
        let tables: Vec<OutputAddress> = within.map(|(table, _)| *table).collect();
        for table in tables {
            self.pointers.remove(&table);
        }
        self.forget(pa, bytes);
    }

    /// Forgets memory that is no longer a table.
    pub(super) fn forget(&mut self, pa: OutputAddress, bytes: u64) {
        let places: Vec<(OutputAddress, (u8, u64))> =
            self.places.range(pa..pa.saturating_add(bytes)).map(|(pa, place)| (*pa, *place)).collect();
        for (pa, (level, va)) in places {
            self.places.remove(&pa);
            if let Some(history) = self.histories[usize::from(level)].get_mut(&va).filter(|history| history.pa == pa) {
                history.memory = Memory::Unknown;
            }
        }
    }

    pub(super) fn end(&mut self, step: usize) {
        self.check_groups(step, 0, u64::MAX);
        // Entries in an unlinked table are not reported as violations of their own.
        let mut tables: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for level in (0..self.geometry.levels()).rev() {
            let span = self.geometry.span(level);
            let places: Vec<u64> = self.stale_places[usize::from(level)].iter().copied().collect();
            for va in places {
                let Some(history) = self.history(level, va) else { continue };
                let pa = history.pa;
                let Some(stale) = history.stale.iter().find(|stale| stale.must_invalidate).cloned() else { continue };
                if tables.get(&stale.step).is_some_and(|(from, to)| *from <= va && va < *to) {
                    continue;
                }
                if self.is_table(level, stale.value) {
                    tables.insert(stale.step, (va, va + span));
                }
                let at = Step { step: stale.step, pa, va, level, old: stale.value, new: stale.new };
                self.report(stale.violation_kind(ViolationKind::NeverInvalidated), at);
            }
        }
    }
}
