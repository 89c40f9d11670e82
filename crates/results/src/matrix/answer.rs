//! The results of a study as sentences: its answer, whether the origin's claim is reproduced, and why figures here
//! differ from the published ones.

use study::guest::NO_STUDY;
use study::metric::{Provenance, Unit};
use study::stats::Effect;
use study_files::definition::{Definition, Published, Size};
use study_files::matrix::{Agreement, Cell, Claim, Conclusion, Filled, Matrix, Reproduction, Row, Total, TotalShare};

use super::amount::Amount;
use super::cells::{named, open_range, why};
use super::{MachineFigures, Report, all_machine_figures, by_kernel, counted, form, rows_of};
use crate::figure::{self, Change};
use crate::text::enumerate;

/// A part of an answer: the machine of its figures, and what they say. The machine is empty in a sentence of its own.
type Part = (String, String);

/// The answer of a study: the change of each configuration that the origin ranks, if the study has the origin's table. Otherwise
/// the change that each policy causes against the baseline, as measured, or as modelled if nothing was measured. A study of
/// variants or boots gets the same sentences for those.
pub fn answer(report: &Report<'_>) -> String {
    if by_kernel::is_of_kernels(report) {
        return by_kernel::answer(report);
    }
    if let Some(kernels) = report.over_kernels() {
        let largest = largest_figure(kernels).map(|sentence| format!(" {sentence}")).unwrap_or_default();
        // A kernel is not asked for: it was booted.
        let mut booted = kernels.clone();
        booted.totals.iter_mut().for_each(|total| total.is_held = true);
        return in_sentences(of_matrix(&booted, "kernel", "rows (workloads under policies)")) + &largest;
    }
    let of_form = |form: &Filled| {
        let (name, provenance) = named((&form.machine, Provenance::Measured));
        Some((format!("{name} ({provenance})"), form::changes(form)?))
    };
    let forms: Vec<Part> = report.forms.iter().filter_map(of_form).collect();
    if !forms.is_empty() {
        return in_sentences(forms);
    }
    let rows = of_rows(report.definition);
    let policies = report.policies().map(|matrix| of_matrix(matrix, "policy", rows));
    let variants = report.over_variants.iter().map(|matrix| of_matrix(matrix, "variant", rows));
    let counted =
        report.counted.iter().filter_map(|counted_costs| Some((String::new(), counted::answer(counted_costs)?)));
    in_sentences(policies.into_iter().chain(variants).flatten().chain(counted))
}

/// Parts of an answer as text. A machine that several parts share is written once.
fn in_sentences(parts: impl IntoIterator<Item = Part>) -> String {
    let mut text = String::new();
    let mut previous: Option<String> = None;
    for (machine, clauses) in parts {
        let separator = match &previous {
            None => "",
            Some(before) if before.is_empty() || machine.is_empty() => ". ",
            Some(_) => "; ",
        };
        let is_repeated = machine.is_empty() || previous.as_ref() == Some(&machine);
        let name = if is_repeated { String::new() } else { format!("{machine}: ") };
        text.push_str(&format!("{separator}{name}{clauses}"));
        previous = Some(machine);
    }
    text + "."
}

/// The largest change of a single figure that is shown, if it is not that of the primary metric.
fn largest_figure(kernels: &Matrix) -> Option<String> {
    let is_shown =
        |effect: &Effect| effect.low.is_some_and(|low| low > 1.0) || effect.high.is_some_and(|high| high < 1.0);
    let of_cell = |row: &'_ Row, cell: &Cell| -> Vec<(String, f64, String)> {
        let shown = cell.effects.iter().filter(|(_, effect)| is_shown(effect) && effect.ratio > 0.0);
        let words = |name: &str, effect: &Effect| {
            let change = Change::of(effect);
            let range = change.range().map(|range| format!(" ({range} %)")).unwrap_or_default();
            format!("{} of {} {}{range} in {}", figure::title(name), row.workload, change.estimate(), cell.policy)
        };
        shown.map(|(name, effect)| (name.clone(), effect.ratio.ln().abs(), words(name, effect))).collect()
    };
    let all = kernels.rows.iter().flat_map(|row| row.cells.iter().flat_map(|cell| of_cell(row, cell)));
    let (metric, _, words) = all.max_by(|one, other| one.1.total_cmp(&other.1))?;
    let is_primary = kernels.rows.iter().any(|row| row.metric == metric);
    (!is_primary).then(|| format!("The largest change of a single figure: {words}."))
}

