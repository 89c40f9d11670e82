//! Where the threads of a process have their stacks: `/proc/PID/task/TID/syscall` (proc_pid_syscall(5)).

/// Stack pointers of the threads that wait in the kernel, the main one excepted, in order. Of a thread that runs it is not told,
/// and of no thread to who may not trace it.
pub fn of_process(pid: u32) -> Vec<u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let own = pid.to_string();
    let others = threads.filter_map(|entry| entry.file_name().into_string().ok()).filter(|thread| *thread != own);
    let mut stacks: Vec<u64> = others
        .filter_map(|thread| host::content(format!("/proc/{pid}/task/{thread}/syscall")).ok())
        .filter_map(|text| stack_pointer(&text))
        .collect();
    stacks.sort_unstable();
    stacks
}

/// The last but one word of a call and its arguments, or of `-1`.
fn stack_pointer(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace().rev();
    let word = words.nth(1)?.strip_prefix("0x")?;
    u64::from_str_radix(word, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_pointer_is_the_last_but_one() {
        assert_eq!(stack_pointer("202 0x7f 0x80 0x0 0x0 0x0 0x0 0x7ffd10 0x7f22\n"), Some(0x7ffd10));
        assert_eq!(stack_pointer("-1 0x7ffd10 0x7f22\n"), Some(0x7ffd10));
        assert_eq!(stack_pointer("running\n"), None);
    }
}
