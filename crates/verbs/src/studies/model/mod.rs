//! Rows of a study on model machines ([`ModelRow`]): each workload is recorded once, and simulated on every machine
//! under every policy.

mod estimate;
mod outcome;
mod recording;
mod subject;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use model::machine::Machine;
use model::policy::ModelPolicy;
use results::store::{OfStudy, Simulation, Store};
use study::metric::{Direction, Provenance};
use study_files::definition::{Definition, HOST, Workload};
use study_files::matrix::{Cell, Row, RowSource};

pub use self::outcome::Outcome;
use self::outcome::{UNSIMULATED, cell, is_modelled, race};
use self::subject::{Subject, is_machine, recorded};
use super::arguments::Run;
use super::lacking::check_dependencies;
use super::lowered::is_over_boots;
use super::programs::FileHashes;
use crate::failure::{Failure, report};
use crate::sim::{self, TraceCosts, machines};

/// A workload, or one of its variants, on a model machine.
pub struct ModelRow {
    /// The simulated workload.
    pub workload: Workload,
    /// The machine's own name.
    pub machine: String,
    /// The machine as named in the study: the same name, or a file.
    named: String,
    /// Everything that determines the outcomes: the request, files and builds.
    subject: Subject,
    /// Whether the simulations are done, missing, failed or impossible.
    pub progress: Progress,
    /// The stored outcomes by policy: those of the current subject, or, if there are none, those of the subject that
    /// differs least.
    stored: BTreeMap<String, Outcome>,
    /// The subject to which the stored outcomes belong.
    stored_subject: Subject,
}

/// The state of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The simulation is impossible, for this reason.
    Refused(String),
    /// The simulation is missing or outdated, for this reason.
    Missing(String),
    /// The simulation failed, for this reason.
    Failed(String),
    /// The simulation is done.
    Done,
}

/// Every workload on every model machine of a study.
///
/// # Errors
/// A machine does not exist, two machines have the same name, or the store cannot be read.
pub fn rows(definition: &Definition, store: Option<&Store>) -> Result<Vec<ModelRow>, Failure> {
    let known = store.map(|store| store.simulations_of(&definition.name)).transpose().map_err(Failure::input)?;
    let known = known.unwrap_or_default();
    let machines = machines_of(definition)?;
    let mut files = FileHashes::default();
    let subject = |one: Workload| (Subject::of(definition, &one, &mut files), one);
    let asked: Vec<(Subject, Workload)> = if machines.is_empty() {
        Vec::new()
    } else {
        modelled_workloads(definition).flat_map(Workload::variants_as_workloads).map(subject).collect()
    };
    let mut rows = Vec::new();
    for (named, machine) in &machines {
        let simulations: Vec<&Simulation> = known.iter().filter(|one| one.machine == machine.name).collect();
        for (subject, workload) in &asked {
            rows.push(row(definition, workload.clone(), (named, machine), subject.on(machine), &simulations));
        }
    }
    Ok(rows)
}

/// The workloads for model machines. Workloads of a series are excluded: their results are derived, not simulated.
fn modelled_workloads(definition: &Definition) -> impl Iterator<Item = &Workload> {
    definition.workloads.iter().filter(|workload| !definition.is_of_series(workload))
}

/// The model machines of a study, each with its name in the study.
fn machines_of(definition: &Definition) -> Result<Vec<(String, Machine)>, Failure> {
    let mut all: Vec<(String, Machine)> = Vec::new();
    for named in definition.machines.iter().filter(|machine| *machine != HOST) {
        let wrong = |what: String| Failure::Input(format!("machines: {what}"));
        let machine = machines::named(named).map_err(|error| wrong(error.to_string()))?;
        if let Some((other, _)) = all.iter().find(|(_, known)| known.name == machine.name) {
            let name = &machine.name;
            return Err(wrong(format!(
                "{other} and {named} are both {name:?}; give one of them another (its key `name`)"
            )));
        }
        all.push((named.clone(), machine));
    }
    Ok(all)
}

