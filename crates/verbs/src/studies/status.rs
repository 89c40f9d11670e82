//! Shows which parts of a study are done, which are missing, and why.

use std::path::Path;

use results::grid;
use serde_json::{Value, json};
use study_files::definition::{Definition, HOST, Size};

use super::arguments::{Run, Status};
use super::counted::CountedState;
use super::gathered::{Gathered, gathered};
use super::model::ModelRow;
use super::outlook::remaining_s;
use super::plan::{HostRow, Progress, max_time_s};
use super::slurm::{self, TaskState};
use super::{inputs, source};
use crate::failure::Failure;
use crate::output::{find_store, folded, print, terminal_width};

/// The machine of counted rows, whose counts are the same on any machine.
const COUNTED: &str = "any";

/// Lists the available studies.
///
/// # Errors
/// A study is invalid.
pub fn list(json: bool) -> Result<(), Failure> {
    let studies = source::all()?.into_iter().map(|source| source.of_size(Size::Standard));
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
/// The study does not exist, or the store cannot be read.
pub fn status(arguments: &Status) -> Result<(), Failure> {
    let definition = arguments.which.definition()?;
    let store = find_store(arguments.which.store.as_deref())?.ok();
    let gathered = gathered(&definition, store.as_ref())?;
    let tasks = slurm::task_states(&definition, &arguments.which)?;
    if arguments.json {
        let mut document = document(&definition, &gathered);
        document["tasks"] = tasks.iter().map(of_task).collect();
        return print(&format!("{document:#}"), true);
    }
    let text = text(&definition, &gathered);
    if tasks.is_empty() { print(&text, false) } else { print(&format!("{text}\n\n{}", of_tasks(&tasks)), false) }
}

fn of_task(task: &TaskState) -> Value {
    let TaskState { task, workload, machines, state, why } = task;
    json!({ "task": task, "workload": workload, "machines": machines, "state": state, "why": why })
}

fn of_tasks(tasks: &[TaskState]) -> String {
    let row = |task: &TaskState| {
        let (number, machines) = (task.task.to_string(), task.machines.join(", "));
        [number, task.workload.clone(), machines, task.state.to_owned(), task.why.clone()]
    };
    let table =
        grid::last_folded(["task", "workload", "machine", "state", "why"], tasks.iter().map(row), terminal_width());
    format!("tasks of Slurm:\n{table}")
}

/// The states of a study's rows, as a document.
pub fn document(definition: &Definition, gathered: &Gathered<'_>) -> Value {
    let row = |row: &HostRow<'_>| {
        let (state, comparison, why) = state_of(&row.progress);
        json!({
            "workload": row.workload.name, "machine": HOST, "state": state, "comparison": comparison, "why": why,
            "compare": row.compare_arguments.as_ref().map(|compare_arguments| &compare_arguments.words).ok(),
        })
    };
    let on_model = |row: &ModelRow| {
        let (state, why) = row.state();
        json!({
            "workload": row.workload.name, "machine": row.machine, "state": state, "comparison": null, "why": why,
            "compare": null,
        })
    };
    let of_counted = |counted: &CountedState<'_>| {
        let (state, why) = counted.state();
        json!({
            "workload": counted.name(), "machine": COUNTED, "state": state, "comparison": null, "why": why,
            "compare": null,
        })
    };
    let rows = gathered.on_hosts.iter().map(row).chain(gathered.on_models.iter().map(on_model));
    let rows = rows.chain(gathered.counted.iter().map(of_counted));
    json!({
        "schema": "pagelab.study-status/1",
        "study": definition.name,
        "size": definition.size.name(),
        "rows": rows.collect::<Vec<_>>(),
        "missing": gathered.missing,
        "lacking": gathered.lacking,
    })
}

