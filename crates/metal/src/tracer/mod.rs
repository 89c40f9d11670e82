//! Running unmodified programs under a policy: a seccomp filter stops the few calls that matter, and the
//! tracer changes them there. Between such calls the program runs at its own speed.
//!
//! `registers`, `filter`, `own_filter`, `guards`, `ranges`, `huge_map`, `jump` and `rewriting` are data and pure
//! functions; `ptrace`, `paused` and `launch` talk to the kernel, `bare` runs what needs no tracer, and `obstacle` says what its refusals mean;
//! `tasks` and `tree` know who is who; `calls`, `heap` and `hugetlb` serve the calls, with what `scene` holds;
//! `advisor` saves stops of a call, and `sites` the last of them.

mod advisor;
mod bare;
mod calls;
mod filter;
mod guards;
mod heap;
mod huge_map;
mod hugetlb;
mod jump;
mod launch;
mod obstacle;
mod own_filter;
mod paused;
mod ptrace;
mod ranges;
mod registers;
mod rewriting;
mod scene;
mod sites;
mod tasks;
mod tree;

pub use bare::run_bare;
pub use launch::{Launch, LaunchError, resolve};
pub use obstacle::Obstacle;
pub(crate) use ptrace::outer_tracer;
pub use rewriting::Rewriting;
pub use tree::{Ended, Leftovers, Looks, Usage, Witness, run};

pub use crate::user::User;
