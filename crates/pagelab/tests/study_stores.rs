//! Stores of studies that cannot be merged: of a later version, half copied, on a full disk, or from a host whose clock was set
//! back. Each of these stores is named, the other stores are merged, and nothing is lost.

mod common;

use std::fs;
use std::process::Command;

use common::*;

/// A fake platform with figures of three policies (fixtures/platform).
const THREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/platform/three-policies.toml");

const TINY: &str = r#"
schema = "pagelab.study/1"
name = "tiny"
question = "Does it run?"
policies = ["default", "thp"]
[sizes.standard]
blocks = 6
min_blocks = 6
[[workload]]
name = "true"
command = ["true"]
"#;

/// Makes a store with the figures of a fake platform, and writes the study's file.
fn faked(bench: &Bench, store: &str, seed: u32) -> String {
    let file = bench.word("tiny.toml");
    fs::write(&file, TINY.replace("[sizes.standard]", &format!("seed = {seed}\n[sizes.standard]"))).unwrap();
    let words = ["study", "run", &file, "--fake-platform", THREE, "--store", store];
    bench.pagelab(&words).ran().assert_exit(0, &["NOTHING IS MEASURED"]);
    file
}

fn sqlite(store: &str, statement: &str) {
    assert!(Command::new("sqlite3").args([store, statement]).status().unwrap().success());
}

#[test]
fn a_store_that_cannot_be_merged_is_named_and_the_others_are_merged() {
    if !needs(&[("a build with debug assertions", cfg!(debug_assertions)), program("sqlite3")]) {
        return;
    }
    let bench = Bench::new();
    let [good, newer, half, into] =
        ["good.sqlite", "newer.sqlite", "half.sqlite", "into.sqlite"].map(|name| bench.word(name));
    let file = faked(&bench, &good, 1);
    fs::copy(&good, &newer).unwrap();
    sqlite(&newer, "PRAGMA user_version = 99");
    let bytes = fs::read(&good).unwrap();
    fs::write(&half, &bytes[..bytes.len() / 2 / 4096 * 4096]).unwrap();
    let ran = bench.pagelab(&["study", "merge", &newer, &half, &good, "--store", &into]).ran();
    ran.assert_exit(
        2,
        &[
            "newer.sqlite has version 99",
            "use the pagelab that wrote it",
            "half.sqlite is damaged",
            "2 stores could not be read completely",
        ],
    );
    ran.assert_stdout(&["1 comparisons added"]);
    assert_eq!(fs::read(&half).unwrap().len(), bytes.len() / 2 / 4096 * 4096, "it is left as it was");
    let report = bench.pagelab(&["study", "report", &file, "--store", &into]).ran();
    report.assert_exit(0, &[]).assert_stdout(&["thp has 2"]);
}

#[test]
fn a_merge_onto_a_full_disk_is_named_and_can_be_done_again() {
    let here = [("a build with debug assertions", cfg!(debug_assertions)), root(), program("unshare")];
    if !needs(&here) {
        return;
    }
    let bench = Bench::new();
    let (good, small) = (bench.word("good.sqlite"), bench.word("small"));
    faked(&bench, &good, 1);
    fs::create_dir(&small).unwrap();
    let mount = format!("mount -t tmpfs -o size=64k none {small} && exec \"$@\"");
    let merge = bench.pagelab(&["study", "merge", &good, "--store", &format!("{small}/into.sqlite")]);
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "sh", "-c", &mount, "sh"]);
    wrap(&mut inside, &merge);
    inside.ran().assert_exit(2, &["no space left for the store", "what was stored before is safe"]);
    let again = bench.pagelab(&["study", "merge", &good, "--store", &bench.word("into.sqlite")]).ran();
    again.assert_exit(0, &[]).assert_stdout(&["1 comparisons added"]);
}

#[test]
fn a_clock_that_was_set_back_loses_nothing() {
    if !needs(&[("a build with debug assertions", cfg!(debug_assertions)), program("sqlite3")]) {
        return;
    }
    let bench = Bench::new();
    let (store, into) = (bench.store(), bench.word("into.sqlite"));
    let file = faked(&bench, &store, 1);
    // The store is left as if its first comparison had started in a future year, and failed.
    sqlite(
        &store,
        "UPDATE comparisons SET started_unix_s = started_unix_s + 40000000, ended = 'failed', ended_message = 'x'",
    );
    let words = ["study", "run", &file, "--again", "--fake-platform", THREE, "--store", &store];
    bench.pagelab(&words).ran().assert_exit(0, &["workload 1 of 1"]);
    let status = bench.pagelab(&["study", "status", &file, "--store", &store, "--json"]).ran().json();
    let row = &status["rows"][0];
    assert_eq!(
        (row["state"].as_str(), row["comparison"].as_u64()),
        (Some("done"), Some(2)),
        "the later one by its number"
    );
    bench
        .pagelab(&["study", "merge", &store, "--store", &into])
        .ran()
        .assert_exit(0, &[])
        .assert_stdout(&["2 comparisons added"]);
    bench
        .pagelab(&["study", "merge", &store, "--store", &into])
        .ran()
        .assert_exit(0, &[])
        .assert_stdout(&["2 there already"]);
}
