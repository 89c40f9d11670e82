//! Further tables of a report: published figures in their origin's form, memory against speed, coverage, drift, hosts.

use policy::size::format_bytes;
use study::metric::Provenance;
use study_files::matrix::{Conclusion, Correlation, Matrix, Reproduction, Row, Total, correlations};

use super::cells::{Sheet, change, of_found, place};
use super::{HostOf, MachineFigures, rows_of};
use crate::figure;

/// Published figures as their origin shows them: a table per source and machine, with rows and columns in the order of
/// the study's file. Each cell has the published figure and the one found here.
pub fn of_origin<'a>(sets: impl Iterator<Item = &'a Reproduction>) -> Vec<Sheet> {
    let sets: Vec<&Reproduction> = sets.collect();
    let mut groups: Vec<(&str, &str, Provenance)> = Vec::new();
    for set in &sets {
        let group = (set.published.source.as_str(), set.machine.as_str(), set.provenance);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let own = |group: (&str, &str, Provenance)| {
        let is_own =
            move |set: &&Reproduction| (set.published.source.as_str(), set.machine.as_str(), set.provenance) == group;
        sets.iter().copied().filter(is_own).collect::<Vec<_>>()
    };
    groups.into_iter().map(|group| pivoted(&own(group))).collect()
}

/// Workloads as rows, policies as columns.
fn pivoted(sets: &[&Reproduction]) -> Sheet {
    let policy = |set: &Reproduction| set.published.policy.clone().unwrap_or_default();
    let row = |set: &Reproduction| {
        let of_suite = set.published.suite.as_ref().map(|suite| format!("all of {}", suite.name));
        let workload = set.published.workload.clone().or(of_suite).unwrap_or_else(|| "all workloads".to_owned());
        let metric = set.published.metric.as_ref().map(|metric| format!(", {}", figure::title(metric)));
        format!("{workload}{}", metric.unwrap_or_default())
    };
    let policies = in_order(sets.iter().map(|set| policy(set)));
    let rows = in_order(sets.iter().map(|set| row(set)));
    let line = |name: &String| {
        let mut line = vec![name.clone()];
        for column in &policies {
            let set = sets.iter().find(|set| row(set) == *name && policy(set) == *column);
            line.push(set.map_or(String::new(), |set| set.published.change.clone()));
            line.push(set.map_or(String::new(), |set| of_found(set)));
        }
        line
    };
    let (source, machine, from) = match sets.first() {
        Some(set) => (set.published.source.as_str(), set.machine.as_str(), set.provenance),
        None => ("", "", Provenance::Measured),
    };
    let header = policies.iter().flat_map(|policy| [format!("{policy}, published"), format!("{policy}, here")]);
    Sheet {
        caption: format!("In the origin's form, next to {}. Source: {source}", place((machine, from))),
        header: std::iter::once("workload".to_owned()).chain(header).collect(),
        rows: rows.iter().map(line).collect(),
    }
}

fn in_order(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    names.for_each(|name| {
        if !all.contains(&name) {
            all.push(name);
        }
    });
    all
}

/// Table of what each policy costs in memory, and how much faster or slower it is.
pub fn of_trades(totals: &[&Total], place: &str, columns: &str) -> Sheet {
    let unbeaten = format!("no {columns} beats it in both");
    let header = [columns, "cost", "memory", "workloads", &unbeaten];
    let line = |total: &&Total| {
        let trade = total.trade.as_ref()?;
        let is_front = if trade.is_front { "yes" } else { "no" };
        let [cost, memory] = [trade.cost, trade.memory].map(|mean| change(&mean.effect()));
        Some(vec![total.policy.clone(), cost, memory, trade.cost.of.to_string(), is_front.to_owned()])
    };
    let rows: Vec<Vec<String>> = totals.iter().filter_map(line).collect();
    Sheet {
        caption: format!(
            "{place}: memory against speed. Geometric means over workloads for which both are known; memory is the peak \
             plus page tables, in a model also memory that is held but not mapped"
        ),
        header: header.map(str::to_owned).to_vec(),
        // A table with the baseline alone says nothing.
        rows: if rows.len() > 1 { rows } else { Vec::new() },
    }
}

/// Whether the programs that lose the most page walks also gain the most time.
pub fn of_correlations(matrix: &Matrix) -> Sheet {
    let header = ["policy", "time of", "page walks of", "workloads", "rank correlation"];
    let line = |one: Correlation| {
        let range = one.interval.map(|(low, high)| format!(" ({low:+.2} to {high:+.2})")).unwrap_or_default();
        let walks = one.machine.unwrap_or_else(|| "the same trials".to_owned());
        vec![one.policy, one.host, walks, one.of.to_string(), format!("{:+.2}{range}", one.rank)]
    };
    Sheet {
        caption: format!(
            "Saved page walks against saved time, over workloads: Spearman's rank correlation with its {} interval. +1: the more \
             walks a program loses, the more time it gains",
            figure::confidence(0.95)
        ),
        header: header.map(str::to_owned).to_vec(),
        rows: correlations(matrix).into_iter().map(line).collect(),
    }
}

/// Remarks that are needed to read the rows.
pub fn of_limits(rows: &[Row]) -> Sheet {
    let lines = limits(rows);
    let line = |(machine, note, workloads): &(&str, &str, Vec<&str>)| {
        vec![(*machine).to_owned(), workloads.join(", "), (*note).to_owned()]
    };
    Sheet {
        caption: "What limits these figures".to_owned(),
        header: ["machine", "workload", "what limits them"].map(str::to_owned).to_vec(),
        rows: lines.iter().map(line).collect(),
    }
}

/// Distinct remarks on rows: the machine, the remark, and the workloads to which it applies.
pub(super) fn limits<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<(&'a str, &'a str, Vec<&'a str>)> {
    let mut lines: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for row in rows {
        for note in &row.notes {
            match lines.iter_mut().find(|(machine, known, _)| *machine == row.machine && *known == note) {
                Some((.., workloads)) => workloads.push(&row.workload),
                None => lines.push((&row.machine, note, vec![&row.workload])),
            }
        }
    }
    lines
}

/// The share of memory that was mapped as requested, for each policy.
pub fn of_coverage(matrix: &Matrix, machine_figures: MachineFigures<'_>) -> Sheet {
    let cells = |row: &Row| {
        let cell = |cell: &study_files::matrix::Cell| match (&cell.conclusion, cell.coverage_ratio) {
            (Conclusion::None { .. }, _) => "none".to_owned(),
            (_, Some(ratio)) => figure::share(ratio),
            (_, None) => "nothing asked".to_owned(),
        };
        std::iter::once(row.workload.clone()).chain(row.cells.iter().map(cell)).collect::<Vec<String>>()
    };
    let has_any = |row: &&Row| row.cells.iter().any(|cell| cell.coverage_ratio.is_some());
    Sheet {
        caption: format!(
            "{}: share of the memory concerned that is mapped as the policy asks, over all trials",
            place(machine_figures)
        ),
        header: std::iter::once("workload".to_owned()).chain(matrix.policies.iter().cloned()).collect(),
        rows: rows_of(matrix, machine_figures).filter(has_any).map(cells).collect(),
    }
}

/// The drift of the baseline from the first to the last block.
pub fn of_drift(matrix: &Matrix, machine_figures: MachineFigures<'_>) -> Sheet {
    let header = ["workload", "metric", "blocks", "drift", "chance alone", "result"];
    let line = |row: &Row| {
        let start = [row.workload.clone(), figure::title(&row.metric), row.blocks.to_string()];
        let cells = match row.drift {
            None => [String::new(), String::new(), "too few blocks".to_owned()],
            Some(drift) => [
                format!("{:+.1} %", (drift.ratio - 1.0) * 100.0),
                format!("{:.2}", drift.p_value),
                if drift.p_value < 0.01 { "it drifts" } else { "no trend is shown" }.to_owned(),
            ],
        };
        start.into_iter().chain(cells).collect()
    };
    let is_measured = |row: &&Row| row.blocks > 0 && row.provenance != Provenance::Modelled;
    Sheet {
        caption: format!(
            "{}: the baseline's last block against its first, by the slope over all blocks (Theil and Sen), and how often \
             chance alone would show such a trend (Mann and Kendall). Blocks keep drift out of the changes, but drift widens their intervals",
            place(machine_figures)
        ),
        header: header.map(str::to_owned).to_vec(),
        rows: rows_of(matrix, machine_figures).filter(is_measured).map(line).collect(),
    }
}

/// The hosts that measured something; their command lines are listed with each comparison.
pub fn of_hosts(hosts: &[HostOf]) -> Sheet {
    let header = ["host", "processors", "memory", "hypervisor", "kernel", "base page"];
    let line = |host: &HostOf| {
        let machine = &host.machine;
        vec![
            host.label.clone(),
            format!("{}, {} on line, {}", machine.cpu_model, machine.cpus, machine.arch),
            format_bytes(machine.memory_bytes),
            machine.hypervisor.clone().unwrap_or_else(|| "none detected".to_owned()),
            machine.kernel.clone(),
            machine.page_sizes.base.to_string(),
        ]
    };
    Sheet {
        caption: "Hosts that measured".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: hosts.iter().map(line).collect(),
    }
}
