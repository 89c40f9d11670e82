//! What a study says in sentences: its answer, whether the origin's claim is seen here, and why figures differ.

use study::definition::Size;
use study::matrix::{Beside, Claim, Row, Set, Standing, Total};
use study::metric::Provenance;
use study::stats::Effect;

use super::{Report, cost_in_words, grounds, provenance, rows_of};
use crate::figure::Change;

/// The answer in a sentence: what each policy costs against the baseline where it was measured, or where nothing was on
/// models.
pub fn answer(report: &Report<'_>) -> String {
    let grounds = grounds(report.matrix);
    let has_figure =
        |ground: &&(&str, Provenance)| totals(report, **ground).any(|total| figure(report, total).is_some());
    let with_figures: Vec<_> = grounds.iter().filter(has_figure).collect();
    let is_measured = |ground: &&&(&str, Provenance)| ground.1 != Provenance::Modelled;
    let measured: Vec<_> = with_figures.iter().copied().filter(|ground| is_measured(&ground)).collect();
    let told = if measured.is_empty() { with_figures } else { measured };
    if told.is_empty() {
        return unanswered(report);
    }
    let of_ground = |ground: &&(&str, Provenance)| {
        let clauses = clauses(report, **ground).join(", ");
        format!("{} ({}): {clauses}", ground.0, provenance(ground.1))
    };
    told.iter().map(of_ground).collect::<Vec<_>>().join("; ") + "."
}

