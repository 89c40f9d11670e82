//! Figures that others have published.

use super::DefinitionError;
use super::wire::WirePublished;

/// A figure that others have published.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// What it says.
    pub what: String,
    /// The workload that it is set beside.
    pub workload: Option<String>,
    /// The policy that it is set beside; of a figure of boots the one under which they are compared.
    pub policy: Option<String>,
    /// The boot that it is set beside, where it compares boots.
    pub boot: Option<String>,
    /// The metric that it is of, where that is another one than the workload's own.
    pub metric: Option<String>,
    /// What of it was published.
    pub measure: Measure,
    /// The figure, as published: `-33.1%`, `best in 45%`.
    pub change: String,
    /// A change as a ratio, 0.669; a share of wins as such, 0.45.
    pub ratio: f64,
    /// Where it stands.
    pub source: String,
    /// Why a figure here can be another one, as far as the study's author knows.
    pub differs: Option<String>,
}

/// What a published figure says of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A change against the baseline.
    Change,
    /// In which share of workloads its figure is the best, whatever the noise.
    WinShare,
}

impl Published {
    pub(super) fn of(wire: &WirePublished) -> Result<Published, DefinitionError> {
        let WirePublished { what, workload, policy, boot, metric, change, wins, source, differs } = wire.clone();
        let (measure, ratio, change) = match (change, wins) {
            (Some(change), None) => (Measure::Change, ratio(&change)?, change),
            (None, Some(wins)) => {
                let share = share(&wins).filter(|_| policy.is_some() && workload.is_none() && metric.is_none());
                let share = share.ok_or_else(|| DefinitionError::Wins { found: wins.clone() })?;
                (Measure::WinShare, share, format!("best in {wins}"))
            }
            _ => return Err(DefinitionError::Figure { what }),
        };
        Ok(Published { measure, ratio, what, workload, policy, boot, metric, change, source, differs })
    }
}

/// A percentage as a share: `45%` is 0.45.
fn share(text: &str) -> Option<f64> {
    let percent: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

/// A signed percentage as a ratio: `-25%` is 0.75.
fn ratio(change: &str) -> Result<f64, DefinitionError> {
    let percent = change.strip_suffix('%').filter(|text| text.starts_with(['-', '+']));
    let percent = percent.and_then(|text| text.trim().parse::<f64>().ok()).filter(|percent| *percent > -100.0);
    let ratio = percent.map(|percent| 1.0 + percent / 100.0).filter(|ratio| ratio.is_finite());
    ratio.ok_or_else(|| DefinitionError::Change { found: change.to_owned() })
}
