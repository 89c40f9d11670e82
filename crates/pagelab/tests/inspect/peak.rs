//! What a command frees before it ends is seen while it runs.

use crate::common::{Bench, Runs};

#[test]
fn a_peak_before_the_end_is_looked_at() {
    let bench = Bench::new();
    let program = bench.word("pagelab");
    let touch = [&program, "workload", "page-touch", "--bytes", "128M", "--answer-only"];
    let ran = bench.pagelab(&[&["inspect", "--json", "--"], &touch[..]].concat()).ran();
    assert_eq!(ran.code, Some(0), "{ran}");
    let document: serde_json::Value = serde_json::from_str(&ran.stdout[ran.stdout.find("{\n").unwrap()..]).unwrap();
    let (peak, exit) = (&document["peak"], &document["processes"][0]);
    let resident = |process: &serde_json::Value| process["resident_bytes"].as_u64().unwrap();
    assert!(resident(exit) < 64 << 20, "{exit:#}");
    assert!(resident(&peak["process"]) > (128 << 20) / 9 * 8, "{peak:#}");
    assert_eq!(peak["process"]["pid"], exit["pid"]);
    assert!(peak["hwm_bytes"].as_u64().unwrap() >= 128 << 20, "{peak:#}");
    assert_eq!(peak["interval_s"].as_f64(), Some(0.01));
    assert!(peak["looks"].as_u64() > Some(0) && peak["elapsed_s"].as_f64() > Some(0.0), "{peak:#}");
    let ran = bench.pagelab(&[&["inspect", "--"], &touch[..]].concat()).ran();
    ran.prints(&["the largest look, ", "(VmHWM)", "every 10 ms", "at the exit", "how this was seen"]);
}

#[test]
fn a_command_that_keeps_its_memory_is_shown_once() {
    let bench = Bench::new();
    let ran = bench.pagelab(&["inspect", "--", "true"]).ran();
    ran.prints(&["the largest look was the one at the exit", "every 10 ms"]);
    assert_eq!(ran.stdout.matches("how this was seen").count(), 1, "{ran}");
    let document = bench.pagelab(&["inspect", "--json", "--", "true"]).ran().json();
    assert!(document["peak"]["process"].is_null() && document["peak"]["elapsed_s"].is_null(), "{document:#}");
    let document = bench.pagelab(&["inspect", "--json", &std::process::id().to_string()]).ran().json();
    assert!(document["peak"].is_null(), "{document:#}");
}
