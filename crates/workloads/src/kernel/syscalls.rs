//! `syscalls`: the way into the kernel and back. It touches a few lines of the kernel's memory, always the same.

use super::{Done, KernelError, Load};

/// Operations in a second.
pub const PER_SECOND: u64 = 5_000_000;

/// Makes so many calls.
///
/// # Errors
/// What the kernel refuses.
pub fn run(Load { operations, .. }: Load) -> Result<Done, KernelError> {
    // getppid(2) is asked of the kernel each time; getpid(2) was not, in older C libraries.
    let parent = u64::from(std::os::unix::process::parent_id());
    Done::of(operations, operations, || {
        let same = (0..operations).filter(|_| u64::from(std::os::unix::process::parent_id()) == parent);
        Ok(same.count() as u64)
    })
}
