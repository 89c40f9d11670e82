//! Tests of the output, the files and the exit codes of a comparison with the figures of a fake platform, which needs no lease,
//! root or time.

#[path = "../common/mod.rs"]
mod common;

mod first_minute;

use common::*;
use serde_json::Value;

/// A fake platform with figures of three policies (fixtures/platform).
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
fn marks_its_figures_as_not_measured() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let (html, csv) = (bench.word("report.html"), bench.word("samples.csv"));
    let ran = faked(&bench, THREE, &[&["-p", "default,thp", "--html", &html, "--csv", &csv][..], &EIGHT].concat());
    ran.assert_exit(0, &["FAKE PLATFORM: NOTHING IS MEASURED", "three-policies.toml"]);
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
    ran.assert_exit(0, &[]).assert_stdout(&[
        "thp 800.0 ms -20.0 % -20.1 to -19.3 held 100 % best",
        "mthp-64k 900.0 ms -10.00 % -10.05 to -9.90 partly 50 % better",
        "mthp-64k was in force on 50 % of the memory: no aligned slot of that size inside the mapping (12M a run)",
        "thp is the best of 4 policies: 1.25 times as fast as default (wall time 20.0 % less, 19.3 to 20.1 % in 8 blocks)",
        &format!("): pagelab show 1 --full --store {}", bench.store()),
    ]);
    let show = |options: &[&str]| bench.pagelab(&[&["show", "1", "--store", &bench.store()], options].concat()).ran();
    assert_eq!(show(&[]).stdout, ran.stdout, "the stored comparison reads as the fresh one");
    show(&["--full"]).assert_stdout(&[
        "thp wall 800.0 ms -20.0 -20.1..-19.3 held 12 best",
        "cpu 795.0 ms",
        "tracing: the change of ",
        "of that gain, asking for mthp-64k brings 50 %",
    ]);
}

#[test]
fn a_seed_decides_the_order_and_with_it_every_figure() {
    if !has_fake_platform() {
        return;
    }
    let document = |seed: &str| {
        let bench = Bench::new();
        let options = [&["-p", "default,base,thp", "--seed", seed, "--json"][..], &EIGHT].concat();
        faked(&bench, THREE, &options).assert_exit(0, &[]);
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
        let document = ran.assert_exit(0, &[]).json();
        (document["ended"]["reason"].clone(), document["result"]["blocks"].as_u64().unwrap())
    };
    let (reason, blocks) = ended(&["--precision", "50%", "--band", "50%"]);
    assert!(reason == "precise" && blocks < 60, "{reason} after {blocks}");
    // Each trial takes a second of the fake platform's clock, or a little more.
    assert_eq!(ended(&["--precision", "0.0001%", "--max-time", "20s"]).0, "time");
    assert_eq!(ended(&["--precision", "0.0001%", "--blocks", "9"]), ("blocks".into(), 9));
}

#[test]
fn differences_hidden_by_noise_are_undecided_and_take_more_blocks() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let noisy = "[arm.base]\nwall_s = [0.40, 0.08, 0.25, 0.12, 0.05, 0.30, 0.18, 0.06, 0.35, 0.10]\nholding = \"held\"\n\
                 [arm.\"base (again)\"]\nwall_s = [0.22, 0.14, 0.07, 0.28, 0.09, 0.20, 0.30, 0.05]\nholding = \"held\"\n\
                 [arm.default]";
    let options = [&["-p", "base", "--aa", "--precision", "5%", "--band", "5%"][..], &EIGHT].concat();
    faked(&bench, &written(&bench, noisy), &options)
        .assert_exit(0, &[])
        .assert_stdout(&["undecided", "blocks would settle it: --blocks "]);
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
        ("[arm.default]\n[arm.thp]\nexit = [1]", &[], 1, &["no other arm gave the baseline's answer"]),
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
        ran.assert_exit(code, parts);
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
    faked(&bench, THREE, &[&["-p", "default,base", "--aa"][..], &EIGHT].concat()).assert_exit(0, &[]);
    let stored = format!("show 1 --store {}", bench.store());
    let listed = format!("list comparisons --store {}", bench.store());
    for columns in [40, 60, 80] {
        for verb in [stored.as_str(), &listed, "list policies", "list workloads", "list formats", "doctor"] {
            let shown = on_terminal(&bench, columns, "NO_COLOR=1", verb);
            let long = |line: &&str| line.chars().count() > columns && !is_long_word(line);
            assert_eq!(shown.lines().find(long), None, "{columns}: {verb}: {shown}");
            assert!(shown.lines().count() > 3 && !shown.contains('\u{1b}'), "no colours, nothing moves: {shown}");
        }
        for (options, parts) in [
            ("", &["default (again)", "baseline", "change", "undecided"][..]),
            (" --full", &["default (again)", "baseline", "wall", "cpu", "held", "100 %", "undecided"]),
        ] {
            let table = on_terminal(&bench, columns, "NO_COLOR=1", &format!("{stored}{options}"));
            for part in parts {
                let parted = part.split(' ').all(|word| table.contains(word));
                assert!(parted, "{columns}: no {part} in {table}");
            }
        }
    }
}

