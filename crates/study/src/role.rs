//! What an arm is in a design for.

use serde::{Deserialize, Serialize};

use policy::Policy;

/// What an arm is in a design for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "role")]
pub enum Role {
    /// It is a policy that is compared.
    #[default]
    Policy,
    /// The ground, without filter, tracer and census.
    Bare,
    /// The ground, with the stops of another arm.
    Sham {
        /// Index of that arm.
        of: usize,
        /// Its policy: it says which calls stop.
        stops: Policy,
    },
}
