//! Progress of a running comparison.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use policy::Admission;
use study::comparison::Design;
use study::control::Role;
use study::plan;
use study::runner::Event;
use study::stats::{self, Analysis};
use study::trial::Arm;

use crate::progress_line::ProgressLine;

/// Shows the progress of a comparison on standard error: the running arm, the trial's number, the expected number of trials,
/// and the remaining time.
pub struct Progress {
    status: ProgressLine,
    arms: Vec<String>,
    forecast: RefCell<Forecast>,
    /// The last block that was reported, for a terminal that cannot overwrite a line.
    last_block: Cell<Option<u32>>,
}

impl Progress {
    /// The progress display of a design.
    pub fn new(design: &Design) -> Progress {
        Progress {
            status: ProgressLine::new(),
            arms: design.arms.iter().map(|arm| name(arm, design)).collect(),
            forecast: RefCell::new(Forecast::new(design)),
            last_block: Cell::new(None),
        }
    }

    /// Updates the display after an event.
    pub fn on_event(&self, event: &Event) {
        let mut forecast = self.forecast.borrow_mut();
        match event {
            Event::Admitted(admissions) => forecast.admitted(admissions),
            Event::Started(trial) => self.show(trial.block, &forecast.line(&self.arms[trial.arm], trial.block)),
            Event::Finished(record) => forecast.finished(record.rejected.is_empty()),
            Event::Block(analysis) => forecast.block(analysis),
            Event::Ended(_) => self.status.clear(),
        }
    }

    fn show(&self, block: u32, text: &str) {
        // A terminal that cannot overwrite the line shows one line per block.
        if self.status.overwrites() || self.last_block.replace(Some(block)) != Some(block) {
            self.status.set(text);
        }
    }
}

/// The label of an arm; for a control arm what it controls.
fn name(arm: &Arm, design: &Design) -> String {
    let reference = design.arms.get(design.baseline).map_or("", |baseline| baseline.label.as_str());
    match arm.role {
        Role::Bare => format!("{reference} without the tracer"),
        Role::Sham { .. } => format!("{} (the stops alone)", arm.label),
        _ => arm.label.clone(),
    }
}

/// Estimates how long a comparison will take.
struct Forecast {
    design: Design,
    began: Instant,
    first_trial: Option<Instant>,
    /// The number of admitted arms.
    arms: usize,
    /// Trials that finished, without rejected ones.
    done: u64,
    /// The value of `done` at the end of each block that counts.
    done_by_block: Vec<u64>,
    /// The number of blocks after which the intervals are expected to reach the requested precision, not counting block 0.
    blocks: Option<u32>,
}

impl Forecast {
    fn new(design: &Design) -> Forecast {
        Forecast {
            arms: design.arms.len(),
            design: design.clone(),
            began: Instant::now(),
            first_trial: None,
            done: 0,
            done_by_block: Vec::new(),
            blocks: None,
        }
    }

    fn admitted(&mut self, admissions: &[Admission]) {
        self.arms = admissions.iter().filter(|one| matches!(one, Admission::Admitted { .. })).count();
        self.first_trial = Some(Instant::now());
    }

    fn finished(&mut self, counts: bool) {
        self.done += u64::from(counts);
    }

    /// Estimates the number of blocks from the widest interval: intervals narrow with the square root of the number of
    /// blocks.
    fn block(&mut self, analysis: &Analysis) {
        self.done_by_block.push(self.done);
        let asked = self.design.precision_ratio.ln_1p();
        let needed = |arm: usize| {
            let effect = analysis.arms[arm].effects.get(&analysis.primary)?;
            let half = (effect.high? / effect.low?).ln() / 2.0;
            Some((f64::from(effect.blocks) * (half / asked).powi(2)).ceil() as u32)
        };
        let settled = self.done_by_block.len() as u32;
        self.blocks = stats::unsettled(&self.design, analysis).filter_map(needed).max().or(Some(settled));
    }

    /// The expected number of counted blocks.
    fn expected_blocks(&self) -> u32 {
        let least = plan::min_blocks_to_stop(&self.design, self.arms.saturating_sub(1));
        self.blocks.unwrap_or(self.design.max_blocks).max(least).min(self.design.max_blocks)
    }

