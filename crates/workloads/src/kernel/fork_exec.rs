//! `fork-exec`: the life of a short process. The parent has touched memory, and every fork copies its page tables.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::{Completed, KernelError, Load};
use crate::memory::{Anonymous, base_page, fork};

/// Operations in a second.
pub const PER_SECOND: u64 = 500;

/// Touches `bytes` bytes (whole base pages), then forks `load.operations` children, each of which executes the program. The program
/// must exit with status 0; 127 means that it could not be executed.
pub fn run(load: Load, bytes: usize, program: &Path) -> Result<Completed, KernelError> {
    let operations = load.operations;
    let mut memory = Anonymous::map(bytes)?;
    let page_words = base_page().bytes() as usize / size_of::<u64>();
    memory.slice_mut::<u64>().iter_mut().step_by(page_words).for_each(|word| *word = 1);
    Completed::of(operations, operations, || {
        for _ in 0..operations {
            fork(0, |_| {
                let error = Command::new(program).exec();
                eprintln!("pagelab: cannot execute {program:?}: {error}; --program names another one");
                std::process::exit(127)
            })?;
        }
        Ok(operations)
    })
}
