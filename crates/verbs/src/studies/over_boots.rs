//! Rows of a study that compare boots. A study compares boots if every policy is a property of a boot, or if the study
//! names boots.

use std::collections::BTreeMap;

use policy::machine::{Execution, Machine};
use study::comparison::{Comparison, Invocation};
use study::metric::Unit;
use study::stats::boots::{self, MeasuredBoots, MergeError};
use study_files::definition::{Definition, Published, Suite};
use study_files::matrix::{Matrix, Row, RowSource, boots as axis};

use super::lowered::is_over_boots;
use super::plan::HostRow;
use policy::size::format_bytes;

/// The label of a host, and its comparisons.
type OfHost<'a> = (String, Vec<&'a Comparison>);

/// Rows for policies that are properties of boots. Each workload has a row per host, and, if several hosts have the same
/// execution, a row for all of them. Executions are bare metal, virtual machines (by the leaf size that backs them) and emulated
/// machines; they are never pooled.
pub fn of_policies(definition: &Definition, rows: &[HostRow<'_>]) -> Vec<Row> {
    let of_row = |row: &HostRow<'_>| {
        let mut all: Vec<(Option<Execution>, Row)> = by_execution(row)
            .into_iter()
            .map(|(execution, group)| (Some(execution), joined(definition, row, &of_execution(execution), &group)))
            .collect();
        if all.is_empty() {
            all.push((Some(Execution::Metal), joined(definition, row, BOOTS, &[])));
        }
        let hosts = by_host(row, Memory::Separate);
        if hosts.len() > 1 {
            all.extend(hosts.iter().map(|(host, group)| (None, joined(definition, row, host, group))));
        }
        all
    };
    let mut all: Vec<(Option<Execution>, Row)> = rows.iter().flat_map(of_row).collect();
    // Rows that pool all hosts of an execution come first.
    all.sort_by_key(|(execution, _)| (execution.is_none(), *execution));
    all.into_iter().map(|(_, row)| row).collect()
}

/// Comparisons grouped by execution: by the kind of machine on which their times were measured.
fn by_execution<'a>(row: &'a HostRow<'_>) -> BTreeMap<Execution, Vec<&'a Comparison>> {
    let mut executions: BTreeMap<Execution, Vec<&Comparison>> = BTreeMap::new();
    row.stored.iter().for_each(|one| executions.entry(one.machine.execution()).or_default().push(one));
    executions
}

/// The machine name in rows that compare boots.
const BOOTS: &str = "boots, compared within hosts";

/// The machine name in rows that compare boots of one execution.
fn of_execution(execution: Execution) -> String {
    match execution {
        Execution::Metal => BOOTS.to_owned(),
        Execution::Guest { host_leaf: None } => {
            "boots of virtual machines, backed by unknown leaves of their hosts".to_owned()
        }
        Execution::Guest { host_leaf: Some(leaf) } => {
            format!("boots of virtual machines, backed by leaves of {leaf} of their hosts, by their command lines")
        }
        Execution::Emulated => "boots of emulated machines".to_owned(),
    }
}

/// The merged result of boots for a workload.
fn joined(definition: &Definition, row: &HostRow<'_>, machine: &str, comparisons: &[&Comparison]) -> Row {
    let (name, policies) = (&row.workload.name, &definition.policies);
    let parts: Vec<MeasuredBoots> = comparisons.iter().filter_map(|comparison| MeasuredBoots::of(comparison)).collect();
    let joined = match boots::merge(&of_one_command(parts)) {
        Ok(merged) => Row::of_boots(name, machine, policies, &merged),
        Err(MergeError::Nothing) => Row::without(name, machine, policies, &row.progress.why()),
        Err(error) => Row::without(name, machine, policies, &error.to_string()),
    };
    let joined = mark_if_emulated(joined, comparisons);
    Row { origins: comparisons.iter().map(|comparison| row.origin(comparison)).collect(), ..joined }
}

/// What boots with different memory sizes mean when boots are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// Memory sizes are compared: boots of one host with different memory (`mem=`) are arms.
    Compared,
    /// Memory size must be equal: boots with different memory are put into separate rows.
    Separate,
}

/// Marks the row as emulated if its comparisons are.
fn mark_if_emulated(row: Row, comparisons: &[&Comparison]) -> Row {
    let Some(first) = comparisons.first().filter(|one| one.machine.execution() == Execution::Emulated) else {
        return row;
    };
    let metric = first.design.metrics.iter().find(|metric| metric.name == row.metric);
    row.emulated(metric.map_or(Unit::Seconds, |metric| metric.unit))
}

