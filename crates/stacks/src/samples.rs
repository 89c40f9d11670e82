//! [`Samples`]: which sampled stack a fault without one has. The stack of a fault at the same instruction and stack pointer of the
//! same task is the same, unless other functions called the same one from the same depth in between.

use std::collections::HashMap;

use crate::event::{Chain, Place, SampleNumber};

/// How many samples before and after a fault are searched for one with the same frame pointers.
const SEARCHED: usize = 16;

/// A fault.
#[derive(Clone, Debug)]
pub struct FaultAt {
    pub time_ns: u64,
    pub address: u64,
    pub place: Place,
    pub chain: Chain,
}

/// All samples by their places, each list in order of time.
#[derive(Default)]
pub struct Samples {
    by_place: HashMap<Place, Vec<Sample>>,
}

struct Sample {
    number: SampleNumber,
    time_ns: u64,
    address: u64,
    chain: Chain,
}

impl Samples {
    pub fn add(&mut self, number: SampleNumber, FaultAt { time_ns, address, place, chain }: FaultAt) {
        let list = self.by_place.entry(place).or_default();
        // Those of one task can be read from the buffers of several processors.
        let at = list.partition_point(|other| other.time_ns <= time_ns);
        list.insert(at, Sample { number, time_ns, address, chain });
    }

    /// The sample for a fault: of those with the same frame pointers (then the answer has `true`), else of all at the same place. Of
    /// the last before the fault and the first after it, it is the one whose address is nearer.
    pub fn nearest(&self, fault: &FaultAt) -> Option<(SampleNumber, bool)> {
        let list = self.by_place.get(&fault.place)?;
        let (before, after) = list.split_at(list.partition_point(|sample| sample.time_ns <= fault.time_ns));
        let nearer = |is_candidate: &dyn Fn(&&Sample) -> bool| {
            let before = before.iter().rev().take(SEARCHED).find(is_candidate);
            let after = after.iter().take(SEARCHED).find(is_candidate);
            before.into_iter().chain(after).min_by_key(|sample| sample.address.abs_diff(fault.address))
        };
        let same = nearer(&|sample| sample.chain == fault.chain);
        let found = same.or_else(|| nearer(&|_| true))?;
        Some((found.number, same.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { task: 1, instruction: 0x1000, stack: 0x7000, is_in_kernel: false };

    fn fault(time_ns: u64, address: u64, chain: &[u64]) -> FaultAt {
        FaultAt { time_ns, address, place: PLACE, chain: chain.to_vec() }
    }

    #[test]
    fn the_same_frame_pointers_count_more_than_time_and_address() {
        let mut samples = Samples::default();
        samples.add(SampleNumber(2), fault(300, 0x50_0000, &[0x1000, 0x3000]));
        samples.add(SampleNumber(1), fault(100, 0x90_0000, &[0x1000, 0x2000]));
        assert_eq!(samples.nearest(&fault(290, 0x50_0000, &[0x1000, 0x2000])), Some((SampleNumber(1), true)));
        assert_eq!(samples.nearest(&fault(110, 0x50_1000, &[0x1000, 0x9000])), Some((SampleNumber(2), false)));
        assert_eq!(samples.nearest(&fault(290, 0x90_1000, &[0x1000])), Some((SampleNumber(1), false)));
        let elsewhere = FaultAt { place: Place { stack: 0x6000, ..PLACE }, ..fault(120, 0, &[0x1000]) };
        assert_eq!(samples.nearest(&elsewhere), None);
    }
}
