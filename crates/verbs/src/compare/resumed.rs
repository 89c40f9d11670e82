//! A comparison that fills a row of a study ([`InStudy`]), and the trials of that row that have been run already.

use results::store::{OfStudy, Resumption};
use study::comparison::Comparison;
use study::metric::names;
use study::runner::{EarlierParts, Gap, Pause};

/// A comparison that is a row of a study.
#[derive(Debug)]
pub struct InStudy {
    /// The row and the study.
    pub of: OfStudy,
    /// The earlier run of this row, if it was interrupted.
    pub resumed: Option<Resumed>,
    /// When the comparison pauses so that other rows can continue; `None` if it runs to its end.
    pub pause: Option<Pause>,
}

/// A comparison that was interrupted.
#[derive(Debug)]
pub struct Resumed {
    /// The stored comparison.
    pub comparison: Comparison,
    /// Where and in which boot it resumes.
    pub resumption: Resumption,
    /// What happened since its last trial.
    pub gap: Gap,
}

impl Resumed {
    /// The trials that the runner need not run again.
    pub fn earlier(&self) -> EarlierParts {
        EarlierParts { trials: self.comparison.trials.clone(), gap: self.gap }
    }

    /// The comparison's clock at the end of the last trial, in seconds.
    pub fn clock_s(&self) -> f64 {
        clock_s(&self.comparison)
    }
}

fn clock_s(comparison: &Comparison) -> f64 {
    let last = comparison.trials.last();
    last.map_or(0.0, |record| record.started_s + record.value(names::WALL_S).unwrap_or_default())
}

/// The seconds from a comparison's first trial to the end of its last, without pauses.
pub fn time_s(comparison: &Comparison) -> f64 {
    comparison.trials.first().map_or(0.0, |first| clock_s(comparison) - first.started_s)
}
