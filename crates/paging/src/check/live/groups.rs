//! Contiguous groups: which entries must not be cached together, and which must agree.

use alloc::vec::Vec;

use super::history::Step;
use super::replay::{Replay, members_of};
use super::violation::ViolationKind;
use crate::address::OutputAddress;
use crate::check::group::{Members, entry_for, is_marked};
use crate::format::{Change, Format};

impl<F: Format> Replay<'_, F> {
    /// An entry of the group that must not be cached together with the new one.
    pub(super) fn group_conflict(&mut self, at: Step) -> Option<(u64, ViolationKind)> {
        let Step { level, va, new, .. } = at;
        let (start, bytes) = self.group(level, va)?;
        let forms = self.forms.get(&(level, start))?.clone();
        let format = self.format;
        let conflicts = |old: u64| {
            let matters = is_marked(format, level, old) || is_marked(format, level, new);
            matters && format.change(level, old, entry_for(format, level, new, va, start)) == Change::Break
        };
        for form in forms.into_iter().filter(|form| conflicts(*form)) {
            let found = self.find_form(level, start, bytes, form);
            if found.is_some() {
                return found;
            }
            self.forms.entry((level, start)).or_default().retain(|other| *other != form);
        }
        None
    }

    /// An entry of the group that implies `form` for the group's first entry.
    pub(super) fn find_form(&self, level: u8, start: u64, bytes: u64, form: u64) -> Option<(u64, ViolationKind)> {
        let implies_form =
            |va: u64, value: u64| self.is_leaf(level, value) && entry_for(self.format, level, value, va, start) == form;
        for (va, history) in self.histories.get(usize::from(level))?.range(start..start + bytes) {
            if let Some(value) = history.memory.value().filter(|value| implies_form(*va, *value)) {
                return Some((value, ViolationKind::NoGroupBreak));
            }
            if let Some(stale) = history.stale.iter().find(|stale| implies_form(*va, stale.value)) {
                return Some((stale.value, ViolationKind::GroupNotInvalidated));
            }
        }
        None
    }

    /// Records what a leaf in a group's place implies for the group's first entry.
    pub(super) fn note_form(&mut self, level: u8, va: u64, value: u64) {
        let Some((start, _)) = self.group(level, va).filter(|_| self.is_leaf(level, value)) else { return };
        let form = entry_for(self.format, level, value, va, start);
        let forms = self.forms.entry((level, start)).or_default();
        if forms.contains(&form) {
            return;
        }
        forms.push(form);
        // Drops forms that no entry implies any more, so that the list does not grow without bound.
        if forms.len() as u64 > 4 << self.format.group_bits_at(level) {
            let forms = core::mem::take(forms);
            let bytes = self.geometry.span(level) << self.format.group_bits_at(level);
            let remaining =
                forms.into_iter().filter(|old| *old == form || self.find_form(level, start, bytes, *old).is_some());
            let remaining = remaining.collect();
            self.forms.insert((level, start), remaining);
        }
    }

    /// Checks the groups that were written since the last check and that the range reaches.
    pub(super) fn check_groups(&mut self, step: usize, from: u64, to: u64) {
        let groups = core::mem::take(&mut self.groups);
        for (level, start) in groups {
            let bytes = self.geometry.span(level) << self.format.group_bits_at(level);
            if start < to && from < start + bytes {
                self.check_group(step, level, start, bytes);
            } else {
                self.groups.insert((level, start));
            }
        }
    }

    pub(super) fn check_group(&mut self, step: usize, level: u8, start: u64, bytes: u64) {
        let span = self.geometry.span(level);
        let entry = |va| self.history(level, va).and_then(|history| history.memory.value());
        let entries: Vec<Option<u64>> = members_of(start, bytes, span).map(entry).collect();
        let mut mixed = None;
        let members = Members { format: self.format, level, va: start, entries: &entries };
        members.group_faults(|index, _| mixed = mixed.or(Some(index)));
        let Some(index) = mixed else { return };
        let va = start + index as u64 * span;
        let (pa, value) = self
            .history(level, va)
            .map_or((OutputAddress(0), 0), |history| (history.pa, history.memory.value().unwrap_or(0)));
        self.report(ViolationKind::GroupMixed, Step { step, pa, va, level, old: value, new: value });
    }
}
