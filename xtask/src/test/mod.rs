//! `cargo xtask test`: everything there is to test, in one run, with one closing line.

mod packages;
mod tally;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Instant;

use tally::{Tally, Why};

/// Runs every step, also after one failed, and says at the end what passed, failed and was skipped.
pub fn run(root: &Path) -> ExitCode {
    let missing = packages::install_or_name();
    let mut failures = Vec::new();
    let mut step =
        |name: &str, outcome: Result<(), String>| failures.extend(outcome.err().map(|why| format!("{name}: {why}")));
    step("tidy", timed("tidy", || tidy(root)));
    step("rustfmt", timed("rustfmt", || succeed(crate::cargo(root).args(["fmt", "--all", "--", "--check"]))));
    step(
        "clippy",
        timed("clippy", || {
            let arguments = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
            succeed(crate::cargo(root).args(arguments))
        }),
    );
    let plugin = ["build", "--quiet", "--package", "qemu-plugin"];
    step("plugin", timed("plugin", || succeed(crate::cargo(root).args(plugin))));
    if let Err(problem) = timed("tcg-guest", || crate::tcg_guest::assemble(false)) {
        println!("the tests that boot a guest are skipped: {problem}");
    }
    let tally = timed("tests", || tests(root));
    match tally {
        Ok(tally) => close(failures, &tally, &missing),
        Err(problem) => {
            failures.push(format!("tests: {problem}"));
            close(failures, &Tally::default(), &missing)
        }
    }
}

fn timed<R>(name: &str, step: impl FnOnce() -> R) -> R {
    println!("==> {name}");
    let start = Instant::now();
    let result = step();
    println!("==> {name} took {:.1} s", start.elapsed().as_secs_f64());
    result
}

fn tidy(root: &Path) -> Result<(), String> {
    let findings = crate::tidy::check(root)?;
    findings.iter().for_each(|finding| println!("{finding}"));
    if findings.is_empty() { Ok(()) } else { Err(format!("{} findings", findings.len())) }
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    succeeded(status)
}

fn succeeded(status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

/// All tests of the workspace, those in documentation included. Output of tests that passed is read
/// for skips and not shown; everything else is.
fn tests(root: &Path) -> Result<Tally, String> {
    let io = |error: std::io::Error| format!("cannot run cargo test: {error}");
    let (reader, writer) = std::io::pipe().map_err(io)?;
    let mut command = crate::cargo(root);
    command.args(["test", "--workspace", "--no-fail-fast", "--", "--show-output"]);
    let mut command = answering_signals(command);
    command.stdout(writer.try_clone().map_err(io)?).stderr(writer);
    let mut child = command.spawn().map_err(io)?;
    // The command holds the pipe's writing end; without it the reading ends when the tests do.
    drop(command);
    let mut tally = Tally::default();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.map_err(io)?;
        let line = String::from_utf8_lossy(&line);
        if tally.read(&line) {
            println!("{line}");
        }
    }
    let status = child.wait().map_err(io)?;
    tally.end(status.success());
    Ok(tally)
}

/// The command, with signals that whoever runs it ignores (a shell does so for what it starts in the background) as they are by
/// default: ignored signals are inherited, and tests send them. Where `env` cannot do so (coreutils before 8.31), as it is.
fn answering_signals(command: Command) -> Command {
    const DEFAULT: &str = "--default-signal=HUP,INT,TERM";
    if !Command::new("env").args([DEFAULT, "true"]).status().is_ok_and(|status| status.success()) {
        return command;
    }
    let mut outer = Command::new("env");
    outer.arg(DEFAULT).arg(command.get_program()).args(command.get_args());
    command.get_current_dir().map(|directory| outer.current_dir(directory));
    outer
}

/// Prints what failed and what was skipped, and the closing line. A step that failed without being a
/// test counts as one failure; a step that passed is not counted.
fn close(failures: Vec<String>, tally: &Tally, missing: &[String]) -> ExitCode {
    let mut failures = failures;
    let strict = packages::must_have_all();
    println!();
    for package in missing {
        println!("missing: {package}");
    }
    for skip in &tally.skips {
        println!("skipped: {skip}");
        if strict && matches!(&skip.why, Why::Needs(what) if packages::provides(what)) {
            failures.push(format!("{}: nothing may be skipped here for want of a package", skip.test));
        }
    }
    for test in tally.failed_tests.iter().chain(&failures) {
        println!("failed: {test}");
    }
    let failed = tally.failed_tests.len() + failures.len();
    println!("{} passed, {failed} failed, {} skipped", tally.passed(), tally.skips.len());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
