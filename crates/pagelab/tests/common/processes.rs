//! Processes by PID, for the tests: signals, states, descendants.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::LIMIT;

/// Sends a signal, given by its name.
pub fn send(signal: &str, pid: u32) {
    let _ = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Stops a process, and waits until all its threads are stopped.
pub fn stop(pid: u32) {
    send("STOP", pid);
    await_stop(pid);
}

/// Waits until none of a process's threads can run any more, because it was stopped or has exited.
pub fn await_stop(pid: u32) {
    assert!(
        within(LIMIT, || is_stopped(pid)),
        "process {pid} should have stopped {LIMIT:?} ago; its threads: {:?}",
        threads(pid)
    );
}

/// Whether all threads of a process are stopped or have exited.
pub fn is_stopped(pid: u32) -> bool {
    threads(pid).iter().all(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

/// The states of a process's threads (proc(5), /proc/PID/stat).
fn threads(pid: u32) -> Vec<char> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    stats.filter_map(|stat| stat.rsplit_once(')')?.1.trim_start().chars().next()).collect()
}

/// The descendants of a process, except those whose parents have exited.
pub(super) fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        for task in fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        next += 1;
    }
    found.split_off(1)
}

/// The processes whose command line contains this word.
pub fn processes_with(word: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(word) && pid != std::process::id() {
            found.push((pid, line));
        }
    }
    found
}

/// Waits until a condition is true, but no longer than `patience`. Returns whether it became true.
pub fn within(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
