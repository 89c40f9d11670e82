//! The questions of a study, from the rows of its matrix for the machine that the rounds measure.

use super::{Aim, Question, Term, WorkloadProgress};
use crate::definition::{Measure, Published};
use crate::matrix::geometric::MIN_WORKLOADS;
use crate::matrix::{Cell, Conclusion, Matrix, Row};
use study::comparison::Design;
use study::metric::Direction;
use study::stats::{Effect, LogError};

/// The questions of a study: the mean change of every policy except the baseline, and every published change. With too few
/// workloads for a conclusion from their mean, the change of each workload is a question. `spent` are the comparisons that the
/// rounds continue. Only rows of the machine on which these comparisons run take part.
///
/// Published shares of wins are not questions: they depend on the number of workloads, and more time does not make them more
/// precise.
pub fn questions(matrix: &Matrix, spent: &[WorkloadProgress]) -> Vec<Question> {
    let rows = rows(matrix, spent);
    let policies = matrix.policies.iter().filter(|policy| **policy != matrix.baseline);
    let changes = policies.flat_map(|policy| match changes(policy, &rows) {
        changes if changes.is_empty() => tracer_cost(policy, &rows).into_iter().collect(),
        changes => changes,
    });
    // The matrix compares a published figure with each machine.
    let figures = matrix.published.iter().map(|reproduction| &reproduction.published);
    let mut distinct: Vec<&Published> = Vec::new();
    for figure in figures {
        if !distinct.contains(&figure) {
            distinct.push(figure);
        }
    }
    changes.chain(distinct.into_iter().filter_map(|figure| published(figure, &rows))).collect()
}

/// A row, and the index of its comparison in `spent`. `None` if the rounds do not continue that comparison.
type Indexed<'a> = (&'a Row, Option<usize>);

/// The measured rows of the machine that the rounds measure, including workloads that the rounds do not continue.
fn rows<'a>(matrix: &'a Matrix, spent: &[WorkloadProgress]) -> Vec<Indexed<'a>> {
    let index_in_spent = |row: &Row| {
        let id = row.comparison?;
        spent.iter().position(|one| one.comparison == id)
    };
    let indexed: Vec<Indexed<'a>> = matrix.rows.iter().map(|row| (row, index_in_spent(row))).collect();
    let is_of_machine = |row: &Row| indexed.iter().any(|(other, at)| at.is_some() && other.machine == row.machine);
    indexed.iter().copied().filter(|(row, _)| row.comparison.is_some() && is_of_machine(row)).collect()
}

fn cell<'a>(row: &'a Row, policy: &str) -> Option<&'a Cell> {
    row.cells.iter().find(|cell| cell.policy == policy)
}

/// The mean change of a policy over the rows that make a claim about it; of several rows that are too few for a mean, the change
/// of each, and the tracer's cost in the rows that it keeps from a claim. Empty if no row makes a claim.
fn changes(policy: &str, rows: &[Indexed<'_>]) -> Vec<Question> {
    let claims: Vec<_> = claims(policy, rows).collect();
    if (2..MIN_WORKLOADS).contains(&claims.len()) {
        let of_row = |claim: &(&Row, &Cell, Option<usize>)| {
            let question = change(&format!("{policy} on {}", claim.0.workload), std::slice::from_ref(claim))?;
            let is_concluded =
                matches!(claim.1.conclusion, Conclusion::Better | Conclusion::Worse | Conclusion::Equivalent);
            let aim = if question.is_decided() && !is_concluded { Aim::Correction } else { question.aim };
            Some(Question { aim, ..question })
        };
        return claims.iter().filter_map(of_row).chain(tracer_cost(policy, rows)).collect();
    }
    change(policy, &claims).into_iter().collect()
}

/// The mean change over these rows.
fn change(name: &str, claims: &[(&Row, &Cell, Option<usize>)]) -> Option<Question> {
    let question = mean(name, claims)?;
    // The mean is a mean of costs. If all rows have the same throughput metric, the question is about the throughput.
    let is_rate = claims.iter().all(|(row, ..)| row.direction == Direction::Higher && row.metric == claims[0].0.metric);
    let sign = if is_rate { -1.0 } else { 1.0 };
    Some(Question { log_ratio: sign * question.log_ratio, ..question })
}

/// The rows that make a claim about a policy: each with the cell of the policy, and the index of its comparison in `spent`.
fn claims<'a>(policy: &'a str, rows: &'a [Indexed<'a>]) -> impl Iterator<Item = (&'a Row, &'a Cell, Option<usize>)> {
    rows.iter().filter_map(move |(row, at)| {
        let cell = cell(row, policy).filter(|cell| cell.has_claim())?;
        row.cost_ratio(cell).map(|_| (*row, cell, *at))
    })
}

