//! The hosts that have results of a study, and the comparisons of each as rows of matrices.

use policy::machine::Machine;
use study::comparison::Comparison;
use study_files::definition::variant::row_name;
use study_files::definition::{Definition, HOST, Published, Variant};
use study_files::matrix::{Matrix, Row};

use super::over_variants;
use super::plan::HostRow;
use super::programs::rebuilt;

/// For each host, the rows with policies as columns.
pub fn of_policies(definition: &Definition, rows: &[&HostRow<'_>], hosts: &[KnownHost]) -> Vec<Row> {
    hosts.iter().flat_map(|host| rows.iter().flat_map(move |row| on_host(definition, row, host))).collect()
}

/// The matrices with variants as columns, over all hosts.
pub fn of_variants(definition: &Definition, rows: &[&HostRow<'_>], hosts: &[KnownHost]) -> Vec<Matrix> {
    let published: Vec<Published> = definition.published.iter().filter(|one| one.variant.is_some()).cloned().collect();
    let measured = hosts.iter().flat_map(|host| rows.iter().map(move |row| (*row, host)));
    let measured = measured.filter_map(|(row, host)| Some((row, host.label.as_str(), latest(row, host)?)));
    over_variants::matrices(definition, &measured.collect::<Vec<_>>(), &published)
}

/// All matrices of measurements on hosts: first that of policies, then those of variants.
pub fn matrices(definition: &Definition, rows: &[HostRow<'_>]) -> Vec<Matrix> {
    let hosts = hosts(definition, rows);
    let rows: Vec<&HostRow<'_>> = rows.iter().filter(|row| !definition.is_of_series(row.workload)).collect();
    let is_of_policy = |one: &&Published| one.variant.is_none() && one.boot.is_none();
    let published: Vec<Published> = definition.published.iter().filter(is_of_policy).cloned().collect();
    let of_policies = of_policies(definition, &rows, &hosts);
    let of_policies = Matrix::of(&definition.policies, &definition.baseline, of_policies, &published);
    std::iter::once(of_policies).chain(of_variants(definition, &rows, &hosts)).collect()
}

/// A host that may have results.
pub struct KnownHost {
    pub label: String,
    /// The machine of one of the host's comparisons, which identifies the host.
    pub machine: Option<Machine>,
}

/// Hosts with results, in the order of their first comparison; if none, this host.
pub fn hosts(definition: &Definition, rows: &[HostRow<'_>]) -> Vec<KnownHost> {
    let mut machines: Vec<&Machine> = Vec::new();
    let mut all: Vec<&Comparison> = rows.iter().flat_map(|row| &row.stored).collect();
    all.sort_by_key(|comparison| comparison.id);
    for comparison in all {
        if !machines.iter().any(|machine| machine.is_alike(&comparison.machine)) {
            machines.push(&comparison.machine);
        }
    }
    if machines.is_empty() && definition.machines.iter().any(|machine| machine == HOST) {
        return vec![KnownHost { label: HOST.to_owned(), machine: None }];
    }
    let mut known: Vec<KnownHost> = Vec::new();
    for machine in machines {
        let label = named(definition, machine, &short_processor_name(&machine.cpu_model));
        let times =
            known.iter().filter(|one| one.label == label || one.label.starts_with(&format!("{label} ("))).count();
        let label = if times == 0 { label } else { format!("{label} ({})", times + 1) };
        known.push(KnownHost { label, machine: Some(machine.clone()) });
    }
    known
}

/// The label of a host with the full processor name, which distinguishes hosts in exported samples.
pub fn label(definition: &Definition, machine: &Machine) -> String {
    named(definition, machine, &machine.cpu_model)
}

/// The label of a host: its processor, named like this, its kernel, and the study's boot that it matches.
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
fn short_processor_name(model: &str) -> String {
    let model = model.split(" @").next().unwrap_or_default();
    let mut name = model.to_owned();
    for word in ["(R)", "(TM)", "(r)", "(tm)"] {
        name = name.replace(word, "");
    }
    let words: Vec<&str> = name.split_whitespace().filter(|word| !["CPU", "Processor"].contains(word)).collect();
    if words.is_empty() { model.to_owned() } else { words.join(" ") }
}

/// The latest comparison of a row on a host.
pub fn latest<'a>(row: &'a HostRow<'_>, host: &KnownHost) -> Option<&'a Comparison> {
    let of_host = |one: &&Comparison| host.machine.as_ref().is_some_and(|machine| machine.is_alike(&one.machine));
    row.stored.iter().rev().find(of_host)
}

/// The row of a workload on a host, or one row per variant.
fn on_host(definition: &Definition, row: &HostRow<'_>, host: &KnownHost) -> Vec<Row> {
    let (policies, label) = (&definition.policies, &host.label);
    let Some(comparison) = latest(row, host) else {
        let without = |name: &String| Row::without(name, label, policies, &row.progress.why());
        return row.workload.row_names().iter().map(without).collect();
    };
    let left_out = row
        .compare_arguments
        .as_ref()
        .map(|compare_arguments| compare_arguments.left_out.as_slice())
        .unwrap_or_default();
    let rebuilt = row.ran.get(&comparison.id).and_then(|ran| rebuilt(ran, &row.programs));
    let note = rebuilt.map(|program| format!("this host has another build of {program} than the measured one"));
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
