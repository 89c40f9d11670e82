//! The tasks of a study, each for one node at a time. Their numbers depend only on the study's file and size.

use results::store::Store;
use study::comparison::Comparison;
use study::definition::{Definition, HOST, Workload};

use crate::failure::Failure;
use crate::studies::lowered::{is_over_boots, lowered};
use crate::studies::model::{self, ModelRow, Progress as Simulated};
use crate::studies::plan::{Progress, ended, host_rows};

/// All blocks of a workload on one node, or its simulations.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its index in the array.
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
    /// The task has begun, or has left no results, for this reason.
    Left(String),
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
        let measured = definition.workloads.iter().filter(|workload| lowered(definition, workload).is_ok());
        tasks.extend(measured.map(|workload| (workload.clone(), vec![HOST.to_owned()])));
    }
    let models: Vec<String> = definition.machines.iter().filter(|machine| *machine != HOST).cloned().collect();
    for workload in definition.workloads.iter().filter(|workload| model::never(definition, workload).is_none()) {
        match &workload.trace {
            // An existing trace is simulated on each machine in a separate task. A workload that must be recorded first has
            // one task, so that it is recorded once.
            Some(_) => tasks.extend(models.iter().map(|machine| (workload.clone(), vec![machine.clone()]))),
            None if models.is_empty() => {}
            None => tasks.push((workload.clone(), models.clone())),
        }
    }
    let numbered = tasks.into_iter().enumerate();
    Ok(numbered.map(|(number, (workload, machines))| Task { number, workload, machines }).collect())
}

impl Task {
    /// Whether it measures, and so needs a node exclusively.
    pub fn is_measured(&self) -> bool {
        self.machines.iter().any(|machine| machine == HOST)
    }

    /// The study reduced to this task.
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
            return Ok(anywhere(rows.first().map(|row| row.stored.as_slice()).unwrap_or_default()));
        }
        let rows = model::rows(&definition, store)?;
        Ok(simulated(&rows))
    }
}

/// The state of simulations, on any node.
fn simulated(rows: &[ModelRow]) -> State {
    let failed = rows.iter().find_map(|row| match &row.progress {
        Simulated::Failed(why) => Some(State::Failed(why.clone())),
        Simulated::Refused(_) | Simulated::Missing(_) | Simulated::Done => None,
    });
    let missing = rows.iter().filter(|row| row.progress != Simulated::Done);
    let missing: Vec<&str> = missing.map(|row| row.machine.as_str()).collect();
    if missing.is_empty() {
        State::Done
    } else {
        failed.unwrap_or_else(|| State::Left(format!("not simulated yet on {}", missing.join(", "))))
    }
}

/// The best state that any node reached.
fn anywhere(stored: &[Comparison]) -> State {
    let all: Vec<Progress> = stored.iter().map(ended).collect();
    if all.iter().any(|one| matches!(one, Progress::Done { .. })) {
        return State::Done;
    }
    match all.last() {
        Some(Progress::Failed { why, .. }) => State::Failed(why.clone()),
        Some(Progress::Interrupted { trials, .. }) => State::Left(format!("it was interrupted after {trials} trials")),
        _ => State::Left("not measured yet".to_owned()),
    }
}
