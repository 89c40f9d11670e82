//! Arms in which a share of the memory is large and the rest is not (`compare --shares`).
//!
//! The ends of the curve are other arms: the baseline `base` has no large pages, and the policy has as many as it can get. An arm
//! of [`Role::Share`] is between these ends. The memory is divided into windows ([`Windows`]), of which some become large in such
//! an arm. The windows depend on the size of the memory, are chosen once, after one run under the policy
//! ([`Design::choose_windows`]), and are the same in every trial.

use policy::windows::Windows;
use policy::{Granularity, PageSizes};

use crate::comparison::Design;
pub use crate::fraction::{Fraction, FractionError};
use crate::role::Role;
use crate::trial::Arm;
pub use crate::window_order::WindowOrder;

impl Design {
    /// This design with an arm for each share between 0 and 1 of each policy that has windows. Call it after
    /// [`Design::with_controls`], and [`Design::choose_windows`] before the first trial.
    pub fn with_shares(mut self, shares: &[Fraction], order: WindowOrder, page_sizes: &PageSizes) -> Design {
        let Some(block) = page_sizes.pmd else { return self };
        let unchosen = Windows { large: 0, ..Windows::whole(block) };
        let arm = |of: usize, share: Fraction| Arm {
            label: format!("{share} of {}", self.arms[of].label),
            policy: self.arms[of].policy.clone().within(unchosen),
            role: Role::Share { of, share, order },
            variant: self.arms[of].variant.clone(),
        };
        let between = || shares.iter().copied().filter(|share| !share.is_none_or_all());
        let arms: Vec<Arm> = self
            .windowable()
            .flat_map(|of| between().map(move |share| (of, share)))
            .map(|(of, share)| arm(of, share))
            .collect();
        self.arms.extend(arms);
        self
    }

    /// The compared arms whose policy can be limited to windows.
    fn windowable(&self) -> impl Iterator<Item = usize> {
        self.compared().filter(|arm| {
            let policy = &self.arms[*arm].policy;
            policy.granularity == Granularity::Thp && policy.modifiers().is_empty() && policy.windows().is_none()
        })
    }

    /// The arms that make only a share of this arm's memory large, in the order of their shares.
    pub fn shares_of(&self, arm: usize) -> Vec<usize> {
        let share = |other: usize| match self.arms[other].role {
            Role::Share { of, share, .. } if of == arm => Some((other, share.ratio())),
            _ => None,
        };
        let mut shares: Vec<(usize, f64)> = (0..self.arms.len()).filter_map(share).collect();
        shares.sort_by(|one, other| one.1.total_cmp(&other.1));
        shares.into_iter().map(|(arm, _)| arm).collect()
    }

    /// Whether the design has arms of [`Role::Share`].
    pub fn has_shares(&self) -> bool {
        self.arms.iter().any(|arm| matches!(arm.role, Role::Share { .. }))
    }

    /// The arm to run before windows can be chosen: a policy that has shares, in one window over all memory. `None` if no arm has
    /// shares, or if the windows are chosen already.
    pub fn sizing_arm(&self) -> Option<Arm> {
        let is_unchosen = |arm: &&Arm| {
            matches!(arm.role, Role::Share { .. }) && arm.policy.windows().is_some_and(|own| own.large == 0)
        };
        let arm = self.arms.iter().find(is_unchosen)?;
        let (Role::Share { of, .. }, Some(windows)) = (&arm.role, arm.policy.windows()) else { return None };
        let whole = self.arms.get(*of)?;
        Some(Arm { policy: whole.policy.clone().within(Windows::whole(windows.block)), ..whole.clone() })
    }

    /// The order in which windows become large; `None` if no arm has shares.
    pub fn window_order(&self) -> Option<WindowOrder> {
        self.arms.iter().find_map(|arm| match arm.role {
            Role::Share { order, .. } => Some(order),
            _ => None,
        })
    }

    /// Chooses the windows of every arm with a share. `advised_bytes` is the memory that the program requests, and
    /// `accessed_bytes` the bytes that it accesses in each window, which only an order by accesses needs.
    pub fn choose_windows(&mut self, advised_bytes: u64, accessed_bytes: &[u64]) {
        for arm in &mut self.arms {
            let (Role::Share { share, order, .. }, Some(unchosen)) = (&mut arm.role, arm.policy.windows()) else {
                continue;
            };
            let mut windows = Windows::of(advised_bytes, unchosen.block);
            let count = windows.count_in(advised_bytes);
            let ordered = order.of(count, self.seed, accessed_bytes);
            if let WindowOrder::Hottest { half_percent } = order {
                *half_percent = hotter_half(&ordered, accessed_bytes);
            }
            let chosen = ordered.into_iter().take(share.of(count) as usize);
            windows.large = chosen.fold(0, |large, window| large | 1 << window);
            arm.policy = arm.policy.clone().within(windows);
        }
    }

