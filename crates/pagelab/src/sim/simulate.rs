//! Replays traces, each on all machines under all policies.

use std::io::BufReader;
use std::path::Path;

use indicatif::ProgressBar;
use model::machine::{Architecture, Machine, Serves};
use model::policy::Unsupported;
use model::replay::{Child, ReplayError, Replayed, infer, replay_accesses, replay_processes, touched};
use model::simulation::Simulation;
use model::tlb_geometry::USUAL_WAYS;
use results::input;
use trace::{Header, Image};

use super::base_page;
use super::files::{bar, header, opened, say_damage};
use super::machines;
use super::request::Request;
use super::simulated::{Cell, Simulated};
use super::swept;
use crate::failure::Failure;

/// Simulates every trace. Returns the results, and all machines used, without duplicates, in the order of first use.
///
/// # Errors
/// A trace cannot be read, or a simulation fails.
pub fn all(request: &Request) -> Result<(Vec<Simulated>, Vec<Machine>), Failure> {
    let (mut all, mut used) = (Vec::new(), request.machines.clone());
    for file in &request.files {
        let (simulated, machines) = one(file, request)?;
        used.extend(machines);
        all.push(simulated);
    }
    let mut seen = std::collections::HashSet::new();
    used.retain(|machine| seen.insert(machine.name.clone()));
    Ok((all, used))
}

/// Simulates one trace on all machines under all policies. Returns the result and the machines.
fn one(file: &Path, request: &Request) -> Result<(Simulated, Vec<Machine>), Failure> {
    let header = header(file)?;
    header.filter.admits_policies().map_err(|error| Failure::about(file, error))?;
    if request.layouts.is_some() && (header.system || header.emulator.is_none()) {
        return Err(Failure::about(file, ReplayError::NoLayout));
    }
    let machines = machines_of(&header, request)?;
    let cells = cells(&machines, request);
    let (mut cells, replayed) = run(file, cells, request)?;
    for cell in cells.iter_mut().filter(|_| !request.is_relinked) {
        if let Cell::Ran(outcome) = cell {
            base_page::judge(&header, outcome);
        }
    }
    say_damage(file, &replayed.damage);
    let ran = cells.iter().any(|cell| cell.ran().is_some());
    let swept = (request.curves && ran)
        .then(|| swept::swept(file, &swept::PAGE_SHIFTS, USUAL_WAYS, request.threads))
        .transpose()?;
    let whose = Limiting::of(&machines, &header, request.machines.is_empty());
    let Limiting { foreign, shared, guessed } = whose;
    let (file, host, layouts) = (file.display().to_string(), request.host.clone(), None);
    Ok((Simulated { file, header, replayed, cells, swept, layouts, foreign, shared, guessed, host }, machines))
}

/// The machines that a trace is simulated on.
///
/// # Errors
/// There is no machine for its architecture.
pub fn machines_of(header: &Header, request: &Request) -> Result<Vec<Machine>, Failure> {
    match &request.machines[..] {
        [] => Ok(vec![machines::for_architecture(&header.architecture)?]),
        named => Ok(named.to_vec()),
    }
}

/// A simulation for each machine and policy, or why it is unsupported.
pub fn cells(machines: &[Machine], request: &Request) -> Vec<Result<Simulation, Unsupported>> {
    let pairs = machines.iter().flat_map(|machine| request.policies.iter().map(move |policy| (machine, policy)));
    let made = pairs.map(|(machine, policy)| {
        Simulation::new(machine, policy, &request.physical)?.with_kernel(request.kernel.clone())
    });
    made.collect()
}

/// Runs all supported simulations in one pass over the trace.
fn run(
    file: &Path,
    cells: Vec<Result<Simulation, Unsupported>>,
    request: &Request,
) -> Result<(Vec<Cell>, Replayed), Failure> {
    let (mut simulations, mut places) = (Vec::new(), Vec::new());
    for cell in cells {
        places.push(cell.map(|simulation| simulations.push(simulation)));
    }
    let replayed =
        if simulations.is_empty() { Replayed::default() } else { replayed(file, &mut simulations, request)? };
    let mut ran = simulations.iter();
    let mut cells = Vec::new();
    for place in places {
        cells.push(match (place, ran.as_slice()) {
            (Err(unsupported), _) => Cell::Refused(unsupported),
            (Ok(()), []) => continue,
            (Ok(()), [simulation, ..]) => {
                ran.next();
                Cell::Ran(Box::new(simulation.outcome().map_err(Failure::input)?))
            }
        });
    }
    Ok((cells, replayed))
}

/// Machines whose figures need a note, by name.
struct Limiting {
    /// Machines with another instruction set than the trace.
    foreign: Vec<String>,
    /// Machines whose first-level TLB is shared by fetches and data, while the trace stores fetch and data runs separately.
    shared: Vec<String>,
    /// The machine that was assumed because the trace does not record its architecture.
    guessed: Option<String>,
}

impl Limiting {
    fn of(machines: &[Machine], header: &Header, none_was_named: bool) -> Limiting {
        // Imported traces do not record their architecture.
        let is_known = Architecture::ALL.iter().any(|known| known.name() == header.architecture);
        let is_foreign = |machine: &&Machine| is_known && machine.architecture.name() != header.architecture;
        let is_shared = |machine: &&Machine| !header.columns.addresses && shares_first_level(machine);
        let name = |machine: &Machine| machine.name.clone();
        Limiting {
            foreign: machines.iter().filter(is_foreign).map(name).collect(),
            shared: machines.iter().filter(is_shared).map(name).collect(),
            guessed: machines.first().filter(|_| none_was_named && !is_known).map(name),
        }
    }
}

/// Whether a level-1 TLB serves both fetches and data.
fn shares_first_level(machine: &Machine) -> bool {
    let has_both =
        |serves: &[Serves]| serves.contains(&Serves::Fetch) && serves.iter().any(|serves| *serves != Serves::Fetch);
    machine.tlbs.iter().any(|tlb| tlb.level == 1 && has_both(&tlb.serves))
}

/// Replays a trace into simulations.
///
/// # Errors
/// The trace cannot be read, or is of a kind that the simulations do not accept.
pub fn replayed(file: &Path, simulations: &mut [Simulation], request: &Request) -> Result<Replayed, Failure> {
    let (bar, threads) = (bar(file, ""), request.threads);
    let first = opened(file, &ProgressBar::hidden())?;
    let done = if request.accesses_only {
        let memory = touched(first).map_err(|error| Failure::about(file, error))?;
        replay_accesses(opened(file, &bar)?, &memory, simulations, threads)
    } else {
        let inferred = infer(first).map_err(|error| Failure::about(file, error))?;
        let child = &mut |image| child(file, image);
        replay_processes(opened(file, &bar)?, child, inferred.as_deref(), simulations, threads)
    };
    bar.finish_and_clear();
    done.map_err(|error| Failure::about(file, error))
}

/// Opens the trace of a forked process, or of a program that one executes, by the name that `record` gives it. A missing file
/// is not an error; one that cannot be opened is.
fn child(file: &Path, image: Image) -> std::io::Result<Option<Child>> {
    let mut path = file.as_os_str().to_owned();
    path.push(image.suffix());
    let name = Path::new(&path).display().to_string();
    match input::open(Path::new(&path)).map_err(std::io::Error::from) {
        Ok(file) => Ok(Some(Child { name, from: Box::new(BufReader::with_capacity(1 << 20, file)) })),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(std::io::Error::new(error.kind(), format!("{name}: {error}"))),
    }
}