/// The row of a workload on a machine, with the stored outcomes of that machine.
fn row(
    definition: &Definition,
    workload: Workload,
    (named, machine): (&str, &Machine),
    subject: Subject,
    stored: &[&Simulation],
) -> ModelRow {
    let mut by_subject: BTreeMap<&str, BTreeMap<String, Outcome>> = BTreeMap::new();
    for one in stored {
        if let Some(outcome) = Outcome::read(&one.outcome) {
            by_subject.entry(&one.of.subject).or_default().insert(one.policy.clone(), outcome);
        }
    }
    let read = |(text, outcomes)| Some((Subject::read(text)?, outcomes));
    // The trace of a variant may belong to another variant. Results of such a trace are not used.
    let alike = by_subject.into_iter().filter(|_| workload.missing.is_none()).filter_map(read);
    let alike = alike.filter(|(of, _)| of.has_same_request(&subject));
    let has_failed = |outcomes: &BTreeMap<String, Outcome>| outcomes.values().any(|one| one.failure().is_some());
    let nearest = alike.min_by_key(|(of, outcomes)| (of.changed(&subject).len(), has_failed(outcomes)));
    let (stored_subject, stored) = nearest.unwrap_or_else(|| (subject.clone(), BTreeMap::new()));
    let machine = machine.name.clone();
    let mut row = ModelRow {
        workload,
        machine,
        named: named.to_owned(),
        subject,
        progress: Progress::Done,
        stored,
        stored_subject,
    };
    row.progress = row.progress_of(definition);
    row
}

/// The note on figures of a whole machine.
const OF_MACHINE: &str = "a whole machine was recorded, with physical addresses: accesses of its programs count like the kernel's own, as if the direct map translated both";

/// Programs whose own accesses are not part of the workload.
const SHELLS: [&str; 4] = ["sh", "bash", "dash", "/bin/sh"];
/// Built-in workloads that start the measured program.
const STARTERS: [[&str; 3]; 2] = [["pagelab", "workload", "copies"], ["pagelab", "workload", "spec-cpu"]];

/// Why a workload cannot be recorded on this host, or cannot be simulated at all.
fn why_refused(definition: &Definition, workload: &Workload) -> Option<String> {
    let recorded = workload.trace.is_none().then(|| recorded(workload));
    let lacking = || recorded.and_then(|recorded| check_dependencies(workload, recorded).err());
    why_never_simulated(definition, workload).or_else(lacking)
}

/// Why a workload cannot be simulated on any machine.
pub fn why_never_simulated(definition: &Definition, workload: &Workload) -> Option<String> {
    if let Some(why) = &workload.missing {
        return Some(why.clone());
    }
    if definition.is_of_series(workload) {
        return Some("it measures a series, which is derived and not simulated".to_owned());
    }
    if let Some(why) = workload.trace.is_none().then(|| of_other_kind(definition, recorded(workload))).flatten() {
        return Some(why.to_owned());
    }
    if workload.trace.is_none() && workload.server.is_some() {
        return Some("a server with its client cannot be recorded: name a trace of the server".to_owned());
    }
    if workload.trace.is_none() {
        let recorded = recorded(workload);
        let is_shell = recorded.first().is_some_and(|first| SHELLS.contains(&first.as_str()));
        let is_starter = |starter: &[&str; 3]| recorded.starts_with(&starter.map(str::to_owned));
        if STARTERS.iter().any(is_starter) {
            return Some("it starts another program, which would not be recorded: name the command to record (`recorded`), or a trace".to_owned());
        }
        if is_shell {
            return Some("it starts a shell, and the trace of a shell is not that of its program: name the command to record (`recorded`), or a trace".to_owned());
        }
    }
    (!is_modelled(&definition.baseline))
        .then(|| format!("model machines do not have the baseline {}", definition.baseline))
}

/// Why the study's policies do not apply to the recorded command; `None` if they do.
fn of_other_kind(definition: &Definition, recorded: &[String]) -> Option<&'static str> {
    match (is_over_boots(definition), is_machine(recorded)) {
        (true, false) => Some(
            "the trace of a program lacks the kernel's accesses through its direct map: name a machine to record (`recorded`, a command of qemu-system-*), or the trace of one",
        ),
        (false, true) => {
            Some("a whole machine is recorded with physical addresses, to which policies of programs do not apply")
        }
        _ => None,
    }
}

impl ModelRow {
    /// Whether the simulation is possible and has still to be done.
    pub fn is_missing(&self) -> bool {
        matches!(self.progress, Progress::Missing(_) | Progress::Failed(_))
    }

