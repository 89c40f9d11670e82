//! The requirements for split, collapse, fold and unfold: whether they succeed, according to the oracle, and the
//! resulting leaves.

use paging::{Format, InputAddress, Leaf, Tables};

use crate::oracle::Oracle;

/// How often each operation changed something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changed {
    pub splits: u32,
    pub collapses: u32,
    pub folds: u32,
    pub unfolds: u32,
}

impl Changed {
    /// Adds the counts of other tables.
    pub fn add(&mut self, other: Changed) {
        self.splits += other.splits;
        self.collapses += other.collapses;
        self.folds += other.folds;
        self.unfolds += other.unfolds;
    }
}

/// Tables, and the oracle of their mappings.
pub struct Resize<'a, F> {
    pub tables: &'a mut Tables<F>,
    pub oracle: &'a Oracle,
    pub changed: &'a mut Changed,
}

impl<F: Format> Resize<'_, F> {
    fn is_grouped(&self, leaf: Leaf) -> bool {
        self.tables.format().group_bits(leaf.level, leaf.entry) != 0
    }

    /// Whether only leaves of `level` map the `bytes` around `va`, to memory of that alignment and with the same attributes.
    fn is_whole(&self, va: InputAddress, bytes: u64, level: u8) -> bool {
        let start = va.aligned_down(bytes);
        let is_aligned = self.oracle.consecutive_memory(start, bytes).is_some_and(|pa| pa.is_aligned(bytes));
        let span = self.tables.geometry().span(level) as usize;
        is_aligned && (0..bytes).step_by(span).all(|at| self.tables.leaf(start + at).unwrap().level == level)
    }

    pub fn split(&mut self, va: InputAddress) {
        let before = self.tables.leaf(va).ok();
        assert_eq!(before.is_some(), self.oracle.translate(va).is_some());
        let split = self.tables.split(va);
        assert_eq!(split.is_ok(), before.is_some(), "{va:#x}: {split:?}");
        let Some(before) = before else { return };
        assert_eq!(self.tables.leaf(va).unwrap().level, before.level.saturating_sub(1), "{va:#x}");
        self.changed.splits += u32::from(before.level > 0);
    }

    pub fn collapse(&mut self, va: InputAddress, level: u8) {
        let (format, geometry) = (*self.tables.format(), self.tables.geometry());
        let can_be = level < geometry.levels() && format.has_leaf(level);
        let expected = can_be && self.is_whole(va, geometry.span(level) << format.run_bits(), level - 1);
        let collapsed = self.tables.collapse(va, level);
        assert_eq!(collapsed.is_ok(), expected, "{format:?} {va:#x}: {collapsed:?}");
        if expected {
            assert_eq!(self.tables.leaf(va).unwrap().level, level, "{format:?} {va:#x}");
            self.changed.collapses += 1;
        }
    }

    pub fn fold(&mut self, va: InputAddress) {
        let format = *self.tables.format();
        let before = self.tables.leaf(va).ok();
        let was_group = before.is_some_and(|leaf| self.is_grouped(leaf));
        let expected = before.is_some_and(|Leaf { level, .. }| {
            let group_bits = format.group_bits_at(level);
            was_group || group_bits != 0 && self.is_whole(va, format.geometry().span(level) << group_bits, level)
        });
        let folded = self.tables.fold(va);
        assert_eq!(folded.is_ok(), expected, "{format:?} {va:#x}: {folded:?}");
        assert!(!expected || self.is_grouped(self.tables.leaf(va).unwrap()), "{format:?} {va:#x}");
        self.changed.folds += u32::from(expected && !was_group);
    }

    pub fn unfold(&mut self, va: InputAddress) {
        let format = *self.tables.format();
        let before = self.tables.leaf(va).ok();
        let was_group = before.is_some_and(|leaf| self.is_grouped(leaf));
        let expected = before.is_some() && !(was_group && format.run_bits() != 0);
        let unfolded = self.tables.unfold(va);
        assert_eq!(unfolded.is_ok(), expected, "{format:?} {va:#x}: {unfolded:?}");
        assert!(!expected || !self.is_grouped(self.tables.leaf(va).unwrap()), "{format:?} {va:#x}");
        self.changed.unfolds += u32::from(expected && was_group);
    }
}
