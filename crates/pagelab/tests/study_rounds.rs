//! Tests of studies whose workloads share the time: what ends them, what continues, and that a kill at any moment loses
//! nothing.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::*;
use serde_json::Value;
use testing::Random;

/// A study of three workloads on a fake platform, whose clock takes no real time.
const FAKED: &str = r#"
schema = "pagelab.study/1"
name = "rounds"
question = "Which policy helps?"
policies = ["base", "thp"]
seed = 1
[sizes.standard]
blocks = 2000
precision = "0.01%"
max_time = "MAX_TIME"
[[workload]]
name = "one"
command = ["true"]
[[workload]]
name = "two"
command = ["echo", "two"]
[[workload]]
name = "three"
command = ["echo", "three"]
"#;

/// A fake platform on which a trial takes a second under base pages, and on average the given time under THP, with
/// deviations of up to 14 %.
fn platform(bench: &Bench, thp_s: f64) -> String {
    let host = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/host/x86_64-6.18");
    // 29 different deviations, in a mixed order.
    let deviation = |at: i32| f64::from(at * 11 % 29 - 14) / 100.0;
    let times: Vec<f64> = (0..29).map(|at| thp_s * (1.0 + deviation(at))).collect();
    let arm = |name: &str, wall_s: &[f64]| {
        format!("[arm.{name}]\nwall_s = {wall_s:?}\nholding = \"held\"\nmapped = {{ \"4K\" = \"24M\" }}\n")
    };
    let arms = [arm("default", &[1.0]), arm("base", &[1.0]), arm("thp", &times)];
    fs::write(bench.path("platform.toml"), format!("host = {host:?}\n{}", arms.concat())).unwrap();
    bench.word("platform.toml")
}

fn written(bench: &Bench, max_time: &str) -> String {
    fs::write(bench.path("rounds.toml"), FAKED.replace("MAX_TIME", max_time)).unwrap();
    bench.word("rounds.toml")
}

fn run(bench: &Bench, file: &str, platform: &str, options: &[&str]) -> Ran {
    let store = bench.store();
    let words = ["study", "run", file, "--store", &store, "--fake-platform", platform];
    bench.pagelab(&[&words, options].concat()).ran()
}

/// The number of trials of each comparison, and why it ended.
fn ends(bench: &Bench) -> Vec<(u64, String)> {
    let of = |one: Value| {
        let ended = bench.stored(one["number"].as_u64().unwrap())["ended"]["reason"].as_str().unwrap().to_owned();
        (one["trials"].as_u64().unwrap(), ended)
    };
    bench.listed().into_iter().map(of).collect()
}

#[test]
fn a_clear_answer_ends_the_study_early_with_the_minimum_of_blocks() {
    let bench = Bench::new();
    let (file, platform) = (written(&bench, "10m"), platform(&bench, 0.7));
    let ran = run(&bench, &file, &platform, &[]);
    ran.assert_exit(0, &["study rounds: round 1: thp on one -", ": decided", "study rounds: the answer is decided"]);
    assert!(!ran.stderr.contains("round 2"), "{}", ran.stderr);
    ran.assert_stdout(&["3 of 3 rows are done"]);
    let ends = ends(&bench);
    assert!(ends.len() == 3 && ends.iter().all(|(_, ended)| ended == "time"), "{ends:?}");
    let document = bench.stored(1);
    let blocks = document["trials"].as_array().unwrap().iter().map(|trial| trial["block"].as_u64().unwrap()).max();
    assert!(blocks >= Some(8), "{blocks:?}");
    let again = run(&bench, &file, &platform, &[]);
    assert!(again.assert_exit(0, &[]).stderr.is_empty(), "nothing is left: {}", again.stderr);
    assert_eq!(self::ends(&bench), ends);
    // Each workload runs to its own end: its time is up.
    let each = run(&bench, &file, &platform, &["--no-rounds"]);
    each.assert_exit(0, &["workload 1 of 3: one"]);
    let longer = self::ends(&bench);
    assert!(longer.len() == 3 && longer.iter().zip(&ends).all(|(after, before)| after.0 > 2 * before.0), "{longer:?}");
}

