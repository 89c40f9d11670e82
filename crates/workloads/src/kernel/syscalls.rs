//! `syscalls`: entering and leaving the kernel. It touches only a few cache lines of the kernel's memory, always the same ones.

use super::{Completed, KernelError, Load};

/// Operations in a second.
pub const PER_SECOND: u64 = 5_000_000;

/// Makes `operations` calls.
pub fn run(Load { operations, .. }: Load) -> Result<Completed, KernelError> {
    // getppid(2) enters the kernel each time; older C libraries cached getpid(2).
    let parent = u64::from(std::os::unix::process::parent_id());
    Completed::of(operations, operations, || {
        let same = (0..operations).filter(|_| u64::from(std::os::unix::process::parent_id()) == parent);
        Ok(same.count() as u64)
    })
}
