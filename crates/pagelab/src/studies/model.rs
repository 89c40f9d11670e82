//! Workloads on model machines: recorded once, simulated on every machine under every policy.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use model::policy::ModelPolicy;
use results::simulation::{Cell as Simulated, Cost};
use results::store::{OfStudy, Simulation, Store};
use serde::{Deserialize, Serialize};
use serde_json::json;
use study::definition::{Definition, HOST, Workload};
use study::matrix::wins::Race;
use study::matrix::{Cell, Origin, Row, Standing};
use study::metric::{Direction, Provenance};
use study::stats::Effect;

use super::arguments::Run;
use super::inputs;
use super::lacking::is_here;
use crate::failure::{Failure, say};
use crate::record::OUTSIDE;
use crate::sim::{self, machines};

/// A workload on a model machine.
pub struct ModelRow<'a> {
    /// What is simulated.
    pub workload: &'a Workload,
    /// On what.
    pub machine: String,
    /// Everything that decides what comes of it.
    subject: String,
    /// Why it cannot be simulated at all.
    pub refused: Option<String>,
    /// What the store has of it.
    stored: Vec<Simulation>,
}

/// What a model machine gave, as the store keeps it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
enum Outcome {
    /// Figures of the whole trace.
    Ran {
        figures: BTreeMap<String, u64>,
        is_held: bool,
        /// Absent in stores of earlier versions, and where nothing was asked.
        #[serde(default)]
        coverage_ratio: Option<f64>,
    },
    /// There are none, for this reason.
    Missing { why: String },
}

/// Every workload on every model machine of a study.
///
/// # Errors
/// A machine that there is not; a store that cannot be read.
pub fn rows<'a>(definition: &'a Definition, store: Option<&Store>) -> Result<Vec<ModelRow<'a>>, Failure> {
    let known = store.map(|store| store.simulations_of(&definition.name)).transpose().map_err(Failure::input)?;
    let known = known.unwrap_or_default();
    let mut rows = Vec::new();
    for machine in definition.machines.iter().filter(|machine| *machine != HOST) {
        machines::named(machine).map_err(|error| Failure::Input(format!("machines: {error}")))?;
        for workload in &definition.workloads {
            let subject = subject(definition, workload);
            let is_own = |one: &&Simulation| one.of.subject == subject && one.machine == *machine;
            let stored = known.iter().filter(is_own).cloned().collect();
            let (machine, refused) = (machine.clone(), refused(definition, workload));
            rows.push(ModelRow { workload, machine, subject, refused, stored });
        }
    }
    Ok(rows)
}

/// Programs whose own accesses are not the workload's.
const SHELLS: [&str; 4] = ["sh", "bash", "dash", "/bin/sh"];

/// What is recorded.
fn recorded(workload: &Workload) -> &[String] {
    workload.recorded.as_deref().unwrap_or(&workload.command)
}

fn subject(definition: &Definition, workload: &Workload) -> String {
    let trace = workload.trace.as_ref().map(|trace| {
        let bytes = std::fs::metadata(trace).map_or(0, |metadata| metadata.len());
        json!({ "file": Path::new(trace).file_name().map(|name| name.to_string_lossy().into_owned()), "bytes": bytes })
    });
    let workload = workload.placed(inputs::known_as);
    let command = trace.is_none().then(|| recorded(&workload));
    let mut subject = json!({
        "trace": trace,
        "command": command,
        "env": workload.env,
        "instructions": definition.stopping.recorded,
        "pagelab": env!("CARGO_PKG_VERSION"),
    });
    if let (true, Some(input)) = (trace.is_none(), &workload.input) {
        subject["input"] = json!(input);
    }
    subject.to_string()
}

/// Why a workload cannot be simulated here.
fn refused(definition: &Definition, workload: &Workload) -> Option<String> {
    let recorded = workload.trace.is_none().then(|| recorded(workload));
    let is_here = || recorded.and_then(|recorded| is_here(workload, recorded).err());
    never(definition, workload).or_else(is_here)
}