/// The noun for the rows of a table: workloads, or policies where kernels are compared with one workload.
pub(super) fn of_rows(definition: &Definition) -> &'static str {
    if definition.name == NO_STUDY { "policies" } else { "workloads" }
}

/// The answer in a clause, for a title: the largest change that is shown. Changes of boots and variants come before those of policies.
pub fn title(report: &Report<'_>) -> String {
    if by_kernel::is_of_kernels(report) {
        return by_kernel::title(report);
    }
    let matrices: Vec<&Matrix> = report.others().chain(report.policies()).collect();
    let shown = matrices.iter().find_map(|matrix| largest(matrix).or_else(|| largest_of_few(matrix)));
    let counted = || report.counted.iter().find_map(counted::title);
    let is_compared =
        |matrix: &&Matrix| matrix.totals.iter().any(|total| total.policy != matrix.baseline && total.mean.is_some());
    shown.or_else(counted).unwrap_or_else(|| match matrices.iter().copied().find(is_compared) {
        Some(matrix) => format!("No difference from {} is shown", matrix.baseline),
        None => "Nothing can be compared yet".to_owned(),
    })
}

/// `thp has 12.3 % less wall time than base over 12 workloads`: the largest change of a matrix. Any measured change comes before a
/// modelled one.
fn largest<'a>(matrix: &'a Matrix) -> Option<String> {
    let change = |total: &&'a Total| Some((*total, total.mean?, total.change()?));
    let is_shown = |total: &&Total| {
        let has_claim = matches!(total.conclusion, Conclusion::Better | Conclusion::Worse | Conclusion::Modelled);
        has_claim && total.policy != matrix.baseline
    };
    let of = |is_modelled: bool| {
        let totals = matrix.totals.iter().filter(|total| (total.provenance == Provenance::Modelled) == is_modelled);
        let changes = totals.filter(is_shown).filter_map(|total| change(&total));
        changes.max_by(|one, other| one.1.ratio.ln().abs().total_cmp(&other.1.ratio.ln().abs()))
    };
    let (total, mean, effect) = of(false).or_else(|| of(true))?;
    let over = if mean.of == 1 { String::new() } else { format!(" over {} workloads", mean.of) };
    let place = if total.provenance == Provenance::Modelled {
        format!(", modelled on {}", total.machine)
    } else {
        String::new()
    };
    Some(format!("{} has {}{over}{place}", asked(total), amount(total, &effect).against(&matrix.baseline)))
}

/// `thp has 12.3 % less wall time than base on sort`: the largest change that is shown on a workload, where the workloads are too few
/// for a mean.
fn largest_of_few(matrix: &Matrix) -> Option<String> {
    let of_total = |total: &Total| {
        let machine_figures = (total.machine.as_str(), total.provenance);
        let rows = rows_of(matrix, machine_figures).filter_map(|row| OnRow::of(row, &total.policy));
        rows.filter(OnRow::is_shown).map(|one| (one.effect.ratio.ln().abs(), one.in_words(&matrix.baseline))).collect()
    };
    let few = matrix.totals.iter().filter(|total| total.policy != matrix.baseline && total.has_too_few());
    let all = few.flat_map(|total| -> Vec<(f64, String)> { of_total(total) });
    all.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, words)| words)
}

/// The change of a policy on one workload.
struct OnRow<'a> {
    row: &'a Row,
    cell: &'a Cell,
    effect: Effect,
}

