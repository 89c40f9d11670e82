//! The kinds of violations, and how they are reported.

use core::fmt;

use crate::address::{InputAddress, OutputAddress};

/// How a step breaks the required order of changes to live tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Broken {
    /// The new entry was written over a valid one that had to be made a hole and invalidated first.
    NotBroken,
    /// The old entry was made a hole, but a TLB may still hold it when the new one is written.
    NotInvalidated,
    /// An entry of a contiguous group, or one in the place of a group, was written while another valid entry there must
    /// not be cached together with it.
    GroupNotBroken,
    /// As [`Broken::GroupNotBroken`], where the other entry was made a hole but a TLB may still hold it.
    GroupNotInvalidated,
    /// A TLB may still hold a leaf of another size, to other memory, for addresses that the entry translates.
    OtherSizeHeld,
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
    /// The old value of the entry differs from what an earlier step wrote, in more than accessed and dirty.
    Untold,
    /// There cannot be such an entry: its address, its level or its input address is invalid.
    NoEntry,
}

impl Broken {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Broken::NotBroken => "not-broken",
            Broken::NotInvalidated => "not-invalidated",
            Broken::GroupNotBroken => "group-not-broken",
            Broken::GroupNotInvalidated => "group-not-invalidated",
            Broken::OtherSizeHeld => "other-size-stale",
            Broken::GroupMixed => "group-mixed",
            Broken::NeverInvalidated => "never-invalidated",
            Broken::LastLevelOnly => "last-level-only",
            Broken::ReleasedReachable => "released-reachable",
            Broken::ReusedTooEarly => "reused-too-early",
            Broken::Untold => "untold",
            Broken::NoEntry => "no-entry",
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Broken::NotBroken => "written over a valid entry; expected a hole and an invalidation first",
            Broken::NotInvalidated => {
                "written while a TLB may hold the old entry; expected an invalidation of all of it"
            }
            Broken::GroupNotBroken => "written while another entry of the group is valid; expected all to be holes",
            Broken::GroupNotInvalidated => {
                "written while a TLB may hold another entry of the group; expected an invalidation of the whole group"
            }
            Broken::OtherSizeHeld => "written while a TLB may hold a leaf of another size for other memory",
            Broken::GroupMixed => "the entries of its contiguous group do not agree",
            Broken::NeverInvalidated => "a TLB may hold the old entry for ever; expected an invalidation of all of it",
            Broken::LastLevelOnly => "pointed to a table; expected an invalidation that is not of the last level only",
            Broken::ReleasedReachable => "points to a table that is given back",
            Broken::ReusedTooEarly => "may still be walked to a table that is given back or used elsewhere",
            Broken::Untold => "was not what an earlier step left there",
            Broken::NoEntry => "no entry can be there",
        })
    }
}

/// A violation and the entry that it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The index of the step that breaks the rule; for a missing invalidation, the index of the change that needs it.
    pub step: usize,
    /// The kind of violation.
    pub broken: Broken,
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
        let Violation { step, broken, level, pa, va, old, new, entries } = self;
        write!(f, "step {step}: {}: the entry at {pa:#x} (level {level}, for {va:#x}), ", broken.name())?;
        if *entries > 1 {
            write!(f, "and {} after it, ", entries - 1)?;
        }
        write!(f, "{old:#018x} then {new:#018x}: {broken}")
    }
}
