//! Whether a machine can give what a policy asks for ([`Admission`]).

use serde::{Deserialize, Serialize};

/// Whether an arm can be measured on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "admission")]
pub enum Admission {
    /// The arm's policy can be applied; `mechanism` says how.
    Admitted {
        /// For example `madvise(MADV_HUGEPAGE) injected after mmap and brk`.
        mechanism: String,
    },
    /// The arm's policy cannot be applied.
    Unsupported(Unsupported),
}

/// Why a policy cannot be applied on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}; {remedy}")]
pub struct Unsupported {
    /// What is missing, as a clause.
    pub reason: String,
    /// How to get what is missing, as exactly as possible: a command, a kernel version, a privilege.
    pub remedy: String,
}
