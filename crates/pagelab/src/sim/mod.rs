//! `pagelab sim`: what recorded traces cost on model machines under page-size policies.

mod arguments;
mod chase;
mod document;
mod machines;
mod notes;
mod report;
mod sweep;

use std::fs::File;
use std::io::{BufReader, IsTerminal};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use model::machine::{Architecture, Machine, Serves};
use model::policy::{ModelPolicy, Unsupported};
use model::replay::{Child, Replayed, infer, replay_accesses, replay_processes, touched};
use model::simulation::{Outcome, Simulation};
use model::space::Physical;
use serde_json::{Value, json};
use trace::{Header, Reader};

pub use arguments::SimArguments;
pub use machines::{
    described, document as machine_document, figures, named as machine_named, of as machine_described, of_host,
};

use crate::failure::{Failure, say};
use crate::output::{can_be_written, print, terminal_width, write_page};
use sweep::Swept;

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
    /// Names of machines that have another instruction set than the trace.
    foreign: Vec<String>,
    /// Names of machines whose first level serves fetches and data together, where the trace has their runs apart.
    shared: Vec<String>,
    /// The machine that was taken where nothing says which.
    guessed: Option<String>,
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
    fn failure(&self) -> Option<Failure> {
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

/// Runs `pagelab sim`.
pub fn run(arguments: &SimArguments) -> Result<(), Failure> {
    can_be_written(&arguments.html)?;
    if arguments.geometry {
        return every_geometry(arguments);
    }
    if arguments.chase {
        return chase::run(arguments);
    }
    arguments.check()?;
    let named = machines::chosen(&arguments.machines)?;
    let (mut all, mut used) = (Vec::new(), named.clone());
    for file in &arguments.files {
        let (simulated, machines) = simulate(file, &named, arguments)?;
        used.extend(machines);
        all.push(simulated);
    }
    // Each machine once, in the order of its first use.
    let mut seen = std::collections::HashSet::new();
    used.retain(|machine| seen.insert(machine.name.clone()));
    let text = if arguments.json {
        format!("{:#}", whole_document(&all, &used, arguments))
    } else {
        all.iter().map(|simulated| report::text(simulated, terminal_width())).collect::<Vec<_>>().join("\n\n")
    };
    print(&text, arguments.json)?;
    if let Some(file) = &arguments.html {
        write_page(file, &results::html::simulation::report(&document::document(&all, &used, arguments)))?;
    }
    // The first trace without an answer decides.
    all.iter().find_map(Simulated::failure).map_or(Ok(()), Err)
}

fn whole_document(all: &[Simulated], used: &[Machine], arguments: &SimArguments) -> Value {
    json!({
        "schema": "pagelab.sim/1",
        "settings": {
            "memory_bytes": arguments.memory,
            "fragmentation_ratio": arguments.fragmentation,
            "kernel": {
                "also_folio_bytes": arguments.also_folios,
                "pages_to_scan": arguments.pages_to_scan,
                "scan_sleep_s": arguments.scan_sleep,
                "max_ptes_none": arguments.max_ptes_none,
                "instructions_per_s": arguments.instruction_rate,
            },
            "seed": arguments.seed,
            "accesses_only": arguments.accesses_only,
        },
        "machines": used.iter().map(machines::of).collect::<Vec<_>>(),
        "traces": all.iter().map(report::document).collect::<Vec<_>>(),
    })
}

/// `pagelab sim --geometry`.
fn every_geometry(arguments: &SimArguments) -> Result<(), Failure> {
    let mut all = Vec::new();
    for file in &arguments.files {
        let header = header(file)?;
        let swept = Some(swept(file, arguments)?);
        let (file, replayed) = (file.display().to_string(), Replayed::default());
        all.push(Simulated {
            file,
            header,
            replayed,
            cells: Vec::new(),
            swept,
            foreign: Vec::new(),
            shared: Vec::new(),
            guessed: None,
        });
    }
    let each = all.iter().filter_map(|simulated| Some((&simulated.file, simulated.swept.as_ref()?)));
    let text = if arguments.json {
        let traces: Vec<Value> = each.map(|(file, swept)| sweep::document(file, swept)).collect();
        format!("{:#}", json!({ "schema": "pagelab.sim-geometry/1", "traces": traces }))
    } else {
        each.map(|(file, swept)| sweep::text(file, swept, terminal_width())).collect::<Vec<_>>().join("\n\n")
    };
    print(&text, arguments.json)?;
    match &arguments.html {
        Some(file) => write_page(file, &results::html::simulation::report(&document::document(&all, &[], arguments))),
        None => Ok(()),
    }
}

fn swept(file: &Path, arguments: &SimArguments) -> Result<Swept, Failure> {
    let swept = sweep::swept(file, arguments.threads())?;
    if arguments.geometry {
        say_damage(file, &swept.damage);
    }
    Ok(swept)
}

fn say_damage(file: &Path, damage: &[String]) {
    for damage in damage {
        say(format_args!("pagelab: {}: {damage}; it was passed over", file.display()));
    }
}

fn header(file: &Path) -> Result<Header, Failure> {
    let reader = Reader::new(opened(file, &ProgressBar::hidden())?).map_err(|error| about(file, error))?;
    Ok(reader.header().clone())
}

/// One trace on all machines under all policies, and the machines.
fn simulate(file: &Path, named: &[Machine], arguments: &SimArguments) -> Result<(Simulated, Vec<Machine>), Failure> {
    let header = header(file)?;
    header.filter.admits_policies().map_err(|error| about(file, error))?;
    let machines =
        if named.is_empty() { vec![machines::for_architecture(&header.architecture)?] } else { named.to_vec() };
    let policies = arguments.policies();
    let physical = Physical { bytes: arguments.memory, fragmentation: arguments.fragmentation, seed: arguments.seed };
    let (mut simulations, mut refused) = (Vec::new(), Vec::new());
    for (machine, policy) in machines.iter().flat_map(|machine| policies.iter().map(move |policy| (machine, policy))) {
        let made = Simulation::new(machine, policy, &physical);
        match made.and_then(|simulation| simulation.with_kernel(arguments.kernel())) {
            Ok(simulation) => {
                simulations.push(simulation);
                refused.push(None);
            }
            Err(unsupported) => refused.push(Some(unsupported)),
        }
    }
    let replayed =
        if simulations.is_empty() { Replayed::default() } else { replayed(file, &mut simulations, arguments)? };
    let mut ran = simulations.iter();
    let mut cells = Vec::new();
    for unsupported in refused {
        match unsupported {
            Some(unsupported) => cells.push(Cell::Refused(unsupported)),
            None => {
                let outcomes = ran.next().map(Simulation::outcome);
                cells.extend(outcomes.transpose().map_err(Failure::input)?.map(|outcome| Cell::Ran(Box::new(outcome))));
            }
        }
    }
    say_damage(file, &replayed.damage);
    let swept = if arguments.sweeps() && !simulations.is_empty() { Some(swept(file, arguments)?) } else { None };
    // Imported traces do not say where they come from.
    let is_known = Architecture::ALL.iter().any(|known| known.name() == header.architecture);
    let is_foreign = |machine: &&Machine| is_known && machine.architecture.name() != header.architecture;
    let foreign = machines.iter().filter(is_foreign).map(|machine| machine.name.clone()).collect();
    let is_shared = |machine: &&Machine| !header.columns.addresses && shares_first_level(machine);
    let shared = machines.iter().filter(is_shared).map(|machine| machine.name.clone()).collect();
    let guessed = machines.first().filter(|_| named.is_empty() && !is_known).map(|machine| machine.name.clone());
    let file = file.display().to_string();
    Ok((Simulated { file, header, replayed, cells, swept, foreign, shared, guessed }, machines))
}

/// Whether a TLB of level 1 serves fetches and data.
fn shares_first_level(machine: &Machine) -> bool {
    let has_both =
        |serves: &[Serves]| serves.contains(&Serves::Fetch) && serves.iter().any(|serves| *serves != Serves::Fetch);
    machine.tlbs.iter().any(|tlb| tlb.level == 1 && has_both(&tlb.serves))
}

fn replayed(file: &Path, simulations: &mut [Simulation], arguments: &SimArguments) -> Result<Replayed, Failure> {
    let (bar, threads) = (bar(file, ""), arguments.threads());
    let first = opened(file, &ProgressBar::hidden())?;
    let done = if arguments.accesses_only {
        let memory = touched(first).map_err(|error| about(file, error))?;
        replay_accesses(opened(file, &bar)?, &memory, simulations, threads)
    } else {
        let inferred = infer(first).map_err(|error| about(file, error))?;
        let child = &mut |process| child(file, process);
        replay_processes(opened(file, &bar)?, child, inferred.as_deref(), simulations, threads)
    };
    bar.finish_and_clear();
    done.map_err(|error| about(file, error))
}

/// The trace of a forked process: what `record` calls it. That there is none is no error; that it cannot be opened is one.
fn child(file: &Path, process: u32) -> std::io::Result<Option<Child>> {
    let mut path = file.as_os_str().to_owned();
    path.push(format!(".{process}"));
    let name = Path::new(&path).display().to_string();
    match File::open(&path) {
        Ok(file) => Ok(Some(Child { name, from: Box::new(BufReader::with_capacity(1 << 20, file)) })),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(std::io::Error::new(error.kind(), format!("{name}: {error}"))),
    }
}

fn opened(file: &Path, bar: &ProgressBar) -> Result<impl std::io::Read + use<>, Failure> {
    let opened = File::open(file).map_err(|error| about(file, error))?;
    Ok(bar.wrap_read(BufReader::with_capacity(1 << 20, opened)))
}

fn about(file: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Input(format!("{}: {error}", file.display()))
}

/// A bar over the bytes of a file; hidden where standard error is no terminal.
fn bar(file: &Path, what: &str) -> ProgressBar {
    let bytes = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(bytes) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{elapsed:>5} {bar:24} {percent:>3} % {wide_msg} {eta} left");
    bar.set_style(style.expect("the template is well formed"));
    bar.set_message(format!("{} {what}", file.display()));
    bar
}

/// The policies that are simulated where none is named.
fn usual_policies() -> Vec<ModelPolicy> {
    ["base", "mthp-64k", "thp"].iter().filter_map(|name| name.parse().ok()).collect()
}
