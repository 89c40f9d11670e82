//! [`Context`]: what the search for causes knows beyond a region.

use super::process::Process;
use super::supply::Supply;
use crate::file_folios::Version;
use crate::remedy::Runtime;
use crate::size::PageSize;

/// Facts about the process and the kernel from which causes are derived, in addition to the pages of the region.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The inspected process.
    pub process: &'a Process,
    /// The kernel's settings and counters.
    pub supply: &'a Supply,
    /// The base page size.
    pub base: PageSize,
    /// The size of PMD leaves.
    pub pmd: Option<PageSize>,
    /// The runtimes of the process, which have switches of their own.
    pub runtimes: &'a [Runtime],
    /// Whether folios behind base-page PTEs are visible.
    pub sees_folios: bool,
    /// The version of its kernel; `None` where it is not known.
    pub kernel: Option<Version>,
}
