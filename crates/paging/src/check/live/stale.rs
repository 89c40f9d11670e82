//! Stale entries: values that caches may hold after an entry is replaced, or its table unlinked, until an invalidation.

use alloc::vec::Vec;

use super::history::{Contents, Memory, Stale, Step, without};
use super::replay::Replay;
use crate::address::InputAddress;
use crate::check::group::is_marked;
use crate::format::{Discipline, Format};

impl<F: Format> Replay<'_, F> {
    /// Whether the step unlinks the table that the entry pointed to.
    pub(super) fn is_unlinked(&self, at: Step) -> bool {
        let table = |entry| self.is_table(at.level, entry).then(|| self.format.table_address(entry));
        table(at.old).is_some_and(|old| table(at.new) != Some(old))
    }

    /// The addresses for which leaves may be cached through the old entry of a step.
    pub(super) fn leaves_behind(&self, at: Step) -> Vec<(u64, u64)> {
        let Step { va, level, old, .. } = at;
        let own = (va, va + self.geometry.span(level));
        if let Some((start, bytes)) = self.group(level, va).filter(|_| is_marked(self.format, level, old)) {
            return alloc::vec![(start, start + bytes)];
        }
        match self.history(level, va).map_or(Contents::LinkedBefore, |history| history.contents) {
            _ if !self.is_unlinked(at) => alloc::vec![own],
            // Every entry that the table ever held was written, and has its own stale value.
            Contents::WasEmpty => Vec::new(),
            Contents::LinkedBefore | Contents::Untouched | Contents::WasFilled => self.unknown_below(level, own),
        }
    }

    /// The part of a table's addresses whose entries were never written.
    pub(super) fn unknown_below(&self, level: u8, (from, to): (u64, u64)) -> Vec<(u64, u64)> {
        let span = self.geometry.span(level - 1);
        let (mut unknown, mut start) = (Vec::new(), from);
        for (va, history) in self.histories[usize::from(level - 1)].range(from..to) {
            if history.memory != Memory::Unknown {
                unknown.push((start, *va));
                start = va + span;
            }
        }
        unknown.push((start, to));
        unknown.retain(|(start, end)| start < end);
        unknown
    }

    /// Keeps the old value of a step's entry as a value that may still be cached, with leaves for the addresses `uncovered`.
    pub(super) fn make_stale(&mut self, at: Step, must_invalidate: bool, uncovered: Vec<(u64, u64)>) {
        let Step { step, pa, va, level, old, new } = at;
        let is_table = self.is_table(level, old);
        if !is_table && !self.is_leaf(level, old) {
            return;
        }
        if is_table {
            self.pointers.entry(self.format.table_address(old)).or_default().insert((level, va));
        }
        self.stale_places[usize::from(level)].insert(va);
        self.note_form(level, va, old);
        let history = self.history_mut(level, va, pa);
        let must_invalidate =
            must_invalidate || history.stale.iter().any(|stale| stale.value == old && stale.must_invalidate);
        history.stale.retain(|stale| stale.value != old);
        history.stale.push(Stale {
            value: old,
            new,
            step,
            must_invalidate,
            uncovered,
            may_be_walked: is_table,
            last_level_only: false,
        });
    }

    /// Marks everything in the table of an entry as stale because the table is no longer reachable. The table's memory is not
    /// read.
    pub(super) fn unlink(&mut self, at: Step) {
        let end = at.va + self.geometry.span(at.level);
        for level in (0..at.level).rev() {
            let below: Vec<u64> = self.histories[usize::from(level)].range(at.va..end).map(|(va, _)| *va).collect();
            for va in below {
                let Some(history) = self.history(level, va) else { continue };
                let (pa, memory) = (history.pa, history.memory);
                if let Memory::Known(old) | Memory::Implied(old) = memory {
                    let child = Step { step: at.step, pa, va, level, old, new: 0 };
                    let uncovered = self.leaves_behind(child);
                    self.make_stale(child, true, uncovered);
                }
                let history = self.history_mut(level, va, pa);
                history.memory = Memory::Unknown;
                history.contents = Contents::LinkedBefore;
                if history.stale.is_empty() {
                    self.histories[usize::from(level)].remove(&va);
                }
            }
        }
    }

    pub(super) fn invalidate(&mut self, step: usize, va: InputAddress, bytes: u64, tables: bool) {
        let from = self.geometry.resolved(va);
        let to = from.saturating_add(bytes);
        let every_walk = tables && !matches!(self.format.discipline(), Discipline::BreakBeforeMake(_));
        if every_walk {
            self.end_walks();
        }
        for level in 0..self.geometry.levels() {
            let reach = self.geometry.span(level) << self.format.group_bits_at(level);
            let (first, last) = (from.saturating_sub(reach), to.saturating_add(reach));
            let at = usize::from(level);
            let places: Vec<u64> = self.stale_places[at].range(first..last).copied().collect();
            for va in places {
                let end = va + self.geometry.span(level);
                let Some(history) = self.histories[at].get_mut(&va) else { continue };
                for stale in &mut history.stale {
                    stale.uncovered = without(&stale.uncovered, from, to);
                    let touches = va < to && from < end;
                    stale.last_level_only |= touches && !tables;
                    stale.may_be_walked &= !(touches && tables);
                }
                history.stale.retain(|stale| !stale.is_invalidated());
                if history.stale.is_empty() {
                    self.stale_places[at].remove(&va);
                }
            }
        }
        self.check_groups(step, from, to);
    }

    /// Drops every table entry from the caches of table entries.
    pub(super) fn end_walks(&mut self) {
        for (places, histories) in self.stale_places.iter_mut().zip(&mut self.histories) {
            places.retain(|va| {
                let Some(history) = histories.get_mut(va) else { return false };
                history.stale.iter_mut().for_each(|stale| stale.may_be_walked = false);
                history.stale.retain(|stale| !stale.is_invalidated());
                !history.stale.is_empty()
            });
        }
    }
}
