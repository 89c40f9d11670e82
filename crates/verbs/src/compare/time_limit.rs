//! Estimates from the first block whether the time limit leaves room for an interval ([`TimeLimit`]).

use policy::Admission;
use results::sentence::rounded_up;
use study::comparison::{Comparison, Design, Ended};
use study::metric::names;
use study::plan::interval_blocks;
use study::runner::Event;
use study::trial::TrialRecord;

use super::progress::time;

/// Margin on an estimated time, because trials vary.
const MARGIN: f64 = 1.2;

/// A time limit, checked once, when the first block has been run.
pub struct TimeLimit {
    limit_s: Option<f64>,
    /// The smallest number of blocks that gives an interval.
    blocks: u32,
    pace: Pace,
    /// For each arm of the design, whether it is a control arm.
    controls: Vec<bool>,
    /// The number of admitted arms without control arms, which pause after the first blocks, and with them.
    arms: u32,
    all_arms: u32,
}

impl TimeLimit {
    /// The limit of a design. There is nothing to check if the design asks for too few blocks for an interval anyway.
    pub fn of(design: &Design) -> TimeLimit {
        let blocks = interval_blocks(design);
        let limit_s = design.max_time_s.filter(|_| design.max_blocks >= blocks);
        let controls = controls(design);
        let (arms, all_arms) = counts(&controls, |_| true);
        TimeLimit { limit_s, blocks, pace: Pace::default(), controls, arms, all_arms }
    }

    /// A warning when this event shows that the limit is too short.
    pub fn on_event(&mut self, event: &Event<'_>) -> Option<String> {
        match event {
            Event::Admitted(admissions) => {
                (self.arms, self.all_arms) = counts(&self.controls, |at| is_admitted(admissions, at));
                None
            }
            Event::Finished(record) => {
                self.pace.add(record);
                None
            }
            Event::Started(trial) if trial.block > 0 => self.check(),
            Event::Ended(Ended::Time) => self.check(),
            _ => None,
        }
    }

    fn check(&mut self) -> Option<String> {
        let limit_s = self.limit_s.take()?;
        let block_s = self.pace.block_s(self.arms)?;
        let needed_s = needed_s(block_s, self.blocks);
        (needed_s > limit_s).then(|| {
            format!(
                "--max-time is too short for an interval, which takes {} blocks of {} each: --max-time {} would be enough",
                self.blocks,
                time(block_s),
                rounded_up(needed_s / f64::from(self.arms) * f64::from(self.all_arms) * MARGIN)
            )
        })
    }
}

/// The `--max-time` with which a comparison that ended too early would have had an interval, if its pace is known.
pub fn enough(comparison: &Comparison) -> Option<String> {
    let mut pace = Pace::default();
    comparison.trials.iter().for_each(|record| pace.add(record));
    let (_, all_arms) = counts(&controls(&comparison.design), |at| is_admitted(&comparison.admissions, at));
    let block_s = pace.block_s(all_arms)?;
    let needed_s = needed_s(block_s, interval_blocks(&comparison.design)).max(comparison.design.max_time_s?);
    Some(rounded_up(needed_s * MARGIN))
}

/// For each arm, whether it is a control arm.
fn controls(design: &Design) -> Vec<bool> {
    (0..design.arms.len()).map(|arm| !design.is_compared(arm)).collect()
}

/// The number of arms for which `runs` is true: those that are compared, and all.
fn counts(controls: &[bool], runs: impl Fn(usize) -> bool) -> (u32, u32) {
    let count = |with_controls: bool| {
        let counted =
            controls.iter().enumerate().filter(|(at, is_control)| runs(*at) && (with_controls || !**is_control));
        counted.count() as u32
    };
    (count(false), count(true))
}

fn is_admitted(admissions: &[Admission], at: usize) -> bool {
    matches!(admissions.get(at), Some(Admission::Admitted { .. }))
}

