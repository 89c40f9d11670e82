//! Limits how long SQLite may work on a store, because another user may have written its content.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Seconds to wait for another process's write.
pub(super) const PATIENCE_S: u64 = 30;
/// Time limit of SQLite for one transaction: several hundred times as long as for a comparison that ran for a day.
const WORK: Duration = Duration::from_secs(60);
/// How much longer an operation may wait and work after pagelab was asked to stop, so that results measured until then are
/// stored.
const GRACE: Duration = Duration::from_secs(2);

/// Time limit of the current operation on a store. SQLite checks it periodically.
#[derive(Debug)]
pub(super) struct Bound {
    must_stop: fn() -> bool,
    since: Mutex<Since>,
}

/// When the current operation began, and when pagelab was asked to stop.
#[derive(Debug)]
struct Since {
    start: Instant,
    stop_requested: Option<Instant>,
}

impl Bound {
    pub(super) fn new(must_stop: fn() -> bool) -> Bound {
        Bound { must_stop, since: Mutex::new(Since { start: Instant::now(), stop_requested: None }) }
    }

    /// Records that a transaction begins.
    pub(super) fn begin(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) =
            Since { start: Instant::now(), stop_requested: None };
    }

    /// Whether the current operation has exceeded its time limit.
    pub(super) fn is_over(&self) -> bool {
        self.is_after(WORK)
    }

    /// Whether the current operation has waited too long for another process.
    pub(super) fn is_out_of_patience(&self) -> bool {
        self.is_after(Duration::from_secs(PATIENCE_S))
    }

    fn is_after(&self, most: Duration) -> bool {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.stop_requested.is_none() && (self.must_stop)() {
            since.stop_requested = Some(Instant::now());
        }
        since.start.elapsed() > most
            || since.stop_requested.is_some_and(|stop_requested| stop_requested.elapsed() > GRACE)
    }

    /// Seconds since the transaction began.
    pub(super) fn elapsed_s(&self) -> f64 {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).start.elapsed().as_secs_f64()
    }
}
