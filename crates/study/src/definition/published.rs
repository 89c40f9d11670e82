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
    /// The change, as published: `-33.1%`.
    pub change: String,
    /// The change as a ratio: 0.669.
    pub ratio: f64,
    /// Where it stands.
    pub source: String,
    /// Why a figure here can be another one, as far as the study's author knows.
    pub differs: Option<String>,
}

impl Published {
    pub(super) fn of(wire: &WirePublished) -> Result<Published, DefinitionError> {
        let WirePublished { what, workload, policy, boot, metric, change, source, differs } = wire.clone();
        Ok(Published { ratio: ratio(&change)?, what, workload, policy, boot, metric, change, source, differs })
    }
}

/// A signed percentage as a ratio: `-25%` is 0.75.
fn ratio(change: &str) -> Result<f64, DefinitionError> {
    let percent = change.strip_suffix('%').filter(|text| text.starts_with(['-', '+']));
    let percent = percent.and_then(|text| text.trim().parse::<f64>().ok()).filter(|percent| *percent > -100.0);
    let ratio = percent.map(|percent| 1.0 + percent / 100.0).filter(|ratio| ratio.is_finite());
    ratio.ok_or_else(|| DefinitionError::Change { found: change.to_owned() })
}
