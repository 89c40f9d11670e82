//! Runs one task of a study on the node that Slurm assigned.

use std::path::Path;

use results::files;
use results::store::Store;
use study_files::definition::Definition;

use super::shards::{Shards, exists, own_directory, working_copy};
use super::tasks::tasks;
use crate::failure::{Failure, report};
use crate::output::open;
use crate::studies::arguments::Run;
use crate::studies::gathered::gathered;
use crate::studies::{merge, run, status};

/// Runs a task and publishes its shard, even if the task fails. Resumes from the results of an earlier attempt.
///
/// # Errors
/// The task does not exist, a signal arrived, a row has no result, or the shard cannot be written.
pub fn task(arguments: &Run, number: usize) -> Result<(), Failure> {
    let definition = arguments.which.definition()?;
    let tasks = tasks(&definition)?;
    let Some(task) = tasks.get(number) else {
        return Err(Failure::Input(format!("--task {number}: the study has {} tasks, from 0 on", tasks.len())));
    };
    let shards = Shards::of(&definition, arguments.which.store.as_deref())?;
    shards.create_directory()?;
    let local_directory = own_directory(&format!("{}-{number}", shards.stem))?;
    let store = open(&local_directory.join("results.sqlite"))?;
    resume(&shards.shard(number), &local_directory, &store)?;
    let definition = task.definition(&definition);
    report(format_args!("study {}: {}, in {}", definition.name, task.describe(), local_directory.display()));
    // A task has only one workload, which gets all the time, so there are no rounds.
    let result = run::run_in(&definition, &Run { no_rounds: true, ..arguments.clone() }, &store);
    let note = note(&definition, &store);
    let closed = store.close().map_err(Failure::input)?;
    shards.publish(number, &closed, &note?)?;
    report(format_args!("study {}: the results are in {}", definition.name, shards.shard(number).display()));
    files::remove_tree(&local_directory).map_err(|error| Failure::about(&local_directory, error))?;
    result
}

/// Copies the results that an earlier attempt left, on whatever node. A damaged shard is set aside and not used.
fn resume(shard: &Path, local_directory: &Path, store: &Store) -> Result<(), Failure> {
    if !exists(shard)? {
        return Ok(());
    }
    let copy = local_directory.join("earlier.sqlite");
    let failure = match working_copy(shard, &copy).and_then(|earlier| earlier.close().map_err(Failure::input)) {
        Ok(copy) => return merge::into(&[copy], None, store).ending(),
        Err(failure) => failure,
    };
    let aside = shard.with_extension("sqlite.damaged");
    report(format_args!(
        "pagelab: {}: the results of an earlier attempt cannot be continued ({}); they are set aside as {}",
        shard.display(),
        results::printable(&failure.to_string()),
        aside.display()
    ));
    files::rename(shard, &aside).map_err(|error| Failure::about(shard, error))
}

fn note(definition: &Definition, store: &Store) -> Result<String, Failure> {
    Ok(format!("{:#}\n", status::document(definition, &gathered(definition, Some(store))?)))
}
