//! [`Samples`]: which sampled stack a fault without one has. The stack of a fault at the same instruction and stack pointer of the
//! same task is the same, unless other functions called the same one from the same depth in between.

use std::collections::HashMap;

use crate::event::{Chain, FaultAt, Place, StackId};

/// How many samples before and after a fault are searched for one with the same frame pointers.
const SEARCHED: usize = 16;
/// How long the last sample of a place is kept.
const KEPT_NS: u64 = 10_000_000_000;

/// Samples by their places, each list in order of time.
#[derive(Default)]
pub struct Samples {
    by_place: HashMap<Place, Vec<Sample>>,
}

/// The stack of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    pub stack: StackId,
    /// Whether the stack has all callers that the frame pointers have: then the code keeps frame pointers.
    pub keeps_frame_pointers: bool,
}

struct Sample {
    time_ns: u64,
    address: u64,
    chain: Chain,
    sampled: Sampled,
}

impl Samples {
    /// Adds a sample. Samples must come in order of time.
    pub fn add(&mut self, FaultAt { time_ns, address, place, chain }: FaultAt, sampled: Sampled) {
        self.by_place.entry(place).or_default().push(Sample { time_ns, address, chain, sampled });
    }

    /// The sample for a fault: of those with the same frame pointers (then the answer has `true`), else of all at the same place. Of
    /// the last before the fault and the first after it, it is the one whose address is nearer.
    pub fn nearest(&self, fault: &FaultAt) -> Option<(Sampled, bool)> {
        let list = self.by_place.get(&fault.place)?;
        let (before, after) = list.split_at(list.partition_point(|sample| sample.time_ns <= fault.time_ns));
        let nearer = |is_candidate: &dyn Fn(&&Sample) -> bool| {
            let before = before.iter().rev().take(SEARCHED).find(is_candidate);
            let after = after.iter().take(SEARCHED).find(is_candidate);
            before.into_iter().chain(after).min_by_key(|sample| sample.address.abs_diff(fault.address))
        };
        let same = nearer(&|sample| sample.chain == fault.chain);
        let found = same.or_else(|| nearer(&|_| true))?;
        Some((found.sampled, same.is_some()))
    }

    /// Forgets what no fault after this time needs.
    pub fn forget_before(&mut self, time_ns: u64) {
        self.by_place.retain(|_, list| {
            let before = list.partition_point(|sample| sample.time_ns <= time_ns);
            list.drain(..before.saturating_sub(SEARCHED));
            list.last().is_some_and(|sample| sample.time_ns + KEPT_NS > time_ns)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { task: 1, instruction: 0x1000, stack: 0x7000, is_in_kernel: false };

    fn fault(time_ns: u64, address: u64, chain: &[u64]) -> FaultAt {
        FaultAt { time_ns, address, place: PLACE, chain: chain.to_vec() }
    }

    fn sampled(stack: u32) -> Sampled {
        Sampled { stack: StackId(stack), keeps_frame_pointers: true }
    }

    #[test]
    fn the_same_frame_pointers_count_more_than_time_and_address() {
        let mut samples = Samples::default();
        samples.add(fault(100, 0x90_0000, &[0x1000, 0x2000]), sampled(1));
        samples.add(fault(300, 0x50_0000, &[0x1000, 0x3000]), sampled(2));
        assert_eq!(samples.nearest(&fault(290, 0x50_0000, &[0x1000, 0x2000])), Some((sampled(1), true)));
        assert_eq!(samples.nearest(&fault(110, 0x50_1000, &[0x1000, 0x9000])), Some((sampled(2), false)));
        assert_eq!(samples.nearest(&fault(290, 0x90_1000, &[0x1000])), Some((sampled(1), false)));
        let elsewhere = FaultAt { place: Place { stack: 0x6000, ..PLACE }, ..fault(120, 0, &[0x1000]) };
        assert_eq!(samples.nearest(&elsewhere), None);
    }

    #[test]
    fn old_samples_are_forgotten() {
        let mut samples = Samples::default();
        (0..100).for_each(|time_ns| samples.add(fault(time_ns, 0, &[]), sampled(time_ns as u32)));
        samples.forget_before(90);
        assert_eq!(samples.by_place[&PLACE].len(), 9 + SEARCHED);
        samples.forget_before(99 + KEPT_NS);
        assert!(samples.by_place.is_empty());
    }
}
