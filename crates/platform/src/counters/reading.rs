//! [`Reading`]s of counters, how long they counted, and the metrics that follow from them.

use std::io;
use std::time::Duration;

use perf_event::Counter;
use study::metric::{Observation, names};

use super::encoding::Quantity;

/// Below this share of the enabled time an event was multiplexed and its figure is an estimate; the margin allows for the
/// kernel's bookkeeping at context switches.
const WHOLE: f64 = 0.999;

/// A count, and the time for which it was counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The quantity that was counted.
    pub quantity: Quantity,
    /// The count while the event was on a counter; not scaled.
    pub count: u64,
    /// Running time of the tasks of the tree, summed (`time_enabled`).
    pub enabled: Duration,
    /// Part of that time for which the event was on a counter (`time_running`).
    pub running: Duration,
}

impl Reading {
    pub(super) fn take(quantity: Quantity, counter: &mut Counter) -> io::Result<Reading> {
        let data = counter.read_full()?;
        let time = |time: Option<Duration>| time.ok_or_else(|| io::Error::other("perf gave a count without its times"));
        Ok(Reading {
            quantity,
            count: data.count(),
            enabled: time(data.time_enabled())?,
            running: time(data.time_running())?,
        })
    }

    /// The share of the time for which the event was counted; below 1 the kernel multiplexed it.
    pub fn running_ratio(&self) -> f64 {
        match self.enabled.as_secs_f64() {
            0.0 => 0.0,
            enabled => self.running.as_secs_f64() / enabled,
        }
    }
}

/// A figure for the whole time, and whether it had to be scaled up to it.
#[derive(Clone, Copy)]
struct Figure {
    value: f64,
    scaled: bool,
}

/// The observations that the readings support:
/// * `dtlb_walks`, `itlb_walks`: measured where the events were counted all the time; scaled by enabled time over running time,
///   and derived, where the kernel multiplexed them.
/// * `walk_cycles_ratio`, derived: cycles with a walk for a load, for a store or for an instruction, summed, over all cycles.
///   Where walks of different kinds overlap a cycle counts for each of them, so the figure is an upper bound of the cycles with
///   any walk.
///
/// A metric is absent when one of its events was not opened or never ran.
pub fn observations(readings: &[Reading]) -> Vec<Observation> {
    let figure = |quantity| figure(readings, quantity);
    let sum = |quantities: &[Quantity]| -> Option<Figure> {
        quantities.iter().map(|quantity| figure(*quantity)).try_fold(
            Figure { value: 0.0, scaled: false },
            |sum, next| {
                let next = next?;
                Some(Figure { value: sum.value + next.value, scaled: sum.scaled || next.scaled })
            },
        )
    };
    let data_walks = figure(Quantity::DataWalks).or_else(|| sum(&[Quantity::LoadWalks, Quantity::StoreWalks]));
    let walk_cycles = sum(&[Quantity::LoadWalkCycles, Quantity::StoreWalkCycles, Quantity::InstructionWalkCycles]);
    let ratio = walk_cycles.zip(figure(Quantity::Cycles)).filter(|(_, cycles)| cycles.value > 0.0);
    let observed = |name, figure: Figure| {
        if figure.scaled { Observation::derived(name, figure.value) } else { Observation::measured(name, figure.value) }
    };
    [
        data_walks.map(|walks| observed(names::DTLB_WALKS, walks)),
        figure(Quantity::InstructionWalks).map(|walks| observed(names::ITLB_WALKS, walks)),
        ratio.map(|(walk, cycles)| Observation::derived(names::WALK_CYCLES_RATIO, walk.value / cycles.value)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The figure of a quantity over all core PMUs. Where cores differ, an event runs only on the PMU of its core, so the sum of the
/// running times is compared with the enabled time.
fn figure(readings: &[Reading], quantity: Quantity) -> Option<Figure> {
    let readings = || readings.iter().filter(move |reading| reading.quantity == quantity);
    let running = readings().map(|reading| reading.running.as_secs_f64()).sum::<f64>();
    let enabled = readings().map(|reading| reading.enabled.as_secs_f64()).fold(0.0, f64::max);
    let count = readings().map(|reading| reading.count as f64).sum::<f64>();
    if running == 0.0 {
        return None;
    }
    let scaled = running < WHOLE * enabled;
    Some(Figure { value: if scaled { count * enabled / running } else { count }, scaled })
}

#[cfg(test)]
mod tests {
    use study::metric::Provenance;

    use super::*;

    fn reading(quantity: Quantity, count: u64, running_ms: u64) -> Reading {
        Reading { quantity, count, enabled: Duration::from_millis(1000), running: Duration::from_millis(running_ms) }
    }

    fn value(observations: &[Observation], name: &str) -> Option<(f64, Provenance)> {
        let found = observations.iter().find(|observation| observation.metric == name)?;
        Some((found.value, found.provenance))
    }

    #[test]
    fn loads_and_stores_are_summed_and_measured_when_counted_throughout() {
        let observed = observations(&[reading(Quantity::LoadWalks, 70, 1000), reading(Quantity::StoreWalks, 30, 1000)]);
        assert_eq!(value(&observed, names::DTLB_WALKS), Some((100.0, Provenance::Measured)));
        assert_eq!(observed.len(), 1);
    }

    #[test]
    fn an_event_that_took_turns_is_scaled_and_derived() {
        let observed = observations(&[reading(Quantity::LoadWalks, 70, 500), reading(Quantity::StoreWalks, 30, 1000)]);
        assert_eq!(value(&observed, names::DTLB_WALKS), Some((170.0, Provenance::Derived)));
        assert_eq!(reading(Quantity::LoadWalks, 70, 500).running_ratio(), 0.5);
    }

    #[test]
    fn counters_that_never_ran_or_were_not_opened_are_absent() {
        assert!(observations(&[reading(Quantity::InstructionWalks, 0, 0)]).is_empty());
        assert!(observations(&[reading(Quantity::LoadWalks, 70, 1000)]).is_empty(), "half of the data walks");
        let zero = observations(&[reading(Quantity::InstructionWalks, 0, 1000)]);
        assert_eq!(value(&zero, names::ITLB_WALKS), Some((0.0, Provenance::Measured)), "counted, and none came");
    }

    #[test]
    fn cores_of_two_kinds_are_one_sum_that_is_not_scaled() {
        let observed =
            observations(&[reading(Quantity::InstructionWalks, 10, 300), reading(Quantity::InstructionWalks, 5, 700)]);
        assert_eq!(value(&observed, names::ITLB_WALKS), Some((15.0, Provenance::Measured)));
        let asleep =
            observations(&[reading(Quantity::InstructionWalks, 10, 1000), reading(Quantity::InstructionWalks, 0, 0)]);
        assert_eq!(value(&asleep, names::ITLB_WALKS), Some((10.0, Provenance::Measured)));
    }

    #[test]
    fn the_ratio_needs_all_of_its_events() {
        let mut readings = vec![
            reading(Quantity::LoadWalkCycles, 200, 1000),
            reading(Quantity::StoreWalkCycles, 50, 500),
            reading(Quantity::InstructionWalkCycles, 100, 1000),
            reading(Quantity::Cycles, 1000, 1000),
        ];
        assert_eq!(value(&observations(&readings), names::WALK_CYCLES_RATIO), Some((0.4, Provenance::Derived)));
        readings.remove(1);
        assert!(observations(&readings).is_empty());
    }
}