    /// The expected total number of trials, and the remaining seconds. `elapsed_s` is the time since the beginning, of which
    /// `trials_s` was spent in trials.
    fn of(&self, elapsed_s: f64, trials_s: f64) -> (u64, Option<f64>) {
        let arms = self.arms.max(1) as u64;
        let (finished, blocks) = match self.done_by_block.last() {
            Some(done) => (*done, u64::from(self.expected_blocks()).saturating_sub(self.done_by_block.len() as u64)),
            None => (self.done / arms * arms, (u64::from(self.expected_blocks()) + 1).saturating_sub(self.done / arms)),
        };
        let per_block = self.trials_per_block();
        let after = |blocks: u64| finished + (blocks as f64 * per_block).round() as u64;
        let planned = after(blocks);
        if self.done == 0 {
            return (planned, None);
        }
        let trial_s = trials_s / self.done as f64;
        // A block that began before the time limit is completed after it.
        let in_time = self.design.max_time_s.map_or(u64::MAX, |limit_s| {
            let more = ((limit_s - elapsed_s).max(0.0) / trial_s / per_block).min(1e12) as u64;
            after(more + 1)
        });
        let all = planned.min(in_time).max(self.done + 1);
        (all, Some((all - self.done) as f64 * trial_s))
    }

    /// The expected number of trials in a further block: the mean of the last four blocks, because arms leave and
    /// control arms pause.
    fn trials_per_block(&self) -> f64 {
        let recent = &self.done_by_block[self.done_by_block.len().saturating_sub(5)..];
        match recent {
            [first, .., last] => (last - first) as f64 / (recent.len() - 1) as f64,
            _ => self.arms.max(1) as f64,
        }
    }

    fn line(&self, arm: &str, block: u32) -> String {
        let since = |at: Instant| at.elapsed().as_secs_f64();
        let elapsed_s = since(self.began);
        let (all, left_s) = self.of(elapsed_s, self.first_trial.map_or(0.0, since));
        let arm = results::printable(arm);
        let discarded = if block == 0 { " (the first block is discarded)" } else { "" };
        // Noise decides how many blocks are needed, so the time left can grow, up to the limit.
        let limit_s = self.design.max_time_s.map(|limit_s| limit_s - elapsed_s);
        let left = left_s.map(|left_s| match limit_s.filter(|limit_s| *limit_s > 1.5 * left_s) {
            Some(limit_s) => format!(", {} left (at most {})", time(left_s), time(limit_s)),
            None => format!(", {} left", time(left_s)),
        });
        let left = left.unwrap_or_default();
        format!("trial {} of about {all}{left}: {arm}{discarded}", self.done + 1)
    }
}

/// A duration for display: `40 s`, `12 min`, `3 h 20 min`.
pub fn time(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0..=1) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forecast(arms: usize, max_blocks: u32, max_time_s: f64) -> Forecast {
        let arm = |name: &str| Arm::of_policy(name, "thp".parse().unwrap());
        let mut design = Design::new(["a", "b", "c"][..arms].iter().map(|name| arm(name)).collect(), 0, 1);
        (design.max_blocks, design.max_time_s) = (max_blocks, Some(max_time_s));
        Forecast::new(&design)
    }

    #[test]
    fn the_first_limit_ends_it() {
        let mut of_blocks = forecast(2, 9, 600.0);
        assert_eq!(of_blocks.of(0.0, 0.0), (20, None), "nothing is known of a trial yet");
        (0..4).for_each(|_| of_blocks.finished(true));
        of_blocks.finished(false);
        assert_eq!(of_blocks.of(4.0, 4.0), (20, Some(16.0)));
        of_blocks.blocks = Some(1);
        assert_eq!(of_blocks.of(4.0, 4.0).0, 2 * (u64::from(of_blocks.expected_blocks()) + 1));
        assert!(of_blocks.expected_blocks() >= 5, "no fewer than the design asks for");
        let mut of_time = forecast(2, 1000, 10.0);
        (0..4).for_each(|_| of_time.finished(true));
        assert_eq!(of_time.of(4.0, 4.0), (12, Some(8.0)), "three more blocks and the one that begins in time");
        assert_eq!(of_time.of(40.0, 40.0).0, 6);
    }

    #[test]
    fn arms_that_left_take_no_time() {
        let mut forecast = forecast(3, 60, 600.0);
        (forecast.done, forecast.done_by_block) = (32, vec![6, 9, 12, 14, 16, 18, 20]);
        assert_eq!(forecast.of(20.0, 20.0).0, 20 + 53 * 2);
    }

    #[test]
    fn times_are_short() {
        assert_eq!([12.4, 119.0, 600.0, 12_000.0].map(time), ["12 s", "119 s", "10 min", "3 h 20 min"]);
    }

    #[test]
    fn the_line_names_what_runs() {
        let mut forecast = forecast(2, 9, 600.0);
        assert_eq!(forecast.line("thp", 0), "trial 1 of about 20: thp (the first block is discarded)");
        forecast.finished(true);
        let line = forecast.line("th\x1bp", 1);
        assert!(line.starts_with("trial 2 of about ") && line.ends_with(" left (at most 10 min): th\\x1bp"), "{line}");
    }
}
