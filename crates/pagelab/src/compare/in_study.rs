//! A comparison as a row of a study, given as arguments of `compare`.

use std::ffi::OsString;

use clap::Parser;
use results::store::Store;

use super::arguments::Compare;
use super::ending;
use super::measure::{self, Measured};
use super::request::Request;
use super::resumed::InStudy;
use crate::failure::Failure;

/// `compare` and its words, as a command line of its own.
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
    parsed(words).map(drop)
}

/// Runs a comparison that is a row of a study, from arguments of `compare`, and stores it. Nothing is shown.
///
/// # Errors
/// The comparison cannot begin.
pub fn run(words: &[String], store: &Store, study: InStudy) -> Result<(Measured, Result<(), Failure>), Failure> {
    let Request { mut setup, .. } = Request::of(parsed(words)?)?;
    setup.in_study = Some(study);
    let measured = measure::measure(setup, store)?;
    let exit = ending::exit(&measured.comparison, measured.blame);
    Ok((measured, exit))
}

/// Parses arguments of `compare`.
///
/// # Errors
/// `compare` rejects the arguments.
pub fn parsed<Word: Into<OsString> + Clone>(words: impl IntoIterator<Item = Word>) -> Result<Compare, Failure> {
    let line = Line::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        // Only the message is kept: the usage text of `compare` would not help here.
        let what = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        Failure::Input(what.split_whitespace().collect::<Vec<_>>().join(" "))
    })?;
    Ok(line.compare)
}
