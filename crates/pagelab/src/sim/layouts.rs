//! `sim --layouts N`: the same trace at other addresses, as Linux gives a program by randomisation, and how far the figures spread.

use std::collections::BTreeMap;
use std::path::Path;

use model::simulation::{Outcome, Simulation};
use results::simulation::{Spread, Spreading};

use super::cost::figures;
use super::request::Request;
use super::simulate::{cells, machines_of, replayed};
use super::simulated::{Cell, Layouts, Simulated};
use crate::failure::Failure;

/// Simulates the layouts that were asked for, of every trace.
///
/// # Errors
/// A trace cannot be read again, or a simulation fails.
pub fn simulate(all: &mut [Simulated], request: &Request) -> Result<(), Failure> {
    let Some(count) = request.layouts else { return Ok(()) };
    for simulated in all {
        let spreads = spreads(simulated, count, request)?;
        simulated.layouts = Some(Layouts { count, seed: request.physical.seed, spreads });
    }
    Ok(())
}

/// The figures of each cell that ran, over so many layouts.
fn spreads(simulated: &Simulated, count: u32, request: &Request) -> Result<Vec<Spread>, Failure> {
    let file = Path::new(&simulated.file);
    let machines = machines_of(&simulated.header, request)?;
    let mut gathered: Vec<Gathered> = simulated.cells.iter().map(|_| Gathered::default()).collect();
    // A pass over the trace is for as many as threads can take at a time: each has a memory of its own.
    let at_a_time = (request.threads / simulated.cells.len().max(1)).max(1);
    for numbers in (0..count).collect::<Vec<_>>().chunks(at_a_time) {
        let (mut simulations, mut places): (Vec<Simulation>, Vec<usize>) = (Vec::new(), Vec::new());
        for number in numbers {
            for (place, cell) in cells(&machines, request).into_iter().enumerate() {
                let Ok(simulation) = cell else { continue };
                simulations.push(simulation.with_layout(seed(request.physical.seed, *number)));
                places.push(place);
            }
        }
        replayed(file, &mut simulations, request)?;
        for (place, simulation) in places.into_iter().zip(&simulations) {
            gathered[place].add(&simulation.outcome().map_err(Failure::input)?);
        }
    }
    let spread = |(cell, gathered): (&Cell, Gathered)| Some(gathered.spread(cell.ran()?));
    Ok(simulated.cells.iter().zip(gathered).filter_map(spread).collect())
}

/// What chooses a layout: that of a number is the same, however many there are.
fn seed(seed: u64, number: u32) -> u64 {
    seed.rotate_left(32) ^ u64::from(number)
}

/// The figures of a cell, by their names.
#[derive(Default)]
struct Gathered {
    layouts: u32,
    figures: BTreeMap<String, Vec<u64>>,
}

impl Gathered {
    /// Adds those of a simulation that came to its end.
    fn add(&mut self, outcome: &Outcome) {
        if outcome.is_whole() {
            self.layouts += 1;
            for (name, value) in figures(outcome) {
                self.figures.entry(name).or_default().push(value);
            }
        }
    }

    /// How they spread, beside those of the layout without randomisation.
    fn spread(self, fixed: &Outcome) -> Spread {
        let of_fixed: BTreeMap<String, u64> = figures(fixed).into_iter().collect();
        let layouts = self.layouts as usize;
        let of = |(name, mut values): (String, Vec<u64>)| {
            // A size or a cache that has no line in some had none there.
            values.resize(layouts, 0);
            values.sort_unstable();
            let fixed = of_fixed.get(&name).copied().unwrap_or(0);
            let (least, most) = (values.first().copied()?, values.last().copied()?);
            Some(Spreading { fixed, least, median: values[(layouts - 1) / 2], most, name })
        };
        Spread {
            machine: fixed.machine.clone(),
            policy: fixed.policy.to_string(),
            layouts: self.layouts,
            figures: self.figures.into_iter().filter_map(of).collect(),
        }
    }
}
