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
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Stage; 4] = [Stage::Together, Stage::AfterReset, Stage::Counted, Stage::Fresh];

    /// What its log is called by.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Together => "together",
            Stage::AfterReset => "after-reset",
            Stage::Counted => "counted",
            Stage::Fresh => "fresh",
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
