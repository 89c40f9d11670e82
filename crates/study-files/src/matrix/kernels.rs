//! Kernels compared under each policy, and policies compared on each kernel, both over boots of guests.
//!
//! A guest runs the trials of all policies interleaved, and boots of several kernels are interleaved as well. All trials of a
//! boot share what is decided at boot, and so do their medians, so a boot is one observation ([`study::stats::boots`]).

use super::basis::{coverage_ratio, trials_under};
use super::boots as axis;
use super::{Cell, Conclusion, Matrix, Row, RowSource};
use crate::definition::{Boot, Definition};
use policy::Admission;
use study::comparison::Comparison;
use study::guest::Clock;
use study::stats::boots::{self, Limitation, MeasuredBoots, MergeError};

/// The suffix of the name of a host or kernel that was emulated.
pub const EMULATED: &str = ", emulated";

/// The matrix of kernels: a row per workload and policy, a column per kernel. If a kernel cannot apply a policy, its
/// cell says why. `workloads` are pairs of a workload and its comparisons, each with the name of its host.
pub fn of_kernels(definition: &Definition, workloads: &[(&str, Vec<(String, &Comparison)>)]) -> Option<Matrix> {
    let baseline = axis::baseline(&definition.boots)?;
    let names: Vec<String> = definition.boots.iter().map(|boot| boot.name.clone()).collect();
    let of_workload = |(workload, named): &(&str, Vec<(String, &Comparison)>)| {
        let named = &latest(definition, named);
        let mut rows: Vec<Row> = axis::rows(definition, workload, named);
        for policy in &definition.policies {
            let name = axis::row_name(workload, policy);
            for row in rows.iter_mut().filter(|row| row.workload == name) {
                row.is_emulated = named.iter().any(|(_, one)| is_emulated(one));
                row.notes.extend(limits(named.iter().map(|(_, one)| *one)));
                row.cells.iter_mut().for_each(|cell| explain(definition, cell, policy, named));
            }
        }
        rows
    };
    let mut matrix = Matrix::of(&names, &names[baseline], workloads.iter().flat_map(of_workload).collect(), &[]);
    // A booted kernel is in force, whatever pages it gives. The cells say under which policy it gave none.
    matrix.totals.iter_mut().for_each(|total| total.is_held = true);
    Some(matrix)
}

/// Adds to a cell why its kernel could not apply the policy, or why the pages are not those of the policy.
fn explain(definition: &Definition, cell: &mut Cell, policy: &str, named: &[(String, &Comparison)]) {
    let Some(boot) = definition.boots.iter().find(|boot| boot.name == cell.policy) else { return };
    let own: Vec<&Comparison> = of_boot(boot, named).collect();
    if !matches!(cell.conclusion, Conclusion::None { .. }) {
        let trials = trials_under(&own, policy);
        cell.basis = std::mem::take(&mut cell.basis).with_causes(&trials);
        cell.coverage_ratio = coverage_ratio(&trials);
        return;
    }
    let why = own.iter().find_map(|comparison| refused(comparison, policy));
    if let Some(why) = why {
        cell.conclusion = Conclusion::None { why };
    }
}

/// The comparisons of each boot that match its latest comparison: a kernel that was rebuilt, or has another command line,
/// counts as another kernel even under the same name.
fn latest<'a>(definition: &Definition, named: &[(String, &'a Comparison)]) -> Vec<(String, &'a Comparison)> {
    let key = |one: &Comparison| (one.machine.kernel.clone(), one.machine.kernel_command_line.clone());
    let of = |boot: &Boot| {
        let last = of_boot(boot, named).last().map(key);
        let is_own =
            |(_, one): &&(String, &'a Comparison)| boot.lacks(&one.machine).is_none() && Some(key(one)) == last;
        named.iter().filter(is_own).cloned().collect::<Vec<_>>()
    };
    definition.boots.iter().flat_map(of).collect()
}

fn of_boot<'a>(boot: &'a Boot, named: &'a [(String, &'a Comparison)]) -> impl Iterator<Item = &'a Comparison> {
    named.iter().map(|(_, comparison)| *comparison).filter(|comparison| boot.lacks(&comparison.machine).is_none())
}

/// Why a comparison could not apply a policy.
fn refused(comparison: &Comparison, policy: &str) -> Option<String> {
    let arm = comparison.design.compared().find(|arm| comparison.design.arms[*arm].label == policy)?;
    match comparison.admissions.get(arm)? {
        Admission::Unsupported(why) => Some(why.to_string()),
        Admission::Admitted { .. } => None,
    }
}

