//! Conclusions that the boots do not support, and what would be needed for them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::boot::{Boot, of_arm, strata};
use crate::comparison::Design;
use crate::stats::rank_sum;
use crate::trial::Arm;
use policy::DirectMapLeaves;

/// Why something cannot be concluded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "limit")]
pub enum Limitation {
    /// No boot of the arm was measured.
    NoBoot {
        /// Index of the arm.
        arm: usize,
    },
    /// Only one boot of the arm was measured.
    OneBoot {
        /// Index of the arm.
        arm: usize,
    },
    /// No host has boots of both the arm and the baseline.
    OtherHost {
        /// Index of the arm.
        arm: usize,
    },
    /// With so few boots, not even the clearest difference could be significant.
    TooFewBoots {
        /// Index of the arm.
        arm: usize,
        /// Boots of each arm, on one host, that would be sufficient.
        needed: u32,
    },
    /// Some boots measured several arms, one after the other.
    SeveralArmsInABoot {
        /// Index of an arm that was measured after another one.
        arm: usize,
    },
    /// The arm's leaves were created by splitting, not by booting.
    Demoted {
        /// Index of the arm.
        arm: usize,
        /// Number of its boots that were demoted.
        boots: u32,
    },
    /// Kernels differ between boots of a host.
    Kernels {
        /// Name of the host.
        host: String,
    },
    /// Boots of an arm with mixed leaf sizes have different shares of them.
    Shares {
        /// Index of the arm.
        arm: usize,
        /// The shares of each boot, in words.
        shares: Vec<String>,
    },
    /// Boots of the arm ran with a kernel option that costs time itself.
    CostlyOption {
        /// Index of the arm.
        arm: usize,
        option: String,
    },
}

/// The limits of conclusions from these boots.
pub(super) fn limits(design: &Design, boots: &[Boot]) -> Vec<Limitation> {
    let mut limits: Vec<Limitation> =
        (0..design.arms.len()).flat_map(|arm| limits_of_arm(design, boots, arm)).collect();
    let mut kernels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    boots.iter().for_each(|boot| {
        kernels.entry(&boot.host).or_default().insert(&boot.kernel);
    });
    let differing = kernels.into_iter().filter(|(_, kernels)| kernels.len() > 1);
    limits.extend(differing.map(|(host, _)| Limitation::Kernels { host: host.to_string() }));
    limits
}

fn limits_of_arm(design: &Design, boots: &[Boot], arm: usize) -> Vec<Limitation> {
    let count = of_arm(boots, arm).count();
    let mut limits = Vec::new();
    match count {
        0 => return vec![Limitation::NoBoot { arm }],
        1 => limits.push(Limitation::OneBoot { arm }),
        _ => limits.extend(too_few(design, boots, arm)),
    }
    let after_another = |boot: &Boot| {
        let is_before = |other: &&Boot| other.boot_id == boot.boot_id && other.arm != boot.arm;
        boots.iter().filter(is_before).any(|other| other.started_unix_s <= boot.started_unix_s)
    };
    if of_arm(boots, arm).any(after_another) {
        limits.push(Limitation::SeveralArmsInABoot { arm });
    }
    let demoted = of_arm(boots, arm).filter(|boot| boot.is_noticeably_demoted()).count() as u32;
    limits.extend((demoted > 0).then_some(Limitation::Demoted { arm, boots: demoted }));
    limits.extend(shares(design, boots, arm));
    let mut costly = of_arm(boots, arm).flat_map(|boot| boot.kernel_command_line.split_whitespace());
    let option = costly.find(|word| *word == "debug_pagealloc=on" || *word == "debug_pagealloc=1");
    limits.extend(option.map(|option| Limitation::CostlyOption { arm, option: option.to_string() }));
    limits
}

/// Maximum difference between shares of a leaf size in boots of one arm.
const MAX_SHARE_DIFFERENCE: f64 = 0.05;