    /// The reason why no arm can have shares; `None` if some arm can.
    pub fn shares_obstacle(&self) -> Option<&'static str> {
        if self.arms[self.baseline].policy.granularity != Granularity::Base {
            return Some("the share 0 has base pages: make base the baseline");
        }
        if !self.variants().is_empty() {
            return Some("windows belong to one program: leave out --variant");
        }
        let has_none = self.windowable().next().is_none();
        has_none
            .then_some("windows are advised before the first fault, so only thp without modifiers has them: add thp")
    }
}

/// The share of accessed bytes in the first half of the windows, in per cent and at least 1.
fn hotter_half(ordered: &[u32], accessed_bytes: &[u64]) -> u32 {
    let accessed = |windows: &[u32]| -> u128 {
        windows.iter().filter_map(|window| accessed_bytes.get(*window as usize)).map(|bytes| u128::from(*bytes)).sum()
    };
    let (half, all) = (accessed(&ordered[..ordered.len().div_ceil(2)]), accessed(ordered));
    (half * 100).checked_div(all).map_or(1, |percent| (percent as u32).max(1))
}

#[cfg(test)]
mod tests {
    use policy::size::PageSize;

    use super::*;

    fn design(policies: &[&str]) -> Design {
        let arm = |name: &&str| Arm::of_policy(*name, name.parse().unwrap());
        Design::new(policies.iter().map(arm).collect(), 0, 1)
    }

    fn sizes() -> PageSizes {
        PageSizes { base: PageSize::K4, pmd: Some(PageSize::M2), mthp: vec![], hugetlb: vec![] }
    }

    fn fractions(texts: &[&str]) -> Vec<Fraction> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn each_share_between_the_ends_is_an_arm_of_thp_alone() {
        let design = design(&["base", "thp", "default", "hugetlb-2m"]);
        let design = design.with_shares(&fractions(&["0", "1/2", "1/8", "1"]), WindowOrder::Growing, &sizes());
        let labels: Vec<&str> = design.arms.iter().map(|arm| arm.label.as_str()).collect();
        assert_eq!(labels, ["base", "thp", "default", "hugetlb-2m", "1/2 of thp", "1/8 of thp"]);
        assert_eq!(design.shares_of(1), [5, 4]);
        assert!(design.has_shares() && design.shares_of(0).is_empty());
        assert_eq!(design.compared().count(), 4, "shares are not policies that could win");
        assert_eq!(design.sizing_arm().unwrap().policy.to_string(), "thp+windows-2048k-2m-ffffffff");
    }

    #[test]
    fn windows_are_chosen_once_for_the_size_of_the_memory() {
        let made = |order, advised_bytes: u64| {
            let mut design = design(&["base", "thp"]).with_shares(&fractions(&["1/2", "1/4"]), order, &sizes());
            design.choose_windows(advised_bytes, &[]);
            assert!(design.sizing_arm().is_none());
            [2, 3].map(|arm| design.arms[arm].policy.windows().unwrap())
        };
        let [half, quarter] = made(WindowOrder::Growing, 256 << 20);
        assert_eq!((half.to_string(), quarter.large), ("windows-8192k-2m-0000ffff".into(), 0xff));
        let [half, quarter] = made(WindowOrder::Random, 256 << 20);
        assert_eq!((half.large.count_ones(), quarter.large.count_ones()), (16, 8));
        assert_eq!(half.large & quarter.large, quarter.large, "a larger share has the windows of a smaller one");
        assert_ne!(half.large, 0xffff);
        // The 6 MiB are three windows, and a quarter of three is rounded to one.
        let [half, quarter] = made(WindowOrder::Growing, 6 << 20);
        assert_eq!((half.large, quarter.large), (0b11, 0b1));
    }

    #[test]
    fn the_hottest_windows_come_first_and_uniform_accesses_are_recognized() {
        let made = |accessed: &[u64]| {
            let order = WindowOrder::Hottest { half_percent: 0 };
            let mut design = design(&["base", "thp"]).with_shares(&fractions(&["1/4"]), order, &sizes());
            design.choose_windows(16 << 20, accessed);
            (design.arms[2].policy.windows().unwrap().large, design.window_order().unwrap())
        };
        let (large, order) = made(&[5, 1, 1, 90, 1, 1, 1, 60]);
        assert_eq!((large, order), (0b1000_1000, WindowOrder::Hottest { half_percent: 97 }));
        assert!(!order.is_uniform() && order.is_by_accesses());
        assert!(made(&[10, 11, 9, 10, 10, 10, 10, 10]).1.is_uniform());
        assert!(made(&[]).1.is_uniform(), "nothing was accessed");
    }

    #[test]
    fn shares_need_base_pages_and_thp() {
        assert_eq!(design(&["base", "thp"]).shares_obstacle(), None);
        assert!(design(&["default", "thp"]).shares_obstacle().unwrap().contains("baseline"));
        assert!(design(&["base", "hugetlb-2m"]).shares_obstacle().unwrap().contains("add thp"));
    }
}
