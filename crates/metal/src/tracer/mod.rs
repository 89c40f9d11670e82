//! Running unmodified programs under a policy: a seccomp filter stops the few calls that matter, and the
//! tracer changes them there. Between such calls the program runs at its own speed.
//!
//! `registers`, `filter`, `own_filter`, `huge_map` and `rewriting` are data and pure functions; `leaving` knows
//! which memory a call gives back;
//! `ptrace`, `paused` and `launch` talk to the kernel, and `obstacle` says what its refusals mean;
//! `tasks` and `tree` know who is who; `calls` carries out what `policy::decide` says, `hugetlb` serves the calls of its
//! policies, with what `scene` holds; `thp_disable` says which calls the filter answers by itself; `sham` serves them without doing
//! anything, `bare` runs a program that has no tracer, to measure it, and `untraced` one that needs none.

mod afterlife;
mod bare;
mod calls;
mod filter;
mod huge_map;
mod hugetlb;
mod launch;
mod leaving;
mod obstacle;
mod own_filter;
mod paused;
mod ptrace;
mod registers;
mod rewriting;
mod scene;
mod sham;
mod tasks;
mod thp_disable;
mod tree;
mod untraced;

pub use bare::run_bare;
pub use launch::{Launch, LaunchError, resolve};
pub use leaving::Extent;
pub use obstacle::Obstacle;
pub(crate) use ptrace::outer_tracer;
pub use rewriting::Rewriting;
pub use sham::Pace;
pub use tree::{Ended, Leftovers, Looks, Usage, Witness, run};
pub use untraced::run_untraced;

pub use crate::user::User;
