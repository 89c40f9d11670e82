//! Counts on how many workloads each policy is best: as shown statistically, by the estimates alone, and as expected by chance.
//!
//! A policy wins a workload if it beats every other policy there, including the baseline; otherwise the unbeaten policies tie.
//! Published tables of this kind count the smallest figure of each test regardless of noise, which is the count by estimate
//! here. If all `k` policies were alike, each would have the smallest figure in one of `k` workloads.

/// The policies that ran on a workload, and those that came out ahead, as indices of policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Race {
    /// Policies with figures.
    pub running: Vec<usize>,
    /// Policies that no other policy is shown to beat. A single one has won.
    pub unbeaten: Vec<usize>,
    /// The policy with the best estimate.
    pub leader: Option<usize>,
}

/// How often a policy came out ahead.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wins {
    /// Workloads in which it ran against at least one other policy.
    pub races: u32,
    /// Workloads in which it beats every other policy.
    pub won: u32,
    /// Workloads in which it is one of several unbeaten policies.
    pub tied: u32,
    /// Workloads in which its estimate is the best.
    pub led: u32,
    /// Expected value of `led` by chance alone.
    pub led_by_chance: f64,
    /// Range of `led` by chance alone, at the given confidence: minimum and maximum.
    pub chance_range: (u32, u32),
}

impl Wins {
    /// The share of workloads in which the policy's estimate is the best, with Wilson's interval at 95 % (J. Am. Stat. Assoc.
    /// 22, 1927), and the share expected by chance; `None` if the policy ran on no workload.
    pub fn share(&self) -> Option<Share> {
        const Z: f64 = 1.959_963_984_540_054;
        let races = f64::from(self.races);
        if self.races == 0 {
            return None;
        }
        let share = f64::from(self.led) / races;
        let (centre, width) = (share + Z * Z / (2.0 * races), 1.0 + Z * Z / races);
        let half = Z * (share * (1.0 - share) / races + Z * Z / (4.0 * races * races)).sqrt();
        let interval = ((centre - half) / width, (centre + half) / width);
        Some(Share { share, interval, by_chance: self.led_by_chance / races })
    }
}

/// A share of workloads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The share, from 0 to 1.
    pub share: f64,
    /// Bounds of its interval.
    pub interval: (f64, f64),
    /// Share expected by chance alone.
    pub by_chance: f64,
}

/// How often a policy came out ahead; `confidence` is that of the range by chance.
pub fn wins(races: &[Race], policy: usize, confidence: f64) -> Wins {
    let own: Vec<&Race> =
        races.iter().filter(|race| race.running.contains(&policy) && race.running.len() > 1).collect();
    let count = |is: &dyn Fn(&Race) -> bool| own.iter().filter(|race| is(race)).count() as u32;
    let shares: Vec<f64> = own.iter().map(|race| 1.0 / race.running.len() as f64).collect();
    Wins {
        races: own.len() as u32,
        won: count(&|race| race.unbeaten == [policy]),
        tied: count(&|race| race.unbeaten.len() > 1 && race.unbeaten.contains(&policy)),
        led: count(&|race| race.leader == Some(policy)),
        // `sum` would return -0.0 for an empty iterator.
        led_by_chance: shares.iter().fold(0.0, |sum, share| sum + share),
        chance_range: range(&counts(&shares), confidence),
    }
}

/// The probability of each number of successes in independent trials with these success probabilities.
fn counts(shares: &[f64]) -> Vec<f64> {
    shares.iter().fold(vec![1.0], |before, share| {
        let mut after = vec![0.0; before.len() + 1];
        for (count, probability) in before.iter().enumerate() {
            after[count] += probability * (1.0 - share);
            after[count + 1] += probability * share;
        }
        after
    })
}

