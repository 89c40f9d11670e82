//! Runs a study on the host in rounds. In the first round every workload gets its first blocks. Then the workloads whose blocks the
//! answer needs most get the rest of the time, until the answer is decided or the time is up.

use std::collections::BTreeSet;

use results::matrix::after_round;
use results::store::Store;
use study::comparison::{Comparison, Ended};
use study::plan::min_blocks_to_stop;
use study::runner::Pause;
use study_files::definition::Definition;
use study_files::rounds::{SLICE_RATIO, StudyProgress, next};

use super::arguments::Run;
use super::measuring::{Part, is_wanted, latest, measure, report_failure};
use super::outlook::{of_pool, pool};
use super::plan::{HostRow, Progress, max_time_s};
use crate::compare::in_study;
use crate::compare::progress::time;
use crate::failure::{Failure, report};

/// Runs a study in rounds.
///
/// # Errors
/// A signal arrived, or the store cannot be written.
pub fn run<'a>(
    definition: &'a Definition,
    arguments: &Run,
    store: &Store,
    rows: &mut [HostRow<'a>],
) -> Result<(), Failure> {
    let last = latest(rows, store)?;
    let mut rounds = Rounds {
        definition,
        arguments,
        store,
        rows,
        last,
        failed: BTreeSet::new(),
        stalled: BTreeSet::new(),
        is_quiet: true,
    };
    rounds.first()?;
    let why = rounds.further()?;
    rounds.finish(why)
}

struct Rounds<'a, 'r> {
    definition: &'a Definition,
    arguments: &'r Run,
    store: &'r Store,
    rows: &'r mut [HostRow<'a>],
    /// The row that ran last.
    last: Option<usize>,
    /// Rows that this process could not run or store.
    failed: BTreeSet<usize>,
    /// Rows whose remaining time is too short for one more block.
    stalled: BTreeSet<usize>,
    /// Whether no row was run.
    is_quiet: bool,
}

impl Rounds<'_, '_> {
    fn say(&self, what: impl std::fmt::Display) {
        report(format_args!("study {}: {what}", self.definition.name));
    }

    fn name(&self, at: usize) -> String {
        results::printable(&self.rows[at].workload.name)
    }

    fn pool(&self) -> Vec<usize> {
        let mut pool = pool(self.definition, self.rows, &self.arguments.only);
        pool.retain(|at| !self.failed.contains(at));
        pool
    }

    /// How much of the answer is decided, and the row of each entry of [`StudyProgress::spent`].
    fn progress(&self) -> (StudyProgress, Vec<usize>) {
        let (mut progress, indexes) = of_pool(self.definition, self.rows, &self.pool());
        for (spent, at) in progress.spent.iter_mut().zip(&indexes) {
            spent.is_open &= !self.stalled.contains(at);
        }
        (progress, indexes)
    }

    /// The first round. Gives each row a quarter of its time, or more if its minimum number of blocks needs more. A row of a
    /// series is not part of the answer, so it runs to its end.
    fn first(&mut self) -> Result<(), Failure> {
        let needing: Vec<usize> = (0..self.rows.len()).filter(|at| self.needs_first(*at)).collect();
        let max_time_s = max_time_s(self.definition);
        let pause = Pause { after_s: SLICE_RATIO * max_time_s, latest_s: max_time_s };
        for (number, at) in needing.iter().enumerate() {
            self.say(format_args!("workload {} of {}: {}", number + 1, needing.len(), self.name(*at)));
            let shares = !self.definition.is_of_series(self.rows[*at].workload);
            self.measure(*at, shares.then_some(pause))?;
        }
        if !needing.is_empty() {
            self.report_round(1);
        }
        Ok(())
    }

    fn needs_first(&self, at: usize) -> bool {
        let row = &self.rows[at];
        let is_early = |comparison: &Comparison| {
            // A comparison may pause a little before its share is used up: its last trial ended before, and no block
            // began after that.
            let shares = |ratio: f64| row.time_s() < 0.9 * ratio * max_time_s(self.definition);
            shares(SLICE_RATIO) || (shares(1.0) && has_few_blocks(comparison))
        };
        let is_unpaused = self.definition.is_of_series(row.workload) || row.current().is_none_or(is_early);
        is_wanted(row, self.arguments) && (is_unpaused || !matches!(row.progress, Progress::Interrupted { .. }))
    }

