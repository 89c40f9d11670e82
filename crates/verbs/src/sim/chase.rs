//! `pagelab sim chase`: shows TLB reach as knees in the latency curve, both measured on this processor and modelled.

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use clap::Args;
use model::chase::{LoadCost, load_cost};
use model::machine::Machine;
use model::policy::ModelPolicy;
use policy::size::format_bytes;
use results::grid::plain;
use results::simulation::{Knees, Line};
use serde_json::{Value, json};
use tracer::child::die_with_parent;

use super::arguments::{WordError, parse_size_within};
use super::machines;
use crate::failure::{Failure, error_chain};
use crate::output::{can_be_written, print, terminal_width, write_page};

/// The compared policies: base pages and PMD leaves.
const POLICIES: [&str; 2] = ["base", "thp"];
/// log2 of the smallest buffer in bytes; each further buffer is twice as large.
const MIN_SHIFT: u32 = 16;
/// Loads per run: few enough that a run fits between two interrupts.
const LOADS: u64 = 200_000;
/// The number of runs. The fastest counts, because disturbances only add time.
const REPEATS: u32 = 5;

/// Arguments of `pagelab sim chase`.
#[derive(Debug, Args)]
pub struct Chase {
    /// The machine that is modelled: one of `pagelab list machines`, `host` for this one with its nested walks, or a FILE.toml.
    /// Without it: the one that describes this processor
    #[arg(short, long, value_name = "MACHINE")]
    machine: Option<String>,
    /// The largest buffer; the smallest has 64K, and each next one twice as much
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_largest)]
    largest: u64,
    /// Chooses the order of the chase
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print one JSON document instead of the table
    #[arg(long)]
    json: bool,
    /// Write a report: one HTML file without script, with both curves
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn parse_largest(text: &str) -> Result<u64, WordError> {
    parse_size_within(text, 1 << MIN_SHIFT, model::chase::MAX_BYTES)
}

