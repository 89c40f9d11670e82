//! What it would cost to serve calls by seccomp user notification, with the task seized for an added call only, beside
//! the tracer: docs/evidence/tracer-cost.md, "What notification would cost".
//!
//! ```text
//! cargo bench -p tracer --bench notify -- [--full] [--rounds N] [--one-cpu]
//! ```
//! `tests/programs/repeats.c` makes one kind of call again and again: a heap grows by pages (musl), 2M are mapped and unmapped,
//! it forks, it executes `true`, it sends itself signals. Each round has one run in each of these ways, in random order:
//!
//! * `bare`, without a filter; `filter` with one that stops nothing;
//! * `tracer`: `tracer::run` under the policy `thp`, without a witness;
//! * `stop`: PTRACE_O_TRACESECCOMP and the tracer's requests, without its books;
//! * `notify`: SECCOMP_RET_USER_NOTIF, `killable` with SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, `sync` with
//!   SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP too.
//!
//! A call is `passed` on as it is; or `advised`: a madvise is added, under `notify` between PTRACE_SEIZE and PTRACE_DETACH; or the
//! heap is `kept`: it grows in steps of 2M, each advised, and what lies within one is answered without a call; or the new image
//! of an execve is `looked` at: seized until it is there, and its mappings read as the tracer does.
//! For forks it is exit_group that is watched, where a witness would look; for signals nothing has to be.
//!
//! Printed is what a run took more than the bare one of its round: wall time and CPU time, of program and supervisor together, as
//! ratios (Hodges-Lehmann, with 95 % intervals) and for one call (medians), and context switches for one call. The CPU time has the start
//! of the program and of its supervisor in it. Then some ways are set beside each other alike, and the steps of one advised call are timed. `--one-cpu` keeps everything on the first processor. Needs Linux 6.11 on x86-64.

#[cfg(target_arch = "x86_64")]
#[path = "../../tests/listener/mod.rs"]
#[expect(dead_code, reason = "the tests of tests/notify.rs use the rest")]
mod listener;
#[cfg(target_arch = "x86_64")]
mod probe;
#[cfg(target_arch = "x86_64")]
mod server;

#[cfg(target_arch = "x86_64")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    probe::main()
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("the probe knows the registers of x86-64 only");
}