/// The state in a word, the comparison's number, and the reason for the state.
fn state_of(progress: &Progress) -> (&'static str, Option<i64>, String) {
    match progress {
        Progress::Refused(why) => ("cannot be run", None, why.clone()),
        Progress::Missing => ("missing", None, "not run yet".to_owned()),
        Progress::Unmade(why) => ("missing", None, why.clone()),
        Progress::Rebuilt { id, program } => {
            ("missing", Some(*id), format!("comparison {id} measured another build of {program}"))
        }
        Progress::Interrupted { id, trials } => ("interrupted", Some(*id), format!("after {trials} trials")),
        Progress::Done { id } => ("done", Some(*id), String::new()),
        Progress::Failed { id, why } => ("failed", Some(*id), why.clone()),
    }
}

fn text(definition: &Definition, gathered: &Gathered<'_>) -> String {
    let row = |row: &HostRow<'_>| {
        let (state, id, why) = state_of(&row.progress);
        let id = id.map(|id| id.to_string()).unwrap_or_default();
        [row.workload.name.clone(), HOST.to_owned(), state.to_owned(), id, why]
    };
    let on_model = |row: &ModelRow| {
        let (state, why) = row.state();
        [row.workload.name.clone(), row.machine.clone(), state.to_owned(), String::new(), why]
    };
    let header = ["workload", "machine", "state", "comparison", "why"];
    let of_counted = |counted: &CountedState<'_>| {
        let (state, why) = counted.state();
        [counted.name(), COUNTED.to_owned(), state.to_owned(), String::new(), why]
    };
    let rows = gathered.on_hosts.iter().map(row).chain(gathered.on_models.iter().map(on_model));
    let rows = rows.chain(gathered.counted.iter().map(of_counted));
    let table = grid::last_folded(header, rows, terminal_width());
    let lacking = gathered.lacking.as_ref().map(|lacking| format!("\n{}", folded(lacking.clone())));
    format!("{}\n{table}\n{}{}", headline(definition), counted(gathered), lacking.unwrap_or_default())
}

fn headline(definition: &Definition) -> String {
    let question = results::printable(&definition.question);
    format!("study {} ({}): {question}", definition.name, definition.size.name())
}

fn counted(gathered: &Gathered<'_>) -> String {
    let done = gathered.on_hosts.iter().filter(|row| matches!(row.progress, Progress::Done { .. })).count();
    let simulated = gathered.on_models.iter().filter(|row| row.state().0 == "done").count();
    let counted = gathered.counted.iter().filter(|counted| counted.state().0 == "done").count();
    let all = gathered.on_hosts.len() + gathered.on_models.len() + gathered.counted.iter().count();
    let missing = if gathered.missing.is_empty() {
        String::new()
    } else {
        format!("; missing: {}", results::printable(&gathered.missing.join("; ")))
    };
    format!("{} of {all} rows are done{missing}", done + simulated + counted)
}

