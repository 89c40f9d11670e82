//! Looks at fixed intervals, until the process that is looked at ends, a signal arrives or the output has no reader.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tracer::signals;

use crate::failure::Failure;
use crate::output::Reader;

/// The longest time until a signal or a closed pipe is noticed.
const SIGNAL_PATIENCE: Duration = Duration::from_millis(100);

/// Looks once every `interval`, with the time since the first look, until `look` breaks or [`must_end`]. Returns what `look` broke
/// with.
pub fn at_intervals<T>(
    interval: Duration,
    is_over: &AtomicBool,
    mut look: impl FnMut(Duration) -> Result<ControlFlow<T>, Failure>,
) -> Result<Option<T>, Failure> {
    let (began, mut looks) = (Instant::now(), 0u32);
    while !must_end(is_over) {
        if let ControlFlow::Break(end) = look(began.elapsed())? {
            return Ok(Some(end));
        }
        looks += 1;
        // Each look has a fixed time, however long the previous one took.
        let next = began + interval * looks;
        wait(if next < Instant::now() { Instant::now() + interval } else { next }, is_over);
    }
    Ok(None)
}

/// Waits until the given time, or until the looks must end.
pub fn wait(until: Instant, is_over: &AtomicBool) {
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        if must_end(is_over) {
            return;
        }
        std::thread::sleep(left.min(SIGNAL_PATIENCE));
    }
}

/// The interval of looks. A longer one than 30 years is not needed, and would not fit into a time.
pub fn interval(every_s: f64) -> Duration {
    Duration::from_secs_f64(every_s.min(1e9))
}

/// Whether the looks must end: the process has ended, a signal stops pagelab, or standard output has no reader.
fn must_end(is_over: &AtomicBool) -> bool {
    is_over.load(Ordering::SeqCst) || signals::arrived().is_some() || Reader::of_stdout() == Reader::Gone
}
