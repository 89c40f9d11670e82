//! The series on a terminal, and the outcome of assertions.

use study::kernel_series::assertion::{Judged, Tolerance};
use study::kernel_series::{Change, Kernel, Pair, compared};

use super::Report;
use super::words::{bound, percent, unchanged, value};
use crate::capabilities::diff;
use crate::grid;
use crate::text::{fold, printable};

/// What changed from each kernel to the next.
pub fn screen(report: &Report<'_>, width: usize) -> String {
    let series = report.series;
    let mut parts: Vec<String> = Vec::new();
    if let [only] = &series.kernels[..] {
        parts.push(of_one(only, report, width));
    }
    for pair in compared(&series.kernels, &series.workloads) {
        parts.push(of_pair(&pair, width));
    }
    parts.extend(missing(&series.kernels, width));
    parts.join("\n\n")
}

/// `6.1 (6.1.0-57-amd64)`
pub(super) fn name_of(kernel: &Kernel) -> String {
    let name = printable(&kernel.name);
    let release = printable(&kernel.release);
    if name == release { name } else { format!("{name} ({release})") }
}

fn of_pair(pair: &Pair<'_>, width: usize) -> String {
    let mut text = fold(&format!("{} → {}", name_of(pair.old), name_of(pair.new)), width, 4);
    if !pair.changes.is_empty() {
        let rows = pair.changes.iter().map(row);
        text = text + "\n" + &grid::plain(["workload", "figure", "old", "new", "change", "bound"], rows, width);
    }
    text = text + "\n" + &fold(&unchanged(pair), width, 4);
    for line in one_sided(pair) {
        text = text + "\n" + &fold(&line, width, 4);
    }
    if let (Some(old), Some(new)) = (&pair.old.capabilities, &pair.new.capabilities) {
        text = text + "\n\ncapabilities that changed\n" + &diff::text(old, new, width);
    }
    text
}

fn row(change: &Change) -> [String; 6] {
    let Change { workload, figure, old, new } = change;
    let [old, new] = [old, new].map(|one| value(figure, one.median));
    [workload.clone(), figure.clone(), old, new, percent(change.ratio()), bound(change)]
}

/// Figures that only one of two kernels has, in one sentence for each kernel.
pub(super) fn one_sided(pair: &Pair<'_>) -> Vec<String> {
    let of_kernel = |kernel: &Kernel| {
        let figure = |(workload, figure): &(String, String)| {
            let found = kernel.value(workload, figure)?;
            Some(format!("{figure} of {workload} ({})", value(figure, found.median)))
        };
        let figures: Vec<String> = pair.one_sided.iter().filter_map(figure).collect();
        let is_partial = figures.iter().any(|figure| figure.contains("_seen_bytes "));
        let why =
            if is_partial { "; \"seen\": kernels before 6.7 do not show memory that is unmapped in part" } else { "" };
        (!figures.is_empty()).then(|| format!("only {}: {}{why}", printable(&kernel.name), figures.join(", ")))
    };
    [pair.old, pair.new].into_iter().filter_map(of_kernel).collect()
}

/// The figures of a series of one kernel.
fn of_one(kernel: &Kernel, report: &Report<'_>, width: usize) -> String {
    let rows = report.series.workloads.iter().flat_map(|workload| {
        kernel.figures(&workload.name).into_iter().filter_map(|figure| {
            let found = kernel.value(&workload.name, figure)?;
            let spread = value(figure, found.spread);
            Some([workload.name.clone(), figure.to_owned(), value(figure, found.median), spread])
        })
    });
    let table = grid::plain(["workload", "figure", "value", "spread over boots"], rows, width);
    format!("{}\n{table}", name_of(kernel))
}

/// Why workloads have no figures.
pub(super) fn missing_lines(kernels: &[Kernel]) -> Vec<String> {
    let of_kernel = |kernel: &Kernel| {
        let line = |(workload, why): (&String, &String)| format!("{workload}: {}: {why}", kernel.name);
        kernel.missing.iter().map(line).collect::<Vec<_>>()
    };
    kernels.iter().flat_map(of_kernel).collect()
}

fn missing(kernels: &[Kernel], width: usize) -> Option<String> {
    let lines = missing_lines(kernels);
    let text: Vec<String> = lines.iter().map(|line| fold(&format!("  {}", printable(line)), width, 4)).collect();
    (!text.is_empty()).then(|| format!("no figures\n{}", text.join("\n")))
}

/// The outcome of each assertion, one line each.
pub fn judged(outcomes: &[Judged], base: &str, kernel: &str, width: usize) -> String {
    let line = |one: &Judged| {
        let figure = &one.assertion.figure;
        let allowed = match one.assertion.tolerance {
            Tolerance::Ratio(ratio) => percent(Some(ratio)),
            Tolerance::Amount(amount) if amount < 0.0 => format!("-{}", value(figure, -amount)),
            Tolerance::Amount(amount) => format!("+{}", value(figure, amount)),
        };
        let change = (one.base.median != 0.0).then(|| one.found.median / one.base.median - 1.0);
        let close = if one.is_within_spread() {
            "; boots of one image differ by more than the distance to the limit: allow more, or give --boots"
        } else {
            ""
        };
        let text = format!(
            "{}: {figure} of {} is {} on {}, and was {} on {} ({}); {allowed} is allowed{close}",
            if one.holds { "holds" } else { "does not hold" },
            one.assertion.workload,
            value(figure, one.found.median),
            printable(kernel),
            value(figure, one.base.median),
            printable(base),
            percent(change),
        );
        fold(&text, width, 4)
    };
    outcomes.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn a_pair_lists_what_changed_and_counts_the_rest() {
        let series = sample::series();
        let text = screen(&Report { series: &series, configurations: Vec::new(), version: "1" }, 100);
        assert!(text.starts_with("6.1 (6.1.0-amd64) → 6.12 (6.12.0-amd64)\n"), "{text}");
        let row = text.lines().find(|line| line.contains("12,005")).unwrap_or_else(|| panic!("{text}"));
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["command", "faults", "12,005", "13,000", "+8.29", "%", "10", "(0.083", "%)"]);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("not changed: 2 figures, 1 of them exactly equal in all boots; boots of"), "{text}");
        assert!(words.contains("swap-in: 6.1: this kernel has no zram"), "{text}");
    }

    #[test]
    fn an_outcome_has_both_values_and_what_is_allowed() {
        let series = sample::series();
        let [old, new] = &series.kernels[..] else { panic!() };
        let outcome = |text: &str| {
            let outcome = text.parse::<study::kernel_series::assertion::Assertion>().unwrap().judge(old, new).unwrap();
            judged(&[outcome], &old.name, &new.name, 400)
        };
        assert_eq!(
            outcome("faults<=+1%"),
            "does not hold: faults of command is 13,000 on 6.12, and was 12,005 on 6.1 (+8.29 %); +1.00 % is allowed"
        );
        assert!(outcome("faults<=+1000").starts_with("holds: "));
        assert!(outcome("faults<=+1000").contains("; +1,000 is allowed; boots of one image differ by more"));
    }
}
