//! The output, the files and the exit codes of a comparison, with the figures of a fake platform: without a lease, root or time.

mod common;

use common::*;
use serde_json::Value;

/// Figures of three policies (fixtures/platform).
const THREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/platform/three-policies.toml");
/// Enough blocks for a confidence interval.
const EIGHT: [&str; 4] = ["--blocks", "8", "--min-blocks", "8"];

/// Whether this program has a fake platform, which release builds do not have.
fn has_fake_platform() -> bool {
    needs(&[("a build with debug assertions", cfg!(debug_assertions))])
}

/// Runs a comparison on a fake platform defined by this file.
fn faked(bench: &Bench, file: &str, options: &[&str]) -> Ran {
    let options = [&["--fake-platform", file, "--trial-time", "none"], options].concat();
    bench.compare(&options, &words_of(&["true"])).ran()
}

/// Writes a fake platform with these lines, on the captured host of the fixture.
fn written(bench: &Bench, lines: &str) -> String {
    let file = bench.word("platform.toml");
    let host = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/host/x86_64-6.18");
    std::fs::write(&file, format!("host = {host:?}\n{lines}\n")).unwrap();
    file
}

/// A document without the start time and the command line.
fn timeless(mut document: Value) -> Value {
    (document["started_unix_s"], document["invocation"]) = (Value::Null, Value::Null);
    document
}

#[test]
fn nobody_can_take_its_figures_for_measured_ones() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let (html, csv) = (bench.word("report.html"), bench.word("samples.csv"));
    let ran = faked(&bench, THREE, &[&["-p", "default,thp", "--html", &html, "--csv", &csv][..], &EIGHT].concat());
    ran.says(0, &["FAKE PLATFORM: NOTHING IS MEASURED", "three-policies.toml"]);
    let shown = bench.pagelab(&["show", "1", "--store", &bench.store()]).ran();
    for table in [&ran, &shown] {
        assert!(table.stdout.starts_with("NO FIGURE BELOW WAS MEASURED"), "{table}");
    }
    let document = bench.stored(1);
    assert_eq!(document["machine"]["name"], "FAKE PLATFORM: NOTHING WAS MEASURED");
    for trial in document["trials"].as_array().unwrap() {
        let observations = trial["observations"].as_array().unwrap();
        assert!(observations.iter().all(|one| one["provenance"] == "modelled"), "{trial:#}");
    }
    assert!(std::fs::read_to_string(html).unwrap().contains("FAKE PLATFORM: NOTHING WAS MEASURED"));
    let csv = std::fs::read_to_string(csv).unwrap();
    assert!(csv.lines().skip(1).all(|line| line.contains("modelled")), "{csv}");
    let help = bench.pagelab(&["compare", "--help"]).ran();
    assert!(!help.stdout.contains("fake"), "{help}");
}

#[test]
fn the_table_has_the_figures_and_says_what_follows() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let ran = faked(&bench, THREE, &[&["-p", "default,base,thp,mthp-64k"][..], &EIGHT].concat());
    ran.says(0, &[]).prints(&[
        "thp wall 800.0 ms -20.0 -20.1..-19.3 held 12 best",
        "mthp-64k wall 900.0 ms -10.00 -10.05..-9.90 partly 3,264 held partly",
        "no aligned slot of that size inside the mapping (12M a run)",
        "thp is the best of 3 policies: wall time 20.0 % less than default (95 % interval 19.3 to 20.1 %, 8 blocks)",
    ]);
    let all = bench.pagelab(&["show", "1", "--adopt-all", "--store", &bench.store()]).ran();
    all.says(0, &[]);
    assert_eq!(all.stdout.matches("To adopt ").count(), 7, "{all}");
    let again = bench.pagelab(&["show", "1", "--store", &bench.store()]).ran();
    assert_eq!(again.stdout, ran.stdout, "the stored comparison reads as the fresh one");
}

#[test]
fn a_seed_decides_the_order_and_with_it_every_figure() {
    if !has_fake_platform() {
        return;
    }
    let document = |seed: &str| {
        let bench = Bench::new();
        let options = [&["-p", "default,base,thp", "--seed", seed, "--json"][..], &EIGHT].concat();
        faked(&bench, THREE, &options).says(0, &[]);
        timeless(bench.stored(1))
    };
    let first = document("7");
    assert_eq!(first, document("7"));
    let order = |document: &Value| {
        let trials = document["trials"].as_array().unwrap().iter();
        trials.map(|trial| trial["label"].to_string()).collect::<Vec<_>>()
    };
    assert_ne!(order(&first), order(&document("8")), "one chance in six to the eighth");
    assert!(order(&first).chunks(3).all(|block| (0..3).all(|at| !block[at + 1..].contains(&block[at]))));
}

#[test]
fn a_run_stops_when_it_is_precise_when_its_time_is_up_and_at_its_last_block() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let ended = |options: &[&str]| {
        let ran = faked(&bench, THREE, &[&["-p", "default,base", "--json"], options].concat());
        let document = ran.says(0, &[]).json();
        (document["ended"]["reason"].clone(), document["result"]["blocks"].as_u64().unwrap())
    };
    let (reason, blocks) = ended(&["--precision", "50%", "--band", "50%"]);
    assert!(reason == "precise" && blocks < 60, "{reason} after {blocks}");
    // Each trial takes a second of the fake platform's clock, or a little more.
    assert_eq!(ended(&["--precision", "0.0001%", "--max-time", "20s"]).0, "time");
    assert_eq!(ended(&["--precision", "0.0001%", "--blocks", "9"]), ("blocks".into(), 9));
}

