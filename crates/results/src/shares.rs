//! `compare --shares`: how much of a policy's gain comes with how much of its large memory, as sentences and lines.

pub(crate) mod document;

use policy::Admission;
use study::comparison::Comparison;
use study::control::Role;
use study::metric::{Unit, names};
use study::shares::WindowOrder;
use study::stats::{self, Curve, CurvePoint, Enough, Share};

use crate::explained::{ends, percent};
use crate::figure;
use crate::rows;
use crate::text::printable;

/// An arm and the curve of its gain over the share of its memory that is large.
pub(crate) struct GainCurve<'a> {
    comparison: &'a Comparison,
    pub arm: usize,
    pub curve: &'a Curve,
}

/// The arms whose gain is apportioned, or could not be.
pub(crate) fn gain_curves(comparison: &Comparison) -> Vec<GainCurve<'_>> {
    let arms = comparison.analysis.iter().flat_map(|analysis| analysis.arms.iter().enumerate());
    arms.filter_map(|(arm, analysis)| Some(GainCurve { comparison, arm, curve: analysis.curve.as_ref()? })).collect()
}

/// For each policy a sentence with the answer, then a line for each share. Empty without `--shares`.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    let known = gain_curves(comparison);
    known.iter().flat_map(GainCurve::sentences).chain(unmeasured(comparison)).collect()
}

/// The reason if shares cannot be measured on this machine.
fn unmeasured(comparison: &Comparison) -> Option<String> {
    let arms = comparison.design.arms.iter().zip(&comparison.admissions);
    let mut reasons = arms.filter_map(|(arm, admission)| match (&arm.role, admission) {
        (Role::Share { .. }, Admission::Unsupported(why)) => Some(printable(&why.reason)),
        _ => None,
    });
    reasons.next().map(|why| format!("No share of the memory was measured: {why}"))
}

impl GainCurve<'_> {
    fn sentences(&self) -> Vec<String> {
        let uniform = self.window_order().filter(|order| order.is_uniform()).map(|_| UNIFORM.to_owned());
        std::iter::once(self.answer()).chain(uniform).chain(self.between().map(|point| self.line(point))).collect()
    }

    fn label(&self, arm: usize) -> String {
        printable(&self.comparison.design.arms[arm].label)
    }

    /// The points of measured shares, without the two ends: no large memory, and all of it.
    pub fn between(&self) -> impl Iterator<Item = &CurvePoint> {
        self.curve.points.iter().filter(|point| self.is_between(point))
    }

    /// Whether the point is a measured share: neither of the two ends.
    pub fn is_between(&self, point: &CurvePoint) -> bool {
        matches!(self.comparison.design.arms[point.arm].role, Role::Share { .. })
    }

    /// `nine tenths of thp's gain come with 81 % of its large memory (69 to 100)`
    fn answer(&self) -> String {
        let label = self.label(self.arm);
        match self.curve.enough {
            Enough::Share { ratio, low_ratio, high_ratio } => format!(
                "Nine tenths of {label}'s gain come with {} % of its large memory ({} to {}), {}.",
                whole(ratio),
                whole(low_ratio),
                whole(high_ratio),
                self.order()
            ),
            Enough::TooFewBlocks => {
                format!("Too few blocks to say how much of its memory brings how much of {label}'s gain.")
            }
            Enough::GainTooSmall { gain_ratio, noise_ratio } => {
                let gain = if gain_ratio > 0.0 {
                    format!("{:.1} %", gain_ratio * 100.0)
                } else {
                    format!("none ({:+.1} %)", gain_ratio * 100.0)
                };
                format!(
                    "{label}'s gain is too small to apportion: {gain}, with a noise of {:.1} %.",
                    noise_ratio * 100.0
                )
            }
            Enough::NothingBetween => {
                format!(
                    "How much of its memory brings how much of {label}'s gain is not known: no share between 0 and 1 was as asked."
                )
            }
        }
    }

    fn window_order(&self) -> Option<WindowOrder> {
        self.comparison.design.window_order()
    }

    fn order(&self) -> String {
        match self.window_order().unwrap_or_default() {
            WindowOrder::Growing => "in the order in which the program asks for it".into(),
            WindowOrder::Random => "in windows drawn at random".into(),
            WindowOrder::Hottest { half_percent } => {
                format!("hottest first (the hotter half of the windows has {half_percent} % of the accessed pages)")
            }
        }
    }

    /// `1/2 of thp: -8.1 % (-9.0 to -7.0), 61 % of the gain (50 to 72), 49 % of the large memory, peak memory 66M`
    fn line(&self, point: &CurvePoint) -> String {
        let label = self.label(point.arm);
        if let Some(why) = self.not_as_asked(point) {
            return format!("{label} does not count: {why}.");
        }
        let gain = self.gain(point).map(|gain| format!(", {gain} of the gain")).unwrap_or_default();
        let seen =
            point.seen_ratio.map(|seen| format!(", with {} % of the large memory", whole(seen))).unwrap_or_default();
        let peak = self.peak(point.arm).map(|peak| format!(", peak memory {peak}")).unwrap_or_default();
        format!("{label}: {} {}{gain}{seen}{peak}.", self.metric(), self.change(point))
    }

    /// `61 % (50 to 72)`; `None` if the gain is not apportioned.
    pub fn gain(&self, point: &CurvePoint) -> Option<String> {
        let is_apportioned = matches!(self.curve.enough, Enough::Share { .. });
        let Share { ratio, low, high } = point.gain.filter(|_| is_apportioned)?;
        Some(format!("{} % ({} to {})", whole(ratio), whole(low?), whole(high?)))
    }

    /// Why a point does not count: its arm did not get the requested share.
    pub fn not_as_asked(&self, point: &CurvePoint) -> Option<String> {
        if point.is_as_asked {
            return None;
        }
        let asked = whole(point.asked_ratio);
        let Some(seen) = point.seen_ratio else {
            return Some(format!("{asked} % of the large memory was asked for, and none was seen"));
        };
        let trials = stats::counted_trials(self.comparison, point.arm);
        let deciding = stats::deciding(trials.iter().map(|record| &record.verdict));
        let cause =
            deciding.and_then(|verdict| verdict.causes.first()).map(|share| format!(" ({})", share.cause.describe()));
        Some(format!(
            "{} % of the large memory was large, and {asked} % was asked for{}",
            whole(seen),
            cause.unwrap_or_default()
        ))
    }

    /// The median of the peak memory of an arm.
    pub fn peak(&self, arm: usize) -> Option<String> {
        let trials = stats::counted_trials(self.comparison, arm);
        let mut peaks: Vec<f64> = trials.iter().filter_map(|record| record.value(names::PEAK_RESIDENT_BYTES)).collect();
        stats::median(&mut peaks).map(|bytes| figure::short(bytes, Unit::Bytes))
    }

    /// The name of the primary metric.
    pub fn metric(&self) -> String {
        figure::title(rows::primary(self.comparison))
    }

    /// The change at a point with its interval, in per cent.
    pub fn change(&self, point: &CurvePoint) -> String {
        let (low, high) = ends(point.change, 1.0);
        let estimate = percent(point.change.ratio);
        match point.change.low {
            Some(_) => format!("{estimate} % ({low} to {high})"),
            None => format!("{estimate} %"),
        }
    }
}

/// What follows if accesses are uniform.
const UNIFORM: &str = "Accesses are uniform over the windows, so hottest first brings no more than any other order.";

/// Per cent without decimals.
pub(crate) fn whole(ratio: f64) -> String {
    let text = format!("{:.0}", ratio * 100.0);
    if text == "-0" { "0".into() } else { text }
}
