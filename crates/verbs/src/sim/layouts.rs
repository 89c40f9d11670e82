//! `sim --layouts N`: simulates the same trace with other address layouts, as Linux's randomisation chooses them, and
//! reports the spread of the figures.

use std::collections::BTreeMap;
use std::path::Path;

use model::simulation::{Outcome, Simulation};
use results::simulation::{FigureSpread, Spread};

use super::cost::figures;
use super::request::Request;
use super::simulate::{cells, machines_of};
use super::simulated::{Cell, Layouts, Simulated};
use super::source;
use crate::failure::Failure;

/// Simulates the requested layouts of every trace.
pub fn simulate(all: &mut [Simulated], request: &Request) -> Result<(), Failure> {
    let Some(count) = request.layouts else { return Ok(()) };
    for simulated in all {
        let spreads = spreads(simulated, count, request)?;
        simulated.layouts = Some(Layouts { count, seed: request.physical.seed, spreads });
    }
    Ok(())
}

/// The spread of the figures over `count` layouts, for each cell that was simulated.
fn spreads(simulated: &Simulated, count: u32, request: &Request) -> Result<Vec<Spread>, Failure> {
    let file = Path::new(&simulated.file);
    let machines = machines_of(&simulated.header, request)?;
    let mut gathered: Vec<Gathered> = simulated.cells.iter().map(|_| Gathered::default()).collect();
    // Each pass over the trace simulates only as many layouts as there are threads, because each layout has a memory of its own.
    // For example, eight cells of a program of 5 MiB take 45 MiB per layout, so twenty layouts in one pass would take 900 MiB.
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
        source::open(file)?.replayed(&mut simulations, request)?;
        for (place, simulation) in places.into_iter().zip(&simulations) {
            gathered[place].add(&simulation.outcome().map_err(Failure::input)?);
        }
    }
    let spread = |(cell, gathered): (&Cell, Gathered)| Some(gathered.spread(cell.outcome()?));
    Ok(simulated.cells.iter().zip(gathered).filter_map(spread).collect())
}

/// The seed of the layout with this number. It does not depend on how many layouts there are.
fn seed(seed: u64, number: u32) -> u64 {
    seed.rotate_left(32) ^ u64::from(number)
}

/// The figures of a cell, collected by name over layouts.
#[derive(Default)]
struct Gathered {
    layouts: u32,
    figures: BTreeMap<String, Vec<u64>>,
}

impl Gathered {
    /// Adds the figures of a simulation that reached the end of the trace.
    fn add(&mut self, outcome: &Outcome) {
        if outcome.is_whole() {
            self.layouts += 1;
            for (name, value) in figures(outcome) {
                self.figures.entry(name).or_default().push(value);
            }
        }
    }

    /// The spread of the figures, with the figures of the layout without randomisation.
    fn spread(self, fixed: &Outcome) -> Spread {
        let of_fixed: BTreeMap<String, u64> = figures(fixed).into_iter().collect();
        let layouts = self.layouts as usize;
        let of = |(name, mut values): (String, Vec<u64>)| {
            // A count that is missing from an outcome was zero there.
            values.resize(layouts, 0);
            values.sort_unstable();
            let fixed = of_fixed.get(&name).copied().unwrap_or(0);
            let (least, most) = (values.first().copied()?, values.last().copied()?);
            Some(FigureSpread { fixed, least, median: values[(layouts - 1) / 2], most, name })
        };
        Spread {
            machine: fixed.machine.clone(),
            policy: fixed.policy.to_string(),
            layouts: self.layouts,
            figures: self.figures.into_iter().filter_map(of).collect(),
        }
    }
}