impl<'a> OnRow<'a> {
    /// `None` if the row makes no claim about the policy.
    fn of(row: &'a Row, policy: &str) -> Option<OnRow<'a>> {
        let cell = row.cells.iter().find(|cell| cell.policy == *policy).filter(|cell| cell.has_claim())?;
        Some(OnRow { row, cell, effect: *cell.effects.get(&row.metric)? })
    }

    fn is_shown(&self) -> bool {
        matches!(self.cell.conclusion, Conclusion::Better | Conclusion::Worse)
    }

    /// `thp`, or `asking for thp` if some memory did not get the policy's pages.
    fn asked(&self) -> String {
        if self.cell.is_held { self.cell.policy.clone() } else { format!("asking for {}", self.cell.policy) }
    }

    fn amount(&self) -> Amount {
        let is_count = figure::metric(&[], &self.row.metric).unit == Unit::Count;
        Amount::of(&figure::title(&self.row.metric), is_count, &self.effect)
    }

    /// `thp has 12.3 % less wall time than base on sort`
    fn in_words(&self, baseline: &str) -> String {
        format!("{} has {} on {}", self.asked(), self.amount().against(baseline), self.row.workload)
    }
}

/// A change in a list of changes.
struct Changed {
    ratio: f64,
    /// The policy, with `asking for` if some memory did not get its pages.
    subject: String,
    amount: Amount,
    effect: Effect,
    /// The workload, or the number of workloads.
    over: String,
}

/// `mthp-64k has 2.1 % less wall time than thp on average over 14 workloads (-3.0 to -1.1 %)`; a clause after another one of the same
/// metric and workloads does not repeat these: `base 8.1 % more (+5.0 to +11.2 %)`.
fn clauses_of(changes: &[Changed], baseline: &str) -> Vec<String> {
    let mut previous: Option<&Changed> = None;
    let mut clauses = Vec::new();
    for one in changes {
        let Changed { subject, amount, effect, over, .. } = one;
        let alike = previous.filter(|before| before.amount.is_alike(amount));
        let words = match alike {
            Some(_) => amount.change.clone(),
            None => format!("has {}", amount.against(baseline)),
        };
        let over = if alike.is_some_and(|before| before.over == *over) { "" } else { over };
        let range = amount.range(effect).map(|range| format!(" ({range})")).unwrap_or_default();
        clauses.push(format!("{subject} {words}{over}{range}"));
        previous = Some(one);
    }
    clauses
}

/// The answer of a matrix, machine by machine: the measured change of each policy against the baseline. If no measurement
/// gives a result, the answer says why, and then what the models give.
fn of_matrix(matrix: &Matrix, noun: &str, rows: &str) -> Vec<Part> {
    let all_machine_figures = all_machine_figures(matrix);
    let is_measured = |machine_figures: &&MachineFigures<'_>| machine_figures.1 != Provenance::Modelled;
    let has_figure =
        |machine_figures: &&MachineFigures<'_>| totals(matrix, **machine_figures).any(|total| total.change().is_some());
    let mut measured: Vec<_> = all_machine_figures.iter().filter(is_measured).collect();
    // A host on which nothing was measured is left out if another host has figures.
    if measured.iter().any(|machine_figures| has_cell(matrix, **machine_figures)) {
        measured.retain(|machine_figures| has_cell(matrix, **machine_figures));
    }
    let modelled: Vec<_> =
        all_machine_figures.iter().filter(|machine_figures| !is_measured(machine_figures)).filter(has_figure).collect();
    let shown: Vec<_> = match measured.iter().any(&has_figure) {
        true => measured.into_iter().filter(|machine_figures| has_figure(machine_figures)).collect(),
        false if modelled.is_empty() => return vec![(String::new(), unanswered(matrix, noun))],
        false => measured.into_iter().chain(modelled).collect(),
    };
    let of_machine = |machine_figures: &&MachineFigures<'_>| {
        let clauses = if has_figure(machine_figures) {
            clauses(matrix, **machine_figures, rows)
        } else {
            lacks(matrix, **machine_figures)
        };
        let (name, provenance) = named(**machine_figures);
        (format!("{name} ({provenance})"), clauses.join(", "))
    };
    shown.iter().map(of_machine).collect()
}

/// Whether any cell of a machine has a figure.
fn has_cell(matrix: &Matrix, machine_figures: MachineFigures<'_>) -> bool {
    let mut cells = rows_of(matrix, machine_figures).flat_map(|row| &row.cells);
    cells.any(|cell| !matches!(cell.conclusion, Conclusion::None { .. }))
}

