//! Arms that split a policy's effect into its parts (`compare --explain`).
//!
//! Large pages change two things at once: fewer TLB entries cover the memory (*reach*), and its physical frames are contiguous
//! (*placement*). An arm of [`Role::Frames`] has placement without reach: its memory is allocated as under the policy and then
//! mapped by base-page PTEs.

use crate::comparison::Design;
use crate::role::Role;
use crate::trial::Arm;
use policy::{Granularity, Modifier};

impl Design {
    /// This design with an arm of [`Role::Frames`] for each compared arm that requests large pages. Call it after
    /// [`Design::with_controls`].
    pub fn with_frames(mut self) -> Design {
        let is_split = |arm: &usize| {
            let policy = &self.arms[*arm].policy;
            policy.granularity.is_large() && !policy.has(Modifier::NoHuge) && !policy.has(Modifier::PteMapped)
        };
        let frames = |of: usize| Arm {
            label: format!("frames of {}", self.arms[of].label),
            policy: self.arms[of].policy.clone().with(Modifier::PteMapped),
            role: Role::Frames { of },
            variant: self.arms[of].variant.clone(),
        };
        let arms: Vec<Arm> = self.compared().filter(is_split).map(frames).collect();
        self.arms.extend(arms);
        self
    }

    /// Whether effects are split into parts.
    pub fn is_explained(&self) -> bool {
        self.arms.iter().any(|arm| matches!(arm.role, Role::Frames { .. }))
    }

    /// Why effects cannot be split; `None` if they can.
    pub fn explain_obstacle(&self) -> Option<&'static str> {
        let baseline = &self.arms[self.baseline].policy;
        if !matches!(baseline.granularity, Granularity::Base | Granularity::Default) {
            return Some("the parts are measured against base pages: make base or default the baseline");
        }
        let is_split = |arm: &Arm| arm.policy.granularity.is_large();
        let has_large = self.arms.iter().any(is_split);
        (!has_large).then_some("no policy asks for large pages: add thp, for example")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn design(policies: &[&str]) -> Design {
        let arm = |name: &&str| Arm::of_policy(*name, name.parse().unwrap());
        Design::new(policies.iter().map(arm).collect(), 0, 1)
    }

    #[test]
    fn every_policy_with_large_pages_gets_an_arm_with_its_frames() {
        let design = design(&["base", "thp", "default", "mthp-64k", "thp+no-huge", "thp+pte-mapped"]);
        let design = design.with_controls(|policy| policy.granularity.is_large()).with_frames();
        let frames: Vec<(&str, String)> = design
            .arms
            .iter()
            .filter(|arm| matches!(arm.role, Role::Frames { .. }))
            .map(|arm| (arm.label.as_str(), arm.policy.to_string()))
            .collect();
        let expected = [("frames of thp", "thp+pte-mapped"), ("frames of mthp-64k", "mthp-64k+pte-mapped")];
        assert_eq!(frames, expected.map(|(label, policy)| (label, policy.to_owned())));
        assert!(design.is_explained() && design.frames_of(1).is_some() && design.frames_of(5).is_none());
        assert_eq!(design.compared().count(), 6, "controls are not compared");
    }

    #[test]
    fn parts_need_large_pages_and_a_baseline_without_them() {
        assert_eq!(design(&["base", "thp"]).explain_obstacle(), None);
        assert_eq!(design(&["default", "hugetlb-2m"]).explain_obstacle(), None);
        assert!(design(&["thp", "base"]).explain_obstacle().unwrap().contains("baseline"));
        assert!(design(&["default", "base"]).explain_obstacle().unwrap().contains("add thp"));
    }
}
