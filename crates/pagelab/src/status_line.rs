//! The line on the terminal that says what runs: whatever else is written takes it away meanwhile.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::ProgressBar;

/// The line that is on the terminal.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Says that this line is on the terminal from now on.
pub fn put(line: ProgressBar) {
    *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
}

/// Draws a line anew at every interval, as long as it is there. Where there can be no thread for it, the line changes only with what
/// it says.
pub fn tick(line: &ProgressBar, every: Duration) {
    let line = line.downgrade();
    let draw = move || {
        while let Some(line) = line.upgrade().filter(|line| !line.is_finished()) {
            line.tick();
            drop(line);
            std::thread::sleep(every);
        }
    };
    drop(std::thread::Builder::new().name("line".into()).spawn(draw));
}

/// Says that the line is gone.
pub fn take() {
    *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Writes to standard error with the line taken away meanwhile.
pub fn apart(write: impl FnOnce()) {
    let shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match shown {
        Some(line) => line.suspend(write),
        None => write(),
    }
}
