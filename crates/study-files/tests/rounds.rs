//! Rounds in simulated studies: compared with equal shares, with all divisions of the time, and with decisions after every round.

use std::slice::from_ref;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use study::stats::LogError;
use study_files::rounds::{Aim, Question, Term, WorkloadProgress, more_s, next};

/// A simulated workload: the seconds of a block, the spread of its log ratios, and the blocks so far.
#[derive(Clone)]
struct Simulated {
    block_s: f64,
    spread: f64,
    ratios: Vec<f64>,
}

impl Simulated {
    fn new(block_s: f64, spread: f64) -> Simulated {
        Simulated { block_s, spread, ratios: Vec::new() }
    }

    fn run(&mut self, blocks: usize, effect: f64, random: &mut Pcg64) {
        let ratios = (0..blocks).map(|_| effect + self.spread * normal(random)).collect::<Vec<_>>();
        self.ratios.extend(ratios);
    }

    fn mean(&self) -> f64 {
        self.ratios.iter().sum::<f64>() / self.ratios.len() as f64
    }

    fn error(&self) -> LogError {
        let (mean, count) = (self.mean(), self.ratios.len() as f64);
        let squares: f64 = self.ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
        LogError { variance: squares / (count - 1.0) / count, degrees: count - 1.0 }
    }

    fn time_s(&self) -> f64 {
        self.block_s * self.ratios.len() as f64
    }
}

/// Nearly normal: the sum of twelve uniform numbers.
fn normal(random: &mut Pcg64) -> f64 {
    (0..12).map(|_| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64).sum::<f64>() - 6.0
}

fn question(workloads: &[Simulated]) -> Question {
    question_from(0, workloads)
}

/// The question of their mean; the first of them has this index in its study.
fn question_from(first: usize, workloads: &[Simulated]) -> Question {
    let term = |(at, one): (usize, &Simulated)| Term {
        workload: Some(first + at),
        error: Some(one.error()),
        is_running: true,
    };
    Question {
        name: "thp".into(),
        aim: Aim::Change,
        log_ratio: workloads.iter().map(Simulated::mean).sum::<f64>() / workloads.len() as f64,
        terms: workloads.iter().enumerate().map(term).collect(),
        confidence: 0.95,
    }
}

fn spent(workloads: &[Simulated]) -> Vec<WorkloadProgress> {
    let spent = |(at, one): (usize, &Simulated)| WorkloadProgress {
        comparison: at as i64,
        time_s: one.time_s(),
        is_open: true,
    };
    workloads.iter().enumerate().map(spent).collect()
}

/// A question whose variances are exactly `factor / time` for each workload.
fn exact(factors: &[f64], times_s: &[f64], log_ratio: f64) -> (Question, Vec<WorkloadProgress>) {
    let error = |at: usize| LogError { variance: factors[at] / times_s[at], degrees: 1000.0 };
    let terms = (0..factors.len()).map(|at| Term { workload: Some(at), error: Some(error(at)), is_running: true });
    let question =
        Question { name: String::new(), aim: Aim::Change, log_ratio, terms: terms.collect(), confidence: 0.95 };
    let spent = times_s.iter().enumerate();
    (
        question,
        spent.map(|(at, time_s)| WorkloadProgress { comparison: at as i64, time_s: *time_s, is_open: true }).collect(),
    )
}

/// The smallest variance of the sum over all divisions of `slices`, by trying each.
fn least_variance(factors: &[f64], times_s: &[f64], slices: usize) -> f64 {
    let Some((factor, factors)) = factors.split_first() else { return 0.0 };
    let own = |count: usize| factor / (times_s[0] + count as f64);
    let counts = if factors.is_empty() { slices..=slices } else { 0..=slices };
    let variances = counts.map(|count| own(count) + least_variance(factors, &times_s[1..], slices - count));
    variances.fold(f64::INFINITY, f64::min)
}

#[test]
fn rounds_divide_the_time_nearly_as_well_as_the_best_division() {
    let mut random = Pcg64::seed_from_u64(testing::seed());
    for _ in 0..200 {
        let factors: Vec<f64> = (0..4).map(|_| 0.01 * normal(&mut random).exp()).collect();
        let mut times_s = vec![1.0; 4];
        for slices in 0..=12 {
            let best = least_variance(&factors, &[1.0; 4], slices);
            let found: f64 = factors.iter().zip(&times_s).map(|(factor, time_s)| factor / time_s).sum();
            assert!(found <= best * 1.15, "{factors:?}: {found} after {slices} slices, and {best} is possible");
            let (question, spent) = exact(&factors, &times_s, 0.0);
            times_s[next(&[question], &spent).unwrap()] += 1.0;
        }
    }
}

#[test]
fn the_estimated_deciding_time_is_minimal() {
    let mut random = Pcg64::seed_from_u64(testing::seed());
    for _ in 0..200 {
        let factors: Vec<f64> = (0..3).map(|_| 0.4 * normal(&mut random).exp()).collect();
        let (question, spent) = exact(&factors, &[100.0; 3], 0.02);
        let more = more_s([&question], &spent).unwrap();
        // The half width is 0.02 at 1.96 standard errors of the mean of three, or slightly more: the degrees of freedom vary.
        let target = (3.0 * 0.02 / 1.962f64).powi(2);
        // Slices of a thirtieth of the time, and all of their divisions.
        let slice = more / 30.0;
        let in_slices = |times: f64| times / slice;
        let scaled: Vec<f64> = factors.iter().map(|factor| in_slices(*factor)).collect();
        let of = |slices| least_variance(&scaled, &[in_slices(100.0); 3], slices);
        if more > 0.0 {
            assert!(of(31) <= target * 1.003, "{factors:?}: {more} s do not suffice");
            assert!(of(28) >= target * 0.997, "{factors:?}: less than {more} s suffice");
        }
    }
}

