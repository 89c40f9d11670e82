//! `syscalls`: the way into the kernel and back. It touches a few lines of the kernel's memory, always the same.

use super::super::WorkloadError;
use super::super::report::Report;
use super::Work;

const PER_SECOND: u64 = 5_000_000;

pub fn run(work: &Work) -> Result<Report, WorkloadError> {
    let operations = work.operations(PER_SECOND)?;
    // getppid(2) is asked of the kernel each time; getpid(2) was not, in older C libraries.
    let parent = u64::from(std::os::unix::process::parent_id());
    let report = work.measure("syscalls", operations, operations, || {
        let same = (0..operations).filter(|_| u64::from(std::os::unix::process::parent_id()) == parent);
        Ok(same.count() as u64)
    })?;
    Ok(report)
}
