//! What cuts one allocation into several mappings.

use serde::{Deserialize, Serialize};

/// A place where a region is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The address where the cut begins.
    pub start: u64,
    /// The address after it; the same as `start` where two mappings meet.
    pub end: u64,
    /// What cuts.
    pub by: CutBy,
}

/// What cuts a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutBy {
    /// A guard page: a short stretch without access (PROT_NONE).
    Guard,
    /// A guard page inside a mapping (MADV_GUARD_INSTALL, Linux 6.13).
    LightGuard,
    /// Another protection (mprotect).
    Protection,
    /// Other advice (madvise), or mlock, userfaultfd, a policy of memory nodes: other flags.
    Flags,
    /// Another name (PR_SET_VMA_ANON_NAME).
    Name,
    /// Nothing that is visible: the kernel keeps the mappings apart because both were written to before they met (their
    /// `anon_vma` differ), or for a policy of memory nodes; or the flags could not be read.
    Unseen,
}

impl CutBy {
    /// One short clause.
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

    /// The name in documents.
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
