//! Divides time among workloads.
//!
//! The variance of a workload's mean logarithm falls with its time `t` as `a / t`. So more time reduces the variance of a mean
//! over `k` workloads at the rate `a / t^2 / k^2` per second. A target needs the least time if all workloads that get more time
//! have the same rate, that is, times in proportion to the square roots of `a` (Neyman's allocation).

use super::{Question, WorkloadProgress};

/// The workload that should run next: the workload that shrinks the errors of uncertain questions most per second, each error
/// relative to its size. `None` if no open workload shrinks an error.
pub fn next(questions: &[Question], spent: &[WorkloadProgress]) -> Option<usize> {
    let open: Vec<&Question> = questions.iter().filter(|question| !question.is_certain()).collect();
    let rate = |at: usize| open.iter().map(|question| rate(question, at, spent)).sum::<f64>();
    let rates: Vec<f64> = (0..spent.len()).map(rate).collect();
    // If there are too few blocks for any error, the workload with the least time comes first.
    let is_before = |one: usize, other: usize| {
        rates[one].total_cmp(&rates[other]).then(spent[other].time_s.total_cmp(&spent[one].time_s))
    };
    let best = (0..spent.len()).max_by(|one, other| is_before(*one, *other).then(other.cmp(one)))?;
    (rates[best] > 0.0).then_some(best)
}

/// The share of a question's variance that a second for a workload removes.
fn rate(question: &Question, at: usize, spent: &[WorkloadProgress]) -> f64 {
    let own = || question.terms.iter().filter(move |term| term.open(spent) == Some(at));
    let Some(error) = question.error() else {
        return if own().any(|term| term.error.is_none()) { f64::INFINITY } else { 0.0 };
    };
    let of_mean = (question.terms.len() as f64).powi(2);
    let variance = own().filter_map(|term| term.error).map(|error| error.variance).sum::<f64>() / of_mean;
    if variance > 0.0 { variance / error.variance / spent[at].time_s.max(f64::MIN_POSITIVE) } else { 0.0 }
}

/// The additional seconds that decide all questions, by the square root law, if the estimates are right. `None` if no time does,
/// or if the errors are not known yet.
pub fn more_s<'a>(questions: impl IntoIterator<Item = &'a Question>, spent: &[WorkloadProgress]) -> Option<f64> {
    let mut most = vec![0.0f64; spent.len()];
    for question in questions {
        let times = additional_s(question, spent)?;
        most.iter_mut().zip(times).for_each(|(most, time)| *most = most.max(time));
    }
    Some(most.into_iter().sum())
}

/// The additional seconds of each workload that decide a question with the smallest total.
fn additional_s(question: &Question, spent: &[WorkloadProgress]) -> Option<Vec<f64>> {
    if question.is_decided() {
        return Some(vec![0.0; spent.len()]);
    }
    let error = question.error()?;
    let target = error.variance * (question.needed_half_width()? / error.half_width(question.confidence)).powi(2);
    let of_mean = (question.terms.len() as f64).powi(2);
    let mut factors = vec![0.0f64; spent.len()];
    let mut fixed = 0.0;
    for term in &question.terms {
        let variance = term.error.map_or(0.0, |error| error.variance) / of_mean;
        match term.open(spent) {
            Some(at) => factors[at] += variance * spent[at].time_s,
            None => fixed += variance,
        }
    }
    let allowed = target - fixed;
    (allowed > 0.0).then(|| allocated(&factors, spent, allowed))
}

/// The additional times after which the variance (the sum of `factor / time`) is `allowed`. All workloads with more time have a
/// common level, which is found by bisection.
fn allocated(factors: &[f64], spent: &[WorkloadProgress], allowed: f64) -> Vec<f64> {
    let time_s = |at: usize, level: f64| spent[at].time_s.max(level * factors[at].sqrt());
    let positive: Vec<usize> = (0..factors.len()).filter(|at| factors[*at] > 0.0).collect();
    let variance = |level: f64| positive.iter().map(|at| factors[*at] / time_s(*at, level)).sum::<f64>();
    let (mut low, mut high) = (0.0, factors.iter().map(|factor| factor.sqrt()).sum::<f64>() / allowed);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if variance(middle) > allowed { low = middle } else { high = middle }
    }
    (0..factors.len()).map(|at| time_s(at, high) - spent[at].time_s).collect()
}
