//! Splitting leaves of the running host's direct map ([`demote`]), and the mark that tells later results of it. What
//! there is to split, [`host::direct_map`] reads.

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
