//! Counts the boots that a study needs and has of each guest.

use study::comparison::Comparison;
use study::stats::boots::boots_needed;
use study_files::definition::{Boot, Definition};

use crate::kernels::kernel::{self, Kernel};

/// Whether the boots of a study are guests. Either all boots are guests, or none is.
pub fn are_guests(definition: &Definition) -> bool {
    definition.boots.iter().any(|boot| boot.guest.is_some())
}

/// The number of boots of each guest that the study needs.
pub fn boots_wanted(definition: &Definition) -> u32 {
    definition.stopping.boots.unwrap_or_else(|| boots_needed(definition.boots.len()))
}

/// The number of boots with a result, of exactly this image and command line.
pub fn boots_of(kernel: &Kernel, stored: &[Comparison]) -> usize {
    let command_line: Vec<String> = kernel.command_line().collect();
    let is_of = |one: &&Comparison| {
        let words: Vec<&str> = one.machine.kernel_command_line.split_whitespace().collect();
        one.ended.has_result() && command_line.iter().all(|word| words.contains(&word.as_str()))
    };
    stored.iter().filter(is_of).count()
}

/// The number of the last comparison, if the workload has enough boots of each guest. If the images can be read, only boots of
/// exactly these images count.
pub fn done(definition: &Definition, stored: &[Comparison]) -> Option<i64> {
    let kernels = kernel::of_boots(&definition.boots).ok();
    let is_of = |boot: &Boot, one: &Comparison| one.ended.has_result() && boot.lacks(&one.machine).is_none();
    let by_name = |boot: &Boot| stored.iter().filter(|one| is_of(boot, one)).count();
    let counts: Vec<usize> = match &kernels {
        Some(kernels) => kernels.iter().map(|kernel| boots_of(kernel, stored)).collect(),
        None => definition.boots.iter().map(by_name).collect(),
    };
    let is_done = counts.iter().all(|count| *count >= boots_wanted(definition) as usize);
    stored.iter().rfind(|one| one.ended.has_result()).filter(|_| is_done).map(|last| last.id)
}
