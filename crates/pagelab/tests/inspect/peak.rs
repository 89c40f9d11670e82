//! Tests that memory that a command frees before it ends is seen while the command runs.

use crate::causes::Set;
use crate::common::{Bench, LeaseGuard, Runs, needs, python, root};
use crate::switches::Pool;

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
    assert!(resident(&peak["process"]) > (128 << 20) / 65 * 64, "{peak:#}");
    assert_eq!(peak["process"]["pid"], exit["pid"]);
    assert!(peak["hwm_bytes"].as_u64().unwrap() >= 128 << 20, "{peak:#}");
    assert_eq!((peak["interval_s"].as_f64(), peak["peak_growth_ratio"].as_f64()), (Some(0.01), Some(1.0 / 64.0)));
    assert!(peak["looks"].as_u64() > Some(0) && peak["elapsed_s"].as_f64() > Some(0.0), "{peak:#}");
    let ran = bench.pagelab(&[&["inspect", "--"], &touch[..]].concat()).ran();
    ran.assert_stdout(&[
        "the largest look, ",
        "(VmHWM)",
        "every 10 ms",
        "at the exit (--regions has all of it): process ",
    ]);
    assert_eq!(ran.stdout.matches("how this was seen").count(), 1, "{ran}");
    let ran = bench.pagelab(&[&["inspect", "--regions", "--"], &touch[..]].concat()).ran();
    assert_eq!(ran.stdout.matches("how this was seen").count(), 2, "{ran}");
}

#[test]
fn a_command_that_keeps_its_memory_is_shown_once() {
    let bench = Bench::new();
    let ran = bench.pagelab(&["inspect", "--", "true"]).ran();
    ran.assert_stdout(&["the largest look was the one at the exit", "every 10 ms"]);
    assert_eq!(ran.stdout.matches("how this was seen").count(), 1, "{ran}");
    let document = bench.pagelab(&["inspect", "--json", "--", "true"]).ran().json();
    assert!(document["peak"]["process"].is_null() && document["peak"]["elapsed_s"].is_null(), "{document:#}");
    let document = bench.pagelab(&["inspect", "--json", &std::process::id().to_string()]).ran().json();
    assert!(document["peak"].is_null(), "{document:#}");
}

/// Python's path, the lock on settings, and a pool of 64M; `None` if one of them is missing.
fn python_and_pool() -> Option<(String, LeaseGuard, Set)> {
    let python = python();
    if !needs(&[root(), ("python3", python.is_some())]) {
        return None;
    }
    let lease_guard = LeaseGuard::wait();
    if !needs(&[("an empty pool of 2M", Pool::empty().is_some())]) {
        return None;
    }
    Some((python?, lease_guard, Pool::with(32)?))
}

/// statm and VmHWM leave out hugetlb pages, so the peak must be found in another way.
#[test]
fn a_peak_of_hugetlb_pages_is_seen_too() {
    let Some((python, _lease_guard, _pool)) = python_and_pool() else { return };
    let script = "import mmap, time\nhuge = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)\n\
                  for at in range(0, 64 << 20, 2 << 20): huge[at] = 1\ntime.sleep(0.5)\nhuge.close()";
    let bench = Bench::new();
    let ran = bench.pagelab(&["inspect", "--require", "2M>=64M", "--", &python, "-c", script]).ran();
    ran.assert_exit(0, &[]).assert_stdout(&["required 2M>=64M: met", "VmHWM, which leaves out hugetlb pages"]);
}

/// mmap reserves the hugetlb pages of shared memory. They are then not free any more, although the program can still
/// touch them.
#[test]
fn reserved_pages_of_a_pool_are_not_missing() {
    let Some((python, _lease_guard, _pool)) = python_and_pool() else { return };
    let script = "import mmap, time\nhuge = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | 0x40000)\n\
                  for at in range(0, 32 << 20, 2 << 20): huge[at] = 1\ntime.sleep(0.5)\nhuge.close()";
    let bench = Bench::new();
    let ran = bench.pagelab(&["inspect", "--", &python, "-c", script]).ran();
    ran.assert_exit(0, &[]).assert_stdout(&["32M by 2M"]);
    assert!(!ran.stdout.contains("SIGBUS"), "{ran}");
}
