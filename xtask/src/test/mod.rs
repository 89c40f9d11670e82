//! `cargo xtask test`: runs all tests and ends with one line of summary; or runs only the quick tests, or the tests many
//! times.

mod allowed;
mod apart;
mod arguments;
mod cargo_test;
mod fuzz;
mod host;
mod host_state;
mod libtest;
mod modules;
mod nextest;
pub mod packages;
mod quick;
mod repeat;
mod report;
mod soak;
mod steps;
mod suite;
mod tally;
mod times;
mod watch;

use std::path::Path;
use std::process::ExitCode;

use allowed::Expected;
use arguments::Selection;
use steps::Steps;
use tally::{Failure, Tally};

use crate::command::succeed;

/// Runs the tests that the words after `test` select.
pub fn run(root: &Path, words: &[String]) -> ExitCode {
    if words.iter().any(|word| word == "--help") {
        println!("{}", arguments::USAGE);
        return ExitCode::SUCCESS;
    }
    match arguments::parse(words) {
        Ok(Selection::All) => all(root),
        Ok(Selection::Quick) => quick::run(root),
        Ok(Selection::Soak(soak)) => soak::run(root, &soak),
        Err(problem) => {
            eprintln!("xtask: test: {problem}\n{}", arguments::USAGE);
            ExitCode::from(2)
        }
    }
}

/// Runs every step, even if a step fails. At the end prints what passed, failed and was skipped, and the times.
fn all(root: &Path) -> ExitCode {
    let steps = Steps::begin();
    println!("==> {}; cargo xtask test --quick is for the inner loop", times::expected(root));
    let missing = packages::install_or_name();
    let mut obstacles = host::obstacles(Path::new("/"));
    obstacles.iter().for_each(|line| println!("obstacle: {line}"));
    let mut failures = rules(root, &steps);
    let mut step = |name: &'static str, repeat: &str, step: &dyn Fn() -> Result<(), String>| {
        failures.extend(steps.take(name, step).err().map(|why| failed_step(name, repeat, why)));
    };
    step("documentation", DOCUMENTATION, &|| documentation(root));
    step("programs", PROGRAMS, &|| suite::build_programs(root));
    if let Err(problem) = steps.take("tcg-guest", || crate::tcg_guest::assemble(false)) {
        println!("the tests that boot a guest are skipped: {problem}");
    }
    if let Err(problem) = steps.take("kernel of guests", crate::guests::fetch_for_tests) {
        println!("the tests of `compare --kernel` are skipped: {problem}");
    }
    let modules = modules::find_or_install(root)
        .inspect_err(|problem| println!("the test that reads Parquet files with another program is skipped: {problem}"))
        .ok();
    let mut tally = Tally::default();
    match suite::run(root, modules.as_deref(), &steps) {
        Ok(tests) => tally.add(tests),
        Err(problem) => failures.push(failed_step("tests", "cargo test --workspace", problem)),
    }
    // Obstacles that appeared during the run, perhaps left by a test.
    let now = host::obstacles(Path::new("/")).into_iter().filter(|line| !obstacles.contains(line));
    obstacles.extend(now.collect::<Vec<_>>());
    tally.failed.extend(failures);
    println!();
    let unexpected = unexpected_skips(&tally);
    tally.failed.extend(unexpected.into_iter().filter(|_| packages::must_have_all()));
    missing.iter().for_each(|package| println!("missing: {package}"));
    obstacles.iter().for_each(|line| println!("obstacle: {line}"));
    if let Err(problem) = times::keep(root, steps.elapsed()) {
        println!("cannot store the time of this run: {problem}");
    }
    close(&tally, &steps)
}

/// The file with the skips that CI expects.
const EXPECTED_SKIPS: &str = "xtask/src/test/allowed_skips.toml";
const DOCUMENTATION: &str = "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps";
const PROGRAMS: &str = "cargo build --workspace";
const CLIPPY: [&str; 6] = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
const CLIPPY_WITHOUT_LABS: [&str; 7] = ["clippy", "-p", "pagelab", "--no-default-features", "--", "-D", "warnings"];

/// Runs the rules of the workspace, rustfmt and clippy, and returns the failures.
fn rules(root: &Path, steps: &Steps) -> Vec<Failure> {
    let mut failures = Vec::new();
    let mut step = |name: &'static str, repeat: &str, step: &dyn Fn() -> Result<(), String>| {
        failures.extend(steps.take(name, step).err().map(|why| failed_step(name, repeat, why)));
    };
    step("tidy", "cargo xtask tidy", &|| tidy(root));
    step("rustfmt", "cargo fmt --all", &|| succeed(crate::cargo(root).args(["fmt", "--all", "--", "--check"])));
    let mut clippy = |name, words: &'static [&str]| {
        step(name, &format!("cargo {}", words.join(" ")), &|| succeed(crate::cargo(root).args(words)));
    };
    clippy("clippy", &CLIPPY);
    clippy("clippy without labs", &CLIPPY_WITHOUT_LABS);
    failures
}

fn failed_step(name: &str, repeat: &str, why: String) -> Failure {
    Failure { test: name.to_owned(), why: Some(why), host: None, repeat: Some(repeat.to_owned()) }
}

fn tidy(root: &Path) -> Result<(), String> {
    let findings = crate::tidy::check(root)?;
    findings.iter().for_each(|finding| println!("{finding}"));
    if findings.is_empty() { Ok(()) } else { Err(format!("{} findings", findings.len())) }
}

/// Builds the documentation of all crates. A broken link is an error.
fn documentation(root: &Path) -> Result<(), String> {
    let mut command = crate::cargo(root);
    command.args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings");
    succeed(&mut command)
}

/// Prints the skips with the reasons why they are expected, and returns the unexpected skips. These are failures on a CI
/// machine, which can install every package.
fn unexpected_skips(tally: &Tally) -> Vec<Failure> {
    let expected = match Expected::read() {
        Ok(expected) => expected,
        Err(problem) => return vec![Failure::of_test("expected skips", None).because(problem)],
    };
    let mut unexpected = Vec::new();
    for skip in &tally.skips {
        match expected.reason(skip) {
            Some(reason) => println!("skipped: {skip} (expected: {reason})"),
            None => {
                println!("skipped: {skip}");
                let why = format!("skipped ({skip}); on CI this is expected only with a reason in {EXPECTED_SKIPS}");
                unexpected.push(Failure::of_test(&skip.test, None).because(why));
            }
        }
    }
    unexpected
}

/// Prints the failures, the steps, and the summary line. A step that failed counts as one failure; a step that passed is not
/// counted.
fn close(tally: &Tally, steps: &Steps) -> ExitCode {
    tally.failed.iter().for_each(|failure| println!("failed: {failure}"));
    println!("{}", times::steps(&steps.ended()));
    println!("took {:.0} s", steps.elapsed().as_secs_f64());
    let (passed, failed, skipped) = (tally.passed.len(), tally.failed.len(), tally.skips.len());
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