fn totals<'a>(matrix: &'a Matrix, machine_figures: MachineFigures<'a>) -> impl Iterator<Item = &'a Total> {
    let baseline = &matrix.baseline;
    let is_own = move |total: &&Total| {
        (total.machine.as_str(), total.provenance) == machine_figures && total.policy != *baseline
    };
    matrix.totals.iter().filter(is_own)
}

/// The change of a total; the word `cost` replaces the metric if the workloads have several metrics.
pub(super) fn amount(total: &Total, effect: &Effect) -> Amount {
    let Some((metric, _)) = &total.metric else { return Amount::of("cost", false, effect) };
    let is_count = match total.provenance {
        Provenance::Modelled => !metric.ends_with("_bytes") && !metric.ends_with("_ratio"),
        _ => figure::metric(&[], metric).unit == Unit::Count,
    };
    Amount::of(&figure::title(metric), is_count, effect)
}

/// What the policies of one machine changed, by outcome.
#[derive(Default)]
struct Outcomes {
    changed: Vec<Changed>,
    /// Clauses of policies that are equivalent to the baseline.
    equivalent: Vec<String>,
    /// Policies without a shown difference, with their intervals.
    open: Vec<String>,
    /// Policies without a figure, by the clause that says so.
    without: Vec<(String, Vec<String>)>,
}

impl Outcomes {
    fn of(matrix: &Matrix, machine_figures: MachineFigures<'_>, rows: &str) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for total in totals(matrix, machine_figures) {
            if total.has_too_few() {
                rows_of(matrix, machine_figures).for_each(|row| outcomes.add_row(row, total, &matrix.baseline));
            } else {
                outcomes.add_total(total, &matrix.baseline, rows);
            }
        }
        outcomes.changed.sort_by(|one, other| one.ratio.total_cmp(&other.ratio));
        outcomes
    }

    fn add_row(&mut self, row: &Row, total: &Total, baseline: &str) {
        let Some(one) = OnRow::of(row, &total.policy) else {
            let cell = row.cells.iter().find(|cell| cell.policy == total.policy);
            let lack = lack(cell.map(|cell| &cell.conclusion));
            return self.add_without(lack, format!("{} on {}", total.policy, row.workload));
        };
        let over = format!(" on {}", row.workload);
        match one.cell.conclusion {
            Conclusion::Better | Conclusion::Worse => {
                let (ratio, amount, effect) = (one.effect.ratio, one.amount(), one.effect);
                self.changed.push(Changed { ratio, subject: one.asked(), amount, effect, over });
            }
            Conclusion::Equivalent => {
                self.equivalent.push(format!(
                    "{} is equivalent to {baseline}{over}{}",
                    one.asked(),
                    in_brackets(&one.effect)
                ));
            }
            _ => self.open.push(format!("{}{over}{}", one.asked(), open_range(&one.effect))),
        }
    }

    fn add_total(&mut self, total: &Total, baseline: &str, rows: &str) {
        let Some((mean, effect)) = total.mean.zip(total.change()) else {
            return self.add_without(lack(Some(&total.conclusion)), total.policy.clone());
        };
        let over = if mean.of == 1 { String::new() } else { format!(" on average over {} {rows}", mean.of) };
        match total.conclusion {
            Conclusion::Better | Conclusion::Worse | Conclusion::Modelled => {
                let (ratio, amount) = (mean.ratio, amount(total, &effect));
                self.changed.push(Changed { ratio, subject: asked(total), amount, effect, over });
            }
            Conclusion::Equivalent => {
                let metric = total.metric.as_ref().map(|(metric, _)| format!(" in {}", figure::title(metric)));
                let (metric, range) = (metric.unwrap_or_default(), in_brackets(&effect));
                self.equivalent.push(format!("{} is equivalent to {baseline}{metric}{over}{range}", asked(total)));
            }
            _ => self.open.push(format!("{}{}", asked(total), open_range(&effect))),
        }
    }

    fn add_without(&mut self, lack: &str, name: String) {
        match self.without.iter_mut().find(|(known, _)| known == lack) {
            Some((_, names)) => names.push(name),
            None => self.without.push((lack.to_owned(), vec![name])),
        }
    }
}

