//! What is shown while a comparison runs: a bar on a terminal, nothing elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use study::comparison::Design;
use study::runner::Event;
use study::stats::Analysis;

/// Listens to a comparison and draws its progress on standard error.
pub struct Progress {
    bar: ProgressBar,
    arms: Vec<String>,
    primary: String,
}

impl Progress {
    /// A bar for a design; hidden where standard error is no terminal.
    pub fn new(design: &Design) -> Progress {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(u64::from(design.max_blocks) + 1)
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template("{elapsed:>5} block {pos}/{len} {bar:24} {wide_msg}");
        bar.set_style(style.expect("the template is well formed"));
        bar.enable_steady_tick(Duration::from_millis(250));
        Progress {
            bar,
            arms: design.arms.iter().map(|arm| arm.label.clone()).collect(),
            primary: design.primary.clone(),
        }
    }

    /// Takes note of what happened.
    pub fn hear(&self, event: &Event) {
        match event {
            Event::Started(trial) => {
                self.bar.set_position(u64::from(trial.block));
                if trial.block == 0 {
                    self.bar.set_message(format!("{} (first block, discarded)", self.arms[trial.arm]));
                }
            }
            Event::Block(analysis) => self.bar.set_message(self.widest(analysis)),
            Event::Ended(_) => self.bar.finish_and_clear(),
            Event::Admitted(_) | Event::Finished(_) => {}
        }
    }

    /// The arm whose interval is widest: what the run still waits for.
    fn widest(&self, analysis: &Analysis) -> String {
        let half_width = |arm: usize| {
            let effect = analysis.arms[arm].effects.get(&self.primary)?;
            Some(((effect.high? / effect.low?).ln() / 2.0, effect.ratio))
        };
        let widest = (0..analysis.arms.len())
            .filter_map(|arm| half_width(arm).map(|(width, ratio)| (arm, width, ratio)))
            .max_by(|a, b| a.1.total_cmp(&b.1));
        match widest {
            Some((arm, width, ratio)) => {
                format!("widest: {} {:+.1} % ±{:.1} %", self.arms[arm], (ratio - 1.0) * 100.0, width * 100.0)
            }
            None => "too few blocks for an interval".to_string(),
        }
    }
}
