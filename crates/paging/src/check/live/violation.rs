//! What can be wrong with a step, and how it is told.

use core::fmt;

use crate::address::{InputAddress, OutputAddress};

/// How a step breaks the order that live tables must be changed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Broken {
    /// The new entry was written over a valid one that had to be made a hole and invalidated first.
    NotBroken,
    /// The old entry was made a hole, but a TLB may still hold it when the new one is written.
    NotInvalidated,
    /// An entry of a contiguous group, or one in the place of a group, was written while another entry there was
    /// valid that cannot be cached together with it.
    GroupNotBroken,
    /// The same, where the other entry was made a hole but a TLB may still hold it.
    GroupNotInvalidated,
    /// The entry translates addresses that a TLB may still hold a leaf of another size for, to other memory.
    OtherSizeHeld,
    /// The entries of a contiguous group are not one when the change is over: at an invalidation, or at the end.
    GroupMixed,
    /// The change needed an invalidation, and until the end none covered all of it.
    NeverInvalidated,
    /// A table entry was invalidated for the last level only: a table walk may still use it.
    LastLevelOnly,
    /// A table was given back while an entry pointed to it.
    ReleasedReachable,
    /// A table was given back, or linked elsewhere, while a walk could still use an entry that pointed to it.
    ReusedTooEarly,
    /// The entry was not what an earlier step left there, more than accessed and dirty.
    Untold,
    /// No entry can be there: its address, its level or its input address is none.
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

/// A broken order, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The index of the step that breaks it; of the change, for one that needs an invalidation and gets none.
    pub step: usize,
    /// What is broken.
    pub broken: Broken,
    /// The level of the entry.
    pub level: u8,
    /// Where the entry is.
    pub pa: OutputAddress,
    /// The first input address that it is for.
    pub va: InputAddress,
    /// The value that a TLB may hold, or that it had.
    pub old: u64,
    /// The value that it got.
    pub new: u64,
    /// How many entries side by side break the same, this one included.
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
