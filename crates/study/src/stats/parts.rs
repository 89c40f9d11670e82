//! The parts of a change of user time: by TLB reach and by the placement of frames.
//!
//! The arm with the frames of a policy and without its leaves ([`crate::role::Role::Frames`]) is a step between the policy and
//! the baseline: policy / frames is reach, frames / baseline is placement, and the product of the two is the whole. All three
//! are Hodges-Lehmann estimates over the same blocks, with signed-rank intervals. Such estimates do not add up exactly, so the
//! small remainder of the logarithm is split equally between the two parts.
//!
//! Parts are shares of the baseline's user time, so that they add up: if placement saves 0.10, and reach a twentieth of the
//! remaining 0.90, the parts are 0.10 and 0.045.

use super::blocks::Blocks;
use super::median::median;
use super::signed_rank::{Centre, SignedRank};
use crate::comparison::Design;
use crate::metric::names;
use crate::result::{ArmAnalysis, Parts, Share};

/// Records the parts of every arm that has an arm of [`crate::role::Role::Frames`], measured or not.
pub(crate) fn mark(design: &Design, blocks: &Blocks<'_>, arms: &mut [ArmAnalysis], signed_rank: &mut SignedRank) {
    for (arm, analysis) in arms.iter_mut().enumerate() {
        let is_right = design.is_compared(arm) && blocks.is_right(arm) && blocks.is_right(design.own_baseline(arm));
        if let (Some(frames), true) = (design.frames_of(arm), is_right) {
            analysis.parts = parts(design, blocks, (arm, frames), signed_rank);
        }
    }
}

fn parts(
    design: &Design,
    blocks: &Blocks<'_>,
    (arm, frames): (usize, usize),
    signed_rank: &mut SignedRank,
) -> Option<Parts> {
    let baseline = design.own_baseline(arm);
    let whole = blocks.log_ratios(arm, baseline, names::USER_S)?;
    let placement = blocks.log_ratios(frames, baseline, names::USER_S).filter(|_| blocks.is_right(frames));
    // Only blocks with all arms count, so that the parts are parts of the same whole.
    let counts: Vec<bool> = match &placement {
        Some(placement) => whole.iter().zip(placement).map(|(one, other)| one.is_some() && other.is_some()).collect(),
        None => whole.iter().map(Option::is_some).collect(),
    };
    let of_blocks = |ratios: &[Option<f64>]| -> Vec<f64> {
        ratios.iter().zip(&counts).filter(|(_, counts)| **counts).filter_map(|(ratio, _)| *ratio).collect()
    };
    let level = design.level();
    let whole = of_blocks(&whole);
    let centre = signed_rank.test(&whole, level)?;
    let system = of_blocks(&blocks.differences(arm, baseline, names::SYSTEM_S));
    let of_baseline = median(&mut blocks.values(baseline, names::SYSTEM_S)).filter(|median| *median > 0.0);
    let system = of_baseline.and_then(|median| Some(relative(&signed_rank.test(&system, level)?, median)));
    let (reach, placement) = match placement {
        Some(placement) => split(&whole, &of_blocks(&placement), &centre, level, signed_rank).unzip(),
        None => (None, None),
    };
    Some(Parts { blocks: whole.len() as u32, user: share(&centre, 0.0, 1.0), reach, placement, system })
}

/// Reach and placement.
fn split(
    whole: &[f64],
    placement: &[f64],
    centre: &Centre,
    level: f64,
    signed_rank: &mut SignedRank,
) -> Option<(Share, Share)> {
    let reach: Vec<f64> = whole.iter().zip(placement).map(|(whole, placement)| whole - placement).collect();
    let (reach, placement) = (signed_rank.test(&reach, level)?, signed_rank.test(placement, level)?);
    let half_remainder = (centre.estimate - reach.estimate - placement.estimate) / 2.0;
    let remaining = (placement.estimate + half_remainder).exp();
    Some((share(&reach, half_remainder, remaining), share(&placement, half_remainder, 1.0)))
}

/// The change as a share of the baseline: `remaining` is the share of the baseline that the other part leaves.
fn share(centre: &Centre, offset: f64, remaining: f64) -> Share {
    let of = |log: f64| remaining * (log + offset).exp_m1();
    Share {
        ratio: of(centre.estimate),
        low: centre.interval.map(|(low, _)| of(low)),
        high: centre.interval.map(|(_, high)| of(high)),
    }
}

/// Differences as a share of the baseline's median.
fn relative(centre: &Centre, median: f64) -> Share {
    Share {
        ratio: centre.estimate / median,
        low: centre.interval.map(|(low, _)| low / median),
        high: centre.interval.map(|(_, high)| high / median),
    }
}

#[cfg(test)]
mod tests {
    use testing::Random;

    use super::*;

    #[test]
    fn parts_add_up_to_the_whole() {
        let mut random = Random::new();
        let placement: Vec<f64> = (0..14).map(|_| -0.10 + 0.01 * random.normal()).collect();
        let whole: Vec<f64> = placement.iter().map(|one| one - 0.05 + 0.01 * random.normal()).collect();
        let mut signed_rank = SignedRank::default();
        let centre = signed_rank.test(&whole, 0.04).unwrap();
        let (reach, placement) = split(&whole, &placement, &centre, 0.04, &mut signed_rank).unwrap();
        let whole = share(&centre, 0.0, 1.0);
        assert!((reach.ratio + placement.ratio - whole.ratio).abs() < 1e-12);
        // The standard deviation of each part is about 0.0025.
        assert!((reach.ratio + 0.905 * 0.049).abs() < 0.016 && (placement.ratio + 0.095).abs() < 0.016);
        assert!(reach.is_shown() && placement.is_shown() && !reach.is_within(0.01));
        assert!(reach.low.unwrap() < reach.ratio && reach.ratio < reach.high.unwrap());
    }

    #[test]
    fn a_part_that_does_not_exist_is_rarely_shown() {
        let mut random = Random::new();
        let mut signed_rank = SignedRank::default();
        let shown = (0..400).filter(|_| {
            let placement: Vec<f64> = (0..12).map(|_| -0.10 + 0.01 * random.normal()).collect();
            let whole: Vec<f64> = placement.iter().map(|one| one + 0.01 * random.normal()).collect();
            let centre = signed_rank.test(&whole, 0.05).unwrap();
            split(&whole, &placement, &centre, 0.05, &mut signed_rank).unwrap().0.is_shown()
        });
        // 20 false claims are expected; 42 are five standard deviations more.
        assert!(shown.count() <= 42);
    }
}
