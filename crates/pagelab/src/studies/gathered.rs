//! Collects the rows of a study from the store: every workload on every machine that measured it.

use results::matrix::HostOf;
use results::store::Store;
use study::comparison::Comparison;
use study::definition::variant::row_name;
use study::definition::{Boot, Definition, HOST, Published, Variant};
use study::machine::Machine;
use study::matrix::{Filled, Matrix, Row};

use super::counted::CountedState;
use super::guest_boots::are_guests;
use super::guests;
use super::lowered::is_over_boots;
use super::model::{self, ModelRow};
use super::plan::{HostRow, host_rows};
use super::programs::rebuilt;
use super::{over_boots, over_variants, series};
use crate::failure::Failure;

/// All results of a study.
pub struct Gathered<'a> {
    /// The rows of workloads on hosts.
    pub on_hosts: Vec<HostRow<'a>>,
    /// The rows of workloads on model machines.
    pub on_models: Vec<ModelRow>,
    /// The counted part, if the study has one.
    pub counted: Option<CountedState<'a>>,
    /// Text on what has not been run.
    pub missing: Vec<String>,
    /// The matrix of workloads and policies.
    pub matrix: Matrix,
    /// The same rows with boots in place of policies, if the study has several boots.
    pub over_boots: Option<Matrix>,
    /// The results in the form of the original publication, for each host that measured part of it.
    pub forms: Vec<Filled>,
    /// Series over sizes with their figures.
    pub series: Vec<study::series::Filled>,
    /// The same rows with variants in place of policies: one matrix for all workloads with the same variants.
    pub over_variants: Vec<Matrix>,
    /// The hosts with results.
    pub hosts: Vec<HostOf>,
}

/// Collects the results of a study from a store.
///
/// # Errors
/// The store or the host cannot be read.
pub fn gathered<'a>(definition: &'a Definition, store: Option<&Store>) -> Result<Gathered<'a>, Failure> {
    let on_hosts = host_rows(definition, store)?;
    let on_models = model::rows(definition, store)?;
    let hosts = hosts(definition, &on_hosts);
    let mut missing = missing(definition, &on_hosts, &on_models);
    let (of_series, on_hosts): (Vec<HostRow<'a>>, Vec<HostRow<'a>>) =
        on_hosts.into_iter().partition(|row| definition.is_of_series(row.workload));
    let series = series::filled(definition, &|name| on_each(&of_series, &hosts, name));
    let mut rows: Vec<Row> = match is_over_boots(definition) {
        _ if are_guests(definition) => guests::of_policies(definition, &on_hosts),
        true => over_boots::of_policies(definition, &on_hosts),
        false => hosts.iter().flat_map(|host| on_hosts.iter().flat_map(|row| on_host(definition, row, host))).collect(),
    };
    rows.extend(on_models.iter().map(|row| row.shown(definition)));
    let counted = CountedState::of(definition, store)?;
    missing.extend(counted.iter().filter(|counted| counted.told().0 != "done").map(|counted| {
        let (name, (_, why)) = (counted.name(), counted.told());
        format!("{name}: {why}")
    }));
    let (of_variants, published): (Vec<Published>, Vec<Published>) =
        definition.published.iter().cloned().partition(|one| one.variant.is_some());
    let (of_boots, published): (Vec<Published>, Vec<Published>) =
        published.into_iter().partition(|one| one.boot.is_some());
    let matrix = Matrix::of(&definition.policies, &definition.baseline, rows, &published);
    let over_boots = if are_guests(definition) {
        guests::of_kernels(definition, &on_hosts, &of_boots)
    } else {
        over_boots::of_boots(definition, &on_hosts, &of_boots)
    };
    let forms = hosts.iter().filter_map(|host| form(definition, &on_hosts, host)).collect();
    let measured = hosts.iter().flat_map(|host| on_hosts.iter().map(move |row| (row, host)));
    let measured = measured.filter_map(|(row, host)| Some((row, host.label.as_str(), latest(row, host)?)));
    let over_variants = over_variants::matrices(definition, &measured.collect::<Vec<_>>(), &of_variants);
    let hosts: Vec<HostOf> =
        hosts.into_iter().filter_map(|host| Some(HostOf { label: host.label, machine: host.machine? })).collect();
    let on_hosts = on_hosts.into_iter().chain(of_series).collect();
    Ok(Gathered { hosts, on_hosts, on_models, counted, missing, matrix, over_boots, over_variants, forms, series })
}

/// The latest comparison of a workload on each host.
fn on_each(rows: &[HostRow<'_>], hosts: &[Known], workload: &str) -> Vec<(String, Comparison)> {
    let row = rows.iter().find(|row| row.workload.name == workload);
    let of_host = |host: &Known| Some((host.label.clone(), latest(row?, host)?.clone()));
    hosts.iter().filter_map(of_host).collect()
}

/// A host, with or without results.
struct Known {
    label: String,
    /// The machine of one of its comparisons, which identifies the host.
    machine: Option<Machine>,
}

/// Hosts with results, in the order of their first comparison; if none, this host.
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
        let label = named(definition, machine, &plain(&machine.cpu_model));
        let times =
            known.iter().filter(|one| one.label == label || one.label.starts_with(&format!("{label} ("))).count();
        let label = if times == 0 { label } else { format!("{label} ({})", times + 1) };
        known.push(Known { label, machine: Some(machine.clone()) });
    }
    known
}

