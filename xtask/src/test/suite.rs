//! Runs the tests of the workspace, with nextest if it is available. In parallel, runs the steps that measure no times.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use super::cargo_test::{SKIPS, answering_signals, cargo_test};
use super::nextest::Nextest;
use super::report::{self, Case};
use super::steps::Steps;
use super::tally::{Failure, Tally};
use super::watch::{Watch, Watched};
use super::{apart, modules, times};
use crate::command::succeed;

/// Runs all tests of the workspace, including documentation tests, and in parallel the fuzz targets and guests.
pub fn run(root: &Path, modules: Option<&Path>, steps: &Steps) -> Result<Tally, String> {
    let skips = empty_skips(root)?;
    let nextest = Nextest::find_or_install(root);
    // Everything is built here, at full priority. A build in a step with the lowest priority would hold cargo's lock
    // for a long time.
    steps.take("build", || build_tests(root))?;
    let mut tally = std::thread::scope(|scope| {
        let parallel_steps = scope.spawn(|| apart::run(root, &skips, nextest.is_ok(), steps));
        let tests = steps.take("tests", || match &nextest {
            Ok(nextest) => by_nextest(root, nextest, modules, &skips),
            Err(problem) => {
                println!("nextest is not available: {problem}; cargo test runs the tests, one program after the other");
                cargo_test(root, &[], modules, &skips)
            }
        });
        let mut tally = parallel_steps.join().map_err(|_| "a step in parallel to the tests panicked".to_owned())?;
        match tests {
            Ok(tests) => tally.add(tests),
            Err(problem) => tally.failed.push(Failure::of_test("tests", None).because(problem)),
        }
        Ok::<Tally, String>(tally)
    })?;
    tally.read_skips(&fs::read_to_string(&skips).unwrap_or_default());
    Ok(tally)
}

/// Builds the programs and the recorder, which tests start. Builds the whole workspace: for a subset of packages, cargo
/// would select other features of shared dependencies and compile these a second time.
pub fn build_programs(root: &Path) -> Result<(), String> {
    succeed(crate::cargo(root).args(["build", "--workspace", "--quiet"]))
}

pub fn build_tests(root: &Path) -> Result<(), String> {
    succeed(crate::cargo(root).args(["test", "--workspace", "--no-run", "--quiet"]))
}

/// Creates the empty file in which tests record what they skip, and returns its path.
pub fn empty_skips(root: &Path) -> Result<PathBuf, String> {
    let skips = root.join("target/test-skips.txt");
    fs::write(&skips, "").map_err(|error| format!("{}: {error}", skips.display()))?;
    Ok(skips)
}

fn by_nextest(root: &Path, nextest: &Nextest, modules: Option<&Path>, skips: &Path) -> Result<Tally, String> {
    let ignored = nextest.ignored(root)?;
    let outcome = Run { modules, skips: Some(skips), ..Run::default() }.start(root, nextest)?;
    println!("{}", times::slowest(&outcome.cases));
    println!("a process held the lease of the settings {:.0} % of the time", 100.0 * outcome.host.lease_held_ratio());
    let mut tally = Tally { skips: ignored, ..Tally::default() };
    tally.add(report::tally(&outcome.cases, &outcome.host));
    if let Some(problem) = outcome.problem.filter(|_| tally.failed.is_empty()) {
        let why = format!("{problem} before a test failed, see above");
        tally.failed.push(Failure::of_test("cargo nextest", None).because(why));
    }
    Ok(tally)
}

/// The parameters of a run of nextest.
#[derive(Debug, Default)]
pub struct Run<'a> {
    /// Arguments of nextest that select what to build and run. If empty, the whole workspace.
    pub arguments: &'a [String],
    /// Directory of the Python modules that tests need.
    pub modules: Option<&'a Path>,
    /// The file in which tests record what they skip.
    pub skips: Option<&'a Path>,
}

/// The results of a run of nextest.
#[derive(Debug)]
pub struct RunOutcome {
    /// The test cases in nextest's report.
    pub cases: Vec<Case>,
    /// The state of the host during the run.
    pub host: Watched,
    /// Why nextest failed; `None` if it succeeded.
    pub problem: Option<String>,
}

impl Run<'_> {
    /// Runs nextest and waits for it. If a test fails, that is a [`RunOutcome::problem`] and not an error.
    pub fn start(&self, root: &Path, nextest: &Nextest) -> Result<RunOutcome, String> {
        let profile = if std::env::var_os("CI").is_some_and(|value| value == "true") { "ci" } else { "default" };
        let report = report_path(root, profile);
        let _ = fs::remove_file(&report);
        let mut command = nextest.command(root);
        command.args(["run", "--no-fail-fast", "--profile", profile, "--show-progress", "counter"]);
        match self.arguments {
            [] => command.arg("--workspace"),
            arguments => command.args(arguments),
        };
        command.envs(self.skips.map(|skips| (SKIPS, skips)));
        command.envs(self.modules.map(|directory| (modules::MODULES, directory)));
        // One thread more than processors, because tests of signals, terminals and Slurm mostly wait.
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        command.arg("--test-threads").arg((processors + 1).to_string());
        validation::free_large_blocks();
        let watch = Watch::begin()?;
        let problem = succeed(&mut answering_signals(command)).err();
        let cases = report::cases(&fs::read_to_string(&report).unwrap_or_default());
        Ok(RunOutcome { cases, host: watch.end(), problem })
    }
}

fn report_path(root: &Path, profile: &str) -> PathBuf {
    root.join("target/nextest").join(profile).join("junit.xml")
}
