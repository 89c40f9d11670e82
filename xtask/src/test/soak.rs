//! `cargo xtask test --soak N`: runs the tests many times, and prints how often each failed.
//!
//! Each complete run is recorded as a line of `target/soak/KEY/runs.jsonl`, so that an interrupted soak can be resumed. The key
//! identifies the source and the tests, so runs of another commit are not counted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::arguments::{Soak, Tests};
use super::nextest::Nextest;
use super::report::Case;
use super::suite::{Run, RunOutcome, build_programs, build_tests};
use super::{modules, packages, repeat};

/// The tests that were once flaky, one per line: the program and the test, separated by a blank.
const ONCE_FLAKY: &str = include_str!("once_flaky.txt");

/// A complete run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Completed {
    took_s: f64,
    tests: usize,
    failures: Vec<Failed>,
}

/// A test that failed in a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Failed {
    test: String,
    /// The seed of the test, if it is a random test.
    seed: Option<u64>,
    /// The file with the test's output, and the state of the host before the failure.
    log: PathBuf,
}

/// Runs the tests as often as requested, minus the runs that are complete already.
pub fn run(root: &Path, soak: &Soak) -> ExitCode {
    match run_remaining(root, soak) {
        Ok(runs) => {
            println!("\n{}", table(&runs));
            let is_clean = runs.iter().all(|run| run.failures.is_empty());
            if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(problem) => {
            eprintln!("xtask: test: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run_remaining(root: &Path, soak: &Soak) -> Result<Vec<Completed>, String> {
    packages::install_or_name().iter().for_each(|package| println!("missing: {package}"));
    let arguments = arguments(&soak.tests)?;
    let directory = root.join("target/soak").join(key(root, &arguments, soak.load)?);
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut runs = completed(&directory)?;
    println!("==> {} of {} runs are complete; results: {}", runs.len(), soak.runs, directory.display());
    let nextest = Nextest::find_or_install(root)?;
    let modules = modules::find_or_install(root).inspect_err(|problem| println!("{problem}")).ok();
    build_programs(root)?;
    build_tests(root)?;
    let _load = soak.load.then(Load::begin).transpose()?;
    while runs.len() < soak.runs as usize {
        println!("==> run {} of {}", runs.len() + 1, soak.runs);
        let begun = Instant::now();
        let skips = super::suite::empty_skips(root)?;
        let run = Run { arguments: &arguments, modules: modules.as_deref(), skips: Some(&skips) };
        let outcome = run.start(root, &nextest)?;
        let run = Completed {
            took_s: begun.elapsed().as_secs_f64(),
            tests: outcome.cases.len(),
            failures: failures(&outcome, &directory, runs.len() + 1)?,
        };
        if let Some(problem) = outcome.problem.filter(|_| run.failures.is_empty()) {
            return Err(format!("nextest: {problem} before a test failed, see above"));
        }
        keep(&directory, &run)?;
        runs.push(run);
        println!("{}", table(&runs));
    }
    Ok(runs)
}

/// The selection of tests as arguments of nextest.
fn arguments(tests: &Tests) -> Result<Vec<String>, String> {
    let filter = match tests {
        Tests::All => return Ok(vec!["--workspace".to_owned()]),
        Tests::Filter(filter) => filter.clone(),
        Tests::OnceFlaky => once_flaky(ONCE_FLAKY)?,
    };
    Ok(["--workspace", "-E", &filter].map(str::to_owned).into())
}

/// A filterset for the tests in the list.
fn once_flaky(list: &str) -> Result<String, String> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let one = |line: &str| {
        let (program, test) = line.split_once(' ').ok_or_else(|| format!("once_flaky.txt: {line:?} names no test"))?;
        Ok(format!("(binary_id(={program}) & test(={test}))"))
    };
    Ok(lines.map(one).collect::<Result<Vec<_>, String>>()?.join(" | "))
}

/// A key that identifies the current source and the tests.
fn key(root: &Path, arguments: &[String], load: bool) -> Result<String, String> {
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).current_dir(root).output();
        let output = output.map_err(|error| format!("cannot run git {}: {error}", words.join(" ")))?;
        Ok::<_, String>(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let mut hasher = DefaultHasher::new();
    (git(&["diff", "HEAD"])?, arguments, load).hash(&mut hasher);
    Ok(format!("{}-{:08x}", git(&["rev-parse", "--short", "HEAD"])?, hasher.finish() as u32))
}

fn completed(directory: &Path) -> Result<Vec<Completed>, String> {
    let file = directory.join("runs.jsonl");
    if !file.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let run = |line| serde_json::from_str(line).map_err(|error| format!("{}: {error}", file.display()));
    text.lines().map(run).collect()
}

fn keep(directory: &Path, run: &Completed) -> Result<(), String> {
    let file = directory.join("runs.jsonl");
    let line = serde_json::to_string(run).map_err(|error| error.to_string())? + "\n";
    let opened = fs::File::options().create(true).append(true).open(&file);
    opened.and_then(|mut to| to.write_all(line.as_bytes())).map_err(|error| format!("{}: {error}", file.display()))
}

/// The tests that failed, each with its log.
fn failures(outcome: &RunOutcome, directory: &Path, run: usize) -> Result<Vec<Failed>, String> {
    let failed = outcome.cases.iter().filter_map(|case| Some((case, case.failure.as_deref()?)));
    let failed = failed.enumerate().map(|(number, (case, output))| {
        let log = directory.join(format!("run-{run}-{}.log", number + 1));
        let text = format!("{}\n{}\n\n{output}\n", case.test, host_before(outcome, case));
        fs::write(&log, text).map_err(|error| format!("{}: {error}", log.display()))?;
        Ok(Failed { test: case.test.clone(), seed: repeat::seed(output), log })
    });
    failed.collect()
}

fn host_before(outcome: &RunOutcome, case: &Case) -> String {
    case.started.map_or("the host before it is unknown".to_owned(), |started| outcome.host.before(started))
}

/// A table of the failures: a line for each test, and a line for each of its failures.
fn table(runs: &[Completed]) -> String {
    let mut by_test: BTreeMap<&str, Vec<&Failed>> = BTreeMap::new();
    for failed in runs.iter().flat_map(|run| &run.failures) {
        by_test.entry(&failed.test).or_default().push(failed);
    }
    let tests: usize = runs.iter().map(|run| run.tests).sum();
    let took_s: f64 = runs.iter().map(|run| run.took_s).sum();
    let clean = runs.iter().filter(|run| run.failures.is_empty()).count();
    let mut text = format!("runs: {}, without a failure: {clean}; {tests} tests in {took_s:.0} s", runs.len());
    for (test, failures) in by_test {
        let _ = write!(text, "\nfailed {} of {}: {test}", failures.len(), runs.len());
        for Failed { seed, log, .. } in failures {
            let seed = seed.map(|seed| format!("seed {seed}, ")).unwrap_or_default();
            let _ = write!(text, "\n    {seed}{}", log.display());
        }
    }
    text
}

/// Threads that keep all processors busy.
struct Load {
    stop: Arc<AtomicBool>,
}

impl Load {
    fn begin() -> Result<Load, String> {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            let stop = Arc::clone(&stop);
            let busy = move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            let thread = std::thread::Builder::new().spawn(busy);
            thread.map_err(|error| format!("cannot create a thread for the load: {error}"))?;
        }
        Ok(Load { stop })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(test: &str, seed: Option<u64>, log: &str) -> Failed {
        Failed { test: test.to_owned(), seed, log: log.into() }
    }

    #[test]
    fn the_table_counts_failures_by_test() {
        let run = |failures| Completed { took_s: 10.0, tests: 5, failures };
        let runs = [run(vec![failed("a x", Some(7), "1.log")]), run(vec![]), run(vec![failed("a x", None, "3.log")])];
        let expected = "runs: 3, without a failure: 1; 15 tests in 30 s\n\
                        failed 2 of 3: a x\n    seed 7, 1.log\n    3.log";
        assert_eq!(table(&runs), expected);
    }

    #[test]
    fn complete_runs_are_read_again() {
        let directory = std::env::temp_dir().join(format!("xtask-soak-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        assert!(completed(&directory).unwrap().is_empty());
        for failures in [vec![failed("a x", Some(7), "1.log")], vec![]] {
            keep(&directory, &Completed { took_s: 1.5, tests: 2, failures }).unwrap();
        }
        let runs = completed(&directory).unwrap();
        assert_eq!((runs.len(), runs[0].failures[0].seed, runs[1].failures.len()), (2, Some(7), 0));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_list_of_tests_that_once_were_flaky_is_a_filterset() {
        let filter = once_flaky("# why\n\nlease::lease a\npagelab::killed b::c\n").unwrap();
        assert_eq!(filter, "(binary_id(=lease::lease) & test(=a)) | (binary_id(=pagelab::killed) & test(=b::c))");
        assert!(!once_flaky(ONCE_FLAKY).unwrap().is_empty());
        assert!(once_flaky("one\n").unwrap_err().contains("\"one\""));
    }
}
