//! The results of one trace ([`Simulated`]): each machine under each policy, and problems found while reading it.

use model::policy::Unsupported;
use model::replay::Replayed;
use model::simulation::Outcome;
use results::answer::RunTime;
use results::simulation::Spread;
use trace::Header;

use super::noted_machines::NotedMachines;
use super::swept::Swept;
use crate::failure::Failure;

/// The results of one trace.
pub struct Simulated {
    /// The path of the trace.
    pub file: String,
    /// The header of the trace.
    pub header: Header,
    /// Forks, execs, damage and other facts found during the replay.
    pub replayed: Replayed,
    /// Each machine under each policy, in the requested order.
    pub cells: Vec<Cell>,
    /// The CPU time of the program.
    pub time: RunTime,
    /// Misses of every geometry, if requested.
    pub swept: Option<Swept>,
    /// Results for randomised layouts, if requested.
    pub layouts: Option<Layouts>,
    /// Machines whose figures need a note.
    pub noted: NotedMachines,
    /// Notes on this host, if it was one of the machines.
    pub host: Vec<String>,
}

/// Results for several address layouts, as Linux's randomisation chooses them.
pub struct Layouts {
    /// The number of layouts.
    pub count: u32,
    /// The seed that determines them.
    pub seed: u64,
    /// The spread of the figures of each cell that ran.
    pub spreads: Vec<Spread>,
}

impl Simulated {
    /// Parts of the file that could not be used.
    pub fn damage(&self) -> &[String] {
        let swept = self.swept.as_ref().map(|swept| swept.damage.as_slice());
        if self.replayed.damage.is_empty() { swept.unwrap_or_default() } else { &self.replayed.damage }
    }

    /// Whether the trace was cut off.
    pub fn is_cut_off(&self) -> bool {
        self.replayed.cut_off || self.swept.as_ref().is_some_and(|swept| swept.cut_off)
    }

    /// Refuses a trace of which a part is missing.
    pub fn check_complete(&self) -> Result<(), Failure> {
        if !self.is_cut_off() && self.damage().is_empty() {
            return Ok(());
        }
        let file = &self.file;
        Err(Failure::Input(format!(
            "{file}: the trace is incomplete, so its figures would be wrong; pagelab trace check says where"
        )))
    }

    /// The failure if no simulation reached the end of the trace.
    pub fn failure(&self) -> Option<Failure> {
        let mut ran = self.cells.iter().filter_map(Cell::outcome).peekable();
        if ran.peek().is_none() {
            let why = "no machine supports any of the policies; the reasons are above";
            return Some(Failure::NothingAdmitted(format!("{}: {why}", self.file)));
        }
        let why = "no simulation reached the end of the trace; the reasons are above";
        (!ran.any(Outcome::is_whole)).then(|| Failure::Input(format!("{}: {why}", self.file)))
    }

    /// The numbers of accesses, runs and instructions in the trace.
    pub fn counted(&self) -> Option<(u64, u64, Option<u64>)> {
        let ran = self.cells.iter().find_map(Cell::outcome).map(|ran| (ran.accesses, ran.runs, ran.instructions));
        ran.or_else(|| self.swept.as_ref().map(|swept| (swept.accesses, swept.runs, swept.instructions)))
    }

    /// Whether a machine has another instruction set than the trace.
    pub fn is_foreign(&self, machine: &str) -> bool {
        self.noted.foreign.iter().any(|name| name == machine)
    }
}

/// One machine under one policy.
pub enum Cell {
    /// The simulation ran.
    Ran(Box<Outcome>),
    /// The machine does not support the policy.
    Refused(Unsupported),
}

impl Cell {
    /// The outcome, if the simulation ran.
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            Cell::Ran(outcome) => Some(outcome),
            Cell::Refused(_) => None,
        }
    }
}