    /// The state in a word, and the reason.
    pub fn state(&self) -> (&'static str, String) {
        match &self.progress {
            Progress::Refused(why) => ("cannot be run", why.clone()),
            Progress::Missing(why) => ("missing", why.clone()),
            Progress::Failed(why) => ("failed", why.clone()),
            Progress::Done => ("done", String::new()),
        }
    }

    /// The state of the row. Stored outcomes count even if another host made them and this host lacks the programs.
    fn progress_of(&self, definition: &Definition) -> Progress {
        let changed = self.stored_subject.changed(&self.subject);
        let lacking: Vec<&str> = modelled(definition).filter(|policy| self.outcome(policy).is_none()).collect();
        let failure = self.stored.values().find_map(Outcome::failure);
        if let (false, true, true, None) = (self.stored.is_empty(), changed.is_empty(), lacking.is_empty(), failure) {
            return Progress::Done;
        }
        if let Some(why) = why_refused(definition, &self.workload) {
            return Progress::Refused(why);
        }
        if let Some(trace) =
            self.workload.trace.as_ref().filter(|trace| matches!(Path::new(trace).try_exists(), Ok(false)))
        {
            return Progress::Missing(format!("there is no trace {trace}"));
        }
        match failure {
            _ if self.stored.is_empty() => Progress::Missing(UNSIMULATED.to_owned()),
            _ if !changed.is_empty() => Progress::Missing(format!("the stored outcomes are of {}", changed.join(", "))),
            Some(why) => Progress::Failed(why.to_owned()),
            None => Progress::Missing(format!("{} {UNSIMULATED}", lacking.join(", "))),
        }
    }

    /// Estimated seconds for the missing simulations, from the durations of earlier simulations; `None` if there are
    /// none.
    pub fn estimated_s(&self, definition: &Definition, all: &[ModelRow]) -> Option<f64> {
        estimate::estimated_s(self, all, modelled(definition).count())
    }

    /// The row in the matrix.
    pub fn matrix_row(&self, definition: &Definition) -> Row {
        let (name, machine, policies) = (&self.workload.name, &self.machine, &definition.policies);
        let row = Row { provenance: Provenance::Modelled, ..Row::without(name, machine, policies, &self.state().1) };
        if self.stored.is_empty() {
            return row;
        }
        let outcomes: Vec<Option<Outcome>> = policies.iter().map(|policy| self.outcome(policy).cloned()).collect();
        let baseline = self.outcome(&definition.baseline).and_then(Outcome::figures);
        let cells: Vec<Cell> = policies
            .iter()
            .zip(&outcomes)
            .map(|(policy, outcome)| cell(definition, policy, outcome, baseline))
            .collect();
        let race = race(&cells, &definition.model_primary);
        let (origins, notes) = (vec![self.origin(definition)], self.notes());
        Row {
            metric: definition.model_primary.clone(),
            direction: Direction::Lower,
            cells,
            race,
            origins,
            notes,
            ..row
        }
    }

    /// Notes on the limits of the row's figures.
    fn notes(&self) -> Vec<String> {
        let changed = self.stored_subject.changed(&self.subject);
        let stale = (!changed.is_empty()).then(|| format!("its figures are of {}", changed.join(", ")));
        let of_machine = is_machine(recorded(&self.workload)).then(|| OF_MACHINE.to_owned());
        let mut notes: Vec<String> = stale.into_iter().chain(of_machine).collect();
        for note in self.stored.values().flat_map(Outcome::notes) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        notes
    }

    /// The commands that reproduce the row.
    fn origin(&self, definition: &Definition) -> RowSource {
        let trace = self.workload.trace.clone();
        let file = trace.clone().unwrap_or_else(|| "a.trace".to_owned());
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
        let record = trace.is_none().then(|| {
            let options = recording::options(definition, &self.workload);
            let begin = [words("pagelab record --output a.trace"), options, words("--")];
            begin.concat().into_iter().chain(recorded(&self.workload).iter().cloned()).collect()
        });
        let policies: Vec<String> =
            modelled(definition).flat_map(|policy| ["-p".to_owned(), policy.to_owned()]).collect();
        let sim = [words("pagelab sim"), vec![file], policies, vec!["-m".to_owned(), self.named.clone()]].concat();
        let commands = record.into_iter().chain([sim]).collect();
        RowSource { commands, programs: self.stored_subject.programs().clone(), ..RowSource::default() }
    }

