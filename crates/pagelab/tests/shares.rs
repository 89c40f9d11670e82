//! Tests of `compare --shares`: which windows of a program's memory are large, and how much of the gain comes with how
//! much of the memory.

mod common;

use common::*;
use serde_json::Value;

/// A fake platform with a gain that can be apportioned (fixtures/platform).
const SHARES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/platform/shares.toml");
/// Enough blocks for a confidence interval.
const EIGHT: [&str; 4] = ["--blocks", "8", "--min-blocks", "8"];

/// Whether this program has a fake platform, which release builds do not have.
fn has_fake_platform() -> bool {
    needs(&[("a build with debug assertions", cfg!(debug_assertions))])
}

/// Runs a comparison on a fake platform defined by this file.
fn faked(bench: &Bench, file: &str, options: &[&str]) -> Ran {
    let options = [&["--fake-platform", file, "--trial-time", "none"], options, &EIGHT].concat();
    bench.compare(&options, &words_of(&["true"])).ran()
}

/// The fixture in which one text is replaced by another.
fn changed(bench: &Bench, from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(SHARES).unwrap();
    assert!(text.contains(from), "{from}");
    let host = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/host/x86_64-6.18");
    let file = bench.word("shares.toml");
    std::fs::write(&file, text.replace(from, to).replace("../host/x86_64-6.18", host)).unwrap();
    file
}

#[test]
fn the_answer_has_the_share_that_is_enough_and_each_that_was_measured() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let html = bench.word("report.html");
    let ran = faked(&bench, SHARES, &["--shares", "--html", &html]);
    ran.assert_exit(0, &[]).assert_stdout(&[
        "Nine tenths of thp's gain come with 85 % of its large memory (",
        "in the order in which the program asks for it.",
        "1/2 of thp: wall time -10.0 % (-10.1 to -10.0), 68 % (63 to 71) of the gain, with 50 % of the large memory, peak memory 65M.",
    ]);
    let document = bench.stored(1);
    let shares = &document["arms"][1]["shares"];
    assert_eq!(shares["nine_tenths"]["enough"], "share", "{shares:#}");
    assert!((shares["nine_tenths"]["ratio"].as_f64().unwrap() - 0.85).abs() < 0.005, "{shares:#}");
    assert_eq!((shares["points"].as_array().unwrap().len(), shares["line"].as_array().unwrap().len()), (3, 33));
    let is_half = |control: &&Value| control["label"] == "1/2 of thp";
    let control = document["controls"].as_array().unwrap().iter().find(is_half).unwrap();
    assert_eq!(
        control["share_of"],
        serde_json::json!({ "arm": 1, "share": "1/2", "order": "growing", "hotter_half_ratio": null })
    );
    assert_eq!(control["policy"], "thp+windows-2048k-2m-0000ffff");
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("How much of the memory is enough") && page.contains("share of the large memory"));
    let shown = bench.pagelab(&["show", "1", "--store", &bench.store()]).ran();
    assert_eq!(shown.stdout, ran.stdout, "the stored comparison reads as the fresh one");
}

#[test]
fn a_gain_that_cannot_be_apportioned_is_reported_as_such() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let noisy = changed(&bench, "wall_s = [0.85, 0.86, 0.84, 0.85]", "wall_s = [0.99, 0.90, 1.05, 0.97, 1.02]");
    faked(&bench, &noisy, &["--shares"]).assert_exit(0, &[]).assert_stdout(&["thp's gain is too small to apportion"]);
    let slower = changed(&bench, "wall_s = [0.85, 0.86, 0.84, 0.85]", "wall_s = [1.10, 1.11, 1.09, 1.10]");
    faked(&bench, &slower, &["--shares"])
        .assert_exit(0, &[])
        .assert_stdout(&["too small to apportion: none (-10.2 %)"]);
    let unheld = changed(&bench, "\"2M\" = \"32M\", \"4K\" = \"32M\"", "\"2M\" = \"44M\", \"4K\" = \"20M\"");
    let unheld = faked(&bench, &unheld, &["--shares"]);
    unheld.assert_exit(0, &[]).assert_stdout(&[
        "1/2 of thp does not count: 69 % of the large memory was large, and 50 % was asked for",
        "no share between 0 and 1 was as asked",
    ]);
    let nothing =
        changed(&bench, ", advised_bytes = [67108864.0] }\nholding = \"held\"\nmapped = { \"2M\" = \"64M\" }", " }");
    faked(&bench, &nothing, &["--shares"])
        .assert_exit(2, &["the program asked for no memory that large pages could map"]);
}

