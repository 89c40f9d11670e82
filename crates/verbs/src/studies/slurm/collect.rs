//! Merges the results of a study's tasks into its store, and reports what is missing.

use std::path::{Path, PathBuf};

use results::files;
use results::store::Store;
use study_files::definition::Definition;

use super::shards::{Shards, exists, own_directory, publish, unfinished_rows, working_copy};
use super::tasks::{State, Task, tasks};
use crate::failure::{Failure, report};
use crate::output::{open, print};
use crate::studies::arguments::Which;
use crate::studies::merge;

/// Merges the shards of a study into its store, and reports what is missing. It can be repeated.
///
/// # Errors
/// The store cannot be read or written, or tasks have no result.
pub fn collect(which: &Which) -> Result<(), Failure> {
    let definition = which.definition()?;
    let tasks = tasks(&definition)?;
    let shards = Shards::of(&definition, which.store.as_deref())?;
    if !shards.directory.is_dir() {
        let (store, directory) = (shards.store.display(), shards.directory.display());
        return Err(Failure::Input(format!(
            "there is no {directory}: no study was submitted to Slurm with the store {store}"
        )));
    }
    let local_directory = own_directory(&format!("{}-merge-{}", shards.stem, std::process::id()))?;
    let collected = collected(&definition, &tasks, &shards, &local_directory);
    files::remove_tree(&local_directory).map_err(|error| Failure::about(&local_directory, error))?;
    let missing = collected?;
    if missing.is_empty() {
        print(&format!("all {} tasks are done; `pagelab study report {}`", tasks.len(), which.words()), false)
    } else {
        print(&format!("missing:\n    {}", missing.join("\n    ")), false)?;
        Err(Failure::Command(format!(
            "{} of {} tasks have no result; `pagelab study run {} --on slurm` submits them again",
            missing.len(),
            tasks.len(),
            which.words()
        )))
    }
}

/// Merges the shards in a directory on this node, and returns what is missing, one sentence per task.
fn collected(
    definition: &Definition,
    tasks: &[Task],
    shards: &Shards,
    local_directory: &Path,
) -> Result<Vec<String>, Failure> {
    let local = local_directory.join("results.sqlite");
    let into = if exists(&shards.store)? { working_copy(&shards.store, &local)? } else { open(&local)? };
    let (mut copies, mut damaged) = (Vec::new(), Vec::new());
    for task in tasks {
        if !exists(&shards.shard(task.number))? {
            continue;
        }
        match copy(&shards.shard(task.number), local_directory) {
            Ok(copy) => copies.push(copy),
            Err(failure) => {
                let what = results::printable(&failure.to_string());
                report(format_args!("pagelab: {}: {what}; it was not merged", task.describe()));
                damaged.push(task.number);
            }
        }
    }
    let counted = merge::into(&copies, Some(&definition.name), &into);
    let missing = tasks.iter().map(|task| missing(definition, task, shards, &into, damaged.contains(&task.number)));
    let missing = missing.collect::<Result<Vec<Option<String>>, Failure>>()?;
    publish(&into.close().map_err(Failure::input)?, &shards.store)?;
    print(&counted.summary(&shards.store), false)?;
    counted.ending().map(|()| missing.into_iter().flatten().collect())
}

/// Copies a shard to this node's own disk, under the same file name.
fn copy(shard: &Path, local_directory: &Path) -> Result<PathBuf, Failure> {
    let copy = local_directory.join(shard.file_name().unwrap_or_default());
    working_copy(shard, &copy)?.close().map_err(Failure::input)
}

/// Why a task has no result; `None` if it has one.
fn missing(
    definition: &Definition,
    task: &Task,
    shards: &Shards,
    store: &Store,
    is_damaged: bool,
) -> Result<Option<String>, Failure> {
    let partial_copies = shards.partial_copies(task.number)?;
    let (shard, printed) = (shards.shard(task.number), shards.output_file(task.number)?);
    let why = match task.state(definition, Some(store))? {
        State::Done => return Ok(None),
        State::Failed(why) => why,
        State::Unfinished(_) if is_damaged => format!("{} is damaged, or an incomplete copy", shard.display()),
        State::Unfinished(_) if !partial_copies.is_empty() => {
            let partial_copies: Vec<String> = partial_copies.iter().map(|copy| copy.display().to_string()).collect();
            format!("the copy of its shard was not finished: {}", partial_copies.join(", "))
        }
        State::Unfinished(_) if !exists(&shard)? => {
            if exists(&printed)? {
                format!("it left no shard: it is running, or was killed; its output is in {}", printed.display())
            } else {
                "it left no shard: it has not started".to_owned()
            }
        }
        // The task's note gives the reason; if it does not, the store's state does.
        State::Unfinished(why) => match unfinished_rows(&shards.note(task.number)) {
            Ok(local_directory) => local_directory.unwrap_or(why),
            Err(failure) => format!("{why}; its own reason is not known: {failure}"),
        },
    };
    Ok(Some(format!("{}: {}", task.describe(), results::printable(&why))))
}
