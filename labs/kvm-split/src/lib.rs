//! The rig of the study `stage2-split`: what does eager splitting of KVM's stage 2 tables cost, and what does a walk save that skips
//! levels or children?
//!
//! - `pagelab workload kvm-dirty-log` ([`guest`]): dirty logging of a virtual machine on this host's KVM, phase by phase.
//! - `pagelab table split` ([`split`]): KVM's eager split of arm64 stage 2 on tables of `paging`, and its variants.
//! - the count `stage2-split` of study files: the events of such a split, which a study weighs with costs.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod counts;
mod dirty_log;
pub mod guest;
pub mod split;
mod table_split;

use verbs::lab::{EventCounts, Lab, LabCommand, WorkloadError};

use guest::KvmError;

/// This lab.
pub fn lab() -> Lab {
    Lab {
        workloads: vec![LabCommand::new(
            "kvm-dirty-log",
            "Log the writes of a virtual machine: the cost of each phase, and the leaves that map it (needs /dev/kvm)",
            dirty_log::run,
        )],
        table: vec![LabCommand::new(
            "split",
            "Measure KVM's eager split of arm64 stage 2, and what its variants save",
            table_split::run,
        )],
        counts: vec![EventCounts {
            what: counts::NAME,
            order: || counts::order().collect(),
            unknown: counts::unknown,
            cases: |counted, granule| counts::cases(counted, granule).map_err(|error| error.to_string()),
        }],
        ..Lab::default()
    }
}

impl From<KvmError> for WorkloadError {
    fn from(error: KvmError) -> WorkloadError {
        WorkloadError::OfLab { exit_code: if error.is_unsupported() { 3 } else { 1 }, error: Box::new(error) }
    }
}
