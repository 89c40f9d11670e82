//! [`Matrix`]: for one kernel, which page each kind of memory got in each way, with one [`Cell`] for each combination.

use serde::{Deserialize, Serialize};

use super::{Memory, Way};
use crate::cause::Cause;
use crate::size::PageSize;

/// A setting and the value that would change a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The file in /sys or /proc.
    pub path: String,
    /// What to write to it.
    pub value: String,
    /// Whether a trial with this value was seen to give the size.
    pub tried: bool,
}

/// A system call that failed, or a signal that ended the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The call, as text.
    pub call: String,
    /// The error number that it returned; absent where a signal ended the program.
    pub errno: Option<i32>,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// All of the memory has the size: a leaf of the size or larger; or, where no leaf has the size, a whole, aligned folio.
    Large {
        /// The smallest leaf.
        leaf: PageSize,
        /// The smallest folio; absent where folios are not visible.
        folio: Option<PageSize>,
    },
    /// All of the memory is in folios of the size or larger, but smaller leaves map them, or they are mapped in part or out of place.
    FolioOnly {
        /// The smallest leaf.
        leaf: PageSize,
        /// The smallest folio.
        folio: PageSize,
    },
    /// The kernel gave smaller pages to at least a part of the memory.
    Refused {
        /// Why, as far as it is visible.
        cause: Cause,
        /// The call that failed; absent where every call succeeded.
        refusal: Option<Refusal>,
        /// The setting that would change it; absent where none is known.
        setting: Option<Setting>,
        /// The share of the memory that has the size nevertheless.
        large_ratio: f64,
    },
    /// The kernel has no such combination, or this run may not try it.
    NotAvailable {
        /// What is missing.
        reason: String,
    },
    /// The combination was tried, and the outcome is not known.
    Unknown {
        /// Why it is not known.
        reason: String,
    },
}

/// A combination that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// What backs the memory.
    #[serde(flatten)]
    pub memory: Memory,
    /// How its pages came about.
    pub way: Way,
    /// The size that was wanted.
    #[serde(rename = "size_bytes")]
    pub size: PageSize,
    /// Whether the outcome depends on free memory: an allocation of the size failed during the trial, and in its repetition.
    pub depends_on_free_memory: bool,
    /// What was seen.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Which settings were in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingsMode {
    /// The wanted size alone is enabled, for advised memory; its allocations may compact; khugepaged's limits are lifted.
    Open,
    /// The settings that the host already had.
    Found,
}

/// Whether the hardware can use a run of contiguous entries as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contiguous {
    /// The architecture has no contiguous bit and no NAPOT encoding.
    NotInThisArchitecture,
    /// The architecture has one; whether an entry has it is visible only in the page tables.
    NotSeen,
}

/// The matrix of one kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    /// Release of the kernel, as in uname(2).
    pub kernel: String,
    /// Architecture, as in uname(2).
    pub architecture: String,
    /// The base page.
    #[serde(rename = "base_bytes")]
    pub base: PageSize,
    /// The leaf of a PMD; absent where the kernel has no THP.
    #[serde(rename = "pmd_bytes")]
    pub pmd: Option<PageSize>,
    /// Which settings were in force.
    pub settings: SettingsMode,
    /// Whether folios are visible; without root only leaves are.
    pub sees_folios: bool,
    /// Whether the hardware can use contiguous entries as one.
    pub contiguous: Contiguous,
    /// The cells, in the order of sizes, rows and ways.
    pub cells: Vec<Cell>,
}

impl Matrix {
    /// The sizes of the cells, in ascending order.
    pub fn sizes(&self) -> Vec<PageSize> {
        let mut sizes: Vec<PageSize> = self.cells.iter().map(|cell| cell.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The rows of a size, in the order of the cells.
    pub fn rows(&self, size: PageSize) -> Vec<&Memory> {
        let mut rows: Vec<&Memory> = Vec::new();
        for cell in self.cells.iter().filter(|cell| cell.size == size) {
            if !rows.contains(&&cell.memory) {
                rows.push(&cell.memory);
            }
        }
        rows
    }

    /// The cell of a combination.
    pub fn cell(&self, memory: &Memory, way: Way, size: PageSize) -> Option<&Cell> {
        self.cells.iter().find(|cell| (&cell.memory, cell.way, cell.size) == (memory, way, size))
    }
}
