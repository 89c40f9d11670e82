//! The boots of a guest, by name: what is told of each.

use super::transcript::Part;

/// One boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The first one. The last of its checks has the guest reset.
    Together,
    /// After the reset, with what a disk would have kept.
    AfterReset,
    /// With a clock that counts instructions.
    Counted,
    /// With memory that nobody has used yet.
    Fresh,
    /// With leaves of 1G in the kernel's own mapping, where memory has room for them.
    WithGigabyte,
    /// Without.
    WithoutGigabyte,
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Stage; 6] =
        [Stage::Together, Stage::AfterReset, Stage::Counted, Stage::Fresh, Stage::WithGigabyte, Stage::WithoutGigabyte];

    /// What its log is called by.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Together => "together",
            Stage::AfterReset => "after-reset",
            Stage::Counted => "counted",
            Stage::Fresh => "fresh",
            Stage::WithGigabyte => "with-1g",
            Stage::WithoutGigabyte => "without-1g",
        }
    }

    /// What the kernel is told besides.
    pub fn arguments(self) -> &'static str {
        if self == Stage::WithoutGigabyte { "nogbpages" } else { "" }
    }

    /// The guest's memory. The largest mapping of the checks is four pages of 32M, and a copy of it; leaves of 1G need room
    /// beside what lies below the first.
    pub fn memory(self) -> &'static str {
        match self {
            Stage::WithGigabyte | Stage::WithoutGigabyte => "3G",
            Stage::Together | Stage::AfterReset | Stage::Counted | Stage::Fresh => "2G",
        }
    }
}

/// What a boot said.
#[derive(Clone, Debug)]
pub struct Said {
    /// Its checks.
    pub parts: Vec<Part>,
    /// Why it said nothing of others.
    pub unreached: String,
}
