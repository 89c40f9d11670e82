//! The rig of the study `tcg-regions`: do guard pages at the end of the regions of a code buffer cost huge pages, and from which size
//! of region does it stop mattering?
//!
//! - `pagelab workload tcg-boot`: QEMU boots an arm64 Linux by translating it; the leaves of its code buffer.
//! - `pagelab workload jit-arena` ([`jit`]): the same without QEMU: code is generated into an arena of regions, and run.
//! - `pagelab list tcg-regions` ([`regions`]): how QEMU divides its buffer, and how many huge pages the guards leave.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod jit;
mod jit_arena;
mod listing;
pub mod regions;
mod tcg_boot;
#[cfg(test)]
mod tests;

use verbs::lab::{Lab, LabCommand, WorkloadError};

use jit::JitError;
use tcg_boot::BootError;

/// This lab.
pub fn lab() -> Lab {
    Lab {
        workloads: vec![
            LabCommand::new(
                "jit-arena",
                "Generate machine code into regions with guard pages, and run it: what translators and JITs do",
                jit_arena::run,
            ),
            LabCommand::new(
                "tcg-boot",
                "Boot and power off an arm64 Linux in QEMU (TCG): how guard pages in the code buffer cost huge pages",
                tcg_boot::run,
            ),
        ],
        list: vec![LabCommand::new(
            "tcg-regions",
            "Regions of QEMU's TCG code buffer, and how many huge pages their guards leave",
            listing::list,
        )],
        ..Lab::default()
    }
}

impl From<JitError> for WorkloadError {
    fn from(error: JitError) -> WorkloadError {
        WorkloadError::OfLab { exit_code: 1, error: Box::new(error) }
    }
}

impl From<BootError> for WorkloadError {
    fn from(error: BootError) -> WorkloadError {
        WorkloadError::OfLab { exit_code: error.exit_code(), error: Box::new(error) }
    }
}
