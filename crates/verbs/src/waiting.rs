//! The message while pagelab waits for another pagelab.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use lease::Holder;

use crate::failure::report;
use crate::short;

/// The default of `compare --max-time`.
pub const DEFAULT_MAX_TIME: &str = "10m";

/// How often a log gets a line while pagelab waits.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Reports which process holds the lease, and when this process stops waiting. A log gets the first report, and then one per
/// minute.
pub fn report_lease_holder(holder: &Holder, left: Duration) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let Ok(mut last) = LAST.lock() else { return };
    if !std::io::stderr().is_terminal() && last.is_some_and(|last| last.elapsed() < LOG_INTERVAL) {
        return;
    }
    *last = Some(Instant::now());
    let limit = time_limit(&holder.command).map(|limit| format!("; it begins no block after {limit} (its --max-time)"));
    let holder = Holder { changed: host::changed_settings(), ..holder.clone() };
    let held = results::printable(&format!("{holder}{}", limit.unwrap_or_default()));
    let left = short::seconds(left.as_secs_f64());
    report(format_args!("pagelab: waiting for the lease on system settings, held {held}; gives up in {left} (--wait)"));
}

/// `--max-time` of a comparison, from the start of its command line. `None` for other verbs, and where the option may have been cut
/// off.
fn time_limit(command: &str) -> Option<String> {
    let mut words = command.split(' ').skip(1);
    if words.next()? != "compare" {
        return None;
    }
    let (own, is_whole) = match command.split_once(" -- ") {
        Some((own, _)) => (own, true),
        None => (command, false),
    };
    let mut words = own.split(' ');
    while let Some(word) = words.next() {
        match word.strip_prefix("--max-time") {
            Some("") => return words.next().map(str::to_owned),
            Some(value) => return value.strip_prefix('=').map(str::to_owned),
            None => {}
        }
    }
    is_whole.then(|| DEFAULT_MAX_TIME.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_limit_of_a_comparison_is_known_from_its_command_line() {
        for (command, expected) in [
            ("pagelab compare --max-time 3m -p thp -- sort", Some("3m")),
            ("pagelab compare --max-time=90s sort", Some("90s")),
            ("pagelab compare -p thp -- sort --max-time 5m", Some("10m")),
            ("pagelab compare -p thp", None),
            ("pagelab exec -p thp -- compare --max-time 3m", None),
            ("pagelab", None),
        ] {
            assert_eq!(time_limit(command).as_deref(), expected, "{command}");
        }
    }
}
