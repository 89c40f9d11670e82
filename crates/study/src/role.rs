//! The purpose of an arm in a design.

use serde::{Deserialize, Serialize};

use policy::Policy;

/// The purpose of an arm in a design.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "role")]
pub enum Role {
    /// A policy that is compared.
    #[default]
    Policy,
    /// The ground policy, without filter, tracer and census.
    Bare,
    /// The ground policy, with the stops of another arm.
    Sham {
        /// Index of that arm.
        of: usize,
        /// The policy that determines which calls stop.
        stops: Policy,
    },
}
