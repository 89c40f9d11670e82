//! Publishes comparisons and merged boots: as a table or a document on standard output, as CSV, and as a page.

use std::path::PathBuf;

use clap::Args;
use results::boots as of_boots;
use results::store::Resumption;
use serde_json::{Value, json};
use study::comparison::Comparison;
use study::guest::Clock;
use study::metric::Provenance;
use study::stats::Outcome;
use study::stats::boots::{self, Merged, Part};

use crate::failure::{Failure, report};
use crate::output::{can_be_written, folded, print, terminal_width, write, write_page};

/// In which forms something is shown.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct Forms {
    /// Print one JSON document instead of the table
    #[arg(long)]
    pub json: bool,
    /// Write every sample as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a report: one HTML file without script
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl Forms {
    /// Checks at the start that output files can be written at the end, so that no long measurement is wasted.
    ///
    /// # Errors
    /// One of the files cannot be written.
    pub fn can_be_written(&self) -> Result<(), Failure> {
        can_be_written([&self.html, &self.csv].into_iter().flatten())
    }
}

/// Returns the first failure, which decides the exit code, and prints the others.
///
/// # Errors
/// The first failure, if any.
pub fn first_of(mut failures: impl Iterator<Item = Failure>) -> Result<(), Failure> {
    let first = failures.next();
    failures.for_each(|failure| report(format_args!("pagelab: {}", results::printable(&failure.to_string()))));
    first.map_or(Ok(()), Err)
}

/// Publishes a comparison in the requested forms. Each form is written even if another one fails.
///
/// # Errors
/// Standard output or a file cannot be written.
pub fn comparison(comparison: &Comparison, forms: &Forms, adopt_all: bool) -> Result<(), Failure> {
    gone_on(comparison, &[], forms, adopt_all)
}

/// As [`comparison`], for one that was interrupted and resumed.
fn gone_on(comparison: &Comparison, resumptions: &[Resumption], forms: &Forms, adopt_all: bool) -> Result<(), Failure> {
    let text = if forms.json {
        let mut document = results::json::document(comparison);
        document["resumptions"] = resumptions.iter().map(of_resumption).collect();
        format!("{document:#}")
    } else {
        [text(comparison, adopt_all), resumed(comparison, resumptions)].join("\n\n").trim_end().to_owned()
    };
    let printed = print(&text, forms.json);
    let csv = forms.csv.as_ref().map(|file| write(file, &|to| results::csv::write(comparison, to)));
    let html = forms.html.as_ref().map(|file| write_page(file, &results::html::report(comparison)));
    first_of([Some(printed), csv, html].into_iter().flatten().filter_map(Result::err))
}

fn of_resumption(one: &Resumption) -> Value {
    json!({ "trials": one.trials, "started_unix_s": one.started_unix_s, "boot_id": one.boot_id })
}

/// Text on where a comparison was interrupted, and whether it resumed in another boot; empty if it was not interrupted.
fn resumed(comparison: &Comparison, resumptions: &[Resumption]) -> String {
    let mut boot = &comparison.machine.boot_id;
    let of_one = |one: &Resumption, before: &str| {
        let place = if one.boot_id == before { "in the same boot" } else { "in another boot" };
        format!("after {} trials, and went on {place}", one.trials)
    };
    let resumptions = resumptions.iter().map(|one| {
        let resumptions = of_one(one, boot);
        boot = &one.boot_id;
        resumptions
    });
    let resumptions: Vec<String> = resumptions.collect();
    if resumptions.is_empty() {
        String::new()
    } else {
        folded(format!("It was interrupted {}.", resumptions.join("; ")))
    }
}

/// The table, the conclusion, and, if asked for, the ways to adopt the best policy permanently.
fn text(comparison: &Comparison, adopt_all: bool) -> String {
    let table = results::table::render(comparison, terminal_width());
    let sentence = folded(results::sentence::conclude(comparison));
    let adoption = if adopt_all { results::adopting::adoption(comparison) } else { String::new() };
    // Commands are not folded, so that they can be copied.
    let folded_unless_command =
        |line: &str| if line.starts_with(' ') { line.to_owned() } else { folded(line.to_owned()) };
    let adoption = adoption.lines().map(folded_unless_command).collect::<Vec<_>>().join("\n");
    let unmeasured = unmeasured(comparison)
        .or_else(|| Clock::of(&comparison.machine).limits())
        .map(|line| line.to_owned() + "\n\n")
        .unwrap_or_default();
    format!("{unmeasured}{}\n\n{}", table.trim_end(), [sentence, adoption].join("\n").trim_end())
}

/// A warning if the figures of a comparison were not measured (`compare::fake`), whichever verb shows it.
fn unmeasured(comparison: &Comparison) -> Option<&'static str> {
    let mut observations = comparison.trials.iter().flat_map(|record| &record.observations);
    let is_modelled = observations.any(|observation| observation.provenance == Provenance::Modelled);
    is_modelled.then_some("NO FIGURE BELOW WAS MEASURED: they are those of a fake platform, for tests of pagelab")
}

/// Publishes a stored comparison: as arms over boots if its design is over boots, otherwise as policies.
///
/// # Errors
/// As [`comparison`] and [`merged`].
pub fn stored(stored: &Comparison, resumptions: &[Resumption], forms: &Forms, adopt_all: bool) -> Result<(), Failure> {
    match Part::of(stored).filter(|_| stored.design.is_over_boots()) {
        Some(part) => merged(&boots::merge(&[part]).map_err(Failure::input)?, forms),
        None => gone_on(stored, resumptions, forms, adopt_all),
    }
}

/// Publishes the merged result of boots in the requested forms.
///
/// # Errors
/// Standard output or a file cannot be written, or a boot's answer differs from the baseline's.
pub fn merged(merged: &Merged, forms: &Forms) -> Result<(), Failure> {
    let text = if forms.json {
        format!("{:#}", of_boots::document(merged))
    } else {
        of_boots::render(merged, terminal_width())
    };
    print(&text, forms.json)?;
    if let Some(file) = &forms.csv {
        write(file, &|to| of_boots::csv::write(merged, to))?;
    }
    if let Some(file) = &forms.html {
        write_page(file, &results::html::boots::report(merged))?;
    }
    agreed(merged)
}

/// Checks that every boot has an answer and that all answers agree.
fn agreed(merged: &Merged) -> Result<(), Failure> {
    let has = |which: fn(&Outcome) -> bool| merged.arms.iter().any(|arm| which(&arm.outcome));
    let failed = |what: &str| Err(Failure::Command(format!("{what}; see the table")));
    if has(|outcome| matches!(outcome, Outcome::WrongAnswer { .. })) {
        failed("boots do not agree in the answer of the command")
    } else if has(|outcome| matches!(outcome, Outcome::TooSlow { .. })) {
        failed("in a boot the command took longer than --trial-time")
    } else {
        Ok(())
    }
}
