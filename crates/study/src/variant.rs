//! Variants of the measured program: each of them under each policy is an arm.

use serde::{Deserialize, Serialize};

use crate::fragmented::Fragmented;

/// A build, arguments, an environment or an age of memory; variants of a program are measured interleaved, trial by trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// Unique among the variants of its comparison.
    pub name: String,
    /// The program, or the server if there is one, with its arguments.
    pub command: Vec<String>,
    /// Variables of its environment besides those that all variants have, `NAME=VALUE`.
    pub variables: Vec<String>,
    /// SHA-256 of the command's executable file, in hexadecimal, which identifies the build. Absent if it cannot be read.
    pub sha256: Option<String>,
    /// How free memory is fragmented during its trials; absent: as it is for all.
    pub fragmented: Option<Fragmented>,
}
