//! `pagelab study run`: what is missing, one workload after the other.

use std::time::{SystemTime, UNIX_EPOCH};

use results::store::{OfStudy, Store};
use study::definition::Definition;

use super::arguments::Run;
use super::gathered::gathered;
use super::lowered::lowered;
use super::plan::{HostRow, Progress, host_rows};
use super::programs::Subject;
use super::{inputs, model, status};
use crate::compare::gone_before::InStudy;
use crate::compare::in_study;
use crate::failure::{Failure, say};
use crate::output::{find_store, open_store};
use crate::publish::first_of;

/// Runs `pagelab study run`.
///
/// # Errors
/// The study makes no sense or is being run already; a signal; rows without a result.
pub fn run(arguments: &Run) -> Result<(), Failure> {
    let definition = arguments.which.definition()?;
    arguments.names_some(&definition)?;
    if arguments.dry_run {
        let store = find_store(arguments.which.store.as_deref())?.ok();
        return status::planned(&definition, &gathered(&definition, store.as_ref())?);
    }
    of(&definition, arguments, &open_store(arguments.which.store.as_deref())?)
}

/// Runs what a store lacks of a study.
///
/// # Errors
/// As [`run`].
pub fn of(definition: &Definition, arguments: &Run, store: &Store) -> Result<(), Failure> {
    let _held = store.hold(&definition.name).map_err(Failure::input)?;
    let rows = host_rows(definition, Some(store))?;
    let on_models = model::rows(definition, Some(store))?;
    let wanted: Vec<&HostRow<'_>> = rows.iter().filter(|row| is_wanted(row, arguments)).collect();
    for (at, row) in wanted.iter().enumerate() {
        let name = results::printable(&row.workload.name);
        say(format_args!("study {}: workload {} of {}: {name}", definition.name, at + 1, wanted.len()));
        match measured(definition, row, arguments, store) {
            Err(stopped @ (Failure::Interrupted(_) | Failure::Stopped(..))) => return Err(stopped),
            Err(failure) => {
                let what = results::printable(&failure.to_string());
                say(format_args!("study {}: {name}: {what}", definition.name));
            }
            Ok(()) => {}
        }
    }
    model::run(definition, &on_models, arguments, store)?;
    status::summary(&gathered(definition, Some(store))?, arguments)
}

/// Whether a row has something left to run.
fn is_wanted(row: &HostRow<'_>, arguments: &Run) -> bool {
    arguments.is_named(&row.workload.name)
        && match row.progress {
            Progress::Missing | Progress::Rebuilt { .. } | Progress::Interrupted { .. } => true,
            Progress::Failed { .. } => arguments.again,
            Progress::Done { .. } => arguments.each_boot && row.is_new_boot,
            Progress::Refused(_) => false,
        }
}

/// Measures a workload under all policies.
fn measured(definition: &Definition, row: &HostRow<'_>, arguments: &Run, store: &Store) -> Result<(), Failure> {
    let Ok(planned) = &row.lowered else { return Ok(()) };
    inputs::ready(row.workload)?;
    // The paths of inputs that were made just now.
    let lowered = lowered(definition, row.workload).unwrap_or_else(|_| planned.clone());
    let started_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let of = OfStudy {
        study: definition.name.clone(),
        workload: row.workload.name.clone(),
        subject: Subject::Built { compare: lowered.subject.clone(), programs: row.programs.clone() }.text(),
    };
    let study = InStudy { of, gone_before: row.gone_before(store, started_unix_s)? };
    let kept_in = ["--store".to_owned(), store.path().to_string_lossy().into_owned()];
    let words: Vec<String> = arguments.added().into_iter().chain(kept_in).chain(lowered.words).collect();
    let (measured, exit) = in_study::run(&words, store, study)?;
    first_of(exit.err().into_iter().chain(measured.troubles))
}