#[test]
fn colours_a_terminal_unless_no_color_is_set() {
    if !has_fake_platform() || !needs(&[program("script")]) {
        return;
    }
    let bench = Bench::new();
    let piped = faked(&bench, THREE, &[&["-p", "default,thp"][..], &EIGHT].concat());
    assert!(!piped.stdout.contains('\u{1b}'), "{piped}");
    let stored = format!("show 1 --store {}", bench.store());
    let coloured = on_terminal(&bench, 80, "A=1", &stored);
    for part in ["\u{1b}[32mbest\u{1b}[0m", "\u{1b}[1mpolicy\u{1b}[0m", "\u{1b}[1mthp is the best of 2 policies: "] {
        assert!(coloured.contains(part), "no {part:?} in {coloured:?}");
    }
    for without in ["NO_COLOR=1", "TERM=dumb"] {
        let plain = on_terminal(&bench, 80, without, &stored);
        assert!(plain.contains("thp is the best") && !plain.contains('\u{1b}'), "{without}: {plain:?}");
    }
}

#[test]
fn a_terminal_without_utf_8_gets_ascii() {
    if !has_fake_platform() || !needs(&[program("script")]) {
        return;
    }
    let bench = Bench::new();
    faked(&bench, THREE, &[&["-p", "default,base"][..], &EIGHT].concat()).assert_exit(0, &[]);
    let stored = format!("show 1 --store {}", bench.store());
    let tree = "table build -f x86-64 --map 0x400000:0x400000:8K:rw --tree";
    for (environment, is_ascii) in [("LC_ALL=C", true), ("LANG=POSIX", true), ("LC_ALL=C.UTF-8", false), ("A=1", false)]
    {
        for verb in [format!("{stored} --full").as_str(), "doctor", tree] {
            let shown = on_terminal(&bench, 100, environment, verb);
            assert_eq!(shown.is_ascii(), is_ascii, "{environment} {verb}: {shown}");
        }
    }
    let json = on_terminal(&bench, 100, "LC_ALL=C", &format!("{stored} --json"));
    assert!(json.contains("\"schema\": \"pagelab.compare/1\""), "{json}");
}

/// A fake platform whose processors are busy with other work, or not.
fn loaded(bench: &Bench, share_ratio: f64) -> String {
    let busy_cpus = 2.0 * (1.0 - share_ratio);
    let arms = "[arm.default]\nfigures = { cpu_s = [0.5, 0.51] }\n[arm.thp]\nfigures = { cpu_s = [0.4, 0.41] }";
    let seen =
        format!("share_ratio = {share_ratio}\nbusy_cpus = {busy_cpus}\nrunnable_tasks = 4.0\nsteal_ratio = 0.01");
    written(bench, &format!("{arms}\n[contention]\ncpus = 2\nwindow_s = 0.2\n{seen}\ndecides = false"))
}

