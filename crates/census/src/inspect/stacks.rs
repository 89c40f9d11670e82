//! [`Stacks`]: the stack pointers of the threads of a process, from `/proc/PID/task/TID/syscall` (proc_pid_syscall(5)).

use std::fs;
use std::io;

use host::if_exists;

/// Stack pointers of the threads that wait in the kernel, without the main thread.
#[derive(Debug, Default)]
pub struct Stacks {
    /// Sorted. A running thread does not show its stack pointer.
    pub pointers: Vec<u64>,
    /// Why the stack pointer of some thread could not be read: that requires permission to trace it.
    pub refused: Option<io::Error>,
}

/// The stacks of a process. A thread that ends in the meantime is left out.
pub fn of_process(pid: u32) -> io::Result<Stacks> {
    let mut stacks = Stacks::default();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = entry?.file_name();
        if thread.to_str() == Some(&pid.to_string()) {
            continue;
        }
        match if_exists(host::content(format!("/proc/{pid}/task/{}/syscall", thread.display()))) {
            Ok(text) => stacks.pointers.extend(text.and_then(|text| stack_pointer(&text))),
            Err(error) => drop(stacks.refused.get_or_insert(error)),
        }
    }
    stacks.pointers.sort_unstable();
    Ok(stacks)
}

/// The second to last word of the line, after a call and its arguments or after `-1`.
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

    #[test]
    fn a_process_that_is_not_there_has_no_list_of_threads() {
        assert_eq!(of_process(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
