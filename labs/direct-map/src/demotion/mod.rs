//! Splits leaves of the running host's direct map ([`demote`]), and writes the marker by which later results mention it.
//! [`host::direct_map`] reads what there is to split.

mod available;
mod demote;
mod frames;
mod goal;
mod mark;
mod pace;
mod plug;
mod reserve;
mod secret;
mod shortage;
mod splitting;

pub use demote::{Demotion, DemotionError, demote};
pub use goal::{Goal, Progress, Stopped};
pub use mark::{MarkError, mark};
