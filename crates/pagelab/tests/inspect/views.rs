//! Tests of tables, of process trees, and of commands that are inspected when they end.

use crate::common::{Bench, Runs, needs, program, root};

use super::provoked::Provoked;

#[test]
fn tables_say_what_and_why() {
    if !needs(&[root(), program("gcc")]) {
        return;
    }
    let provoked = Provoked::start("guard").unwrap();
    let (bench, pid) = (&provoked.bench, provoked.pid());
    bench.pagelab(&["inspect", &pid]).ran().assert_stdout(&[
        "could be larger",
        "anonymous",
        "why not larger",
        "one allocation, cut by a guard page",
        "remedy, not tried: in the source: put guard pages outside the slots",
        "what the kernel could give",
        "max_ptes_none",
        "leaf sizes and places: PAGEMAP_SCAN, exact",
    ]);
    let start = format!("{:x}-", provoked.address);
    bench.pagelab(&["inspect", &pid, "--regions"]).ran().assert_stdout(&[
        &start,
        "cut into 3 mappings: a guard page at",
        "data of",
        "heap",
        "recognised: named by the kernel",
    ]);
    bench.pagelab(&["inspect", "--tree", &pid]).ran().assert_stdout(&[&pid, "provoke", "could be larger"]);
}

#[test]
fn all_processes_are_sorted_by_what_could_be_larger() {
    let bench = Bench::new();
    let document = bench.pagelab(&["inspect", "--all", "--json"]).ran().json();
    assert_eq!(document["schema"], "pagelab.inspect/1");
    let processes = document["processes"].as_array().unwrap();
    assert!(processes.iter().all(|one| one["regions"].is_null()));
    // Only a process that is about to end has no memory.
    assert!(processes.iter().any(|one| one["resident_bytes"].as_u64() > Some(0)), "{document:#}");
    let ran = bench.pagelab(&["inspect", "--all"]).ran();
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 100), "{ran}");
}

#[test]
fn a_command_is_seen_at_its_end() {
    let bench = Bench::new();
    let touch = bench.touch();
    let words: Vec<&str> = ["inspect", "--"].into_iter().chain(touch.iter().map(String::as_str)).collect();
    let ran = bench.pagelab(&words).ran();
    assert_eq!(ran.code, Some(0), "{ran}");
    ran.assert_stdout(&["page-touch", "resident", "how this was seen"]);
    bench.pagelab(&["inspect", "--", "sh", "-c", "exit 3"]).ran().assert_exit(1, &["exit code 3"]);
}