    /// The further rounds: repeatedly gives a slice of time to the row that the answer needs most. Returns why no
    /// further slice is given.
    fn further(&mut self) -> Result<String, Failure> {
        let mut round = 1;
        loop {
            let (progress, indexes) = self.progress();
            if progress.questions.is_empty() {
                return Ok("no policy has a figure that more blocks would decide".to_owned());
            }
            if progress.is_certain() {
                return Ok("the answer is decided; --no-rounds continues each workload to the precision of the file"
                    .to_owned());
            }
            if progress.left_s() <= 0.0 {
                let all_s = progress.max_time_s * progress.workloads as f64;
                return Ok(format!("its time is up ({}; no block begins after that)", time(all_s)));
            }
            let Some(chosen) = next(&progress.questions, &progress.spent) else {
                if !self.stalled.is_empty() {
                    return Ok("the remaining time is too short for another block".to_owned());
                }
                return Ok("no workload can decide more: each has the precision or the blocks that the study asks for"
                    .to_owned());
            };
            round += 1;
            self.slice(indexes[chosen], round, &progress)?;
        }
    }

    /// Continues a row for a slice of the remaining time.
    fn slice(&mut self, at: usize, round: u32, progress: &StudyProgress) -> Result<(), Failure> {
        let until_s = self.rows[at].time_s() + progress.left_s().min(SLICE_RATIO * progress.max_time_s);
        self.say(format_args!("round {round}: {}", self.name(at)));
        let trials = |row: &HostRow<'_>| row.current().map_or(0, |one| one.trials.len());
        let before = trials(&self.rows[at]);
        self.measure(at, Some(Pause { after_s: until_s, latest_s: until_s }))?;
        if trials(&self.rows[at]) == before {
            self.stalled.insert(at);
        }
        self.report_round(round);
        Ok(())
    }

    fn report_round(&self, round: u32) {
        let (progress, _) = self.progress();
        if !progress.questions.is_empty() {
            self.say(format_args!("round {round}: {}", results::printable(&after_round(&progress))));
        }
    }

    fn measure(&mut self, at: usize, pause: Option<Pause>) -> Result<(), Failure> {
        self.is_quiet = false;
        let part = Part { pause, is_last: self.last == Some(at) };
        let (comparison, ran) = measure(self.definition, &self.rows[at], self.arguments, self.store, part);
        self.last = Some(at);
        match comparison {
            Some(comparison) => self.rows[at].take(comparison),
            None => drop(self.failed.insert(at)),
        }
        report_failure(self.definition, &self.rows[at], ran)
    }

    /// Ends the comparisons that are paused, because their time is up.
    fn finish(&mut self, why: String) -> Result<(), Failure> {
        let is_paused = |comparison: &&Comparison| {
            matches!(comparison.ended, Ended::NotEnded | Ended::Interrupted) && !comparison.trials.is_empty()
        };
        for at in self.pool() {
            let Some(paused) = self.rows[at].open().filter(is_paused).cloned() else { continue };
            let ended = in_study::end(self.store, paused, Ended::Time)?;
            let exit = in_study::exit(&ended);
            self.rows[at].take(ended);
            self.is_quiet = false;
            report_failure(self.definition, &self.rows[at], exit)?;
        }
        if !self.is_quiet {
            self.say(why);
        }
        Ok(())
    }
}

/// Whether a comparison has fewer blocks than its minimum.
fn has_few_blocks(comparison: &Comparison) -> bool {
    comparison.analysis.as_ref().is_none_or(|analysis| {
        let compared = analysis.arms.iter().filter(|arm| arm.effects.contains_key(&analysis.primary)).count();
        analysis.blocks < min_blocks_to_stop(&comparison.design, compared)
    })
}
