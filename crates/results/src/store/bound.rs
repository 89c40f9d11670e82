//! How long SQLite may work on a store, whose content somebody else may have made.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Seconds for which another process's write is waited for.
pub(super) const PATIENCE_S: u64 = 30;
/// Seconds for which SQLite may work on one transaction: some hundred times what a comparison of a day takes.
const WORK: Duration = Duration::from_secs(60);
/// How long waiting and work go on once pagelab was told to stop: what was measured until then is to be stored.
const GRACE: Duration = Duration::from_secs(2);

/// The end of what goes on in a store. SQLite asks for it from time to time.
#[derive(Debug)]
pub(super) struct Bound {
    told_to_stop: fn() -> bool,
    since: Mutex<Since>,
}

/// Since when what goes on.
#[derive(Debug)]
struct Since {
    begun: Instant,
    told: Option<Instant>,
}

impl Bound {
    pub(super) fn new(told_to_stop: fn() -> bool) -> Bound {
        Bound { told_to_stop, since: Mutex::new(Since { begun: Instant::now(), told: None }) }
    }

    /// A transaction begins.
    pub(super) fn begin(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Since { begun: Instant::now(), told: None };
    }

    /// Whether it has worked for too long.
    pub(super) fn is_over(&self) -> bool {
        self.is_after(WORK)
    }

    /// Whether somebody else was waited for for too long.
    pub(super) fn is_out_of_patience(&self) -> bool {
        self.is_after(Duration::from_secs(PATIENCE_S))
    }

    fn is_after(&self, most: Duration) -> bool {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.told.is_none() && (self.told_to_stop)() {
            since.told = Some(Instant::now());
        }
        since.begun.elapsed() > most || since.told.is_some_and(|told| told.elapsed() > GRACE)
    }

    /// Seconds since the transaction began.
    pub(super) fn elapsed_s(&self) -> f64 {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).begun.elapsed().as_secs_f64()
    }
}
