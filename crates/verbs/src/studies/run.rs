//! `pagelab study run`: runs the missing parts of a study, in rounds or one workload after the other.

use host::Host;
use results::store::Store;
use study::comparison::Ended;
use study_files::definition::Definition;

use super::arguments::Run;
use super::counted::CountedState;
use super::gathered::gathered;
use super::guest_boots::are_guests;
use super::measuring::{Part, is_wanted, latest, measure, of_row, report_failure};
use super::plan::{HostRow, has_rounds, host_rows, max_time_s};
use super::{guests, inputs, model, over_boots, rounds, status};
use crate::failure::{Failure, report};
use crate::output::{find_store, open_store};

/// Runs `pagelab study run`.
///
/// # Errors
/// The study is invalid or is already running, a signal arrived, or rows have no result.
pub fn run(arguments: &Run) -> Result<(), Failure> {
    let definition = arguments.which.definition()?;
    arguments.refuse_unknown_names(&definition)?;
    warn_if_unmatched(&definition)?;
    if arguments.dry_run {
        let store = find_store(arguments.which.store.as_deref())?.ok();
        let shares = has_rounds(&definition) && !arguments.no_rounds;
        return status::planned(&definition, &gathered(&definition, store.as_ref())?, shares);
    }
    run_in(&definition, arguments, &open_store(arguments.which.store.as_deref())?)
}

/// Warns if this boot matches none of the study's boots, or several: its results cannot be compared with those of other
/// boots.
fn warn_if_unmatched(definition: &Definition) -> Result<(), Failure> {
    if are_guests(definition) {
        return Ok(());
    }
    let machine = Host::open("/").and_then(|host| host.machine()).map_err(Failure::input)?;
    for what in over_boots::unmatched(definition, [&machine]) {
        report(format_args!("study {}: now: {}", definition.name, results::printable(&what)));
    }
    Ok(())
}

/// Runs the parts that a store lacks.
///
/// # Errors
/// As [`run`].
pub fn run_in(definition: &Definition, arguments: &Run, store: &Store) -> Result<(), Failure> {
    let _held = store.lock_study(&definition.name).map_err(Failure::input)?;
    let mut rows = host_rows(definition, Some(store))?;
    let on_models = model::rows(definition, Some(store))?;
    if let Some(counted) = CountedState::of(definition, Some(store))?.filter(|_| arguments.only.is_empty()) {
        counted.run(definition, store)?;
    }
    if has_rounds(definition) && !arguments.no_rounds {
        rounds::run(definition, arguments, store, &mut rows)?;
    } else {
        run_each(definition, arguments, store, &rows)?;
    }
    model::run(definition, &on_models, arguments, store)?;
    status::summary(&gathered(definition, Some(store))?, arguments)
}

/// Runs the rows one after the other, each to its own end.
fn run_each(definition: &Definition, arguments: &Run, store: &Store, rows: &[HostRow<'_>]) -> Result<(), Failure> {
    let is_next = |row: &&HostRow<'_>| is_wanted(row, arguments) || has_more_time(definition, row, arguments);
    let wanted: Vec<&HostRow<'_>> = rows.iter().filter(is_next).collect();
    let guests = guests::open(definition, !wanted.is_empty(), store)?;
    let last = latest(rows, store)?.map(|at| &rows[at].workload.name);
    for (at, row) in wanted.iter().enumerate() {
        let name = results::printable(&row.workload.name);
        report(format_args!("study {}: workload {} of {}: {name}", definition.name, at + 1, wanted.len()));
        if let Some(guests) = &guests {
            inputs::prepare(row.workload)?;
            guests.measure(definition, row, of_row(definition, row), store)?;
            continue;
        }
        let part = Part { pause: None, is_last: at == 0 && last == Some(&row.workload.name) };
        report_failure(definition, row, measure(definition, row, arguments, store, part).1)?;
    }
    Ok(())
}

/// Whether a row's time was up, and the file now gives it more.
fn has_more_time(definition: &Definition, row: &HostRow<'_>, arguments: &Run) -> bool {
    // A comparison ends a little before its time is up, because it begins no block that late.
    let is_early = row.time_s() < 0.9 * max_time_s(definition);
    let is_up = row.current().is_some_and(|comparison| comparison.ended == Ended::Time);
    has_rounds(definition) && arguments.is_selected(&row.workload.name) && is_up && is_early
}
