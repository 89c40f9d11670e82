//! Runs one task of a study on the node that Slurm assigned.

use std::path::Path;

use results::files;
use results::store::Store;
use study::definition::Definition;

use super::shards::{Shards, is_there, own_directory, working_copy};
use super::tasks::tasks;
use crate::failure::{Failure, report};
use crate::output::open;
use crate::studies::arguments::Run;
use crate::studies::gathered::gathered;
use crate::studies::{merge, run, status};

/// Runs a task and publishes its shard, even if it fails. It resumes from the results of an earlier attempt.
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
    shards.make()?;
    let own = own_directory(&format!("{}-{number}", shards.stem))?;
    let store = open(&own.join("results.sqlite"))?;
    go_on(&shards.shard(number), &own, &store)?;
    let definition = task.definition(&definition);
    report(format_args!("study {}: {}, in {}", definition.name, task.describe(), own.display()));
    let ran = run::of(&definition, arguments, &store);
    let note = note(&definition, &store);
    let whole = store.close().map_err(Failure::input)?;
    shards.publish(number, &whole, &note?)?;
    report(format_args!("study {}: {} holds it", definition.name, shards.shard(number).display()));
    files::remove_tree(&own).map_err(|error| Failure::about(&own, error))?;
    ran
}

/// Copies the results of an earlier attempt on any node. A damaged shard is set aside and not resumed.
fn go_on(shard: &Path, own: &Path, store: &Store) -> Result<(), Failure> {
    if !is_there(shard)? {
        return Ok(());
    }
    let copy = own.join("earlier.sqlite");
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
