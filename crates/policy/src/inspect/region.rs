//! [`Region`]: one region of a process, how it is mapped, and why its pages are not larger.

use super::region_memory::{Benefit, TlbRuns, Window};
use crate::cause::Cause;
use crate::census::{Backing, Census};
use crate::cut::Cut;
use crate::kind::Kind;
use crate::remedy::Remedy;
use crate::size::PageSize;

/// One region: addresses that are one allocation, and how they are mapped.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The kind of the region.
    pub kind: Kind,
    /// How the kind was recognised; empty where it was not.
    pub recognised_by: String,
    /// Bytes of its mappings that the program may access; the others are only reserved.
    pub accessible_bytes: u64,
    /// Number of mappings (VMAs) in the region.
    pub vmas: u64,
    /// Whether it is shared (`s`) rather than private.
    pub shared: bool,
    /// Present memory by backing, leaf and folio.
    pub census: Census,
    /// Bytes that are swapped out; `None` where smaps was not read.
    pub swap_bytes: Option<u64>,
    /// Private pages that this and another process share, as after a fork; `None` where smaps was not read.
    pub shared_after_fork_bytes: Option<u64>,
    /// The largest size that it could have; `None` where its backing has only one size or the kernel has no other.
    pub target: Option<PageSize>,
    /// Whether its first and last address are multiples of the target.
    pub aligned: bool,
    /// Memory by the size of the TLB entry that could hold it; `None` where frame numbers are not visible.
    pub tlb_runs: Option<TlbRuns>,
    /// Memory that could be larger, and the cost.
    pub benefit: Benefit,
    /// Why memory is below the target, largest first; empty where flags were not read
    /// ([`Visibility::flags`](super::Visibility::flags)).
    pub causes: Vec<Explained>,
    /// The cuts between its mappings, in address order; at most [`Region::MAX_CUTS`] of them.
    pub cuts: Vec<Cut>,
    /// Number of cuts.
    pub cut_count: u64,
    /// The content of each window of PMD size that has memory; empty unless windows were requested.
    pub windows: Vec<Window>,
}

/// A cause, with the memory below the target that it explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The cause; the most likely one where there are several candidates.
    pub cause: Cause,
    /// Further causes that hold at the same time: larger pages need all of them removed.
    pub also: Vec<Cause>,
    /// Other causes that the visible facts do not distinguish from it.
    pub or: Vec<Cause>,
    /// Bytes that it explains.
    pub bytes: u64,
    /// The evidence: a setting with its value, a flag, an address, a counter.
    pub evidence: Vec<String>,
    /// What removes the cause and all that hold with it: alternatives, least intrusive first. None of them was tried.
    pub remedies: Vec<Remedy>,
}

impl Explained {
    /// Whether larger pages become possible once the cause is removed. The file system decides the size of file pages, and a
    /// place without a slot cannot have a larger page. The bytes of all removable causes of a region add up to
    /// [`Benefit::bytes`].
    pub fn is_removable(&self) -> bool {
        let fixed = [
            Cause::FilePages,
            Cause::CodePages,
            Cause::FileMisaligned,
            Cause::PrivateFileCopy,
            Cause::NoAlignedSlot,
            Cause::MappingTooSmall,
            Cause::NoTransparentPages,
        ];
        !fixed.contains(&self.cause) && !self.is_absent()
    }

    /// Whether it concerns memory that is absent and cannot be faulted in.
    pub fn is_absent(&self) -> bool {
        matches!(self.cause, Cause::PoolExhausted { .. })
    }
}

impl Region {
    /// The largest number of cuts that are kept with their addresses.
    pub const MAX_CUTS: usize = 64;

    /// Length of the address range in bytes.
    pub fn length_bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Bytes that are present, without the shared zero page, which uses no memory of the process.
    pub fn resident_bytes(&self) -> u64 {
        self.census.bytes_where(|mapping| mapping.backing != Backing::Zero)
    }

    /// The cause that explains the most bytes.
    pub fn first_cause(&self) -> Option<&Explained> {
        self.causes.first()
    }
}
