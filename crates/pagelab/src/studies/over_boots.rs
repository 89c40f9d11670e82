//! Rows of a study that compare boots: where every policy is one that a boot has or has not, and where the study names boots.

use std::collections::BTreeMap;

use study::comparison::{Comparison, Invocation};
use study::definition::{Definition, Published};
use study::machine::Machine;
use study::matrix::{Matrix, Origin, Row, boots as axis};
use study::stats::boots::{self, MergeError, Part};

use super::lowered::is_over_boots;
use super::plan::HostRow;
use policy::size::format_bytes;

/// A host's comparisons, with how it is called.
type OfHost<'a> = (String, Vec<&'a Comparison>);

/// Where policies are boots: a row for each workload and host, and for all hosts together where there are several.
pub fn of_policies(definition: &Definition, rows: &[HostRow<'_>]) -> Vec<Row> {
    let of_row = |row: &HostRow<'_>| {
        let hosts = by_host(row);
        let all: Vec<&Comparison> = row.stored.iter().collect();
        let mut rows = vec![joined(definition, row, BOOTS, &all)];
        if hosts.len() > 1 {
            rows.extend(hosts.iter().map(|(host, own)| joined(definition, row, host, own)));
        }
        rows
    };
    let mut all: Vec<Row> = rows.iter().flat_map(of_row).collect();
    // What all hosts say together stands first.
    all.sort_by_key(|row| row.machine != BOOTS);
    all
}

/// What stands for the machine where boots are compared.
const BOOTS: &str = "boots, compared within hosts";

/// What boots say of a workload.
fn joined(definition: &Definition, row: &HostRow<'_>, machine: &str, comparisons: &[&Comparison]) -> Row {
    let (name, policies) = (&row.workload.name, &definition.policies);
    let parts: Vec<Part> = comparisons.iter().filter_map(|comparison| Part::of(comparison)).collect();
    let joined = match boots::merge(&of_one_command(parts)) {
        Ok(merged) => Row::of_boots(name, machine, policies, &merged),
        Err(MergeError::Nothing) => Row::without(name, machine, policies, &row.progress.why()),
        Err(error) => Row::without(name, machine, policies, &error.to_string()),
    };
    Row { origins: comparisons.iter().map(|comparison| row.origin(comparison)).collect(), ..joined }
}

/// Rows of one subject are of one command: it is pagelab's own path that differs between hosts.
fn of_one_command(parts: Vec<Part>) -> Vec<Part> {
    let first: Option<Invocation> = parts.first().map(|part| part.invocation.clone());
    let alike = |part: Part| Part { invocation: first.clone().unwrap_or(part.invocation.clone()), ..part };
    parts.into_iter().map(alike).collect()
}

/// Comparisons by host, in the order of their first.
fn by_host<'a>(row: &'a HostRow<'_>) -> Vec<OfHost<'a>> {
    let mut hosts: Vec<(&Machine, OfHost<'a>)> = Vec::new();
    for comparison in &row.stored {
        let machine = &comparison.machine;
        match hosts.iter_mut().find(|(known, _)| is_same_host(known, machine)) {
            Some((_, (_, own))) => own.push(comparison),
            None => hosts.push((machine, (String::new(), vec![comparison]))),
        }
    }
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    let named = hosts.into_iter().map(|(machine, (_, own))| {
        let name = format!("{}, {} on line, {}", machine.cpu_model, machine.cpus, format_bytes(machine.memory_bytes));
        let count = times.entry(name.clone()).or_default();
        *count += 1;
        (if *count == 1 { name } else { format!("{name} ({count})") }, own)
    });
    named.collect()
}

/// Boots of one host have one id; where there is none, its processor and its size tell.
fn is_same_host(one: &Machine, other: &Machine) -> bool {
    let key = |machine: &Machine| (machine.cpu_model.clone(), machine.cpus, machine.memory_bytes.div_ceil(1 << 30));
    match (&one.host_id, &other.host_id) {
        (Some(one), Some(other)) => one == other,
        (None, None) => key(one) == key(other),
        _ => false,
    }
}

/// The matrix of boots of a study that names several; `None` where it does not, or where its policies are boots already.
pub fn of_boots(definition: &Definition, rows: &[HostRow<'_>], published: &[Published]) -> Option<Matrix> {
    let baseline = axis::baseline(&definition.boots).filter(|_| definition.boots.len() > 1)?;
    if is_over_boots(definition) || rows.iter().all(|row| row.stored.is_empty()) {
        return None;
    }
    let of_row = |row: &HostRow<'_>| {
        let named: Vec<(String, &Comparison)> = by_host(row)
            .into_iter()
            .flat_map(|(host, own)| own.into_iter().map(move |comparison| (host.clone(), comparison)))
            .collect();
        let origin = |known: &Origin| {
            let comparison = row.stored.iter().find(|one| Some(one.id) == known.comparison);
            comparison.map_or_else(|| known.clone(), |comparison| row.origin(comparison))
        };
        let made = axis::rows(definition, &row.workload.name, &named).into_iter();
        made.map(|row| Row { origins: row.origins.iter().map(origin).collect(), ..row }).collect::<Vec<Row>>()
    };
    let mut all: Vec<Row> = rows.iter().flat_map(of_row).collect();
    all.sort_by_key(|row| row.machine != axis::ALL_HOSTS);
    let names: Vec<String> = definition.boots.iter().map(|boot| boot.name.clone()).collect();
    let published: Vec<Published> = published.iter().map(|one| beside_boot(definition, one)).collect();
    Some(Matrix::of(&names, &names[baseline], all, &published))
}

/// A published figure of a boot, as one of the matrix of boots.
fn beside_boot(definition: &Definition, one: &Published) -> Published {
    let policy = one.policy.as_ref().unwrap_or(&definition.baseline);
    let workload = one.workload.as_ref().map(|workload| axis::row_name(workload, policy));
    Published { policy: one.boot.clone(), workload, ..one.clone() }
}
