//! Tests of what a verdict is based on: the memory that was inspected, the reason why memory is not as the policy asks, and the
//! peak size.

mod common;

use std::process::Command;

use common::*;
use serde_json::Value;

const PIECE_BYTES: u64 = 512 << 10;
const TOTAL_BYTES: u64 = 100 << 20;
/// The memory that a program has in addition to its own mappings.
const LITTLE_BYTES: u64 = 4 << 20;

/// Compiles a C program of the tracer's tests.
fn compiled(bench: &Bench, name: &str) -> String {
    let source = format!("{}/../tracer/tests/programs/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let output = bench.word(name);
    let status = Command::new("gcc").args(["-O1", "-o", &output, &source]).status().unwrap();
    assert!(status.success(), "{name}.c does not compile");
    output
}

/// A command line of the program `freed`: `freed PIECE TOTAL HOW`.
fn pieces(bench: &Bench, piece_bytes: u64, how: &str) -> Vec<String> {
    let program = compiled(bench, "freed");
    words_of(&[&program, &piece_bytes.to_string(), &TOTAL_BYTES.to_string(), how])
}

/// The document of a comparison of one policy with the default.
fn compared(bench: &Bench, policy: &str, options: &[&str], command: &[String]) -> Value {
    let policies = format!("default,{policy}");
    let options = [&["-p", &policies, "--json"][..], &QUICK, options].concat();
    bench.compare(&options, command).ran().assert_exit(0, &[]).json()
}

fn cause<'a>(verdict: &'a Value, code: &str) -> Option<&'a Value> {
    verdict["causes"].as_array().unwrap().iter().find(|cause| cause["code"] == code)
}

fn peak_of(verdict: &Value) -> [u64; 3] {
    ["seen_bytes", "least_bytes", "most_bytes"].map(|key| verdict["peak"][key].as_u64().unwrap())
}

fn is_about(bytes: u64, expected: u64) -> bool {
    (expected..expected + LITTLE_BYTES).contains(&bytes)
}

