//! Which row of a study a comparison is, and what of it has been run before.

use results::store::{OfStudy, Resumption};
use study::comparison::Comparison;
use study::metric::names;
use study::runner::Earlier;

/// A comparison that is a row of a study.
#[derive(Debug)]
pub struct InStudy {
    /// Which row of which study.
    pub of: OfStudy,
    /// What has been run of it.
    pub gone_before: Option<GoneBefore>,
}

/// A comparison that was interrupted.
#[derive(Debug)]
pub struct GoneBefore {
    /// As it was stored.
    pub comparison: Comparison,
    /// Where it goes on.
    pub resumption: Resumption,
    /// Whether its last trial was run in another boot.
    pub is_of_other_boot: bool,
}

impl GoneBefore {
    /// What the runner need not run again.
    pub fn earlier(&self) -> Earlier {
        Earlier { trials: self.comparison.trials.clone(), is_of_other_boot: self.is_of_other_boot }
    }

    /// What the clock showed when the last trial ended.
    pub fn clock_s(&self) -> f64 {
        let last = self.comparison.trials.last();
        last.map_or(0.0, |record| record.started_s + record.value(names::WALL_S).unwrap_or_default())
    }
}
