//! [`Boot`]: the observation of one arm in one boot. Also groups boots by host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::stats::rank_sum::Stratum;
use crate::stats::warnings::DEMOTED_SHARE;
use crate::trial::Answer;
use policy::machine::share_up_to;
use policy::size::PageSize;
use policy::verdict::Holding;

/// The observation of one arm in one boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Boot {
    /// The host: its id, or its processor if a result has no id. The memory size is part of it, unless memory sizes are
    /// compared.
    pub host: String,
    pub boot_id: String,
    /// Index of the arm in the design.
    pub arm: usize,
    /// Start of the first of its trials, in seconds since 1970.
    pub started_unix_s: i64,
    /// The kernel's release and version.
    pub kernel: String,
    pub kernel_command_line: String,
    /// The smallest leaf into which pagelab demoted the direct map before or during the measurement.
    pub demoted_to: Option<PageSize>,
    /// Shares of the direct map by the size of its leaves, as the kernel counts them, before the first of its trials.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub direct_map_ratios: BTreeMap<String, f64>,
    /// Number of trials that count.
    pub trials: u32,
    /// Medians of all metrics over these trials.
    pub medians: BTreeMap<String, f64>,
    /// Whether the policy held.
    pub holding: Option<Holding>,
    /// The answer in the first of its trials, or in the trial that took too long.
    pub answer: Answer,
}

impl Boot {
    /// The shares of the boot's direct map in words: `38 % 2M, 62 % 1G`. Shares that round to 0 % are omitted.
    pub fn direct_map(&self) -> String {
        let shares = self.direct_map_ratios.iter().filter(|(_, ratio)| **ratio >= 0.005);
        shares.map(|(leaf, ratio)| format!("{:.0} % {leaf}", ratio * 100.0)).collect::<Vec<_>>().join(", ")
    }

    /// Whether the policy was in force.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.holding, Some(Holding::Held | Holding::NotAsked))
    }

    /// Whether pagelab demoted a part of the boot's direct map that is large enough to matter, or of unknown size.
    pub(super) fn is_noticeably_demoted(&self) -> bool {
        let ratios = self.direct_map_ratios.iter().map(|(leaf, ratio)| (leaf.as_str(), *ratio));
        let share = self.demoted_to.map(|leaf| share_up_to(leaf, ratios));
        share.is_some_and(|share| share.is_none_or(|share| share >= DEMOTED_SHARE))
    }
}

pub(super) fn of_arm(boots: &[Boot], arm: usize) -> impl Iterator<Item = &Boot> {
    boots.iter().filter(move |boot| boot.arm == arm)
}

/// Logarithms of a metric, by host. Boots whose value has no logarithm are omitted.
pub(super) fn strata(boots: &[Boot], arm: usize, other: usize, metric: &str) -> Vec<Stratum> {
    let mut hosts: BTreeMap<&str, Stratum> = BTreeMap::new();
    for boot in boots {
        let value = boot.medians.get(metric).filter(|value| value.is_finite() && **value > 0.0);
        let Some(log) = value.map(|value| value.ln()) else { continue };
        let stratum = hosts.entry(&boot.host).or_default();
        if boot.arm == arm {
            stratum.one.push(log);
        } else if boot.arm == other {
            stratum.other.push(log);
        }
    }
    hosts.into_values().filter(|stratum| !stratum.one.is_empty() && !stratum.other.is_empty()).collect()
}
