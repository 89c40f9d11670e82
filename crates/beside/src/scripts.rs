//! Scripts natively beside their simulations: all figures are the same, to the fault and to the byte.

use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::lab::{Figures, Lab, Problem};
use crate::launch::Launch;
use crate::script::Script;

/// Runs of a script that was off once: one of them that agrees is enough.
const AGAIN: usize = 3;

/// What runs scripts and simulates them.
#[derive(Debug)]
pub struct Scripts<'a> {
    lab: Lab,
    launch: Launch,
    policies: &'a [&'a str],
    /// Faults of a launch natively, under each policy: what a script that does nothing has more than it is simulated with.
    launch_faults: Vec<Vec<u64>>,
    /// What that script is simulated with.
    nothing: Vec<Figures>,
}

/// A figure of a script that is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Off {
    /// Under which policy.
    pub policy: String,
    /// The figure.
    pub figure: &'static str,
    /// What was measured, once or several times.
    pub measured: Vec<String>,
    /// What was simulated.
    pub simulated: String,
}

impl fmt::Display for Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Off { policy, figure, measured, simulated } = self;
        write!(f, "{policy}, {figure}: {} measured, {simulated} simulated", measured.join(" or "))
    }
}

impl<'a> Scripts<'a> {
    /// Compiles the interpreter from its source and runs a script that does nothing.
    ///
    /// # Errors
    /// Where that cannot be done.
    pub fn new(lab: Lab, source: &Path, policies: &'a [&'a str]) -> Result<Scripts<'a>, Problem> {
        // pagelab's child touches each of its allocator's arenas before the execve (`__malloc_fork_unlock_child`), and how many
        // its threads have made is chance.
        let one_arena = ("MALLOC_ARENA_MAX", "1".to_owned());
        let environment = [("PATH", std::env::var("PATH").unwrap_or_default()), ("HOME", lab.word("")), one_arena];
        let launch = Launch::new(environment.map(|(name, value)| (name.to_owned(), value)).into());
        compile(source, &lab.word("script"))?;
        let launch_faults = vec![Vec::new(); policies.len()];
        let mut scripts = Scripts { lab, launch, policies, launch_faults, nothing: Vec::new() };
        scripts.nothing = scripts.simulated("")?;
        for number in 0..policies.len() {
            scripts.measure_launch(number)?;
        }
        Ok(scripts)
    }

    /// Measures what a launch has under a policy. It is pagelab that has these faults, and what its child touches before the
    /// execve changes with what pagelab has done before.
    fn measure_launch(&mut self, number: usize) -> Result<(), Problem> {
        let trials = self.measured("", &self.policies[number..=number], AGAIN)?;
        let more = |trial: &Figures| trial.faults.saturating_sub(self.nothing[number].faults);
        self.launch_faults[number] = trials.iter().flatten().map(more).collect();
        Ok(())
    }

    /// What is off of a script.
    ///
    /// # Errors
    /// Where it cannot be run, recorded or simulated.
    pub fn off(&mut self, text: &str) -> Result<Vec<Off>, Problem> {
        let simulated = self.simulated(text)?;
        let once = self.measured(text, self.policies, 1)?;
        let mut all = Vec::new();
        for (number, (trials, simulated)) in once.iter().zip(&simulated).enumerate() {
            if self.differs(number, trials, simulated).is_empty() {
                continue;
            }
            self.measure_launch(number)?;
            let again = self.measured(text, &self.policies[number..=number], AGAIN)?;
            all.extend(again.iter().flat_map(|trials| self.differs(number, trials, simulated)));
        }
        Ok(all)
    }

    /// A script that is off by the same figure under the same policy as another one, and from which nothing can be taken.
    pub fn shrunk(&mut self, script: &Script, off: &[Off]) -> Script {
        let is_same = |one: &Off| off.iter().any(|other| (&other.policy, other.figure) == (&one.policy, one.figure));
        script.shrunk(|script| self.off(&script.text()).is_ok_and(|off| off.iter().any(is_same)))
    }

    fn command(&self, text: &str) -> Result<Vec<String>, Problem> {
        let (script, file) = (self.lab.word("script"), self.lab.word("text"));
        let written = std::fs::write(&file, text);
        written.map_err(|error| Problem::Start(file.clone(), error))?;
        Ok(vec![script, file])
    }

    fn simulated(&self, text: &str) -> Result<Vec<Figures>, Problem> {
        self.lab.simulated(&self.launch, &self.command(text)?, self.policies)
    }

    fn measured(&self, text: &str, policies: &[&str], runs: usize) -> Result<Vec<Vec<Figures>>, Problem> {
        let measured = self.lab.measured(&self.launch, &self.command(text)?, policies, runs)?;
        measured.into_iter().map(|trials| trials.map_err(Problem::NoTrials)).collect()
    }

    /// The figures of which no trial is as the simulation says.
    fn differs(&self, number: usize, trials: &[Figures], simulated: &Figures) -> Vec<Off> {
        let policy = self.policies[number].to_owned();
        // Those that are as simulated for some launch, or else for the first.
        let faults = |trial: &Figures| {
            let all = self.launch_faults[number].iter().map(|less| trial.faults.saturating_sub(*less));
            all.clone().find(|faults| *faults == simulated.faults).or(all.clone().next()).unwrap_or(trial.faults)
        };
        let pairs = |figures: &Figures, faults: u64| {
            [
                ("faults", faults.to_string()),
                ("covered bytes", figures.covered_bytes.to_string()),
                ("concerned bytes", figures.concerned_bytes.to_string()),
                ("bytes of tables", figures.table_bytes.to_string()),
                ("verdict", figures.holding.clone()),
            ]
        };
        let measured: Vec<_> = trials.iter().map(|trial| pairs(trial, faults(trial))).collect();
        let off = |(at, (figure, simulated)): (usize, (&'static str, String))| {
            let mut measured: Vec<String> = measured.iter().map(|pairs| pairs[at].1.clone()).collect();
            measured.dedup();
            let is_off = !measured.contains(&simulated);
            is_off.then(|| Off { policy: policy.clone(), figure, measured, simulated })
        };
        pairs(simulated, simulated.faults).into_iter().enumerate().filter_map(off).collect()
    }
}

/// Compiles the interpreter.
fn compile(source: &Path, program: &str) -> Result<(), Problem> {
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-static", "-nostdlib", "-fno-stack-protector", "-fno-pie", "-no-pie", "-o", program]);
    let output = gcc.arg(source).output().map_err(|error| Problem::Start("gcc".to_owned(), error))?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(Problem::Failed("gcc".to_owned(), output.status.code(), said())) }
}
