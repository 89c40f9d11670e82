//! Control arms: what the tracer's own stops cost, measured beside the policies and like them.
//!
//! A traced program stops at some of its calls, and that takes time which the policy itself does not. How much cannot be
//! read off a clock of the tracer's: switches and wake-ups are not in it. So the blocks contain arms in which nothing but
//! the stops differs:
//!
//! * the *bare arm* has no filter, no tracer and no census;
//! * a *sham arm* stands beside an arm that stops more often than the baseline, or less: it stops at the same calls, and
//!   as many calls are added there, but they change nothing.
//!
//! Each variant has its own. Both have the memory of one policy, the *ground*: the baseline's, where that needs no stops, and `default` otherwise.
//! Control arms are no policies: they never win and enter no correction for many arms.

use crate::comparison::Design;
use crate::metric::{Metric, names};
pub use crate::role::Role;
use crate::trial::{Arm, TrialRecord};
use crate::variant::Variant;
use policy::Policy;

/// Time that a stop is taken to cost at most, to decide whether a sham arm is worth its trials: some five times what it
/// was seen to cost on a virtual machine, wake-ups of tracer and program on two processors included.
const STOP_S: f64 = 50e-6;

/// Share of the practical band that the stops which an arm has more than the baseline, or fewer, must be able to fill
/// before a sham arm measures them.
const SHARE_OF_BAND: f64 = 0.25;

impl Design {
    /// This design with its control arms behind the others. `is_stopped` says whether a program is stopped at calls for a
    /// policy's sake. Arms over boots have none: they all have the same stops.
    pub fn with_controls(mut self, is_stopped: impl Fn(&Policy) -> bool) -> Design {
        if self.arms.iter().any(|arm| arm.policy.direct_map().is_some()) {
            return self;
        }
        let baseline = self.arms[self.baseline].policy.clone();
        let ground = if is_stopped(&baseline) { Policy::DEFAULT } else { baseline.clone() };
        let is_worth = |(index, arm): &(usize, &Arm)| {
            let again = self.own_baseline(*index) != *index && arm.policy == baseline;
            !again && arm.policy != ground && (is_stopped(&arm.policy) || is_stopped(&baseline))
        };
        let sham = |(of, arm): (usize, &Arm)| Arm {
            label: format!("sham of {}", arm.label),
            policy: ground.clone(),
            role: Role::Sham { of, stops: arm.policy.clone() },
            variant: arm.variant.clone(),
        };
        let bare = |variant: Option<&Variant>| Arm {
            label: variant.map_or_else(|| "bare".to_owned(), |variant| format!("bare of {}", variant.name)),
            policy: ground.clone(),
            role: Role::Bare,
            variant: variant.cloned(),
        };
        let variants = self.variants();
        let bares: Vec<Arm> = if variants.is_empty() {
            vec![bare(None)]
        } else {
            variants.into_iter().map(|variant| bare(Some(variant))).collect()
        };
        let shams: Vec<Arm> = self.arms.iter().enumerate().filter(is_worth).map(sham).collect();
        self.arms.extend(bares.into_iter().chain(shams));
        self
    }

    /// The metrics whose changes matter first: the primary one, then those that were asked for beside what every trial
    /// has, then wall and CPU time.
    pub fn headline_metrics(&self) -> Vec<Metric> {
        let of_every_trial = Metric::of_every_trial();
        let known = |name: &str| of_every_trial.iter().find(|metric| metric.name == name);
        let asked_for = self.metrics.iter().map(|metric| metric.name.as_str()).filter(|name| known(name).is_none());
        let times = [names::WALL_S, names::CPU_S];
        let mut headline: Vec<Metric> = Vec::new();
        for name in std::iter::once(self.primary.as_str()).chain(asked_for).chain(times) {
            let metric = self.metrics.iter().find(|metric| metric.name == name).or_else(|| known(name));
            if let Some(metric) = metric.filter(|metric| !headline.contains(metric)) {
                headline.push(metric.clone());
            }
        }
        headline
    }

    /// Whether a sham arm is to be run, as far as the trials say: that of a baseline always, because nothing else has its
    /// stops; another one where the stops that it has more than the baseline of its variant, or fewer, could fill a noticeable
    /// part of the practical band. Where the stops are not known it is to be run.
    pub(crate) fn is_worth_its_trials(&self, of: usize, trials: &[TrialRecord]) -> bool {
        let of_arm =
            |arm: usize| trials.iter().find(move |record| record.trial.arm == arm && record.rejected.is_empty());
        let own_baseline = self.own_baseline(of);
        let (Some(arm), Some(baseline)) = (of_arm(of), of_arm(own_baseline)) else { return true };
        let stops = |record: &TrialRecord| record.value(names::TRACER_STOPS);
        let (Some(own), Some(others), Some(wall_s)) = (stops(arm), stops(baseline), baseline.value(names::WALL_S))
        else {
            return true;
        };
        of == own_baseline || self.may_matter(own - others, wall_s)
    }

    /// Whether so many stops in a trial of that time could fill a noticeable part of the practical band.
    pub(crate) fn may_matter(&self, stops: f64, wall_s: f64) -> bool {
        stops.abs() * STOP_S >= SHARE_OF_BAND * self.band_ratio * wall_s
    }
}
