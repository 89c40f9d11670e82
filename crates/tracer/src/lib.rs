//! Runs unmodified programs under a policy: a seccomp filter stops the few calls that matter, and the tracer changes
//! them. Between such calls the program runs at full speed.
//!
//! The crate also starts and ends processes: `child`, `subreaper`, `environment`, `user`, `signals` and `terminal` do
//! not depend on tracing.
//!
//! * Data and pure functions: `registers`, `filter`, `own_filter`, `pace` and `rewriting`.
//! * Inspection: `freed_ranges` finds the memory that a call is about to free, with `advised_ranges` (process_madvise) and
//!   `segment` (shmat). A `witness` inspects it. `observed_mappings` are the calls that it sees after they are made.
//! * Kernel interface: `ptrace`, `paused` and `launch`; `permission` checks whether tracing is allowed, and `refusal`
//!   explains a failed exec.
//! * Tree: `event_loop` follows it, `tasks` and `parentage` describe its tasks, `after_root` tracks processes that outlive the
//!   root, and `ended` is the result.
//! * Calls: `calls` carries out the decisions of `policy`, and `hugetlb` those for hugetlb policies. Both use the
//!   `stopped` task, its memory (`content`) and the `call_context`.
//! * `ticks` ends the wait for stops at intervals, and an `interrupted` task can make calls at any instruction. With both, the
//!   tracer splits leaves that faults create without a call.
//! * `refused_requests` records the program's own requests for hugetlb pages that the kernel refuses.
//! * `thp_disable` defines which calls the filter itself answers.
//! * `autogroup` sets the scheduling weight of a program's session.
//! * Other ways to run a program: `sham` serves calls without changing anything, `bare` measures a program without a
//!   tracer, `untraced` runs one that needs no tracer, and `supervised` runs one that records itself.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod advised_ranges;
mod after_root;
mod autogroup;
mod bare;
mod call_context;
mod calls;
pub mod child;
mod content;
mod ended;
pub mod environment;
mod event_loop;
mod filter;
mod freed_ranges;
mod group_limits;
mod hugetlb;
mod hugetlb_calls;
mod interrupted;
mod launch;
mod observed_mappings;
mod own_filter;
mod pace;
mod parentage;
mod paused;
mod permission;
mod ptrace;
mod refusal;
mod refused_requests;
mod registers;
mod rewriting;
mod segment;
mod sham;
pub mod signals;
mod stopped;
pub mod subreaper;
mod supervised;
mod tasks;
pub mod terminal;
mod thp_disable;
mod ticks;
mod untraced;
pub mod user;
mod witness;

pub use after_root::Leftovers;
pub use autogroup::{SessionWeight, begin_session, raise_thread_priority, try_top_weight};
pub use bare::run_bare;
pub use ended::{Ended, InspectionTimes, Usage};
pub use event_loop::run;
pub use freed_ranges::InspectedRemovals;
pub use launch::{Launch, LaunchError, resolve};
pub use pace::Pace;
pub use parentage::process_of;
pub use permission::try_tracing;
pub use refusal::Refusal;
pub use rewriting::Rewriting;
pub use supervised::Supervised;
pub use untraced::run_untraced;
pub use witness::{Caller, MappingCall, ObservedMappings, WindowRange, Witness};

pub use crate::user::User;
