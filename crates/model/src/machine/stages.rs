//! What a page-table format can be used for: the tables of programs, the second stage of virtual machines, and leaves of a
//! given size.

use paging::format::named::Named;
use paging::format::riscv::Stage;

use super::shape::Architecture;

/// The architecture, if programs can have tables of this format.
pub(super) fn stage1_architecture(format: &Named) -> Option<Architecture> {
    match format {
        Named::X86_64(_) => Some(Architecture::X86_64),
        Named::Arm64Stage1(_) => Some(Architecture::Arm64),
        Named::RiscV(format) if format.stage() == Stage::Guest => None,
        Named::RiscV(_) | Named::Software64K(_) => Some(Architecture::RiscV64),
        Named::Arm64Stage2(_) => None,
    }
}

/// The architecture, if virtual machines can have a second stage of this format. Nested tables of x86-64 have the format of a
/// program's tables.
pub(super) fn stage2_architecture(format: &Named) -> Option<Architecture> {
    match format {
        Named::X86_64(_) => Some(Architecture::X86_64),
        Named::Arm64Stage2(_) => Some(Architecture::Arm64),
        Named::RiscV(format) if format.stage() == Stage::Guest => Some(Architecture::RiscV64),
        Named::RiscV(_) | Named::Software64K(_) | Named::Arm64Stage1(_) => None,
    }
}

pub(super) fn has_leaf(format: &impl paging::Format, bytes: u64) -> bool {
    let geometry = format.geometry();
    (0..geometry.levels()).any(|level| format.has_leaf(level) && geometry.span(level) == bytes)
}
