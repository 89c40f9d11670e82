//! What a demotion is to reach, how far it is, and why it ends.

use host::direct_map::Leaves;
use policy::size::PageSize;

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The leaf that is to map memory.
    pub leaf: PageSize,
    /// The share of the direct map that is enough.
    pub ratio: f64,
    /// Bytes of larger leaves to split at most, rounded up to a whole leaf; absent: no limit.
    pub limit_bytes: Option<u64>,
}

/// How far it is.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// The leaves now.
    pub leaves: &'a Leaves,
    /// Secret memory now.
    pub secret_bytes: u64,
    /// Held memory now.
    pub held_bytes: u64,
    /// The round, counted from 1.
    pub round: u32,
}

/// Why it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The share that was asked for is reached.
    Goal,
    /// The limit that was asked for is reached.
    Limit,
    /// No larger leaf is counted any more, and the share is not reached all the same.
    NoneLarger,
    /// What larger leaves are left lies in memory that is in use.
    InUse {
        /// Memory that was left available.
        available_bytes: u64,
    },
    /// No whole leaf came up in what a limited demotion may hold.
    NoneFound,
    /// The kernel refused; what was split stays split.
    Refused {
        /// What it said.
        reason: String,
    },
    /// A signal arrived.
    Interrupted {
        /// Its number.
        signal: i32,
    },
}
