//! The answer of a comparison of kernels under several policies. Policies are alternatives, so a mean over them would describe no
//! program: each policy has its own clause.

use study::control::BARE;
use study::guest::NO_STUDY;
use study::metric::{Unit, names};
use study::stats::Effect;
use study_files::matrix::{Cell, Conclusion, Row};

use super::amount::Amount;
use super::cells::open_range;
use super::{HostOf, Report};
use crate::figure;
use crate::text::enumerate;

/// Whether a report compares kernels that were named on the command line, with a row per policy.
pub(super) fn is_of_kernels(report: &Report<'_>) -> bool {
    report.definition.name == NO_STUDY && report.columns_of(report.matrix) == "boot"
}

/// Whether each byte that a kernel clears counts as an instruction. x86 kernels clear pages by `rep stosb`, and an emulator counts each
/// of its steps.
pub(super) fn counts_cleared_bytes(report: &Report<'_>) -> bool {
    let is_x86 = |host: &HostOf| host.machine.arch == "x86_64";
    report.matrix.rows.iter().any(|row| row.metric == names::INSTRUCTIONS) && report.hosts.iter().any(is_x86)
}

/// The policy and the kernel of a cell.
pub(super) fn names_of<'a>(report: &Report<'_>, row: &'a Row, cell: &'a Cell) -> (&'a str, &'a str) {
    if report.columns_of(report.matrix) != "boot" {
        return (&cell.policy, &row.machine);
    }
    let workloads = report.definition.workloads.iter();
    let policy = workloads.filter_map(|one| row.workload.strip_prefix(&one.name)?.strip_prefix(" under ")).next();
    (policy.unwrap_or(&row.workload), &cell.policy)
}

/// A kernel under a policy, compared with the baseline kernel under the same policy.
struct Compared<'a> {
    policy: &'a str,
    /// The policy that is the baseline of the policies on each kernel.
    baseline_policy: &'a str,
    kernel: &'a str,
    row: &'a Row,
    cell: &'a Cell,
}

impl Compared<'_> {
    fn effect(&self) -> Option<&Effect> {
        self.cell.effects.get(&self.row.metric)
    }

    fn is_shown(&self) -> bool {
        matches!(self.cell.conclusion, Conclusion::Better | Conclusion::Worse)
    }

    /// `under thp`. The run without the tracer is named by the baseline policy, under which it runs.
    fn place(&self) -> String {
        if self.policy == BARE {
            format!("under {} without the tracer (bare)", self.baseline_policy)
        } else {
            format!("under {}", self.policy)
        }
    }

    /// The interval of a change that is not shown to exist, or why its interval is not reported.
    fn not_shown(&self) -> String {
        match self.cell.conclusion {
            Conclusion::WithinTracerCost => " (no more than the tracer's cost)".to_owned(),
            _ => self.effect().map(open_range).unwrap_or_default(),
        }
    }

    /// Whether there is a change, but no interval that could show it.
    fn is_without_interval(&self) -> bool {
        self.cell.conclusion != Conclusion::WithinTracerCost && self.effect().is_some_and(|effect| effect.low.is_none())
    }

    fn amount(&self, effect: &Effect) -> Amount {
        let is_count = figure::metric(&[], &self.row.metric).unit == Unit::Count;
        Amount::of(&figure::title(&self.row.metric), is_count, effect)
    }
}

/// Each kernel except the baseline under each policy, if there is a figure.
fn compared<'a>(report: &'a Report<'_>) -> Vec<Compared<'a>> {
    let cells = report.matrix.rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell)));
    let others = cells.filter(|(_, cell)| {
        cell.policy != report.matrix.baseline
            && !matches!(cell.conclusion, Conclusion::None { .. } | Conclusion::Baseline)
    });
    let compared = |(row, cell): (&'a Row, &'a Cell)| {
        let (policy, kernel) = names_of(report, row, cell);
        Compared { policy, baseline_policy: &report.definition.baseline, kernel, row, cell }
    };
    others.map(compared).collect()
}

