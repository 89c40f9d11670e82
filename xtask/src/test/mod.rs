//! `cargo xtask test`: everything there is to test, in one run, with one closing line.

mod apart;
mod fuzz;
mod host;
mod libtest;
mod modules;
mod nextest;
pub mod packages;
mod steps;
mod tally;

use std::fs;
use std::io::{BufRead, BufReader};
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, ExitCode};

use nextest::Nextest;
use steps::Steps;
use tally::{Tally, Why};

use crate::command::succeed;

/// The variable that names the file in which tests note that they do not run (`testing::SKIPS`).
const SKIPS: &str = "PAGELAB_TEST_SKIPS";

/// Runs every step, also after one failed, and says at the end what passed, failed and was skipped, and what the steps took.
pub fn run(root: &Path) -> ExitCode {
    let steps = Steps::begin();
    let missing = packages::install_or_name();
    let mut in_the_way = host::in_the_way(Path::new("/"));
    in_the_way.iter().for_each(|line| println!("in the way: {line}"));
    let mut failures = Vec::new();
    let mut step = |name: &'static str, step: &dyn Fn() -> Result<(), String>| {
        failures.extend(steps.take(name, step).err().map(|why| format!("{name}: {why}")));
    };
    step("tidy", &|| tidy(root));
    step("rustfmt", &|| succeed(crate::cargo(root).args(["fmt", "--all", "--", "--check"])));
    step("clippy", &|| {
        let arguments = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
        succeed(crate::cargo(root).args(arguments))
    });
    step("documentation", &|| documentation(root));
    step("plugin", &|| succeed(crate::cargo(root).args(["build", "--quiet", "--package", "qemu-plugin"])));
    if let Err(problem) = steps.take("tcg-guest", || crate::tcg_guest::assemble(false)) {
        println!("the tests that boot a guest are skipped: {problem}");
    }
    if let Err(problem) = steps.take("kernel of guests", crate::guests::fetch_for_tests) {
        println!("the tests of `compare --kernel` are skipped: {problem}");
    }
    let modules = modules::find_or_install(root)
        .inspect_err(|problem| println!("the test that reads Parquet files by another program is skipped: {problem}"))
        .ok();
    let mut tally = Tally::default();
    match tests(root, modules.as_deref(), &steps) {
        Ok(tests) => tally.add(tests),
        Err(problem) => failures.push(format!("tests: {problem}")),
    }
    // Also what came meanwhile, or was left by a test.
    let now = host::in_the_way(Path::new("/")).into_iter().filter(|line| !in_the_way.contains(line));
    in_the_way.extend(now.collect::<Vec<_>>());
    close(failures, &tally, &missing, &in_the_way, &steps)
}

fn tidy(root: &Path) -> Result<(), String> {
    let findings = crate::tidy::check(root)?;
    findings.iter().for_each(|finding| println!("{finding}"));
    if findings.is_empty() { Ok(()) } else { Err(format!("{} findings", findings.len())) }
}

/// The documentation of all crates, in which every link must lead somewhere.
fn documentation(root: &Path) -> Result<(), String> {
    let mut command = crate::cargo(root);
    command.args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings");
    succeed(&mut command)
}

/// All tests of the workspace, those in documentation included, and beside them what claims no times.
fn tests(root: &Path, modules: Option<&Path>, steps: &Steps) -> Result<Tally, String> {
    let skips = root.join("target/test-skips.txt");
    fs::write(&skips, "").map_err(|error| format!("{}: {error}", skips.display()))?;
    let nextest = Nextest::find_or_install(root);
    // At full priority, and once for all: what runs beside the tests would hold cargo's lock at the lowest.
    steps.take("build", || succeed(crate::cargo(root).args(["test", "--workspace", "--no-run", "--quiet"])))?;
    let mut tally = std::thread::scope(|scope| {
        let apart = scope.spawn(|| apart::run(root, &skips, nextest.is_ok(), steps));
        let tests = steps.take("tests", || match &nextest {
            Ok(nextest) => run_nextest(root, nextest, modules, &skips),
            Err(problem) => {
                println!("nextest cannot be had: {problem}; cargo test runs the tests, one program after the other");
                cargo_test(root, &[], modules, &skips)
            }
        });
        let mut tally = apart.join().map_err(|_| "a step beside the tests panicked".to_owned())?;
        match tests {
            Ok(tests) => tally.add(tests),
            Err(problem) => tally.failed.push(format!("tests: {problem}")),
        }
        Ok::<Tally, String>(tally)
    })?;
    tally.read_skips(&fs::read_to_string(&skips).unwrap_or_default());
    Ok(tally)
}

