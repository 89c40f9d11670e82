//! Tests of what a new user sees first: pagelab alone, commands without `--`, one policy, limits, and failures.

use super::common::*;
use super::{EIGHT, THREE, faked, has_fake_platform, written};

#[test]
fn one_policy_alone_is_compared_with_default() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let labels = |options: &[&str]| {
        let document = faked(&bench, THREE, &[options, &EIGHT, &["--json"]].concat()).assert_exit(0, &[]).json();
        let arms = document["arms"].as_array().unwrap().iter();
        arms.map(|arm| arm["label"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(labels(&["-p", "thp"]), ["default", "thp"]);
    assert_eq!(labels(&["-p", "thp", "--baseline", "base"]), ["base", "thp"]);
    assert_eq!(labels(&["-p", "thp", "--aa"]), ["thp", "thp (again)"]);
    faked(&bench, THREE, &["-p", "default"]).assert_exit(2, &["default alone is no comparison"]);
}

#[test]
fn a_command_needs_no_separator_where_it_is_unambiguous() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let compare = |words: &[&str]| {
        let words = [&["compare", "--store", &bench.store(), "--fake-platform", THREE, "--trial-time", "none"], words];
        bench.pagelab(&words.concat()).ran()
    };
    compare(&["-p", "thp", "--no-advice", "echo", "-n", "it"])
        .assert_exit(0, &[])
        .assert_stdout(&["thp is the best of 2 policies"]);
    assert_eq!(bench.stored(1)["invocation"]["command"], serde_json::json!(["echo", "-n", "it"]));
    compare(&["true", "--max-time", "2m"]).assert_exit(
        2,
        &["--max-time can be an option of pagelab or of true: give pagelab's options first, then --, then the command"],
    );
}

#[test]
fn limits_that_contradict_each_other_or_are_too_short_are_named() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let refused = faked(&bench, THREE, &["-p", "thp", "--blocks", "3", "--min-blocks", "10"]);
    refused.assert_exit(2, &["--min-blocks 10 is more than the 3 blocks", "give --blocks 10 or more"]);
    // A trial takes a second of the fake platform's clock, and a block with its control arms a few.
    let short = faked(&bench, THREE, &["-p", "thp", "--max-time", "10s"]);
    short.assert_exit(0, &["--max-time is too short for an interval, which takes 6 blocks of ", " each: --max-time "]);
    let long = faked(&bench, THREE, &["-p", "thp", "--max-time", "10m"]);
    assert!(!long.stderr.contains("--max-time"), "{long}");
}

#[test]
fn a_failure_is_printed_once() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let failing = written(&bench, "[arm.default]\nexit = [1]\n[arm.thp]\nexit = [1]");
    let ran = faked(&bench, &failing, &["-p", "default,thp"]);
    ran.assert_exit(1, &["the command fails under every policy", "run it by itself to see why"]);
    assert_eq!(ran.stdout, "", "{ran}");
    assert_eq!(ran.stderr.matches("the command fails").count(), 1, "{ran}");
    let shown = bench.pagelab(&["show", "1", "--store", &bench.store()]).ran();
    shown.assert_exit(0, &[]).assert_stdout(&["the comparison failed: the command fails under every policy"]);
}

#[test]
fn pagelab_alone_says_what_it_does_and_how_to_begin() {
    let ran = Bench::new().pagelab(&[]).ran();
    ran.assert_exit(0, &[]).assert_stdout(&[
        "which page size",
        "pagelab demo",
        "pagelab compare -- ",
        "pagelab inspect PID",
    ]);
    assert!(ran.stdout.lines().count() < 10 && ran.stdout.lines().all(|line| line.len() <= 80), "{ran}");
}

#[test]
fn help_says_what_pagelab_is_for() {
    let bench = Bench::new();
    bench.pagelab(&["--help"]).ran().assert_stdout(&["Which page size should this memory be mapped with"]);
}

#[test]
fn columns_is_the_width_where_there_is_no_terminal() {
    let bench = Bench::new();
    for (columns, expected) in [("60", 60), ("120", 120), ("0", 100), ("wide", 100)] {
        let ran = bench.pagelab(&["list", "policies"]).env("COLUMNS", columns).ran();
        let widest = ran.stdout.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= expected && widest > expected / 2, "{columns}: {widest}");
    }
}
