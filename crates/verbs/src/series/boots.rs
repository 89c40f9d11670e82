//! The boots of a series.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use study::comparison::Comparison;
use study::guest::processor_of;
use study::kernel_series::{self, Figures, Series, Workload, figures_of};

use super::arguments::SeriesArguments;
use super::workloads::{Builtin, compare_words};
use crate::failure::Failure;
use crate::kernels;
use crate::kernels::job::Task;
use crate::kernels::kernel::{self, Kernel};
use crate::kernels::lab::{Lab, TaskResult, TaskResults};
use crate::output::store_path;

/// The arguments of `capabilities` in a guest.
const CAPABILITIES: [&str; 1] = ["--quick"];

/// The kernels that the arguments name, with the modules for swap where they exist.
///
/// # Errors
/// A kernel cannot be booted.
pub fn kernels_of(arguments: &SeriesArguments) -> Result<Vec<Kernel>, Failure> {
    let mut kernels = kernel::from_arguments(&arguments.guests())?;
    for kernel in &mut kernels {
        let found = guest::existing_modules(&kernel.image, &guest::SWAP_MODULES).map_err(Failure::input)?;
        let others = found.into_iter().filter(|module| kernel.modules.iter().all(|one| one.name != module.name));
        let others: Vec<_> = others.collect();
        kernel.modules.extend(others);
    }
    Ok(kernels)
}

/// Boots each kernel as often as the arguments say, and runs the workloads in each boot. A kernel without a result is left out, and is
/// part of the inner error.
///
/// # Errors
/// No boot can begin, or pagelab was stopped.
pub fn measure(
    arguments: &SeriesArguments,
    kernels: &[Kernel],
    workloads: Vec<Workload>,
) -> Result<(Series, Result<(), Failure>), Failure> {
    let logs =
        store_path(None)?.parent().filter(|place| place.is_dir()).map_or_else(|| PathBuf::from("."), Path::to_owned);
    // As much as the guest's memory: it is compressed, and only a part of the memory is ever swapped out.
    let lab = Lab::reproducible(arguments.guest_time, logs, arguments.memory)?;
    let own = std::env::current_exe().map_err(|error| Failure::Input(format!("pagelab's own path: {error}")))?;
    let program = own.to_string_lossy().into_owned();
    let mut measured: Vec<kernel_series::Kernel> = kernels.iter().map(without_boots).collect();
    let mut emulator = String::new();
    let boots = vec![arguments.boots; kernels.len()];
    let outcome = kernels::measure(&lab, kernels, &boots, arguments.seed, &mut |kernel, _| {
        let Some(result) = measured.iter_mut().find(|one| one.name == kernel.name) else { return Ok(Ok(())) };
        let compare = |workload: &Workload| Task::Compare(compare_words(workload, kernel, &program));
        let mut tasks: Vec<Task> = workloads.iter().map(compare).collect();
        if arguments.capabilities && result.boots.is_empty() {
            tasks.push(Task::Capabilities(CAPABILITIES.map(str::to_owned).into()));
        }
        let mut done = lab.run_tasks(kernel, tasks, arguments.seed)?;
        if let Some(comparison) = done.tasks.iter().find_map(|task| task.comparison.as_ref()) {
            emulator = processor_of(&comparison.machine);
        }
        let capabilities = done.tasks.split_off(workloads.len().min(done.tasks.len()));
        for task in capabilities {
            result.capabilities = task.matrix;
            if let Some(failure) = task.failed {
                result.missing.insert("capabilities".to_owned(), failure.to_string());
            }
        }
        add_boot(result, &workloads, done);
        Ok(Ok(()))
    });
    measured.retain(|kernel| !kernel.boots.is_empty());
    let failed = match outcome {
        Err(failure @ Failure::Interrupted(_)) => return Err(failure),
        outcome => outcome,
    };
    let series = Series {
        pagelab: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        emulator,
        workloads,
        kernels: measured,
    };
    Ok((series, failed))
}

fn without_boots(kernel: &Kernel) -> kernel_series::Kernel {
    kernel_series::Kernel {
        name: kernel.name.clone(),
        release: kernel.image.release.clone(),
        image: kernel.image.path.display().to_string(),
        hash: kernel.hash.clone(),
        architecture: kernel.image.architecture.to_string(),
        cmdline: kernel.words.join(" "),
        memory_bytes: kernel.memory_bytes,
        boots: Vec::new(),
        missing: BTreeMap::new(),
        capabilities: None,
    }
}

/// Adds the figures of a boot. A workload without a result is missing, with its reason.
fn add_boot(kernel: &mut kernel_series::Kernel, workloads: &[Workload], done: TaskResults) {
    let mut boot: BTreeMap<String, Figures> = BTreeMap::new();
    for (workload, result) in workloads.iter().zip(done.tasks) {
        match figures(result) {
            Ok(figures) => drop(boot.insert(workload.name.clone(), figures)),
            Err(why) => {
                let is_swap = Builtin::of_name(&workload.name) == Some(Builtin::SwapIn);
                let lacks = if is_swap && !done.lacks.is_empty() {
                    format!(" ({})", done.lacks.join("; "))
                } else {
                    String::new()
                };
                let why = why + &lacks;
                kernel.missing.insert(workload.name.clone(), why);
            }
        }
    }
    kernel.boots.push(boot);
}

/// The figures of a workload, or why it has none.
fn figures(result: TaskResult) -> Result<Figures, String> {
    let why =
        |failed: Option<Failure>| failed.map_or("it ended without a result".to_owned(), |failure| failure.to_string());
    match result {
        TaskResult { comparison: Some(comparison), failed, .. } => {
            let figures = if succeeded(&comparison) { figures_of(&comparison) } else { Figures::new() };
            if figures.is_empty() { Err(why(failed)) } else { Ok(figures) }
        }
        TaskResult { failed, .. } => Err(why(failed)),
    }
}

/// Whether every run of the program reports success.
fn succeeded(comparison: &Comparison) -> bool {
    comparison.ended.has_result() && comparison.trials.iter().all(|trial| trial.answer.succeeded())
}