/// The tests, each in a process of its own.
fn run_nextest(root: &Path, nextest: &Nextest, modules: Option<&Path>, skips: &Path) -> Result<Tally, String> {
    let profile = if std::env::var_os("CI").is_some_and(|value| value == "true") { "ci" } else { "default" };
    let report = root.join("target/nextest").join(profile).join("junit.xml");
    let mut tally = Tally { skips: nextest.ignored(root)?, ..Tally::default() };
    let _ = fs::remove_file(&report);
    let mut command = nextest.command(root);
    command.args(["run", "--workspace", "--no-fail-fast", "--profile", profile]).env(SKIPS, skips);
    command.envs(modules.map(|directory| (modules::MODULES, directory)));
    // One more than there are processors: tests of signals, terminals and Slurm wait most of their time.
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    command.arg("--test-threads").arg((processors + 1).to_string());
    let outcome = succeed(&mut answering_signals(command));
    tally.add(nextest::read_report(&fs::read_to_string(&report).unwrap_or_default()));
    if let Err(problem) = outcome
        && tally.failed.is_empty()
    {
        tally.failed.push(format!("cargo nextest: {problem} before a test failed, see above"));
    }
    Ok(tally)
}

/// Tests as cargo runs them: all of a program's in one process. Its output is shown as it comes.
fn cargo_test(root: &Path, options: &[&str], modules: Option<&Path>, skips: &Path) -> Result<Tally, String> {
    let io = |error: std::io::Error| format!("cannot run cargo test: {error}");
    let (reader, writer) = std::io::pipe().map_err(io)?;
    let mut command = crate::cargo(root);
    command.args(["test", "--workspace", "--no-fail-fast"]).args(options).env(SKIPS, skips);
    command.envs(modules.map(|directory| (modules::MODULES, directory)));
    let mut command = answering_signals(command);
    command.stdout(writer.try_clone().map_err(io)?).stderr(writer);
    let mut child = command.spawn().map_err(io)?;
    // The command holds the pipe's writing end; without it the reading ends when the tests do.
    drop(command);
    let mut output = libtest::Output::default();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.map_err(io)?;
        let line = String::from_utf8_lossy(&line);
        output.read(&line);
        println!("{line}");
    }
    Ok(output.end(child.wait().map_err(io)?.success()))
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
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.get_current_dir().map(|directory| outer.current_dir(directory));
    outer
}

/// Prints what failed and what was skipped, what the steps took, and the closing line. A step that failed without being a
/// test counts as one failure; a step that passed is not counted.
fn close(failures: Vec<String>, tally: &Tally, missing: &[String], in_the_way: &[String], steps: &Steps) -> ExitCode {
    let mut failures = failures;
    let strict = packages::must_have_all();
    println!();
    for package in missing {
        println!("missing: {package}");
    }
    for line in in_the_way {
        println!("in the way: {line}");
    }
    for skip in &tally.skips {
        println!("skipped: {skip}");
        if strict && matches!(&skip.why, Why::Needs(what) if packages::provides(what)) {
            failures.push(format!("{}: nothing may be skipped here for want of a package", skip.test));
        }
    }
    for test in tally.failed.iter().chain(&failures) {
        println!("failed: {test}");
    }
    println!("{steps}");
    let failed = tally.failed.len() + failures.len();
    println!("{} passed, {failed} failed, {} skipped", tally.passed.len(), tally.skips.len());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
