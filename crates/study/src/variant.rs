//! Variants of the measured program: each variant under each policy is an arm.

use serde::{Deserialize, Serialize};

use crate::fragmented::Fragmented;

/// A build, arguments, an environment or a degree of memory fragmentation; variants of a program are measured interleaved, trial by
/// trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// Unique among the variants of its comparison.
    pub name: String,
    /// The program, or the server if there is one, with its arguments.
    pub command: Vec<String>,
    /// Environment variables in addition to those of all variants, `NAME=VALUE`.
    pub variables: Vec<String>,
    /// SHA-256 of the command's executable file, in hexadecimal, which identifies the build. Absent if it cannot be read.
    pub sha256: Option<String>,
    /// The fragmentation of free memory during the variant's trials; absent: the fragmentation of the design.
    pub fragmented: Option<Fragmented>,
}