/// The central range of a distribution of counts: the same probability is cut off at both ends.
fn range(probabilities: &[f64], confidence: f64) -> (u32, u32) {
    let tail = (1.0 - confidence) / 2.0;
    let cut = |probabilities: &mut dyn Iterator<Item = &f64>| {
        let mut sum = 0.0;
        let is_cut_off = |probability: &&f64| {
            sum += **probability;
            sum <= tail
        };
        probabilities.take_while(is_cut_off).count()
    };
    let (below, above) = (cut(&mut probabilities.iter()), cut(&mut probabilities.iter().rev()));
    (below as u32, (probabilities.len() - 1 - above) as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn race(running: &[usize], unbeaten: &[usize], leader: usize) -> Race {
        Race { running: running.to_vec(), unbeaten: unbeaten.to_vec(), leader: Some(leader) }
    }

    #[test]
    fn wins_ties_and_leads_are_counted_apart() {
        let races = [
            race(&[0, 1, 2], &[1], 1),
            race(&[0, 1, 2], &[0, 1], 1),
            race(&[0, 1], &[0], 0),
            race(&[0, 2], &[0, 2], 2),
            race(&[1], &[1], 1),
        ];
        let of_one = wins(&races, 1, 0.95);
        assert_eq!((of_one.races, of_one.won, of_one.tied, of_one.led), (3, 1, 1, 2));
        assert!((of_one.led_by_chance - (1.0 / 3.0 + 1.0 / 3.0 + 0.5)).abs() < 1e-12);
        let of_none = wins(&races, 7, 0.95);
        assert_eq!((of_none.races, of_none.led_by_chance.is_sign_negative()), (0, false));
    }

    #[test]
    fn the_chance_range_is_that_of_the_binomial_distribution() {
        // With 259 tests of three policies, each is best in 86 by chance; 45 % of the tests are 117.
        let races = vec![race(&[0, 1, 2], &[0, 1, 2], 0); 259];
        let wins = wins(&races, 0, 0.95);
        assert!((wins.led_by_chance - 86.33).abs() < 0.01);
        // The expected range is that of the normal approximation: 86.3 - 1.96 * 7.59 and 86.3 + 1.96 * 7.59.
        assert!((71..=73).contains(&wins.chance_range.0) && (100..=102).contains(&wins.chance_range.1), "{wins:?}");
    }

    #[test]
    fn a_share_has_the_published_interval_of_wilson() {
        // The intervals are those of Newcombe, Stat. Med. 17, 1998, table I: 81 of 263, 15 of 148, 0 of 20.
        for (led, races, low, high) in [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)] {
            let share = Wins { races, led, ..Wins::default() }.share().unwrap();
            assert!((share.interval.0 - low).abs() < 5e-5 && (share.interval.1 - high).abs() < 5e-5, "{share:?}");
        }
        assert_eq!(Wins::default().share(), None);
    }

    /// Enumerates every outcome of all trials.
    fn slow(shares: &[f64]) -> Vec<f64> {
        let mut counts = vec![0.0; shares.len() + 1];
        for outcome in 0..1usize << shares.len() {
            let succeeds = |at: usize| outcome >> at & 1 == 1;
            let probability = |(at, share): (usize, &f64)| if succeeds(at) { *share } else { 1.0 - share };
            counts[outcome.count_ones() as usize] += shares.iter().enumerate().map(probability).product::<f64>();
        }
        counts
    }

    proptest! {
        #![proptest_config(testing::properties(64))]
        #[test]
        fn chance_is_that_of_all_outcomes(shares in prop::collection::vec(0.0..=1.0f64, 0..11)) {
            let (fast, slow) = (counts(&shares), slow(&shares));
            for (fast, slow) in fast.iter().zip(&slow) {
                prop_assert!((fast - slow).abs() < 1e-12);
            }
            let (low, high) = range(&fast, 0.9);
            let within: f64 = slow[low as usize..=high as usize].iter().sum();
            prop_assert!(within >= 0.9 - 1e-9);
        }
    }
}