/// A limit if boots of an arm without a specified leaf size differ in their shares of a leaf size.
fn shares(design: &Design, boots: &[Boot], arm: usize) -> Option<Limitation> {
    let is_mixed = design.arms.get(arm)?.policy.direct_map() == Some(DirectMapLeaves::Mixed);
    let sizes: BTreeSet<&String> = of_arm(boots, arm).flat_map(|boot| boot.direct_map_ratios.keys()).collect();
    let is_apart = |size: &&String| {
        let all = of_arm(boots, arm).map(|boot| boot.direct_map_ratios.get(*size).copied().unwrap_or(0.0));
        let (low, high) = all.fold((1.0f64, 0.0f64), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
        high - low > MAX_SHARE_DIFFERENCE
    };
    let differ = is_mixed && sizes.iter().any(is_apart);
    let mut shares: Vec<String> = of_arm(boots, arm).map(Boot::direct_map).collect();
    shares.sort();
    shares.dedup();
    differ.then_some(Limitation::Shares { arm, shares })
}

/// A limit if the arm has no boots on a host of the baseline, or too few for any claim.
fn too_few(design: &Design, boots: &[Boot], arm: usize) -> Option<Limitation> {
    if arm == design.baseline || of_arm(boots, design.baseline).next().is_none() {
        return None;
    }
    let strata = strata(boots, arm, design.baseline, &design.primary);
    if strata.is_empty() {
        return Some(Limitation::OtherHost { arm });
    }
    let arms: BTreeSet<usize> = boots.iter().map(|boot| boot.arm).filter(|arm| *arm != design.baseline).collect();
    let enough = |sizes: &[(usize, usize)]| is_enough(design, sizes, arms.len());
    let sizes: Vec<(usize, usize)> = strata.iter().map(|stratum| (stratum.one.len(), stratum.other.len())).collect();
    (!enough(&sizes)).then(|| Limitation::TooFewBoots { arm, needed: needed(design, arms.len()) })
}

/// Whether the clearest difference between these numbers of boots, by host, could be significant.
fn is_enough(design: &Design, sizes: &[(usize, usize)], compared: usize) -> bool {
    rank_sum::smallest_p(sizes) * compared as f64 <= design.level()
}

/// Number of boots of each arm, on one host, with which a difference can be significant. `compared` is the number of arms in
/// addition to the baseline.
pub(super) fn needed(design: &Design, compared: usize) -> u32 {
    (2..40u32).find(|boots| is_enough(design, &[(*boots as usize, *boots as usize)], compared)).unwrap_or(40)
}

/// The limits and their remedies as sentences; arms with the same limit share one. `arms` are those of the design.
pub fn sentences(limits: &[Limitation], arms: &[Arm]) -> Vec<String> {
    let mut groups: Vec<(Limitation, Vec<usize>)> = Vec::new();
    for limit in limits {
        let kind = limit.with_arm(0);
        match groups.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, of)) => of.extend(limit.arm()),
            None => groups.push((kind, limit.arm().into_iter().collect())),
        }
    }
    let label = |arm: &usize| arms.get(*arm).map_or("?", |arm| arm.label.as_str());
    groups.iter().map(|(limit, of)| limit.sentence(&of.iter().map(label).collect::<Vec<_>>())).collect()
}