/// Why a chase could not be measured.
#[derive(Debug, thiserror::Error)]
enum MeasureError {
    #[error("{0}")]
    Start(#[from] std::io::Error),
    /// The workload failed; its standard error gives the reason.
    #[error("{}", if stderr.is_empty() { status.to_string() } else { stderr.clone() })]
    Failed { status: ExitStatus, stderr: String },
    #[error("the workload's report: {0}")]
    Report(#[from] serde_json::Error),
    /// The workload's document lacks the figure.
    #[error("the workload reports no ns_per_access")]
    Figure,
}

/// The latencies at one buffer size.
struct Point {
    bytes: u64,
    measured_ns: [Option<f64>; 2],
    modelled: [Option<LoadCost>; 2],
}

/// Runs `pagelab sim chase`. A failed measurement only adds a note.
pub fn run(arguments: &Chase) -> Result<(), Failure> {
    can_be_written(&arguments.html)?;
    let cpu = machines::host_cpu()?;
    let machine = machine(arguments.machine.as_deref(), &cpu)?;
    let mut notes = host_notes(&machine, &cpu)?;
    let mut unmeasured = [None, None];
    let sizes = (MIN_SHIFT..64).map(|shift| 1 << shift).take_while(|bytes| *bytes <= arguments.largest);
    let points = sizes.map(|bytes| point(&machine, bytes, arguments.seed, &mut unmeasured));
    let points: Vec<Point> = points.collect::<Result<_, _>>()?;
    notes.extend(unmeasured.into_iter().flatten());
    let text = if arguments.json {
        format!("{:#}", json_document(&machine, &cpu, &points, &notes, arguments.seed))
    } else {
        text(&machine, &points, &notes)
    };
    print(&text, arguments.json)?;
    match &arguments.html {
        Some(file) => {
            write_page(file, &results::html::simulation::knees(&page(&machine, cpu, &points, notes, arguments.seed)))
        }
        None => Ok(()),
    }
}

/// Notes on differences between this host and the machine.
fn host_notes(machine: &Machine, cpu: &str) -> Result<Vec<String>, Failure> {
    let other = (!machine.is_cpu(cpu)).then(|| format!("{} does not describe this processor ({cpu})", machine.name));
    let host = host::Host::open("/").and_then(|host| host.machine());
    let nested = host.map_err(Failure::input)?.hypervisor.map(|hypervisor| {
        format!(
            "measured under {hypervisor}: walks are nested there, and an entry covers no more than either stage maps"
        )
    });
    Ok(other.into_iter().chain(nested).collect())
}

fn machine(name: Option<&str>, cpu: &str) -> Result<Machine, Failure> {
    let none = || {
        Failure::Input(format!(
            "no model machine describes this processor ({cpu:?}): name one with -m (`pagelab list machines`)"
        ))
    };
    name.map_or_else(|| machines::of_cpu(cpu).ok_or_else(none), machines::named)
}

fn point(machine: &Machine, bytes: u64, seed: u64, unmeasured: &mut [Option<String>; 2]) -> Result<Point, Failure> {
    let mut point = Point { bytes, measured_ns: [None; 2], modelled: [None; 2] };
    for (at, policy) in POLICIES.into_iter().enumerate() {
        let parsed: ModelPolicy = policy.parse().map_err(Failure::input)?;
        point.modelled[at] = Some(load_cost(machine, &parsed, bytes, seed).map_err(Failure::input)?);
        // If a policy has failed at one size, it would also fail at others.
        if unmeasured[at].is_none() {
            match measure(policy, bytes, seed) {
                Ok(ns) => point.measured_ns[at] = Some(ns),
                Err(why) => unmeasured[at] = Some(format!("not measured under {policy}: {}", error_chain(&why))),
            }
        }
    }
    Ok(point)
}

/// Nanoseconds per load in the fastest run.
fn measure(policy: &str, bytes: u64, seed: u64) -> Result<f64, MeasureError> {
    let mut least = f64::INFINITY;
    for _ in 0..REPEATS {
        let program = std::env::current_exe()?;
        let (bytes, loads, seed) = (bytes.to_string(), LOADS.to_string(), seed.to_string());
        let chase = ["workload", "chase", "--json", "--bytes", &bytes, "--steps", &loads, "--seed", &seed];
        let mut command = Command::new(&program);
        command.args(["exec", "-p", policy, "--"]).arg(&program).args(chase).stdin(Stdio::null());
        let output = die_with_parent(&mut command).output()?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(MeasureError::Failed { status: output.status, stderr });
        }
        let report: Value = serde_json::from_slice(&output.stdout)?;
        least = least.min(report["figures"]["ns_per_access"].as_f64().ok_or(MeasureError::Figure)?);
    }
    Ok(least)
}

fn text(machine: &Machine, points: &[Point], notes: &[String]) -> String {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
    let rows = points.iter().map(|point| {
        let [base, thp] = point.measured_ns;
        let [model_base, model_thp] = point.modelled;
        let of = |load_cost: Option<LoadCost>, what: fn(&LoadCost) -> f64| number(load_cost.as_ref().map(what));
        [
            format_bytes(point.bytes),
            number(base),
            number(thp),
            number(base.zip(thp).map(|(base, thp)| base - thp)),
            of(model_base, |load_cost| load_cost.cycles),
            of(model_thp, |load_cost| load_cost.cycles),
            of(model_base, |load_cost| load_cost.first_level_misses),
            of(model_base, |load_cost| load_cost.walks),
        ]
    });
    let header =
        ["bytes", "base ns", "thp ns", "difference", "base cycles", "thp cycles", "base L1 misses", "base walks"];
    let mut lines = vec![
        format!("{} ({}): a load of a chase", machine.name, machine.processor),
        plain(header, rows, terminal_width()),
        "nanoseconds are measured here; cycles lost, misses and walks per load are modelled".to_owned(),
    ];
    lines.extend(notes.iter().map(|note| results::fold(note, terminal_width(), 2)));
    lines.join("\n")
}

fn json_document(machine: &Machine, cpu: &str, points: &[Point], notes: &[String], seed: u64) -> Value {
    let point = |point: &Point| {
        let [base, thp] = point.measured_ns;
        let [model_base, model_thp] = point.modelled;
        let ns = |ns: Option<f64>| ns.map(|ns| json!({ "ns_per_load": ns, "provenance": "measured" }));
        let load_cost = |load_cost: Option<LoadCost>| {
            load_cost.map(|load_cost| {
                let mut load_cost = json!(load_cost);
                load_cost["provenance"] = json!("modelled");
                load_cost
            })
        };
        json!({
            "bytes": point.bytes,
            "measured": { "base": ns(base), "thp": ns(thp) },
            "modelled": { "base": load_cost(model_base), "thp": load_cost(model_thp) },
        })
    };
    json!({
        "schema": "pagelab.sim-chase/1",
        "machine": machines::of(machine),
        "host_cpu": cpu,
        "host_model": machines::of_cpu(cpu).map(|host| host.name),
        "seed": seed,
        "notes": notes,
        "points": points.iter().map(point).collect::<Vec<_>>(),
    })
}

fn page(machine: &Machine, cpu: String, points: &[Point], notes: Vec<String>, seed: u64) -> Knees {
    let line = |at: usize, value: &dyn Fn(&Point) -> Option<f64>| Line {
        name: POLICIES[at].to_owned(),
        points: points.iter().filter_map(|point| Some((point.bytes, value(point)?))).collect(),
    };
    let measured = (0..2).map(|at| line(at, &|point| point.measured_ns[at]));
    let modelled = (0..2).map(|at| line(at, &|point| point.modelled[at].map(|load_cost| load_cost.cycles)));
    Knees {
        title: format!("The reach of TLBs: a chase on this processor and on the model {}", machine.name),
        invocation: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        facts: vec![
            ("processor here".to_owned(), cpu),
            ("model".to_owned(), format!("{} ({})", machine.name, machine.processor)),
            ("loads a run".to_owned(), LOADS.to_string()),
            ("runs, of which the fastest counts".to_owned(), REPEATS.to_string()),
            ("seed".to_owned(), seed.to_string()),
        ],
        notes,
        measured_ns: measured.filter(|line| !line.points.is_empty()).collect(),
        modelled_cycles: modelled.collect(),
        machines: vec![machines::shown(machine)],
    }
}
