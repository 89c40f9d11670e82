//! Names in a study's file that it does not make itself: policies, machines, metrics, figures of simulations.

use model::machine::BUILT_IN;
use model::policy::ModelPolicy;
use policy::Policy;
use study::definition::{Definition, HOST};
use study::metric::{Metric, names};

use super::series;
use crate::sim::cost;

/// Whether all names of a study are known.
///
/// # Errors
/// The first that is not, and the nearest known one.
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
    let mut strange = metrics.filter(|metric| !measured.contains(metric) && !cost::is_name(metric));
    match strange.next() {
        Some(metric) => Err(unknown("published.metric", "metric", metric, &[measured, figures].concat())),
        None => Ok(()),
    }
}

/// One of the host, or of model machines.
fn of_policy(policy: &str) -> Result<(), String> {
    match (policy.parse::<Policy>(), policy.parse::<ModelPolicy>()) {
        (Err(error), Err(_)) => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// The host, a model machine, or the file of one.
fn of_machine(machine: &str) -> Result<(), String> {
    let known: Vec<String> =
        std::iter::once(HOST).chain(BUILT_IN.iter().map(|(name, _)| *name)).map(str::to_owned).collect();
    if machine.ends_with(".toml") || known.iter().any(|known| known == machine) {
        Ok(())
    } else {
        Err(unknown("machines", "machine", machine, &known))
    }
}

/// Metrics that a trial of some workload has, by the names under which reports have them.
fn measured(definition: &Definition) -> Vec<String> {
    let general = Metric::of_every_trial().into_iter().map(|metric| metric.name);
    let inside = [names::ITERATION_S, names::FIRST_ITERATION_S].map(str::to_owned);
    let own = definition.workloads.iter().flat_map(|workload| &workload.metrics);
    let own = own.map(|metric| metric.split(['=', ':']).next().unwrap_or_default().to_owned());
    general.chain(inside).chain(own).collect()
}

fn unknown(key: &str, kind: &str, name: &str, known: &[String]) -> String {
    let nearest = nearest(name, known).map(|nearest| format!("; the nearest is {nearest}")).unwrap_or_default();
    let mut known = known.to_vec();
    known.sort();
    known.dedup();
    format!("{key}: there is no {kind} {name:?}{nearest}; there are {}", known.join(", "))
}

/// The known name that is like this one, if any is: a third of it may be different.
pub fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a String> {
    let distance = |known: &&String| strsim::damerau_levenshtein(name, known);
    let is_similar = |known: &&String| distance(known) <= known.len().max(name.len()) / 3;
    known.iter().min_by_key(distance).filter(is_similar)
}
