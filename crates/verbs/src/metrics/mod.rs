//! `pagelab metrics`: exports page sizes by control group, and the state of the system, for a collector.

mod gather;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use clap::Args;
use results::metrics::text::Period;
use results::metrics::{Look, System, json, openmetrics, text};
use tracer::signals::{self, Forward};

use crate::failure::Failure;
use crate::looks;
use crate::output::{Reader, can_be_written, print_update, terminal_width, write_update};
use crate::words::parse_duration;
use gather::Gatherer;

/// Arguments of `pagelab metrics`.
#[derive(Debug, Args)]
pub struct Metrics {
    /// Write the look to this file as OpenMetrics text for a collector; with --every, each look replaces the last
    #[arg(long, value_name = "FILE")]
    openmetrics: Option<PathBuf>,
    /// Look at this interval, until a signal
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    every: Option<f64>,
    /// Print one JSON document instead of tables
    #[arg(long, conflicts_with = "every")]
    json: bool,
    /// With --every: print each look as one line of JSON
    #[arg(long, requires = "every")]
    json_lines: bool,
    /// Say which sizes map the memory, but not why not larger ones, and not how much is shared. This is faster, because smaps
    /// is not read
    #[arg(long)]
    sizes: bool,
}

/// Runs `pagelab metrics`.
pub fn run(arguments: &Metrics) -> Result<(), Failure> {
    can_be_written(&arguments.openmetrics)?;
    let gatherer = Gatherer::open(arguments.sizes)?;
    let Some(every_s) = arguments.every else {
        return show(arguments, &gatherer.look()?, Period::Boot).map(drop);
    };
    // The handler of `catch` sets an alarm, because a write to a terminal that takes no output (Ctrl-S) blocks.
    signals::catch(Forward::Kill).map_err(Failure::input)?;
    let mut before: Option<(System, Duration)> = None;
    let ended = looks::at_intervals(looks::interval(every_s), &AtomicBool::new(false), |elapsed| {
        let look = gatherer.look()?;
        let period = before
            .as_ref()
            .map_or(Period::Boot, |(before, at)| Period::Look(before, elapsed.saturating_sub(*at).as_secs_f64()));
        let reader = show(arguments, &look, period)?;
        before = Some((look.system, elapsed));
        Ok(if reader == Reader::Present { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    });
    if let Some(signal) = signals::arrived() {
        return Err(Failure::Stopped(signal, "the last look stays in its file"));
    }
    ended.map(drop)
}

/// Writes a sample to all outputs. Returns whether all of them still have a reader.
fn show(arguments: &Metrics, look: &Look, period: Period) -> Result<Reader, Failure> {
    if let Some(file) = &arguments.openmetrics {
        let text = openmetrics::text(look);
        if write_update(file, &|to| to.write_all(text.as_bytes()))? == Reader::Gone {
            return Ok(Reader::Gone);
        }
    }
    if arguments.json || arguments.json_lines {
        // If the clock is before 1970, the time is 0.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let document = json::look(look, now.as_secs_f64());
        let text = if arguments.json { format!("{document:#}") } else { document.to_string() };
        return print_update(&text, true);
    }
    let text = text::look(look, period, terminal_width());
    let after = if arguments.every.is_some() { "\n" } else { "" };
    print_update(&format!("{text}{after}"), false)
}
