//! The cost of the tracer's stops for each arm, from the control arms, and which changes that cost could have caused.
//!
//! For each arm, one arm differs from the bare arm only in the stops: its *stand-in*. The stand-in is the arm's sham arm; or
//! the arm itself, if its memory is that of the bare arm; or the stand-in of the baseline, if the arm stops as often as the
//! baseline. The cost of an arm's stops is its stand-in relative to the bare arm. Its *bound* is its stand-in relative to the
//! baseline's stand-in: the change that it would show if its policy did nothing. Variants have their own bare arms and
//! stand-ins.

use std::collections::BTreeMap;

use super::blocks::Blocks;
use super::median::median;
use super::outcome;
use super::signed_rank::SignedRank;
use crate::comparison::Design;
use crate::metric::{Metric, names};
use crate::result::{Effect, TracerCost};

/// Finds the stand-in of each arm.
pub(crate) struct StandIns<'a> {
    design: &'a Design,
    blocks: &'a Blocks<'a>,
}

/// The change that stops alone cause between two arms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bound {
    /// The change.
    pub effect: Effect,
    /// Whether the first arm stops more often than the second, so that stops can only have slowed it.
    pub stops_more: bool,
}

impl<'a> StandIns<'a> {
    /// The stand-ins of a design, as far as its trials provide them.
    pub fn new(design: &'a Design, blocks: &'a Blocks<'a>) -> StandIns<'a> {
        StandIns { design, blocks }
    }

    /// The bare arm of an arm's variant, if it is usable.
    fn bare_of(&self, arm: usize) -> Option<usize> {
        self.design.bare_of(arm).filter(|bare| self.blocks.is_right(*bare))
    }

    /// The cost of an arm's stops, by metric; empty if no bare arm shows it.
    pub fn costs(&self, arm: usize, signed_rank: &mut SignedRank) -> BTreeMap<String, TracerCost> {
        let (Some(bare), Some(stand_in)) = (self.bare_of(arm), self.of(arm)) else { return BTreeMap::new() };
        if !self.design.is_compared(arm) {
            return BTreeMap::new();
        }
        let mut cost = |metric: &Metric| {
            let of_bare = self.change((stand_in, bare), &metric.name, signed_rank)?;
            let bound = self.between((arm, self.design.baseline), &metric.name, signed_rank);
            Some((metric.name.clone(), TracerCost { of_bare, bound: bound.map(|bound| bound.effect) }))
        };
        self.design.headline_metrics().iter().filter_map(&mut cost).collect()
    }

    /// The change of a metric from `two` to `one` that stops alone cause; `None` if both stop equally often. For two variants it
    /// is the ratio of the costs of their stops.
    pub fn between(&self, (one, two): (usize, usize), metric: &str, signed_rank: &mut SignedRank) -> Option<Bound> {
        let bares = (self.bare_of(one)?, self.bare_of(two)?);
        let stand_ins = (self.of(one)?, self.of(two)?);
        if stand_ins.0 == stand_ins.1 {
            return None;
        }
        let middle = |arm: usize, metric: &str| median(&mut self.blocks.values(arm, metric));
        let stops = |arm: usize| middle(arm, names::TRACER_STOPS).unwrap_or(0.0);
        let bound = |effect| Bound { effect, stops_more: stops(one) > stops(two) };
        if bares.0 == bares.1 {
            return self.change(stand_ins, metric, signed_rank).map(bound);
        }
        let wall_s = middle(two, names::WALL_S)?;
        if !self.design.may_matter(stops(one) - stops(two), wall_s) {
            return None;
        }
        let costs = [(stand_ins.0, bares.0), (stand_ins.1, bares.1)]
            .map(|(stand_in, bare)| self.blocks.log_ratios(stand_in, bare, metric));
        let [one, two] = costs;
        let ratios: Vec<f64> = one?.into_iter().zip(two?).filter_map(|(one, two)| Some(one? - two?)).collect();
        self.effect(&ratios, signed_rank).map(bound)
    }

    /// The stand-in of an arm; `None` if not even the cost of its variant's baseline is known.
    fn of(&self, arm: usize) -> Option<usize> {
        let policy = |arm: usize| &self.design.arms[arm].policy;
        let sham = self.design.sham_of(arm).filter(|sham| self.blocks.is_right(*sham));
        let has_reference = |arm: usize| self.bare_of(arm).is_some_and(|bare| policy(bare) == policy(arm));
        let baseline = self.design.own_baseline(arm);
        match sham {
            Some(sham) => Some(sham),
            None if arm == baseline => has_reference(baseline).then_some(baseline),
            // The arm has the reference policy and the baseline does not, so the arm differs from the bare arm only in being
            // traced.
            None if has_reference(arm) && !has_reference(baseline) => Some(arm),
            None if self.design.arms[arm].is_same_variant(&self.design.arms[baseline]) => self.of(baseline),
            None => None,
        }
    }

    fn change(&self, (one, two): (usize, usize), metric: &str, signed_rank: &mut SignedRank) -> Option<Effect> {
        let ratios: Vec<f64> = self.blocks.log_ratios(one, two, metric)?.into_iter().flatten().collect();
        self.effect(&ratios, signed_rank)
    }

    fn effect(&self, ratios: &[f64], signed_rank: &mut SignedRank) -> Option<Effect> {
        let centre = signed_rank.test(ratios, self.design.level())?;
        Some(Effect::of(ratios.len(), &centre))
    }
}

/// Whether the stops could have caused this change: the change has the direction of their effect, and its interval is not
/// beyond the interval of that effect. Stops only add cost, so an arm that stops more often can only have lost by them.
pub(crate) fn explains(design: &Design, bound: &Bound, change: &Effect) -> bool {
    if outcome::improves(design, change.ratio) == bound.stops_more {
        return false;
    }
    let is_beyond = if change.ratio > 1.0 {
        change.low.zip(bound.effect.high).is_some_and(|(low, most)| low > most)
    } else {
        change.high.zip(bound.effect.low).is_some_and(|(high, least)| high < least)
    };
    !is_beyond
}

/// Whether the stops certainly cause a change outside the practical band. An arm that appears equivalent may then differ if it
/// is not traced.
pub(crate) fn hides(design: &Design, bound: &Bound) -> bool {
    let certain = bound.effect.low.is_some_and(|low| low > 1.0) || bound.effect.high.is_some_and(|high| high < 1.0);
    certain && bound.effect.ratio.ln().abs() > design.band_ratio.ln_1p()
}
