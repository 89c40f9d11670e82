//! `pagelab study run`: runs what is missing, one workload after the other.

use std::time::{SystemTime, UNIX_EPOCH};

use host::Host;
use results::store::{OfStudy, Store};
use study::definition::Definition;

use super::arguments::Run;
use super::counted::CountedState;
use super::gathered::gathered;
use super::guest_boots::are_guests;
use super::lowered::lowered;
use super::plan::{HostRow, Progress, host_rows};
use super::programs::Subject;
use super::{guests, inputs, model, over_boots, status};
use crate::compare::in_study;
use crate::compare::resumed::InStudy;
use crate::failure::{Failure, report};
use crate::output::{find_store, open_store};
use crate::publish::first_of;

/// Runs `pagelab study run`.
///
/// # Errors
/// The study is invalid or is already running, a signal arrived, or rows have no result.
pub fn run(arguments: &Run) -> Result<(), Failure> {
    let definition = arguments.which.definition()?;
    arguments.names_some(&definition)?;
    of_this_boot(&definition)?;
    if arguments.dry_run {
        let store = find_store(arguments.which.store.as_deref())?.ok();
        return status::planned(&definition, &gathered(&definition, store.as_ref())?);
    }
    of(&definition, arguments, &open_store(arguments.which.store.as_deref())?)
}

/// Warns if this boot matches several of the study's boots, or none: its results are then not compared with those of other
/// boots.
fn of_this_boot(definition: &Definition) -> Result<(), Failure> {
    if are_guests(definition) {
        return Ok(());
    }
    let machine = Host::open("/").and_then(|host| host.machine()).map_err(Failure::input)?;
    for what in over_boots::unplaced(definition, [&machine]) {
        report(format_args!("study {}: now: {}", definition.name, results::printable(&what)));
    }
    Ok(())
}

/// Runs what is missing from a store.
///
/// # Errors
/// As [`run`].
pub fn of(definition: &Definition, arguments: &Run, store: &Store) -> Result<(), Failure> {
    let _held = store.hold(&definition.name).map_err(Failure::input)?;
    let rows = host_rows(definition, Some(store))?;
    let on_models = model::rows(definition, Some(store))?;
    if let Some(counted) = CountedState::of(definition, Some(store))?.filter(|_| arguments.only.is_empty()) {
        counted.run(definition, store)?;
    }
    let wanted: Vec<&HostRow<'_>> = rows.iter().filter(|row| is_wanted(row, arguments)).collect();
    let guests = guests::open(definition, !wanted.is_empty(), store)?;
    for (at, row) in wanted.iter().enumerate() {
        let name = results::printable(&row.workload.name);
        report(format_args!("study {}: workload {} of {}: {name}", definition.name, at + 1, wanted.len()));
        if let Some(guests) = &guests {
            inputs::ready(row.workload)?;
            guests.measure(definition, row, of_row(definition, row), store)?;
            continue;
        }
        match measured(definition, row, arguments, store) {
            Err(stopped @ (Failure::Interrupted(_) | Failure::Stopped(..))) => return Err(stopped),
            Err(failure) => {
                let what = results::printable(&failure.to_string());
                report(format_args!("study {}: {name}: {what}", definition.name));
            }
            Ok(()) => {}
        }
    }
    model::run(definition, &on_models, arguments, store)?;
    status::summary(&gathered(definition, Some(store))?, arguments)
}

/// Whether a row is selected and has something left to run.
fn is_wanted(row: &HostRow<'_>, arguments: &Run) -> bool {
    arguments.is_named(&row.workload.name)
        && match row.progress {
            Progress::Missing | Progress::Unmade(_) | Progress::Rebuilt { .. } | Progress::Interrupted { .. } => true,
            Progress::Failed { .. } => arguments.again,
            Progress::Done { .. } => arguments.each_boot && row.is_new_boot,
            Progress::Refused(_) => false,
        }
}

/// Measures a workload under all policies.
fn measured(definition: &Definition, row: &HostRow<'_>, arguments: &Run, store: &Store) -> Result<(), Failure> {
    let Ok(planned) = &row.lowered else { return Ok(()) };
    inputs::ready(row.workload)?;
    // Built again, now with the paths of inputs that were just made.
    let lowered = lowered(definition, row.workload).unwrap_or_else(|_| planned.clone());
    let started_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let of = of_row(definition, row);
    let study = InStudy { of, resumed: row.resumed(store, started_unix_s)? };
    let kept_in = ["--store".to_owned(), store.path().to_string_lossy().into_owned()];
    let words: Vec<String> = arguments.added().into_iter().chain(kept_in).chain(lowered.words).collect();
    let ran = in_study::run(&words, store, study);
    let cleared = inputs::clear(row.workload);
    let (measured, exit) = ran?;
    first_of(exit.err().into_iter().chain(measured.troubles).chain(cleared.err()))
}

/// The identity of a row's comparison in its study.
fn of_row(definition: &Definition, row: &HostRow<'_>) -> OfStudy {
    let compare = row.lowered.as_ref().map(|lowered| lowered.subject.clone()).unwrap_or_default();
    OfStudy {
        study: definition.name.clone(),
        workload: row.workload.name.clone(),
        subject: Subject { compare, programs: row.programs.clone() }.text(),
    }
}