/// ` (-13.5 to -11.0 %)`; empty if the effect has no interval.
fn in_brackets(effect: &Effect) -> String {
    Change::of(effect).range().map(|range| format!(" ({range} %)")).unwrap_or_default()
}

/// Clauses on the policies of a machine: changes, equivalent policies, shares of the largest gain, undecided changes, and missing
/// figures.
fn clauses(matrix: &Matrix, machine_figures: MachineFigures<'_>, rows: &str) -> Vec<String> {
    let baseline = &matrix.baseline;
    let outcomes = Outcomes::of(matrix, machine_figures, rows);
    let mut clauses = clauses_of(&outcomes.changed, baseline);
    clauses.extend(outcomes.equivalent);
    clauses.extend(gain_shares(matrix, machine_figures));
    if !outcomes.open.is_empty() {
        clauses.push(format!("no difference from {baseline} is shown for {}", enumerate(&outcomes.open)));
    }
    clauses.extend(outcomes.without.iter().map(|(lack, names)| format!("{lack} for {}", enumerate(names))));
    clauses
}

/// `of the gain of thp, mthp-64k brings 62 % (48 to 79 %)`: for the other policies that gain, their share of the largest gain. Where
/// no policy gains, it is the baseline's gain: `of the gain of thp over base, ...`.
fn gain_shares(matrix: &Matrix, machine_figures: MachineFigures<'_>) -> Option<String> {
    let with_share = totals(matrix, machine_figures).filter_map(|total| Some((total, total.gain_share.as_ref()?)));
    // A share that can be anything between nothing and all says nothing.
    let is_bounded = |share: &TotalShare| share.low > 0.0 || share.high < 1.0;
    let is_named = |(total, share): &(&Total, &TotalShare)| match share.over {
        Some(_) => is_bounded(share),
        None => total.conclusion == Conclusion::Better,
    };
    let shares: Vec<_> = with_share.filter(is_named).collect();
    let clause = |(total, share): &(&Total, &TotalShare)| {
        format!("{} brings {}", asked(total), figure::gain_share((share.ratio, share.low, share.high)))
    };
    let TotalShare { of, over, .. } = shares.first()?.1;
    let name = |policy: &String| {
        totals(matrix, machine_figures).find(|total| total.policy == *policy).map_or(policy.clone(), asked)
    };
    let over = over.as_ref().map(|worst| format!(" over {}", name(worst))).unwrap_or_default();
    Some(format!("of the gain of {of}{over}, {}", enumerate(&shares.iter().map(clause).collect::<Vec<_>>())))
}

/// `thp`, or `asking for thp` if some memory did not get the policy's pages.
pub(super) fn asked(total: &Total) -> String {
    if total.is_held { total.policy.clone() } else { format!("asking for {}", total.policy) }
}

/// The beginning of a clause that names policies without a figure to attribute to them.
fn lack(conclusion: Option<&Conclusion>) -> &'static str {
    match conclusion {
        Some(Conclusion::WithinTracerCost) => "no more than the tracer's cost is shown",
        _ => "no figure to compare",
    }
}

/// Why a machine has no change to report: its baseline has no figure, its policies show no more than the tracer's cost, or else
/// the most frequent reason.
fn lacks(matrix: &Matrix, machine_figures: MachineFigures<'_>) -> Vec<String> {
    let baseline = &matrix.baseline;
    let cells = || rows_of(matrix, machine_figures).flat_map(|row| &row.cells);
    if has_cell(matrix, machine_figures) && !cells().any(|cell| cell.conclusion == Conclusion::Baseline) {
        let reason = main_reason(cells().filter(|cell| cell.policy == *baseline));
        let why = reason.map(|why| format!(" ({why})")).unwrap_or_default();
        return vec![format!("{baseline} has no figure{why}, so nothing can be compared with it")];
    }
    let known = unattributable(totals(matrix, machine_figures));
    let reason = main_reason(cells()).map(|why| format!(": {why}")).unwrap_or_default();
    if known.is_empty() { vec![format!("no policy has a figure{reason}")] } else { known }
}

