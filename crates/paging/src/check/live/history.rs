//! The history of an entry during a replay: its value in memory, and the stale values that may still be cached.

use alloc::vec::Vec;

use super::violation::ViolationKind;
use crate::address::OutputAddress;

/// A write of the entry for the resolved input addresses from `va` on.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) step: usize,
    pub(super) pa: OutputAddress,
    pub(super) va: u64,
    pub(super) level: u8,
    pub(super) old: u64,
    pub(super) new: u64,
}

/// An old value that a TLB, or a cache of table entries, may still hold.
#[derive(Clone, Debug)]
pub(super) struct Stale {
    pub(super) value: u64,
    /// The value that replaced it, and the step that did so.
    pub(super) new: u64,
    pub(super) step: usize,
    /// Whether the old value must be invalidated, because it must not be used any longer.
    pub(super) must_invalidate: bool,
    /// The resolved input addresses of leaves that are still to be invalidated.
    pub(super) uncovered: Vec<(u64, u64)>,
    /// Whether the old value points to a table and no invalidation of table entries has covered it yet.
    pub(super) may_be_walked: bool,
    /// Whether an invalidation of only the last level has covered the old value since it was replaced.
    pub(super) last_level_only: bool,
}

impl Stale {
    pub(super) fn is_invalidated(&self) -> bool {
        self.uncovered.is_empty() && !self.may_be_walked
    }

    pub(super) fn reaches(&self, from: u64, to: u64) -> bool {
        self.uncovered.iter().any(|(start, end)| *start < to && from < *end)
    }

    /// The rule that is broken if this value stays cached.
    pub(super) fn violation_kind(&self, otherwise: ViolationKind) -> ViolationKind {
        let only_walked = self.may_be_walked && self.last_level_only && self.uncovered.is_empty();
        if only_walked { ViolationKind::LastLevelOnly } else { otherwise }
    }
}

/// Whether the value of an entry in memory is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Unknown,
    /// The value follows from another entry of its group.
    Implied(u64),
    Known(u64),
}

impl Memory {
    pub(super) fn value(self) -> Option<u64> {
        match self {
            Memory::Unknown => None,
            Memory::Implied(value) | Memory::Known(value) => Some(value),
        }
    }
}

/// What is known of the table that an entry points to, apart from its written entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// The table was linked before the first step.
    LinkedBefore,
    /// The table was linked where there was a hole; nothing was written to it since.
    Untouched,
    /// The first old value of every written entry was a hole, so the table was empty.
    WasEmpty,
    /// The table was filled before it was linked.
    WasFilled,
}

/// The history of one entry, identified by its position in the tree.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) pa: OutputAddress,
    pub(super) memory: Memory,
    pub(super) contents: Contents,
    pub(super) stale: Vec<Stale>,
}

/// The parts of `ranges` outside `from` to `to`.
pub(super) fn without(ranges: &[(u64, u64)], from: u64, to: u64) -> Vec<(u64, u64)> {
    let parts = ranges.iter().flat_map(|(start, end)| [(*start, (*end).min(from)), ((*start).max(to), *end)]);
    parts.filter(|(start, end)| start < end).collect()
}
