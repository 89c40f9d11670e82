//! `pagelab sim sweep`: misses of LRU TLBs of every geometry, or of chosen ones.

mod chosen;
mod report;

use std::path::{Path, PathBuf};

use clap::Args;
use model::replay::Replayed;
use results::answer::RunTime;
use results::simulation::Document;
use serde_json::{Value, json};

use self::chosen::{Chosen, Range, parse_page, parse_sets, parse_ways};
use super::arguments::threads;
use super::document::trace_page;
use super::files::{bar, opened, report_damage};
use super::noted_machines::NotedMachines;
use super::simulated::Simulated;
use super::swept::{Swept, sweep_file};
use crate::failure::Failure;
use crate::output::{can_be_written, print, terminal_width, write_page};

/// Arguments of `pagelab sim sweep`.
#[derive(Debug, Args)]
pub struct Sweep {
    /// Traces, as `pagelab record` or `pagelab trace import` wrote them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Numbers of sets: powers of two from 1 to 2048, as LEAST..MOST or one number
    #[arg(long, value_name = "RANGE", default_value = "1..2048", value_parser = parse_sets)]
    sets: Range,
    /// Numbers of ways from 1 to 128, as LEAST..MOST or one number; more than 16 take longer
    #[arg(long, value_name = "RANGE", default_value = "1..15", value_parser = parse_ways)]
    ways: Range,
    /// Page sizes: powers of two from 4K to 1G, one or several by commas. Fetches and data share the TLB
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_page,
          default_values = ["4K", "16K", "64K", "2M", "32M"])]
    pages: Vec<u32>,
    /// How many threads share the page sizes; the result is the same for any number. Without it: one a processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Print one JSON document instead of the tables
    #[arg(long)]
    json: bool,
    /// Write a report: one HTML file without script, with heat maps
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs `pagelab sim sweep`.
pub fn run(arguments: &Sweep) -> Result<(), Failure> {
    can_be_written(&arguments.html)?;
    let chosen = Chosen::of(arguments.sets, arguments.ways, &arguments.pages);
    let threads = threads(arguments.threads);
    let all = arguments.files.iter().map(|file| Ok((file.as_path(), chosen_of(file, &chosen, threads)?)));
    let all = all.collect::<Result<Vec<_>, Failure>>()?;
    let text =
        if arguments.json { format!("{:#}", json(&all, &chosen)) } else { report::texts(&all, terminal_width()) };
    print(&text, arguments.json)?;
    match &arguments.html {
        Some(file) => write_page(file, &results::html::simulation::report(&page(all, &chosen))),
        None => Ok(()),
    }
}

/// Sweeps a trace for the chosen geometries.
fn chosen_of(file: &Path, chosen: &Chosen, threads: usize) -> Result<Swept, Failure> {
    let bar = bar(file, "every geometry");
    let swept = sweep_file(file, opened(file, &bar)?, &chosen.page_shifts, chosen.ways.most, threads);
    bar.finish_and_clear();
    let mut swept = swept?;
    report_damage(file, &swept.damage);
    swept.sweep.geometries.retain(|geometry| chosen.has(geometry));
    if swept.sweep.geometries.is_empty() { Err(Failure::about(file, chosen::NoneExact)) } else { Ok(swept) }
}

fn json(all: &[(&Path, Swept)], chosen: &Chosen) -> Value {
    let traces: Vec<Value> = all.iter().map(|(file, swept)| report::document(file, swept)).collect();
    json!({
        "schema": "pagelab.sim-sweep/1",
        "least_sets": chosen.sets.least,
        "most_sets": chosen.sets.most,
        "least_ways": chosen.ways.least,
        "most_ways": chosen.ways.most,
        "page_bytes": chosen.page_shifts.iter().map(|shift| 1u64 << shift).collect::<Vec<_>>(),
        "traces": traces,
    })
}

fn page(all: Vec<(&Path, Swept)>, chosen: &Chosen) -> Document {
    let files: Vec<String> = all.iter().map(|(file, _)| file.display().to_string()).collect();
    let trace = |(file, swept): (&Path, Swept)| {
        let header = swept.header.clone();
        let replayed = Replayed::default();
        let swept = Some(swept);
        let (cells, layouts) = (Vec::new(), None);
        let simulated = Simulated {
            file: file.display().to_string(),
            header,
            replayed,
            time: RunTime::default(),
            cells,
            swept,
            layouts,
            noted: NotedMachines::default(),
            host: Vec::new(),
        };
        trace_page(&simulated, &[])
    };
    Document {
        title: format!("TLB misses of {}: {chosen}", files.join(", ")),
        invocation: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: Vec::new(),
        traces: all.into_iter().map(trace).collect(),
        machines: Vec::new(),
    }
}
