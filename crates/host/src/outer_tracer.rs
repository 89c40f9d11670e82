//! Who traces a task already, as /proc says it. A task has one tracer at most.

use crate::read::content;

/// Who traces this thread, and so what it forks too (strace -f, gdb with follow-fork-mode): `strace
/// (process 17)`. `None` where nobody does, or somebody outside of this PID namespace.
pub fn outer_tracer() -> Option<String> {
    let tracer = tracer_of("/proc/thread-self/status").filter(|tracer| *tracer != 0)?;
    let name = std::fs::read_to_string(format!("/proc/{tracer}/comm")).unwrap_or_else(|_| "a tracer".into());
    Some(format!("{} (process {tracer})", name.trim_end()))
}

/// TracerPid of a file such as /proc/PID/status; 0 where the task is not traced.
pub fn tracer_of(status: &str) -> Option<libc::pid_t> {
    let status = content(status).ok()?;
    status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?.trim().parse().ok()
}
