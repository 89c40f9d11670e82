//! Calls a function at fixed intervals ([`at_intervals`]), to inspect a process until the process ends, a signal
//! arrives, or the output has no reader.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tracer::signals;

use crate::failure::Failure;
use crate::output::Reader;

/// Maximum time until a signal or a closed pipe is noticed.
const SIGNAL_PATIENCE: Duration = Duration::from_millis(100);

/// Calls `look` once every `interval`, with the time since the first call, until it breaks or [`must_end`] is true. Returns the
/// value with which `look` broke.
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
        // Calls are at multiples of the interval, however long each takes. After a call that is late, the next one
        // comes a whole interval later.
        let next = began + interval * looks;
        wait(if next < Instant::now() { Instant::now() + interval } else { next }, is_over);
    }
    Ok(None)
}

/// Waits until this time, or until there must be no further looks.
pub fn wait(until: Instant, is_over: &AtomicBool) {
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        if must_end(is_over) {
            return;
        }
        std::thread::sleep(left.min(SIGNAL_PATIENCE));
    }
}

/// The interval between looks, at most 30 years: a longer one would not fit into an `Instant`.
pub fn interval(every_s: f64) -> Duration {
    Duration::from_secs_f64(every_s.min(1e9))
}

/// Whether there must be no further looks: the process has ended, a signal stops pagelab, or standard output has no
/// reader.
fn must_end(is_over: &AtomicBool) -> bool {
    is_over.load(Ordering::SeqCst) || signals::arrived().is_some() || Reader::of_stdout() == Reader::Gone
}
