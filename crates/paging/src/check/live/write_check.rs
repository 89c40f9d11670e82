//! Decides whether an entry may be written now, given what TLBs may still hold.

use alloc::vec::Vec;

use super::history::{Stale, Step};
use super::replay::Replay;
use super::violation::ViolationKind;
use crate::address::OutputAddress;
use crate::format::{Change, Discipline, Format, Kind};

impl<F: Format> Replay<'_, F> {
    /// Reports what is wrong with writing the new entry now.
    pub(super) fn check_write(&mut self, at: Step) {
        let Step { level, va, old, new, .. } = at;
        match self.format.kind(level, new) {
            Kind::Table if level > 0 => self.check_reuse(at),
            Kind::Leaf => {}
            _ => return,
        }
        if self.format.change(level, old, new) == Change::Break {
            return self.report(ViolationKind::NoBreak, at);
        }
        let stale = self.history(level, va).map(|history| history.stale.as_slice()).unwrap_or_default();
        let conflict = stale.iter().find(|stale| self.format.change(level, stale.value, new) == Change::Break);
        if let Some((old, kind)) =
            conflict.map(|stale| (stale.value, stale.violation_kind(ViolationKind::NotInvalidated)))
        {
            return self.report(kind, Step { old, ..at });
        }
        if self.is_leaf(level, new) {
            self.check_leaf(at);
        }
    }

    pub(super) fn check_leaf(&mut self, at: Step) {
        let found = self.group_conflict(at).or_else(|| self.size_conflict(at));
        if let Some((old, kind)) = found {
            self.report(kind, Step { old, ..at });
        }
    }

    /// A leaf of another level that is still cached for addresses of the new leaf and maps other memory. Only arm64 forbids
    /// this.
    pub(super) fn size_conflict(&self, at: Step) -> Option<(u64, ViolationKind)> {
        if !matches!(self.format.discipline(), Discipline::BreakBeforeMake(_)) {
            return None;
        }
        let (from, to) = (at.va, at.va + self.geometry.span(at.level));
        let is_other = |level: u8, va: u64, value: u64| {
            let both = from.max(va);
            let pa = |level, value, va: u64| {
                let memory = self.format.leaf_address(level, value, self.geometry.extended(va));
                memory.0.wrapping_add(both - va)
            };
            let memory = |level, value| self.format.attributes(level, value).memory;
            let same = pa(level, value, va) == pa(at.level, at.new, from);
            !same || memory(level, value) != memory(at.level, at.new)
        };
        for level in (0..self.geometry.levels()).filter(|level| *level != at.level) {
            let first = from & !(self.geometry.span(level) - 1);
            for va in self.stale_places[usize::from(level)].range(first..to) {
                let stale = self.history(level, *va).map(|history| history.stale.as_slice()).unwrap_or_default();
                let mut leaves =
                    stale.iter().filter(|stale| self.is_leaf(level, stale.value) && stale.reaches(from, to));
                if let Some(stale) = leaves.find(|stale| is_other(level, *va, stale.value)) {
                    return Some((stale.value, ViolationKind::OtherSizeStale));
                }
            }
        }
        None
    }

    /// Checks a table that is being linked while a walk could still reach it by another entry.
    pub(super) fn check_reuse(&mut self, at: Step) {
        let table = self.format.table_address(at.new);
        let stale = self.stale_pointers(table, self.geometry.table_bytes(at.level - 1));
        let elsewhere = |(level, va): (u8, u64)| (level, va) != (at.level, at.va);
        if let Some((_, stale)) = stale.into_iter().find(|(place, _)| elsewhere(*place)) {
            self.report(stale.violation_kind(ViolationKind::ReusedTooEarly), Step { old: stale.value, ..at });
        }
    }

    /// The stale entries that pointed to a table in `bytes` from `pa` on and no longer do.
    pub(super) fn stale_pointers(&self, pa: OutputAddress, bytes: u64) -> Vec<((u8, u64), Stale)> {
        let mut found = Vec::new();
        for ((level, va), table) in self.pointers_to(pa, bytes) {
            let points = |value| self.is_table(level, value) && self.format.table_address(value) == table;
            let Some(history) = self.history(level, va).filter(|history| !history.memory.value().is_some_and(points))
            else {
                continue;
            };
            let stale = history.stale.iter().find(|stale| points(stale.value) && stale.may_be_walked);
            found.extend(stale.map(|stale| ((level, va), stale.clone())));
        }
        found
    }

    pub(super) fn pointers_to(&self, pa: OutputAddress, bytes: u64) -> Vec<((u8, u64), OutputAddress)> {
        let pointers = self.pointers.range(pa..pa.saturating_add(bytes));
        pointers.flat_map(|(table, places)| places.iter().map(|place| (*place, *table))).collect()
    }
}
