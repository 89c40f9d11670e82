//! Computes what share of the best arm's gain each other arm brings, with its interval.

use super::blocks::Blocks;
use super::signed_rank::SignedRank;
use crate::comparison::Design;
use crate::result::{ArmAnalysis, GainShare, Outcome};

/// Records each arm's share of the largest gain, which is the gain of the best arm that gains most. Without a best arm no gain is
/// shown, so no arm has a share.
pub(crate) fn mark(design: &Design, blocks: &Blocks<'_>, arms: &mut [ArmAnalysis], signed_rank: &mut SignedRank) {
    let change = |arm: &ArmAnalysis| arm.effects.get(&design.primary).map_or(0.0, |effect| effect.ratio.ln().abs());
    let is_best = |arm: &usize| arms[*arm].outcome == Outcome::Better { best: true };
    let best =
        (0..arms.len()).filter(is_best).max_by(|one, other| change(&arms[*one]).total_cmp(&change(&arms[*other])));
    let Some(best) = best else { return };
    for arm in (0..arms.len()).filter(|arm| *arm != best && !design.is_aa(*arm)) {
        let is_gain =
            matches!(arms[arm].outcome, Outcome::Better { .. } | Outcome::Equivalent | Outcome::Undecided { .. });
        let centres = [arm, best].map(|arm| arms[arm].effects.get(&design.primary).map(|effect| 1.0 - effect.ratio));
        let ([Some(part), Some(whole)], true) = (centres, is_gain) else { continue };
        let interval = interval(&gains(design, blocks, arm, best), design.level(), signed_rank);
        arms[arm].gain_share = interval.map(|(low, high)| {
            let ratio = part / whole;
            GainShare { of: best, ratio, low: low.min(ratio), high: high.max(ratio) }
        });
    }
}

/// The relative changes of both arms against the baseline, for each block that has both arms and the baseline.
fn gains(design: &Design, blocks: &Blocks<'_>, part: usize, whole: usize) -> Vec<(f64, f64)> {
    let ratios = |arm: usize| blocks.log_ratios(arm, design.baseline, &design.primary).unwrap_or_default();
    let gain = |log_ratio: f64| 1.0 - log_ratio.exp();
    ratios(part).into_iter().zip(ratios(whole)).filter_map(|(part, whole)| Some((gain(part?), gain(whole?)))).collect()
}

/// The interval of the ratio of `part` to `whole`: every share `s` for which the signed-rank test does not reject that
/// `part - s * whole` is centred at 0. It is Fieller's interval, with ranks in place of normal errors. `None` if it is unbounded.
pub(super) fn interval(gains: &[(f64, f64)], level: f64, signed_rank: &mut SignedRank) -> Option<(f64, f64)> {
    let rejected = signed_rank.largest_rejected(gains.len(), level)?;
    let mut crossings = Vec::with_capacity(gains.len() * (gains.len() + 1) / 2);
    for (at, one) in gains.iter().enumerate() {
        let sums = gains[at..].iter().map(|other| (one.0 + other.0, one.1 + other.1));
        crossings.extend(sums.filter(|(_, whole)| *whole != 0.0).map(|(part, whole)| (part / whole, whole > 0.0)));
    }
    crossings.sort_by(|one, other| one.0.total_cmp(&other.0));
    let is_accepted = |above: usize| above > rejected && crossings.len() - above > rejected;
    // `above` is the number of Walsh averages of `part - s * whole` above 0. It changes as `s` grows past a share at which an
    // average is 0.
    let mut above = crossings.iter().filter(|(_, is_whole_positive)| *is_whole_positive).count();
    let (mut low, mut high) = (None, None);
    let mut was_accepted = is_accepted(above);
    let is_unbounded = was_accepted;
    for (share, is_whole_positive) in &crossings {
        above = if *is_whole_positive { above - 1 } else { above + 1 };
        match (was_accepted, is_accepted(above)) {
            (false, true) => low = low.or(Some(*share)),
            (true, false) => high = Some(*share),
            _ => {}
        }
        was_accepted = is_accepted(above);
    }
    low.zip(high).filter(|_| !is_unbounded && !was_accepted)
}

#[cfg(test)]
mod tests {
    use testing::Random;

    use super::*;

    /// The gains in `blocks` blocks. Both gains contain the noise of the baseline.
    fn gains(random: &mut Random, (part, whole): (f64, f64), blocks: u32) -> Vec<(f64, f64)> {
        let gain = |random: &mut Random, mean: f64, baseline: f64| mean + 0.01 * (random.normal() - baseline);
        (0..blocks)
            .map(|_| {
                let baseline = random.normal();
                (gain(random, part, baseline), gain(random, whole, baseline))
            })
            .collect()
    }

    #[test]
    fn the_interval_has_the_shares_that_the_test_does_not_reject() {
        let mut random = Random::new();
        let mut signed_rank = SignedRank::default();
        for _ in 0..50 {
            let gains = gains(&mut random, (0.05, 0.1), 12);
            let (low, high) = interval(&gains, 0.05, &mut signed_rank).unwrap();
            let mut p = |share: f64| {
                let differences: Vec<f64> = gains.iter().map(|(part, whole)| part - share * whole).collect();
                signed_rank.test(&differences, 0.05).unwrap().p
            };
            let step = 1e-9;
            assert!(p(low - step) <= 0.05 && p(low + step) > 0.05, "{low}");
            assert!(p(high - step) > 0.05 && p(high + step) <= 0.05, "{high}");
        }
    }

    #[test]
    fn the_interval_holds_the_true_share_at_its_confidence() {
        let mut random = Random::new();
        let mut signed_rank = SignedRank::default();
        let mut missed = 0;
        for _ in 0..2000 {
            let (low, high) = interval(&gains(&mut random, (0.06, 0.1), 15), 0.05, &mut signed_rank).unwrap();
            missed += u32::from(!(low..=high).contains(&0.6));
        }
        // 100 are expected at most; 150 are five standard deviations more, once in 3 million tests.
        assert!(missed <= 150, "{missed}");
    }

    #[test]
    fn without_a_gain_there_is_no_share() {
        let mut random = Random::new();
        let mut signed_rank = SignedRank::default();
        let bounded =
            (0..200).filter(|_| interval(&gains(&mut random, (0.0, 0.0), 12), 0.05, &mut signed_rank).is_some());
        // Each bounded interval is a false claim of a gain: 10 are expected, and 30 come by chance once in a million tests.
        assert!(bounded.count() <= 30);
    }
}
