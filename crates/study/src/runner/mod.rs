//! The loop of a comparison ([`compare`]): admits the arms, runs block after block, and reports progress as events.

mod checks;
mod parts;

pub use parts::{EarlierParts, Gap, Pause};

use crate::comparison::{Design, Ended};
use crate::control::Role;
use crate::plan;
use crate::stats::{self, Analysis, answers, next_block};
use crate::trial::{Arm, Trial, TrialRecord};
use policy::{Admission, Unsupported};

/// Maximum attempts at one trial before the comparison fails.
pub const MAX_ATTEMPTS: u32 = 5;

/// Interface to whatever runs trials: the running host, or a fake in tests.
pub trait Platform {
    /// Error that prevents a trial from running at all.
    type Error: std::fmt::Display;

    /// Whether the arm's policy can be applied here.
    fn admit(&mut self, arm: &Arm) -> Admission;

    /// Runs the user's preparation before each trial, with no policy in force and unmeasured.
    fn prepare(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Runs one trial. A record with a non-empty `rejected` does not count and is repeated.
    fn run(&mut self, arm: &Arm, trial: Trial) -> Result<TrialRecord, Self::Error>;

    /// Seconds since the comparison began.
    fn elapsed_s(&self) -> f64;

    /// Whether the user asked to stop.
    fn interrupted(&self) -> bool;
}

/// Progress of a comparison, for progress bars, the store and the live table.
#[derive(Debug)]
pub enum Event<'a> {
    /// The arms were checked; one admission per arm.
    Admitted(&'a [Admission]),
    /// A trial begins.
    Started(&'a Trial),
    /// A trial ended; it counts unless `rejected` is non-empty or its block is 0.
    Finished(&'a TrialRecord),
    /// A block that counts is complete.
    Block(&'a Analysis),
    /// The comparison ended.
    Ended(&'a Ended),
}

/// The result of a comparison that ran, completely or in part.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// One admission per arm.
    pub admissions: Vec<Admission>,
    /// All finished trials in execution order, including rejected and discarded ones.
    pub trials: Vec<TrialRecord>,
    /// The statistics of the trials; absent if no block that counts was completed.
    pub analysis: Option<Analysis>,
    /// Why the comparison ended.
    pub ended: Ended,
}

/// Runs a comparison and reports its progress to `listener`.
///
/// Block 0 is run and discarded. An arm whose answer differs from the baseline's runs once more in block 1, so that the
/// baseline can confirm its own answer, and is then dropped. An arm with a trial that took too long is dropped; if it
/// is the baseline or the last other arm, the comparison ends ([`Ended::TooSlow`]). The comparison fails
/// ([`Ended::Failed`]) if the platform cannot prepare or run a trial, if the command fails under the baseline, if the
/// baseline's answer changes between trials, if no other arm gives the baseline's answer, if the primary metric has no
/// positive value, or if a trial was rejected [`MAX_ATTEMPTS`] times. Trials that finished earlier are kept in every
/// case.
pub fn compare<P: Platform>(design: &Design, platform: &mut P, listener: &mut dyn FnMut(Event<'_>)) -> Run {
    resume(design, EarlierParts::default(), None, platform, listener)
}

/// Continues a comparison that was interrupted, and reports its progress to `listener`. Like [`compare`], but finished trials
/// are not repeated, and the comparison ends at the pause, if there is one. The platform's clock continues from the earlier
/// trials.
///
/// After a gap, block 0 runs once more, because caches and pools are empty or were used by others. A block that was
/// interrupted by a reboot stays incomplete and does not count, because its arms would have run in two boots.
pub fn resume<P: Platform>(
    design: &Design,
    earlier: EarlierParts,
    pause: Option<Pause>,
    platform: &mut P,
    listener: &mut dyn FnMut(Event<'_>),
) -> Run {
    let mut runner = Runner::new(design, platform, listener);
    runner.gap = if earlier.trials.is_empty() { Gap::Nothing } else { earlier.gap };
    runner.trials = earlier.trials;
    runner.pause = pause;
    let ended = match plan::check(design) {
        Ok(()) => runner.run(),
        Err(error) => failed(error.to_string()),
    };
    let Runner { admissions, trials, .. } = runner;
    let analysis = stats::analyse(design, &trials, &admissions);
    listener(Event::Ended(&ended));
    Run { admissions, trials, analysis, ended }
}

/// Runs the one arm of a design that applies to this boot, block after block, and reports its progress to `listener`.
/// Block 0 is run and discarded; the run ends after [`Design::min_blocks`] more, because more boots say more about an
/// arm than more trials in one boot ([`stats::boots`]). There is no analysis.
///
/// It ends like [`compare`] if a trial fails, and with [`Ended::NothingAdmitted`] if the boot has none of the arms.
pub fn arm_of_boot<P: Platform>(design: &Design, platform: &mut P, listener: &mut dyn FnMut(Event<'_>)) -> Run {
    let admissions: Vec<Admission> = design.arms.iter().map(|arm| platform.admit(arm)).collect();
    listener(Event::Admitted(&admissions));
    let has = admissions.iter().position(|admission| matches!(admission, Admission::Admitted { .. }));
    let (trials, ended) = match (plan::check(design), has) {
        (Err(error), _) => (Vec::new(), failed(error.to_string())),
        (Ok(()), None) => (Vec::new(), Ended::NothingAdmitted),
        (Ok(()), Some(arm)) => run_alone(design, arm, platform, listener),
    };
    listener(Event::Ended(&ended));
    Run { admissions, trials, analysis: None, ended }
}

/// Runs one arm as if it were the whole design; its trials carry the arm's index in `design`.
fn run_alone<P: Platform>(
    design: &Design,
    arm: usize,
    platform: &mut P,
    listener: &mut dyn FnMut(Event<'_>),
) -> (Vec<TrialRecord>, Ended) {
    let mut solo = Design { arms: vec![design.arms[arm].clone()], baseline: 0, ..design.clone() };
    solo.max_blocks = solo.min_blocks;
    let mut renamed = |event: Event<'_>| match event {
        Event::Started(trial) => listener(Event::Started(&Trial { arm, ..*trial })),
        Event::Finished(record) => listener(Event::Finished(&of_arm(record.clone(), arm))),
        _ => {}
    };
    let mut runner = Runner::new(&solo, platform, &mut renamed);
    runner.is_running = vec![true];
    runner.admissions = vec![Admission::Admitted { mechanism: String::new() }];
    let ended = match runner.blocks() {
        // A single arm has no effect whose precision could stop the run, so it counts as precise at the last block.
        Ended::Precise => Ended::Blocks,
        other => other,
    };
    (runner.trials.into_iter().map(|record| of_arm(record, arm)).collect(), ended)
}

fn of_arm(mut record: TrialRecord, arm: usize) -> TrialRecord {
    record.trial.arm = arm;
    record
}

struct Runner<'a, P> {
    design: &'a Design,
    platform: &'a mut P,
    listener: &'a mut dyn FnMut(Event<'_>),
    admissions: Vec<Admission>,
    trials: Vec<TrialRecord>,
    /// Whether each arm still takes part.
    is_running: Vec<bool>,
    /// What happened since the last trial.
    gap: Gap,
    pause: Option<Pause>,
}

impl<'a, P: Platform> Runner<'a, P> {
    fn new(design: &'a Design, platform: &'a mut P, listener: &'a mut dyn FnMut(Event<'_>)) -> Runner<'a, P> {
        let (admissions, trials, is_running) = (Vec::new(), Vec::new(), Vec::new());
        Runner { design, platform, listener, admissions, trials, is_running, gap: Gap::Nothing, pause: None }
    }

    fn run(&mut self) -> Ended {
        self.admit();
        // A guest may have only one policy, which is compared with the same policy on another kernel.
        let is_alone = self.design.arms.iter().filter(|arm| arm.role == Role::Policy).count() == 1;
        if !self.is_running[self.design.baseline] || self.compared() == 0 && !is_alone {
            return Ended::NothingAdmitted;
        }
        for slow in answers::accepted(&self.trials).filter(|record| record.answer.too_slow) {
            self.is_running[slow.trial.arm] = false;
        }
        self.blocks()
    }

    fn blocks(&mut self) -> Ended {
        let mut block = 0;
        loop {
            if let Err(ended) = self.block(block) {
                return ended;
            }
            block += 1;
        }
    }

    fn admit(&mut self) {
        self.admissions = Vec::with_capacity(self.design.arms.len());
        for arm in &self.design.arms {
            let admission = match &arm.role {
                Role::Policy => self.platform.admit(arm),
                Role::Frames { of } | Role::Share { of, .. } => match self.admissions.get(*of) {
                    Some(Admission::Admitted { .. }) => self.platform.admit(arm),
                    _ => self.control_admission(*of),
                },
                Role::Bare => self.control_admission(self.design.baseline),
                Role::Sham { of, .. } => self.control_admission(*of),
            };
            self.admissions.push(admission);
        }
        self.is_running =
            self.admissions.iter().map(|admission| matches!(admission, Admission::Admitted { .. })).collect();
        (self.listener)(Event::Admitted(&self.admissions));
    }

    /// The admission of a control arm, which is the admission of the arm to which it belongs.
    fn control_admission(&self, arm: usize) -> Admission {
        match self.admissions.get(arm) {
            Some(Admission::Unsupported(why)) => Admission::Unsupported(why.clone()),
            Some(Admission::Admitted { .. }) => Admission::Admitted { mechanism: "the tracer's cost".into() },
            None => Admission::Unsupported(Unsupported {
                reason: "the arm that it is compared with comes after it".into(),
                remedy: "put control arms behind the others".into(),
            }),
        }
    }

    /// Number of policies that still take part, in addition to the baseline.
    fn compared(&self) -> usize {
        self.design.compared().filter(|arm| self.is_running[*arm]).count().saturating_sub(1)
    }

    /// Drops sham arms ([`crate::control`]) that would show nothing: the arms to which they belong hardly stop more often than
    /// the baseline.
    fn drop_shams(&mut self) {
        for (index, arm) in self.design.arms.iter().enumerate() {
            if let Role::Sham { of, .. } = arm.role {
                self.is_running[index] &= self.design.needs_sham_trials(of, &self.trials);
            }
        }
    }

    fn block(&mut self, block: u32) -> Result<(), Ended> {
        let last = self.trials.iter().map(|record| record.trial.block).max();
        let missing = if last.is_some_and(|last| block < last) { Vec::new() } else { self.missing(block) };
        if !missing.is_empty() {
            self.check_time_limit()?;
            if block > 0 && self.gap != Gap::Nothing {
                if last == Some(block) && self.gap == Gap::Reboot {
                    return Ok(());
                }
                self.warm_up()?;
            }
            self.gap = Gap::Nothing;
        }
        let is_last = last.is_none_or(|last| block >= last);
        for (position, arm) in missing {
            self.trial(arm, block, position)?;
        }
        self.check_answers(block)?;
        self.check_primary(block)?;
        match block {
            0 => self.drop_shams(),
            _ if is_last => return self.conclude(),
            _ => {}
        }
        Ok(())
    }

    /// The arms that a block lacks, in execution order, each with its position.
    fn missing(&self, block: u32) -> Vec<(usize, usize)> {
        let of_block = |arm: usize| {
            answers::accepted(&self.trials).any(move |record| (record.trial.arm, record.trial.block) == (arm, block))
        };
        let must_warm = self.gap != Gap::Nothing && block == 0;
        let order = plan::order(self.design.seed, block, self.design.arms.len());
        let needed = next_block::needed(self.design, &self.trials, &self.admissions, block);
        let is_running = order.into_iter().filter(|arm| self.is_running[*arm] && needed[*arm]).enumerate();
        is_running.filter(|(_, arm)| must_warm || !of_block(*arm)).collect()
    }

    /// Refuses to continue after the time limit or the pause. Both count from the first trial, because a comparison may wait
    /// for another pagelab before its first trial.
    fn check_time_limit(&self) -> Result<(), Ended> {
        let Some(first) = self.trials.first() else { return Ok(()) };
        let elapsed_s = self.platform.elapsed_s() - first.started_s;
        match (self.pause, self.design.max_time_s) {
            (Some(pause), _) if elapsed_s >= pause.latest_s => Err(Ended::Interrupted),
            (Some(pause), _) if elapsed_s >= pause.after_s && self.has_enough_blocks() => Err(Ended::Interrupted),
            (None, Some(limit_s)) if elapsed_s >= limit_s => Err(Ended::Time),
            _ => Ok(()),
        }
    }

    fn has_enough_blocks(&self) -> bool {
        let analysis = stats::analyse(self.design, &self.trials, &self.admissions);
        analysis.is_some_and(|analysis| self.is_enough(&analysis))
    }

    fn is_enough(&self, analysis: &Analysis) -> bool {
        analysis.blocks >= plan::min_blocks_to_stop(self.design, self.compared())
    }

    /// Runs block 0 once more.
    fn warm_up(&mut self) -> Result<(), Ended> {
        let order = plan::order(self.design.seed, 0, self.design.arms.len());
        let order: Vec<usize> = order.into_iter().filter(|arm| self.is_running[*arm]).collect();
        order.into_iter().enumerate().try_for_each(|(position, arm)| self.trial(arm, 0, position))
    }

    /// Repeats a trial until it is not rejected.
    fn trial(&mut self, arm: usize, block: u32, position: usize) -> Result<(), Ended> {
        let is_earlier = |record: &&TrialRecord| record.trial.arm == arm && record.trial.block == block;
        let earlier = self.trials.iter().filter(is_earlier).count() as u32;
        let mut trial = Trial { arm, block, position: position as u32, attempt: earlier };
        loop {
            if self.platform.interrupted() {
                return Err(Ended::Interrupted);
            }
            (self.listener)(Event::Started(&trial));
            let arm = &self.design.arms[trial.arm];
            let record = self.platform.prepare().and_then(|()| self.platform.run(arm, trial));
            let mut record = record.map_err(|error| {
                if self.platform.interrupted() {
                    Ended::Interrupted
                } else {
                    failed(format!("{} failed in block {}: {error}", arm.run_in_words(), trial.block))
                }
            })?;
            record.trial = trial;
            (self.listener)(Event::Finished(&record));
            let rejected = record.rejected.first().cloned();
            let too_slow = record.answer.too_slow.then(|| answers::too_slow(self.design, &record));
            self.trials.push(record);
            let Some(change) = rejected else {
                return too_slow.map_or(Ok(()), |message| self.drop_slow_arm(trial.arm, &message));
            };
            trial.attempt += 1;
            if trial.attempt == earlier + MAX_ATTEMPTS {
                let value = |value: Option<String>| value.unwrap_or_else(|| "absent".to_string());
                return Err(failed(format!(
                    "{} was rejected {MAX_ATTEMPTS} times in block {} because a setting changed under it, at last {} from {} to \
                     {}; find what writes it (a tuning daemon, another user), stop it and start again",
                    arm.run_in_words(),
                    trial.block,
                    change.path,
                    value(change.before),
                    value(change.after),
                )));
            }
        }
    }

    /// Drops an arm after one trial that took too long. Ends the comparison if nothing is left to compare.
    fn drop_slow_arm(&mut self, arm: usize, message: &str) -> Result<(), Ended> {
        self.is_running[arm] = false;
        let why = if arm == self.design.baseline {
            ""
        } else if self.compared() == 0 {
            ", and no other arm is left"
        } else {
            return Ok(());
        };
        let run = self.design.arms[arm].run_in_words();
        let message = format!(
            "{run} {message} with all processes that it had started{why}; check what it waits for, or give it \
             more time"
        );
        Err(Ended::TooSlow { message })
    }

    /// Analyses the blocks so far and decides whether to stop.
    fn conclude(&mut self) -> Result<(), Ended> {
        let Some(analysis) = stats::analyse(self.design, &self.trials, &self.admissions) else { return Ok(()) };
        (self.listener)(Event::Block(&analysis));
        if self.is_enough(&analysis) && stats::unsettled(self.design, &analysis).next().is_none() {
            return Err(Ended::Precise);
        }
        if analysis.blocks >= self.design.max_blocks { Err(Ended::Blocks) } else { Ok(()) }
    }
}

fn failed(message: String) -> Ended {
    Ended::Failed { message }
}
