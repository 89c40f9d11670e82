//! The tasks of a study ([`Task`]), each for one node at a time. Their numbers depend only on the study's file and
//! size.

use results::store::Store;
use study::comparison::{Comparison, Ended};
use study_files::definition::{Definition, HOST, Workload};

use crate::compare::resumed::time_s;
use crate::failure::Failure;
use crate::studies::lowered::{compare_arguments, is_over_boots};
use crate::studies::model::{self, ModelRow, Progress};
use crate::studies::plan::{self, ended, host_rows, max_time_s};

/// One workload: all its measured blocks on one node, or its simulations on some model machines.
#[derive(Clone, Debug)]
pub struct Task {
    /// The number of the task in the study.
    pub number: usize,
    /// The workload to run.
    pub workload: Workload,
    /// Where to run it: the host alone, or model machines.
    pub machines: Vec<String>,
}

/// The state of a task, on any node.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// The task is done.
    Done,
    /// The task ended without a result, for this reason.
    Failed(String),
    /// The task must still run, or continue; the text says why.
    Unfinished(String),
}

/// The tasks of a study: first those that measure, then those that simulate.
///
/// # Errors
/// The study cannot run as a job array.
pub fn tasks(definition: &Definition) -> Result<Vec<Task>, Failure> {
    if is_over_boots(definition) {
        return Err(Failure::Input(
            "this study compares boots, and no job array boots its nodes: run it on a node of each boot without Slurm, and merge the stores"
                .to_owned(),
        ));
    }
    let mut tasks: Vec<(Workload, Vec<String>)> = Vec::new();
    if definition.machines.iter().any(|machine| machine == HOST) {
        let measured = definition.workloads.iter().filter(|workload| compare_arguments(definition, workload).is_ok());
        tasks.extend(measured.map(|workload| (workload.clone(), vec![HOST.to_owned()])));
    }
    let models: Vec<String> = definition.machines.iter().filter(|machine| *machine != HOST).cloned().collect();
    for workload in
        definition.workloads.iter().filter(|workload| model::why_never_simulated(definition, workload).is_none())
    {
        match &workload.trace {
            // A trace that the study names is simulated on each machine in a task of its own. A workload that must be recorded first
            // has a single task, so that it is recorded only once.
            Some(_) => tasks.extend(models.iter().map(|machine| (workload.clone(), vec![machine.clone()]))),
            None if models.is_empty() => {}
            None => tasks.push((workload.clone(), models.clone())),
        }
    }
    let numbered = tasks.into_iter().enumerate();
    Ok(numbered.map(|(number, (workload, machines))| Task { number, workload, machines }).collect())
}

impl Task {
    /// Whether the task measures, and so needs a node for itself.
    pub fn is_measured(&self) -> bool {
        self.machines.iter().any(|machine| machine == HOST)
    }

    /// The study, reduced to the part of this task.
    pub fn definition(&self, of: &Definition) -> Definition {
        Definition { workloads: vec![self.workload.clone()], machines: self.machines.clone(), ..of.clone() }
    }

    /// Describes the task.
    pub fn describe(&self) -> String {
        format!("task {}, {} on {}", self.number, results::printable(&self.workload.name), self.machines.join(", "))
    }

    /// The state of the task according to a store, on any node.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn state(&self, of: &Definition, store: Option<&Store>) -> Result<State, Failure> {
        let definition = self.definition(of);
        if self.is_measured() {
            let rows = host_rows(&definition, store)?;
            return Ok(best_state(rows.first().map(|row| row.stored.as_slice()).unwrap_or_default(), max_time_s(of)));
        }
        let rows = model::rows(&definition, store)?;
        Ok(simulation_state(&rows))
    }
}

/// The state of simulations, on any node.
fn simulation_state(rows: &[ModelRow]) -> State {
    let failed = rows.iter().find_map(|row| match &row.progress {
        Progress::Failed(why) => Some(State::Failed(why.clone())),
        Progress::Refused(_) | Progress::Missing(_) | Progress::Done => None,
    });
    let left = rows.iter().filter(|row| matches!(row.progress, Progress::Missing(_) | Progress::Refused(_)));
    let mut machines: Vec<&str> = left.map(|row| row.machine.as_str()).collect();
    machines.dedup();
    let left = State::Unfinished(format!("not simulated yet on {}", machines.join(", ")));
    let is_missing = rows.iter().any(|row| matches!(row.progress, Progress::Missing(_)));
    match failed {
        // A row that was never run takes precedence over one that failed.
        Some(failed) if !is_missing => failed,
        _ if machines.is_empty() => State::Done,
        _ => left,
    }
}

/// Whether a comparison ended because its time was up, and the study gives it more time now.
fn has_more_time(comparison: &Comparison, max_time_s: f64) -> bool {
    let is_raised = comparison.design.max_time_s.is_some_and(|before_s| before_s < max_time_s);
    // A comparison may end a little before its time is up, because it begins no block that late.
    comparison.ended == Ended::Time && is_raised && time_s(comparison) < 0.9 * max_time_s
}

/// Done if any comparison is done; otherwise the state of the latest comparison. Comparisons that the study now gives more time do
/// not count.
fn best_state(stored: &[Comparison], max_time_s: f64) -> State {
    let all: Vec<plan::Progress> = stored.iter().filter(|one| !has_more_time(one, max_time_s)).map(ended).collect();
    if all.iter().any(|one| matches!(one, plan::Progress::Done { .. })) {
        return State::Done;
    }
    match all.last() {
        Some(plan::Progress::Failed { why, .. }) => State::Failed(why.clone()),
        Some(plan::Progress::Interrupted { trials, .. }) => {
            State::Unfinished(format!("it was interrupted after {trials} trials"))
        }
        _ => State::Unfinished("not measured yet".to_owned()),
    }
}
