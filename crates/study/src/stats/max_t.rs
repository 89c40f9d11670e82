//! p values corrected for all arms together: Westfall and Young's step-down max-T over sign flips.
//!
//! If an arm does not differ from the baseline, swapping the two within a block only changes the sign of the block's
//! log ratio. One flip changes the signs of a block for all arms at once, so the dependence between arms (they share
//! the baseline, and the block's noise) is preserved. The statistic of an arm is its sum of signed ranks, which one
//! outlying block cannot dominate, divided by its standard deviation over the flips, so that arms with missing blocks
//! are comparable with the others.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// Number of flips drawn if there are too many to enumerate; the first is "no flip".
const DRAWN_FLIPS: usize = 10_000;

/// Up to this many blocks all flips are enumerated. Half of them suffice: flipping all signs changes no statistic.
const MAX_ENUMERATED_BLOCKS: usize = 14;

/// Sets of blocks whose signs are flipped, one bit per block.
pub(crate) struct Flips {
    /// The sets as bit masks. Each column is for eight blocks; entry `i` of every column belongs to set `i`.
    columns: Vec<Vec<u8>>,
}

impl Flips {
    /// Flips of `blocks` blocks: all of them if possible, otherwise a fixed number drawn with `seed`.
    pub fn new(blocks: usize, seed: u64) -> Flips {
        if blocks <= MAX_ENUMERATED_BLOCKS { Flips::all(blocks) } else { Flips::drawn(blocks, seed) }
    }

    fn all(blocks: usize) -> Flips {
        let sets = 0..1u32 << blocks.saturating_sub(1);
        let column = |column: usize| sets.clone().map(|set| set.to_le_bytes()[column]).collect();
        Flips { columns: (0..blocks.div_ceil(8)).map(column).collect() }
    }

    fn drawn(blocks: usize, seed: u64) -> Flips {
        let mut random = Pcg64::seed_from_u64(seed ^ 0x6d61_782d_545f_7065);
        let mut column = |_| {
            let mut column = vec![0; DRAWN_FLIPS];
            random.fill_bytes(&mut column[1..]);
            column
        };
        Flips { columns: (0..blocks.div_ceil(8)).map(&mut column).collect() }
    }

    fn len(&self) -> usize {
        self.columns.first().map_or(0, Vec::len)
    }
}

/// One p value per arm; `ratios` contains each arm's log ratios, one entry per block.
pub(crate) fn adjusted_p(ratios: &[&[Option<f64>]], flips: &Flips) -> Vec<f64> {
    let flipped: Vec<Vec<f64>> = ratios.iter().map(|ratios| flipped_statistics(&signed_ranks(ratios), flips)).collect();
    let observed = |arm: usize| flipped[arm].first().copied().unwrap_or(0.0);
    let mut rising: Vec<usize> = (0..ratios.len()).collect();
    rising.sort_by(|one, two| observed(*one).total_cmp(&observed(*two)));

    // An arm is compared with the largest flipped statistic of all arms whose observed statistic is not larger than its own.
    let mut largest = vec![0.0f64; flips.len()];
    let mut p = vec![1.0; ratios.len()];
    for arm in &rising {
        let mut as_large = 0u32;
        for (largest, statistic) in largest.iter_mut().zip(&flipped[*arm]) {
            *largest = largest.max(*statistic);
            as_large += u32::from(*largest >= observed(*arm));
        }
        p[*arm] = f64::from(as_large) / flips.len() as f64;
    }
    // No arm may be more significant than one with a larger statistic.
    let mut before = 0.0f64;
    for arm in rising.into_iter().rev() {
        before = before.max(p[arm]);
        p[arm] = before;
    }
    p
}

/// Twice the rank of each ratio's absolute value, with the ratio's sign. Doubling gives whole numbers, because ties
/// share their mean rank. Missing ratios and ratios of 0 get rank 0.
fn signed_ranks(ratios: &[Option<f64>]) -> Vec<i32> {
    let size = |at: usize| ratios[at].unwrap_or(0.0).abs();
    let mut order: Vec<usize> = (0..ratios.len()).filter(|at| ratios[*at].is_some()).collect();
    order.sort_by(|one, two| size(*one).total_cmp(&size(*two)));
    let mut ranks = vec![0; ratios.len()];
    let mut below = 0;
    for equal in order.chunk_by(|one, two| size(*one) == size(*two)) {
        let twice_the_mean_rank = (2 * below + equal.len() + 1) as i32;
        for at in equal {
            ranks[*at] = match ratios[*at] {
                Some(ratio) if ratio > 0.0 => twice_the_mean_rank,
                Some(ratio) if ratio < 0.0 => -twice_the_mean_rank,
                _ => 0,
            };
        }
        below += equal.len();
    }
    ranks
}

/// The arm's statistic under every flip.
fn flipped_statistics(ranks: &[i32], flips: &Flips) -> Vec<f64> {
    let deviation = ranks.iter().map(|rank| f64::from(*rank).powi(2)).sum::<f64>().sqrt();
    let mut totals = vec![0i32; flips.len()];
    for (ranks, column) in ranks.chunks(8).zip(&flips.columns) {
        let sums = sums_by_flips(ranks);
        for (total, set) in totals.iter_mut().zip(column) {
            *total += sums[usize::from(*set)];
        }
    }
    totals.into_iter().map(|total| if total == 0 { 0.0 } else { f64::from(total.abs()) / deviation }).collect()
}

