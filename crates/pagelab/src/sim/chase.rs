//! `pagelab sim --chase`: the reach of TLBs as knees, measured on this processor beside the model of it.

use std::process::{Command, Stdio};

use model::chase::{Lost, lost};
use model::machine::Machine;
use model::policy::ModelPolicy;
use results::grid::plain;
use results::simulation::{Knees, Line};
use serde_json::{Value, json};
use study::size::format_bytes;

use super::{SimArguments, document, machines};
use crate::failure::Failure;
use crate::output::{print, terminal_width, write_page};

/// Policies: of base pages, and of leaves of PMD size.
const POLICIES: [&str; 2] = ["base", "thp"];
/// log2 of the smallest buffer; each next one has twice as much.
const SMALLEST_SHIFT: u32 = 16;
/// Loads of a run: few, so that a run fits between two interruptions.
const LOADS: u64 = 200_000;
/// Runs of which the fastest counts: all that can come on top of it is noise.
const REPEATS: u32 = 5;

/// A size of the buffer.
struct Point {
    bytes: u64,
    measured_ns: [Option<f64>; 2],
    modelled: [Option<Lost>; 2],
}

/// Runs `pagelab sim --chase`.
pub fn run(arguments: &SimArguments) -> Result<(), Failure> {
    let machine = chosen(&arguments.machines)?;
    let mut notes = Vec::new();
    let is_host = machine.is_cpu(&machines::host_cpu());
    if !is_host {
        notes.push(format!("{} does not describe this processor ({})", machine.name, machines::host_cpu()));
    }
    if let Ok(Some(hypervisor)) = host::Host::open("/").and_then(|host| host.machine()).map(|host| host.hypervisor) {
        notes.push(format!(
            "measured under {hypervisor}: walks are nested there, and an entry covers no more than either stage maps"
        ));
    }
    let mut unmeasured = [None, None];
    let sizes = (SMALLEST_SHIFT..64).map(|shift| 1 << shift).take_while(|bytes| *bytes <= arguments.chase_largest);
    let points = sizes.map(|bytes| point(&machine, bytes, arguments.seed, &mut unmeasured)).collect::<Vec<_>>();
    notes.extend(unmeasured.into_iter().flatten());
    let points: Vec<Point> = points.into_iter().collect::<Result<_, _>>()?;
    let text = match arguments.json {
        true => format!("{:#}", json_document(&machine, &points, &notes, arguments.seed)),
        false => text(&machine, &points, &notes),
    };
    print(&text, arguments.json)?;
    match &arguments.html {
        Some(file) => {
            write_page(file, &results::html::simulation::knees(&shown(&machine, &points, notes, arguments.seed)))
        }
        None => Ok(()),
    }
}

fn chosen(names: &[String]) -> Result<Machine, Failure> {
    let mut named = machines::chosen(names)?;
    match (named.pop(), named.is_empty()) {
        (Some(machine), true) => Ok(machine),
        (Some(_), false) => Err(Failure::Input("--chase takes one machine".to_owned())),
        (None, _) => machines::of_host().ok_or_else(|| {
            Failure::Input(format!(
                "no model machine describes this processor ({:?}): name one with -m (`pagelab list machines`)",
                machines::host_cpu()
            ))
        }),
    }
}

fn point(machine: &Machine, bytes: u64, seed: u64, unmeasured: &mut [Option<String>; 2]) -> Result<Point, Failure> {
    let mut point = Point { bytes, measured_ns: [None; 2], modelled: [None; 2] };
    for (at, policy) in POLICIES.into_iter().enumerate() {
        let parsed: ModelPolicy = policy.parse().map_err(Failure::input)?;
        point.modelled[at] = Some(lost(machine, &parsed, bytes, seed).map_err(Failure::input)?);
        // What could not be had once cannot be had for another size.
        if unmeasured[at].is_none() {
            match measured(policy, bytes, seed) {
                Ok(ns) => point.measured_ns[at] = Some(ns),
                Err(why) => unmeasured[at] = Some(format!("not measured under {policy}: {why}")),
            }
        }
    }
    Ok(point)
}