/// The limit applies to the beginning of a block. The last block that is needed begins after the discarded block and all other
/// needed blocks.
fn needed_s(block_s: f64, blocks: u32) -> f64 {
    block_s * f64::from(blocks)
}

/// How long trials take.
#[derive(Default)]
struct Pace {
    /// When the first and the latest trial began, on the platform's clock.
    began_s: Option<(f64, f64)>,
    trials: u32,
    /// The sum of their wall times.
    wall_s: f64,
}

impl Pace {
    fn add(&mut self, record: &TrialRecord) {
        let first_s = self.began_s.map_or(record.started_s, |(first_s, _)| first_s);
        self.began_s = Some((first_s, record.started_s));
        self.trials += 1;
        self.wall_s += record.value(names::WALL_S).unwrap_or(0.0);
    }

    /// The seconds of a block of this many arms: from the starts of the trials, or from their wall times, which are known from the
    /// first trial on. `None` without a trial.
    fn block_s(&self, arms: u32) -> Option<f64> {
        let (first_s, last_s) = self.began_s?;
        let intervals = f64::from(self.trials.saturating_sub(1).max(1));
        let trial_s = ((last_s - first_s) / intervals).max(self.wall_s / f64::from(self.trials));
        Some(trial_s * f64::from(arms))
    }
}

#[cfg(test)]
mod tests {
    use study::trial::{Arm, Trial};

    use super::*;

    fn design(max_time_s: f64, max_blocks: u32) -> Design {
        let arms = ["default", "thp"].map(|policy| Arm::of_policy(policy, policy.parse().unwrap()));
        Design { max_time_s: Some(max_time_s), max_blocks, ..Design::new(arms.into(), 0, 1) }
    }

    /// What is reported when the first block has taken 20 seconds.
    fn reported(design: &Design) -> Option<String> {
        let mut limit = TimeLimit::of(design);
        limit.pace = Pace { began_s: Some((0.5, 10.5)), trials: 2, wall_s: 18.0 };
        let trial = |block| Trial { arm: 0, block, position: 0, attempt: 0 };
        assert_eq!(limit.on_event(&Event::Started(&trial(0))), None, "the block is not complete");
        let reported = limit.on_event(&Event::Started(&trial(1)));
        assert_eq!(limit.on_event(&Event::Started(&trial(2))), None, "it is reported once");
        reported
    }

    #[test]
    fn a_limit_that_is_too_short_is_reported_with_one_that_would_do() {
        let text = reported(&design(60.0, 60)).unwrap();
        assert_eq!(
            text,
            "--max-time is too short for an interval, which takes 6 blocks of 20 s each: --max-time 3m would be enough"
        );
        assert_eq!(reported(&design(121.0, 60)), None, "the sixth block begins in time");
        assert_eq!(reported(&design(60.0, 5)), None, "five blocks were asked for");
    }

    #[test]
    fn arms_that_are_not_admitted_take_no_time() {
        let mut limit = TimeLimit::of(&design(60.0, 60));
        let none = policy::Unsupported { reason: "no THP".into(), remedy: "none".into() };
        let admitted = Admission::Admitted { mechanism: String::new() };
        assert_eq!(limit.on_event(&Event::Admitted(&[admitted, Admission::Unsupported(none)])), None);
        assert_eq!((limit.arms, limit.all_arms), (1, 1));
    }

    #[test]
    fn one_trial_gives_a_pace() {
        let pace = Pace { began_s: Some((1.0, 1.0)), trials: 1, wall_s: 5.0 };
        assert_eq!(pace.block_s(2), Some(10.0));
        assert_eq!(Pace::default().block_s(2), None);
    }

    #[test]
    fn reports_a_limit_that_ends_the_run_before_a_block_counts() {
        let mut limit = TimeLimit::of(&design(5.0, 60));
        limit.pace = Pace { began_s: Some((0.0, 10.0)), trials: 2, wall_s: 18.0 };
        assert!(limit.on_event(&Event::Ended(&Ended::Time)).unwrap().contains("--max-time 3m would be enough"));
    }
}
