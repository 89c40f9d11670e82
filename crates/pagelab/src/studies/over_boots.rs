//! Rows of a study that compare boots: where every policy is one that a boot has or has not, and where the study names boots.

use std::collections::BTreeMap;

use study::comparison::{Comparison, Invocation};
use study::definition::{Definition, Published, Suite};
use study::machine::{Ground, Machine};
use study::matrix::{Matrix, Origin, Row, boots as axis};
use study::metric::Unit;
use study::stats::boots::{self, MergeError, Part};

use super::lowered::is_over_boots;
use super::plan::HostRow;
use policy::size::format_bytes;

/// A host's comparisons, with how it is called.
type OfHost<'a> = (String, Vec<&'a Comparison>);

/// Where policies are boots: for each workload a row for each host, and one for all hosts of one ground where there are
/// several: metal, virtual machines by the leaves behind them, and emulated machines are never pooled with each other.
pub fn of_policies(definition: &Definition, rows: &[HostRow<'_>]) -> Vec<Row> {
    let of_row = |row: &HostRow<'_>| {
        let mut all: Vec<(Option<Ground>, Row)> = by_ground(row)
            .into_iter()
            .map(|(ground, own)| (Some(ground), joined(definition, row, &of_ground(ground), &own)))
            .collect();
        if all.is_empty() {
            all.push((Some(Ground::Metal), joined(definition, row, BOOTS, &[])));
        }
        let hosts = by_host(row, Memory::Apart);
        if hosts.len() > 1 {
            all.extend(hosts.iter().map(|(host, own)| (None, joined(definition, row, host, own))));
        }
        all
    };
    let mut all: Vec<(Option<Ground>, Row)> = rows.iter().flat_map(of_row).collect();
    // What all hosts of a ground say together stands first.
    all.sort_by_key(|(ground, _)| (ground.is_none(), *ground));
    all.into_iter().map(|(_, row)| row).collect()
}

/// Comparisons by what their times are of.
fn by_ground<'a>(row: &'a HostRow<'_>) -> BTreeMap<Ground, Vec<&'a Comparison>> {
    let mut grounds: BTreeMap<Ground, Vec<&Comparison>> = BTreeMap::new();
    row.stored.iter().for_each(|one| grounds.entry(one.machine.ground()).or_default().push(one));
    grounds
}

/// What stands for the machine where boots are compared.
const BOOTS: &str = "boots, compared within hosts";

/// What stands for the machine where boots of one ground are compared.
fn of_ground(ground: Ground) -> String {
    match ground {
        Ground::Metal => BOOTS.to_owned(),
        Ground::Guest { host_leaf: None } => {
            "boots of virtual machines, the host's leaves behind them unknown".to_owned()
        }
        Ground::Guest { host_leaf: Some(leaf) } => {
            format!("boots of virtual machines, on leaves of {leaf} of their hosts by their command lines")
        }
        Ground::Emulated => "boots of emulated machines".to_owned(),
    }
}

/// What boots say of a workload.
fn joined(definition: &Definition, row: &HostRow<'_>, machine: &str, comparisons: &[&Comparison]) -> Row {
    let (name, policies) = (&row.workload.name, &definition.policies);
    let parts: Vec<Part> = comparisons.iter().filter_map(|comparison| Part::of(comparison)).collect();
    let joined = match boots::merge(&of_one_command(parts)) {
        Ok(merged) => Row::of_boots(name, machine, policies, &merged),
        Err(MergeError::Nothing) => Row::without(name, machine, policies, &row.progress.why()),
        Err(error) => Row::without(name, machine, policies, &error.to_string()),
    };
    let joined = as_of_ground(joined, comparisons);
    Row { origins: comparisons.iter().map(|comparison| row.origin(comparison)).collect(), ..joined }
}

/// What memory is where boots are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// What is compared: boots of one host with other memory (`mem=`) are arms.
    Compared,
    /// What must be the same: boots with other memory stand in rows of their own.
    Apart,
}

/// The row as an emulator's, where it is one's.
fn as_of_ground(row: Row, comparisons: &[&Comparison]) -> Row {
    let Some(first) = comparisons.first().filter(|one| one.machine.ground() == Ground::Emulated) else { return row };
    let metric = first.design.metrics.iter().find(|metric| metric.name == row.metric);
    row.emulated(metric.map_or(Unit::Seconds, |metric| metric.unit))
}