/// The geometric mean of the costs of these cells. A single cell has the interval of its comparison. `None` if there is no cell.
fn mean(name: &str, claims: &[(&Row, &Cell, Option<usize>)]) -> Option<Question> {
    if let [(row, cell, at)] = claims {
        return Some(single(name, &row.cost(cell)?, row, *at, Aim::Change));
    }
    let logs: Option<Vec<f64>> = claims.iter().map(|(row, cell, _)| Some(row.cost_ratio(cell)?.ln())).collect();
    let logs = logs.filter(|logs| !logs.is_empty())?;
    let term = |(row, cell, at): &(&Row, &Cell, Option<usize>)| Term {
        workload: *at,
        error: cell.error,
        is_running: cell.effects.get(&row.metric).is_some_and(|effect| effect.blocks >= row.blocks),
    };
    Some(Question {
        name: name.to_owned(),
        aim: Aim::Change,
        log_ratio: logs.iter().sum::<f64>() / logs.len() as f64,
        terms: claims.iter().map(term).collect(),
        confidence: Design::CONFIDENCE,
    })
}

/// A question about the change of one workload, with the interval of its comparison.
fn single(name: &str, effect: &Effect, row: &Row, workload: Option<usize>, aim: Aim) -> Question {
    let confidence = 1.0 - (1.0 - Design::CONFIDENCE) * Design::SPENT_RATIO;
    let error = LogError::of_interval(effect, confidence);
    let term = Term { workload, error, is_running: effect.blocks >= row.blocks };
    Question { name: name.to_owned(), aim, log_ratio: effect.ratio.ln(), terms: vec![term], confidence }
}