/// Memory that is left at the end proves nothing about memory that was freed earlier. `--prove-all` inspects that
/// memory too.
#[test]
fn memory_freed_in_small_pieces_is_unproven_without_prove_all() {
    if !needs(&[program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    for how in ["unmap", "heap", "shrink", "drop", "over", "again"] {
        let command = pieces(&bench, PIECE_BYTES, how);
        let without = compared(&bench, "base", &[], &command);
        let verdict = &arm(&without, "base")["verdict"];
        assert_eq!(verdict["holding"], "unknown", "{how}: {verdict:#}");
        let unseen = cause(verdict, "peak_unseen").unwrap_or_else(|| panic!("{how}: {verdict:#}"));
        assert!(unseen["text"].as_str().unwrap().starts_with("most of the memory was given back before"), "{unseen}");
        assert!(unseen["remedy"].as_str().unwrap().starts_with("add --prove-all, "), "{unseen}");
        let [seen, least, most] = peak_of(verdict);
        assert!(seen < LITTLE_BYTES && most < least + LITTLE_BYTES, "{how}: {verdict:#}");
        assert!(is_about(least, TOTAL_BYTES - (1 << 20)), "{how}: {verdict:#}");

        let with = compared(&bench, "base", &["--prove-all"], &command);
        let verdict = &arm(&with, "base")["verdict"];
        assert_eq!((&verdict["holding"], &verdict["causes"]), (&"held".into(), &Value::Array(vec![])), "{how}");
        let [seen, least, _] = peak_of(verdict);
        assert!(seen == least && is_about(least, TOTAL_BYTES - (1 << 20)), "{how}: {verdict:#}");
        for trial in with["trials"].as_array().unwrap().iter().filter(|trial| trial["label"] == "base") {
            assert!(trial["verdict"]["concerned_bytes"].as_u64().unwrap() >= TOTAL_BYTES, "{how}: {trial:#}");
        }
    }
    let table = bench.pagelab(&["show", "1", "--store", &bench.store()]).ran();
    table.assert_stdout(&["base: not known whether it was in force", "M at the peak); add --prove-all"]);
}

/// Memory that exists at the end, or may exist, is inspected at the end.
#[test]
fn memory_that_stays_is_proven() {
    if !needs(&[program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    for how in ["keep", "free"] {
        let document = compared(&bench, "base", &[], &pieces(&bench, PIECE_BYTES, how));
        let verdict = &arm(&document, "base")["verdict"];
        let [seen, least, _] = peak_of(verdict);
        assert!(verdict["holding"] == "held" && seen == least && is_about(least, TOTAL_BYTES), "{how}: {verdict:#}");
        let csv = bench.word("trials.csv");
        bench.pagelab(&["show", "1", "--store", &bench.store(), "--csv", &csv]).ran().assert_exit(0, &[]);
        let csv = std::fs::read_to_string(csv).unwrap();
        assert!(csv.lines().next().unwrap().contains(",exit,peak_seen_bytes,peak_least_bytes,peak_most_bytes"));
    }
}

#[test]
fn memory_that_exec_replaces_is_seen_with_prove_all() {
    if !needs(&[program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let document = compared(&bench, "base", &["--prove-all"], &pieces(&bench, PIECE_BYTES, "exec"));
    let verdict = &arm(&document, "base")["verdict"];
    let [seen, least, _] = peak_of(verdict);
    assert!(verdict["holding"] == "held" && seen == least && is_about(least, TOTAL_BYTES), "{verdict:#}");
}

/// The program maps and frees pieces smaller than a hugetlb page, which do not come from the pool.
#[test]
fn churn_below_a_page_of_the_pool_is_no_proof() {
    if !needs(&[root(), program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let command = pieces(&bench, PIECE_BYTES, "unmap");
    let verdict_of = |options: &[&str]| {
        let document = compared(&bench, "hugetlb-2m", options, &command);
        arm(&document, "hugetlb-2m")["verdict"].clone()
    };
    let without = verdict_of(&[]);
    assert_eq!(without["holding"], "unknown", "{without:#}");
    assert!(cause(&without, "peak_unseen").is_some(), "{without:#}");
    let with = verdict_of(&["--prove-all"]);
    assert_eq!(with["holding"], "not_held", "{with:#}");
    assert!(with["coverage_ratio"].as_f64().unwrap() < 0.1, "{with:#}");
}

/// The kernel records no peak of hugetlb pages, so they are counted before each call that frees some, whatever its
/// size.
#[test]
fn the_peak_has_the_pages_of_a_pool_that_mremap_gives_back() {
    if !needs(&[root(), program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    for how in ["shrink", "heap", "drop"] {
        let document = compared(&bench, "hugetlb-2m", &[], &pieces(&bench, 4 << 20, how));
        let of_pool = arm(&document, "hugetlb-2m");
        let peak = of_pool["medians"]["peak_resident_bytes"].as_f64().unwrap() as u64;
        assert!(is_about(peak, TOTAL_BYTES), "{how}: {peak}");
        let [seen, least, _] = peak_of(&of_pool["verdict"]);
        assert!(is_about(least, TOTAL_BYTES - (1 << 20)) && seen < least / 2, "{how}: {:#}", of_pool["verdict"]);
        assert_eq!(of_pool["verdict"]["holding"], "unknown", "{how}");
    }
}

/// Each way of splitting a large page has its own code, and a matching remedy.
#[test]
fn each_fate_of_a_large_page_has_its_own_cause() {
    if !needs(&[root(), program("gcc"), large_pages()]) {
        return;
    }
    const LARGE_BYTES: u64 = 8 * (2 << 20);
    let bench = Bench::new();
    // khugepaged would collapse the memory again.
    let without_khugepaged = ["--khugepaged", "off"];
    let program = compiled(&bench, "refilled");
    for (how, code, least_bytes) in [
        ("dropped", "refilled_after_drop", LARGE_BYTES / 2),
        ("halves", "refilled_after_drop", LARGE_BYTES),
        // The kernel does not split a folio to which another user holds a reference or a lock (`madvise_free_huge_pmd`).
        ("freed", "split_meanwhile", LARGE_BYTES * 3 / 4),
        ("moved", "folio_partly_mapped", LARGE_BYTES),
        ("cut", "leaf_split", LARGE_BYTES),
        ("forked", "split_after_fork", LARGE_BYTES),
    ] {
        let document = compared(&bench, "thp", &without_khugepaged, &words_of(&[&program, how]));
        let verdict = &arm(&document, "thp")["verdict"];
        let found = cause(verdict, code).unwrap_or_else(|| panic!("{how}: {verdict:#}"));
        assert!(found["bytes"].as_u64().unwrap() >= least_bytes, "{how}: {verdict:#}");
        assert_eq!(cause(verdict, "touched_before_eligible"), None, "{how}: {verdict:#}");
        let remedy = found["remedy"].as_str().unwrap();
        assert_eq!(remedy.contains("fork"), how == "forked", "{how}: {remedy}");
    }
    let document = compared(&bench, "thp", &without_khugepaged, &words_of(&[&program, "whole"]));
    assert_eq!(arm(&document, "thp")["verdict"]["holding"], "held", "{document:#}");
}

/// A large page that is freed piece by piece was large until its first piece was freed.
#[test]
fn large_pages_that_go_piece_by_piece_were_large() {
    if !needs(&[root(), program("gcc"), large_pages()]) {
        return;
    }
    let bench = Bench::new();
    for how in ["heap", "shrink"] {
        let document = compared(&bench, "thp", &["--prove-all"], &pieces(&bench, PIECE_BYTES, how));
        let verdict = &arm(&document, "thp")["verdict"];
        assert_eq!(verdict["holding"], "held", "{how}: {verdict:#}");
    }
}

/// Base pages of 4K, and leaves of 2M.
fn large_pages() -> (&'static str, bool) {
    let size = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").unwrap_or_default();
    ("large pages of 2M", size.trim() == "2097152")
}

/// If shared memory is detached, or its pages are removed, this must not look like private memory that was not
/// inspected.
#[test]
fn freed_shared_memory_does_not_change_the_verdict_on_private_memory() {
    if !needs(&[program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let program = compiled(&bench, "removal");
    let verdict = |how: &str, options: &[&str]| {
        let document = compared(&bench, "base", options, &words_of(&[&program, how]));
        arm(&document, "base")["verdict"].clone()
    };
    for how in ["shmdt", "remove", "truncate", "ftruncate", "fallocate", "shmat", "process_madvise"] {
        let with = verdict(how, &["--prove-all"]);
        assert_eq!((&with["holding"], &with["causes"]), (&"held".into(), &Value::Array(vec![])), "{how}: {with:#}");
        let [seen, least, _] = peak_of(&with);
        assert!(seen == least && seen > 1 << 20, "{how}: {with:#}");
    }
    let without = verdict("shmdt", &[]);
    assert_eq!(without["holding"], "held", "{without:#}");
}

/// A request of io_uring drops memory without a call at which the tracer could stop. An option that was given
/// (`--prove-all`) is not advised again.
#[test]
fn names_how_memory_was_freed_without_a_call() {
    if !needs(&[program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let command = words_of(&[&compiled(&bench, "removal"), "io_uring"]);
    if Command::new(&command[0]).arg(&command[1]).status().unwrap().code() == Some(3) {
        return testing::skip("io_uring");
    }
    let document = compared(&bench, "base", &["--prove-all"], &command);
    let verdict = &arm(&document, "base")["verdict"];
    assert_eq!(verdict["holding"], "unknown", "{verdict:#}");
    let unseen = cause(verdict, "peak_unwatched").unwrap_or_else(|| panic!("{verdict:#}"));
    assert!(unseen["remedy"].is_null() && unseen["text"].as_str().unwrap().contains("io_uring"), "{unseen}");
    let table = bench.pagelab(&["show", "1", "--store", &bench.store()]).ran();
    table.assert_stdout(&[
        "base: not known whether it was in force",
        "by no call that stops: the program uses io_uring",
    ]);
}
