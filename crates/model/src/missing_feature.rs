//! The features that a policy, or kernel settings, need and a machine lacks.

use ::policy::size::{PageSize, format_bytes};
use thiserror::Error;

/// The missing feature, and what the machine has instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MissingFeature {
    /// A further folio size is larger than the policy's; a kernel uses the largest enabled size first.
    #[error(
        "further folios of {} would be taken before those of {}: name the policy of the largest size",
        format_bytes(*further_bytes),
        format_bytes(*policy_bytes)
    )]
    LargerFolios {
        /// Size of the further folio in bytes.
        further_bytes: u64,
        /// Size of the policy's folio in bytes.
        policy_bytes: u64,
    },
    /// The folio is smaller than four base pages.
    #[error("it has no folios of {}: the smallest are of {} with {format}", format_bytes(*bytes), format_bytes(*least_bytes))]
    SmallerFolios {
        /// Size of the folio in bytes.
        bytes: u64,
        /// Size of the smallest folio in bytes.
        least_bytes: u64,
        /// The format of the page tables.
        format: String,
    },
    /// `max_ptes_none` is too large: one page of a PMD must be present (`max_ptes_none_store`, mm/khugepaged.c).
    #[error("max_ptes_none can be 0 to {most} with {format}, found {found}: one page of a PMD must be there")]
    MaxPtesNone {
        /// The maximum value.
        most: u64,
        /// The format of the page tables.
        format: String,
        /// The requested value.
        found: u64,
    },
    /// No format of the machine has base pages of this size.
    #[error("it has no base pages of {size}, only of {has}")]
    BasePages {
        /// The requested size.
        size: PageSize,
        /// The sizes that the machine has.
        has: String,
    },
    /// The format has no leaf of this size.
    #[error("leaves of {format} are of {has}")]
    Leaves {
        /// The format of the page tables.
        format: String,
        /// The leaf sizes that the format has.
        has: String,
    },
    #[error("its contiguous groups of pages ({format}) are of {}", format_bytes(*bytes))]
    Groups {
        /// The format of the page tables.
        format: String,
        /// Size of a group in bytes.
        bytes: u64,
    },
    #[error("{format} on {architecture} has no contiguous pages")]
    NoGroups {
        /// The format of the page tables.
        format: String,
        /// The name of the architecture.
        architecture: &'static str,
    },
    /// The policy leaves settings as they are; a model needs all of them.
    #[error("a model has no settings that could be left alone: name a page size")]
    Settings,
    /// The format has no leaf of the size of THP.
    #[error("{0} has no PMD leaf")]
    PmdLeaf(String),
    /// The format cannot have folios of this size.
    #[error("folios mapped by PTEs are of {} to {} with {format}", format_bytes(*least_bytes), format_bytes(*most_bytes))]
    Folios {
        /// Size of the smallest folio in bytes.
        least_bytes: u64,
        /// Size of the largest folio in bytes.
        most_bytes: u64,
        /// The format of the page tables.
        format: String,
    },
    /// The format has no hugetlb pages of this size.
    #[error("hugetlb pages are of {has} with {format}")]
    Hugetlb {
        /// The sizes that the format has.
        has: String,
        /// The format of the page tables.
        format: String,
    },
    /// The policy concerns the kernel's own mapping, which a program's trace does not contain.
    #[error("a trace of a program has no accesses of the kernel's")]
    KernelAccesses,
}