/// The question about a policy of which no row makes a claim, because the tracer's stops could have caused the changes. `None` if
/// there is no such row.
fn tracer_cost(policy: &str, rows: &[Indexed<'_>]) -> Option<Question> {
    let within_cost = rows.iter().filter_map(|(row, at)| {
        let cell = cell(row, policy).filter(|cell| cell.conclusion == Conclusion::WithinTracerCost)?;
        let effect = cell.effects.get(&row.metric)?;
        Some((effect.ratio.ln(), Term { workload: *at, error: cell.error, is_running: effect.blocks >= row.blocks }))
    });
    let (logs, terms): (Vec<f64>, Vec<Term>) = within_cost.unzip();
    let log_ratio = logs.iter().sum::<f64>() / logs.len() as f64;
    let confidence = Design::CONFIDENCE;
    (!terms.is_empty()).then(|| Question {
        name: policy.to_owned(),
        aim: Aim::TracerCost,
        log_ratio,
        terms,
        confidence,
    })
}

/// The question about a published change, which is compared as in [`Matrix::published`]. `None` if nothing here can be compared
/// with it.
fn published(figure: &Published, rows: &[Indexed<'_>]) -> Option<Question> {
    let policy = figure.policy.as_ref().filter(|_| figure.measure == Measure::Change)?;
    let aim = Aim::Published { log_ratio: figure.ratio.ln() };
    let is_held = |row: &Row| cell(row, policy).is_some_and(|cell| cell.is_held);
    if let Some(workload) = &figure.workload {
        let (row, at) = rows.iter().find(|(row, _)| row.workload == *workload)?;
        let cell = cell(row, policy).filter(|cell| cell.has_claim() && cell.is_held)?;
        let effect = cell.effects.get(figure.metric.as_ref().unwrap_or(&row.metric))?;
        return Some(single(&figure.what, effect, row, *at, aim));
    }
    let is_in_suite = |row: &Row| figure.suite.as_ref().is_none_or(|suite| suite.workloads.contains(&row.workload));
    let rows: Vec<Indexed<'_>> = rows.iter().copied().filter(|(row, _)| is_held(row) && is_in_suite(row)).collect();
    let claims: Vec<_> = claims(policy, &rows).collect();
    // A published mean of several programs is not compared with that of a few.
    let question = mean(&figure.what, &claims).filter(|question| question.terms.len() >= MIN_WORKLOADS)?;
    Some(Question { aim, ..question })
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::stats::Effect;

    fn row(name: &str, comparison: i64, ratio: f64, deviation: f64) -> Row {
        let policies = ["base".to_owned(), "thp".to_owned()];
        let mut row = Row { comparison: Some(comparison), blocks: 10, ..Row::without(name, "m", &policies, "") };
        row.cells[0].conclusion = Conclusion::Baseline;
        let effect = Effect { blocks: 10, ratio, low: Some(ratio * 0.9), high: Some(ratio / 0.9), p_adjusted: None };
        let error = Some(LogError { variance: deviation * deviation, degrees: 9.0 });
        let effects = [(row.metric.clone(), effect)].into();
        row.cells[1] =
            Cell { effects, error, is_held: true, conclusion: Conclusion::Undecided, ..row.cells[1].clone() };
        row
    }

    fn figure(workload: Option<&str>) -> Published {
        Published {
            what: "theirs".into(),
            workload: workload.map(str::to_owned),
            suite: None,
            policy: Some("thp".into()),
            boot: None,
            variant: None,
            metric: None,
            measure: Measure::Change,
            change: String::new(),
            ratio: 0.97,
            source: String::new(),
            differs: None,
        }
    }

    fn spent() -> [WorkloadProgress; 2] {
        [1, 2].map(|comparison| WorkloadProgress { comparison, time_s: 60.0, is_open: true })
    }

    fn matrix(rows: Vec<Row>, published: &[Published]) -> Matrix {
        Matrix::of(&["base".to_owned(), "thp".to_owned()], "base", rows, published)
    }

    #[test]
    fn a_mean_has_the_same_interval_as_the_total() {
        let rows = (0..6).map(|at| row(&at.to_string(), at, [0.9, 1.05][at as usize % 2], 0.02 + 0.01 * at as f64));
        let matrix = matrix(rows.collect(), &[]);
        let spent = [0, 1, 2, 3, 4, 5].map(|comparison| WorkloadProgress { comparison, time_s: 60.0, is_open: true });
        let questions = questions(&matrix, &spent);
        let total = matrix.totals.iter().find(|total| total.policy == "thp").unwrap();
        let (effect, these) = (questions[0].effect(), total.mean.unwrap().these.unwrap());
        assert_eq!(questions.len(), 1);
        assert!((effect.low.unwrap() - these.0).abs() < 1e-12 && (effect.high.unwrap() - these.1).abs() < 1e-12);
        assert_eq!(questions[0].is_decided(), total.conclusion != Conclusion::Undecided);
    }

    #[test]
    fn each_of_a_few_workloads_is_a_question() {
        let matrix = matrix(vec![row("a", 1, 0.9, 0.02), row("b", 2, 1.05, 0.04)], &[figure(None)]);
        let questions = questions(&matrix, &spent());
        let names: Vec<(&str, usize)> = questions.iter().map(|one| (one.name.as_str(), one.terms.len())).collect();
        assert_eq!(names, [("thp on a", 1), ("thp on b", 1)], "a published mean is not compared with two programs");
    }

    #[test]
    fn a_claim_that_the_correction_withdraws_keeps_its_question_open() {
        let mut rows = vec![row("a", 1, 0.5, 0.001), row("b", 2, 0.5, 0.001)];
        let is_certain = |rows: &[Row]| {
            let matrix = Matrix { rows: rows.to_vec(), ..matrix(rows.to_vec(), &[]) };
            questions(&matrix, &spent()).iter().map(Question::is_certain).collect::<Vec<_>>()
        };
        rows.iter_mut().for_each(|row| row.cells[1].conclusion = Conclusion::Better);
        assert_eq!(is_certain(&rows), [true, true]);
        rows[1].cells[1].conclusion = Conclusion::NotAfterCorrection;
        assert_eq!(is_certain(&rows), [true, false]);
    }

    #[test]
    fn a_single_workload_has_the_interval_of_its_comparison() {
        let matrix = matrix(vec![row("a", 1, 0.95, 0.02)], &[figure(Some("a")), figure(None)]);
        let questions = questions(&matrix, &spent()[..1]);
        let names: Vec<&str> = questions.iter().map(|question| question.name.as_str()).collect();
        assert_eq!(names, ["thp", "theirs"], "a mean is not compared with a single program");
        for question in &questions {
            assert!((question.effect().low.unwrap() - 0.95 * 0.9).abs() < 1e-9, "{question:?}");
            assert!(!question.is_decided());
        }
    }

    #[test]
    fn rows_of_other_machines_and_finished_arms_do_not_take_part() {
        let other = Row { machine: "n".into(), ..row("a", 7, 0.5, 0.02) };
        // The arm has 10 of 14 blocks, so it has finished early.
        let mut finished = row("b", 2, 0.9, 0.02);
        finished.blocks = 14;
        let matrix = matrix(vec![row("a", 1, 0.9, 0.02), finished, other], &[]);
        let questions = questions(&matrix, &spent());
        let running: Vec<bool> = questions.iter().flat_map(|one| &one.terms).map(|term| term.is_running).collect();
        assert_eq!(running, [true, false]);
    }

    #[test]
    fn a_policy_within_the_tracer_cost_is_an_uncertain_question() {
        let mut row = row("a", 1, 0.98, 0.02);
        row.cells[1].conclusion = Conclusion::WithinTracerCost;
        let questions = questions(&matrix(vec![row], &[]), &spent());
        assert_eq!((questions[0].aim, questions[0].is_certain()), (Aim::TracerCost, false));
    }
}
