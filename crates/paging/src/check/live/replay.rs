//! Replays the steps in order, and updates what is known about the tables with each write.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::history::{Contents, History, Memory, Step};
use super::violation::{Violation, ViolationKind};
use crate::address::{InputAddress, OutputAddress};
use crate::attributes::Flags;
use crate::check::group::{entry_for, is_marked};
use crate::format::{Change, Format, Kind};
use crate::geometry::{ENTRY_BYTES, Geometry};

pub(super) struct Replay<'a, F> {
    pub(super) format: &'a F,
    pub(super) geometry: Geometry,
    /// Histories by level and resolved input address.
    pub(super) histories: Vec<BTreeMap<u64, History>>,
    /// For each level, the resolved input addresses of the entries of which a cache may still hold a stale value.
    pub(super) stale_places: Vec<BTreeSet<u64>>,
    /// For each table, the entries whose current or stale value points to it, by level and resolved input address.
    pub(super) pointers: BTreeMap<OutputAddress, BTreeSet<(u8, u64)>>,
    /// For the physical address of an entry: its level and resolved input address.
    pub(super) places: BTreeMap<OutputAddress, (u8, u64)>,
    /// For each group, by level and first input address: the values that its leaves, current or stale, imply for its
    /// first entry. Some of those leaves may be gone.
    pub(super) forms: BTreeMap<(u8, u64), Vec<u64>>,
    /// Groups that were written since they were last checked, by level and first input address.
    pub(super) groups: BTreeSet<(u8, u64)>,
    pub(super) violations: Vec<Violation>,
}