/// Sums of up to eight ranks for each of the 256 combinations of signs.
fn sums_by_flips(ranks: &[i32]) -> [i32; 256] {
    let mut sums = [ranks.iter().sum(); 256];
    for bits in 1..256usize {
        let lowest = bits.trailing_zeros() as usize;
        sums[bits] = sums[bits & (bits - 1)] - 2 * ranks.get(lowest).copied().unwrap_or(0);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::signed_rank::SignedRank;

    fn noise(random: &mut Pcg64) -> f64 {
        // A sum of twelve uniform values, minus six, is close enough to normal.
        (0..12).map(|_| random.next_u64() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
    }

    /// Ratios of `arms` arms to one baseline, with an effect on the first.
    fn ratios(random: &mut Pcg64, arms: usize, blocks: usize, effect: f64) -> Vec<Vec<Option<f64>>> {
        let baseline: Vec<f64> = (0..blocks).map(|_| noise(random)).collect();
        let mut effects = vec![0.0; arms];
        effects[0] = effect;
        effects
            .iter()
            .map(|effect| baseline.iter().map(|baseline| Some(noise(random) - baseline + effect)).collect())
            .collect()
    }

    fn adjusted(ratios: &[Vec<Option<f64>>], flips: &Flips) -> Vec<f64> {
        adjusted_p(&ratios.iter().map(Vec::as_slice).collect::<Vec<_>>(), flips)
    }

    #[test]
    fn for_one_arm_it_is_the_exact_test() {
        let mut random = Pcg64::seed_from_u64(1);
        for blocks in [6, 8, 11, 14] {
            let ratios = ratios(&mut random, 1, blocks, 0.8);
            let present: Vec<f64> = ratios[0].iter().flatten().copied().collect();
            let exact = SignedRank::default().test(&present, 0.05).unwrap().p;
            assert!((adjusted(&ratios, &Flips::new(blocks, 1))[0] - exact).abs() < 1e-12, "{blocks}");
        }
    }

    #[test]
    fn drawn_flips_come_close_to_all_flips() {
        let ratios = ratios(&mut Pcg64::seed_from_u64(2), 4, MAX_ENUMERATED_BLOCKS, 1.0);
        let exact = adjusted(&ratios, &Flips::new(MAX_ENUMERATED_BLOCKS, 0));
        let some = adjusted(&ratios, &Flips::drawn(MAX_ENUMERATED_BLOCKS, 3));
        for (exact, some) in exact.iter().zip(some) {
            // The tolerance is four standard errors of a share of 10,000 draws.
            assert!(
                (exact - some).abs() <= 4.0 * (exact * (1.0 - exact) / DRAWN_FLIPS as f64).sqrt(),
                "{exact} {some}"
            );
        }
    }

    #[test]
    fn the_smallest_of_several_p_values_is_uniform_under_the_null() {
        let mut random = Pcg64::seed_from_u64(3);
        let (runs, blocks) = (1000, 13);
        let flips = Flips::new(blocks, 0);
        let smallest =
            |random: &mut Pcg64| adjusted(&ratios(random, 4, blocks, 0.0), &flips).into_iter().fold(1.0, f64::min);
        let p: Vec<f64> = (0..runs).map(|_| smallest(&mut random)).collect();
        for level in [0.05, 0.2, 0.5, 0.8] {
            let share = p.iter().filter(|p| **p <= level).count() as f64 / f64::from(runs);
            assert!((share - level).abs() < 4.0 * (level * (1.0 - level) / f64::from(runs)).sqrt(), "{level} {share}");
        }
    }

    #[test]
    fn a_large_effect_of_one_arm_does_not_make_others_significant() {
        let mut random = Pcg64::seed_from_u64(4);
        let flips = Flips::new(12, 0);
        let mut claims = 0;
        for _ in 0..1000 {
            let p = adjusted(&ratios(&mut random, 4, 12, 50.0), &flips);
            assert!(p[0] <= 0.05);
            claims += u32::from(p[1..].iter().any(|p| *p <= 0.05));
        }
        // The limit is 5 % of 1000, plus four standard errors.
        assert!(claims <= 78, "{claims}");
    }

    #[test]
    fn equal_ratios_share_a_rank_and_missing_ones_have_rank_0() {
        let ratios = [Some(0.2), None, Some(-0.2), Some(0.0), Some(0.5)];
        assert_eq!(signed_ranks(&ratios), [5, 0, -5, 0, 8]);
    }

    #[test]
    fn an_arm_without_any_difference_has_p_1() {
        let ratios = vec![vec![Some(0.0); 10], (1..=10).map(|n| Some(f64::from(n))).collect()];
        assert_eq!(adjusted(&ratios, &Flips::new(10, 0)), [1.0, 2.0 / 1024.0]);
    }
}
