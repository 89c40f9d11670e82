//! Measures a row of a study on the host, or a part of it.

use std::time::{SystemTime, UNIX_EPOCH};

use results::store::{OfStudy, Store};
use study::comparison::Comparison;
use study::runner::{Gap, Pause};
use study_files::definition::Definition;

use super::arguments::Run;
use super::inputs;
use super::lowered::compare_arguments;
use super::plan::{HostRow, Progress};
use super::programs::HostSubject;
use crate::compare::in_study;
use crate::compare::resumed::InStudy;
use crate::failure::{Failure, report};
use crate::publish::first_failure;

/// Reports the failure of a row. Only a signal is returned as an error, because only a signal ends the study.
///
/// # Errors
/// A signal arrived.
pub fn report_failure(definition: &Definition, row: &HostRow<'_>, ran: Result<(), Failure>) -> Result<(), Failure> {
    match ran {
        Err(stopped @ (Failure::Interrupted(_) | Failure::Stopped(..))) => return Err(stopped),
        Err(failure) => {
            let (name, what) = (results::printable(&row.workload.name), failure.to_string());
            report(format_args!("study {}: {name}: {}", definition.name, results::printable(&what)));
        }
        Ok(()) => {}
    }
    Ok(())
}

/// Whether a row is selected and has something left to run.
pub fn is_wanted(row: &HostRow<'_>, arguments: &Run) -> bool {
    arguments.is_selected(&row.workload.name)
        && match row.progress {
            Progress::Missing | Progress::Unmade(_) | Progress::Rebuilt { .. } | Progress::Interrupted { .. } => true,
            Progress::Failed { .. } => arguments.again,
            Progress::Done { .. } => is_new(row, arguments),
            Progress::Refused(_) => false,
        }
}

/// Whether a finished row is measured again because this boot is new.
fn is_new(row: &HostRow<'_>, arguments: &Run) -> bool {
    arguments.each_boot && row.is_new_boot && matches!(row.progress, Progress::Done { .. })
}

/// A part of a row's comparison.
#[derive(Clone, Copy)]
pub struct Part {
    /// When the comparison pauses; `None` if it runs to its end.
    pub pause: Option<Pause>,
    /// Whether this row was the last one measured, so that nothing else ran since its last trial.
    pub is_last: bool,
}

/// The row that was measured last, if known.
///
/// # Errors
/// The store cannot be read.
pub fn latest(rows: &[HostRow<'_>], store: &Store) -> Result<Option<usize>, Failure> {
    let mut started: Vec<(i64, usize)> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let Some(comparison) = row.current() else { continue };
        let resumptions = store.resumptions(comparison.id).map_err(Failure::input)?;
        let last = resumptions.last().map_or(comparison.started_unix_s, |resumption| resumption.started_unix_s);
        started.push((last, at));
    }
    let last = started.iter().max().copied();
    Ok(last.filter(|last| started.iter().filter(|one| one.0 == last.0).count() == 1).map(|(_, at)| at))
}

/// Measures a workload under all policies, or resumes an interrupted comparison. Returns the comparison, unless it could not be
/// stored completely, and the result of the run.
pub fn measure(
    definition: &Definition,
    row: &HostRow<'_>,
    arguments: &Run,
    store: &Store,
    part: Part,
) -> (Option<Comparison>, Result<(), Failure>) {
    match try_measure(definition, row, arguments, store, part) {
        Ok((comparison, ran)) => (comparison, ran),
        Err(failure) => (None, Err(failure)),
    }
}

type Outcome = (Option<Comparison>, Result<(), Failure>);

fn try_measure(
    definition: &Definition,
    row: &HostRow<'_>,
    arguments: &Run,
    store: &Store,
    part: Part,
) -> Result<Outcome, Failure> {
    let Ok(planned) = &row.compare_arguments else { return Ok((None, Ok(()))) };
    inputs::prepare(row.workload)?;
    // The arguments are made again, because the paths of inputs are known only now.
    let compare_arguments = compare_arguments(definition, row.workload).unwrap_or_else(|_| planned.clone());
    let started_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let gap = if part.is_last { Gap::Nothing } else { Gap::Others };
    let resumed = row.open().filter(|_| !is_new(row, arguments)).cloned();
    let resumed = resumed.map(|comparison| row.resumed(comparison, gap, store, started_unix_s)).transpose()?;
    let study = InStudy { of: of_row(definition, row), resumed, pause: part.pause };
    let kept_in = ["--store".to_owned(), store.path().to_string_lossy().into_owned()];
    let words: Vec<String> = arguments.added().into_iter().chain(kept_in).chain(compare_arguments.words).collect();
    let ran = in_study::run(&words, store, study);
    let cleared = inputs::remove_trial_copies(row.workload);
    let (measured, exit) = ran?;
    let comparison = Some(measured.comparison).filter(|_| measured.troubles.is_empty());
    let failures = exit.err().into_iter().chain(measured.troubles).chain(cleared.err());
    Ok((comparison, first_failure(failures)))
}

/// The identity of a row's comparison in its study.
pub fn of_row(definition: &Definition, row: &HostRow<'_>) -> OfStudy {
    let compare =
        row.compare_arguments.as_ref().map(|compare_arguments| compare_arguments.subject.clone()).unwrap_or_default();
    OfStudy {
        study: definition.name.clone(),
        workload: row.workload.name.clone(),
        subject: HostSubject { compare, programs: row.programs.clone() }.text(),
    }
}