#[test]
fn no_time_decides_a_question_that_closed_workloads_keep_undecided() {
    let (question, mut spent) = exact(&[1.0, 1.0], &[100.0, 100.0], 0.02);
    assert!(more_s([&question], &spent).is_some());
    spent[0].is_open = false;
    assert_eq!((more_s([&question], &spent), next(from_ref(&question), &spent)), (None, Some(1)));
    spent[1].is_open = false;
    assert_eq!(next(&[question], &spent), None);
}

#[test]
fn a_workload_without_an_error_runs_before_all_others() {
    let (mut question, mut spent) = exact(&[1.0, 1.0, 1.0], &[100.0, 900.0, 300.0], 0.02);
    question.terms[1].error = None;
    question.terms[2].error = None;
    assert_eq!((next(from_ref(&question), &spent), more_s([&question], &spent)), (Some(2), None));
    spent[2].is_open = false;
    assert_eq!(next(&[question], &spent), Some(1));
}

/// Workloads like those of a suite: blocks of one second to a minute, and spreads of half a percent to eight percent.
fn suite() -> Vec<Simulated> {
    let kinds =
        [(1.0, 0.08), (4.0, 0.02), (15.0, 0.005), (60.0, 0.005), (2.0, 0.03), (8.0, 0.04), (30.0, 0.01), (10.0, 0.06)];
    kinds.iter().map(|(block_s, spread)| Simulated::new(*block_s, *spread)).collect()
}

/// The time until the mean has this half width. `choose` names the workload that runs its next blocks.
fn time_s(half_width: f64, seed: u64, choose: impl Fn(&Question, &[WorkloadProgress]) -> usize) -> f64 {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut workloads = suite();
    workloads.iter_mut().for_each(|one| one.run(8, 0.0, &mut random));
    loop {
        // No half width decides a question with this aim.
        let question = Question { aim: Aim::TracerCost, ..question(&workloads) };
        if question.error().unwrap().half_width(0.95) <= half_width {
            return workloads.iter().map(Simulated::time_s).sum();
        }
        let at = choose(&question, &spent(&workloads));
        // A slice of two minutes.
        let blocks = (120.0 / workloads[at].block_s).ceil() as usize;
        workloads[at].run(blocks, 0.0, &mut random);
    }
}

#[test]
fn rounds_need_less_time_than_equal_shares_for_the_same_half_width() {
    let seed = testing::seed();
    let least = |_: &Question, spent: &[WorkloadProgress]| {
        (0..spent.len()).min_by(|one, other| spent[*one].time_s.total_cmp(&spent[*other].time_s)).unwrap()
    };
    let (mut in_rounds, mut equal) = (0.0, 0.0);
    for study in 0..40 {
        in_rounds += time_s(0.003, seed ^ study, |question, spent| next(from_ref(question), spent).unwrap());
        equal += time_s(0.003, seed ^ study, least);
    }
    let ratio = in_rounds / equal;
    println!("{:.1} min in rounds, {:.1} min in equal shares: {ratio:.2}", in_rounds / 2400.0, equal / 2400.0);
    assert!(ratio < 0.85, "{ratio}");
}

/// The questions of a study: the mean, or with fewer than six workloads the change of each.
fn questions(workloads: &[Simulated]) -> Vec<Question> {
    match workloads.len() {
        6.. => vec![question(workloads)],
        _ => workloads.iter().enumerate().map(|(at, one)| question_from(at, from_ref(one))).collect(),
    }
}

/// For each question of a study of `count` workloads without an effect: whether it claims a change, and whether its interval misses
/// the truth. The study decides after every slice whether to end, and ends when all answers are certain or after `slices`.
fn study(count: usize, slices: usize, random: &mut Pcg64) -> Vec<(bool, bool)> {
    let mut workloads = suite();
    workloads.truncate(count);
    workloads.iter_mut().for_each(|one| one.run(8, 0.0, random));
    for _ in 0..slices {
        let Some(at) = next(&questions(&workloads), &spent(&workloads)) else { break };
        let blocks = (60.0 / workloads[at].block_s).ceil() as usize;
        workloads[at].run(blocks, 0.0, random);
    }
    let answer = |question: &Question| {
        let half = question.error().unwrap().half_width(0.95);
        let is_equivalent = question.log_ratio.abs() + half <= 0.01f64.ln_1p();
        (question.is_decided() && !is_equivalent, question.log_ratio.abs() > half)
    };
    questions(&workloads).iter().map(answer).collect()
}

#[test]
fn deciding_after_every_round_adds_few_false_claims() {
    let mut random = Pcg64::seed_from_u64(testing::seed());
    for count in [2, 8] {
        let answers: Vec<(bool, bool)> = (0..1000).flat_map(|_| study(count, 3 * count, &mut random)).collect();
        let all = answers.len();
        let claims = answers.iter().filter(|one| one.0).count();
        let missed = answers.iter().filter(|one| one.1).count();
        println!("{count} workloads: {claims} false claims, {missed} intervals without the truth, of {all} answers");
        // 5 % are allowed, and a quarter more for the early ends. With five standard deviations of chance, this fails once in
        // 3 million times.
        let allowed = 0.0625 * all as f64;
        let most = (allowed + 5.0 * (allowed * 0.9375).sqrt()) as usize;
        assert!(claims <= most && missed <= most, "{count} workloads: {claims} claims, {missed} missed, of {all}");
    }
}
