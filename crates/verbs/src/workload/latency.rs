//! A histogram of latencies with buckets of fixed relative width, so that recording a latency does not touch new memory.

use std::time::{Duration, Instant};

/// The number of buckets per power of two; a percentile has an error of at most one part in 64.
const PARTS: usize = 64;
const PART_BITS: u32 = PARTS.trailing_zeros();

/// A histogram of latencies with exact count, sum and maximum.
pub struct Latencies {
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Latencies {
    /// An empty histogram; all of its memory is already populated.
    pub fn new() -> Latencies {
        let buckets: Vec<u64> = (0..PARTS * (66 - PART_BITS as usize)).map(|_| std::hint::black_box(0)).collect();
        Latencies { buckets, count: 0, sum_ns: 0, max_ns: 0 }
    }

    /// Runs `work` and records its duration, including the time to read the clock.
    pub fn time<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = work();
        self.record(start.elapsed());
        result
    }

    /// Records one latency.
    pub fn record(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(ns)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// The number of latencies.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum in seconds.
    pub fn total_s(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// The mean in nanoseconds; 0 if there are none.
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.count.max(1) as f64
    }

    /// The maximum in nanoseconds; 0 if there are none.
    pub fn max_ns(&self) -> f64 {
        self.max_ns as f64
    }

    /// The latency in nanoseconds that the given share of all latencies does not exceed; 0 if there are none.
    pub fn percentile_ns(&self, share: f64) -> f64 {
        let rank = ((share * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let reached = |(_, in_bucket): &(usize, &u64)| {
            seen += **in_bucket;
            seen >= rank
        };
        self.buckets.iter().enumerate().find(reached).map_or(0.0, |(index, _)| middle(index).min(self.max_ns()))
    }

    /// The mean cost in nanoseconds of reading the clock as [`Latencies::time`] does.
    pub fn clock_ns() -> f64 {
        let mut empty = Latencies::new();
        for _ in 0..10_000 {
            empty.time(|| ());
        }
        empty.percentile_ns(0.5)
    }
}

/// The index of a bucket: below 2 * PARTS, one bucket per value; above, PARTS buckets per power of two.
fn bucket(ns: u64) -> usize {
    let power = (u64::BITS - ns.leading_zeros()).saturating_sub(PART_BITS + 1);
    power as usize * PARTS + (ns >> power) as usize
}

/// The middle of a bucket: the mean of its smallest and largest value.
fn middle(index: usize) -> f64 {
    let power = (index / PARTS).saturating_sub(1);
    let first = (index - power * PARTS) as f64 * (1u64 << power) as f64;
    first + ((1u64 << power) - 1) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_near_the_middle_of_its_bucket() {
        for shift in 0..64 {
            for ns in [1u64 << shift, (1u64 << shift) + (1u64 << shift) / 3, u64::MAX >> (63 - shift)] {
                let error = (middle(bucket(ns)) - ns as f64).abs() / ns as f64;
                assert!(error <= 1.0 / PARTS as f64, "{ns}: {error}");
            }
        }
        assert!(bucket(u64::MAX) < Latencies::new().buckets.len());
    }

    #[test]
    fn percentiles_mean_and_maximum_are_those_of_the_values() {
        let mut latencies = Latencies::new();
        (1..=100).for_each(|ns| latencies.record(Duration::from_nanos(ns)));
        assert_eq!((latencies.percentile_ns(0.5), latencies.percentile_ns(0.99)), (50.0, 99.0));
        assert_eq!((latencies.mean_ns(), latencies.max_ns(), latencies.count()), (50.5, 100.0, 100));
        assert_eq!(latencies.total_s(), 5050e-9);
        latencies.record(Duration::from_micros(3));
        let last = latencies.percentile_ns(1.0);
        assert!((last - 3000.0).abs() <= 3000.0 / PARTS as f64 && last <= latencies.max_ns(), "{last}");
        assert_eq!(Latencies::new().percentile_ns(0.5), 0.0);
    }
}