#[test]
fn an_open_answer_takes_all_the_time_and_names_the_max_time_that_decides_it() {
    let bench = Bench::new();
    let (file, platform) = (written(&bench, "60s"), platform(&bench, 1.0));
    let ran = run(&bench, &file, &platform, &["--dry-run"]);
    ran.assert_exit(0, &[])
        .assert_stdout(&["1 min, shared", "the remaining measurements take at most 3 min, in rounds"]);
    let ran = run(&bench, &file, &platform, &[]);
    ran.assert_exit(0, &["round 2: ", "would decide it", "study rounds: its time is up (3 min; "]);
    ran.assert_stdout(&[
        "3 of 3 rows are done",
        "Undecided: thp on one, thp on two and thp on three.",
        "more would decide it: max_time ",
    ]);
    let before = ends(&bench);
    let store = bench.store();
    let verb = |verb: &str, options: &[&str]| {
        bench.pagelab(&[&["study", verb, &file, "--store", &store], options].concat()).ran()
    };
    verb("status", &[]).assert_exit(0, &[]).assert_stdout(&["Undecided: thp on one, thp on two and thp on three."]);
    verb("report", &[]).assert_exit(0, &[]).assert_stdout(&["Undecided: thp on one, thp on two and thp on three."]);
    let lacking = verb("status", &["--json"]).json()["lacking"].as_str().unwrap().to_owned();
    assert!(lacking.starts_with("Undecided: thp on one, thp on two and thp on three."), "{lacking}");
    assert!(run(&bench, &file, &platform, &[]).assert_exit(0, &[]).stderr.is_empty(), "its time is used up");
    assert_eq!(ends(&bench), before);
    // A study with more time continues the same comparisons.
    let file = written(&bench, "120s");
    run(&bench, &file, &platform, &[]).assert_exit(0, &["round 2: ", "its time is up (6 min; "]);
    let after = ends(&bench);
    assert_eq!(after.len(), 3, "nothing was begun anew");
    assert!(after.iter().zip(&before).all(|(after, before)| after.0 >= before.0), "{before:?} {after:?}");
    assert!(after.iter().map(|one| one.0).sum::<u64>() > before.iter().map(|one| one.0).sum::<u64>());
}

/// A study of real workloads that take a few hundredths of a second.
const REAL: &str = r#"
schema = "pagelab.study/1"
name = "rounds"
question = "What is left of it?"
policies = ["default", "base"]
[sizes.standard]
blocks = 2000
min_blocks = 4
precision = "0.001%"
max_time = "10s"
[[workload]]
name = "short"
command = ["sleep", "0.01"]
[[workload]]
name = "long"
command = ["sleep", "0.05"]
"#;

/// The stored trials: the comparison, and what identifies a trial in it.
fn trials(bench: &Bench) -> BTreeSet<(u64, String)> {
    if !bench.path("results.sqlite").exists() {
        return BTreeSet::new();
    }
    let numbers: Vec<u64> = bench.listed().iter().map(|one| one["number"].as_u64().unwrap()).collect();
    let of = |number: u64| {
        let document = bench.stored(number);
        let trials = ["trials", "control_trials"].map(|kind| document[kind].as_array().unwrap().clone()).concat();
        trials.iter().map(|trial| (number, key(trial))).collect::<Vec<_>>()
    };
    let all: Vec<(u64, String)> = numbers.into_iter().flat_map(of).collect();
    let distinct: BTreeSet<(u64, String)> = all.iter().cloned().collect();
    assert_eq!(distinct.len(), all.len(), "a trial is there twice: {all:?}");
    distinct
}

fn key(trial: &Value) -> String {
    ["label", "block", "attempt"].map(|name| trial[name].to_string()).join(" ")
}

#[test]
fn a_study_that_is_killed_between_and_in_rounds_loses_no_trial_and_ends() {
    let _alone = is_root().then(Alone::wait);
    let bench = Bench::new();
    fs::write(bench.path("rounds.toml"), REAL).unwrap();
    let (file, store) = (bench.word("rounds.toml"), bench.store());
    let command = || -> Command { bench.pagelab(&["study", "run", &file, "--store", &store]) };
    let mut random = Random::new();
    let mut known = BTreeSet::new();
    for round in 0..5 {
        let mut run = command();
        let running = run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).begin();
        std::thread::sleep(Duration::from_micros(300_000 + random.below(1_500_000)));
        running.kill();
        let word = bench.word("");
        assert!(within(LIMIT, || processes_with(&word).is_empty()), "round {round}: processes are left over");
        let now = trials(&bench);
        assert!(known.is_subset(&now), "round {round}: lost {:?}", known.difference(&now));
        known = now;
    }
    let ran = command().ran();
    ran.assert_exit(0, &[]).assert_stdout(&["2 of 2 rows are done"]);
    let all = trials(&bench);
    assert!(known.is_subset(&all), "lost {:?}", known.difference(&all));
    assert_eq!(bench.listed().len(), 2, "each workload has one comparison");
    assert!(command().ran().assert_exit(0, &[]).stdout.contains("2 of 2 rows are done"));
    assert_eq!(trials(&bench), all, "nothing was left to run");
}