/// Why there is no answer: the policies that show no more than the tracer's cost, or the most frequent reason.
fn unanswered(matrix: &Matrix, noun: &str) -> String {
    let mut lacks = unattributable(
        all_machine_figures(matrix).into_iter().flat_map(|machine_figures| totals(matrix, machine_figures)),
    );
    lacks.dedup();
    if lacks.is_empty() {
        lacks.extend(main_reason(matrix.rows.iter().flat_map(|row| &row.cells)).map(str::to_owned));
    }
    let why = if lacks.is_empty() { String::new() } else { format!(": {}", lacks.join(", ")) };
    format!("No {noun} can be compared with {} yet{why}", matrix.baseline)
}

/// The policies whose figures cannot be attributed to them, and why.
fn unattributable<'a>(totals: impl Iterator<Item = &'a Total>) -> Vec<String> {
    let is_unattributable = |total: &&Total| total.conclusion == Conclusion::WithinTracerCost;
    let clause = |total: &Total| format!("{} shows no more than the tracer's cost", total.policy);
    totals.filter(is_unattributable).map(clause).collect()
}

/// The most frequent reason among cells.
fn main_reason<'a>(cells: impl Iterator<Item = &'a Cell>) -> Option<&'a str> {
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for cell in cells {
        let Conclusion::None { why } = &cell.conclusion else { continue };
        match counted.iter_mut().find(|(known, _)| known == why) {
            Some((_, times)) => *times += 1,
            None => counted.push((why, 1)),
        }
    }
    // `rev`, because `max_by_key` returns the last of several equal maxima and the first reason is wanted.
    counted.into_iter().rev().max_by_key(|(_, times)| *times).map(|(why, _)| why)
}

/// The sentence about the origin's claim; `None` for kernels named on the command line, because such a series has no origin.
pub(crate) fn claimed(report: &Report<'_>) -> Option<String> {
    claim(report).filter(|_| report.definition.name != NO_STUDY)
}

/// Whether the study has a published figure, even if no figure here can be compared with it.
fn is_published(definition: &Definition) -> bool {
    let of_form = definition.form.iter().flat_map(|form| &form.rows);
    !definition.published.is_empty() || of_form.into_iter().any(|row| row.published.is_some())
}

/// Whether the origin's claim is reproduced: by figures of the matrix, or if there are none, by the counted work.
pub fn judge_claim(report: &Report<'_>) -> Claim {
    match (Claim::of(report.published()), &report.counted) {
        (Claim::NothingPublished, Some(counted_costs)) => counted::judge_claim(counted_costs),
        (Claim::NothingPublished, None) if is_published(report.definition) => Claim::NothingMeasured,
        (claim, _) => claim,
    }
}

/// Whether the origin's claim is confirmed, contradicted or undecided, and why figures differ: a sentence. `None` if
/// nothing is published.
pub fn claim(report: &Report<'_>) -> Option<String> {
    let figures = by_figure(report);
    if figures.is_empty()
        && let Some(counted_costs) = &report.counted
        && !counted_costs.counted.published.is_empty()
    {
        return Some(counted::claim(counted_costs));
    }
    if judge_claim(report) == Claim::NothingMeasured {
        let why = "nothing was measured that can be compared with its published figures";
        return Some(format!("The origin's claim is not judged: {why}."));
    }
    if figures.is_empty() {
        return None;
    }
    let results: Vec<&str> = figures.iter().map(|sets| of_figure(sets)).collect();
    let mut kinds: Vec<&str> = Vec::new();
    for kind in &results {
        if !kinds.contains(kind) {
            kinds.push(kind);
        }
    }
    let of_kind = |kind: &str| match results.iter().filter(|one| **one == kind).count() {
        1 => format!("1 is {kind}"),
        count => format!("{count} are {kind}"),
    };
    let figures = match (&kinds[..], results.len()) {
        ([kind], 1) => format!("its one published figure is {kind}"),
        ([kind], all) => format!("all of its {all} published figures are {kind}"),
        (kinds, all) => {
            let counted: Vec<String> = kinds.iter().map(|kind| of_kind(kind)).collect();
            format!("of {all} published figures {}", counted.join(", "))
        }
    };
    let claim = Claim::of(report.published()).describe();
    Some(format!("The origin's claim is, here, {claim}: {figures}{}.", why(&differences(report))))
}