/// Why a workload cannot be simulated on any machine.
pub fn never(definition: &Definition, workload: &Workload) -> Option<String> {
    if let Some(why) = &workload.missing {
        return Some(why.clone());
    }
    if workload.trace.is_none() && workload.server.is_some() {
        return Some("a server with its client cannot be recorded: name a trace of the server".to_owned());
    }
    if workload.trace.is_none() {
        let recorded = recorded(workload);
        let is_shell = recorded.first().is_some_and(|first| SHELLS.contains(&first.as_str()));
        if is_shell {
            return Some("it starts a shell, and the trace of a shell is not that of its program: name the command to record (`recorded`), or a trace".to_owned());
        }
    }
    let is_modelled = |policy: &String| policy.parse::<ModelPolicy>().is_ok();
    (!is_modelled(&definition.baseline))
        .then(|| format!("the baseline {} is no policy of model machines", definition.baseline))
}

impl ModelRow<'_> {
    /// Whether it can be simulated and has not been.
    pub fn is_missing(&self) -> bool {
        self.refused.is_none() && self.stored.is_empty()
    }

    /// Whether the store has anything of it, wherever it was simulated.
    pub fn is_stored(&self) -> bool {
        !self.stored.is_empty()
    }

    /// A word for how far it is, and why.
    pub fn told(&self) -> (&'static str, String) {
        match (&self.refused, self.is_missing()) {
            (Some(why), _) => ("cannot be run", why.clone()),
            (None, true) => ("missing", "not simulated yet".to_owned()),
            (None, false) => ("done", String::new()),
        }
    }

    /// The row of the matrix.
    pub fn shown(&self, definition: &Definition) -> Row {
        let (name, machine, policies) = (&self.workload.name, &self.machine, &definition.policies);
        let own = Row { provenance: Provenance::Modelled, ..Row::without(name, machine, policies, &self.told().1) };
        if self.stored.is_empty() {
            return own;
        }
        let outcomes: Vec<Option<Outcome>> = policies.iter().map(|policy| self.outcome(policy)).collect();
        let baseline = policies.iter().position(|policy| *policy == definition.baseline);
        let baseline = baseline.and_then(|at| match &outcomes[at] {
            Some(Outcome::Ran { figures, .. }) => Some(figures),
            _ => None,
        });
        let cells: Vec<Cell> = policies
            .iter()
            .zip(&outcomes)
            .map(|(policy, outcome)| cell(definition, policy, outcome, baseline))
            .collect();
        let race = race(&cells, &definition.model_primary);
        let origins = vec![self.origin(definition)];
        Row { metric: definition.model_primary.clone(), direction: Direction::Lower, cells, race, origins, ..own }
    }

    /// The commands that make it again.
    fn origin(&self, definition: &Definition) -> Origin {
        let trace = self.workload.trace.clone();
        let file = trace.clone().unwrap_or_else(|| "a.trace".to_owned());
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
        let record = trace.is_none().then(|| {
            let most = definition.stopping.recorded.map(|most| format!(" --max {most}")).unwrap_or_default();
            [words(&format!("pagelab record --output a.trace{most} --")), recorded(self.workload).to_vec()].concat()
        });
        let policies = definition.policies.iter().filter(|policy| policy.parse::<ModelPolicy>().is_ok());
        let policies: Vec<String> = policies.flat_map(|policy| ["-p".to_owned(), policy.clone()]).collect();
        let sim = [words("pagelab sim"), vec![file], policies, vec!["-m".to_owned(), self.machine.clone()]].concat();
        Origin { commands: record.into_iter().chain([sim]).collect(), ..Origin::default() }
    }

    fn outcome(&self, policy: &str) -> Option<Outcome> {
        let stored = self.stored.iter().find(|one| one.policy == policy)?;
        serde_json::from_str(&stored.outcome).ok()
    }
}