/// Prints what would be run, and the maximum time. `shares`: the workloads share the time of the study.
///
/// # Errors
/// Standard output cannot be written.
pub fn planned(definition: &Definition, gathered: &Gathered<'_>, shares: bool) -> Result<(), Failure> {
    let row = |row: &HostRow<'_>| {
        let takes = if shares && row.progress.is_unfinished() {
            format!("{}, shared", minutes(max_time_s(definition)))
        } else {
            format!("at most {}", minutes(row.max_remaining_s(definition)))
        };
        let what = match (&row.progress, &row.compare_arguments) {
            (progress, Ok(compare_arguments)) if progress.is_unfinished() => {
                let made = if inputs::has_unmade(row.workload) { "make its input, then " } else { "" };
                format!("{made}pagelab compare {}", results::command_line(&compare_arguments.words))
            }
            (progress, _) => {
                let (state, _, why) = state_of(progress);
                [state, &why].join(": ").trim_end_matches(": ").to_owned()
            }
        };
        [row.workload.name.clone(), HOST.to_owned(), takes, what]
    };
    let estimated_s = |row: &ModelRow| row.estimated_s(definition, &gathered.on_models);
    let on_model = |row: &ModelRow| {
        let (state, why) = row.state();
        let what = match &row.workload.trace {
            _ if !row.is_missing() => format!("{state}: {why}").trim_end_matches(": ").to_owned(),
            Some(trace) if Path::new(trace).exists() => format!("simulate {trace}"),
            Some(_) => format!("{state}: {why}"),
            None => "record and simulate".to_owned(),
        };
        let takes = match (row.is_missing(), estimated_s(row)) {
            (false, _) => String::new(),
            (true, None) => "not estimated".to_owned(),
            (true, Some(took_s)) => format!("about {}", minutes(took_s)),
        };
        [row.workload.name.clone(), row.machine.clone(), takes, what]
    };
    let of_counted = |counted: &CountedState<'_>| {
        let (state, why) = counted.state();
        let what = if state == "done" { state.to_owned() } else { format!("count: {why}") };
        [counted.name(), COUNTED.to_owned(), String::new(), what]
    };
    let rows = gathered.on_hosts.iter().map(row).chain(gathered.on_models.iter().map(on_model));
    let rows = rows.chain(gathered.counted.iter().map(of_counted));
    let table = grid::last_folded(["workload", "machine", "takes", "what"], rows, terminal_width());
    let all_s = if shares {
        remaining_s(definition, &gathered.on_hosts)
    } else {
        gathered.on_hosts.iter().map(|row| row.max_remaining_s(definition)).sum()
    };
    let all = format!("at most {}", minutes(all_s));
    let how = if shares && all_s > 0.0 { ", in rounds, and less if the answer is decided before" } else { "" };
    let measured = (!gathered.on_hosts.is_empty()).then(|| format!("; the remaining measurements take {all}{how}"));
    let left: Vec<&ModelRow> = gathered.on_models.iter().filter(|row| row.is_missing()).collect();
    let rows = if left.len() == 1 { "row" } else { "rows" };
    let takes = match left.iter().map(|row| estimated_s(row)).sum::<Option<f64>>() {
        Some(all_s) => format!("takes about {}, as earlier simulations of the study did", minutes(all_s)),
        None => "is not estimated: no earlier simulation of the study recorded how long it took".to_owned(),
    };
    let simulated = (!left.is_empty()).then(|| format!("; to record and simulate {} {rows} {takes}", left.len()));
    let left = [measured, simulated].into_iter().flatten().collect::<String>();
    print(&format!("{}\n{table}\n{}{left}", headline(definition), counted(gathered)), false)
}

fn minutes(seconds: f64) -> String {
    format!("{} min", (seconds / 60.0).ceil())
}

/// Prints the progress of a study, and the command that shows the results.
///
/// # Errors
/// Selected rows have no result.
pub fn summary(gathered: &Gathered<'_>, arguments: &Run) -> Result<(), Failure> {
    let which = arguments.which.words();
    print(&format!("{}; `pagelab study report {which}` shows the results", counted(gathered)), false)?;
    gathered.lacking.as_ref().map_or(Ok(()), |lacking| print(&folded(lacking.clone()), false))?;
    let of_hosts = |is: fn(&Progress) -> bool| -> Vec<&str> {
        let named =
            gathered.on_hosts.iter().filter(|row| is(&row.progress) && arguments.is_selected(&row.workload.name));
        named.map(|row| row.workload.name.as_str()).collect()
    };
    let failed = of_hosts(|progress| matches!(progress, Progress::Failed { .. }));
    let left = of_hosts(Progress::is_unfinished);
    let unsimulated =
        gathered.on_models.iter().filter(|row| row.is_missing() && arguments.is_selected(&row.workload.name)).count();
    let mut without = Vec::new();
    if !failed.is_empty() {
        without.push(format!(
            "no result of {}; `pagelab study status {which}` says why, `study run --again` runs them again",
            failed.join(", ")
        ));
    }
    if !left.is_empty() {
        without.push(format!("no result yet of {}; the reasons are above", left.join(", ")));
    }
    if unsimulated > 0 {
        let rows = if unsimulated == 1 { "row" } else { "rows" };
        without.push(format!("{unsimulated} {rows} could not be simulated; `pagelab study status {which}` says why"));
    }
    if without.is_empty() { Ok(()) } else { Err(Failure::Command(without.join("; "))) }
}
