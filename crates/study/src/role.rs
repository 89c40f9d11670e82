//! The purpose of an arm in a design.

use serde::{Deserialize, Serialize};

use policy::Policy;

use crate::fraction::Fraction;
use crate::window_order::WindowOrder;

/// The purpose of an arm in a design.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "role")]
pub enum Role {
    /// A policy that is compared.
    #[default]
    Policy,
    /// The memory of another arm, mapped by base-page PTEs: the physical frames of that arm without its leaves.
    Frames {
        /// Index of that arm.
        of: usize,
    },
    /// The policy of another arm in a share of the memory, and base pages in the rest.
    Share {
        /// Index of that arm.
        of: usize,
        /// The requested share.
        share: Fraction,
        /// Which windows become large first.
        order: WindowOrder,
    },
    /// The reference policy ([`crate::control`]), without filter, tracer and census.
    Bare,
    /// The reference policy, with the stops of another arm.
    Sham {
        /// Index of that arm.
        of: usize,
        /// The policy that determines which calls stop.
        stops: Policy,
    },
}
