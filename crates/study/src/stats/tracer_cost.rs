//! What the tracer's stops cost each arm, from the control arms, and which changes that cost could have made.
//!
//! For each arm there is one whose only difference from the bare arm are the stops: its *stand-in*. That is its sham arm; or
//! the arm itself, where its memory is that of the bare arm; or the stand-in of the baseline, where the arm stops as often as
//! that. The cost of an arm is its stand-in against the bare arm. Its *bound* is its stand-in against that of the baseline:
//! the change that it would show if its policy did nothing.

use std::collections::BTreeMap;

use super::blocks::Blocks;
use super::median::median;
use super::outcome;
use super::result::{Effect, TracerCost};
use super::signed_rank::SignedRank;
use crate::comparison::Design;
use crate::metric::{Metric, names};

/// Which arm shows the cost of which.
pub(crate) struct StandIns<'a> {
    design: &'a Design,
    blocks: &'a Blocks<'a>,
    bare: Option<usize>,
}

/// A change that stops alone make between two arms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bound {
    /// The change.
    pub effect: Effect,
    /// Whether the first of the two stops more often than the second, and so can only have lost by it.
    pub stops_more: bool,
}

impl<'a> StandIns<'a> {
    /// Those of a design, as far as its trials go.
    pub fn new(design: &'a Design, blocks: &'a Blocks<'a>) -> StandIns<'a> {
        let bare = design.bare().filter(|bare| blocks.is_right(*bare));
        StandIns { design, blocks, bare }
    }

    /// What an arm's stops cost, by metric; empty where no bare arm shows it.
    pub fn costs(&self, arm: usize, signed_rank: &mut SignedRank) -> BTreeMap<String, TracerCost> {
        let (Some(bare), Some(stand_in)) = (self.bare, self.of(arm)) else { return BTreeMap::new() };
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

    /// The change of a metric from `two` to `one` that their stops alone make; `None` where both stop alike.
    pub fn between(&self, (one, two): (usize, usize), metric: &str, signed_rank: &mut SignedRank) -> Option<Bound> {
        self.bare?;
        let stand_ins = (self.of(one)?, self.of(two)?);
        if stand_ins.0 == stand_ins.1 {
            return None;
        }
        let stops = |arm: usize| median(&mut self.blocks.values(arm, names::TRACER_STOPS)).unwrap_or(0.0);
        let effect = self.change(stand_ins, metric, signed_rank)?;
        Some(Bound { effect, stops_more: stops(one) > stops(two) })
    }

    /// The stand-in of an arm; `None` where nothing shows even the baseline's cost.
    fn of(&self, arm: usize) -> Option<usize> {
        let policy = |arm: usize| &self.design.arms[arm].policy;
        let sham = self.design.sham_of(arm).filter(|sham| self.blocks.is_right(*sham));
        let is_ground = |arm: usize| self.bare.is_some_and(|bare| policy(bare) == policy(arm));
        let baseline = self.design.baseline;
        match sham {
            Some(sham) => Some(sham),
            None if arm == baseline => is_ground(baseline).then_some(baseline),
            // Under the ground's policy, but the baseline is not: it has no stops but those of a bare trace.
            None if is_ground(arm) && !is_ground(baseline) => Some(arm),
            None => self.of(baseline),
        }
    }

    fn change(&self, (one, two): (usize, usize), metric: &str, signed_rank: &mut SignedRank) -> Option<Effect> {
        let ratios: Vec<f64> = self.blocks.log_ratios(one, two, metric)?.into_iter().flatten().collect();
        let centre = signed_rank.test(&ratios, self.design.level())?;
        Some(Effect::of(ratios.len(), &centre))
    }
}

/// Whether a certain change is none that the stops could not have made: it is in their direction, and its interval is not
/// beyond theirs. Stops only cost, so that an arm which stops more often than the other can have lost by them and not won.
pub(crate) fn explains(design: &Design, bound: &Bound, change: &Effect) -> bool {
    if outcome::improves(design, change.ratio) == bound.stops_more {
        return false;
    }
    let is_beyond = match change.ratio > 1.0 {
        true => change.low.zip(bound.effect.high).is_some_and(|(low, most)| low > most),
        false => change.high.zip(bound.effect.low).is_some_and(|(high, least)| high < least),
    };
    !is_beyond
}

/// Whether the stops certainly make a change that is outside the practical band: then an arm that seems not to differ may
/// well differ without them.
pub(crate) fn hides(design: &Design, bound: &Bound) -> bool {
    let certain = bound.effect.low.is_some_and(|low| low > 1.0) || bound.effect.high.is_some_and(|high| high < 1.0);
    certain && bound.effect.ratio.ln().abs() > design.band_ratio.ln_1p()
}
