//! Relations between the arms of a design: its variants, baselines and controls.

use crate::comparison::Design;
use crate::role::Role;
use crate::trial::Arm;
use crate::variant::Variant;

impl Design {
    /// The variants, in the order of their first arms; empty if all arms run the same command.
    pub fn variants(&self) -> Vec<&Variant> {
        let mut variants: Vec<&Variant> = Vec::new();
        for variant in self.arms.iter().filter_map(|arm| arm.variant.as_ref()) {
            if !variants.iter().any(|known| known.name == variant.name) {
                variants.push(variant);
            }
        }
        variants
    }

    /// Whether the command or the environment of a variant contains this text.
    pub fn has_variant_with(&self, text: &str) -> bool {
        let has = |variant: &&Variant| variant.command.iter().chain(&variant.variables).any(|word| word.contains(text));
        self.variants().iter().any(has)
    }

    /// Indices of the compared arms, that is, all except controls.
    pub fn compared(&self) -> impl Iterator<Item = usize> {
        (0..self.arms.len()).filter(|arm| self.is_compared(*arm))
    }

    /// Whether the arm at this index is compared, that is, is not a control.
    pub fn is_compared(&self, arm: usize) -> bool {
        self.arms.get(arm).is_some_and(|arm| arm.role == Role::Policy)
    }

    /// Whether the arm repeats the baseline (A/A).
    pub fn is_aa(&self, arm: usize) -> bool {
        let Some((own, baseline)) = self.arms.get(arm).zip(self.arms.get(self.baseline)) else { return false };
        arm != self.baseline && self.is_compared(arm) && own.policy == baseline.policy && own.is_same_variant(baseline)
    }

    /// The arm with the baseline's policy and this arm's variant; without variants the baseline.
    pub fn own_baseline(&self, arm: usize) -> usize {
        let (Some(own), Some(baseline)) = (self.arms.get(arm), self.arms.get(self.baseline)) else {
            return self.baseline;
        };
        let is_own = |other: &usize| {
            let other = &self.arms[*other];
            other.policy == baseline.policy && other.is_same_variant(own)
        };
        if own.is_same_variant(baseline) {
            self.baseline
        } else {
            self.compared().find(is_own).unwrap_or(self.baseline)
        }
    }

    /// The bare arm of an arm's variant, if there is one.
    pub fn bare_of(&self, arm: usize) -> Option<usize> {
        let own = self.arms.get(arm)?;
        let is_own = |other: &Arm| other.role == Role::Bare && other.is_same_variant(own);
        self.arms.iter().position(is_own)
    }

    /// The bare arm of the baseline's variant, if there is one.
    pub fn bare(&self) -> Option<usize> {
        self.bare_of(self.baseline)
    }

    /// The arm of [`Role::Frames`] for an arm, if there is one.
    pub fn frames_of(&self, arm: usize) -> Option<usize> {
        self.arms.iter().position(|other| other.role == Role::Frames { of: arm })
    }

    /// The sham arm that is the control of an arm, if there is one.
    pub fn sham_of(&self, arm: usize) -> Option<usize> {
        self.arms.iter().position(|other| matches!(other.role, Role::Sham { of, .. } if of == arm))
    }
}