/// `new against old, measured in emulation: 18.4 % fewer instructions under thp (-18.7 to -17.9 %), ...; no difference is shown under
/// base (-0.4 to +0.9 %).`
pub(super) fn answer(report: &Report<'_>) -> String {
    let (all, baseline) = (compared(report), &report.matrix.baseline);
    let mut distinct: Vec<&str> = Vec::new();
    for one in &all {
        if !distinct.contains(&one.kernel) {
            distinct.push(one.kernel);
        }
    }
    let emulated = if report.matrix.rows.iter().any(|row| row.is_emulated) { " in emulation" } else { "" };
    let of_kernel = |kernel: &&str| {
        let (shown, open): (Vec<_>, Vec<_>) =
            all.iter().filter(|one| one.kernel == *kernel).partition(|one| one.is_shown());
        let mut clauses: Vec<String> = shown.iter().filter_map(|one| clause(one)).collect();
        let (observed, open): (Vec<_>, Vec<_>) = open.into_iter().partition(|one| one.is_without_interval());
        if !observed.is_empty() {
            let seen: Vec<String> = observed.iter().filter_map(|one| clause(one)).collect();
            clauses.push(format!("observed, without an interval (too few blocks or boots): {}", enumerate(&seen)));
        }
        if !open.is_empty() {
            let ranges = open.iter().map(|one| format!("{}{}", one.place(), one.not_shown()));
            clauses.push(format!("no difference is shown {}", enumerate(&ranges.collect::<Vec<_>>())));
        }
        format!("{kernel} against {baseline}, measured{emulated}: {}", clauses.join("; "))
    };
    match distinct.iter().map(of_kernel).collect::<Vec<_>>().join(". ") {
        none if none.is_empty() => format!("Nothing can be compared with {baseline}: no other kernel has a figure."),
        text => format!("{text}."),
    }
}

/// `18.4 % fewer instructions under thp (-18.7 to -17.9 %)`
fn clause(one: &Compared<'_>) -> Option<String> {
    let effect = one.effect()?;
    let amount = one.amount(effect);
    let range = amount.range(effect).map(|range| format!(" ({range})")).unwrap_or_default();
    Some(format!("{} {}{range}", amount.of_noun(), one.place()))
}

/// The largest change that was shown, as a title.
pub(super) fn title(report: &Report<'_>) -> String {
    let all = compared(report);
    let size = |one: &&Compared<'_>| one.effect().map_or(0.0, |effect| effect.ratio.ln().abs());
    let largest = all.iter().filter(|one| one.is_shown()).max_by(|one, other| size(one).total_cmp(&size(other)));
    let baseline = &report.matrix.baseline;
    match largest.and_then(|one| Some((one, one.effect()?))) {
        Some((one, effect)) => format!("{} has {} {}", one.kernel, one.amount(effect).against(baseline), one.place()),
        None => format!("No difference from {baseline} is shown"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::with_kernels_report;
    use super::*;

    #[test]
    fn only_x86_counts_each_cleared_byte() {
        with_kernels_report(&[("thp", Conclusion::Better, 0.8)], |report| {
            assert!(!counts_cleared_bytes(report), "a time is no count");
            let mut matrix = report.matrix.clone();
            matrix.rows[0].metric = names::INSTRUCTIONS.to_owned();
            let mut counting = Report { matrix: &matrix, ..report.clone() };
            assert!(counts_cleared_bytes(&counting));
            counting.hosts[0].machine.arch = "aarch64".to_owned();
            assert!(!counts_cleared_bytes(&counting));
        });
    }

    #[test]
    fn each_policy_has_its_own_clause_and_no_mean() {
        let rows = [
            ("bare", Conclusion::Worse, 1.02),
            ("base", Conclusion::Undecided, 1.001),
            ("thp", Conclusion::Better, 0.8),
        ];
        with_kernels_report(&rows, |report| {
            assert!(is_of_kernels(report));
            let text = answer(report);
            assert!(text.starts_with("base-64k against base-4k, measured: 2.0 % more "), "{text}");
            assert!(text.contains("under base without the tracer (bare)") && text.contains("20.0 % less "), "{text}");
            assert!(
                text.contains("under thp (-21") && text.contains("; no difference is shown under base ("),
                "{text}"
            );
            assert!(!text.contains("mean"), "{text}");
            assert!(
                title(report).starts_with("base-64k has 20.0 % less ") && title(report).ends_with(" base-4k under thp")
            );
        });
        with_kernels_report(&[], |report| assert!(answer(report).contains("no other kernel has a figure")));
    }
}
