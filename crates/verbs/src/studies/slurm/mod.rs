//! `pagelab study run --on slurm`: submits the missing part of a study as a job array, and a job that merges the results of
//! the array's tasks.
//!
//! Slurm decides where and when a task runs, and requeues it if a node fails. pagelab keeps no list of tasks: the study
//! file determines them, the store knows the finished ones, and Slurm knows the queued ones.

pub mod arguments;
mod collect;
mod queue;
mod sbatch;
mod script;
mod shards;
mod task;
mod tasks;

use std::fs;
use std::path::Path;

pub use collect::collect;
pub use queue::{TaskState, task_states};
pub use task::task;

use results::files;
use script::{Array, Submission};
use shards::{Shards, exists, own_directory, working_copy};
use study_files::definition::Definition;
use tasks::{State, Task, tasks};

use super::arguments::{Run, Which};
use crate::failure::Failure;
use crate::output::print;

/// Submits the missing part of a study; with `--dry-run`, only prints the scripts.
///
/// # Errors
/// The study is invalid, no job array can run it, it is already queued, or Slurm reports an error.
pub fn submit(arguments: &Run) -> Result<(), Failure> {
    let definition = arguments.which.definition()?;
    let shards = Shards::of(&definition, arguments.which.store.as_deref())?;
    let left = remaining_tasks(&definition, &shards, arguments)?;
    let program = std::env::current_exe().map_err(|error| Failure::Input(format!("this program: {error}")))?;
    let name = name(&shards);
    if left.is_empty() {
        return print("nothing is left to submit", false);
    }
    if !arguments.dry_run {
        refuse_queued(&name)?;
    }
    let max_array_size = match (sbatch::max_array_size(), arguments.dry_run) {
        (Ok(size), _) => size,
        (Err(failure), false) => return Err(failure),
        (Err(_), true) => sbatch::DEFAULT_ARRAY_SIZE,
    };
    let study = words(&arguments.which, &shards.store)?;
    let again = arguments.again.then(|| "--again".to_owned());
    let options: Vec<String> = again.into_iter().chain(arguments.added()).collect();
    let model_cpus = arguments.jobs.or(definition.slurm.model_cpus).unwrap_or(1);
    let submission = Submission {
        name: &name,
        stem: &shards.stem,
        program: &program,
        study: &study,
        options: &options,
        model_cpus,
        max_array_size,
    };
    let (measured, modelled): (Vec<&Task>, Vec<&Task>) = left.iter().partition(|task| task.is_measured());
    let mut arrays = Vec::new();
    arrays.extend(submission.measuring_arrays(&definition, &measured)?);
    arrays.extend(submission.simulating_arrays(&definition, &modelled)?);
    if arguments.dry_run {
        return print(&planned(&definition, &submission, &left, &arrays), false);
    }
    submit_arrays(&definition, &submission, &shards, &arrays, arguments)
}

/// Refuses to submit a study to the same store while it is queued.
fn refuse_queued(name: &str) -> Result<(), Failure> {
    let queued = sbatch::queued_jobs(&[name, &format!("{name}-merge")])?;
    if queued.is_empty() {
        Ok(())
    } else {
        Err(Failure::Input(format!(
            "jobs of this study and store are already queued or running: {}; wait for them, or cancel them with scancel",
            queued.join(", ")
        )))
    }
}

fn submit_arrays(
    definition: &Definition,
    submission: &Submission<'_>,
    shards: &Shards,
    arrays: &[Array],
    arguments: &Run,
) -> Result<(), Failure> {
    shards.create_directory()?;
    let mut numbers: Vec<String> = Vec::new();
    let merge = format!("`pagelab study merge --shards {}`", arguments.which.words());
    for array in arrays {
        let after = numbers.last().filter(|_| array.is_after_previous);
        match sbatch::submit(&array.script, &shards.directory, after.map(String::as_str)) {
            Ok(number) => numbers.push(number),
            Err(failure) if numbers.is_empty() => return Err(failure),
            Err(failure) => {
                let jobs = numbers.join(", ");
                return Err(Failure::Input(format!("{failure}; job {jobs} is queued, and {merge} merges it")));
            }
        }
    }
    let merging = sbatch::submit(&submission.merging_script(definition, &numbers), &shards.directory, None);
    let merging = merging.map_err(|failure| {
        let jobs = numbers.join(", ");
        Failure::Input(format!("{failure}; job {jobs} is queued, and {merge} merges what it leaves"))
    })?;
    let directory = shards.directory.display();
    print(
        &format!("submitted: job {}; job {merging} merges what it leaves; {directory}", numbers.join(" and job ")),
        false,
    )
}

fn planned(definition: &Definition, submission: &Submission<'_>, left: &[Task], arrays: &[Array]) -> String {
    let tasks: String = left.iter().map(|task| format!("    {}\n", task.describe())).collect();
    let numbers: Vec<String> = (1..=arrays.len()).map(|at| format!("JOB{at}")).collect();
    let merge = submission.merging_script(definition, &numbers);
    let scripts = arrays.iter().map(|array| &array.script).chain([&merge]);
    let scripts: Vec<String> = scripts.map(|script| indented(script)).collect();
    format!("what would be submitted:\n{tasks}\n{}", scripts.join("\n"))
}

/// Indents a script, so that its lines are not wrapped and can be copied.
fn indented(script: &str) -> String {
    script.lines().map(|line| format!("    {line}\n")).collect()
}

/// The selected tasks that have something left to do.
fn remaining_tasks(definition: &Definition, shards: &Shards, arguments: &Run) -> Result<Vec<Task>, Failure> {
    let tasks = tasks(definition)?.into_iter().filter(|task| arguments.is_selected(&task.workload.name));
    let local_directory = own_directory(&format!("{}-plan-{}", shards.stem, std::process::id()))?;
    let store = if exists(&shards.store)? {
        working_copy(&shards.store, &local_directory.join("results.sqlite")).map(Some)
    } else {
        Ok(None)
    };
    let left = store.and_then(|store| {
        let mut left = Vec::new();
        for task in tasks {
            match task.state(definition, store.as_ref())? {
                State::Unfinished(_) => left.push(task),
                State::Failed(_) if arguments.again => left.push(task),
                State::Done | State::Failed(_) => {}
            }
        }
        Ok(left)
    });
    files::remove_tree(&local_directory).map_err(|error| Failure::about(&local_directory, error))?;
    left
}

/// The arguments that name the study and its store on a node.
fn words(which: &Which, store: &Path) -> Result<Vec<String>, Failure> {
    let path = Path::new(&which.study);
    let study = if which.is_file() {
        fs::canonicalize(path).map_err(|error| Failure::about(path, error))?.to_string_lossy().into_owned()
    } else {
        which.study.clone()
    };
    let store = ["--store".to_owned(), store.to_string_lossy().into_owned()];
    Ok(std::iter::once(study).chain(which.size.words()).chain(store).collect())
}

/// The name that all jobs of a study and store have.
fn name(shards: &Shards) -> String {
    format!("pagelab-{}-{:08x}", shards.stem, digest(&shards.store))
}

/// A number that distinguishes jobs of different stores: FNV-1a of the store's path.
fn digest(path: &Path) -> u32 {
    path.as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0x811c_9dc5, |sum: u32, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