fn cell(
    definition: &Definition,
    policy: &str,
    outcome: &Option<Outcome>,
    baseline: Option<&BTreeMap<String, u64>>,
) -> Cell {
    let (figures, is_held, coverage_ratio) = match outcome {
        None => return Cell::without(policy, "models have no such policy".to_owned()),
        Some(Outcome::Missing { why }) => return Cell::without(policy, why.clone()),
        Some(Outcome::Ran { figures, is_held, coverage_ratio }) => (figures, *is_held, *coverage_ratio),
    };
    let Some(baseline) = baseline else {
        return Cell::without(policy, "the baseline has no figure".to_owned());
    };
    if !figures.contains_key(&definition.model_primary) {
        let known: Vec<&str> = figures.keys().map(String::as_str).collect();
        let why = format!("there is no figure {:?}; there are {}", definition.model_primary, known.join(", "));
        return Cell::without(policy, why);
    }
    let effect = |(name, value): (&String, &u64)| {
        let of = *baseline.get(name).filter(|of| **of > 0)?;
        let ratio = *value as f64 / of as f64;
        Some((name.clone(), Effect { blocks: 0, ratio, low: None, high: None, p_adjusted: None }))
    };
    let is_baseline = policy == definition.baseline;
    Cell {
        medians: figures.iter().map(|(name, value)| (name.clone(), *value as f64)).collect(),
        effects: if is_baseline { BTreeMap::new() } else { figures.iter().filter_map(effect).collect() },
        standing: match (is_baseline, is_held) {
            (true, _) => Standing::Baseline,
            (false, true) => Standing::Modelled,
            (false, false) => Standing::NotHeld,
        },
        coverage_ratio,
        ..Cell::without(policy, String::new())
    }
}

/// A model has no noise: those with the least figure are in front.
fn race(cells: &[Cell], metric: &str) -> Race {
    let figure = |cell: &Cell| cell.medians.get(metric).copied().filter(|_| cell.standing != Standing::NotHeld);
    let running: Vec<usize> = (0..cells.len()).filter(|at| figure(&cells[*at]).is_some()).collect();
    let least = running.iter().filter_map(|at| figure(&cells[*at])).min_by(f64::total_cmp);
    let unbeaten: Vec<usize> = running.iter().copied().filter(|at| figure(&cells[*at]) == least).collect();
    Race { leader: unbeaten.first().copied(), running, unbeaten }
}

