//! Runs a comparison that is a row of a study, given as arguments of `compare`.

use std::ffi::OsString;

use clap::Parser;
use platform::Blame;
use results::store::Store;
use study::comparison::{Comparison, Ended};
use study::stats;
use tracer::signals;

use super::arguments::Compare;
use super::ending;
use super::measure::{self, Measured};
use super::primary::refuse_auto;
use super::request::Request;
use super::resumed::InStudy;
use crate::failure::Failure;
use crate::separator;

/// Parses arguments of `compare` that do not come from pagelab's command line.
#[derive(Parser)]
#[command(name = "pagelab compare", no_binary_name = true)]
struct Line {
    #[command(flatten)]
    compare: Compare,
}

/// Checks the arguments of a comparison without changing anything.
///
/// # Errors
/// `compare` rejects the arguments.
pub fn check(words: &[String]) -> Result<(), Failure> {
    refuse_auto(&parsed(words)?, "in a study")
}

/// Runs a comparison that is a row of a study, from arguments of `compare`, to its end or its pause, and stores it. Nothing is
/// shown.
///
/// # Errors
/// The comparison cannot begin.
pub fn run(words: &[String], store: &Store, study: InStudy) -> Result<(Measured, Result<(), Failure>), Failure> {
    check(words)?;
    let Request { mut setup, .. } = Request::of(parsed(words)?)?;
    let pauses = study.pause.is_some();
    setup.in_study = Some(study);
    let measured = measure::measure(setup, store)?;
    let is_paused = pauses && measured.comparison.ended == Ended::Interrupted && signals::arrived().is_none();
    let exit = if is_paused { Ok(()) } else { ending::exit(&measured.comparison, measured.blame) };
    Ok((measured, exit))
}

/// Marks a comparison that is not running any more as ended, and stores its analysis.
///
/// # Errors
/// The store cannot be written.
pub fn end(store: &Store, mut comparison: Comparison, ended: Ended) -> Result<Comparison, Failure> {
    comparison.analysis = stats::analyse(&comparison.design, &comparison.trials, &comparison.admissions);
    comparison.ended = ended;
    store.finish(comparison.id, comparison.analysis.as_ref(), &comparison.ended).map_err(Failure::input)?;
    Ok(comparison)
}

/// The exit status of a stored comparison.
///
/// # Errors
/// As those of `compare`.
pub fn exit(comparison: &Comparison) -> Result<(), Failure> {
    ending::exit(comparison, Blame::Command)
}

/// Parses arguments of `compare`, in which `--` before the command may be missing.
///
/// # Errors
/// `compare` rejects the arguments.
pub fn parsed<Word: Into<OsString> + Clone>(words: impl IntoIterator<Item = Word>) -> Result<Compare, Failure> {
    let words = separator::inserted::<Compare>(words.into_iter().map(Into::into).collect())?;
    let line = Line::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        // Only the message is kept, because the usage text of `compare` would not help the reader of a study's error.
        let what = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        Failure::Input(what.split_whitespace().collect::<Vec<_>>().join(" "))
    })?;
    Ok(line.compare)
}