#[test]
fn cpu_time_is_suggested_and_auto_takes_it_where_processors_are_busy() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let busy = loaded(&bench, 0.25);
    let seen = "kept 1.5 of 2 processors busy before the first block (4.0 runnable tasks, steal 1 %; a busy loop got 25 % of a processor)";
    let document = |options: &[&str], file: &str, parts: &[&str]| {
        let ran = faked(&bench, file, &[&["-p", "default,thp", "--json"], &EIGHT[..], options].concat());
        ran.assert_exit(0, parts);
        (ran.json(), ran)
    };
    let (suggested, _) = document(&[], &busy, &[seen, "so wall time varies", "--primary cpu", "--own-session"]);
    assert_eq!(suggested["design"]["primary"], "wall_s");
    assert_eq!(suggested["design"]["contention"]["is_high"], true);
    let (taken, _) = document(&["--primary", "auto"], &busy, &[seen, "CPU time decides (--primary auto)"]);
    assert_eq!((&taken["design"]["primary"], &taken["result"]["primary"]), (&"cpu_s".into(), &"cpu_s".into()));
    let shown = bench.pagelab(&["show", "2", "--full", "--store", &bench.store()]).ran();
    shown.assert_exit(0, &[]).assert_stdout(&[seen, "CPU time decides (--primary auto)"]);
    let (named, ran) = document(&["--primary", "wall"], &busy, &[]);
    assert!(!ran.stderr.contains("CPU time"), "{ran}");
    assert_eq!(named["design"]["contention"], Value::Null, "a named metric is not questioned");
    let quiet = loaded(&bench, 0.99);
    let (kept, _) = document(&["--primary", "auto"], &quiet, &["wall time decides (--primary auto)"]);
    assert_eq!(kept["design"]["primary"], "wall_s");
    let (unreported, ran) = document(&[], &quiet, &[]);
    assert!(!ran.stderr.contains("wall time"), "{ran}");
    assert_eq!(unreported["design"]["contention"]["share_ratio"], 0.99);
}

#[test]
fn a_metric_is_not_chosen_where_cpu_time_cannot_replace_wall_time() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let busy = loaded(&bench, 0.25);
    for (options, part) in [
        (&["--server", "true", "--ready", "true"][..], "with --server the wall time is the client's"),
        (&["--arm-of-boot"], "--primary auto with --arm-of-boot"),
        (&["--kernel", "vmlinuz"], "--primary auto with --kernel"),
    ] {
        let options = [&["-p", "default,thp", "--primary", "auto"], options].concat();
        faked(&bench, &busy, &options).assert_exit(2, &["--primary auto", part, "name"]);
    }
}

#[test]
fn user_time_and_system_time_are_metrics_with_intervals() {
    if !has_fake_platform() {
        return;
    }
    let bench = Bench::new();
    let arm = |user: f64| {
        format!("figures = {{ cpu_s = [{}], user_s = [{user}, {}], system_s = [0.2, 0.21] }}", user + 0.2, user + 0.01)
    };
    let file = written(&bench, &format!("[arm.default]\n{}\n[arm.thp]\n{}", arm(0.6), arm(0.3)));
    let options = [&["-p", "default,thp", "--primary", "user"][..], &EIGHT].concat();
    faked(&bench, &file, &options).assert_exit(0, &[]).assert_stdout(&["user", "-49", "best"]);
    let document = bench.stored(1);
    assert_eq!(document["result"]["primary"], "user_s");
    let effects = &common::arm(&document, "thp")["effects"];
    assert!(["user_s", "system_s"].iter().all(|name| effects[name]["low_ratio"].is_f64()), "{effects:#}");
    faked(&bench, &file, &[&["-p", "default,thp", "--primary", "system"][..], &EIGHT].concat()).assert_exit(0, &[]);
    assert_eq!(bench.stored(2)["result"]["primary"], "system_s");
    let shown = |options: &[&str]| {
        let ran = bench.pagelab(&[&["show", "2", "--store", &bench.store()], options].concat()).ran();
        ran.assert_exit(0, &[]);
        ran.stdout
    };
    assert!(shown(&["--full"]).contains("user  ") && !shown(&[]).contains("user  "));
}
