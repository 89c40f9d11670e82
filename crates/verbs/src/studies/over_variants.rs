//! Rows of a study with variants as columns in place of policies: how builds, arguments, environments and degrees of
//! fragmentation compare.

use policy::Policy;
use study::comparison::Comparison;
use study_files::definition::{Definition, Published};
use study_files::matrix::{Matrix, Row, boots::row_name};

use super::plan::HostRow;

/// The matrices with variants as columns, one for all workloads with the same variants: a row per workload, policy and
/// host. `measured`: rows, each with the label of a host and a comparison there.
pub fn matrices(
    definition: &Definition,
    measured: &[(&HostRow<'_>, &str, &Comparison)],
    published: &[Published],
) -> Vec<Matrix> {
    let mut all: Vec<Vec<String>> = Vec::new();
    for (row, ..) in measured {
        let variants = names(row);
        if !variants.is_empty() && !all.contains(&variants) {
            all.push(variants);
        }
    }
    let of = |names: &Vec<String>| {
        let same_variants = measured.iter().filter(|(row, ..)| self::names(row) == *names);
        let rows: Vec<Row> =
            same_variants.flat_map(|(row, host, comparison)| rows(definition, row, host, comparison, names)).collect();
        let published_here =
            published.iter().filter(|one| one.variant.as_ref().is_some_and(|name| names.contains(name)));
        let published_here: Vec<Published> = published_here.map(|one| published_of_variant(definition, one)).collect();
        Matrix::of(names, &names[0], rows, &published_here)
    };
    all.iter().map(of).collect()
}

/// The names of a row's variants, the baseline first.
fn names(row: &HostRow<'_>) -> Vec<String> {
    row.workload.variants.iter().map(|variant| variant.name.clone()).collect()
}

/// A row per policy of this host.
fn rows(definition: &Definition, row: &HostRow<'_>, host: &str, comparison: &Comparison, names: &[String]) -> Vec<Row> {
    let policies = definition.policies.iter().filter_map(|name| Some((name, name.parse::<Policy>().ok()?)));
    let of_policy = |(policy, parsed): (&String, Policy)| {
        let name = row_name(&row.workload.name, policy);
        match comparison.under(&parsed) {
            Some(slice) => {
                let of = Row::of_comparison(&name, host, names, &slice, &[]);
                Row { origins: vec![row.origin(&slice)], ..of }
            }
            None => Row::without(&name, host, names, "the comparison has no such policy"),
        }
    };
    policies.map(of_policy).collect()
}

/// A published figure of a variant, in the form of a published figure of the matrix of variants.
fn published_of_variant(definition: &Definition, one: &Published) -> Published {
    let policy = one.policy.as_ref().unwrap_or(&definition.baseline);
    let workload = one.workload.as_ref().map(|workload| row_name(workload, policy));
    Published { policy: one.variant.clone(), workload, ..one.clone() }
}
