//! What is said while pagelab waits for another one.

use crate::failure::say;

/// Tells the user whom pagelab waits for.
pub fn say_who_holds_the_lease(holder: &str) {
    let holder = results::printable(holder);
    say(format_args!("pagelab: waiting for the lease on system settings, held {holder}"));
}
