//! The status line on the terminal, which is hidden while other output is written.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::ProgressBar;

/// The current status line.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Registers the line as the current status line.
pub fn put(line: ProgressBar) {
    *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
}

/// Redraws a line periodically as long as it exists. If no thread can be started for that, the line is redrawn only when
/// its text changes.
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

/// Unregisters the status line.
pub fn take() {
    *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Hides the status line while `write` writes to standard error.
pub fn suspend(write: impl FnOnce()) {
    let shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match shown {
        Some(line) => line.suspend(write),
        None => write(),
    }
}
