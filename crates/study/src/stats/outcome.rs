//! Derives the outcome from an effect.

use super::normal;
use crate::comparison::Design;
use crate::metric::Direction;
use crate::result::{Effect, Outcome};

/// How an arm compares with the baseline.
///
/// `Equivalent`: the interval is inside the practical band, even if it excludes 1; a change that is certain but too
/// small does not matter. `Better` and `Worse`: chance does not explain the change, and the estimate is outside the
/// band. Everything else is `Undecided`.
pub(crate) fn conclude(design: &Design, effect: &Effect, compared: usize) -> Outcome {
    if within_band(design, effect) {
        return Outcome::Equivalent;
    }
    let certain = effect.p_adjusted.is_some_and(|p| p <= design.level());
    if certain && matters(design, effect) {
        return if improves(design, effect.ratio) { Outcome::Better { best: false } } else { Outcome::Worse };
    }
    Outcome::Undecided { blocks_needed: blocks_needed(design, effect, compared) }
}

/// Whether a ratio of the primary metric is an improvement.
pub(crate) fn improves(design: &Design, ratio: f64) -> bool {
    let primary = design.metrics.iter().find(|metric| metric.name == design.primary);
    match primary.map(|metric| metric.direction) {
        Some(Direction::Higher) => ratio > 1.0,
        _ => ratio < 1.0,
    }
}

/// Whether an effect is as precise as the design requires.
pub(crate) fn is_precise(design: &Design, effect: &Effect) -> bool {
    half_width(effect).is_some_and(|half| half <= design.precision_ratio.ln_1p())
}

fn within_band(design: &Design, effect: &Effect) -> bool {
    let band = design.band_ratio.ln_1p();
    matches!((effect.low, effect.high), (Some(low), Some(high)) if low.ln() >= -band && high.ln() <= band)
}

/// Whether the estimate is outside the band.
fn matters(design: &Design, effect: &Effect) -> bool {
    effect.ratio.ln().abs() > design.band_ratio.ln_1p()
}

impl Effect {
    /// Expected half width of the interval after this many blocks, as a ratio: it shrinks with the square root of their
    /// number. Absent without an interval.
    pub fn half_width_after(&self, blocks: u32) -> Option<f64> {
        let half = half_width(self)? * (f64::from(self.blocks) / f64::from(blocks.max(1))).sqrt();
        Some(half.exp_m1())
    }
}

/// Half width of the interval of the logarithm.
pub(crate) fn half_width(effect: &Effect) -> Option<f64> {
    Some((effect.high? / effect.low?).ln() / 2.0)
}

/// Estimated number of blocks after which the interval, which shrinks with the square root of their number, is narrow
/// enough if the estimate is right: to exclude 1, corrected for the compared arms, if the estimate is outside the band,
/// and otherwise to be inside the band. An estimate close to the band's edge will move, so the required width is never
/// below a quarter of the band.
fn blocks_needed(design: &Design, effect: &Effect, compared: usize) -> Option<u32> {
    let half = half_width(effect)?;
    let size = effect.ratio.ln().abs();
    let band = design.band_ratio.ln_1p();
    let quantile = |arms: usize| normal::quantile(1.0 - design.level() / 2.0 / arms as f64);
    let asked = if matters(design, effect) {
        size * quantile(1) / quantile(compared.max(1))
    } else {
        (band - size).max(band / 4.0)
    };
    let needed = f64::from(effect.blocks) * (half / asked).powi(2);
    needed.is_finite().then(|| (needed.ceil() as u32).max(effect.blocks.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Arm;

    fn design() -> Design {
        let arm = |name: &str| Arm::of_policy(name, name.parse().unwrap());
        Design::new(vec![arm("default"), arm("thp")], 0, 1)
    }

    fn effect(low: f64, ratio: f64, high: f64, p: f64) -> Effect {
        Effect { blocks: 10, ratio, low: Some(low), high: Some(high), p_adjusted: Some(p) }
    }

    #[test]
    fn the_band_decides_before_the_p_value() {
        let conclude = |effect: &Effect| conclude(&design(), effect, 1);
        assert_eq!(conclude(&effect(0.995, 0.997, 0.999, 0.001)), Outcome::Equivalent);
        assert_eq!(conclude(&effect(0.95, 0.97, 0.99, 0.001)), Outcome::Better { best: false });
        assert_eq!(conclude(&effect(1.01, 1.03, 1.05, 0.001)), Outcome::Worse);
        assert!(matches!(conclude(&effect(0.95, 0.97, 0.99, 0.06)), Outcome::Undecided { .. }));
        // The change is certain, but may be too small to matter.
        assert!(matches!(conclude(&effect(0.98, 0.992, 0.998, 0.001)), Outcome::Undecided { .. }));
    }

    #[test]
    fn a_rate_improves_when_it_grows() {
        let mut design = design();
        design.metrics[0].direction = Direction::Higher;
        assert_eq!(conclude(&design, &effect(0.95, 0.97, 0.99, 0.001), 1), Outcome::Worse);
    }

    #[test]
    fn the_blocks_needed_follow_the_square_root() {
        let needed = |low: f64, ratio: f64, high: f64| blocks_needed(&design(), &effect(low, ratio, high, 0.5), 1);
        // A change of 2 % whose interval is 4 % wide to each side: half the width takes four times as many blocks.
        assert_eq!(needed(1.02 / 1.02f64.powi(2), 1.02, 1.02f64.powi(3)), Some(40));
        // No change, and an interval 3 % wide to each side: a third of the width fits into the band.
        assert_eq!(needed(1.0 / 1.03, 1.0, 1.03), Some(89));
        let no_interval = Effect { low: None, ..effect(0.9, 1.0, 1.1, 1.0) };
        assert_eq!(blocks_needed(&design(), &no_interval, 1), None);
    }
}
