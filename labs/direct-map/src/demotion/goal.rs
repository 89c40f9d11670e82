//! The [`Goal`] of a demotion, its [`Progress`], and why it ends ([`Stopped`]).

use host::direct_map::Leaves;
use policy::size::PageSize;

/// The goal of a demotion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The leaf size that is to map memory.
    pub leaf: PageSize,
    /// The share of the direct map that is sufficient.
    pub ratio: f64,
    /// The most bytes of larger leaves to split, rounded up to a whole leaf; absent: no limit.
    pub limit_bytes: Option<u64>,
}

/// The progress of a demotion.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    pub leaves: &'a Leaves,
    /// Current bytes of secret memory.
    pub secret_bytes: u64,
    /// Current bytes of held memory.
    pub held_bytes: u64,
    /// The round, counted from 1.
    pub round: u32,
}

/// Why a demotion ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The requested share is reached.
    Goal,
    /// The requested limit is reached.
    Limit,
    /// No larger leaf is counted any more, although the share is not reached.
    NoneLarger,
    /// The remaining larger leaves map memory that is in use.
    InUse {
        /// Bytes of memory that were left available.
        available_bytes: u64,
    },
    /// No whole leaf was found in the memory that a limited demotion may hold.
    NoneFound,
    /// The kernel refused; leaves that were split stay split.
    Refused {
        /// The reason, as text.
        reason: String,
    },
    /// A signal arrived.
    Interrupted { signal: i32 },
}