    /// The outcome of a policy. The store has it under the model's name of the policy, which can differ from the
    /// study's.
    fn outcome(&self, policy: &str) -> Option<&Outcome> {
        self.stored.get(&canonical(policy))
    }

    /// The simulation as the store keeps it.
    fn simulation(&self, definition: &Definition, policy: String, outcome: &Outcome) -> Simulation {
        let (study, workload) = (definition.name.clone(), self.workload.name.clone());
        let of = OfStudy { study, workload, subject: self.subject.text() };
        Simulation { of, machine: self.machine.clone(), policy, outcome: outcome.text() }
    }
}

/// The policies of a study that models support.
fn modelled(definition: &Definition) -> impl Iterator<Item = &str> {
    definition.policies.iter().map(String::as_str).filter(|policy| is_modelled(policy))
}

/// Runs the missing recordings and simulations. An error in a workload is reported and stored, and the other workloads continue.
///
/// # Errors
/// A signal stopped pagelab, or the store cannot be written.
pub fn run(definition: &Definition, rows: &[ModelRow], arguments: &Run, store: &Store) -> Result<(), Failure> {
    let mut workloads: Vec<&Workload> = Vec::new();
    for row in rows.iter().filter(|row| row.is_missing() && arguments.is_selected(&row.workload.name)) {
        if !workloads.contains(&&row.workload) {
            workloads.push(&row.workload);
        }
    }
    for (at, workload) in workloads.iter().enumerate() {
        let missing: Vec<&ModelRow> =
            rows.iter().filter(|row| row.is_missing() && row.workload == **workload).collect();
        let machines: Vec<String> = missing.iter().map(|row| row.named.clone()).collect();
        let name = results::printable(&workload.name);
        let (number, all, on) = (at + 1, workloads.len(), machines.join(", "));
        report(format_args!("study {}: simulating {number} of {all}: {name} on {on}", definition.name));
        let started = Instant::now();
        match simulate(definition, workload, &machines, arguments, store) {
            Ok(answered) => keep(definition, &missing, answered, started.elapsed().as_secs_f64(), store)?,
            Err(stopped @ (Failure::Interrupted(_) | Failure::Stopped(..))) => return Err(stopped),
            Err(failure) => {
                let what = results::printable(&failure.to_string());
                report(format_args!("study {}: {name}: {what}", definition.name));
                let why = Outcome::Failed { why: failure.to_string() };
                let of_row = |row: &&ModelRow| {
                    let of_policy = |policy: &str| row.simulation(definition, canonical(policy), &why);
                    modelled(definition).map(of_policy).collect::<Vec<_>>()
                };
                let failed: Vec<Simulation> = missing.iter().flat_map(of_row).collect();
                store.store_simulations(&failed).map_err(Failure::input)?;
            }
        }
    }
    Ok(())
}

/// The model's name of a policy.
fn canonical(policy: &str) -> String {
    policy.parse::<ModelPolicy>().map_or(policy.to_owned(), |policy| policy.to_string())
}

fn simulate(
    definition: &Definition,
    workload: &Workload,
    machines: &[String],
    arguments: &Run,
    store: &Store,
) -> Result<TraceCosts, Failure> {
    let trace = match &workload.trace {
        Some(trace) => PathBuf::from(trace),
        None => recording::trace_of(definition, workload, store)?,
    };
    let policies: Vec<ModelPolicy> = modelled(definition).filter_map(|policy| policy.parse().ok()).collect();
    sim::costs_of(&trace, machines, &policies, arguments.jobs)
}

fn keep(
    definition: &Definition,
    rows: &[&ModelRow],
    answered: TraceCosts,
    took_s: f64,
    store: &Store,
) -> Result<(), Failure> {
    let mut kept = Vec::new();
    let simulated = answered.cells.iter().filter(|cell| cell.outcome.is_ok()).count();
    let share_s = took_s / simulated.max(1) as f64;
    for cell in answered.cells {
        let Some(row) = rows.iter().find(|row| row.machine == cell.machine) else {
            return Err(Failure::Input(format!("expected the requested machines, found {}", cell.machine)));
        };
        let notes = answered.notes.get(&cell.machine).map(Vec::as_slice).unwrap_or_default();
        kept.push(row.simulation(definition, cell.policy, &Outcome::of(cell.outcome, notes, share_s)));
    }
    store.store_simulations(&kept).map_err(Failure::input)
}