/// The label of a host with the full processor name, which distinguishes hosts in exported samples.
pub fn label(definition: &Definition, machine: &Machine) -> String {
    named(definition, machine, &machine.cpu_model)
}

/// The label of a host: its processor under this name, its kernel, and which boot of the study it is.
fn named(definition: &Definition, machine: &Machine, processor: &str) -> String {
    if machine.name != HOST {
        return machine.name.clone();
    }
    let release = machine.kernel.split_whitespace().next().unwrap_or_default();
    let boots: Vec<&str> =
        definition.boots.iter().filter(|boot| boot.lacks(machine).is_none()).map(|boot| boot.name.as_str()).collect();
    let boots = if boots.is_empty() { String::new() } else { format!(", {}", boots.join(" and ")) };
    format!("{processor}, Linux {release}{boots}")
}

/// A short processor name: `Intel Xeon` for `Intel(R) Xeon(R) Processor @ 2.10GHz`. Most sentences of a report use it; the
/// page lists the full name with its machines.
fn plain(model: &str) -> String {
    let model = model.split(" @").next().unwrap_or_default();
    let mut name = model.to_owned();
    for word in ["(R)", "(TM)", "(r)", "(tm)"] {
        name = name.replace(word, "");
    }
    let words: Vec<&str> = name.split_whitespace().filter(|word| !["CPU", "Processor"].contains(word)).collect();
    if words.is_empty() { model.to_owned() } else { words.join(" ") }
}

/// The original publication's form, filled with the comparisons of a host.
fn form(definition: &Definition, rows: &[HostRow<'_>], host: &Known) -> Option<Filled> {
    let form = definition.form.as_ref()?;
    let of_row = |row: &HostRow<'_>| {
        let Some(comparison) = latest(row, host) else { return Vec::new() };
        let within =
            |variant: &Variant| Some((row_name(&row.workload.name, &variant.name), comparison.within(&variant.name)?));
        if row.workload.variants.is_empty() {
            vec![(row.workload.name.clone(), comparison.clone())]
        } else {
            row.workload.variants.iter().filter_map(within).collect()
        }
    };
    let named: Vec<(String, Comparison)> = rows.iter().flat_map(of_row).collect();
    let of_name = |name: &str| named.iter().find(|(known, _)| known == name).map(|(_, comparison)| comparison);
    Filled::of(form, &host.label, &of_name)
}

/// The latest comparison of a row on a host.
fn latest<'a>(row: &'a HostRow<'_>, host: &Known) -> Option<&'a Comparison> {
    let of_host = |one: &&Comparison| host.machine.as_ref().is_some_and(|machine| machine.is_alike(&one.machine));
    row.stored.iter().rev().find(of_host)
}

/// A row, or one row per variant.
fn on_host(definition: &Definition, row: &HostRow<'_>, host: &Known) -> Vec<Row> {
    let (policies, label) = (&definition.policies, &host.label);
    let Some(comparison) = latest(row, host) else {
        let without = |name: &String| Row::without(name, label, policies, &row.progress.why());
        return row.workload.row_names().iter().map(without).collect();
    };
    let left_out = row.lowered.as_ref().map(|lowered| lowered.left_out.as_slice()).unwrap_or_default();
    let rebuilt = row.ran.get(&comparison.id).and_then(|ran| rebuilt(ran, &row.programs));
    let note =
        rebuilt.map(|program| format!("the {program} of this host is another build than the one that was measured"));
    let of = |name: &str, comparison: &Comparison| {
        let of = Row::of_comparison(name, label, policies, comparison, left_out);
        Row {
            origins: vec![row.origin(comparison)],
            notes: of.notes.iter().cloned().chain(note.clone()).collect(),
            ..of
        }
    };
    if row.workload.variants.is_empty() {
        return vec![of(&row.workload.name, comparison)];
    }
    let of_variant = |variant: &Variant| {
        let name = row_name(&row.workload.name, &variant.name);
        match comparison.within(&variant.name) {
            Some(slice) => of(&name, &slice),
            None => Row::without(&name, label, policies, "the comparison has no such variant"),
        }
    };
    row.workload.variants.iter().map(of_variant).collect()
}

/// Text on what has not been run: workloads on this host, boots, simulations.
fn missing(definition: &Definition, on_hosts: &[HostRow<'_>], on_models: &[ModelRow]) -> Vec<String> {
    let mut missing = Vec::new();
    let count = on_hosts.iter().filter(|row| row.progress.is_left()).count();
    if count > 0 {
        missing.push(format!("{count} of {} workloads on this host", on_hosts.len()));
    }
    let count = on_models.iter().filter(|row| row.is_missing()).count();
    if count > 0 {
        missing.push(format!("{count} of {} simulations of a workload on a machine", on_models.len()));
    }
    // A comparison without trials has no results of its boot.
    let measured = on_hosts.iter().flat_map(|row| &row.stored).filter(|comparison| !comparison.trials.is_empty());
    let machines: Vec<&Machine> = measured.map(|comparison| &comparison.machine).collect();
    let lacks = |boot: &&Boot| machines.iter().all(|machine| boot.lacks(machine).is_some());
    let boots = definition.boots.iter().filter(lacks);
    missing.extend(boots.map(|boot| format!("the boot {} ({})", boot.name, boot.describe())));
    missing.extend(over_boots::unplaced(definition, machines));
    missing
}
