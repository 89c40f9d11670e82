//! Publishes comparisons and merged boots in the requested [`Forms`]: as a table or a document on standard output, as
//! CSV, and as an HTML report.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use results::boots as of_boots;
use results::emphasis::{Line, Span};
use results::required::{self, ArmJudgement, ArmRequirement};
use results::screen::{self, Place};
use results::store::Resumption;
use serde_json::{Value, json};
use study::comparison::Comparison;
use study::guest::{Clock, kernel_of};
use study::metric::Provenance;
use study::stats::Outcome;
use study::stats::boots::{self, MeasuredBoots, Merged};

use crate::failure::{Failure, report};
use crate::output::{can_be_written, folded, print, print_lines, terminal_width, write, write_page};
use crate::required::exit;

/// The requested forms of output.
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
    /// Whether to print everything instead of the first screen.
    #[arg(skip)]
    pub is_full: bool,
    /// Whether the comparison has just failed: the failure is reported already, and there is no text to print.
    #[arg(skip)]
    pub has_failed: bool,
    /// Requirements on the memory of the comparison's arms.
    #[arg(skip)]
    pub require: Vec<ArmRequirement>,
    /// The `--store` to repeat in the printed `pagelab show ... --full`.
    #[arg(skip)]
    pub store: Option<PathBuf>,
}

impl Forms {
    /// Checks at the start that output files can be written at the end, so that no long measurement is wasted.
    pub fn can_be_written(&self) -> Result<(), Failure> {
        can_be_written([&self.html, &self.csv].into_iter().flatten())
    }

    /// ` --store FILE` if a store was named; else empty.
    pub fn store_words(&self) -> String {
        let store = self.store.as_ref().map(|store| vec!["--store".to_owned(), store.display().to_string()]);
        store.map(|words| format!(" {}", results::command_line(&words))).unwrap_or_default()
    }
}

/// Returns the first failure, which decides the exit code, and prints the others.
pub fn first_failure(mut failures: impl Iterator<Item = Failure>) -> Result<(), Failure> {
    let first = failures.next();
    failures.for_each(|failure| report(format_args!("pagelab: {}", results::printable(&failure.to_string()))));
    first.map_or(Ok(()), Err)
}

/// Publishes a comparison in the requested forms. Each form is written even if another one fails.
pub fn publish_comparison(comparison: &Comparison, forms: &Forms) -> Result<(), Failure> {
    publish_with_resumptions(comparison, &[], forms)
}

/// Like [`publish_comparison`], but for a comparison that was interrupted and resumed.
fn publish_with_resumptions(comparison: &Comparison, resumptions: &[Resumption], forms: &Forms) -> Result<(), Failure> {
    let printed = if forms.json {
        let mut document = results::json::document(comparison);
        document["resumptions"] = resumptions.iter().map(resumption_document).collect();
        if !forms.require.is_empty() {
            document["requirements"] = required::document_of_arms(&judge(comparison, forms));
        }
        print(&format!("{document:#}"), true)
    } else if forms.has_failed {
        Ok(())
    } else {
        print_text(comparison, resumptions, forms)
    };
    let files = [write_csv(comparison, forms), write_html(comparison, forms)].into_iter().flatten();
    first_failure(std::iter::once(printed).chain(files).filter_map(Result::err))
}

/// Publishes a comparison in the requested forms, with a mail in place of the table.
pub fn publish_mail(comparison: &Comparison, resumptions: &[Resumption], forms: &Forms) -> Result<(), Failure> {
    let folded = |sentence: &str| results::fold(sentence, results::matrix::MAIL_WIDTH, 0);
    let mail = results::matrix::mail_of(comparison);
    let sections =
        [warning(comparison).map(folded), Some(mail), interruptions(comparison, resumptions).as_deref().map(folded)];
    let sections: Vec<String> = sections.into_iter().flatten().map(|section| section.trim_end().to_owned()).collect();
    let printed = print(&sections.join("\n\n"), true);
    let files = [write_csv(comparison, forms), write_html(comparison, forms)].into_iter().flatten();
    first_failure(std::iter::once(printed).chain(files).filter_map(Result::err))
}

