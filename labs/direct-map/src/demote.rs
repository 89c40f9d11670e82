//! `pagelab direct-map demote`: splits the leaves of this host's direct map until the next reboot.

use std::io::IsTerminal;
use std::time::Duration;

use crate::demotion::{self, Demotion, Goal, Progress, Stopped};
use clap::Args;
use host::Host;
use host::direct_map::Remainder;
use indicatif::{ProgressBar, ProgressStyle};
use platform::wait_for_lease;
use policy::size::{PageSize, SizeError, format_bytes};
use results::grid::plain;
use serde_json::{Value, json};
use tracer::signals::{self, Forward};

use verbs::lab::report_lease_holder;
use verbs::lab::tick;
use verbs::lab::{Failure, report};
use verbs::lab::{change_documents, leaf_documents, leaf_rows, marker_document};
use verbs::lab::{parse_duration, parse_size};
use verbs::lab::{print, terminal_width};

/// The share of the direct map in base pages at which demoting to base pages counts as success. It is below 1 because a
/// leaf without a free page cannot be split.
const BASE_RATIO: f64 = 0.90;
/// The share at which demoting to a larger leaf size counts as success: fewer leaves have to be split, and one free page
/// in each is enough.
const LARGE_RATIO: f64 = 0.95;

/// Arguments of `pagelab direct-map demote`.
#[derive(Debug, Args)]
pub struct DemoteArguments {
    /// The leaf size to split to: 2m (from 1G) or 4k
    #[arg(long, value_name = "SIZE", value_parser = parse_leaf)]
    to: PageSize,
    /// Confirm: the split lasts until reboot, and affects everything that runs on this host
    #[arg(long)]
    yes_demote_this_host: bool,
    /// Split at most SIZE bytes of larger leaves (rounded up to a whole leaf), as a test
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    limit: Option<u64>,
    /// How long to wait for another pagelab that measures or has changed system settings
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    wait: f64,
    /// Print one JSON document instead of the tables
    #[arg(long)]
    json: bool,
}

fn parse_leaf(text: &str) -> Result<PageSize, SizeError> {
    text.parse()
}

/// Runs `pagelab direct-map demote`.
pub fn run(arguments: &DemoteArguments) -> Result<(), Failure> {
    if !arguments.yes_demote_this_host {
        return Err(Failure::Input(refusal(arguments.to)));
    }
    let host = Host::open("/").map_err(Failure::input)?;
    signals::catch(Forward::Kill).map_err(Failure::input)?;
    let ratio = if arguments.to == host.page_sizes().base { BASE_RATIO } else { LARGE_RATIO };
    let goal = Goal { leaf: arguments.to, ratio, limit_bytes: arguments.limit };
    let bar = bar(ratio);
    let patience = Duration::from_secs_f64(arguments.wait);
    let lease = || wait_for_lease(patience, report_lease_holder);
    let done = demotion::demote(&host, goal, lease, &mut |progress| show(&bar, goal, progress));
    bar.finish_and_clear();
    let demotion = done.map_err(Failure::input)?;
    demotion.warnings.iter().for_each(|warning| report(format_args!("pagelab: {}", results::printable(warning))));
    let text = if arguments.json { format!("{:#}", document(goal, &demotion)) } else { text(goal, &demotion) };
    print(&text, arguments.json)?;
    exit(&demotion.stopped)
}

fn refusal(to: PageSize) -> String {
    format!(
        "nothing was demoted: splitting the kernel's direct map to {to} affects everything that runs on this host, lasts \
         until it is rebooted, slows kernel work down, and leaves 2M pages scarce (each split frame loses a page to its \
         table); nearly all free memory is held meanwhile. To do it, give --yes-demote-this-host; pagelab direct-map status \
         shows the current leaves"
    )
}

/// A progress bar in thousandths of the goal; hidden if standard error is not a terminal.
fn bar(ratio: f64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new((ratio * 1000.0) as u64);
    let style = ProgressStyle::with_template("{elapsed:>5} {bar:30} {wide_msg}");
    bar.set_style(style.expect("the template is well formed"));
    tick(&bar, Duration::from_millis(250));
    bar
}

fn show(bar: &ProgressBar, goal: Goal, progress: &Progress) {
    let ratio = progress.leaves.ratio(goal.leaf);
    bar.set_position((ratio * 1000.0) as u64);
    bar.set_message(format!(
        "{:.1} % in {} leaves of {:.0} %; {} secret, {} held, round {}",
        ratio * 100.0,
        goal.leaf,
        goal.ratio * 100.0,
        format_bytes(progress.secret_bytes),
        format_bytes(progress.held_bytes),
        progress.round
    ));
}

