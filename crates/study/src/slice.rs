//! Parts of a comparison with variants: the policies of one variant, or the variants under one policy. Each part is a
//! separate comparison, from the same trials of the same blocks.

use std::collections::BTreeMap;

use crate::comparison::{Comparison, Design};
use crate::role::Role;
use crate::stats::answers::{self, Deviation};
use crate::stats::{self, Analysis, ArmAnalysis, Outcome};
use crate::trial::{Arm, TrialRecord};
use policy::Admission;
use policy::Policy;

impl Comparison {
    /// The policies of one variant, as if that variant had been measured alone: labels are the policies' names, and the
    /// baseline is the design's baseline policy. `None` if there is no such variant, or if it lacks the baseline policy.
    pub fn within(&self, variant: &str) -> Option<Comparison> {
        let is_own = |arm: &Arm| arm.variant.as_ref().is_some_and(|own| own.name == variant);
        let of_policy = |arm: &Arm| arm.policy.to_string();
        let baseline = self.design.arms.get(self.design.baseline)?.policy.clone();
        self.sliced(is_own, of_policy, |arm| arm.policy == baseline)
    }

    /// The variants under one policy: labels are the variants' names, and the baseline is the design's baseline
    /// variant. `None` if fewer than two variants have an arm with this policy, or if the baseline variant has none.
    pub fn under(&self, policy: &Policy) -> Option<Comparison> {
        let of_variant = |arm: &Arm| arm.variant.as_ref().map_or_else(|| arm.label.clone(), |own| own.name.clone());
        let baseline = self.design.arms.get(self.design.baseline)?;
        let is_own = |arm: &Arm| arm.variant.is_some() && arm.policy == *policy;
        let slice = self.sliced(is_own, of_variant, |arm| arm.is_same_variant(baseline))?;
        (slice.design.compared().count() > 1).then_some(slice)
    }

    /// The compared arms that satisfy `is_own`, labelled by `label`, with the first that satisfies `is_baseline` as the
    /// baseline, and with their control arms.
    fn sliced(
        &self,
        is_own: impl Fn(&Arm) -> bool,
        label: impl Fn(&Arm) -> String,
        is_baseline: impl Fn(&Arm) -> bool,
    ) -> Option<Comparison> {
        let arms = &self.design.arms;
        // The second arm of the baseline (A/A) is left out, because it would have the same name.
        let compared: Vec<usize> =
            self.design.compared().filter(|arm| is_own(&arms[*arm]) && !self.design.is_aa(*arm)).collect();
        let baseline = compared.iter().position(|arm| is_baseline(&arms[*arm]))?;
        let is_bare = |arm: &usize| {
            let of = |own: &usize| arms[*own].is_same_variant(&arms[*arm]);
            arms[*arm].role == Role::Bare && compared.iter().any(of)
        };
        let own = compared.iter().map(|arm| Arm { label: label(&arms[*arm]), ..arms[*arm].clone() });
        let bares: Vec<usize> = (0..arms.len()).filter(is_bare).collect();
        let stand_ins = compared.iter().enumerate().filter_map(|(place, arm)| {
            let stand_in = self.stand_in(*arm).filter(|stand_in| !compared.contains(stand_in))?;
            // An arm without a sham of its own uses the stand-in of its variant's baseline, which is kept together with that
            // baseline.
            let is_own = self.design.sham_of(*arm) == Some(stand_in);
            if !is_own && compared.contains(&self.design.own_baseline(*arm)) {
                return None;
            }
            let role = Role::Sham { of: place, stops: arms[*arm].policy.clone() };
            Some((stand_in, Arm { role, ..arms[stand_in].clone() }))
        });
        let (stand_ins, shams): (Vec<usize>, Vec<Arm>) = stand_ins.unzip();
        let frames = compared.iter().enumerate().filter_map(|(place, arm)| {
            let frames = self.design.frames_of(*arm)?;
            Some((frames, Arm { role: Role::Frames { of: place }, ..arms[frames].clone() }))
        });
        let (frames, arms_of_frames): (Vec<usize>, Vec<Arm>) = frames.unzip();
        let kept = compared.iter().copied().chain(bares.iter().copied()).chain(stand_ins).chain(frames);
        let kept: Vec<usize> = kept.collect();
        let place = |arm: usize| kept.iter().position(|kept| *kept == arm);
        let own = own.chain(bares.iter().map(|arm| arms[*arm].clone())).chain(shams).chain(arms_of_frames);
        let design = Design { arms: own.collect(), baseline, ..self.design.clone() };
        let trials = self.trials.iter().filter_map(|record| {
            let mut record = record.clone();
            record.trial.arm = place(record.trial.arm)?;
            Some(record)
        });
        let trials: Vec<_> = trials.collect();
        let admissions: Vec<_> = kept.iter().filter_map(|arm| self.admissions.get(*arm).cloned()).collect();
        let deviations = answers::deviations(&self.design, &self.trials);
        let deviations: Vec<Option<Deviation>> = kept.iter().map(|arm| deviations[*arm].clone()).collect();
        Some(Comparison {
            analysis: analysis(&design, &trials, &admissions, &deviations),
            advice: None,
            design,
            trials,
            admissions,
            invocation: self.invocation.clone(),
            machine: self.machine.clone(),
            ended: self.ended.clone(),
            ..*self
        })
    }

