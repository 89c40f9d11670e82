//! [`Samples`]: the whole stacks of some faults, for other faults at the same place.

use std::collections::HashMap;

use crate::event::{Place, StackId};

/// How far apart in time two faults of a task at the same place may be to have the same stack. Their return addresses next to the
/// stack pointer are equal; functions further out may have changed.
const NEAR_NS: u64 = 100_000_000;

/// Stacks by their places, each list in order of time.
#[derive(Default)]
pub struct Samples {
    by_place: HashMap<Place, Vec<(u64, StackId)>>,
}

impl Samples {
    /// Adds a sample. Samples must come in order of time.
    pub fn add(&mut self, time_ns: u64, place: Place, stack: StackId) {
        self.by_place.entry(place).or_default().push((time_ns, stack));
    }

    /// The stack at this place that is nearest in time; `None` if there is none near.
    pub fn nearest(&self, time_ns: u64, place: &Place) -> Option<StackId> {
        let list = self.by_place.get(place)?;
        let (before, after) = list.split_at(list.partition_point(|(time, _)| *time <= time_ns));
        let distance = |(time, _): &&(u64, StackId)| time.abs_diff(time_ns);
        let nearest = before.last().into_iter().chain(after.first()).min_by_key(distance)?;
        (distance(&nearest) <= NEAR_NS).then_some(nearest.1)
    }

    /// Forgets what no fault after this time needs.
    pub fn forget_before(&mut self, time_ns: u64) {
        self.by_place.retain(|_, list| {
            let before = list.partition_point(|(time, _)| *time <= time_ns);
            list.drain(..before.saturating_sub(1));
            list.last().is_some_and(|(time, _)| time + NEAR_NS > time_ns)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { task: 1, instruction: 0x1000, stack: 0x7000, is_in_kernel: false, pattern: 5 };

    #[test]
    fn the_nearest_sample_counts_unless_it_is_far() {
        let mut samples = Samples::default();
        samples.add(100, PLACE, StackId(1));
        samples.add(300, PLACE, StackId(2));
        assert_eq!(samples.nearest(190, &PLACE), Some(StackId(1)));
        assert_eq!(samples.nearest(210, &PLACE), Some(StackId(2)));
        assert_eq!(samples.nearest(301 + NEAR_NS, &PLACE), None);
        assert_eq!(samples.nearest(190, &Place { pattern: 6, ..PLACE }), None);
    }

    #[test]
    fn old_samples_are_forgotten() {
        let mut samples = Samples::default();
        (0..100).for_each(|time_ns| samples.add(time_ns, PLACE, StackId(time_ns as u32)));
        samples.forget_before(90);
        assert_eq!(samples.by_place[&PLACE].len(), 10);
        samples.forget_before(99 + NEAR_NS);
        assert!(samples.by_place.is_empty());
    }
}
