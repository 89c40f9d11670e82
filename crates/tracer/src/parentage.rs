//! Reads the process and the creator of a task from /proc/TASK/status.

use std::io;

use host::if_exists;

use super::ptrace::Tid;

/// The process of a task; `None` if the task has ended.
pub fn process_of(tid: Tid) -> io::Result<Option<Tid>> {
    status_field(tid, "Tgid:")
}

/// The process that created a task: its own process for a thread, its parent for a process. `None` if the task has
/// ended.
pub fn creator_of(tid: Tid) -> io::Result<Option<Tid>> {
    match process_of(tid)? {
        Some(process) if process == tid => status_field(tid, "PPid:"),
        process => Ok(process),
    }
}

fn status_field(tid: Tid, name: &str) -> io::Result<Option<Tid>> {
    let Some(status) = if_exists(host::content(format!("/proc/{tid}/status")))? else { return Ok(None) };
    let field = status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    field.map(Some).ok_or_else(|| io::Error::other(format!("/proc/{tid}/status: expected a line {name}")))
}