fn totals<'a>(report: &Report<'a>, ground: (&'a str, Provenance)) -> impl Iterator<Item = &'a Total> {
    let baseline = &report.matrix.baseline;
    let is_own =
        move |total: &&Total| (total.machine.as_str(), total.provenance) == ground && total.policy != *baseline;
    report.matrix.totals.iter().filter(is_own)
}

/// What a policy costs over the workloads of a machine: their mean, or the only one's own figure.
fn figure(report: &Report<'_>, total: &Total) -> Option<Effect> {
    let mean = total.mean?;
    let own = || {
        let at = report.matrix.policies.iter().position(|policy| *policy == total.policy)?;
        let mut rows = rows_of(report.matrix, (&total.machine, total.provenance));
        rows.find_map(|row| row.cost(&row.cells[at]).filter(|_| row.cells[at].has_claim()))
    };
    if mean.of == 1 { own() } else { Some(mean.effect()) }
}

/// A clause for what costs less, what costs more, what cannot be told, and what has no figure.
fn clauses(report: &Report<'_>, ground: (&str, Provenance)) -> Vec<String> {
    let baseline = &report.matrix.baseline;
    let (mut told, mut open, mut without) = (Vec::new(), Vec::new(), Vec::new());
    for total in totals(report, ground) {
        let Some(effect) = figure(report, total) else {
            without.push(format!("{} {}", total.policy, lack(report, total)));
            continue;
        };
        let change = Change::of(&effect);
        let range = change.range().map(|range| format!(" ({range})")).unwrap_or_default();
        match effect.low.zip(effect.high) {
            Some((low, high)) if low <= 1.0 && high >= 1.0 => open.push(format!("{}{range}", total.policy)),
            _ => told.push((
                effect.ratio,
                format!("{} has {} than {baseline}{range}", total.policy, cost_in_words(&change)),
            )),
        }
    }
    told.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut clauses: Vec<String> = told.into_iter().map(|(_, clause)| clause).collect();
    if !open.is_empty() {
        clauses.push(format!("no difference from {baseline} is shown for {}", open.join(" and ")));
    }
    clauses.extend(without);
    clauses
}

/// Why a policy has no figure that could be its own.
fn lack(report: &Report<'_>, total: &Total) -> &'static str {
    let Some(at) = report.matrix.policies.iter().position(|policy| *policy == total.policy) else {
        return "is unknown";
    };
    let rows = rows_of(report.matrix, (&total.machine, total.provenance));
    let standings: Vec<&Standing> = rows.map(|row| &row.cells[at].standing).collect();
    let any = |wanted: &Standing| standings.contains(&wanted);
    match () {
        () if any(&Standing::NotHeld) => "was not held, so its figures say nothing of it",
        () if any(&Standing::WithinTracerCost) => "shows no more than the tracer's cost",
        () => "has no figure",
    }
}

/// Why there is no answer: the first reason that a cell has.
fn unanswered(report: &Report<'_>) -> String {
    let baseline = &report.matrix.baseline;
    let mut lacks: Vec<String> = grounds(report.matrix)
        .into_iter()
        .flat_map(|ground| totals(report, ground))
        .filter(|total| lack(report, total) != "has no figure")
        .map(|total| format!("{} {}", total.policy, lack(report, total)))
        .collect();
    lacks.dedup();
    let cells = report.matrix.rows.iter().flat_map(|row| &row.cells);
    let reason = cells.clone().find_map(|cell| match &cell.standing {
        Standing::None { why } => Some(why.clone()),
        _ => None,
    });
    lacks.extend(reason.filter(|_| lacks.is_empty()));
    let why = if lacks.is_empty() { String::new() } else { format!(": {}", lacks.join(", ")) };
    format!("No policy can be set beside {baseline} yet{why}.")
}

/// Whether the origin's claim is confirmed, contradicted or undecided here, and why figures differ: a sentence.
pub fn claim(report: &Report<'_>) -> String {
    let claim = Claim::of(report.published());
    if claim == Claim::NothingPublished {
        return "The origin's claim is, here, undecided: no published figure of it can be set beside these.".to_owned();
    }
    let kinds = [
        (Beside::Confirmed, "confirmed"),
        (Beside::OtherSize, "of the same direction and another size"),
        (Beside::Contradicted, "contradicted"),
        (Beside::NotSeen, "not seen"),
        (Beside::Undecided, "undecided"),
    ];
    let count = |kind: Beside| report.published().filter(|set| set.beside == kind).count();
    let counted: Vec<String> = kinds
        .into_iter()
        .filter(|(kind, _)| count(*kind) > 0)
        .map(|(kind, words)| match (report.published().count(), count(kind)) {
            (1, _) => words.to_owned(),
            (_, 1) => format!("1 is {words}"),
            (_, count) => format!("{count} are {words}"),
        })
        .collect();
    let figures = match report.published().count() {
        1 => "its one published figure is ".to_owned(),
        all => format!("of {all} published figures "),
    };
    let reasons = differences(report);
    let why = if reasons.is_empty() {
        String::new()
    } else {
        format!("; figures can differ because {}", reasons.join(", and because "))
    };
    format!("The origin's claim is, here, {}: {figures}{}{why}.", claim.describe(), counted.join(", "))
}

/// Why figures here can be others than the origin's, as far as it is known.
pub fn differences(report: &Report<'_>) -> Vec<String> {
    let sets = report.published();
    let mut reasons: Vec<String> = Vec::new();
    if report.definition.size == Size::Quick {
        reasons.push("this is the quick size, which shows that all of it runs".to_owned());
    }
    let by_author = sets.clone().filter_map(|set| set.published.differs.clone());
    let not_held = sets.clone().filter(|set| is_not_held(report, set)).filter_map(|set| set.published.policy.as_ref());
    let not_held = not_held.map(|policy| format!("{policy} was not held here"));
    let modelled = sets.clone().any(|set| set.provenance == Provenance::Modelled);
    let modelled = modelled.then(|| "a model counts what the origin timed".to_owned());
    let guests = report.hosts.iter().filter_map(|host| {
        let hypervisor = host.machine.hypervisor.as_ref()?;
        Some(format!("{} is a guest of {hypervisor}, where a walk has two stages", host.label))
    });
    for reason in by_author.chain(not_held).chain(modelled).chain(guests) {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

fn is_not_held(report: &Report<'_>, set: &Set) -> bool {
    let is_own = |row: &&Row| {
        row.machine == set.machine && set.published.workload.as_ref().is_none_or(|workload| *workload == row.workload)
    };
    let mut cells = report.matrix.rows.iter().filter(is_own).flat_map(|row| &row.cells);
    set.found.is_none()
        && cells.any(|cell| Some(&cell.policy) == set.published.policy.as_ref() && cell.standing == Standing::NotHeld)
}