fn exit(stopped: &Stopped) -> Result<(), Failure> {
    match stopped {
        Stopped::Goal | Stopped::Limit => Ok(()),
        Stopped::Interrupted { signal } => {
            report(format_args!("pagelab: {}", stopped.describe()));
            Err(Failure::Stopped(*signal, "the resulting state of the direct map is printed above"))
        }
        Stopped::NoneLarger | Stopped::InUse { .. } | Stopped::NoneFound | Stopped::Refused { .. } => {
            Err(Failure::Command(format!("the goal was not reached: {}", stopped.describe())))
        }
    }
}

fn text(goal: Goal, demotion: &Demotion) -> String {
    format!(
        "{}: {}\n{}{} of memory was secret and {} held at the peak, none is now; {} round{} in {:.1} s\n{}",
        reached(goal, demotion),
        demotion.stopped.describe(),
        remainder(demotion),
        format_bytes(demotion.secret_bytes),
        format_bytes(demotion.held_bytes),
        demotion.rounds,
        if demotion.rounds == 1 { "" } else { "s" },
        demotion.elapsed_s,
        match demotion.marker {
            Some(_) => "this lasts until reboot, and every later result of this boot records it",
            None => "no page was taken, so nothing was split or marked",
        }
    )
}

/// A line about the memory that was not demoted; empty if all was.
fn remainder(demotion: &Demotion) -> String {
    let some = demotion.remainder.as_ref().filter(|remainder| remainder.bytes() > 0);
    some.map(|remainder| remainder.describe() + "\n").unwrap_or_default()
}

/// The leaves before and after the demotion, and the share in leaves of the wanted size.
fn reached(goal: Goal, demotion: &Demotion) -> String {
    let Some(after) = &demotion.after else {
        return "the leaves after the demotion are unknown; a warning says why".into();
    };
    let before: Vec<[String; 5]> = leaf_rows(&demotion.before, &[]);
    let rows = leaf_rows(after, demotion.changes.as_deref().unwrap_or_default());
    let rows = rows.into_iter().map(|[leaf, mapped, share, splits, _]| {
        let was = before.iter().find(|row| row[0] == leaf).map(|row| row[1].clone());
        [leaf, was.unwrap_or_else(|| "none".into()), mapped, share, splits]
    });
    let table = plain(["leaf", "before", "now", "share", "splits meanwhile"], rows, terminal_width());
    let (share, wanted) = (after.share(goal.leaf), goal.ratio * 100.0);
    format!("{table}\n\n{share} of the direct map is in leaves of {} (goal: {wanted:.0} %)", goal.leaf)
}

fn document(goal: Goal, demotion: &Demotion) -> Value {
    let stopped = match &demotion.stopped {
        Stopped::Goal => "goal",
        Stopped::Limit => "limit",
        Stopped::NoneLarger => "none_larger",
        Stopped::InUse { .. } => "in_use",
        Stopped::NoneFound => "none_found",
        Stopped::Refused { .. } => "refused",
        Stopped::Interrupted { .. } => "interrupted",
    };
    json!({
        "schema": "pagelab.direct-map-demote/1",
        "leaf_bytes": goal.leaf.bytes(),
        "goal_ratio": goal.ratio,
        "limit_bytes": goal.limit_bytes,
        "reached_ratio": demotion.after.as_ref().map(|after| after.ratio(goal.leaf)),
        "before": leaf_documents(&demotion.before),
        "after": demotion.after.as_ref().map(leaf_documents),
        "changes": demotion.changes.as_deref().map(change_documents),
        "secret_peak_bytes": demotion.secret_bytes,
        "held_peak_bytes": demotion.held_bytes,
        "rounds": demotion.rounds,
        "elapsed_s": demotion.elapsed_s,
        "stopped": stopped,
        "why": demotion.stopped.describe(),
        "remainder": demotion.remainder.as_ref().map(remainder_document),
        "demoted": demotion.marker.as_ref().map(marker_document),
        "warnings": demotion.warnings,
    })
}

fn remainder_document(remainder: &Remainder) -> Value {
    json!({
        "boot_bytes": remainder.boot_bytes,
        "kernel_bytes": remainder.kernel_bytes,
        "program_bytes": remainder.program_bytes,
        "free_bytes": remainder.free_bytes,
    })
}
