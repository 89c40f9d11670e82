//! The machine of the comparison, and the command lines that made it, for its page.

use std::collections::{BTreeMap, BTreeSet};

use policy::machine::State;
use policy::size::{PageSize, format_bytes};
use study::comparison::Comparison;

use super::parts::{ended, list};
use super::tables::wide;
use crate::figure;
use crate::text::{command_line, date_time, escape};

/// The machine, its memory and load over the run, and every setting.
pub(super) fn machine(comparison: &Comparison) -> String {
    let machine = &comparison.machine;
    let sizes = |sizes: &[PageSize]| match sizes {
        [] => "none".to_string(),
        sizes => sizes.iter().map(PageSize::to_string).collect::<Vec<_>>().join(", "),
    };
    let mut facts = vec![
        ("machine", machine.name.clone()),
        ("processor", format!("{}, {} on line, {}", machine.cpu_model, machine.cpus, machine.arch)),
        ("memory", format_bytes(machine.memory_bytes)),
        ("hypervisor", machine.hypervisor.clone().unwrap_or_else(|| "none detected".to_string())),
        ("kernel", machine.kernel.clone()),
        ("kernel command line", machine.kernel_command_line.clone()),
        ("boot", machine.boot_id.clone()),
        ("base page", machine.page_sizes.base.to_string()),
        ("THP (PMD leaf)", machine.page_sizes.pmd.map_or("none".to_string(), |size| size.to_string())),
        ("mTHP", sizes(&machine.page_sizes.mthp)),
        ("hugetlb", sizes(&machine.page_sizes.hugetlb)),
    ];
    let states: Vec<&State> =
        comparison.trials.iter().flat_map(|record| [&record.state_before, &record.state_after]).collect();
    if let (Some(first), Some(last)) = (states.first(), states.last()) {
        facts.extend(moments(&states, first, last));
    }
    list(&facts) + &settings(&states)
}

/// Values that change by themselves during the run, as a range or as first and last value.
fn moments(states: &[&State], first: &State, last: &State) -> Vec<(&'static str, String)> {
    let ends = |of: fn(&State) -> f64| {
        let values = states.iter().map(|state| of(state));
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (least_load, most_load) = ends(|state| state.load_1min);
    let (least, most) = ends(|state| state.available_bytes as f64);
    let free = |state: &State| state.free_blocks_by_order.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    let mapped = |state: &State| {
        let leaf = |(size, bytes): (&String, &u64)| format!("{size}: {}", format_bytes(*bytes));
        state.direct_map_bytes.iter().map(leaf).collect::<Vec<_>>().join(", ")
    };
    vec![
        ("load over a minute", format!("{least_load:.2} to {most_load:.2}")),
        ("available memory", format!("{} to {}", format_bytes(least as u64), format_bytes(most as u64))),
        ("free blocks by order, first", free(first)),
        ("free blocks by order, last", free(last)),
        ("direct map, first", mapped(first)),
        ("direct map, last", mapped(last)),
    ]
}

/// Every setting before the first trial, and any other value that it had later.
fn settings(states: &[&State]) -> String {
    let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let paths: BTreeSet<&str> = states.iter().flat_map(|state| state.settings.keys()).map(String::as_str).collect();
    for path in paths {
        for state in states {
            let value = state.settings.get(path).map_or("absent", String::as_str);
            let seen = values.entry(path).or_default();
            if !seen.contains(&value) {
                seen.push(value);
            }
        }
    }
    if values.is_empty() {
        return String::new();
    }
    let row = |(path, seen): (&&str, &Vec<&str>)| {
        let later = seen[1..].iter().map(|value| escape(value)).collect::<Vec<_>>().join(", ");
        format!(
            "<tr><th scope=\"row\"><code>{}</code></th><td>{}</td><td>{later}</td></tr>\n",
            escape(path),
            escape(seen[0])
        )
    };
    let head =
        "<th scope=\"col\">file</th><th scope=\"col\">before the first trial</th><th scope=\"col\">later also</th>";
    let body: String = values.iter().map(row).collect();
    let changed = values.values().filter(|seen| seen.len() > 1).count();
    let changed = if changed == 0 { "none changed".to_string() } else { format!("{changed} changed during the run") };
    format!(
        "<details><summary>{} settings, {changed}</summary>\n{}</details>\n",
        values.len(),
        wide("Settings that can influence page sizes and their cost", head, &body)
    )
}

/// The command lines, and the design of the comparison.
pub(super) fn invocation(comparison: &Comparison) -> String {
    let (invocation, design) = (&comparison.invocation, &comparison.design);
    let percent = |ratio: f64| format!("{} %", figure::plain(ratio * 100.0));
    let mut facts =
        vec![("pagelab", command_line(&invocation.pagelab)), ("measured command", command_line(&invocation.command))];
    facts.extend(invocation.client.as_ref().map(|client| ("client", command_line(client))));
    facts.extend(invocation.prepare.as_ref().map(|prepare| ("before each trial", command_line(prepare))));
    facts.extend([
        ("version", invocation.version.clone()),
        ("started", date_time(comparison.started_unix_s)),
        ("ended", ended(&comparison.ended)),
        ("metric that decides", crate::rows::primary(comparison).to_owned()),
        ("blocks", format!("{} to {}, and one that is discarded", design.min_blocks, design.max_blocks)),
        (
            "time limit of a trial",
            design.trial_time_s.map_or("none".to_string(), |max| format!("{} s", figure::plain(max))),
        ),
        ("time limit", design.max_time_s.map_or("none".to_string(), |max| format!("{} s", figure::plain(max)))),
        ("precision asked for", format!("± {}", percent(design.precision_ratio))),
        ("band of changes that do not matter", format!("± {}", percent(design.band_ratio))),
        ("confidence", percent(design.confidence)),
        ("seed", design.seed.to_string()),
        ("memory that is given back before the end", figure::proof(design)),
        ("khugepaged", figure::khugepaged(design).to_owned()),
        ("free memory", crate::fragmented::request(design.fragmented)),
        ("session of every run", figure::session(design)),
    ]);
    let has_client = comparison.invocation.client.is_some();
    facts.extend(design.contention.as_ref().map(|seen| ("processors", figure::contention(seen, has_client))));
    list(&facts)
}