fn write_csv(comparison: &Comparison, forms: &Forms) -> Option<Result<(), Failure>> {
    forms.csv.as_ref().map(|file| write(file, &|to| results::csv::write(comparison, to)))
}

fn write_html(comparison: &Comparison, forms: &Forms) -> Option<Result<(), Failure>> {
    forms.html.as_ref().map(|file| write_page(file, &results::html::report(comparison)))
}

/// Prints the settings that were tried for the advice of a comparison, one line each.
pub fn print_attempts(comparison: &Comparison) -> Result<(), Failure> {
    results::advice::attempts(comparison).into_iter().map(folded).try_for_each(|row| print(&row, false))
}

fn resumption_document(one: &Resumption) -> Value {
    json!({ "trials": one.trials, "started_unix_s": one.started_unix_s, "boot_id": one.boot_id })
}

/// A sentence on where the comparison was interrupted and in which boot it resumed; `None` if it was not interrupted.
fn interruptions(comparison: &Comparison, resumptions: &[Resumption]) -> Option<String> {
    let mut boot = &comparison.machine.boot_id;
    let phrase_of = |one: &Resumption, before: &str| {
        let place = if one.boot_id == before { "in the same boot" } else { "in another boot" };
        let trials = if one.trials == 1 { "trial" } else { "trials" };
        format!("after {} {trials}, and resumed {place}", one.trials)
    };
    let phrases = resumptions.iter().map(|one| {
        let phrase = phrase_of(one, boot);
        boot = &one.boot_id;
        phrase
    });
    let phrases: Vec<String> = phrases.collect();
    (!phrases.is_empty()).then(|| format!("The comparison was interrupted {}.", phrases.join("; ")))
}

/// Prints the first screen, or everything, and where the comparison was interrupted.
fn print_text(comparison: &Comparison, resumptions: &[Resumption], forms: &Forms) -> Result<(), Failure> {
    let guest = kernel_of(&comparison.machine).map(|name| {
        let release = comparison.machine.kernel.split(' ').next().unwrap_or_default();
        format!("a boot of the kernel {name} ({release}) in a guest")
    });
    let interruptions = interruptions(comparison, resumptions).map(folded).unwrap_or_default();
    if forms.is_full {
        let warning = guest.into_iter().chain(warning(comparison).map(str::to_owned)).collect::<Vec<_>>().join(". ");
        let sections = [warning.as_str(), &full_text(comparison), &interruptions];
        let sections: Vec<&str> = sections.into_iter().filter(|section| !section.is_empty()).collect();
        print(sections.join("\n\n").trim_end(), false)?;
        return print_requirements(comparison, forms);
    }
    let full = full_command(comparison, forms);
    let place = Place { width: terminal_width(), is_folded: std::io::stdout().is_terminal(), full: &full };
    let plain = |text: String| text.lines().map(|line| vec![Span::plain(line)]).collect::<Vec<Line>>();
    // The notes on the limits of an emulated clock are long; the first screen has a short form of them.
    let is_emulated = Clock::of(&comparison.machine) != Clock::Real;
    let emulated = is_emulated.then_some("emulated, so no figure is a time (--full says more)");
    let warning = unmeasured_warning(comparison).or(emulated).map(str::to_owned);
    let warning = guest.into_iter().chain(warning).collect::<Vec<_>>().join("; ");
    let mut lines = if warning.is_empty() { Vec::new() } else { plain(folded(warning)) };
    lines.extend(screen::render(comparison, place));
    lines.extend(plain(interruptions));
    print_lines(&lines)?;
    print_requirements(comparison, forms)
}

/// Whether the arms meet each requirement.
fn judge(comparison: &Comparison, forms: &Forms) -> Vec<ArmJudgement> {
    forms.require.iter().flat_map(|requirement| requirement.judge(comparison)).collect()
}

fn print_requirements(comparison: &Comparison, forms: &Forms) -> Result<(), Failure> {
    if forms.require.is_empty() {
        return Ok(());
    }
    print(&required::text_of_arms(&judge(comparison, forms), terminal_width()), false)
}

