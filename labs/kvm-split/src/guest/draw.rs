//! Decides which pages a random pass writes ([`RandomWrites`]), by a number for each page, which is the same in the guest's
//! loop and here.

/// The increment of the state from page to page (2^64 divided by the golden ratio, odd), and the factor that mixes it. Both are
/// those of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
pub(super) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
pub(super) const FACTOR: u64 = 0xbf58_476d_1ce4_e5b9;

/// Draws a number below 2^32 for each page; pages whose number is small enough are written, the others are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RandomWrites {
    seed: u64,
    write_threshold: u64,
}

impl RandomWrites {
    /// Writes each page with this probability in percent; 100 and more write all pages.
    pub fn of_percent(seed: u64, percent: u8) -> RandomWrites {
        RandomWrites { seed, write_threshold: (u64::from(percent.min(100)) << 32).div_ceil(100) }
    }

    /// Whether a page is written.
    pub fn writes(&self, page: u64) -> bool {
        let state = self.state(page);
        (state ^ state >> 32).wrapping_mul(FACTOR) >> 32 < self.write_threshold
    }

    /// The state in the register of the guest's loop at a page.
    pub(super) fn state(&self, page: u64) -> u64 {
        self.seed.wrapping_add(page.wrapping_mul(STEP))
    }

    /// Pages with a number below this are written.
    pub(super) fn write_threshold(&self) -> u64 {
        self.write_threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u64 = 100_000;

    fn written(random_writes: RandomWrites) -> Vec<bool> {
        (0..PAGES).map(|page| random_writes.writes(page)).collect()
    }

    #[test]
    fn writes_the_requested_number_of_pages() {
        for percent in [0, 1, 25, 50, 99, 100] {
            for seed in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
                let count =
                    written(RandomWrites::of_percent(seed, percent)).iter().filter(|written| **written).count() as f64;
                let (share, expected) = (count / PAGES as f64, f64::from(percent) / 100.0);
                // The tolerance is five standard deviations of the share of that many draws.
                let tolerance = 5.0 * (expected * (1.0 - expected) / PAGES as f64).sqrt();
                assert!((share - expected).abs() <= tolerance, "{percent} % of seed {seed}: {share}");
            }
        }
    }

    #[test]
    fn neighbouring_pages_and_seeds_are_independent() {
        let agree = |one: &[bool], other: &[bool]| {
            let same = one.iter().zip(other).filter(|(one, other)| one == other).count();
            same as f64 / one.len().min(other.len()) as f64
        };
        let one = written(RandomWrites::of_percent(1, 50));
        for distance in [1, 2, 3, 5, 8, 64, 512] {
            let share = agree(&one, &one[distance..]);
            assert!((share - 0.5).abs() < 0.01, "pages {distance} apart agree in {share}");
        }
        let share = agree(&one, &written(RandomWrites::of_percent(2, 50)));
        assert!((share - 0.5).abs() < 0.01, "seeds agree in {share}");
    }
}
