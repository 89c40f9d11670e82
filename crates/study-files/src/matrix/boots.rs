//! Boots as an axis of any study: rows with boots as columns instead of policies, for each workload and policy.
//!
//! Trials of two boots cannot be interleaved. So one comparison gives one observation of a policy, its medians
//! ([`study::stats::boots`]), and boots are compared within hosts.

use std::collections::BTreeSet;

use super::origin::RowSource;
use super::row::Row;
use crate::definition::{Boot, Definition};
use policy::machine::Machine;
use study::comparison::{Comparison, Design};
use study::control::Role;
use study::stats::boots::{self, Limitation, MeasuredBoots, MergeError};
use study::trial::Arm;

/// Used in place of a machine's name if boots of several hosts are compared.
pub const ALL_HOSTS: &str = "all hosts, boots compared within hosts";

/// The baseline boot, which is the boot marked as baseline, or else the first in the list.
pub fn baseline(boots: &[Boot]) -> Option<usize> {
    boots.iter().position(|boot| boot.is_baseline).or((!boots.is_empty()).then_some(0))
}

/// The name of a row, from the workload and the policy under which boots are compared.
pub fn row_name(workload: &str, policy: &str) -> String {
    format!("{workload} under {policy}")
}

/// The rows of a workload: for each policy, one for each host with several of the boots, and one for all hosts
/// together. `named` are the workload's comparisons, each with the name of its host.
pub fn rows(definition: &Definition, workload: &str, named: &[(String, &Comparison)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for policy in &definition.policies {
        let parts: Vec<(&str, &Comparison, MeasuredBoots)> = named
            .iter()
            .filter_map(|(host, comparison)| {
                let part = of_policy(definition, policy, comparison, host)?;
                Some((host.as_str(), *comparison, part))
            })
            .collect();
        let mut hosts: Vec<&str> = Vec::new();
        for (host, ..) in &parts {
            if !hosts.contains(host) {
                hosts.push(host);
            }
        }
        let name = row_name(workload, policy);
        let of_host = |host: &str| parts.iter().filter(|(of, ..)| *of == host).collect::<Vec<_>>();
        rows.extend(hosts.iter().map(|host| row(definition, &name, host, &of_host(host))));
        if hosts.len() > 1 {
            rows.push(row(definition, &name, ALL_HOSTS, &parts.iter().collect::<Vec<_>>()));
        }
    }
    rows
}

fn row(definition: &Definition, name: &str, machine: &str, parts: &[&(&str, &Comparison, MeasuredBoots)]) -> Row {
    let names: Vec<String> = definition.boots.iter().map(|boot| boot.name.clone()).collect();
    let Some((_, _, first)) = parts.first() else { return Row::without(name, machine, &names, "it was not measured") };
    // On different hosts, command lines differ only in the path of pagelab, which is no difference of the command.
    let with_first = |part: &MeasuredBoots| MeasuredBoots { invocation: first.invocation.clone(), ..part.clone() };
    let with_first: Vec<MeasuredBoots> = parts.iter().map(|(_, _, part)| with_first(part)).collect();
    let row = match boots::merge(&with_first) {
        Err(error @ MergeError::Designs { .. }) => Row::without(name, machine, &names, &error.to_string()),
        Err(MergeError::Nothing) => Row::without(name, machine, &names, "no trial of it counted"),
        Ok(mut merged) => {
            merged.limits.retain(|limit| is_limit(definition, limit));
            Row::of_boots(name, machine, &names, &merged)
        }
    };
    Row { origins: parts.iter().map(|(_, comparison, _)| RowSource::of(comparison)).collect(), ..row }
}

/// Whether a limit applies to boots here. Different kernels are no limit if the study asks about them, and a missing
/// boot is reported by its cell.
fn is_limit(definition: &Definition, limit: &Limitation) -> bool {
    let is_asked = || {
        definition.boots.iter().any(|boot| {
            boot.kernel.is_some() || boot.build.is_some() || boot.base_page.is_some() || boot.guest.is_some()
        })
    };
    match limit {
        Limitation::NoBoot { .. } => false,
        Limitation::Kernels { .. } => !is_asked(),
        _ => true,
    }
}

/// The observation of a policy in a comparison's boot. `None` if the comparison lacks the policy or a trial that counts, or if
/// its boot matches none or several of the study's boots. Boots of one host with different memory sizes are only compared if
/// the study compares memory sizes, or if they are guests.
fn of_policy(definition: &Definition, policy: &str, comparison: &Comparison, host: &str) -> Option<MeasuredBoots> {
    let boot = of_machine(&definition.boots, comparison)?;
    let own = arm_of(&comparison.design, policy)?;
    let part = MeasuredBoots::of(comparison)?;
    let has_any_memory = definition.compares_memory() || definition.boots[boot].guest.is_some();
    let whole = format!("{host}, {}", comparison.machine.host_name());
    let of_host = |one: &boots::Boot| if has_any_memory { whole.clone() } else { one.host.clone() };
    let named = |one: &boots::Boot| boots::Boot { arm: boot, host: of_host(one), ..one.clone() };
    let boots: Vec<boots::Boot> = part.boots.iter().filter(|one| one.arm == own).map(named).collect();
    let arm = &comparison.design.arms[own];
    let arms = definition.boots.iter().map(|boot| Arm { label: boot.name.clone(), ..arm.clone() }).collect();
    let primary = comparison.analysis.as_ref().map_or(&comparison.design.primary, |analysis| &analysis.primary);
    let design =
        Design { arms, baseline: baseline(&definition.boots)?, primary: primary.clone(), ..comparison.design.clone() };
    (!boots.is_empty()).then_some(MeasuredBoots { design, invocation: part.invocation, boots })
}

/// The arm of a policy, or the bare arm with that label.
fn arm_of(design: &Design, label: &str) -> Option<usize> {
    let is_own = |arm: &usize| design.arms[*arm].label == label;
    let bare = || (0..design.arms.len()).filter(|arm| design.arms[*arm].role == Role::Bare).find(is_own);
    design.compared().find(is_own).or_else(bare)
}

/// The boot of the study that a comparison's machine matches, if it is exactly one.
fn of_machine(boots: &[Boot], comparison: &Comparison) -> Option<usize> {
    let is_own = |at: &usize| boots[*at].lacks(&comparison.machine).is_none();
    let own: Vec<usize> = (0..boots.len()).filter(is_own).collect();
    match own[..] {
        [one] => Some(one),
        _ => None,
    }
}

/// Describes each boot whose measurements are not used, because it matches none or several of the study's boots.
pub fn unmatched<'a>(definition: &Definition, machines: impl IntoIterator<Item = &'a Machine>) -> Vec<String> {
    let description = |machine: &Machine| {
        let is_own = |boot: &&Boot| boot.lacks(machine).is_none();
        let own: Vec<&str> = definition.boots.iter().filter(is_own).map(|boot| boot.name.as_str()).collect();
        match own[..] {
            [_] => None,
            [] => {
                let release = machine.kernel.split_whitespace().next().unwrap_or_default();
                Some(format!("a boot of Linux {release} matches no boot of the study, and is not used"))
            }
            _ => Some(format!("a boot matches {}, and is not used", own.join(" and "))),
        }
    };
    let all: BTreeSet<String> = machines.into_iter().filter_map(description).collect();
    if definition.boots.is_empty() { Vec::new() } else { all.into_iter().collect() }
}