impl<'a, F: Format> Replay<'a, F> {
    pub(super) fn new(format: &'a F) -> Replay<'a, F> {
        let geometry = format.geometry();
        let levels = usize::from(geometry.levels());
        Replay {
            format,
            geometry,
            histories: alloc::vec![BTreeMap::new(); levels],
            stale_places: alloc::vec![BTreeSet::new(); levels],
            pointers: BTreeMap::new(),
            places: BTreeMap::new(),
            forms: BTreeMap::new(),
            groups: BTreeSet::new(),
            violations: Vec::new(),
        }
    }

    pub(super) fn report(&mut self, kind: ViolationKind, at: Step) {
        self.report_for(kind, self.geometry.extended(at.va), at);
    }

    fn report_for(&mut self, kind: ViolationKind, va: InputAddress, at: Step) {
        let Step { step, pa, level, old, new, .. } = at;
        // The same violation in consecutive entries is reported once.
        if let Some(last) = self.violations.last_mut() {
            let follows = last.pa.checked_add(last.entries * ENTRY_BYTES) == Some(pa);
            if last.kind == kind && last.level == level && follows {
                last.entries += 1;
                return;
            }
        }
        self.violations.push(Violation { step, kind, level, pa, va, old, new, entries: 1 });
    }

    fn is_entry(&self, va: InputAddress, at: Step) -> bool {
        at.level < self.geometry.levels()
            && at.pa.is_aligned(ENTRY_BYTES)
            && self.geometry.is_canonical(va)
            && at.va & (self.geometry.span(at.level) - 1) == 0
    }

    pub(super) fn is_leaf(&self, level: u8, entry: u64) -> bool {
        self.format.kind(level, entry) == Kind::Leaf
    }

    pub(super) fn is_table(&self, level: u8, entry: u64) -> bool {
        level > 0 && self.format.kind(level, entry) == Kind::Table
    }

    pub(super) fn history(&self, level: u8, va: u64) -> Option<&History> {
        self.histories.get(usize::from(level))?.get(&va)
    }

    /// The history at a position in the tree. If there is none, adds one whose value is unknown.
    pub(super) fn history_mut(&mut self, level: u8, va: u64, pa: OutputAddress) -> &mut History {
        let empty = History { pa, memory: Memory::Unknown, contents: Contents::LinkedBefore, stale: Vec::new() };
        self.histories[usize::from(level)].entry(va).or_insert(empty)
    }

    /// The first address and the size in bytes of the group that contains `va`; `None` if `level` has no groups.
    pub(super) fn group(&self, level: u8, va: u64) -> Option<(u64, u64)> {
        let bits = self.format.group_bits_at(level);
        let bytes = self.geometry.span(level) << bits;
        (bits != 0).then_some((va & !(bytes - 1), bytes))
    }

    /// Replays a write. `va` is the input address as logged, which may be invalid; that of `at` is resolved.
    pub(super) fn write(&mut self, va: InputAddress, at: Step) {
        if !self.is_entry(va, at) {
            return self.report_for(ViolationKind::InvalidEntry, va, at);
        }
        self.compare_old_value(at);
        if at.old != at.new {
            let uncovered = self.leaves_behind(at);
            if self.is_unlinked(at) {
                self.unlink(at);
            }
            self.check_write(at);
            self.replace(at, uncovered);
        }
        for entry in [at.old, at.new] {
            if let Some((group, _)) = self.group(at.level, at.va).filter(|_| is_marked(self.format, at.level, entry)) {
                self.groups.insert((at.level, group));
            }
        }
        let history = self.history_mut(at.level, at.va, at.pa);
        history.memory = Memory::Known(at.new);
    }

    /// Compares the step's old value with the known value. If they differ, a change was not logged.
    pub(super) fn compare_old_value(&mut self, at: Step) {
        let is_new = self.history(at.level, at.va).is_none_or(|history| history.memory == Memory::Unknown);
        let history = self.history_mut(at.level, at.va, at.pa);
        if history.pa != at.pa {
            (history.pa, history.memory) = (at.pa, Memory::Unknown);
        }
        let memory = history.memory;
        self.places.insert(at.pa, (at.level, at.va));
        match memory {
            Memory::Known(known) if !self.is_same(at.level, known, at.old) => {
                self.report(ViolationKind::UnloggedChange, Step { old: known, new: at.old, ..at });
                let uncovered = self.leaves_behind(Step { old: known, ..at });
                self.make_stale(Step { old: known, ..at }, true, uncovered);
            }
            _ => {}
        }
        if is_new {
            self.infer_contents(at);
            self.imply_group(at);
        }
    }

    /// Infers from the first known value of an entry whether its table was empty when it was linked.
    pub(super) fn infer_contents(&mut self, at: Step) {
        let above = at.level + 1;
        if above >= self.geometry.levels() {
            return;
        }
        let is_hole = self.format.kind(at.level, at.old) == Kind::Hole;
        let span = self.geometry.span(above);
        let va = at.va & !(span - 1);
        let histories = &mut self.histories[usize::from(above)];
        let Some(parent) = histories.get_mut(&va) else { return };
        let before = parent.contents;
        parent.contents = match (before, is_hole) {
            (Contents::LinkedBefore, _) => Contents::LinkedBefore,
            (Contents::Untouched | Contents::WasEmpty, true) => Contents::WasEmpty,
            _ => Contents::WasFilled,
        };
        // The tables of a run are linked together: if one of them was empty, all were.
        if before == Contents::Untouched && parent.contents == Contents::WasEmpty {
            let run = span << self.format.run_bits();
            let start = va & !(run - 1);
            let untouched = histories.range_mut(start..start + run).map(|(_, history)| &mut history.contents);
            untouched.filter(|contents| **contents == Contents::Untouched).for_each(|it| *it = Contents::WasEmpty);
        }
    }

    /// Whether two values of an entry are equal, apart from what software need not log: the accessed and dirty state
    /// that hardware sets, and the content of a hole.
    pub(super) fn is_same(&self, level: u8, a: u64, b: u64) -> bool {
        let is_hole = |entry| self.format.kind(level, entry) == Kind::Hole;
        let stateless = |entry| self.format.with_state(entry, Flags::empty());
        a == b || is_hole(a) && is_hole(b) || self.is_leaf(level, a) && stateless(a) == stateless(b)
    }

    /// If the old value is marked as part of a contiguous group, infers the unknown entries of the group from it: the
    /// group counts as legal until an entry proves otherwise.
    pub(super) fn imply_group(&mut self, at: Step) {
        if !is_marked(self.format, at.level, at.old) {
            return;
        }
        let Some((start, bytes)) = self.group(at.level, at.va) else { return };
        let span = self.geometry.span(at.level);
        self.note_form(at.level, at.va, at.old);
        for va in members_of(start, bytes, span) {
            let distance = (va / span).wrapping_sub(at.va / span).wrapping_mul(ENTRY_BYTES);
            let pa = OutputAddress(at.pa.0.wrapping_add(distance));
            let implied = Memory::Implied(entry_for(self.format, at.level, at.old, at.va, va));
            let history = self.history_mut(at.level, va, pa);
            if history.memory == Memory::Unknown && history.pa == pa {
                history.memory = implied;
            }
        }
    }

    /// Records the effects of a write: the old value is now stale, and a newly linked table counts as untouched.
    pub(super) fn replace(&mut self, at: Step, uncovered: Vec<(u64, u64)>) {
        let Step { level, old, new, .. } = at;
        let format = self.format;
        self.note_form(level, at.va, new);
        self.make_stale(at, format.change(level, old, new) != Change::Free, uncovered);
        if self.is_table(level, new) {
            self.pointers.entry(format.table_address(new)).or_default().insert((level, at.va));
            if !self.is_table(level, old) || self.is_unlinked(at) {
                self.history_mut(level, at.va, at.pa).contents = Contents::Untouched;
            }
        }
        // A stale value is harmless if a change from it to the new value would need no invalidation.
        let history = self.history_mut(level, at.va, at.pa);
        for stale in &mut history.stale {
            stale.must_invalidate &= format.change(level, stale.value, new) != Change::Free;
        }
    }
}

/// The first input address of each entry of a group. An entry spans `span` bytes.
pub(super) fn members_of(start: u64, bytes: u64, span: u64) -> impl Iterator<Item = u64> {
    (0..bytes / span).map(move |index| start + index * span)
}
