//! Progress of a running comparison: a line on a terminal, nothing elsewhere.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use study::comparison::{Admission, Design};
use study::plan;
use study::runner::Event;
use study::stats::Analysis;

use crate::failure::report;
use crate::locale::as_the_locale_has_it;
use crate::status_line;

/// Shows the progress of a comparison on standard error: the running arm, the trial's number, the expected number of trials,
/// and the remaining time.
pub struct Progress {
    display: Display,
    arms: Vec<String>,
    forecast: RefCell<Forecast>,
    /// The last block that was reported, for a terminal that cannot overwrite a line.
    last_block: Cell<Option<u32>>,
}

enum Display {
    /// One line that is overwritten.
    Line(ProgressBar),
    /// One line per block: the terminal cannot overwrite (`TERM=dumb`).
    Lines,
    /// No terminal: nothing is shown.
    Hidden,
}

impl Progress {
    /// The progress display of a design; hidden if standard error is not a terminal.
    pub fn new(design: &Design) -> Progress {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let display = match (std::io::stderr().is_terminal(), is_dumb) {
            (false, _) => Display::Hidden,
            (true, true) => Display::Lines,
            (true, false) => Display::Line(line()),
        };
        Progress {
            display,
            arms: design.arms.iter().map(|arm| arm.label.clone()).collect(),
            forecast: RefCell::new(Forecast::new(design)),
            last_block: Cell::new(None),
        }
    }

    /// Updates the display after an event.
    pub fn hear(&self, event: &Event) {
        let mut forecast = self.forecast.borrow_mut();
        match event {
            Event::Admitted(admissions) => forecast.admitted(admissions),
            Event::Started(trial) => self.show(trial.block, &forecast.line(&self.arms[trial.arm], trial.block)),
            Event::Finished(record) => forecast.finished(record.rejected.is_empty()),
            Event::Block(analysis) => forecast.block(analysis),
            Event::Ended(_) => {
                if let Display::Line(bar) = &self.display {
                    bar.finish_and_clear();
                    status_line::take();
                }
            }
        }
    }

    fn show(&self, block: u32, text: &str) {
        let text = as_the_locale_has_it(text);
        match &self.display {
            Display::Line(bar) => bar.set_message(text.into_owned()),
            Display::Lines if self.last_block.replace(Some(block)) != Some(block) => report(&text),
            Display::Lines | Display::Hidden => {}
        }
    }
}

fn line() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    // `wide_msg` truncates the message to the width of the terminal.
    bar.set_style(ProgressStyle::with_template("{elapsed:>3} {wide_msg}").expect("the template is well formed"));
    status_line::tick(&bar, Duration::from_secs(1));
    status_line::put(bar.clone());
    bar
}

/// Estimates how long a comparison will take.
struct Forecast {
    design: Design,
    began: Instant,
    first_trial: Option<Instant>,
    /// The number of admitted arms.
    arms: usize,
    /// Trials that finished and were not rejected.
    done: u64,
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
        let asked = self.design.precision_ratio.ln_1p();
        let needed = |arm: &study::stats::ArmAnalysis| {
            let effect = arm.effects.get(&analysis.primary)?;
            let half = (effect.high? / effect.low?).ln() / 2.0;
            Some((f64::from(effect.blocks) * (half / asked).powi(2)).ceil() as u32)
        };
        self.blocks = analysis.arms.iter().filter_map(needed).max();
    }

    /// The expected number of counted blocks.
    fn expected_blocks(&self) -> u32 {
        let least = plan::least_blocks(&self.design, self.arms.saturating_sub(1));
        self.blocks.unwrap_or(self.design.max_blocks).max(least).min(self.design.max_blocks)
    }

    /// The total number of trials and the remaining seconds. `elapsed_s` is the time since the beginning, of which `trials_s`
    /// was spent in trials.
    fn of(&self, elapsed_s: f64, trials_s: f64) -> (u64, Option<f64>) {
        let arms = self.arms.max(1) as u64;
        let planned = (u64::from(self.expected_blocks()) + 1) * arms;
        if self.done == 0 {
            return (planned, None);
        }
        let trial_s = trials_s / self.done as f64;
        // A block that begins before the time limit is completed.
        let in_time = self.design.max_time_s.map_or(u64::MAX, |limit_s| {
            let more = ((limit_s - elapsed_s).max(0.0) / trial_s / arms as f64).min(1e15) as u64;
            (self.done / arms + more + 1).saturating_mul(arms)
        });
        let all = planned.min(in_time).max(self.done);
        (all, Some((all - self.done) as f64 * trial_s))
    }

    fn line(&self, arm: &str, block: u32) -> String {
        let since = |at: Instant| at.elapsed().as_secs_f64();
        let (all, left_s) = self.of(since(self.began), self.first_trial.map_or(0.0, since));
        let arm = results::printable(arm);
        let discarded = if block == 0 { " (the first block is discarded)" } else { "" };
        let left = left_s.map(|left_s| format!(", {} left", time(left_s))).unwrap_or_default();
        format!("trial {} of about {all}{left}: {arm}{discarded}", self.done + 1)
    }
}

/// A duration for display: `40 s`, `12 min`, `3 h 20 min`.
fn time(seconds: f64) -> String {
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
    use study::trial::Arm;

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
    fn times_are_short() {
        assert_eq!([12.4, 119.0, 600.0, 12_000.0].map(time), ["12 s", "119 s", "10 min", "3 h 20 min"]);
    }

    #[test]
    fn the_line_names_what_runs() {
        let mut forecast = forecast(2, 9, 600.0);
        assert_eq!(forecast.line("thp", 0), "trial 1 of about 20: thp (the first block is discarded)");
        forecast.finished(true);
        let line = forecast.line("th\x1bp", 1);
        assert!(line.starts_with("trial 2 of about ") && line.ends_with(" left: th\\x1bp"), "{line}");
    }
}
