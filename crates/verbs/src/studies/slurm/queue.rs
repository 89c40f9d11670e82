//! The states of a study's tasks ([`task_states`]): for tasks that wait or run from Slurm, for the others from their
//! shards.

use study_files::definition::Definition;

use super::sbatch::{self, Queued};
use super::shards::{Shards, exists, unfinished_rows};
use super::tasks::tasks;
use crate::failure::Failure;
use crate::studies::arguments::Which;

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskState {
    /// The index of the task in the job array.
    pub task: usize,
    /// The workload's name.
    pub workload: String,
    /// The machines on which the task runs: the host or model machines.
    pub machines: Vec<String>,
    /// One of `queued`, `left a shard`, `half a shard`, `ended or killed`, `not begun`.
    pub state: &'static str,
    /// The reason given by Slurm or by the task's note.
    pub why: String,
}

/// The tasks of a submitted study; empty if it was not submitted, or cannot run as a job array.
///
/// # Errors
/// There is no location for the store.
pub fn task_states(definition: &Definition, which: &Which) -> Result<Vec<TaskState>, Failure> {
    let shards = Shards::of(definition, which.store.as_deref())?;
    let Ok(tasks) = tasks(definition) else { return Ok(Vec::new()) };
    if !shards.has_any()? {
        return Ok(Vec::new());
    }
    // On a machine without Slurm's programs, for example one to which the shards were copied, no task counts as queued.
    let queued = sbatch::queued_tasks(&super::name(&shards));
    let task_state = |task: &super::tasks::Task| {
        let (state, why) = task_state(task.number, &shards, &queued)?;
        Ok(TaskState {
            task: task.number,
            workload: task.workload.name.clone(),
            machines: task.machines.clone(),
            state,
            why: results::printable(&why),
        })
    };
    tasks.iter().map(task_state).collect()
}

fn task_state(
    task: usize,
    shards: &Shards,
    queued: &Result<Vec<Queued>, Failure>,
) -> Result<(&'static str, String), Failure> {
    let queued_task = queued.iter().flatten().find(|one| one.task == task);
    let unknown = queued.as_ref().err().map(|failure| format!("whether it is queued is not known: {failure}"));
    let (shard, printed, partial_copies) =
        (shards.shard(task), shards.output_file(task)?, shards.partial_copies(task)?);
    Ok(match queued_task {
        Some(queued) => ("queued", queued.state.clone()),
        None if exists(&shard)? => {
            let why = match unfinished_rows(&shards.note(task)) {
                Ok(why) => why.unwrap_or_else(|| "all its rows are done".to_owned()),
                Err(failure) => format!("which rows are done is not known: {failure}"),
            };
            ("left a shard", why)
        }
        None if !partial_copies.is_empty() => ("half a shard", partial_copies[0].display().to_string()),
        None if exists(&printed)? => {
            let why = unknown.unwrap_or_else(|| format!("its output is in {}", printed.display()));
            ("ended or killed", why)
        }
        None => ("not begun", unknown.unwrap_or_default()),
    })
}
