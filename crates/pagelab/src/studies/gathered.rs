//! The rows of a study as the store has them: every workload, on every machine that measured it.

use results::store::Store;
use study::comparison::Comparison;
use study::definition::{Definition, HOST};
use study::machine::Machine;
use study::matrix::{Matrix, Row};
use study::stats::boots::{self, MergeError, Part};

use super::lowered::is_over_boots;
use super::model::{self, ModelRow};
use super::plan::{HostRow, Progress, host_rows};
use crate::failure::Failure;

/// Everything that is known of a study.
pub struct Gathered<'a> {
    /// Workloads on hosts.
    pub on_hosts: Vec<HostRow<'a>>,
    /// Workloads on model machines.
    pub on_models: Vec<ModelRow<'a>>,
    /// What of it has not been run, in words.
    pub missing: Vec<String>,
    /// The matrix.
    pub matrix: Matrix,
}

/// Gathers what a store has of a study.
///
/// # Errors
/// The store or the host cannot be read.
pub fn gathered<'a>(definition: &'a Definition, store: Option<&Store>) -> Result<Gathered<'a>, Failure> {
    let on_hosts = host_rows(definition, store)?;
    let on_models = model::rows(definition, store)?;
    let mut rows: Vec<Row> = match is_over_boots(definition) {
        true => on_hosts.iter().map(|row| over_boots(definition, row)).collect(),
        false => {
            let hosts = hosts(definition, &on_hosts);
            hosts.iter().flat_map(|host| on_hosts.iter().map(|row| on_host(definition, row, host))).collect()
        }
    };
    rows.extend(on_models.iter().map(|row| row.shown(definition)));
    let missing = missing(definition, &on_hosts, &on_models);
    let matrix = Matrix::of(&definition.policies, &definition.baseline, rows, &definition.published);
    Ok(Gathered { on_hosts, on_models, missing, matrix })
}

/// A host that measured something, or nothing yet.
struct Known {
    label: String,
    /// One of its comparisons tells which it is.
    machine: Option<Machine>,
}

/// Hosts that measured something, in the order of their first comparison; where there is none, this one.
fn hosts(definition: &Definition, rows: &[HostRow<'_>]) -> Vec<Known> {
    let mut machines: Vec<&Machine> = Vec::new();
    let mut all: Vec<&Comparison> = rows.iter().flat_map(|row| &row.stored).collect();
    all.sort_by_key(|comparison| comparison.id);
    for comparison in all {
        if !machines.iter().any(|machine| machine.is_alike(&comparison.machine)) {
            machines.push(&comparison.machine);
        }
    }
    if machines.is_empty() && definition.machines.iter().any(|machine| machine == HOST) {
        return vec![Known { label: HOST.to_owned(), machine: None }];
    }
    let mut known: Vec<Known> = Vec::new();
    for machine in machines {
        let label = label(definition, machine);
        let times =
            known.iter().filter(|one| one.label == label || one.label.starts_with(&format!("{label} ("))).count();
        let label = if times == 0 { label } else { format!("{label} ({})", times + 1) };
        known.push(Known { label, machine: Some(machine.clone()) });
    }
    known
}

/// A host in words: its processor and kernel, and which boot of the study it is.
pub fn label(definition: &Definition, machine: &Machine) -> String {
    if machine.name != HOST {
        return machine.name.clone();
    }
    let release = machine.kernel.split_whitespace().next().unwrap_or_default();
    let boots: Vec<&str> =
        definition.boots.iter().filter(|boot| boot.lacks(machine).is_none()).map(|boot| boot.name.as_str()).collect();
    let boots = if boots.is_empty() { String::new() } else { format!(", {}", boots.join(" and ")) };
    format!("{}, Linux {release}{boots}", machine.cpu_model)
}

fn on_host(definition: &Definition, row: &HostRow<'_>, host: &Known) -> Row {
    let of_host = |one: &&Comparison| host.machine.as_ref().is_some_and(|machine| machine.is_alike(&one.machine));
    let latest = row.stored.iter().rev().find(of_host);
    let left_out = row.lowered.as_ref().map(|lowered| lowered.left_out.as_slice()).unwrap_or_default();
    match latest {
        Some(comparison) => {
            Row::of_comparison(&row.workload.name, &host.label, &definition.policies, comparison, left_out)
        }
        None => Row::without(&row.workload.name, &host.label, &definition.policies, &why(&row.progress)),
    }
}

/// What all boots say together, of however many hosts: they are compared within hosts.
fn over_boots(definition: &Definition, row: &HostRow<'_>) -> Row {
    let (name, policies) = (&row.workload.name, &definition.policies);
    let parts: Vec<Part> = row.stored.iter().filter_map(Part::of).collect();
    match boots::merge(&parts) {
        Ok(merged) => Row::of_boots(name, BOOTS, policies, &merged),
        Err(MergeError::Nothing) => Row::without(name, BOOTS, policies, &why(&row.progress)),
        Err(error) => Row::without(name, BOOTS, policies, &error.to_string()),
    }
}

/// What stands for the machine where boots are compared.
const BOOTS: &str = "boots, compared within hosts";

fn why(progress: &Progress) -> String {
    match progress {
        Progress::Refused(why) | Progress::Failed { why, .. } => why.clone(),
        Progress::Missing | Progress::Interrupted { .. } | Progress::Done { .. } => "not run here yet".to_owned(),
    }
}

/// What has not been run: workloads on this host, boots, simulations.
fn missing(definition: &Definition, on_hosts: &[HostRow<'_>], on_models: &[ModelRow<'_>]) -> Vec<String> {
    let mut missing = Vec::new();
    let left = |row: &&HostRow<'_>| matches!(row.progress, Progress::Missing | Progress::Interrupted { .. });
    let count = on_hosts.iter().filter(left).count();
    if count > 0 {
        missing.push(format!("{count} of {} workloads on this host", on_hosts.len()));
    }
    let count = on_models.iter().filter(|row| row.is_missing()).count();
    if count > 0 {
        missing.push(format!("{count} of {} simulations of a workload on a machine", on_models.len()));
    }
    for boot in &definition.boots {
        let machines = on_hosts.iter().flat_map(|row| &row.stored).map(|comparison| &comparison.machine);
        let lacking: Vec<Option<String>> = machines.map(|machine| boot.lacks(machine)).collect();
        if lacking.iter().all(Option::is_some) {
            let what = boot.describe();
            missing.push(format!("the boot {} ({what})", boot.name));
        }
    }
    missing
}
