//! What became of a trace: each machine under each policy, and what was met when it was read.

use model::policy::Unsupported;
use model::replay::Replayed;
use model::simulation::Outcome;
use results::simulation::Spread;
use trace::Header;

use super::swept::Swept;
use crate::failure::Failure;

/// What became of one trace.
pub struct Simulated {
    /// The file.
    pub file: String,
    /// What the trace says about itself.
    pub header: Header,
    /// What was met when it was read.
    pub replayed: Replayed,
    /// Each machine under each policy, in the order asked for.
    pub cells: Vec<Cell>,
    /// Every geometry, if that was asked for.
    pub swept: Option<Swept>,
    /// Other layouts of addresses, if they were asked for.
    pub layouts: Option<Layouts>,
    /// Names of machines that have another instruction set than the trace.
    pub foreign: Vec<String>,
    /// Names of machines whose first level serves fetches and data together, where the trace has their runs apart.
    pub shared: Vec<String>,
    /// The machine that was taken where nothing says which.
    pub guessed: Option<String>,
    /// What must be known of this host, where it was one of the machines.
    pub host: Vec<String>,
}

/// Layouts of addresses, as Linux makes them by randomisation.
pub struct Layouts {
    /// How many.
    pub count: u32,
    /// What chooses them.
    pub seed: u64,
    /// How far the figures of each cell that ran spread.
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

    /// What is wrong with the simulations: not one of them came to the end of the trace.
    pub fn failure(&self) -> Option<Failure> {
        let mut ran = self.cells.iter().filter_map(Cell::ran).peekable();
        if ran.peek().is_none() {
            let why = "no machine can have any of the policies; the reasons stand above";
            return Some(Failure::NothingAdmitted(format!("{}: {why}", self.file)));
        }
        let why = "no simulation came to the end of the trace; the reasons stand above";
        (!ran.any(Outcome::is_whole)).then(|| Failure::Input(format!("{}: {why}", self.file)))
    }

    /// Accesses, runs and instructions.
    pub fn counted(&self) -> Option<(u64, u64, Option<u64>)> {
        let ran = self.cells.iter().find_map(Cell::ran).map(|ran| (ran.accesses, ran.runs, ran.instructions));
        ran.or_else(|| self.swept.as_ref().map(|swept| (swept.accesses, swept.runs, swept.instructions)))
    }

    /// Whether a machine has another instruction set than the trace.
    pub fn is_foreign(&self, machine: &str) -> bool {
        self.foreign.iter().any(|name| name == machine)
    }
}

/// One machine under one policy.
pub enum Cell {
    /// It ran.
    Ran(Box<Outcome>),
    /// It cannot.
    Refused(Unsupported),
}

impl Cell {
    /// The outcome, if it ran.
    pub fn ran(&self) -> Option<&Outcome> {
        match self {
            Cell::Ran(outcome) => Some(outcome),
            Cell::Refused(_) => None,
        }
    }
}