/// `a`, `a and b`, `a, b and c`.
fn enumerate(labels: &[&str]) -> String {
    match labels {
        [] => String::new(),
        [one] => one.to_string(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

/// `1 boot`, `2 boots`.
pub fn boots(count: u32) -> String {
    format!("{count} boot{}", if count == 1 { "" } else { "s" })
}

impl Limitation {
    /// The limit and its remedy as one sentence; `arms` are those of the design.
    pub fn describe(&self, arms: &[Arm]) -> String {
        sentences(std::slice::from_ref(self), arms).concat()
    }

    /// The arm that the limit concerns; absent if it concerns all arms.
    fn arm(&self) -> Option<usize> {
        self.clone().arm_mut().copied()
    }

    /// The same limit for another arm.
    fn with_arm(&self, other: usize) -> Limitation {
        let mut limit = self.clone();
        if let Some(arm) = limit.arm_mut() {
            *arm = other;
        }
        limit
    }

    fn arm_mut(&mut self) -> Option<&mut usize> {
        match self {
            Limitation::NoBoot { arm }
            | Limitation::OneBoot { arm }
            | Limitation::OtherHost { arm }
            | Limitation::TooFewBoots { arm, .. }
            | Limitation::SeveralArmsInABoot { arm }
            | Limitation::Demoted { arm, .. }
            | Limitation::Shares { arm, .. }
            | Limitation::CostlyOption { arm, .. } => Some(arm),
            Limitation::Kernels { .. } => None,
        }
    }

    /// The sentence for arms with these labels.
    fn sentence(&self, labels: &[&str]) -> String {
        let is_one = labels.len() == 1;
        let who = enumerate(labels);
        let was = if is_one { "was" } else { "were" };
        match self {
            Limitation::NoBoot { .. } => {
                let into = if is_one { "it" } else { "each" };
                format!("{who} {was} measured in no boot; boot into {into} and run `compare --arm-of-boot` there")
            }
            Limitation::OneBoot { .. } => format!(
                "{who} {was} measured in one boot {}: the variation between boots of one arm is unknown, so no difference can be \
                 distinguished from chance, however many trials the boot has; boot into {} again",
                if is_one { "only" } else { "each" },
                if is_one { "it" } else { "each" }
            ),
            Limitation::OtherHost { .. } => format!(
                "no host has both the baseline and {}, so {} cannot be separated from the host; measure both on one host",
                labels.join(" or "),
                if is_one { "the arm" } else { "arms" }
            ),
            Limitation::TooFewBoots { needed, .. } => format!(
                "{who} and the baseline have too few boots for any claim, even if every boot of the one were faster than every \
                 boot of the other; {needed} boots of each on one host would suffice"
            ),
            Limitation::SeveralArmsInABoot { .. } => format!(
                "{who} {was} measured after another arm of the same boot, in an order that is not random: the aging of the boot \
                 cannot be separated from the arm; reboot between arms"
            ),
            Limitation::Demoted { boots: demoted, .. } => format!(
                "{}{} of {who} {} demoted by pagelab: the figures include the side effects (2M pages are scarce), not the leaf \
                 size alone; boot options set the leaf size without them",
                boots(*demoted),
                if is_one { "" } else { " each" },
                if is_one && *demoted == 1 { "was" } else { "were" },
            ),
            Limitation::Kernels { host } => {
                format!("boots of {host} ran different kernels, which may differ by themselves; boot one kernel")
            }
            Limitation::Shares { shares, .. } => format!(
                "boots of {who} differ in their shares of each leaf size ({}): they are the same arm only by name",
                shares.join("; ")
            ),
            Limitation::CostlyOption { option, .. } => {
                format!("{who} ran with {option}, whose own cost cannot be separated from that of the leaves")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::Policy;

    fn arms() -> Vec<Arm> {
        let arm = |label: &str| Arm::of_policy(label, label.parse::<Policy>().unwrap());
        ["direct-map-1g", "direct-map-2m", "direct-map-4k"].map(arm).into()
    }

    #[test]
    fn arms_with_the_same_limit_share_a_sentence() {
        let limits = [
            Limitation::OneBoot { arm: 0 },
            Limitation::NoBoot { arm: 1 },
            Limitation::NoBoot { arm: 2 },
            Limitation::Kernels { host: "a".into() },
        ];
        let text = sentences(&limits, &arms());
        assert_eq!(text.len(), 3, "{text:#?}");
        assert!(text[0].starts_with("direct-map-1g was measured in one boot only: "), "{}", text[0]);
        assert!(text[1].starts_with("direct-map-2m and direct-map-4k were measured in no boot; boot into each "));
        assert_eq!(limits[1].describe(&arms()).find("direct-map-2m was measured in no boot; boot into it "), Some(0));
        let demoted = [1, 3].map(|boots| Limitation::Demoted { arm: 2, boots }.describe(&arms()));
        assert!(demoted[0].starts_with("1 boot of direct-map-4k was demoted"), "{}", demoted[0]);
        assert!(demoted[1].starts_with("3 boots of direct-map-4k were demoted"), "{}", demoted[1]);
    }
}