/// Gives all parts the same command: comparisons of one subject differ only in pagelab's path on each host.
fn of_one_command(parts: Vec<MeasuredBoots>) -> Vec<MeasuredBoots> {
    let first: Option<Invocation> = parts.first().map(|part| part.invocation.clone());
    let alike =
        |part: MeasuredBoots| MeasuredBoots { invocation: first.clone().unwrap_or(part.invocation.clone()), ..part };
    parts.into_iter().map(alike).collect()
}

/// Comparisons by host, in the order of each host's first comparison.
fn by_host<'a>(row: &'a HostRow<'_>, memory: Memory) -> Vec<OfHost<'a>> {
    let is_same = |one: &Machine, other: &Machine| {
        one.is_same_host(other)
            && (memory == Memory::Compared || one.rounded_memory_bytes() == other.rounded_memory_bytes())
    };
    let mut hosts: Vec<(&Machine, OfHost<'a>)> = Vec::new();
    for comparison in &row.stored {
        let machine = &comparison.machine;
        match hosts.iter_mut().find(|(known, _)| is_same(known, machine)) {
            Some((_, (_, group))) => group.push(comparison),
            None => hosts.push((machine, (String::new(), vec![comparison]))),
        }
    }
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    let named = hosts.into_iter().map(|(machine, (_, group))| {
        let of_size = match memory {
            Memory::Compared => String::new(),
            Memory::Separate => format!(", {}", format_bytes(machine.rounded_memory_bytes())),
        };
        let name = format!("{}, {} on line{of_size}", machine.cpu_model, machine.cpus);
        let count = times.entry(name.clone()).or_default();
        *count += 1;
        (if *count == 1 { name } else { format!("{name} ({count})") }, group)
    });
    named.collect()
}

/// The matrix of boots, if the study names several; `None` if the policies are already properties of boots and memory sizes are
/// not compared.
pub fn of_boots(definition: &Definition, rows: &[HostRow<'_>], published: &[Published]) -> Option<Matrix> {
    let baseline = axis::baseline(&definition.boots).filter(|_| definition.boots.len() > 1)?;
    let memory = if definition.compares_memory() { Memory::Compared } else { Memory::Separate };
    if (is_over_boots(definition) && memory == Memory::Separate) || rows.iter().all(|row| row.stored.is_empty()) {
        return None;
    }
    let of_row = |row: &HostRow<'_>| {
        let origin = |known: &RowSource| {
            let comparison = row.stored.iter().find(|one| Some(one.id) == known.comparison);
            comparison.map_or_else(|| known.clone(), |comparison| row.origin(comparison))
        };
        let hosts = by_host(row, memory);
        let executions = by_execution(row).into_iter().flat_map(|(execution, group)| {
            let all = hosts.iter().flat_map(|(host, all)| all.iter().map(move |one| (host.clone(), *one)));
            let named: Vec<(String, &Comparison)> =
                all.filter(|(_, one)| one.machine.execution() == execution).collect();
            let rows = axis::rows(definition, &row.workload.name, &named).into_iter();
            let rows = rows.map(move |row| {
                if row.machine == axis::ALL_HOSTS && execution != Execution::Metal {
                    Row { machine: of_execution(execution), ..row }
                } else {
                    row
                }
            });
            rows.map(|row| mark_if_emulated(row, &group)).collect::<Vec<Row>>()
        });
        executions.map(|row| Row { origins: row.origins.iter().map(origin).collect(), ..row }).collect::<Vec<Row>>()
    };
    let mut all: Vec<Row> = rows.iter().flat_map(of_row).collect();
    all.sort_by_key(|row| row.machine != axis::ALL_HOSTS);
    let names: Vec<String> = definition.boots.iter().map(|boot| boot.name.clone()).collect();
    let published: Vec<Published> = published.iter().map(|one| published_of_boot(definition, one)).collect();
    Some(Matrix::of(&names, &names[baseline], all, &published))
}

/// Notes on boots that match none of the study's boots, or several. Empty if the policies are properties of boots, because
/// then the policies are compared.
pub fn unmatched<'a>(definition: &Definition, machines: impl IntoIterator<Item = &'a Machine>) -> Vec<String> {
    if is_over_boots(definition) { Vec::new() } else { axis::unmatched(definition, machines) }
}

/// A published figure of a boot, in the form of a published figure of the matrix of boots.
pub fn published_of_boot(definition: &Definition, one: &Published) -> Published {
    let policy = one.policy.as_ref().unwrap_or(&definition.baseline);
    let row_name = |workload: &String| axis::row_name(workload, policy);
    let suite =
        one.suite.clone().map(|suite| Suite { workloads: suite.workloads.iter().map(row_name).collect(), ..suite });
    Published { policy: one.boot.clone(), workload: one.workload.as_ref().map(row_name), suite, ..one.clone() }
}
