//! [`Way`]: how the pages of memory come about.

use serde::{Deserialize, Serialize};

/// How the pages of a cell come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Every base page is written once, in address order. A file's pages are read.
    Touch,
    /// Every base page is read, then every base page is written.
    Zeros,
    /// The memory is written, the process forks, and the child writes every base page again. The child's memory is examined.
    Fork,
    /// MADV_POPULATE_WRITE.
    Populate,
    /// The memory is filled with base pages, then MADV_COLLAPSE.
    Collapse,
    /// The memory is filled with base pages, khugepaged scans it, and every base page is read.
    ///
    /// Without that read, shared memory would not be mapped: khugepaged only changes its pages in the page cache and drops the page
    /// tables that map them (`retract_page_tables`, mm/khugepaged.c).
    Khugepaged,
    /// The memory is written, MADV_PAGEOUT swaps it out, and every base page is read again.
    SwapIn,
    /// The memory is written and then moved by mremap to an address with the same alignment.
    Mremap,
    /// The memory is written, mprotect makes its first base page read-only, and every base page is read. The slot that
    /// contains the first base page is examined.
    Mprotect,
}

impl Way {
    /// All ways, in the order of the columns.
    pub const ALL: [Way; 9] = [
        Way::Touch,
        Way::Zeros,
        Way::Fork,
        Way::Populate,
        Way::Collapse,
        Way::Khugepaged,
        Way::SwapIn,
        Way::Mremap,
        Way::Mprotect,
    ];

    /// The name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Way::Touch => "touch",
            Way::Zeros => "zeros",
            Way::Fork => "fork",
            Way::Populate => "populate",
            Way::Collapse => "collapse",
            Way::Khugepaged => "khugepaged",
            Way::SwapIn => "swap-in",
            Way::Mremap => "mremap",
            Way::Mprotect => "mprotect",
        }
    }

    /// A heading of at most six characters.
    pub fn heading(self) -> &'static str {
        match self {
            Way::Populate => "popul",
            Way::Collapse => "coll",
            Way::Khugepaged => "khuge",
            Way::SwapIn => "swap",
            Way::Mprotect => "mprot",
            other => other.word(),
        }
    }

    /// What the program does, in a few words.
    pub fn describe(self) -> &'static str {
        match self {
            Way::Touch => "each base page is written (of a file: read)",
            Way::Zeros => "each base page is read, then each is written",
            Way::Fork => "written, then written again by a forked child, which is examined",
            Way::Populate => "MADV_POPULATE_WRITE",
            Way::Collapse => "filled with base pages, then MADV_COLLAPSE",
            Way::Khugepaged => "filled with base pages, scanned by khugepaged, read",
            Way::SwapIn => "written, swapped out by MADV_PAGEOUT, read again",
            Way::Mremap => "written, then moved by mremap to an address of the same alignment",
            Way::Mprotect => "written, the first base page made read-only by mprotect, read; its slot is examined",
        }
    }

    /// The way with that name on the command line or in a heading.
    pub fn of_word(word: &str) -> Option<Way> {
        Way::ALL.into_iter().find(|way| way.word() == word || way.heading() == word)
    }
}
