//! Replays traces, each on all machines under all policies.

use std::io::{Read, Seek};
use std::path::Path;

use model::machine::Machine;
use model::policy::Unsupported;
use model::replay::{ReplayError, Replayed};
use model::simulation::Simulation;
use trace::Header;

use super::base_page;
use super::files::report_damage;
use super::machines;
use super::noted_machines::NotedMachines;
use super::request::Request;
use super::run_time;
use super::simulated::{Cell, Simulated};
use super::source::{self, Source};
use super::swept::Swept;
use crate::failure::Failure;

/// Simulates every trace. Returns the results, and all machines used, without duplicates, in the order of first use.
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
    let source = source::open(file)?;
    let header = source.header.clone();
    header.filter.admits_policies().map_err(|error| Failure::about(file, error))?;
    if request.layouts.is_some() && (header.system || header.emulator.is_none()) {
        return Err(Failure::about(file, ReplayError::NoLayout));
    }
    let machines = machines_of(&header, request)?;
    let cells = cells(&machines, request);
    let (mut cells, replayed, swept) = run(source, cells, request)?;
    let noted = NotedMachines::of(&machines, &header, request.machines.is_empty());
    for cell in cells.iter_mut().filter(|_| !request.is_relinked) {
        // Compiled for another architecture, the program has another alignment.
        if let Cell::Ran(outcome) = cell
            && !noted.foreign.contains(&outcome.machine)
        {
            base_page::judge(&header, outcome);
        }
    }
    report_damage(file, &replayed.damage);
    let time = run_time::of(
        request.run_time_s,
        &header,
        &replayed,
        &cells.iter().filter_map(Cell::outcome).collect::<Vec<_>>(),
    );
    let (file, host, layouts) = (file.display().to_string(), request.host.clone(), None);
    Ok((Simulated { file, header, replayed, time, cells, swept, layouts, noted, host }, machines))
}

/// The machines on which a trace is simulated.
pub fn machines_of(header: &Header, request: &Request) -> Result<Vec<Machine>, Failure> {
    match &request.machines[..] {
        [] => Ok(vec![machines::for_architecture(&header.architecture)?]),
        named => Ok(named.to_vec()),
    }
}

/// A simulation for each machine and policy, or why the machine does not support the policy.
pub fn cells(machines: &[Machine], request: &Request) -> Vec<Result<Simulation, Unsupported>> {
    let pairs = machines.iter().flat_map(|machine| request.policies.iter().map(move |policy| (machine, policy)));
    let simulations = pairs.map(|(machine, policy)| {
        Simulation::new(machine, policy, &request.physical)?.with_kernel(request.kernel.clone())
    });
    simulations.collect()
}

/// Runs all supported simulations, and the sweep for curves, in one pass over the trace.
fn run(
    source: Source<'_, impl Read + Seek>,
    cells: Vec<Result<Simulation, Unsupported>>,
    request: &Request,
) -> Result<(Vec<Cell>, Replayed, Option<Swept>), Failure> {
    let (mut simulations, mut places) = (Vec::new(), Vec::new());
    for cell in cells {
        places.push(cell.map(|simulation| simulations.push(simulation)));
    }
    let (replayed, swept) = match (simulations.is_empty(), request.curves) {
        (true, _) => (Replayed::default(), None),
        (false, false) => (source.replayed(&mut simulations, request)?, None),
        (false, true) => {
            let (replayed, swept) = source.replayed_and_swept(&mut simulations, request)?;
            (replayed, Some(swept))
        }
    };
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
    Ok((cells, replayed, swept))
}