/// The matrix of policies: a row per workload and kernel, a column per policy.
pub fn of_policies(definition: &Definition, workloads: &[(&str, Vec<(String, &Comparison)>)]) -> Matrix {
    let of_workload = |(workload, named): &(&str, Vec<(String, &Comparison)>)| {
        let named = latest(definition, named);
        definition.boots.iter().map(|boot| on_kernel(definition, workload, boot, &named)).collect::<Vec<Row>>()
    };
    let rows = workloads.iter().flat_map(of_workload).collect();
    Matrix::of(&definition.policies, &definition.baseline, rows, &[])
}

fn on_kernel(definition: &Definition, workload: &str, boot: &Boot, named: &[(String, &Comparison)]) -> Row {
    let own: Vec<&Comparison> = of_boot(boot, named).collect();
    let place = own.first().map_or_else(|| boot.name.clone(), |one| place(&boot.name, one));
    let without = |why: &str| Row::without(workload, &place, &definition.policies, why);
    let parts: Vec<MeasuredBoots> = own.iter().filter_map(|comparison| compared(comparison)).collect();
    let row = match boots::merge(&parts) {
        Err(_) if own.is_empty() => without("no boot of it has a result"),
        Err(MergeError::Nothing) => without("no trial of it counted"),
        Err(error) => without(&error.to_string()),
        Ok(mut merged) => {
            // Within a boot the trials of all policies are interleaved, so it is no limit that a boot measured several arms.
            merged
                .limits
                .retain(|limit| !matches!(limit, Limitation::SeveralArmsInABoot { .. } | Limitation::NoBoot { .. }));
            Row::of_boots(workload, &place, &definition.policies, &merged)
        }
    };
    let reason = |cell: &Cell| own.iter().find_map(|comparison| refused(comparison, &cell.policy));
    let explained = |cell: Cell| match (&cell.conclusion, reason(&cell)) {
        (Conclusion::None { .. }, Some(why)) => Cell { conclusion: Conclusion::None { why }, ..cell },
        (Conclusion::None { .. }, None) => cell,
        _ => {
            let trials = trials_under(&own, &cell.policy);
            let basis = cell.basis.clone().with_causes(&trials);
            Cell { basis, coverage_ratio: coverage_ratio(&trials), ..cell }
        }
    };
    let cells = row.cells.iter().cloned().map(explained).collect();
    let is_emulated = own.iter().any(|comparison| is_emulated(comparison));
    let notes = row.notes.iter().cloned().chain(limits(own.iter().copied())).collect();
    Row { cells, is_emulated, notes, origins: own.iter().map(|comparison| RowSource::of(comparison)).collect(), ..row }
}

/// What the clocks of the guests do not measure. Each limit is listed once.
fn limits<'a>(comparisons: impl Iterator<Item = &'a Comparison>) -> Vec<String> {
    let mut limits: Vec<String> = Vec::new();
    for limit in comparisons.filter_map(|one| Clock::of(&one.machine).limits()) {
        if !limits.iter().any(|known| known == limit) {
            limits.push(limit.to_owned());
        }
    }
    limits
}

/// Whether no figure of a comparison is a time.
fn is_emulated(comparison: &Comparison) -> bool {
    Clock::of(&comparison.machine) != Clock::Real
}

/// Name of a host or kernel, marked if it was emulated.
pub fn place(name: &str, comparison: &Comparison) -> String {
    match Clock::of(&comparison.machine) {
        Clock::Real => name.to_owned(),
        Clock::Instructions | Clock::Nothing => format!("{name}{EMULATED}"),
    }
}

/// The observations of a boot about the compared policies, without control arms.
fn compared(comparison: &Comparison) -> Option<MeasuredBoots> {
    let part = MeasuredBoots::of(comparison)?;
    let kept: Vec<usize> = comparison.design.compared().collect();
    let place = |arm: usize| kept.iter().position(|one| *one == arm);
    let arms = kept.iter().map(|arm| part.design.arms[*arm].clone()).collect();
    let primary = comparison.analysis.as_ref().map_or(&part.design.primary, |analysis| &analysis.primary).clone();
    let design = study::comparison::Design { arms, baseline: place(part.design.baseline)?, primary, ..part.design };
    let boots = part.boots.into_iter();
    let boots = boots.filter_map(|boot| Some(boots::Boot { arm: place(boot.arm)?, ..boot })).collect();
    Some(MeasuredBoots { design, boots, ..part })
}
