//! Measures the cost of serving calls by seccomp user notification, where a task is seized only for an added
//! call, and compares it with the tracer. Results: docs/evidence/tracer-cost.md, "What notification would
//! cost".
//!
//! ```text
//! cargo bench -p tracer --bench notify -- [--full] [--rounds N] [--one-cpu]
//! ```
//! `tests/programs/repeats.c` repeats one kind of call: it grows a heap by pages (musl), maps and unmaps 2M,
//! forks, executes `true`, or sends itself signals. Each round runs the program once in each of these ways, in
//! random order:
//!
//! * `bare`: without a filter; `filter`: with a filter that stops nothing;
//! * `tracer`: `tracer::run` under the policy `thp`, without a witness;
//! * `stop`: PTRACE_O_TRACESECCOMP and the tracer's ptrace requests, without the tracer's bookkeeping;
//! * `notify`: SECCOMP_RET_USER_NOTIF, `killable` with SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, `sync` with
//!   SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP too.
//!
//! What is done with a call: `passed` makes it unchanged. `advised` adds a madvise; under `notify` this happens
//! between PTRACE_SEIZE and PTRACE_DETACH. `kept` grows the heap in steps of 2M and advises each step; a brk
//! within a step is answered without a call. `inspected` applies to execve: the task is seized until the new image
//! is loaded, and its mappings are read as the tracer reads them.
//! For forks and signals the filter watches only exit_group, where a witness would inspect memory.
//!
//! The benchmark prints by how much a run exceeds the bare run of its round: wall time and CPU time (program
//! and supervisor together) as ratios (Hodges-Lehmann, with 95 % intervals) and per call (medians), and context
//! switches per call. The CPU time includes the start of the program and of its supervisor. Then it compares
//! some ways directly with each other, and times the steps of one advised call. `--one-cpu` keeps everything on
//! the first processor. Needs Linux 6.11 on x86-64.

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
    println!("the benchmark supports only x86-64");
}
