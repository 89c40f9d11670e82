//! Tables of the durations of tests and steps, and an estimate of the duration of the next run.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::report::Case;

/// The number of tests in the table of the slowest tests.
const SLOWEST: usize = 30;
/// How long a whole run takes from a fresh clone, on two processors of a shared machine (`.ci/run`, 2026-11).
const FRESH_CLONE: Duration = Duration::from_secs(30 * 60);

/// The slowest tests, one per line, and the total time of all tests.
pub fn slowest(cases: &[Case]) -> String {
    let mut cases: Vec<&Case> = cases.iter().collect();
    cases.sort_by(|a, b| b.time_s.total_cmp(&a.time_s));
    let all_s: f64 = cases.iter().map(|case| case.time_s).sum();
    let mut text =
        format!("the {} slowest of {} tests, which took {all_s:.0} s together:", cases.len().min(SLOWEST), cases.len());
    for case in cases.into_iter().take(SLOWEST) {
        let _ = write!(text, "\n{:>8.1} s  {}", case.time_s, case.test);
    }
    text
}

/// The steps, one per line.
pub fn steps(steps: &[(&str, Duration)]) -> String {
    let mut text = "steps in the order in which they ended; some run at the same time:".to_owned();
    for (name, took) in steps {
        let _ = write!(text, "\n{:>8.1} s  {name}", took.as_secs_f64());
    }
    text
}

/// How long a run is expected to take: as long as the last whole run in this checkout, which [`keep`] stored below
/// `target`, or [`FRESH_CLONE`] if none is stored.
pub fn expected(root: &Path) -> String {
    let last = fs::read_to_string(file(root)).ok().and_then(|text| text.trim().parse().ok());
    match last.map(Duration::from_secs) {
        Some(last) => format!("the last whole run here took {}", minutes(last)),
        None => format!("a first run takes about {} on two processors, builds included", minutes(FRESH_CLONE)),
    }
}

/// Stores the duration of a whole run.
pub fn keep(root: &Path, took: Duration) -> Result<(), String> {
    let file = file(root);
    fs::write(&file, took.as_secs().to_string()).map_err(|error| format!("{}: {error}", file.display()))
}

fn file(root: &Path) -> PathBuf {
    root.join("target/test-took-s.txt")
}

fn minutes(time: Duration) -> String {
    match time.as_secs().div_ceil(60) {
        1 => "1 minute".to_owned(),
        minutes => format!("{minutes} minutes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_come_first_and_no_more_than_thirty() {
        let case = |number: u32| Case {
            test: format!("a t{number}"),
            started: None,
            time_s: f64::from(number) / 2.0,
            failure: None,
        };
        let text = slowest(&(0..40).map(case).collect::<Vec<_>>());
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("the 30 slowest of 40 tests, which took 390 s together:"));
        assert_eq!((lines.next(), lines.count()), (Some("    19.5 s  a t39"), 29));
    }

    #[test]
    fn steps_are_a_line_each() {
        let text = steps(&[("tidy", Duration::from_millis(1250)), ("tests", Duration::from_secs(900))]);
        assert!(text.ends_with("\n     1.2 s  tidy\n   900.0 s  tests"), "{text}");
    }

    #[test]
    fn expects_the_times_of_the_last_run() {
        let root = std::env::temp_dir().join(format!("xtask-times-{}", std::process::id()));
        fs::create_dir_all(root.join("target")).unwrap();
        assert!(expected(&root).contains("about 30 minutes"));
        keep(&root, Duration::from_secs(601)).unwrap();
        assert!(expected(&root).ends_with("took 11 minutes"));
        fs::remove_dir_all(root).unwrap();
    }
}
