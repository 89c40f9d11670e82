//! The kinds of violations, and how they are reported.

use core::fmt;

use crate::address::{InputAddress, OutputAddress};

/// How a step breaks the required order of changes to live tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ViolationKind {
    /// The new entry was written over a valid one that should have been made a hole and invalidated first.
    NoBreak,
    /// The old entry was made a hole, but a TLB may still hold it when the new one is written.
    NotInvalidated,
    /// An entry of a contiguous group, or one in the place of a group, was written while another entry there was valid that
    /// must not be cached together with it.
    NoGroupBreak,
    /// As [`ViolationKind::NoGroupBreak`], where the other entry was made a hole but a TLB may still hold it.
    GroupNotInvalidated,
    /// A TLB may still hold a leaf of another size, to other memory, for addresses that the entry translates.
    OtherSizeStale,
    /// The entries of a contiguous group do not form a legal group when the change is over: at an invalidation, or at the end.
    GroupMixed,
    /// The change needed an invalidation, and none covered all of it until the end.
    NeverInvalidated,
    /// A table entry was invalidated only for the last level: a table walk may still use it.
    LastLevelOnly,
    /// A table was released while an entry pointed to it.
    ReleasedReachable,
    /// A table was released, or linked elsewhere, while a walk could still use an entry that pointed to it.
    ReusedTooEarly,
    /// The old value differs from what an earlier step wrote, in more than accessed and dirty.
    UnloggedChange,
    /// The address, the level or the input address of the entry is invalid.
    InvalidEntry,
}

impl ViolationKind {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            ViolationKind::NoBreak => "not-broken",
            ViolationKind::NotInvalidated => "not-invalidated",
            ViolationKind::NoGroupBreak => "group-not-broken",
            ViolationKind::GroupNotInvalidated => "group-not-invalidated",
            ViolationKind::OtherSizeStale => "other-size-stale",
            ViolationKind::GroupMixed => "group-mixed",
            ViolationKind::NeverInvalidated => "never-invalidated",
            ViolationKind::LastLevelOnly => "last-level-only",
            ViolationKind::ReleasedReachable => "released-reachable",
            ViolationKind::ReusedTooEarly => "reused-too-early",
            ViolationKind::UnloggedChange => "untold",
            ViolationKind::InvalidEntry => "no-entry",
        }
    }
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ViolationKind::NoBreak => "written over a valid entry; expected a hole and an invalidation first",
            ViolationKind::NotInvalidated => {
                "written while a TLB may hold the old entry; expected an invalidation of all of it"
            }
            ViolationKind::NoGroupBreak => {
                "written while another entry of the group is valid; expected all to be holes"
            }
            ViolationKind::GroupNotInvalidated => {
                "written while a TLB may hold another entry of the group; expected an invalidation of the whole group"
            }
            ViolationKind::OtherSizeStale => "written while a TLB may hold a leaf of another size for other memory",
            ViolationKind::GroupMixed => "the entries of its contiguous group do not agree",
            ViolationKind::NeverInvalidated => {
                "a TLB may hold the old entry forever; expected an invalidation of all of it"
            }
            ViolationKind::LastLevelOnly => {
                "pointed to a table; expected an invalidation that is not of the last level only"
            }
            ViolationKind::ReleasedReachable => "points to a table that is released",
            ViolationKind::ReusedTooEarly => "may still lead a walk to a table that is released or linked elsewhere",
            ViolationKind::UnloggedChange => "differs from the value that an earlier step left there",
            ViolationKind::InvalidEntry => "has an invalid position",
        })
    }
}

/// A violation and the entry that it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The index of the step that breaks the rule; for a missing invalidation, the index of the change that needs it.
    pub step: usize,
    /// The kind of violation.
    pub kind: ViolationKind,
    /// The level of the entry.
    pub level: u8,
    /// Physical address of the entry.
    pub pa: OutputAddress,
    /// The first input address that the entry translates.
    pub va: InputAddress,
    /// The value that a TLB may hold, or the previous value.
    pub old: u64,
    /// The value that was written.
    pub new: u64,
    /// How many adjacent entries have the same violation, this one included.
    pub entries: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { step, kind, level, pa, va, old, new, entries } = self;
        write!(f, "step {step}: {}: the entry at {pa:#x} (level {level}, for {va:#x}), ", kind.name())?;
        if *entries > 1 {
            write!(f, "and {} after it, ", entries - 1)?;
        }
        write!(f, "{old:#018x} then {new:#018x}: {kind}")
    }
}
