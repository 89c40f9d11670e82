//! Figures published by others.

use super::counted::{CountedError, WireSaving};
use super::wire::WirePublished;
use super::{DefinitionError, Workload};
use crate::counted::Figure;

/// The key of a published change.
const KEY: &str = "published.change";

/// A published figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Description of the figure.
    pub what: String,
    /// The workload with which it is compared.
    pub workload: Option<String>,
    /// The suite with whose mean it is compared.
    pub suite: Option<Suite>,
    /// The policy with which it is compared; for figures of boots or variants, the policy under which they are compared.
    pub policy: Option<String>,
    /// The boot with which it is compared, if it is a figure of boots.
    pub boot: Option<String>,
    /// The variant with which it is compared, if it is a figure of variants.
    pub variant: Option<String>,
    /// Its metric, if that differs from the workload's primary metric.
    pub metric: Option<String>,
    /// Which quantity was published.
    pub measure: Measure,
    /// The figure, as published: `-33.1%`, `best in 45%`.
    pub change: String,
    /// The figure as a number. A change is a ratio: 0.669. A share of wins is a share: 0.45.
    pub ratio: f64,
    /// Where it was published.
    pub source: String,
    /// Why the figure here may differ, as far as the study's author knows.
    pub differs: Option<String>,
}

/// A suite as used by a study.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// Name of the suite.
    pub name: String,
    /// The suite's workloads in the study.
    pub workloads: Vec<String>,
}

/// What a published figure says about a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A change against the baseline.
    Change,
    /// The share of workloads in which the policy's figure is the best, regardless of noise.
    WinShare,
}

impl Published {
    /// Converts a figure of a study with these workloads.
    pub(super) fn of(wire: &WirePublished, workloads: &[Workload]) -> Result<Published, DefinitionError> {
        let WirePublished {
            what,
            workload,
            suite,
            policy,
            boot,
            variant,
            metric,
            change,
            wins,
            source,
            differs,
            counted: _,
        } = wire.clone();
        let (measure, ratio, change) = match (change, wins) {
            (Some(change), None) => (Measure::Change, ratio(KEY, &change)?, change),
            (None, Some(wins)) => {
                let is_of_all = workload.is_none() && suite.is_none() && metric.is_none();
                let share = share(&wins).filter(|_| policy.is_some() && is_of_all);
                let share = share.ok_or_else(|| DefinitionError::Wins { found: wins.clone() })?;
                (Measure::WinShare, share, format!("best in {wins}"))
            }
            _ => return Err(DefinitionError::Figure { what }),
        };
        if workload.is_some() && suite.is_some() {
            return Err(DefinitionError::WorkloadAndSuite { what });
        }
        let suite = suite.map(|name| {
            let own = workloads.iter().filter(|workload| workload.suite.as_ref() == Some(&name));
            Suite { workloads: own.map(|workload| workload.name.clone()).collect(), name }
        });
        Ok(Published { measure, ratio, what, workload, suite, policy, boot, variant, metric, change, source, differs })
    }
}

/// Converts a figure of counted work.
pub(super) fn figure(one: &WirePublished, saving: &WireSaving) -> Result<Figure, DefinitionError> {
    let others = [&one.workload, &one.suite, &one.policy, &one.boot, &one.variant, &one.metric, &one.wins];
    let change = one.change.clone().filter(|_| others.iter().all(|other| other.is_none()));
    let change = change.ok_or_else(|| CountedError::Figure { what: one.what.clone() })?;
    Ok(Figure {
        what: one.what.clone(),
        phase: saving.phase.clone(),
        backing: saving.backing.clone(),
        variant: saving.variant.clone(),
        is_of_instructions: saving.instructions,
        saved: 1.0 - ratio(KEY, &change)?,
        change,
        source: one.source.clone(),
        differs: one.differs.clone(),
    })
}

/// A percentage as a share: `45%` is 0.45.
fn share(text: &str) -> Option<f64> {
    let percent: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

/// A signed percentage as a ratio: `-25%` is 0.75. `key`: where it is in the file.
pub(super) fn ratio(key: &'static str, change: &str) -> Result<f64, DefinitionError> {
    let percent = change.strip_suffix('%').filter(|text| text.starts_with(['-', '+']));
    let percent = percent.and_then(|text| text.trim().parse::<f64>().ok()).filter(|percent| *percent > -100.0);
    let ratio = percent.map(|percent| 1.0 + percent / 100.0).filter(|ratio| ratio.is_finite());
    ratio.ok_or_else(|| DefinitionError::Change { key, found: change.to_owned() })
}
