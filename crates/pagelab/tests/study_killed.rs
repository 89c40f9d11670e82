//! Tests of studies that are killed at random moments and run again: no trial is measured twice or lost, and no process
//! or file is left over.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::*;
use serde_json::Value;
use testing::Random;

/// The timeout for any action, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A study of short workloads, one of which has an input that takes some time to make.
const STUDY: &str = r#"
schema = "pagelab.study/1"
name = "killed"
question = "What is left of it?"
policies = [POLICIES]
[sizes.standard]
blocks = BLOCKS
min_blocks = BLOCKS
[[suite]]
name = "killed"
[[workload]]
name = "forks"
command = ["sh", "-c", "sleep 0.01 & sleep 0.01; wait"]
[[workload]]
name = "true"
command = ["true"]
"#;

const SUITE: &str = r#"
schema = "pagelab.suite/1"
name = "killed"
about = "an input that takes a while"
[sizes.standard]
[[input]]
name = "slow"
output = "slow"
command = ["sh", "-c", "echo half; sleep 0.3; echo whole"]
[[workload]]
name = "reader"
command = ["cat", "{slow}"]
"#;

/// The number of times that a study is killed, and the number of blocks in each run. `PAGELAB_TORTURE=full` selects the larger
/// size.
fn size() -> (u32, u32) {
    if std::env::var_os("PAGELAB_TORTURE").is_some_and(|size| size == "full") { (60, 40) } else { (5, 6) }
}

struct Study {
    bench: Bench,
    /// The cache directory with the inputs, which only its owner can change.
    cache: tempfile::TempDir,
    file: String,
    as_root: bool,
}

impl Study {
    fn new(blocks: u32) -> Study {
        let bench = Bench::new();
        let as_root = is_root();
        let policies = if as_root { r#""default", "base", "mthp-64k""# } else { r#""default", "base""# };
        let text = STUDY.replace("POLICIES", policies).replace("BLOCKS", &blocks.to_string());
        let file = bench.word("killed.toml");
        fs::write(&file, text).unwrap();
        fs::create_dir(bench.path("suites")).unwrap();
        fs::write(bench.path("suites/killed.toml"), SUITE).unwrap();
        Study { bench, cache: tempfile::tempdir().unwrap(), file, as_root }
    }

    fn command(&self) -> Command {
        let mut command = self.bench.pagelab(&["study", "run", &self.file, "--store", &self.bench.store()]);
        command.env("XDG_CACHE_HOME", self.cache.path());
        command
    }

    /// The stored trials, each with the number of its comparison.
    fn trials(&self) -> BTreeSet<(u64, String)> {
        if !self.bench.path("results.sqlite").exists() {
            return BTreeSet::new();
        }
        let numbers = self.bench.listed().into_iter().map(|one| one["number"].as_u64().unwrap()).collect::<Vec<_>>();
        let of = |number: u64| {
            let document = self.bench.stored(number);
            let trials = ["trials", "control_trials"].map(|kind| document[kind].as_array().unwrap().clone());
            trials.concat().iter().map(|trial| (number, key(trial))).collect::<Vec<_>>()
        };
        let all: Vec<(u64, String)> = numbers.into_iter().flat_map(of).collect();
        let distinct: BTreeSet<(u64, String)> = all.iter().cloned().collect();
        assert_eq!(distinct.len(), all.len(), "a trial is there twice: {all:?}");
        distinct
    }
}

/// What identifies a trial, including its start time.
fn key(trial: &Value) -> String {
    let of = |name: &str| trial[name].to_string();
    [of("label"), of("block"), of("attempt"), of("started_s")].join(" ")
}

/// The same without the start time. No two trials may be equal in this.
fn places(trials: &BTreeSet<(u64, String)>) -> BTreeSet<(u64, String)> {
    trials.iter().map(|(number, key)| (*number, key.rsplit_once(' ').unwrap().0.to_owned())).collect()
}

/// Names of temporary files below a directory.
fn left_below(directory: &std::path::Path) -> Vec<String> {
    let mut left = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().unwrap().is_dir() {
            left.extend(left_below(&entry.path()));
        }
        if [".pagelab-", "partial-"].iter().any(|kind| name.starts_with(kind)) || name.ends_with(".partial") {
            left.push(name);
        }
    }
    left
}

#[test]
fn study_run_resumes_after_sigkill_without_repeating_or_losing_trials() {
    let _alone = is_root().then(Alone::wait);
    let (kills, blocks) = size();
    let study = Study::new(blocks);
    let before = study.as_root.then(settings_at_rest);
    let mut random = Random::new();
    let mut known = BTreeSet::new();
    for round in 0..kills {
        let mut run = study.command();
        let mut running = run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).begin();
        let count = |study: &Study| {
            if study.bench.path("results.sqlite").exists() {
                study.bench.listed().iter().map(|one| one["trials"].as_u64().unwrap()).sum()
            } else {
                0
            }
        };
        // Every second time, the study is killed only after it has stored a trial.
        let stored: u64 = count(&study);
        if round % 2 == 1 {
            within(PATIENCE, || running.is_over() || count(&study) > stored);
        }
        std::thread::sleep(Duration::from_micros(random.below(600_000)));
        running.kill();
        let word = study.bench.word("");
        let gone = within(PATIENCE, || processes_with(&word).is_empty());
        assert!(gone, "round {round}: left over: {:?}", processes_with(&word));
        if let Some(before) = &before {
            let is_restored = within(PATIENCE, || settings_at_rest() == *before);
            assert!(is_restored, "round {round}: settings are not as before");
        }
        let now = study.trials();
        assert!(known.is_subset(&now), "round {round}: lost {:?}", known.difference(&now));
        known = now;
    }
    let ran = study.command().ran();
    ran.assert_exit(0, &[]).assert_stdout(&["3 of 3 rows are done"]);
    let all = study.trials();
    assert!(known.is_subset(&all), "lost {:?}", known.difference(&all));
    assert_eq!(places(&all).len(), all.len(), "a trial was measured twice: {all:?}");
    println!("{} of {} trials were stored before the last run", known.len(), all.len());
    assert!(study.command().ran().assert_exit(0, &[]).stdout.contains("3 of 3 rows are done"));
    assert_eq!(study.trials(), all, "nothing was left to run");
    let left = [study.bench.path("").as_path(), study.cache.path()].map(left_below);
    assert_eq!(left.concat(), [""; 0]);
    if let Some(before) = &before {
        assert_eq!(settings_at_rest(), *before);
    }
}
