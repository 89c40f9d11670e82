//! Tests of two pagelabs on one host: they share one lease and one store, and nothing is lost.

mod common;

use std::process::{Command, Stdio};

use common::*;
use serde_json::Value;

/// Starts a comparison, and waits until it reports that it is waiting for the lease.
fn waiting(bench: &Bench, compare: &mut Command) -> Running {
    let errors = std::fs::File::create(bench.path("said")).unwrap();
    let running = compare.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).begin();
    let waits = || printed_errors(bench).contains("waiting for the lease on system settings");
    assert!(within(LIMIT, waits), "it does not wait: {}", printed_errors(bench));
    running
}

/// The standard error of the comparison so far.
fn printed_errors(bench: &Bench) -> String {
    std::fs::read_to_string(bench.path("said")).unwrap_or_default()
}

#[test]
fn the_second_says_who_has_the_lease_and_waits_or_gives_up() {
    if !needs(&own_lease()) {
        return;
    }
    let bench = Bench::with_own_lease();
    let go = bench.word("go");
    let holds = bench.script("holds", &format!("while [ ! -e {go} ]; do sleep 0.01; done"));
    let mut holder = bench.pagelab(&["exec", "-p", "mthp-64k", "--", &holds]).stdin(Stdio::null()).begin();
    bench.await_lease(&holder);
    let who = format!("by process {}", holder.id());

    let hasty = bench.compare(&["-p", "base,mthp-64k", "--wait", "300ms"], &words_of(&["true"])).ran();
    hasty.assert_exit(2, &["waiting for the lease on system settings", &who, "exec -p mthp-64k", "are leased"]);
    let mut patient = bench.compare(&[&["-p", "base,mthp-64k"][..], &QUICK].concat(), &bench.touch());
    let mut patient = waiting(&bench, &mut patient);
    assert!(
        printed_errors(&bench).contains(&who) && printed_errors(&bench).contains("exec -p mthp-64k"),
        "{}",
        printed_errors(&bench)
    );
    let third = bench.pagelab(&["exec", "-p", "mthp-64k", "--wait", "300ms", "--", "true"]).ran();
    third.assert_exit(
        2,
        &["waiting for the lease on system settings", &who, "; 1 other process waits before this one", "are leased"],
    );
    std::fs::write(&go, "").unwrap();
    assert_eq!(patient.wait().code(), Some(0), "{}", printed_errors(&bench));
    assert_eq!(holder.wait().code(), Some(0));
    // Which share of memory is in 64K folios depends on the free memory of the host.
    // The hasty comparison ran nothing, and is not stored.
    let verdict = &bench.stored(1)["arms"][1]["verdict"];
    assert!(verdict["coverage_ratio"].as_f64() > Some(0.0), "it waited for its own settings: {verdict:#}");
}

/// `thp` needs no change of settings if the host's setting is at least madvise.
#[test]
fn execs_that_change_nothing_run_together_but_not_with_a_comparison() {
    if !needs(&own_lease()) {
        return;
    }
    let bench = Bench::with_own_lease();
    let before = settings();
    let wait = bench.script("wait", "echo started; read -r _");
    let exec = || {
        let mut exec = bench.pagelab(&["exec", "-p", "default+no-huge", "--wait", "60s", "--", &wait]);
        let mut child = exec.stdin(Stdio::piped()).stdout(Stdio::piped()).begin();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout()), &mut line).unwrap();
        assert_eq!(line, "started\n");
        child
    };
    let (first, mut second) = (exec(), exec());
    assert_eq!((bench.leaseholder(), settings()), (None, before.clone()), "nothing is written");
    let hasty = bench.compare(&["-p", "base,default", "--wait", "300ms"], &words_of(&["true"])).ran();
    let who = [first.id(), second.id()].map(|id| format!("by process {id}"));
    hasty.assert_exit(2, &["exec -p default+no-huge", ", and one more", "are leased"]);
    assert!(who.iter().any(|who| hasty.stderr.contains(who)), "{hasty}");
    // One of the two is killed, and the kernel releases its shared lock. The other one ends by itself.
    first.kill();
    let mut patient = bench.compare(&[&["-p", "base,default"][..], &QUICK].concat(), &words_of(&["true"]));
    let mut patient = waiting(&bench, &mut patient);
    drop(second.stdin());
    second.wait();
    assert_eq!(patient.wait().code(), Some(0), "{}", printed_errors(&bench));
    assert!(printed_errors(&bench).contains(&who[1]), "{}", printed_errors(&bench));
    assert!(
        !printed_errors(&bench).contains(&who[0]) && !printed_errors(&bench).contains("more"),
        "{}",
        printed_errors(&bench)
    );

    let options = ["-p", "base,default", "--blocks", "1000", "--min-blocks", "1000"];
    let mut compare = bench.compare(&options, &words_of(&["sleep", "0.02"]));
    let compare = compare.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).begin();
    bench.await_lease(&compare);
    let late = bench.pagelab(&["exec", "-p", "default+no-huge", "--wait", "300ms", "--", "true"]).ran();
    late.assert_exit(2, &[&format!("by process {}", compare.id()), "are leased"]);
    let mut waits = bench.pagelab(&["exec", "-p", "default+no-huge", "--", "true"]);
    let mut waits = waiting(&bench, &mut waits);
    send("INT", waits.id());
    assert_eq!(waits.wait().code(), Some(130), "{}", printed_errors(&bench));
    assert!(printed_errors(&bench).contains("stopped by signal 2; nothing was run"), "{}", printed_errors(&bench));
    send("INT", compare.id());
    compare.ran().assert_exit(130, &[]);
}

