//! Runs scripts natively and compares them with their simulations ([`Scripts`]): every figure must be equal, to the fault
//! and to the byte.

use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::lab::{Figures, Lab, Problem};
use crate::launch::Launch;
use crate::script::Script;

/// How often a script is run again if its first run differed. One run that agrees is enough.
const REPEATS: usize = 3;

/// Runs scripts and simulates them.
#[derive(Debug)]
pub struct Scripts<'a> {
    lab: Lab,
    launch: Launch,
    policies: &'a [&'a str],
    /// For each policy, how many more faults an empty script has natively than in its simulation: the faults of launching
    /// it, one number for each measured launch.
    launch_faults: Vec<Vec<u64>>,
    /// The simulated figures of the empty script, for each policy.
    empty: Vec<Figures>,
}

/// A figure of a script that differs from its simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The policy under which it differs.
    pub policy: String,
    /// The name of the figure.
    pub figure: &'static str,
    /// The distinct measured values of all runs.
    pub measured: Vec<String>,
    /// The simulated value.
    pub simulated: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { policy, figure, measured, simulated } = self;
        write!(f, "{policy}, {figure}: {} measured, {simulated} simulated", measured.join(" or "))
    }
}

impl<'a> Scripts<'a> {
    /// Compiles the interpreter from its source and runs an empty script.
    pub fn new(lab: Lab, source: &Path, policies: &'a [&'a str]) -> Result<Scripts<'a>, Problem> {
        // pagelab's child touches every arena of its allocator before the execve (`__malloc_fork_unlock_child`). The number of
        // arenas that pagelab's threads have made is random, so it is limited to one.
        let one_arena = ("MALLOC_ARENA_MAX", "1".to_owned());
        let environment = [("PATH", std::env::var("PATH").unwrap_or_default()), ("HOME", lab.argument("")), one_arena];
        let launch = Launch::new(environment.map(|(name, value)| (name.to_owned(), value)).into());
        compile(source, &lab.argument("script"))?;
        let launch_faults = vec![Vec::new(); policies.len()];
        let mut scripts = Scripts { lab, launch, policies, launch_faults, empty: Vec::new() };
        scripts.empty = scripts.simulated("")?;
        for number in 0..policies.len() {
            scripts.measure_launch(number)?;
        }
        Ok(scripts)
    }

    /// Measures the faults of a launch under a policy. These are faults of pagelab: which memory its child touches before the
    /// execve depends on what pagelab did before.
    fn measure_launch(&mut self, number: usize) -> Result<(), Problem> {
        let trials = self.measured("", &self.policies[number..=number], REPEATS)?;
        let more = |trial: &Figures| trial.faults.saturating_sub(self.empty[number].faults);
        self.launch_faults[number] = trials.iter().flatten().map(more).collect();
        Ok(())
    }

    /// The figures of a script that differ from its simulation.
    pub fn differences(&mut self, text: &str) -> Result<Vec<Difference>, Problem> {
        let simulated = self.simulated(text)?;
        let once = self.measured(text, self.policies, 1)?;
        let mut all = Vec::new();
        for (number, (trials, simulated)) in once.iter().zip(&simulated).enumerate() {
            if self.differs(number, trials, simulated).is_empty() {
                continue;
            }
            self.measure_launch(number)?;
            let again = self.measured(text, &self.policies[number..=number], REPEATS)?;
            all.extend(again.iter().flat_map(|trials| self.differs(number, trials, simulated)));
        }
        Ok(all)
    }

    /// Shrinks a script as long as one of these figures still differs under the same policy.
    pub fn shrink(&mut self, script: &Script, differences: &[Difference]) -> Script {
        let is_same = |one: &Difference| {
            differences.iter().any(|other| (&other.policy, other.figure) == (&one.policy, one.figure))
        };
        script
            .shrink(|script| self.differences(&script.text()).is_ok_and(|differences| differences.iter().any(is_same)))
    }

    fn command(&self, text: &str) -> Result<Vec<String>, Problem> {
        let (script, file) = (self.lab.argument("script"), self.lab.argument("text"));
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

    /// The figures for which no trial agrees with the simulation.
    fn differs(&self, number: usize, trials: &[Figures], simulated: &Figures) -> Vec<Difference> {
        let policy = self.policies[number].to_owned();
        // Subtracts the launch's faults. Of the measured launches, uses the one with which the result equals the simulation; if
        // there is none, the first.
        let faults = |trial: &Figures| {
            let all =
                self.launch_faults[number].iter().map(|launch_faults| trial.faults.saturating_sub(*launch_faults));
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
        let differences = |(at, (figure, simulated)): (usize, (&'static str, String))| {
            let mut measured: Vec<String> = measured.iter().map(|pairs| pairs[at].1.clone()).collect();
            measured.sort();
            measured.dedup();
            let differs = !measured.contains(&simulated);
            differs.then(|| Difference { policy: policy.clone(), figure, measured, simulated })
        };
        pairs(simulated, simulated.faults).into_iter().enumerate().filter_map(differences).collect()
    }
}

/// Compiles the interpreter of scripts with gcc.
fn compile(source: &Path, program: &str) -> Result<(), Problem> {
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-static", "-nostdlib", "-fno-stack-protector", "-fno-pie", "-no-pie", "-o", program]);
    let output = gcc.arg(source).output().map_err(|error| Problem::Start("gcc".to_owned(), error))?;
    let errors = || String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(())
    } else {
        Err(Problem::Failed("gcc".to_owned(), output.status.code(), errors()))
    }
}