    /// The arm that differs from the bare arm only in the stops of `arm`: its sham, if that ran in a block that counts,
    /// or otherwise the stand-in of its variant's baseline, which stops as often.
    fn stand_in(&self, arm: usize) -> Option<usize> {
        let design = &self.design;
        let is_run =
            |sham: &usize| self.trials.iter().any(|record| record.trial.arm == *sham && record.trial.block > 0);
        let baseline = design.own_baseline(arm);
        let has_reference =
            design.bare_of(baseline).is_some_and(|bare| design.arms[bare].policy == design.arms[baseline].policy);
        let of_baseline = || if has_reference { Some(baseline) } else { design.sham_of(baseline) };
        design.sham_of(arm).filter(is_run).or_else(of_baseline)
    }
}

/// The analysis of a part. An arm whose answer is wrong in the whole comparison is wrong in its parts too, and no arm is
/// compared with a baseline whose answer is wrong.
fn analysis(
    design: &Design,
    trials: &[TrialRecord],
    admissions: &[Admission],
    deviations: &[Option<Deviation>],
) -> Option<Analysis> {
    let outcome = |arm: usize| match (&deviations[arm], &deviations[design.baseline]) {
        (Some(deviation), _) => Some(deviation.outcome()),
        (None, Some(of_baseline)) => {
            let label = &design.arms[design.baseline].label;
            let message = format!("given by {label}, the baseline: {}", of_baseline.message());
            Some(Outcome::WrongAnswer { message })
        }
        (None, None) => None,
    };
    let without = |outcome: Outcome| ArmAnalysis {
        medians: BTreeMap::new(),
        effects: BTreeMap::new(),
        outcome,
        tracer_cost: BTreeMap::new(),
        tied: Vec::new(),
        gain_share: None,
        parts: None,
        curve: None,
    };
    if deviations[design.baseline].is_some() {
        let arms = (0..design.arms.len()).map(|arm| without(outcome(arm).unwrap_or(Outcome::NotMeasured)));
        let (primary, warnings) = (design.primary.clone(), Vec::new());
        return Some(Analysis { primary, baseline: design.baseline, blocks: 0, arms: arms.collect(), warnings });
    }
    let mut analysis = stats::analyse(design, trials, admissions)?;
    for (arm, own) in analysis.arms.iter_mut().enumerate() {
        if let Some(outcome) = outcome(arm).filter(|_| design.is_compared(arm)) {
            *own = without(outcome);
        }
    }
    Some(analysis)
}
