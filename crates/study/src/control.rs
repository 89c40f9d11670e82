//! Control arms: they measure the cost of the tracer's stops in the same way in which policies are measured, in some of the
//! same blocks ([`crate::stats`]).
//!
//! A traced program stops at some of its calls. The stops take time that the policy itself does not. The tracer's own
//! clock cannot measure that time, because it does not include context switches and wake-ups. So the blocks contain
//! arms that differ only in the stops:
//!
//! * the *bare arm* has no filter, no tracer and no census;
//! * a *sham arm* belongs to an arm that stops more or less often than the baseline: it stops at the same calls, and
//!   makes as many additional calls there, but these change nothing.
//!
//! Each variant has its own control arms. Both kinds run under the *reference policy*: the baseline's policy if that needs no
//! stops, otherwise `default`. Control arms are not compared as policies: they never win and do not count in corrections for
//! multiple arms.

use crate::comparison::Design;
use crate::metric::{Metric, names};
pub use crate::role::Role;
use crate::trial::{Arm, TrialRecord};
use crate::variant::Variant;
use policy::Policy;

/// Upper estimate of the cost of a stop in seconds, used to decide whether a sham arm is worth its trials: about five
/// times the cost observed on a virtual machine, including wake-ups of tracer and program on two processors.
const STOP_S: f64 = 50e-6;

/// A sham arm is run only if the difference in stops from the baseline could fill this share of the practical band.
const MIN_BAND_SHARE: f64 = 0.25;

/// The label of the bare arm, which runs without the tracer. With variants, the labels of their bare arms begin with it.
pub const BARE: &str = "bare";

impl Design {
    /// This design with its control arms appended. `is_stopped` returns whether a policy makes a program stop at calls.
    /// Designs over boots get no control arms: all their arms have the same stops.
    pub fn with_controls(mut self, is_stopped: impl Fn(&Policy) -> bool) -> Design {
        if self.arms.iter().any(|arm| arm.policy.direct_map().is_some()) {
            return self;
        }
        let baseline = self.arms[self.baseline].policy.clone();
        let reference = if is_stopped(&baseline) { Policy::DEFAULT } else { baseline.clone() };
        let needs_sham = |(index, arm): &(usize, &Arm)| {
            let is_repeated = self.own_baseline(*index) != *index && arm.policy == baseline;
            !is_repeated && arm.policy != reference && (is_stopped(&arm.policy) || is_stopped(&baseline))
        };
        let sham = |(of, arm): (usize, &Arm)| Arm {
            label: format!("sham of {}", arm.label),
            policy: reference.clone(),
            role: Role::Sham { of, stops: arm.policy.clone() },
            variant: arm.variant.clone(),
        };
        let bare = |variant: Option<&Variant>| Arm {
            label: variant.map_or_else(|| BARE.to_owned(), |variant| format!("{BARE} of {}", variant.name)),
            policy: reference.clone(),
            role: Role::Bare,
            variant: variant.cloned(),
        };
        let variants = self.variants();
        let bares: Vec<Arm> = if variants.is_empty() {
            vec![bare(None)]
        } else {
            variants.into_iter().map(|variant| bare(Some(variant))).collect()
        };
        let shams: Vec<Arm> = self.arms.iter().enumerate().filter(needs_sham).map(sham).collect();
        self.arms.extend(bares.into_iter().chain(shams));
        self
    }

    /// The most important metrics in order: the primary one, then those that the user requested in addition to the
    /// standard ones, then wall and CPU time.
    pub fn headline_metrics(&self) -> Vec<Metric> {
        let of_every_trial = Metric::of_every_trial();
        let known = |name: &str| of_every_trial.iter().find(|metric| metric.name == name);
        let requested = self.metrics.iter().map(|metric| metric.name.as_str()).filter(|name| known(name).is_none());
        let times = [names::WALL_S, names::CPU_S];
        let mut headline: Vec<Metric> = Vec::new();
        for name in std::iter::once(self.primary.as_str()).chain(requested).chain(times) {
            let metric = self.metrics.iter().find(|metric| metric.name == name).or_else(|| known(name));
            if let Some(metric) = metric.filter(|metric| !headline.contains(metric)) {
                headline.push(metric.clone());
            }
        }
        headline
    }

    /// Whether to run a sham arm, judging by the trials so far. The sham of a baseline always runs, because no other
    /// arm has its stops. Any other sham runs if its difference in stops from the baseline of its variant could fill a
    /// noticeable part of the practical band, or if the stops are unknown.
    pub(crate) fn needs_sham_trials(&self, of: usize, trials: &[TrialRecord]) -> bool {
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

    /// Whether this many stops in a trial of this wall time could fill a noticeable part of the practical band.
    pub(crate) fn may_matter(&self, stops: f64, wall_s: f64) -> bool {
        stops.abs() * STOP_S >= MIN_BAND_SHARE * self.band_ratio * wall_s
    }
}
