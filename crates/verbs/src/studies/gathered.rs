//! Collects all results of a study from the store ([`Gathered`]): every workload on every machine that measured it.

use policy::machine::Machine;
use results::matrix::{ExplainedPolicy, HostOf};
use results::store::Store;
use study::comparison::Comparison;
use study_files::definition::variant::row_name;
use study_files::definition::{Boot, Definition, Published, Variant};
use study_files::matrix::{Filled, Matrix, Row};

use super::counted::CountedState;
use super::guest_boots::are_guests;
use super::guests;
use super::lowered::is_over_boots;
use super::measured::{KnownHost, hosts, latest};
use super::model::{self, ModelRow};
use super::plan::{HostRow, host_rows};
use super::{measured, outlook, over_boots, series};
use crate::failure::Failure;

/// All results of a study.
pub struct Gathered<'a> {
    /// The rows of workloads on hosts.
    pub on_hosts: Vec<HostRow<'a>>,
    /// The rows of workloads on model machines.
    pub on_models: Vec<ModelRow>,
    /// The counted part, if the study has one.
    pub counted: Option<CountedState<'a>>,
    /// What the study asks for and was not run, one text each.
    pub missing: Vec<String>,
    /// What is still undecided, and what would decide it.
    pub lacking: Option<String>,
    /// The matrix of workloads and policies.
    pub matrix: Matrix,
    /// The same rows with boots as columns in place of policies, if the study has several boots.
    pub over_boots: Option<Matrix>,
    /// The results in the form of the original publication, for each host that measured part of it.
    pub forms: Vec<Filled>,
    /// Series over sizes, with their figures.
    pub series: Vec<study_files::series::Filled>,
    /// The same rows with variants as columns in place of policies: one matrix for all workloads with the same
    /// variants.
    pub over_variants: Vec<Matrix>,
    /// Why policies change user time, if the study asks for it.
    pub explained: Vec<ExplainedPolicy>,
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
    let lacking = outlook::study_progress(definition, &on_hosts, &[]).as_ref().and_then(results::matrix::lacking);
    let hosts = hosts(definition, &on_hosts);
    let mut missing = missing(definition, &on_hosts, &on_models);
    let (of_series, on_hosts): (Vec<HostRow<'a>>, Vec<HostRow<'a>>) =
        on_hosts.into_iter().partition(|row| definition.is_of_series(row.workload));
    let series = series::filled(definition, &|name| latest_of_each(&of_series, &hosts, name));
    let mut rows: Vec<Row> = match is_over_boots(definition) {
        _ if are_guests(definition) => guests::of_policies(definition, &on_hosts),
        true => over_boots::of_policies(definition, &on_hosts),
        false => measured::of_policies(definition, &on_hosts.iter().collect::<Vec<_>>(), &hosts),
    };
    rows.extend(on_models.iter().map(|row| row.matrix_row(definition)));
    let counted = CountedState::of(definition, store)?;
    missing.extend(counted.iter().filter(|counted| counted.state().0 != "done").map(|counted| {
        let (name, (_, why)) = (counted.name(), counted.state());
        format!("{name}: {why}")
    }));
    let of_all = definition.published.iter().filter(|one| one.variant.is_none()).cloned();
    let (of_boots, published): (Vec<Published>, Vec<Published>) = of_all.partition(|one| one.boot.is_some());
    let matrix = Matrix::of(&definition.policies, &definition.baseline, rows, &published);
    let over_boots = if are_guests(definition) {
        guests::of_kernels(definition, &on_hosts, &of_boots)
    } else {
        over_boots::of_boots(definition, &on_hosts, &of_boots)
    };
    let forms = hosts.iter().filter_map(|host| form(definition, &on_hosts, host)).collect();
    let over_variants = measured::of_variants(definition, &on_hosts.iter().collect::<Vec<_>>(), &hosts);
    let explained = hosts.iter().flat_map(|host| explained_on(host, &on_hosts)).collect();
    let hosts: Vec<HostOf> = hosts.into_iter().filter_map(|host| host_with_settings(host, &on_hosts)).collect();
    let on_hosts = on_hosts.into_iter().chain(of_series).collect();
    Ok(Gathered {
        hosts,
        on_hosts,
        on_models,
        counted,
        missing,
        lacking,
        matrix,
        over_boots,
        over_variants,
        forms,
        series,
        explained,
    })
}

/// The explained policies of each workload on a host.
fn explained_on(host: &KnownHost, rows: &[HostRow<'_>]) -> Vec<ExplainedPolicy> {
    let of_row = |row: &HostRow<'_>| Some(ExplainedPolicy::of(&row.workload.name, &host.label, latest(row, host)?));
    rows.iter().filter_map(of_row).flatten().collect()
}

/// A host with the settings that its comparisons recorded.
fn host_with_settings(host: KnownHost, rows: &[HostRow<'_>]) -> Option<HostOf> {
    let comparisons = || rows.iter().filter_map(|row| latest(row, &host));
    let settings = comparisons().find_map(results::matrix::settings);
    let measured_unix_s = comparisons().map(|comparison| comparison.started_unix_s).max();
    Some(HostOf { machine: host.machine?, label: host.label, measured_unix_s, settings })
}

/// The latest comparison of a workload on each host.
fn latest_of_each(rows: &[HostRow<'_>], hosts: &[KnownHost], workload: &str) -> Vec<(String, Comparison)> {
    let row = rows.iter().find(|row| row.workload.name == workload);
    let of_host = |host: &KnownHost| Some((host.label.clone(), latest(row?, host)?.clone()));
    hosts.iter().filter_map(of_host).collect()
}

/// The original publication's form, filled with the comparisons of a host.
fn form(definition: &Definition, rows: &[HostRow<'_>], host: &KnownHost) -> Option<Filled> {
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

/// What has not been run: workloads on this host, boots, simulations.
fn missing(definition: &Definition, on_hosts: &[HostRow<'_>], on_models: &[ModelRow]) -> Vec<String> {
    let mut missing = Vec::new();
    let count = on_hosts.iter().filter(|row| row.progress.is_unfinished()).count();
    if count > 0 {
        missing.push(format!("{count} of {} workloads on this host", on_hosts.len()));
    }
    let count = on_models.iter().filter(|row| row.is_missing()).count();
    if count > 0 {
        missing.push(format!("{count} of {} simulations of a workload on a machine", on_models.len()));
    }
    // A comparison without trials is no result of its boot.
    let measured = on_hosts.iter().flat_map(|row| &row.stored).filter(|comparison| !comparison.trials.is_empty());
    let machines: Vec<&Machine> = measured.map(|comparison| &comparison.machine).collect();
    let lacks = |boot: &&Boot| machines.iter().all(|machine| boot.lacks(machine).is_some());
    let boots = definition.boots.iter().filter(lacks);
    missing.extend(boots.map(|boot| format!("the boot {} ({})", boot.name, boot.describe())));
    missing.extend(over_boots::unmatched(definition, machines));
    missing
}