#[test]
fn what_cannot_be_divided_is_refused() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    for (options, why) in [
        (&["--shares", "-p", "default,thp"][..], "make base the baseline"),
        (&["--shares", "-p", "base,mthp-64k"], "add thp"),
        (&["--shares=0,1"], "add one between them"),
        (&["--shares=3/2"], "expected a share of memory from 0 to 1"),
        (&["--shares=1/2,2/4"], "1/2 and 2/4 are the same share"),
        (&["--shares", "--variant", "a"], "cannot be used with"),
        (&["-p", "base+windows-2048k-2m-0000ffff,thp"], "only thp, without modifiers, has windows"),
    ] {
        faked(&bench, SHARES, options).assert_exit(2, &[why]);
    }
}

/// The requirement that the kernel gives PMD leaves to programs that ask for them, and that programs can be compiled.
fn has_large_pages() -> bool {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    needs(&[root(), program("gcc"), ("2M folios for programs that ask for them", !enabled.contains("[never]"))])
}

/// Compiles the program that prints how each 2M of its memory is mapped, and frees large blocks for it.
fn compiled(bench: &Bench) -> String {
    validation::free_large_blocks();
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/windows.c");
    let compiled = bench.word("windows");
    let gcc = std::process::Command::new("gcc").arg("-O1").arg(source).arg("-o").arg(&compiled).status();
    assert!(gcc.unwrap().success());
    compiled
}

#[test]
fn exactly_the_large_windows_have_large_pages() {
    if !has_large_pages() {
        return;
    }
    let bench = Bench::new();
    let program = compiled(&bench);
    let mapped = |policy: &str, how: &[&str]| {
        let words = [&["exec", "-p", policy, "--", &program], how].concat();
        bench.pagelab(&words).ran().assert_exit(0, &[]).stdout.trim().to_owned()
    };
    for (policy, expected) in [
        ("thp+windows-2048k-2m-ffffffff", "L".repeat(32)),
        ("thp", "L".repeat(32)),
        ("thp+windows-2048k-2m-00000000", "s".repeat(32)),
        ("base", "s".repeat(32)),
        ("thp+windows-2048k-2m-0000ffff", "L".repeat(16) + &"s".repeat(16)),
        ("thp+windows-4096k-2m-00000f05", "LLssLLssssssssssLLLLLLLLssssssss".into()),
    ] {
        assert_eq!(mapped(policy, &[]), expected, "{policy}");
    }
    // The windows have 4M. 64M are 16 windows, and the mapping grows into 16 more.
    let grown = "LLss".repeat(16);
    assert_eq!(mapped("thp+windows-4096k-2m-55555555", &["moves"]), grown);
    // Here the first mapping has 128M, so the memory by which it grows belongs to the last window.
    assert_eq!(mapped("thp+windows-4096k-2m-55555555", &["grows"]), "LLss".repeat(8) + &"s".repeat(32));
    for how in ["moves", "grows"] {
        assert_eq!(mapped("thp+windows-4096k-2m-ffffffff", &[how]), mapped("thp", &[how]), "{how}");
    }
}

#[test]
fn a_run_that_is_too_short_ranks_nothing() {
    if !has_large_pages() {
        return;
    }
    let bench = Bench::new();
    let program = compiled(&bench);
    let why = "fewer than 50 rank windows wrongly";
    bench
        .compare(&["--shares", "--order", "hottest"], &words_of(&[&program]))
        .ran()
        .assert_exit(2, &[why, "--order growing"]);
}

#[test]
fn the_census_of_every_trial_has_the_share() {
    if !has_large_pages() {
        return;
    }
    let bench = Bench::new();
    let program = compiled(&bench);
    let options = ["--shares=1/4,1/2", "--order", "random", "--blocks", "1", "--min-blocks", "1", "--json"];
    bench.compare(&options, &words_of(&[&program])).ran().assert_exit(0, &[]);
    let document = bench.stored(1);
    assert_eq!(document["design"]["khugepaged"], "off");
    for (label, large) in [("1/4 of thp", 16 << 20), ("1/2 of thp", 32 << 20)] {
        let is_own = |trial: &&Value| trial["label"] == label;
        let trials: Vec<&Value> = document["control_trials"].as_array().unwrap().iter().filter(is_own).collect();
        assert_eq!(trials.len(), 2, "block 0 and block 1");
        for trial in trials {
            let is_large = |row: &&Value| row["leaf_bytes"] == 2 << 20 && row["backing"] == "anonymous";
            let rows = trial["census"].as_array().unwrap().iter().filter(is_large);
            let found: u64 = rows.map(|row| row["bytes"].as_u64().unwrap()).sum();
            assert!(found.abs_diff(large) <= 2 << 20, "{label}: {found} {:#}", trial["census"]);
            assert_eq!(trial["verdict"]["holding"], "held", "{:#}", trial["verdict"]);
        }
    }
}
