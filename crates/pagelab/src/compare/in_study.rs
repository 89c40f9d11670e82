//! A comparison as a row of a study: which one it is, and what of it has been run before.

use clap::Parser;
use results::store::{OfStudy, Resumption, Store};
use study::comparison::Comparison;
use study::metric::names;
use study::runner::Earlier;

use super::arguments::Compare;
use super::ending;
use super::measure::{self, Measured};
use super::request::Request;
use crate::failure::Failure;

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

/// `compare` and its words, as a command line of its own.
#[derive(Parser)]
#[command(name = "pagelab compare", no_binary_name = true)]
struct Line {
    #[command(flatten)]
    compare: Compare,
}

/// Checks the words of a comparison, and changes nothing.
///
/// # Errors
/// Words that `compare` does not take.
pub fn check(words: &[String]) -> Result<(), Failure> {
    parsed(words).map(drop)
}

/// Runs a comparison that is a row of a study, in the words of `compare`, and keeps it. Nothing is shown.
///
/// # Errors
/// It cannot begin.
pub fn run(words: &[String], store: &Store, study: InStudy) -> Result<(Measured, Result<(), Failure>), Failure> {
    let Request { mut setup, .. } = Request::of(parsed(words)?)?;
    setup.in_study = Some(study);
    let measured = measure::measure(setup, store)?;
    let exit = ending::exit(&measured.comparison, measured.blame);
    Ok((measured, exit))
}

fn parsed(words: &[String]) -> Result<Compare, Failure> {
    let line = Line::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        // The usage of `compare` would be of no use here.
        let what = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        Failure::Input(what.split_whitespace().collect::<Vec<_>>().join(" "))
    })?;
    Ok(line.compare)
}
