//! Estimates from the first block whether the time limit leaves room for an interval ([`TimeLimit`]).

use results::sentence::rounded_up;
use study::comparison::{Design, Ended};
use study::plan::interval_blocks;
use study::runner::Event;

use super::progress::time;

/// Margin on an estimated time, because trials vary.
const MARGIN: f64 = 1.2;

/// A time limit, checked once, when the first block has been run.
pub struct TimeLimit {
    limit_s: Option<f64>,
    /// The smallest number of blocks that gives an interval.
    blocks: u32,
    /// When the first and the latest trial began, on the platform's clock.
    began_s: Option<(f64, f64)>,
    trials: u32,
    /// The number of arms without control runs, which pause after the first blocks.
    arms: u32,
}

impl TimeLimit {
    /// The limit of a design. There is nothing to check if the design asks for too few blocks for an interval anyway.
    pub fn of(design: &Design) -> TimeLimit {
        let blocks = interval_blocks(design);
        let limit_s = design.max_time_s.filter(|_| design.max_blocks >= blocks);
        TimeLimit { limit_s, blocks, began_s: None, trials: 0, arms: design.compared().count() as u32 }
    }

    /// A warning when this event shows that the limit is too short.
    pub fn on_event(&mut self, event: &Event<'_>) -> Option<String> {
        match event {
            Event::Finished(record) => {
                let began_s = self.began_s.map_or(record.started_s, |(first_s, _)| first_s);
                self.began_s = Some((began_s, record.started_s));
                self.trials += 1;
                None
            }
            Event::Started(trial) if trial.block > 0 => self.check(),
            Event::Ended(Ended::Time) => self.check(),
            _ => None,
        }
    }

    fn check(&mut self) -> Option<String> {
        let limit_s = self.limit_s.take()?;
        let (first_s, last_s) = self.began_s?;
        let intervals = f64::from(self.trials.saturating_sub(1).max(1));
        let block_s = (last_s - first_s) * f64::from(self.arms.min(self.trials)) / intervals;
        // The limit applies to the beginning of a block. The last block that is needed begins after the discarded block
        // and all other needed blocks.
        let needed_s = block_s * f64::from(self.blocks);
        (needed_s > limit_s).then(|| {
            format!(
                "--max-time is too short for an interval, which takes {} blocks, at the pace of the first, {} each: --max-time {} would be enough",
                self.blocks,
                time(block_s),
                rounded_up(needed_s * MARGIN)
            )
        })
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
        (limit.began_s, limit.trials) = (Some((0.5, 10.5)), 2);
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
            "--max-time is too short for an interval, which takes 6 blocks, at the pace of the first, 20 s each: --max-time 3m would be enough"
        );
        assert_eq!(reported(&design(121.0, 60)), None, "the sixth block begins in time");
        assert_eq!(reported(&design(60.0, 5)), None, "five blocks were asked for");
    }

    #[test]
    fn reports_a_limit_that_ends_the_run_before_a_block_counts() {
        let mut limit = TimeLimit::of(&design(5.0, 60));
        (limit.began_s, limit.trials) = (Some((0.0, 10.0)), 2);
        assert!(limit.on_event(&Event::Ended(&Ended::Time)).unwrap().contains("--max-time 3m would be enough"));
    }
}
