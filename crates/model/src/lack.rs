//! What a machine lacks that a policy, or the settings of its kernel, ask for.

use ::policy::size::{PageSize, format_bytes};
use thiserror::Error;

/// What a machine does not have, and what it does.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Lack {
    /// A kernel takes the largest folios that are enabled first.
    #[error(
        "further folios of {} would be taken before those of {}: name the policy of the largest size",
        format_bytes(*further_bytes),
        format_bytes(*policy_bytes)
    )]
    LargerFolios {
        /// Bytes of a further folio.
        further_bytes: u64,
        /// Bytes of the policy's.
        policy_bytes: u64,
    },
    /// Folios are of four base pages at least.
    #[error("it has no folios of {}: the smallest are of {} with {format}", format_bytes(*bytes), format_bytes(*least_bytes))]
    SmallerFolios {
        /// Bytes of the folio.
        bytes: u64,
        /// Bytes of the smallest.
        least_bytes: u64,
        /// The format of the tables.
        format: String,
    },
    /// One page of a PMD must be there (`max_ptes_none_store`, mm/khugepaged.c).
    #[error("max_ptes_none can be 0 to {most} with {format}, found {found}: one page of a PMD must be there")]
    MaxPtesNone {
        /// What it can be at most.
        most: u64,
        /// The format of the tables.
        format: String,
        /// What it was to be.
        found: u64,
    },
    /// No format of the machine has base pages of that size.
    #[error("it has no base pages of {size}, only of {has}")]
    BasePages {
        /// The size.
        size: PageSize,
        /// Those that there are.
        has: String,
    },
    /// No leaf is of that size.
    #[error("leaves of {format} are of {has}")]
    Leaves {
        /// The format of the tables.
        format: String,
        /// The sizes that there are.
        has: String,
    },
    /// Contiguous groups are of another size.
    #[error("its contiguous groups of pages ({format}) are of {}", format_bytes(*bytes))]
    Groups {
        /// The format of the tables.
        format: String,
        /// Bytes of a group.
        bytes: u64,
    },
    /// There are no contiguous groups.
    #[error("{format} on {architecture} has no contiguous pages")]
    NoGroups {
        /// The format of the tables.
        format: String,
        /// The architecture.
        architecture: &'static str,
    },
    /// A model is told everything.
    #[error("a model has no settings that could be left alone: name a page size")]
    Settings,
    /// There is no leaf of the size of THP.
    #[error("{0} has no PMD leaf")]
    PmdLeaf(String),
    /// Folios of that size cannot be.
    #[error("folios mapped by PTEs are of {} to {} with {format}", format_bytes(*least_bytes), format_bytes(*most_bytes))]
    Folios {
        /// Bytes of the smallest.
        least_bytes: u64,
        /// Bytes of the largest.
        most_bytes: u64,
        /// The format of the tables.
        format: String,
    },
    /// Pools are of other sizes.
    #[error("hugetlb pages are of {has} with {format}")]
    Hugetlb {
        /// The sizes that there are.
        has: String,
        /// The format of the tables.
        format: String,
    },
    /// The kernel's own mapping is not in a program's trace.
    #[error("a trace of a program has no accesses of the kernel's")]
    KernelAccesses,
}
