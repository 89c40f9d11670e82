//! Compares the number of minor faults that the model predicts with those on the running kernel, for programs in which the order
//! of threads or processes matters.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Bench, Runs, arm, needs, observed, program, recording, root, words_of};
use serde_json::Value;
use validation::StablePageCache;

/// The allowed relative difference between a prediction and the nearest trial.
const TOLERANCE: f64 = 0.02;
/// The number of faults by which launches of a program with a thread may differ.
const STRAY_FAULTS: f64 = 10.0;

fn can_compare() -> bool {
    let here = [("x86-64", cfg!(target_arch = "x86_64")), root(), program("setarch"), recording("qemu-x86_64")];
    needs(&here) && needs(&[program("gcc"), ("tmpfs at /dev/shm", Path::new("/dev/shm").is_dir())])
}

/// Compiles a program of `tests/programs`.
fn compiled(bench: &Bench, name: &str) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(format!("{name}.c"));
    let compiled = bench.word(name);
    let status = Command::new("gcc").args(["-O1", "-pthread"]).arg(source).arg("-o").arg(&compiled).status().unwrap();
    assert!(status.success());
    compiled
}

/// Faults of a command under a policy.
struct Faults {
    /// The minimum and the maximum over the trials.
    measured: [f64; 2],
    /// The simulated faults.
    simulated: f64,
}

/// Records a command and simulates the trace under the policies.
fn simulated(bench: &Bench, policies: &[&str], command: &[String]) -> Value {
    let trace = bench.word("trace");
    let plugin = testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab"))).display().to_string();
    bench.pagelab(&["record", "-o", &trace, "--plugin", &plugin, "--"]).args(command).ran().assert_exit(0, &[]);
    let simulated = bench.pagelab(&["sim", &trace, "-m", "cascade-lake", "-p", &policies.join(","), "--json"]).ran();
    assert_eq!(simulated.code, Some(0), "{simulated}");
    // The traces of child processes are removed, because `sim` would take them for part of a later recording.
    std::fs::read_dir(bench.path("")).unwrap().flatten().for_each(|entry| {
        if entry.file_name().to_string_lossy().starts_with("trace") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    });
    let simulated = simulated.json();
    assert_eq!(simulated["traces"][0]["events_out_of_order"], 0);
    simulated
}

/// Runs a command under the policies.
fn native(bench: &Bench, policies: &[&str], command: &[String]) -> Value {
    // A comparison needs at least two policies.
    let compared = if policies.len() == 1 { "base,thp".to_owned() } else { policies.join(",") };
    let options = ["--json", "--khugepaged", "off", "--blocks", "4", "--min-blocks", "1", "-p", &compared];
    let mut native = Command::new("setarch");
    common::wrap(native.arg("--addr-no-randomize"), &bench.compare(&options, command));
    let native = native.ran();
    assert_eq!(native.code, Some(0), "{native}");
    native.json()
}

/// Faults of a command under each policy.
fn faults(policies: &[&str], native: &Value, simulated: &Value) -> Vec<Faults> {
    let of = |policy: &&str| {
        arm(native, policy);
        let trials = native["trials"].as_array().unwrap().iter();
        let counted = trials.filter(|trial| trial["label"] == **policy && trial["counted"] == true);
        let measured: Vec<f64> = counted.map(|trial| observed(trial, "minor_faults").unwrap()).collect();
        let simulations = simulated["traces"][0]["simulations"].as_array().unwrap();
        let simulation: &Value = simulations.iter().find(|simulation| simulation["policy"] == **policy).unwrap();
        let measured = [measured.iter().copied().reduce(f64::min), measured.iter().copied().reduce(f64::max)];
        Faults { measured: measured.map(Option::unwrap), simulated: simulation["faults"].as_f64().unwrap() }
    };
    policies.iter().map(of).collect()
}

/// Compares the measured and the simulated faults of a command. Faults before and around the execve, which `true` has too,
/// are subtracted. `by_chance` is the number of faults that may differ between runs.
fn agrees(bench: &Bench, policies: &[&str], command: &[String], by_chance: f64) {
    let (exits, launched) = (words_of(&["/bin/true"]), ["base"]);
    let simulated = [simulated(bench, &launched, &exits), simulated(bench, policies, command)];
    let native = {
        let _stable = StablePageCache::new(&bench.path("")).unwrap();
        [native(bench, &launched, &exits), native(bench, policies, command)]
    };
    let exits = &faults(&launched, &native[0], &simulated[0])[0];
    let launch = exits.measured[0] - exits.simulated;
    let mut off = Vec::new();
    for (policy, Faults { measured, simulated }) in policies.iter().zip(faults(policies, &native[1], &simulated[1])) {
        let [least, most] = measured.map(|faults| faults - launch);
        let line = format!("{policy}: {least} to {most} measured, {simulated} simulated");
        println!("{}: {line}", command[0]);
        let slack = (least * TOLERANCE).max(STRAY_FAULTS) + by_chance;
        if !(least - slack..=most + slack).contains(&simulated) {
            off.push(line);
        }
    }
    assert!(off.is_empty(), "{}", off.join("\n"));
}

/// The kernel touches the buffer first. If the consumer came first, it would get the zero page, and the producer would then have
/// one more fault for each page.
#[test]
fn a_producer_that_reads_and_its_consumer_are_predicted() {
    if can_compare() {
        let bench = Bench::in_memory();
        agrees(&bench, &["base", "mthp-64k", "thp"], &[compiled(&bench, "producer")], 0.0);
    }
}

/// Which pages are copied depends on which process stores while the other is alive. Under `thp` the kernel copies more 2M pages
/// that belong to one process alone than the model does.
#[test]
fn a_parent_that_stores_before_its_child_is_predicted() {
    if can_compare() {
        let bench = Bench::in_memory();
        agrees(&bench, &["base", "mthp-64k"], &[compiled(&bench, "parent_and_child")], 0.0);
    }
}

/// The number of pages of a zstd buffer: 128K and a header.
const BUFFER_PAGES: f64 = 33.0;

/// Regression test: when a thread waited while other threads continued, its last runs came after theirs in the file, too late
/// for the replay. Under other policies than `base`, the kernel's own number of faults varies by a quarter between runs.
#[test]
fn zstd_with_its_threads_is_predicted() {
    if can_compare() && needs(&[program("zstd")]) {
        let bench = Bench::in_memory();
        let lines: String = (0..200_000u32).map(|line| format!("{}\n", line.wrapping_mul(2_654_435_761))).collect();
        std::fs::write(bench.path("lines"), lines).unwrap();
        let command = words_of(&["zstd", "-3", "-q", "-c", "-T2", &bench.word("lines")]);
        // The relative speed of the threads decides how many buffers are in use at the same time. Natively that number varies by
        // one between runs.
        agrees(&bench, &["base"], &command, BUFFER_PAGES);
    }
}
