//! Tests of `compare --prove-all`: all memory that is unmapped before the exit is inspected, and the output contains
//! what that costs.

mod common;

use common::*;
use serde_json::Value;

const ROUNDS: u64 = 300;
const MAPPED_BYTES: u64 = 1 << 20;
/// The memory that the workload unmaps before its exit. What is inspected in the first milliseconds is a small part of this.
const GONE_BYTES: u64 = ROUNDS * MAPPED_BYTES;

/// A workload that maps and unmaps 1M again and again.
fn churn(bench: &Bench) -> Vec<String> {
    let (program, rounds) = (bench.word("pagelab"), ROUNDS.to_string());
    words_of(&[&program, "workload", "mmap-churn", "--bytes", "1M", "--rounds", &rounds, "--answer-only"])
}

fn freed_unseen(arm: &Value) -> Option<&Value> {
    arm["verdict"]["causes"].as_array().unwrap().iter().find(|cause| cause["code"] == "freed_before_exit")
}

/// The trials under `base`, which needs no privilege.
fn of_base(document: &Value) -> impl Iterator<Item = &Value> {
    document["trials"].as_array().unwrap().iter().filter(|trial| trial["label"] == "base")
}

fn warned(document: &Value) -> bool {
    document["warnings"].as_array().unwrap().iter().any(|warning| warning["warning"] == "inspection_in_wall_time")
}

#[test]
fn prove_all_sees_memory_freed_before_the_end() {
    let bench = Bench::new();
    let options = [&["-p", "default,base", "--json"][..], &QUICK].concat();
    let without = bench.compare(&options, &churn(&bench)).ran().assert_exit(0, &[]).json();
    assert_eq!(without["design"]["prove_all"], false);
    let remedy = &freed_unseen(arm(&without, "base")).expect("most of it goes unseen")["remedy"];
    assert!(remedy.as_str().unwrap().starts_with("add --prove-all, "), "{remedy}");

    let html = bench.word("report.html");
    let options = [&options[..], &["--prove-all", "--html", &html]].concat();
    let with = bench.compare(&options, &churn(&bench)).ran().assert_exit(0, &[]).json();
    assert_eq!((&with["design"]["prove_all"], freed_unseen(arm(&with, "base"))), (&true.into(), None));
    for trial in of_base(&with) {
        let seen_bytes = trial["verdict"]["concerned_bytes"].as_u64().unwrap();
        assert!((GONE_BYTES..GONE_BYTES + (8 << 20)).contains(&seen_bytes), "{seen_bytes} of {GONE_BYTES}");
        assert_eq!(trial["verdict"]["holding"], "held", "{trial:#}");
        assert_eq!(observed(trial, "looks_s"), Some(0.0), "nothing else of the tree ran");
    }
    assert!(!warned(&with), "{with:#}");
    assert_eq!(bench.stored(2), with, "the design is stored");
    assert!(bench.stored(1)["design"]["prove_all"] == false);
    let html = std::fs::read_to_string(html).unwrap();
    assert!(
        html.contains("all memory is inspected before it is given back") && html.contains("--min-blocks 1 --prove-all"),
        "{html}"
    );
}

#[test]
fn wall_times_that_contain_looks_are_named() {
    let bench = Bench::new();
    let with_sleeper = shell(&format!("sleep 60 & {}; kill $!", churn(&bench).join(" ")));
    let options = [&["-p", "default,base", "--prove-all", "--json"][..], &QUICK].concat();
    let document = bench.compare(&options, &with_sleeper).ran().assert_exit(0, &[]).json();
    for trial in of_base(&document) {
        let (looks_s, wall_s) = (observed(trial, "looks_s").unwrap(), observed(trial, "wall_s").unwrap());
        assert!(looks_s > wall_s / 1000.0 && looks_s < wall_s, "{looks_s} of {wall_s} s");
    }
    assert!(warned(&document), "{:#}", document["warnings"]);
    let table = bench.pagelab(&["show", "1", "--store", &bench.store()]).ran();
    table.assert_stdout(&[
        "warning: under base the wall time includes",
        "spent on inspecting memory that was about to be given back (--prove-all)",
        "times from one without",
    ]);
}
