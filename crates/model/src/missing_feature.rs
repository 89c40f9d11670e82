//! Why a machine does not support a policy or kernel settings.

use ::policy::size::{PageSize, format_bytes};
use thiserror::Error;

/// What the machine lacks, and what it has instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MissingFeature {
    /// A fallback folio is larger than the policy's folio. A kernel tries the largest enabled size first.
    #[error(
        "a kernel tries folios of {} before those of {}: name the policy of the largest size",
        format_bytes(*further_bytes),
        format_bytes(*policy_bytes)
    )]
    LargerFolios {
        /// Size of the fallback folio in bytes.
        further_bytes: u64,
        /// Size of the policy's folio in bytes.
        policy_bytes: u64,
    },
    /// The folio is smaller than four base pages.
    #[error("it has no folios of {}: with {format} the smallest are of {}", format_bytes(*bytes), format_bytes(*min_bytes))]
    SmallerFolios {
        /// Size of the folio in bytes.
        bytes: u64,
        /// Size of the smallest folio in bytes.
        min_bytes: u64,
        /// The format of the page tables.
        format: String,
    },
    /// `max_ptes_none` is too large: one page of a PMD must be present (`max_ptes_none_store`, mm/khugepaged.c).
    #[error("max_ptes_none can be 0 to {max} with {format}, found {found}: one page of a PMD must be present")]
    MaxPtesNone {
        /// The maximum value.
        max: u64,
        /// The format of the page tables.
        format: String,
        /// The requested value.
        found: u64,
    },
    /// `+pte-mapped` is a control for measurements: it shows the effect of frame placement, which the model ignores.
    #[error("+pte-mapped separates TLB reach from the placement of frames, and the model ignores placement")]
    PteMapped,
    /// The policy makes only a part of the memory large.
    #[error("windows are measured, not simulated: a trace does not have the order in which a run advises memory")]
    Windows,
    /// No format of the machine has base pages of this size.
    #[error("it has no base pages of {size}, only of {has}")]
    BasePages {
        /// The requested size.
        size: PageSize,
        /// The sizes that the machine has.
        has: String,
    },
    /// The format has no leaf of this size.
    #[error("{format} has leaves of {has}")]
    Leaves {
        /// The format of the page tables.
        format: String,
        /// The leaf sizes that the format has.
        has: String,
    },
    /// The format's contiguous groups of pages have another size.
    #[error("contiguous groups of pages are of {} with {format}", format_bytes(*bytes))]
    GroupSize {
        /// The format of the page tables.
        format: String,
        /// Size of a group in bytes.
        bytes: u64,
    },
    /// The format has no contiguous groups of pages.
    #[error("page tables of {format} have no contiguous pages")]
    NoGroups {
        /// The format of the page tables.
        format: String,
    },
    /// The policy `default` keeps the current settings; a model machine has none.
    #[error(
        "a model machine has no current setting of THP to keep: name default+always, default+madvise or default+never, without modifiers"
    )]
    NoSettings,
    /// The format has no PMD leaf, which THP needs.
    #[error("{0} has no PMD leaf")]
    NoPmdLeaf(String),
    /// The format cannot have folios of this size.
    #[error("folios mapped by PTEs are of {} to {} with {format}", format_bytes(*min_bytes), format_bytes(*max_bytes))]
    Folios {
        /// Size of the smallest folio in bytes.
        min_bytes: u64,
        /// Size of the largest folio in bytes.
        max_bytes: u64,
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
    /// The policy concerns the kernel's direct map, and a program's trace has no accesses by the kernel.
    #[error("the trace of a program has no accesses by the kernel")]
    KernelAccesses,
}
