//! The message while pagelab waits for another pagelab.

use crate::failure::report;

/// Reports which process holds the lease.
pub fn report_lease_holder(holder: &str) {
    let holder = results::printable(holder);
    report(format_args!("pagelab: waiting for the lease on system settings, held {holder}"));
}