#[test]
fn what_the_noise_hides_is_undecided_and_takes_more_blocks() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let noisy = "[arm.base]\nwall_s = [0.40, 0.08, 0.25, 0.12, 0.05, 0.30, 0.18, 0.06, 0.35, 0.10]\nholding = \"held\"\n\
                 [arm.\"base (again)\"]\nwall_s = [0.22, 0.14, 0.07, 0.28, 0.09, 0.20, 0.30, 0.05]\nholding = \"held\"\n\
                 [arm.default]";
    let options = [&["-p", "base", "--aa", "--precision", "5%", "--band", "5%"][..], &EIGHT].concat();
    faked(&bench, &written(&bench, noisy), &options)
        .says(0, &[])
        .prints(&["undecided", "blocks would settle it: --blocks "]);
    let document = bench.stored(1);
    let outcome = &arm(&document, "base (again)")["outcome"];
    assert_eq!(outcome["outcome"], "undecided");
    assert!(outcome.as_object().unwrap().values().any(|value| value.as_u64().is_some_and(|n| n > 8)), "{outcome}");
}

#[test]
fn every_end_has_its_exit_code_and_its_reason() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let two = ["-p", "default,thp", "--blocks", "2", "--min-blocks", "1"];
    for (lines, more, code, parts) in [
        ("[arm.default]\n[arm.thp]", &[][..], 0, &[][..]),
        ("[arm.default]\n[arm.thp]\nexit = [1]", &[], 1, &["no arm besides the baseline gave the baseline's answer"]),
        ("[arm.default]\nexit = [1]\n[arm.thp]\nexit = [1]", &[], 1, &["the command fails under every policy"]),
        ("[arm.default]\n[arm.thp]\nfails = \"the disk is full\"", &[], 1, &["the trial of thp", "the disk is full"]),
        ("[arm.default]\ntoo_slow = true\n[arm.thp]", &[], 4, &["the trial of default"]),
        (
            "[arm.default]\n[arm.thp]\nunsupported = { reason = \"no THP\", remedy = \"boot another kernel\" }",
            &[],
            3,
            &["there is nothing to compare: thp: no THP; boot another kernel"],
        ),
        ("[arm.default]", &[], 3, &["the file has no arm \"thp\""]),
        ("[arm.default]\n[arm.thp]", &["--max-time", "1s"], 4, &["the time was up before the first block"]),
        ("[arm.default]\n[arm.thp]", &["--primary", "apples"], 2, &["there is no metric \"apples\""]),
        (
            "[arm.default]\nwall_s = []\n[arm.thp]",
            &[],
            2,
            &["platform.toml: the arm \"default\" has no figure of wall_s"],
        ),
        ("[arm.default]\nspeed = 3", &[], 2, &["platform.toml", "unknown field `speed`"]),
    ] {
        let ran = faked(&bench, &written(&bench, lines), &[&two[..], more].concat());
        ran.says(code, parts);
    }
}

// ---- terminals ----

/// Whether a line is too long only because of a single word that is longer than the terminal is wide.
fn is_long_word(line: &str) -> bool {
    !line.trim().contains(' ')
}

#[test]
fn narrow_terminals_have_whole_lines() {
    if !has_fake_platform() || !needs(&[program("script")]) {
        return;
    }
    let bench = Bench::new();
    faked(&bench, THREE, &[&["-p", "default,base", "--aa"][..], &EIGHT].concat()).says(0, &[]);
    let stored = format!("show 1 --store {}", bench.store());
    let listed = format!("list comparisons --store {}", bench.store());
    for columns in [40, 60, 80] {
        for verb in [stored.as_str(), &listed, "list policies", "list workloads", "list formats", "doctor"] {
            let shown = on_terminal(&bench, columns, "A=1", verb);
            let long = |line: &&str| line.chars().count() > columns && !is_long_word(line);
            assert_eq!(shown.lines().find(long), None, "{columns}: {verb}: {shown}");
            assert!(shown.lines().count() > 3 && !shown.contains('\u{1b}'), "no colours, nothing moves: {shown}");
        }
        let table = on_terminal(&bench, columns, "A=1", &stored);
        for part in ["default (again)", "baseline", "wall", "cpu", "held", "100 %", "undecided"] {
            let parted = part.split(' ').all(|word| table.contains(word));
            assert!(parted, "{columns}: no {part} in {table}");
        }
    }
}

#[test]
fn a_terminal_without_utf_8_gets_ascii() {
    if !has_fake_platform() || !needs(&[program("script")]) {
        return;
    }
    let bench = Bench::new();
    faked(&bench, THREE, &[&["-p", "default,base"][..], &EIGHT].concat()).says(0, &[]);
    let stored = format!("show 1 --store {}", bench.store());
    let tree = "table build -f x86-64 --map 0x400000:0x400000:8K:rw --tree";
    for (environment, is_ascii) in [("LC_ALL=C", true), ("LANG=POSIX", true), ("LC_ALL=C.UTF-8", false), ("A=1", false)]
    {
        for verb in [stored.as_str(), "doctor", tree] {
            let shown = on_terminal(&bench, 100, environment, verb);
            assert_eq!(shown.is_ascii(), is_ascii, "{environment} {verb}: {shown}");
        }
    }
    let json = on_terminal(&bench, 100, "LC_ALL=C", &format!("{stored} --json"));
    assert!(json.contains("\"schema\": \"pagelab.compare/1\""), "{json}");
}
