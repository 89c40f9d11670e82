//! The message while pagelab waits for another pagelab.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::failure::report;
use crate::short;

/// How often a log gets a line while pagelab waits.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Reports which process holds the lease, and when this process stops waiting. A log gets the first report, and then one per
/// minute.
pub fn report_lease_holder(holder: &str, left: Duration) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let Ok(mut last) = LAST.lock() else { return };
    if !std::io::stderr().is_terminal() && last.is_some_and(|last| last.elapsed() < LOG_INTERVAL) {
        return;
    }
    *last = Some(Instant::now());
    let holder = results::printable(holder);
    let left = short::seconds(left.as_secs_f64());
    report(format_args!(
        "pagelab: waiting for the lease on system settings, held {holder}; gives up in {left} (--wait)"
    ));
}
