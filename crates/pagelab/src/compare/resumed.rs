//! The row of a study that a comparison fills, and the trials of it that have been run already.

use results::store::{OfStudy, Resumption};
use study::comparison::Comparison;
use study::metric::names;
use study::runner::Earlier;

/// A comparison that is a row of a study.
#[derive(Debug)]
pub struct InStudy {
    /// The row and the study.
    pub of: OfStudy,
    /// The earlier, interrupted run of this row, if there is one.
    pub resumed: Option<Resumed>,
}

/// A comparison that was interrupted.
#[derive(Debug)]
pub struct Resumed {
    /// The stored comparison.
    pub comparison: Comparison,
    /// Where and in which boot it resumes.
    pub resumption: Resumption,
    /// Whether its last trial ran in another boot.
    pub is_of_other_boot: bool,
}

impl Resumed {
    /// The trials that the runner need not run again.
    pub fn earlier(&self) -> Earlier {
        Earlier { trials: self.comparison.trials.clone(), is_of_other_boot: self.is_of_other_boot }
    }

    /// The comparison's clock at the end of the last trial, in seconds.
    pub fn clock_s(&self) -> f64 {
        let last = self.comparison.trials.last();
        last.map_or(0.0, |record| record.started_s + record.value(names::WALL_S).unwrap_or_default())
    }
}
