//! Shows progress on standard error ([`ProgressLine`]): on a terminal in one line; elsewhere, as in the log of a CI
//! job, with a line per minute.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::report;
use crate::locale::fit_to_locale;
use crate::output::is_dumb;
use crate::status_line;

/// How often a log gets a line.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Progress on standard error.
pub enum ProgressLine {
    /// A terminal: one line that is overwritten.
    Line(ProgressBar),
    /// A terminal that cannot overwrite (`TERM=dumb`): one line per text.
    Lines,
    /// No terminal: a line every [`LOG_INTERVAL`]. The last line was written at this time.
    Log(Cell<Instant>),
}

impl ProgressLine {
    /// An empty line.
    pub fn new() -> ProgressLine {
        match (std::io::stderr().is_terminal(), is_dumb()) {
            (false, _) => ProgressLine::Log(Cell::new(Instant::now())),
            (true, true) => ProgressLine::Lines,
            (true, false) => ProgressLine::Line(line()),
        }
    }

    /// Shows a text.
    pub fn set(&self, text: &str) {
        let text = fit_to_locale(text);
        match self {
            ProgressLine::Line(bar) => bar.set_message(text.into_owned()),
            ProgressLine::Lines => report(&text),
            ProgressLine::Log(last) if last.get().elapsed() >= LOG_INTERVAL => {
                last.set(Instant::now());
                report(format_args!("pagelab: {text}"));
            }
            ProgressLine::Log(_) => {}
        }
    }

    /// Whether [`ProgressLine::set`] may be called often. If not, each text becomes a line that stays.
    pub fn overwrites(&self) -> bool {
        !matches!(self, ProgressLine::Lines)
    }

    /// Removes the line.
    pub fn clear(&self) {
        if let ProgressLine::Line(bar) = self {
            bar.finish_and_clear();
            status_line::take();
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
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
