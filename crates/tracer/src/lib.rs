//! Running unmodified programs under a policy: a seccomp filter stops the few calls that matter, and the
//! tracer changes them there. Between such calls the program runs at its own speed.
//!
//! It starts and ends processes too: `child`, `subreaper`, `environment`, `user`, `signals` and `terminal` know nothing of tracing.
//!
//! `registers`, `filter`, `own_filter`, `pace` and `rewriting` are data and pure functions; `leaving` knows which memory
//! a call gives back, for the `witness`;
//! `ptrace`, `paused` and `launch` talk to the kernel, `permission` asks whether it lets us, and `refusal` says what its refusals mean;
//! `event_loop` follows a tree, whose tasks `tasks` and `kin` know, to what has `ended`, `afterlife` included;
//! `calls` has done what `policy` says, `hugetlb` under its policies, by the task that is `stopped`, whose memory has `content`, with
//! what `call_context` holds;
//! `thp_disable` says which calls the filter answers by itself; `sham` serves them without doing
//! anything, `bare` runs a program that has no tracer, to measure it, `untraced` one that needs none, and `supervised` one that
//! records itself.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod afterlife;
mod bare;
mod call_context;
mod calls;
pub mod child;
mod content;
mod ended;
pub mod environment;
mod event_loop;
mod filter;
mod hugetlb;
mod kin;
mod launch;
mod leaving;
mod own_filter;
mod pace;
mod paused;
mod permission;
mod ptrace;
mod refusal;
mod registers;
mod rewriting;
mod sham;
pub mod signals;
mod stopped;
pub mod subreaper;
mod supervised;
mod tasks;
pub mod terminal;
mod thp_disable;
mod untraced;
pub mod user;
mod witness;

pub use afterlife::Leftovers;
pub use bare::run_bare;
pub use ended::{Ended, Looks, Usage};
pub use event_loop::run;
pub use launch::{Launch, LaunchError, resolve};
pub use leaving::Extent;
pub use pace::Pace;
pub use permission::try_tracing;
pub use refusal::Refusal;
pub use rewriting::Rewriting;
pub use supervised::Supervised;
pub use untraced::run_untraced;
pub use witness::Witness;

pub use crate::user::User;