#[test]
fn a_waiting_process_can_be_stopped() {
    if !needs(&[root()]) {
        return;
    }
    let _lease_guard = LeaseGuard::wait();
    let bench = Bench::new();
    let mut compare = bench.compare(&["-p", "base,mthp-64k"], &words_of(&["true"]));
    let mut child = waiting(&bench, &mut compare);
    send("INT", child.id());
    assert_eq!(child.wait().code(), Some(130), "{}", printed_errors(&bench));
    assert!(printed_errors(&bench).contains("stopped by signal 2"), "{}", printed_errors(&bench));
}

/// The policy `base` needs no change of settings, but the results of its trials depend on the settings.
#[test]
fn a_comparison_that_changes_nothing_keeps_others_from_changing_settings() {
    if !needs(&own_lease()) {
        return;
    }
    let bench = Bench::with_own_lease();
    let before = settings();
    let options = ["-p", "base,base+prefault", "--blocks", "1000", "--min-blocks", "1000"];
    let mut compare = bench.compare(&options, &words_of(&["sleep", "0.02"]));
    let holder = compare.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).begin();
    bench.await_lease(&holder);
    let who = format!("by process {}", holder.id());

    let other = bench.pagelab(&["exec", "-p", "mthp-64k", "--wait", "300ms", "--", "true"]).ran();
    other.assert_exit(2, &[&who, "are leased"]);
    assert_eq!(settings(), before, "neither of them changed anything");
    let has_a_trial = || bench.listed().first().is_some_and(|summary| summary["trials"].as_u64() > Some(0));
    assert!(within(LIMIT, has_a_trial), "no trial was stored");
    send("INT", holder.id());
    holder.ran().assert_exit(130, &[]);
    let is_rejected = |trial: &Value| !trial["rejected"].as_array().unwrap().is_empty();
    assert!(!bench.stored(1)["trials"].as_array().unwrap().iter().any(is_rejected));
    bench.pagelab(&["exec", "-p", "mthp-64k", "--", "true"]).ran().assert_exit(0, &[]);
}

#[test]
fn one_store_keeps_what_several_write_at_once() {
    let bench = Bench::new();
    let options = ["-p", "default,base", "--blocks", "10", "--min-blocks", "10"];
    let start = |_| {
        let mut compare = bench.compare(&options, &words_of(&["true"]));
        compare.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).begin()
    };
    let children: Vec<_> = (0..4).map(start).collect();
    for child in children {
        child.ran().assert_exit(0, &[]);
    }
    let listed = bench.listed();
    assert_eq!(listed.len(), 4, "{listed:?}");
    for summary in &listed {
        assert_eq!((&summary["trials"], &summary["ended"]), (&22.into(), &"all blocks".into()), "{summary}");
        let document = bench.stored(summary["number"].as_u64().unwrap());
        assert_eq!(document["trials"].as_array().unwrap().len(), 22);
    }
}
