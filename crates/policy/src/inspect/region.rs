//! One region of a process.

use super::kind::Kind;
use super::seen::{TlbRuns, Win, Window};
use crate::cause::Cause;
use crate::census::{Backing, Census};
use crate::cut::Cut;
use crate::size::PageSize;

/// One region: addresses that are one allocation, and what maps them.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// What it is.
    pub kind: Kind,
    /// How that was recognised; empty where it was not.
    pub recognised_by: String,
    /// How many mappings (VMAs) it is.
    pub vmas: u64,
    /// Whether it is shared (`s`) and not private.
    pub shared: bool,
    /// What is present, by backing, leaf and folio.
    pub census: Census,
    /// Bytes that are swapped out; `None` where smaps was not read.
    pub swap_bytes: Option<u64>,
    /// Private pages that this and another process have together, as after a fork; `None` where smaps was not read.
    pub shared_after_fork_bytes: Option<u64>,
    /// The largest size that it could have; `None` where its backing has one size, or the kernel no other.
    pub target: Option<PageSize>,
    /// Whether its first and last address are multiples of the target.
    pub aligned: bool,
    /// Memory by the entries of a TLB that could hold it; `None` where frames are not seen.
    pub tlb_runs: Option<TlbRuns>,
    /// How much there is to win.
    pub win: Win,
    /// Why what is not at the target is not, largest first; empty where flags were not read ([`Sight::flags`](super::Sight::flags)).
    pub causes: Vec<Explained>,
    /// What cuts it into mappings, in the order of addresses; at most [`Region::MOST_CUTS`] of them.
    pub cuts: Vec<Cut>,
    /// How often it is cut.
    pub cut_count: u64,
    /// What is in each window of PMD size that has memory; empty unless it was asked for.
    pub windows: Vec<Window>,
}

/// Memory that is not at the target, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The cause; the likeliest where there are others.
    pub cause: Cause,
    /// Causes that cannot be told from it by what is visible.
    pub or: Vec<Cause>,
    /// Bytes that it explains.
    pub bytes: u64,
    /// What shows it: a setting with its value, a flag, an address, a counter.
    pub evidence: Vec<String>,
}

impl Explained {
    /// Whether larger pages are to be had where the cause is gone. Pages of files are as large as their file system makes them,
    /// and where no slot is nothing can stand.
    pub fn is_winnable(&self) -> bool {
        let fixed = [
            Cause::FilePages,
            Cause::CodePages,
            Cause::FileMisaligned,
            Cause::PrivateFileCopy,
            Cause::NoAlignedSlot,
            Cause::MappingTooSmall,
            Cause::NoTransparentPages,
        ];
        !fixed.contains(&self.cause)
    }
}

impl Region {
    /// Cuts that are kept with their places.
    pub const MOST_CUTS: usize = 64;

    /// Bytes of addresses.
    pub fn length_bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Bytes that are present; the shared zero page is no memory of its own.
    pub fn resident_bytes(&self) -> u64 {
        self.census.bytes_where(|mapping| mapping.backing != Backing::Zero)
    }

    /// The cause that explains most.
    pub fn first_cause(&self) -> Option<&Explained> {
        self.causes.first()
    }
}