/// The comparisons with each published figure, over all machines.
fn by_figure<'a>(report: &'a Report<'_>) -> Vec<Vec<&'a Reproduction>> {
    let mut figures: Vec<Vec<&Reproduction>> = Vec::new();
    for set in report.published() {
        match figures.iter_mut().find(|sets| is_same_figure(&sets[0].published, &set.published)) {
            Some(sets) => sets.push(set),
            None => figures.push(vec![set]),
        }
    }
    figures
}

/// Whether two published figures are the same figure of the same source. A figure appears twice if it is compared with
/// a policy and with a boot.
fn is_same_figure(one: &Published, other: &Published) -> bool {
    (&one.what, &one.source, &one.change) == (&other.what, &other.source, &other.change)
}

/// The joint result of all machines for one published figure.
fn of_figure(sets: &[&Reproduction]) -> &'static str {
    let mut decided = sets.iter().map(|set| set.agreement).filter(|agreement| *agreement != Agreement::Undecided);
    let first = decided.next();
    match first {
        Some(first) if decided.any(|other| other != first) => "not alike on all machines",
        Some(Agreement::Inside) => "inside our interval",
        Some(Agreement::OtherSize) => "of the same direction and another size",
        Some(Agreement::Contradicted) => "contradicted",
        None if sets.iter().all(|set| set.provenance == Provenance::Modelled) => {
            "compared only with models, which give no interval"
        }
        Some(Agreement::Undecided) | None => "not decided here",
    }
}

/// Known reasons why the figures here may differ from the origin's, those of counted work last.
pub fn differences(report: &Report<'_>) -> Vec<String> {
    let mut reasons = differences_of_figures(report);
    for reason in report.counted.iter().flat_map(counted::differences) {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

/// Known reasons why measured and modelled figures may differ from the origin's.
pub(super) fn differences_of_figures(report: &Report<'_>) -> Vec<String> {
    let sets = report.published();
    let mut reasons: Vec<String> = Vec::new();
    if report.definition.size == Size::Quick {
        reasons.push("this is the quick size, which shows that all of it runs".to_owned());
    }
    let by_author = sets.clone().filter_map(|set| set.published.differs.clone());
    let mut not_held: Vec<String> = Vec::new();
    for policy in sets.clone().filter(|set| is_not_held(report, set)).filter_map(|set| set.published.policy.as_ref()) {
        if !not_held.contains(policy) {
            not_held.push(policy.clone());
        }
    }
    let were = if not_held.len() == 1 { "was" } else { "were" };
    let not_held = (!not_held.is_empty()).then(|| format!("{} {were} not held here", enumerate(&not_held)));
    let modelled = sets.clone().any(|set| set.provenance == Provenance::Modelled);
    let modelled = modelled.then(|| "a model counts what the origin timed".to_owned());
    let guests = report.hosts.iter().filter_map(|host| {
        let hypervisor = host.machine.hypervisor.as_ref()?;
        let host = if report.hosts.len() == 1 { "the host" } else { &host.label };
        Some(format!("{host} is a guest of {hypervisor}, where a walk has two stages"))
    });
    for reason in by_author.chain(not_held).chain(modelled).chain(guests) {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

fn is_not_held(report: &Report<'_>, set: &Reproduction) -> bool {
    let is_own = |row: &&Row| {
        row.machine == set.machine && set.published.workload.as_ref().is_none_or(|workload| *workload == row.workload)
    };
    let mut cells = report.matrix.rows.iter().filter(is_own).flat_map(|row| &row.cells);
    set.found.is_none() && cells.any(|cell| Some(&cell.policy) == set.published.policy.as_ref() && !cell.is_held)
}
