//! What of a study is done, what is missing, and why.

use results::grid;
use serde_json::{Value, json};
use study::definition::{Definition, HOST, Size};

use super::arguments::{Status, Which};
use super::plan::{HostRow, Progress, host_rows};
use super::source;
use crate::failure::Failure;
use crate::output::{find_store, print, terminal_width};

/// Shows the studies that there are.
///
/// # Errors
/// One of them makes no sense.
pub fn list(json: bool) -> Result<(), Failure> {
    let studies = source::all().into_iter().map(|source| source.of_size(Size::Full));
    let studies = studies.collect::<Result<Vec<Definition>, Failure>>()?;
    if json {
        let study = |one: &Definition| {
            json!({
                "name": one.name,
                "question": one.question,
                "policies": one.policies,
                "machines": one.machines,
                "workloads": one.workloads.iter().map(|workload| &workload.name).collect::<Vec<_>>(),
            })
        };
        let studies: Vec<Value> = studies.iter().map(study).collect();
        return print(&format!("{:#}", json!({ "schema": "pagelab.study-list/1", "studies": studies })), true);
    }
    let rows = studies.into_iter().map(|one| [one.name, one.workloads.len().to_string(), one.question]);
    print(&grid::last_folded(["study", "workloads", "question"], rows, terminal_width()), false)
}

/// Runs `pagelab study status`.
///
/// # Errors
/// There is no such study, or the store cannot be read.
pub fn status(arguments: &Status) -> Result<(), Failure> {
    let definition = arguments.which.definition()?;
    let store = find_store(arguments.which.store.as_deref())?.ok();
    let rows = host_rows(&definition, store.as_ref())?;
    match arguments.json {
        true => print(&format!("{:#}", document(&definition, &rows)), true),
        false => print(&text(&definition, &rows), false),
    }
}

fn document(definition: &Definition, rows: &[HostRow<'_>]) -> Value {
    let row = |row: &HostRow<'_>| {
        let (state, comparison, why) = told(&row.progress);
        json!({
            "workload": row.workload.name, "machine": HOST, "state": state, "comparison": comparison, "why": why,
            "compare": row.lowered.as_ref().map(|lowered| &lowered.words).ok(),
        })
    };
    json!({
        "schema": "pagelab.study-status/1",
        "study": definition.name,
        "size": definition.size.name(),
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

/// A word, the comparison's number, and the reason.
fn told(progress: &Progress) -> (&'static str, Option<i64>, String) {
    match progress {
        Progress::Refused(why) => ("cannot be run", None, why.clone()),
        Progress::Missing => ("missing", None, "nothing of it has been run".to_owned()),
        Progress::Interrupted { id, trials } => ("interrupted", Some(*id), format!("after {trials} trials")),
        Progress::Done { id } => ("done", Some(*id), String::new()),
        Progress::Failed { id, why } => ("failed", Some(*id), why.clone()),
    }
}

fn text(definition: &Definition, rows: &[HostRow<'_>]) -> String {
    let row = |row: &HostRow<'_>| {
        let (state, id, why) = told(&row.progress);
        let id = id.map(|id| id.to_string()).unwrap_or_default();
        [row.workload.name.clone(), HOST.to_owned(), state.to_owned(), id, why]
    };
    let header = ["workload", "machine", "state", "comparison", "why"];
    let table = grid::last_folded(header, rows.iter().map(row), terminal_width());
    format!("{}\n{table}\n{}", headline(definition), counted(rows))
}

fn headline(definition: &Definition) -> String {
    format!("study {} ({}): {}", definition.name, definition.size.name(), definition.question)
}

fn counted(rows: &[HostRow<'_>]) -> String {
    let done = rows.iter().filter(|row| matches!(row.progress, Progress::Done { .. })).count();
    format!("{done} of {} rows are done", rows.len())
}

/// Prints what would be run, and how long that takes at most.
///
/// # Errors
/// Standard output cannot be written.
pub fn planned(definition: &Definition, rows: &[HostRow<'_>]) -> Result<(), Failure> {
    let row = |row: &HostRow<'_>| {
        let most =
            row.most_s(definition).map_or("no limit".to_owned(), |most_s| format!("{} min", (most_s / 60.0).ceil()));
        let what = match (&row.progress, &row.lowered) {
            (Progress::Missing | Progress::Interrupted { .. }, Ok(lowered)) => {
                let words = lowered.words.iter().map(String::as_str);
                format!("pagelab compare {}", shlex::try_join(words).unwrap_or_default())
            }
            (progress, _) => {
                let (state, _, why) = told(progress);
                [state, &why].join(": ").trim_end_matches(": ").to_owned()
            }
        };
        [row.workload.name.clone(), HOST.to_owned(), most, what]
    };
    let table = grid::last_folded(["workload", "machine", "at most", "what"], rows.iter().map(row), terminal_width());
    let all_s = rows.iter().map(|row| row.most_s(definition)).sum::<Option<f64>>();
    let all = all_s.map_or("without a limit".to_owned(), |all_s| format!("at most {} min", (all_s / 60.0).ceil()));
    print(&format!("{}\n{table}\n{}; what is left takes {all}", headline(definition), counted(rows)), false)
}

/// Says how far a study is, and how it is shown.
///
/// # Errors
/// Rows that have no result.
pub fn summary(rows: &[HostRow<'_>], which: &Which) -> Result<(), Failure> {
    print(&format!("{}; `pagelab study report {}` shows what they say", counted(rows), which.words()), false)?;
    let without: Vec<&str> = rows
        .iter()
        .filter(|row| matches!(row.progress, Progress::Failed { .. }))
        .map(|row| row.workload.name.as_str())
        .collect();
    match without.is_empty() {
        true => Ok(()),
        false => Err(Failure::Command(format!(
            "no result of {}; `pagelab study status {}` says why, `study run --again` runs them again",
            without.join(", "),
            which.words()
        ))),
    }
}
