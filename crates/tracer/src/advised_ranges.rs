//! [`advised_ranges`]: the ranges in a task's own memory that its process_madvise names.

use std::io;

use host::if_exists;

use super::paused::Paused;
use super::permission::if_permitted;
use super::ptrace;
use super::tasks::Tasks;

/// PIDFD_SELF_THREAD and PIDFD_SELF_THREAD_GROUP (include/uapi/linux/pidfd.h), since Linux 6.14.
const SELF_DESCRIPTORS: [i32; 2] = [-10000, -10001];
/// UIO_MAXIOV (include/uapi/linux/uio.h).
const MAX_PARTS: u64 = 1024;

/// The ranges, as address and length, that a task stopped at process_madvise advises in its own process. Empty if the call
/// advises another process, for which the kernel accepts only hints, or if the kernel will refuse the call.
pub fn advised_ranges(paused: &Paused, tasks: &Tasks) -> io::Result<Vec<(u64, u64)>> {
    let [descriptor, vector, parts, ..] = paused.arguments();
    if parts > MAX_PARTS || !is_own_process(paused, tasks, descriptor as i32)? {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0u8; parts as usize * size_of::<libc::iovec>()];
    if ptrace::read_memory(paused.tid(), vector, &mut bytes).is_err() {
        return Ok(Vec::new());
    }
    let words: Vec<u64> = bytes
        .chunks_exact(size_of::<u64>())
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    Ok(words.chunks_exact(2).map(|part| (part[0], part[1])).collect())
}

/// Whether a descriptor refers to the task's own process. A closed one does not.
fn is_own_process(paused: &Paused, tasks: &Tasks, descriptor: i32) -> io::Result<bool> {
    if SELF_DESCRIPTORS.contains(&descriptor) {
        return Ok(true);
    }
    let tid = paused.tid();
    let process = tasks.get(tid).map_or(tid, |task| task.process);
    let about = if_permitted(if_exists(host::content(format!("/proc/{tid}/fdinfo/{descriptor}"))))?;
    let named = about.as_deref().and_then(|about| about.lines().find_map(|line| line.strip_prefix("Pid:")));
    Ok(named.and_then(|pid| pid.trim().parse().ok()) == Some(process))
}
