//! `cargo xtask test --quick`: the checks for the edit cycle, which need neither root nor guests.

use std::path::Path;
use std::process::ExitCode;

use super::nextest::Nextest;
use super::steps::Steps;
use super::suite::Run;
use super::tally::{Failure, Tally};
use super::{close, report, rules};

/// Only unit tests. Tests that change settings, start servers or boot guests are in `tests` directories.
const UNIT_TESTS: [&str; 3] = ["--workspace", "--lib", "--bins"];

/// Runs the rules, rustfmt, clippy and the unit tests.
pub fn run(root: &Path) -> ExitCode {
    let steps = Steps::begin();
    let mut tally = Tally { failed: rules(root, &steps), ..Tally::default() };
    match steps.take("unit tests", || unit_tests(root)) {
        Ok(tests) => tally.add(tests),
        Err(problem) => tally.failed.push(Failure::of_test("unit tests", None).because(problem)),
    }
    tally.skips.iter().for_each(|skip| println!("skipped: {skip}"));
    close(&tally, &steps)
}

fn unit_tests(root: &Path) -> Result<Tally, String> {
    let skips = super::suite::empty_skips(root)?;
    let nextest = Nextest::find_or_install(root)?;
    let arguments = UNIT_TESTS.map(str::to_owned);
    let outcome = Run { arguments: &arguments, skips: Some(&skips), ..Run::default() }.start(root, &nextest)?;
    let mut tally = report::tally(&outcome.cases, &outcome.host);
    if let Some(problem) = outcome.problem.filter(|_| tally.failed.is_empty()) {
        return Err(format!("{problem} before a test failed, see above"));
    }
    tally.read_skips(&std::fs::read_to_string(&skips).unwrap_or_default());
    Ok(tally)
}
