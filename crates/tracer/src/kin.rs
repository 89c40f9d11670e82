//! Which process a task belongs to, and which made it, as /proc/TASK/status has it.

use super::ptrace::Tid;

/// The process of a task; `None` where /proc does not say.
pub fn process_of(tid: Tid) -> Option<Tid> {
    status_field(tid, "Tgid:")
}

/// The process that made a task: its own for a thread, its parent for a process.
pub fn maker_of(tid: Tid) -> Option<Tid> {
    match process_of(tid)? {
        process if process == tid => status_field(tid, "PPid:"),
        process => Some(process),
    }
}

fn status_field(tid: Tid, name: &str) -> Option<Tid> {
    let status = host::content(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}
