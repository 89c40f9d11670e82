//! Tests of stores that another process or user has manipulated: malicious ones, and stores that are removed or locked while
//! pagelab works.

mod common;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::*;

const TWO: [&str; 2] = ["-p", "default,base"];

/// Runs SQL on the bench's store with another program than pagelab.
fn sql(bench: &Bench, statements: &str) {
    let script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
    let mut python = Command::new("python3");
    python.args(["-c", script, &bench.store(), statements]).current_dir(bench.path("."));
    python.ran().assert_exit(0, &[]);
}

#[test]
fn a_store_with_an_endless_trigger_is_refused_by_whatever_opens_it() {
    if !needs(&[program("python3")]) {
        return;
    }
    let bench = Bench::new();
    bench.pagelab(&["list", "comparisons", "--store", &bench.store()]).ran().assert_exit(0, &[]);
    fs::write(bench.store(), "").unwrap();
    // When pagelab opens an empty file as a store, it makes it one.
    bench.pagelab(&["list", "comparisons", "--store", &bench.store()]).ran().assert_exit(0, &[]);
    let endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n, n FROM c";
    sql(&bench, &format!("CREATE TRIGGER spin AFTER INSERT ON machines BEGIN INSERT INTO settings {endless}; END"));
    let before = fs::read(bench.store()).unwrap();
    let parts = ["is not as pagelab makes it", "a trigger spin on machines", "--store FILE"];
    bench.compare(&TWO, &words_of(&["true"])).ran().assert_exit(2, &parts);
    for words in [
        &["list", "comparisons", "--store", &bench.store()][..],
        &["show", "1", "--store", &bench.store()],
        &["merge", &bench.store()],
    ] {
        bench.pagelab(words).ran().assert_exit(2, &parts);
    }
    assert!(before == fs::read(bench.store()).unwrap(), "it was left as it was");
}

#[test]
fn results_are_set_aside_when_the_store_disappears_during_a_run() {
    let replaced = "test -e other || : > other; mv other results.sqlite";
    for (act, message) in [("rm -f results.sqlite", "was removed"), (replaced, "was replaced by another file")] {
        let bench = Bench::new();
        let ran = bench.compare(&[&TWO[..], &QUICK, &["--json"]].concat(), &shell(act)).ran();
        ran.assert_exit(2, &[message, "its results are set aside", "results-set-aside-1.sqlite", "number 1 of"]);
        assert_eq!(ran.stderr.matches("are set aside").count(), 1, "said once: {ran}");
        let aside = bench.word("results-set-aside-1.sqlite");
        let kept = bench.pagelab(&["show", "1", "--store", &aside, "--json"]).ran().json();
        assert_eq!(kept, ran.json(), "all of it is there");
        assert_eq!(kept["trials"].as_array().unwrap().len(), 6);
    }
}

#[test]
fn a_store_that_is_held_does_not_make_pagelab_deaf() {
    if !needs(&[program("python3")]) {
        return;
    }
    let bench = Bench::new();
    let wait = "touch begun; while ! test -e held; do sleep 0.01; done";
    let mut comparing = bench.compare(&[&TWO[..], &QUICK].concat(), &shell(wait));
    let mut comparing = comparing.stdout(Stdio::piped()).stderr(Stdio::piped()).begin();
    let patience = Duration::from_secs(300);
    assert!(within(patience, || bench.path("begun").exists() || comparing.is_over()), "it never began");
    let hold = "import sqlite3, sys, time
store = sqlite3.connect(sys.argv[1], isolation_level=None)
store.execute('BEGIN IMMEDIATE')
open('held', 'w')
time.sleep(1000)";
    let mut python = Command::new("python3");
    python.args(["-c", hold, &bench.store()]).current_dir(bench.path("."));
    let holder = python.begin();
    assert!(within(patience, || bench.path("held").exists()), "it was never held");
    send("TERM", comparing.id());
    let ran = comparing.ran();
    holder.kill();
    ran.assert_exit(143, &["another process has held the store", "its results are set aside"]);
    assert!(!ran.stderr.contains("for 30 s"), "a signal ends the wait: {ran}");
}
