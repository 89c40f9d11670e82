//! Checks names in a study file that are defined elsewhere: policies, machines, metrics, simulated figures.

use model::machine::BUILT_IN;
use model::policy::ModelPolicy;
use policy::Policy;
use policy::similar::nearest;
use study::metric::{Metric, names};
use study_files::definition::{Definition, HOST};

use super::series;
use crate::sim::cost;

/// Checks that all names in a study are known.
///
/// # Errors
/// The first unknown name, with the nearest known one.
pub fn check(definition: &Definition) -> Result<(), String> {
    definition.policies.iter().try_for_each(|policy| of_policy(policy))?;
    definition.machines.iter().try_for_each(|machine| of_machine(machine))?;
    series::check(definition)?;
    let figures = cost::names();
    if !cost::is_name(&definition.model_primary) {
        return Err(unknown("model_primary", "figure of simulations", &definition.model_primary, &figures));
    }
    let measured = measured(definition);
    let metrics = definition.published.iter().filter_map(|one| one.metric.as_ref());
    let mut unknown_metrics = metrics.filter(|metric| !measured.contains(metric) && !cost::is_name(metric));
    match unknown_metrics.next() {
        Some(metric) => Err(unknown("published.metric", "metric", metric, &[measured, figures].concat())),
        None => Ok(()),
    }
}

/// Checks a policy of the host or of model machines.
fn of_policy(policy: &str) -> Result<(), String> {
    match (policy.parse::<Policy>(), policy.parse::<ModelPolicy>()) {
        (Err(error), Err(_)) => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Checks that the name is the host, a model machine, or a machine file.
fn of_machine(machine: &str) -> Result<(), String> {
    let known: Vec<String> =
        std::iter::once(HOST).chain(BUILT_IN.iter().map(|(name, _)| *name)).map(str::to_owned).collect();
    if machine.ends_with(".toml") || known.iter().any(|known| known == machine) {
        Ok(())
    } else {
        Err(unknown("machines", "machine", machine, &known))
    }
}

/// The metrics that the trials of the workloads have, by their names in reports.
fn measured(definition: &Definition) -> Vec<String> {
    let general = Metric::of_every_trial().into_iter().map(|metric| metric.name);
    let inside = [names::ITERATION_S, names::FIRST_ITERATION_S].map(str::to_owned);
    let declared = definition.workloads.iter().flat_map(|workload| &workload.metrics);
    let declared = declared.map(|metric| metric.split(['=', ':']).next().unwrap_or_default().to_owned());
    general.chain(inside).chain(declared).collect()
}

fn unknown(key: &str, kind: &str, name: &str, known: &[String]) -> String {
    let nearest = nearest(name, known).map(|nearest| format!("; the nearest is {nearest}")).unwrap_or_default();
    let mut known = known.to_vec();
    known.sort();
    known.dedup();
    format!("{key}: there is no {kind} {name:?}{nearest}; there are {}", known.join(", "))
}
