//! [`outer_tracer`]: which process already traces a task, from /proc. A task has at most one tracer.

use std::fs;
use std::io;

use crate::absence::if_exists;
use crate::read::content;

/// The tracer of this thread, and therefore of processes that it forks (strace -f, gdb with follow-fork-mode): `strace (process
/// 17)`. `None` where there is none, where it is outside this PID namespace, and where it cannot be read; the result only
/// explains why the kernel refused.
pub fn outer_tracer() -> Option<String> {
    let tracer = tracer_of("/proc/thread-self/status").ok().flatten().filter(|tracer| *tracer != 0)?;
    let name = fs::read(format!("/proc/{tracer}/comm")).unwrap_or_else(|_| b"a tracer".to_vec());
    Some(format!("{} (process {tracer})", String::from_utf8_lossy(&name).trim_end()))
}

/// TracerPid in a file such as /proc/PID/status; 0 where the task is not traced, `None` where it is gone.
pub fn tracer_of(status: &str) -> io::Result<Option<libc::pid_t>> {
    let Some(status) = if_exists(content(status))? else { return Ok(None) };
    Ok(status.lines().find_map(|line| line.strip_prefix("TracerPid:")?.trim().parse().ok()))
}
