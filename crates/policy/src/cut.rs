//! [`Cut`]: a VMA boundary or a guard page inside one allocation.

use serde::{Deserialize, Serialize};

/// One cut of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The first address of the cut.
    pub start: u64,
    /// The address after the cut; equal to `start` where two mappings meet.
    pub end: u64,
    /// The kind of the cut.
    pub by: CutBy,
}

/// The kinds of cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutBy {
    /// A guard page: a short range without access (PROT_NONE).
    Guard,
    /// A guard page inside a mapping (MADV_GUARD_INSTALL, Linux 6.13).
    LightGuard,
    /// Another protection (mprotect).
    Protection,
    /// Other VMA flags, because of other advice (madvise), mlock, userfaultfd or a NUMA policy.
    Flags,
    /// Another name (PR_SET_VMA_ANON_NAME).
    Name,
    /// No visible difference. The kernel keeps the mappings apart because both were written to before they met (their `anon_vma`
    /// differ), or because of a NUMA policy; or the flags could not be read.
    Unseen,
}

impl CutBy {
    /// One short clause for a table.
    pub fn describe(self) -> &'static str {
        match self {
            CutBy::Guard => "a guard page",
            CutBy::LightGuard => "a guard page (MADV_GUARD_INSTALL)",
            CutBy::Protection => "another protection",
            CutBy::Flags => "other advice or flags",
            CutBy::Name => "another name",
            CutBy::Unseen => "nothing visible",
        }
    }

    /// The identifier in JSON documents.
    pub fn label(self) -> &'static str {
        match self {
            CutBy::Guard => "guard",
            CutBy::LightGuard => "light_guard",
            CutBy::Protection => "protection",
            CutBy::Flags => "flags",
            CutBy::Name => "name",
            CutBy::Unseen => "unseen",
        }
    }
}