/// Nanoseconds a load of the fastest run; in words why there are none.
fn measured(policy: &str, bytes: u64, seed: u64) -> Result<f64, String> {
    let mut least = f64::INFINITY;
    for _ in 0..REPEATS {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let (bytes, loads, seed) = (bytes.to_string(), LOADS.to_string(), seed.to_string());
        let chase = ["workload", "chase", "--json", "--bytes", &bytes, "--steps", &loads, "--seed", &seed];
        let mut command = Command::new(&program);
        command.args(["exec", "-p", policy, "--"]).arg(&program).args(chase).stdin(Stdio::null());
        let output = command.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let report: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        let ns = report["figures"]["ns_per_access"].as_f64().ok_or("the workload reports no ns_per_access")?;
        least = least.min(ns);
    }
    Ok(least)
}

fn text(machine: &Machine, points: &[Point], notes: &[String]) -> String {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
    let rows = points.iter().map(|point| {
        let [base, thp] = point.measured_ns;
        let [model_base, model_thp] = point.modelled;
        let of = |lost: Option<Lost>, what: fn(&Lost) -> f64| number(lost.as_ref().map(what));
        [
            format_bytes(point.bytes),
            number(base),
            number(thp),
            number(base.zip(thp).map(|(base, thp)| base - thp)),
            of(model_base, |lost| lost.cycles),
            of(model_thp, |lost| lost.cycles),
            of(model_base, |lost| lost.first_level_misses),
            of(model_base, |lost| lost.walks),
        ]
    });
    let header =
        ["bytes", "base ns", "thp ns", "difference", "base cycles", "thp cycles", "base L1 misses", "base walks"];
    let mut lines = vec![
        format!("{} ({}): a load of a chase", machine.name, machine.processor),
        plain(header, rows, terminal_width()),
        "nanoseconds are measured here, cycles that a load loses, misses and walks are modelled".to_owned(),
    ];
    lines.extend(notes.iter().map(|note| results::fold(note, terminal_width(), 2)));
    lines.join("\n")
}

fn json_document(machine: &Machine, points: &[Point], notes: &[String], seed: u64) -> Value {
    let point = |point: &Point| {
        let [base, thp] = point.measured_ns;
        let [model_base, model_thp] = point.modelled;
        let ns = |ns: Option<f64>| ns.map(|ns| json!({ "ns_per_load": ns, "provenance": "measured" }));
        let lost = |lost: Option<Lost>| {
            lost.map(|lost| {
                let mut lost = json!(lost);
                lost["provenance"] = json!("modelled");
                lost
            })
        };
        json!({
            "bytes": point.bytes,
            "measured": { "base": ns(base), "thp": ns(thp) },
            "modelled": { "base": lost(model_base), "thp": lost(model_thp) },
        })
    };
    json!({
        "schema": "pagelab.sim-chase/1",
        "machine": machines::of(machine),
        "host_cpu": machines::host_cpu(),
        "host_model": machines::of_host().map(|host| host.name),
        "seed": seed,
        "notes": notes,
        "points": points.iter().map(point).collect::<Vec<_>>(),
    })
}

fn shown(machine: &Machine, points: &[Point], notes: Vec<String>, seed: u64) -> Knees {
    let line = |at: usize, value: &dyn Fn(&Point) -> Option<f64>| Line {
        name: POLICIES[at].to_owned(),
        points: points.iter().filter_map(|point| Some((point.bytes, value(point)?))).collect(),
    };
    let measured = (0..2).map(|at| line(at, &|point| point.measured_ns[at]));
    let modelled = (0..2).map(|at| line(at, &|point| point.modelled[at].map(|lost| lost.cycles)));
    Knees {
        title: format!("The reach of TLBs: a chase on this processor and on the model {}", machine.name),
        invocation: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        facts: vec![
            ("processor here".to_owned(), machines::host_cpu()),
            ("model".to_owned(), format!("{} ({})", machine.name, machine.processor)),
            ("loads a run".to_owned(), LOADS.to_string()),
            ("runs, of which the fastest counts".to_owned(), REPEATS.to_string()),
            ("seed".to_owned(), seed.to_string()),
        ],
        notes,
        measured_ns: measured.filter(|line| !line.points.is_empty()).collect(),
        modelled_cycles: modelled.collect(),
        machines: vec![document::of_machine(machine)],
    }
}