/// The outcome of the requirements of a comparison.
///
/// # Errors
/// [`Failure::Unmet`] unless each arm meets its requirements.
pub fn check_requirements(comparison: &Comparison, forms: &Forms) -> Result<(), Failure> {
    let judged = judge(comparison, forms);
    exit(judged.iter().map(|one| (one.judgement.is_met, format!("{} of {}", one.judgement.requirement, one.arm))))
}

/// The table, the conclusion, and the advice.
fn full_text(comparison: &Comparison) -> String {
    let table = results::table::render(comparison, terminal_width());
    let explained =
        results::explained::sentences(comparison).into_iter().chain(results::explained::scatter(comparison));
    let explained = explained.chain(results::shares::sentences(comparison));
    let sentences = std::iter::once(results::sentence::conclude(comparison)).chain(explained);
    let sentences = sentences.chain([results::advice::short(comparison)]).map(folded).collect::<Vec<_>>();
    format!("{}\n\n{}", table.trim_end(), sentences.join("\n").trim_end())
}

/// The command that shows everything about a comparison. If the comparison is not stored, only the option to use.
fn full_command(comparison: &Comparison, forms: &Forms) -> String {
    if comparison.id == 0 {
        return "--full".to_owned();
    }
    format!("pagelab show {} --full{}", comparison.id, forms.store_words())
}

/// A warning to print above all figures if they come from a fake platform, or from an emulator whose times mean
/// nothing.
fn warning(comparison: &Comparison) -> Option<&'static str> {
    unmeasured_warning(comparison).or_else(|| Clock::of(&comparison.machine).limits())
}

/// A warning if the figures of a comparison were not measured (`compare::fake`).
fn unmeasured_warning(comparison: &Comparison) -> Option<&'static str> {
    let mut observations = comparison.trials.iter().flat_map(|record| &record.observations);
    let is_modelled = observations.any(|observation| observation.provenance == Provenance::Modelled);
    is_modelled.then_some("NO FIGURE BELOW WAS MEASURED: all come from a fake platform, for tests of pagelab")
}

/// Publishes a stored comparison. If its design is over boots, it is shown as arms over boots, with this one boot.
pub fn publish_stored(comparison: &Comparison, resumptions: &[Resumption], forms: &Forms) -> Result<(), Failure> {
    match MeasuredBoots::of(comparison).filter(|_| comparison.design.is_over_boots()) {
        Some(part) => publish_merged(&boots::merge(&[part]).map_err(Failure::input)?, forms),
        None => publish_with_resumptions(comparison, resumptions, forms),
    }
}

/// Publishes the merged result of boots in the requested forms. Each form is written even if another one fails. Fails like
/// [`check_answers`], which decides the exit code.
pub fn publish_merged(merged: &Merged, forms: &Forms) -> Result<(), Failure> {
    let text = if forms.json {
        format!("{:#}", of_boots::document(merged))
    } else {
        of_boots::render(merged, terminal_width())
    };
    let csv = forms.csv.as_ref().map(|file| write(file, &|to| of_boots::csv::write(merged, to)));
    let html = forms.html.as_ref().map(|file| write_page(file, &results::html::boots::report(merged)));
    let published = [Some(print(&text, forms.json)), csv, html].into_iter().flatten();
    first_failure([check_answers(merged)].into_iter().chain(published).filter_map(Result::err))
}

/// Fails if the answer of a boot is wrong, or the command took too long in a boot.
fn check_answers(merged: &Merged) -> Result<(), Failure> {
    let has = |which: fn(&Outcome) -> bool| merged.arms.iter().any(|arm| which(&arm.outcome));
    let failed = |what: &str| Err(Failure::Command(format!("{what}; see the table")));
    if has(|outcome| matches!(outcome, Outcome::WrongAnswer { .. })) {
        failed("the command's answer differs between boots")
    } else if has(|outcome| matches!(outcome, Outcome::TooSlow { .. })) {
        failed("in a boot the command took longer than --trial-time")
    } else {
        Ok(())
    }
}
