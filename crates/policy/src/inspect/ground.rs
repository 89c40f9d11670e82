//! What causes are told by, beside the pages of a region.

use super::process::Process;
use super::supply::Supply;
use crate::size::PageSize;

/// What causes are told by, beside the pages of the region.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// The process.
    pub process: &'a Process,
    /// The kernel's settings and counters.
    pub supply: &'a Supply,
    /// The base page.
    pub base: PageSize,
    /// The size of PMD leaves.
    pub pmd: Option<PageSize>,
    /// Whether folios behind base-page entries are seen.
    pub sees_folios: bool,
}