/// Rows of one subject are of one command: it is pagelab's own path that differs between hosts.
fn of_one_command(parts: Vec<Part>) -> Vec<Part> {
    let first: Option<Invocation> = parts.first().map(|part| part.invocation.clone());
    let alike = |part: Part| Part { invocation: first.clone().unwrap_or(part.invocation.clone()), ..part };
    parts.into_iter().map(alike).collect()
}

/// Comparisons by host, in the order of their first.
fn by_host<'a>(row: &'a HostRow<'_>, memory: Memory) -> Vec<OfHost<'a>> {
    let is_same = |one: &Machine, other: &Machine| {
        one.is_same_host(other)
            && (memory == Memory::Compared || one.rounded_memory_bytes() == other.rounded_memory_bytes())
    };
    let mut hosts: Vec<(&Machine, OfHost<'a>)> = Vec::new();
    for comparison in &row.stored {
        let machine = &comparison.machine;
        match hosts.iter_mut().find(|(known, _)| is_same(known, machine)) {
            Some((_, (_, own))) => own.push(comparison),
            None => hosts.push((machine, (String::new(), vec![comparison]))),
        }
    }
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    let named = hosts.into_iter().map(|(machine, (_, own))| {
        let of_size = match memory {
            Memory::Compared => String::new(),
            Memory::Apart => format!(", {}", format_bytes(machine.rounded_memory_bytes())),
        };
        let name = format!("{}, {} on line{of_size}", machine.cpu_model, machine.cpus);
        let count = times.entry(name.clone()).or_default();
        *count += 1;
        (if *count == 1 { name } else { format!("{name} ({count})") }, own)
    });
    named.collect()
}

/// The matrix of boots of a study that names several; `None` where it does not, or where its policies are boots already and its
/// boots are not sizes of memory.
pub fn of_boots(definition: &Definition, rows: &[HostRow<'_>], published: &[Published]) -> Option<Matrix> {
    let baseline = axis::baseline(&definition.boots).filter(|_| definition.boots.len() > 1)?;
    let memory = if definition.compares_memory() { Memory::Compared } else { Memory::Apart };
    if (is_over_boots(definition) && memory == Memory::Apart) || rows.iter().all(|row| row.stored.is_empty()) {
        return None;
    }
    let of_row = |row: &HostRow<'_>| {
        let origin = |known: &Origin| {
            let comparison = row.stored.iter().find(|one| Some(one.id) == known.comparison);
            comparison.map_or_else(|| known.clone(), |comparison| row.origin(comparison))
        };
        let hosts = by_host(row, memory);
        let grounds = by_ground(row).into_iter().flat_map(|(ground, own)| {
            let all = hosts.iter().flat_map(|(host, all)| all.iter().map(move |one| (host.clone(), *one)));
            let named: Vec<(String, &Comparison)> = all.filter(|(_, one)| one.machine.ground() == ground).collect();
            let made = axis::rows(definition, &row.workload.name, &named).into_iter();
            let made = made.map(move |row| {
                if row.machine == axis::ALL_HOSTS && ground != Ground::Metal {
                    Row { machine: of_ground(ground), ..row }
                } else {
                    row
                }
            });
            made.map(|row| as_of_ground(row, &own)).collect::<Vec<Row>>()
        });
        grounds.map(|row| Row { origins: row.origins.iter().map(origin).collect(), ..row }).collect::<Vec<Row>>()
    };
    let mut all: Vec<Row> = rows.iter().flat_map(of_row).collect();
    all.sort_by_key(|row| row.machine != axis::ALL_HOSTS);
    let names: Vec<String> = definition.boots.iter().map(|boot| boot.name.clone()).collect();
    let published: Vec<Published> = published.iter().map(|one| beside_boot(definition, one)).collect();
    Some(Matrix::of(&names, &names[baseline], all, &published))
}

/// Boots that are several of those of a study, or none, in words. Where policies are boots, it is they that are compared.
pub fn unplaced<'a>(definition: &Definition, machines: impl IntoIterator<Item = &'a Machine>) -> Vec<String> {
    if is_over_boots(definition) { Vec::new() } else { axis::unplaced(definition, machines) }
}

/// A published figure of a boot, as one of the matrix of boots.
pub fn beside_boot(definition: &Definition, one: &Published) -> Published {
    let policy = one.policy.as_ref().unwrap_or(&definition.baseline);
    let row_name = |workload: &String| axis::row_name(workload, policy);
    let suite =
        one.suite.clone().map(|suite| Suite { workloads: suite.workloads.iter().map(row_name).collect(), ..suite });
    Published { policy: one.boot.clone(), workload: one.workload.as_ref().map(row_name), suite, ..one.clone() }
}