/// Records and simulates what is missing. What goes wrong with a workload is said; the others go on.
///
/// # Errors
/// A signal; a store that cannot be written.
pub fn run(definition: &Definition, rows: &[ModelRow<'_>], arguments: &Run, store: &Store) -> Result<(), Failure> {
    let mut workloads: Vec<&Workload> = Vec::new();
    for row in rows.iter().filter(|row| row.is_missing() && arguments.is_named(&row.workload.name)) {
        if !workloads.contains(&row.workload) {
            workloads.push(row.workload);
        }
    }
    for (at, workload) in workloads.iter().enumerate() {
        let own: Vec<&ModelRow<'_>> = rows.iter().filter(|row| row.is_missing() && row.workload == *workload).collect();
        let machines: Vec<&str> = own.iter().map(|row| row.machine.as_str()).collect();
        let name = results::printable(&workload.name);
        let (number, all, on) = (at + 1, workloads.len(), machines.join(", "));
        say(format_args!("study {}: simulating {number} of {all}: {name} on {on}", definition.name));
        match simulated(definition, workload, &machines, arguments, store) {
            Ok(cells) => keep(definition, &own, cells, store)?,
            Err(stopped @ (Failure::Interrupted(_) | Failure::Stopped(..))) => return Err(stopped),
            Err(failure) => {
                let what = results::printable(&failure.to_string());
                say(format_args!("study {}: {name}: {what}", definition.name));
            }
        }
    }
    Ok(())
}

fn simulated(
    definition: &Definition,
    workload: &Workload,
    machines: &[&str],
    arguments: &Run,
    store: &Store,
) -> Result<Vec<Simulated>, Failure> {
    let trace = match &workload.trace {
        Some(trace) => PathBuf::from(trace),
        None => record(definition, workload, store)?,
    };
    let policies = definition.policies.iter().filter(|policy| policy.parse::<ModelPolicy>().is_ok());
    let mut words = vec![trace.to_string_lossy().into_owned()];
    words.extend(policies.flat_map(|policy| ["-p".to_owned(), policy.clone()]));
    words.extend(machines.iter().flat_map(|machine| ["-m".to_owned(), (*machine).to_owned()]));
    words.extend(arguments.jobs.iter().flat_map(|jobs| ["--threads".to_owned(), jobs.to_string()]));
    sim::of_words(&words)
}

/// The trace of a workload: the one that was recorded before, where it is of the same command, or a new one.
fn record(definition: &Definition, workload: &Workload, store: &Store) -> Result<PathBuf, Failure> {
    let directory = store.path().with_extension("traces");
    std::fs::create_dir_all(&directory).map_err(|error| Failure::about(&directory, error))?;
    let plain = |name: &str| -> String {
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
    };
    let name = format!("{}-{}-{}", definition.name, definition.size.name(), plain(&workload.name));
    // A directory of its own: traces of forked processes lie beside that of the first, and are found by its name.
    let (whole, partial) = (directory.join(&name), directory.join(format!("{name}.partial")));
    let file = whole.join(TRACE);
    let own = std::env::current_exe().map_err(|error| Failure::about(&file, error))?;
    let workload = &inputs::ready(workload)?;
    let mut words: Vec<String> = recorded(workload).to_vec();
    if let Some(first) = words.first_mut().filter(|first| *first == "pagelab") {
        *first = own.to_string_lossy().into_owned();
    }
    if sim::is_trace_of(&file, &words, definition.stopping.recorded) {
        return Ok(file);
    }
    let mut command = Command::new(&own);
    remove(&partial)?;
    std::fs::create_dir_all(&partial).map_err(|error| Failure::about(&partial, error))?;
    command.args(["record", "--output"]).arg(partial.join(TRACE));
    if let Some(most) = definition.stopping.recorded {
        command.args(["--max", &most.to_string()]);
    }
    let stdin =
        workload.input.as_ref().map(|input| File::open(input).map_err(|error| Failure::about(input.as_ref(), error)));
    let stdin = stdin.transpose()?.map_or_else(Stdio::null, Stdio::from);
    command.arg("--").args(&words).envs(&workload.env).stdin(stdin).stdout(Stdio::null());
    let ended = command.output().map_err(|error| Failure::about(&own, error))?;
    let said = String::from_utf8_lossy(&ended.stderr);
    said.lines().for_each(|line| say(results::printable(line)));
    if !ended.status.success() {
        return Err(Failure::Input(format!("it cannot be recorded: `pagelab record` ended with {}", ended.status)));
    }
    if said.contains(OUTSIDE) {
        return Err(Failure::Input("the trace lacks programs that were executed".to_owned()));
    }
    remove(&whole)?;
    std::fs::rename(&partial, &whole).map_err(|error| Failure::about(&whole, error))?;
    Ok(file)
}

/// The trace of the first process, in the directory of a workload.
const TRACE: &str = "trace";

/// Removes a directory with all that is in it, if it is there.
fn remove(directory: &Path) -> Result<(), Failure> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::about(directory, error)),
        _ => Ok(()),
    }
}

fn keep(definition: &Definition, rows: &[&ModelRow<'_>], cells: Vec<Simulated>, store: &Store) -> Result<(), Failure> {
    let kept = cells.into_iter().filter_map(|cell| {
        let row = rows.iter().find(|row| row.machine == cell.machine)?;
        let outcome = match cell.outcome {
            Ok(cost) => ran(cost),
            Err(missing) => Outcome::Missing { why: missing.why().to_owned() },
        };
        let of = OfStudy {
            study: definition.name.clone(),
            workload: row.workload.name.clone(),
            subject: row.subject.clone(),
        };
        let outcome = json!(outcome).to_string();
        Some(Simulation { of, machine: cell.machine, policy: cell.policy, outcome })
    });
    store.keep_simulations(&kept.collect::<Vec<_>>()).map_err(Failure::input)
}

fn ran(cost: Cost) -> Outcome {
    use policy::verdict::Holding::{Held, NotAsked};
    Outcome::Ran {
        figures: cost.figures.into_iter().collect(),
        is_held: matches!(cost.verdict.holding, Held | NotAsked),
        coverage_ratio: cost.verdict.coverage_ratio().filter(|_| cost.verdict.holding != NotAsked),
    }
}
