//! Tests of studies from end to end: run, killed, run again, reported, exported, merged; on the host and on model machines. Above
//! 400 lines because all of it is the life of one study.

#[path = "../benches/study.rs"]
mod bench;
mod common;
#[path = "common/parquet.rs"]
mod parquet;
#[path = "common/traced.rs"]
mod traced;

use std::fs;
use std::process::Command;

use common::*;
use serde_json::Value;
use traced::Traced;

/// A study of two commands under two policies, which need no privilege.
const TINY: &str = r#"
schema = "pagelab.study/1"
name = "tiny"
question = "Does it run?"
policies = ["default", "base"]

[sizes.standard]
parameters = { s = "0.05" }
blocks = 6
min_blocks = 6

[[workload]]
name = "sleep"
command = ["sleep", "{s}"]

[[workload]]
name = "true"
command = ["true"]

[[workload]]
name = "nowhere"
package = "acme"
command = ["acme-bench"]

[[workload]]
name = "omnet"
stands_for = "471.omnetpp"
missing = "it has no free counterpart"
"#;

/// A fake platform with figures of three policies (fixtures/platform).
const THREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/platform/three-policies.toml");

fn written(bench: &Bench, name: &str, text: &str) -> String {
    fs::write(bench.path(name), text).unwrap();
    bench.word(name)
}

fn study(bench: &Bench, verb: &str, file: &str, options: &[&str]) -> Command {
    let store = bench.store();
    bench.pagelab(&[&["study", verb, file, "--store", &store], options].concat())
}

/// The rows of `study status`: workload and machine, and the state of the row.
fn states(bench: &Bench, file: &str) -> Vec<(String, String)> {
    let document = study(bench, "status", file, &["--json"]).ran().json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    document["rows"].as_array().unwrap().iter().map(|row| (text(&row["workload"]), text(&row["state"]))).collect()
}

/// The trials of a stored comparison: arm, block, attempt and start time.
fn trials(bench: &Bench, number: u64) -> Vec<(u64, u64, u64, f64)> {
    let document = bench.stored(number);
    let of = |trial: &Value| {
        let number = |key: &str| trial[key].as_u64().unwrap();
        (number("arm"), number("block"), number("attempt"), trial["started_s"].as_f64().unwrap())
    };
    document["trials"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn a_killed_study_resumes_without_repeating_trials() {
    // Without root a comparison takes no lease, so another test could change settings meanwhile.
    let _alone = is_root().then(Alone::wait);
    let bench = Bench::new();
    let file = written(&bench, "tiny.toml", TINY);
    let run = || {
        if is_root() && has("setpriv") {
            study(&bench, "run", &file, &[]).as_nobody()
        } else {
            study(&bench, "run", &file, &[])
        }
    };
    let mut running = run();
    let running = running.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).begin();
    let begun = || {
        bench.path("results.sqlite").exists()
            && bench.listed().first().is_some_and(|one| one["trials"].as_u64() > Some(3))
    };
    assert!(within(LIMIT, begun), "it does not begin");
    running.kill();
    let before = trials(&bench, 1);
    assert_eq!(states(&bench, &file)[0], ("sleep".to_owned(), "interrupted".to_owned()));
    let ran = run().ran();
    ran.assert_exit(0, &["study tiny: workload 1 of 2: sleep"]).assert_stdout(&["2 of 4 rows are done"]);
    let after = trials(&bench, 1);
    assert_eq!(after[..before.len()], before, "what was finished is kept as it was");
    // If settings changed during a trial, it is repeated as another attempt.
    let places: std::collections::BTreeSet<(u64, u64, u64)> =
        after.iter().map(|(arm, block, attempt, _)| (*arm, *block, *attempt)).collect();
    assert_eq!(places.len(), after.len(), "no trial twice: {after:?}");
    assert!(after.windows(2).all(|pair| pair[0].3 < pair[1].3), "the clock goes on: {after:?}");
    let expected = ["done", "done", "cannot be run", "cannot be run"];
    assert_eq!(states(&bench, &file).into_iter().map(|(_, state)| state).collect::<Vec<_>>(), expected);
    let ran = run().ran();
    ran.assert_exit(0, &[]).assert_stdout(&["2 of 4 rows are done"]);
    assert_eq!(trials(&bench, 1), after, "nothing is left to run");
    assert_eq!(bench.listed().len(), 2);
    let store = bench.store();
    let show = |options: &[&str]| bench.pagelab(&[&["show", "1", "--store", &store], options].concat()).ran();
    show(&[]).assert_exit(0, &[]).assert_stdout(&["The comparison was interrupted after", "in the same boot."]);
    if has("sqlite3") {
        let moved = "UPDATE resumptions SET boot_id = 'another'";
        assert!(Command::new("sqlite3").args([store.as_str(), moved]).status().unwrap().success());
        show(&[]).assert_exit(0, &[]).assert_stdout(&["and resumed in another boot."]);
        assert_eq!(show(&["--json"]).json()["resumptions"][0]["boot_id"], "another");
    }
    let report = study(&bench, "report", &file, &[]).ran();
    report.assert_exit(0, &[]).assert_stdout(&[
        "Does it run?",
        "it is in the package acme",
        "it has no free counterpart",
    ]);
    let document = study(&bench, "report", &file, &["--json"]).ran().json();
    let rows = document["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["cells"].as_array().unwrap().len() == 2), "the matrix is rectangular");
    assert!(rows.iter().all(|row| row["provenance"] == "measured"));
}

#[test]
fn a_dry_run_runs_nothing_and_says_what_and_how_long() {
    let bench = Bench::new();
    let file = written(&bench, "tiny.toml", TINY);
    let ran = study(&bench, "run", &file, &["--dry-run"]).ran();
    ran.assert_exit(0, &[]).assert_stdout(&[
        "pagelab compare",
        "sleep 0.05",
        "at most 20 min",
        "acme",
        "0 of 4 rows are done",
    ]);
    assert!(!bench.path("results.sqlite").exists());
    // A line break in an argument is quoted so that a shell reads it as a line break.
    let broken = TINY.replace("command = [\"true\"]", "command = [\"sh\", \"-c\", \"true\\ntrue\"]");
    let ran = study(&bench, "run", &written(&bench, "tiny.toml", &broken), &["--dry-run"]).ran();
    ran.assert_exit(0, &[]).assert_stdout(&[r"$'true\ntrue'"]);
}

#[test]
fn nothing_of_a_file_moves_the_terminal() {
    let bench = Bench::new();
    let text = TINY.replace("Does it run?", "\\u001b[31mDoes it run?");
    let file = written(&bench, "tiny.toml", &text);
    for (verb, options) in [("run", &["--dry-run"][..]), ("status", &[]), ("report", &[])] {
        let shown = study(&bench, verb, &file, options).output().unwrap().stdout;
        assert!(!shown.contains(&0x1b), "{verb}: {}", String::from_utf8_lossy(&shown));
        assert!(String::from_utf8_lossy(&shown).contains("\\x1b[31mDoes it run?"), "{verb}");
    }
}

#[test]
fn refuses_invalid_studies_in_one_line() {
    let bench = Bench::new();
    for (text, parts) in [
        (TINY.replace("blocks = 6\nmin", "blcks = 6\nmin"), &["unknown field `blcks`", "the nearest is `blocks`"][..]),
        (TINY.replace("{s}", "{t}"), &["asks for {t}", "{s}"]),
        (TINY.replace("\"default\", \"base\"", "\"default\", \"bass\""), &["bass", "base"]),
        (TINY.replace("min_blocks = 6", "max_time = \"6\""), &["sleep", "--max-time", "expected a time"]),
        (TINY.replace("question", "quest ion"), &["line 4"]),
        (
            TINY.replace("[sizes.standard]", "machines = [\"cortex-a35\"]\n[sizes.standard]"),
            &["machines", "cortex-a35", "cortex-a53"],
        ),
        (
            TINY.replace("[sizes.standard]", "machines = [\"hst\"]\n[sizes.standard]"),
            &["machines", "the nearest is host"],
        ),
        (
            TINY.replace("[sizes.standard]", "model_primary = \"walkz\"\n[sizes.standard]"),
            &["model_primary", "walkz", "the nearest is walks"],
        ),
        (
            format!("{TINY}[[published]]\nwhat = \"x\"\nmetric = \"walll_s\"\nchange = \"-1%\"\nsource = \"a list\"\n"),
            &["published.metric", "walll_s", "the nearest is wall_s"],
        ),
        (
            TINY.replace("name = \"true\"", "name = \"true\"\naxes = { t = [\"a\", \"b\"] }"),
            &["workload \"true\"", "no text of the workload contains {t}"],
        ),
        (
            format!("{TINY}[boots.a]\nbaseline = true\n[boots.b]\nkernel = \"6\"\nbaseline = true\n"),
            &["boots: expected one boot with baseline = true, found a and b"],
        ),
    ] {
        let file = written(&bench, "bad.toml", &text);
        let ran = study(&bench, "run", &file, &["--dry-run"]).ran();
        ran.assert_exit(2, parts);
        assert_eq!(ran.stderr.trim().lines().count(), 1, "{ran}");
    }
    let ran = study(&bench, "run", "contig-hunt", &[]).ran();
    ran.assert_exit(2, &["there is no study \"contig-hunt\"", "the nearest is contig-hint"]);
    study(&bench, "status", &written(&bench, "t.toml", TINY), &["--size", "quick"])
        .ran()
        .assert_exit(2, &["[sizes.quick]", "[sizes.standard]"]);
    bench
        .pagelab(&["study", "merge", "--size", "quick", "other.sqlite"])
        .ran()
        .assert_exit(2, &["'--size <SIZE>' cannot be used"]);
}

#[test]
fn a_modelled_study_records_nothing_where_it_has_a_trace() {
    let traced = Traced::new();
    let bench = &traced.bench;
    let text = r#"
        schema = "pagelab.study/1"
        name = "modelled"
        question = "What do models say?"
        policies = ["base", "thp", "contig-64k"]
        machines = ["cortex-a53", "rva23"]
        [sizes.standard]
        [[workload]]
        name = "writes"
        trace = "a.trace"
        [[workload]]
        name = "omnet"
        missing = "it has no free counterpart"
        [[workload]]
        name = "piped"
        command = ["sh", "-c", "true | true"]
        [[published]]
        what = "64K"
        workload = "writes"
        policy = "contig-64k"
        metric = "walks"
        change = "-50%"
        source = "a list"
    "#;
    let file = written(bench, "modelled.toml", text);
    let ran = study(bench, "run", &file, &["--jobs", "1"]).ran();
    ran.assert_exit(0, &["simulating 1 of 1: writes on cortex-a53, rva23"]).assert_stdout(&["2 of 6 rows are done"]);
    let again = study(bench, "run", &file, &[]).ran();
    assert!(!again.assert_exit(0, &[]).stderr.contains("simulating"), "{again}");
    let document = study(bench, "report", &file, &["--json"]).ran().json();
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    assert!(rows.iter().all(|row| row["provenance"] == "modelled" && row["cells"].as_array().unwrap().len() == 3));
    let of = |machine: &str| rows.iter().find(|row| row["machine"] == machine && row["workload"] == "writes").unwrap();
    let ratio = |machine: &str, at: usize| of(machine)["cells"][at]["effects"]["walks"]["ratio"].as_f64();
    assert!(ratio("cortex-a53", 1) < Some(0.5), "2M leaves are walked to less often: {document:#}");
    let sim = traced.json(&["-p", "base,thp", "-m", "cortex-a53"]);
    let walks = |at: usize| sim["traces"][0]["simulations"][at]["walks"].as_f64().unwrap();
    assert_eq!(ratio("cortex-a53", 1), Some(walks(1) / walks(0)), "as `pagelab sim` says it");
    study(bench, "report", &file, &[]).ran().assert_exit(0, &[]).assert_stdout(&[
        "cortex-a53, modelled",
        "no free counterpart",
        "a list",
    ]);
    let figures = of("rva23")["cells"][0]["medians"].as_object().unwrap();
    let named =
        |name: &String| format!("[[published]]\nwhat = \"x\"\nmetric = \"{name}\"\nchange = \"-1%\"\nsource = \"x\"\n");
    let all = text.to_owned() + "\n" + &figures.keys().map(named).collect::<String>();
    assert!(figures.len() > 40);
    study(bench, "status", &written(bench, "all.toml", &all), &[]).ran().assert_exit(0, &[]);
    let html = bench.word("report.html");
    study(bench, "report", &file, &["--html", &html]).ran().assert_exit(0, &[]);
    let html = fs::read_to_string(html).unwrap();
    assert!(html.contains("What do models say?") && !html.contains("<script"));
}

#[test]
fn one_study_is_run_once_at_a_time() {
    let bench = Bench::new();
    let file = written(&bench, "tiny.toml", &TINY.replace("0.05", "30"));
    let mut first = study(&bench, "run", &file, &[]);
    let mut first = if is_root() && has("setpriv") {
        first.as_nobody()
    } else {
        std::mem::replace(&mut first, Command::new("true"))
    };
    let first = first.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).begin();
    let has_begun = || bench.path("results.tiny.lock").metadata().is_ok_and(|lock| lock.len() > 0);
    assert!(within(LIMIT, has_begun));
    let id = first.id();
    study(&bench, "run", &file, &[])
        .ran()
        .assert_exit(2, &["the study tiny is already running", &format!("process {id}")]);
    first.kill();
}

/// Makes a store with the figures of a fake platform.
fn faked(bench: &Bench, store: &str, seed: u32) -> String {
    let text = TINY
        .replace("\"default\", \"base\"", "\"default\", \"thp\"")
        .replace("[sizes.standard]", &format!("seed = {seed}\n[sizes.standard]"));
    let file = written(bench, "faked.toml", &text);
    bench
        .pagelab(&["study", "run", &file, "--fake-platform", THREE, "--store", store])
        .ran()
        .assert_exit(0, &["NOTHING IS MEASURED"]);
    file
}

#[test]
fn reports_and_exports_say_the_same_in_every_form() {
    if !needs(&[("a build with debug assertions", cfg!(debug_assertions))]) {
        return;
    }
    let bench = Bench::new();
    let file = faked(&bench, &bench.store(), 1);
    study(&bench, "report", &file, &[])
        .ran()
        .assert_exit(0, &[])
        .assert_stdout(&["FAKE PLATFORM", "-20", "held"].map(|part| if part == "held" { "better" } else { part }));
    let mail = study(&bench, "report", &file, &["--mail"]).ran();
    assert!(mail.stdout.is_ascii() && mail.stdout.lines().all(|line| line.len() <= 72), "{mail}");
    study(&bench, "report", &file, &["--markdown"]).ran().assert_exit(0, &[]).assert_stdout(&["# tiny", "| sleep |"]);
    study(&bench, "report", &file, &["--markdown", "--mail"]).ran().assert_exit(2, &["--markdown", "--mail"]);
    let csv = bench.word("samples.csv");
    study(&bench, "export", &file, &["-o", &csv]).ran().assert_exit(0, &[]);
    let rows = fs::read_to_string(&csv).unwrap().lines().count() - 1;
    let lines = bench.word("samples.jsonl");
    study(&bench, "export", &file, &["-o", &lines]).ran().assert_exit(0, &[]);
    assert_eq!(fs::read_to_string(&lines).unwrap().lines().count(), rows);
    let parquet = bench.word("samples.parquet");
    study(&bench, "export", &file, &["-o", &parquet]).ran().assert_exit(0, &[]);
    assert!(fs::read(&parquet).unwrap().starts_with(b"PAR1"));
    parquet::is_read_by_others(&parquet, &csv);
    study(&bench, "export", &file, &["-o", &bench.word("samples.xlsx")])
        .ran()
        .assert_exit(2, &[".csv, .jsonl or .parquet"]);
}

#[test]
fn a_program_that_was_built_anew_is_measured_anew() {
    if !needs(&[("a build with debug assertions", cfg!(debug_assertions))]) {
        return;
    }
    let bench = Bench::new();
    let program = bench.word("program");
    let build = |text: &str| {
        fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    let text = format!(
        "schema = \"pagelab.study/1\"\nname = \"built\"\nquestion = \"?\"\npolicies = [\"default\", \"thp\"]\n\
         [sizes.standard]\nblocks = 6\nmin_blocks = 6\n[[workload]]\nname = \"own\"\ncommand = [\"{program}\"]\n"
    );
    let file = written(&bench, "built.toml", &text);
    let run = || study(&bench, "run", &file, &["--fake-platform", THREE]).ran();
    let state = || study(&bench, "status", &file, &["--json"]).ran().json()["rows"][0].clone();
    build("exit 0");
    run().assert_exit(0, &["workload 1 of 1"]);
    assert!(!run().assert_exit(0, &[]).stderr.contains("workload 1"), "it is done");
    assert_eq!(state()["state"], "done");
    build("exit 0 # another build");
    let missing = state();
    assert_eq!((missing["state"].as_str(), missing["comparison"].as_u64()), (Some("missing"), Some(1)));
    assert_eq!(missing["why"], format!("comparison 1 measured another build of {program}"));
    study(&bench, "report", &file, &["--json"]).ran().assert_exit(0, &[]).assert_stdout(&["than the measured one"]);
    run().assert_exit(0, &["workload 1 of 1"]);
    assert_eq!((state()["state"].as_str(), state()["comparison"].as_u64()), (Some("done"), Some(2)));
    let report = study(&bench, "report", &file, &["--json"]).ran().json();
    let made = &report["rows"][0]["origins"][0];
    assert_eq!((made["comparison"].as_u64(), made["programs"][&program].as_str().map(str::len)), (Some(2), Some(64)));
    assert_eq!(made["commands"][0][1], "compare");
}

#[test]
fn boots_of_two_kernels_are_compared_and_another_boot_is_measured_when_asked() {
    if !needs(&[("a build with debug assertions", cfg!(debug_assertions)), program("sqlite3")]) {
        return;
    }
    let bench = Bench::new();
    let text = TINY.replace("\"default\", \"base\"", "\"default\", \"thp\"")
        + "[boots.new]\nkernel = \"6.18\"\n[boots.old]\nkernel = \"6.1\"\nbaseline = true\n";
    let file = written(&bench, "boots.toml", &text);
    let run = |options: &[&str]| study(&bench, "run", &file, &[options, &["--fake-platform", THREE]].concat()).ran();
    run(&[]).assert_exit(0, &["workload 1 of 2"]);
    study(&bench, "report", &file, &[])
        .ran()
        .assert_exit(0, &[])
        .assert_stdout(&["Missing: ", "the boot old (a kernel 6.1)"]);
    // A copy of the store, from the same host in a boot of another kernel.
    let other = bench.word("other.sqlite");
    fs::copy(bench.store(), &other).unwrap();
    let changed = "PRAGMA foreign_keys = OFF; \
                   UPDATE machines SET hash = 'other', machine = json_set(machine, '$.kernel', '6.1.90 #1', '$.boot_id', 'b'); \
                   UPDATE comparisons SET machine = 'other'; \
                   UPDATE observations SET value = value * 2 WHERE metric = 'wall_s';";
    assert!(Command::new("sqlite3").args([other.as_str(), changed]).status().unwrap().success());
    bench
        .pagelab(&["study", "merge", &other, "--store", &bench.store()])
        .ran()
        .assert_exit(0, &[])
        .assert_stdout(&["2 comparisons added"]);
    let document = study(&bench, "report", &file, &["--json"]).ran().json();
    let boots = &document["over_boots"];
    assert_eq!((boots["boots"].clone(), &boots["baseline"]), (serde_json::json!(["new", "old"]), &"old".into()));
    let rows = boots["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["workload"] == "sleep under thp").unwrap();
    let ratio = row["cells"][0]["effects"]["wall_s"]["ratio"].as_f64().unwrap();
    assert!((ratio - 0.5).abs() < 1e-6, "{ratio}");
    assert_eq!(row["cells"][0]["conclusion"]["conclusion"], "undecided", "one boot of each says nothing of boots");
    assert_eq!(row["origins"].as_array().unwrap().len(), 2);
    study(&bench, "report", &file, &[]).ran().assert_exit(0, &[]).assert_stdout(&["sleep under thp"]);
    assert!(!run(&[]).assert_exit(0, &[]).stderr.contains("workload 1"), "both boots are done");
}

#[test]
fn reports_a_missing_answer_once() {
    // Without root a comparison takes no lease, so another test could change settings meanwhile.
    let _alone = is_root().then(Alone::wait);
    let bench = Bench::new();
    let text = TINY.replace("command = [\"true\"]", "command = [\"echo\", \"a\"]\nanswer = \"x(y)\"");
    let file = written(&bench, "tiny.toml", &text);
    let mut run = study(&bench, "run", &file, &["--only", "true"]);
    let ran = if is_root() && has("setpriv") { run.as_nobody().ran() } else { run.ran() };
    let warning = "--answer x(y): it matches nothing in the output of a trial; all of that output is compared";
    ran.assert_exit(0, &[warning]);
    assert_eq!(ran.stderr.matches(warning).count(), 1, "{ran}");
}

#[test]
fn reports_a_boot_that_matches_several_or_none_of_the_study() {
    if !needs(&[("a build with debug assertions", cfg!(debug_assertions))]) {
        return;
    }
    let bench = Bench::new();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let number = release.split('.').next().unwrap().to_owned();
    let boots =
        |one: &str, other: &str| format!("{TINY}[boots.new]\nkernel = \"{one}\"\n[boots.old]\nkernel = \"{other}\"\n");
    let several = written(&bench, "several.toml", &boots(&number, release.trim()));
    let reason = "a boot matches new and old, and is not used";
    study(&bench, "run", &several, &["--dry-run"]).ran().assert_exit(0, &[reason]);
    // The fake platform's kernel is 6.18.
    let several = written(&bench, "several.toml", &boots("6", "6.18"));
    study(&bench, "run", &several, &["--fake-platform", THREE]).ran().assert_stdout(&["missing: ", reason]);
    study(&bench, "status", &several, &[]).ran().assert_exit(0, &[]).assert_stdout(&[reason]);
    let none = written(&bench, "none.toml", &boots("2.2", "2.4"));
    let reason = "matches no boot of the study, and is not used";
    study(&bench, "run", &none, &["--dry-run"]).ran().assert_exit(0, &["now: a boot of Linux", reason]);
    study(&bench, "report", &none, &[])
        .ran()
        .assert_exit(0, &[])
        .assert_stdout(&["the boot new", "a boot of Linux 6.18"]);
}

#[test]
fn a_boot_without_a_trial_is_still_missing() {
    if !needs(&[("a build with debug assertions", cfg!(debug_assertions)), program("sqlite3")]) {
        return;
    }
    let bench = Bench::new();
    let file = written(&bench, "boots.toml", &format!("{TINY}[boots.new]\nkernel = \"6.18\"\n"));
    study(&bench, "run", &file, &["--fake-platform", THREE]).ran();
    let missing = || study(&bench, "status", &file, &["--json"]).ran().json()["missing"].to_string();
    assert!(!missing().contains("the boot new"), "{}", missing());
    let emptied = "PRAGMA foreign_keys = OFF; DELETE FROM observations; DELETE FROM trials;";
    assert!(Command::new("sqlite3").args([bench.store().as_str(), emptied]).status().unwrap().success());
    assert!(missing().contains("the boot new (a kernel 6.18)"), "{}", missing());
}

#[test]
fn a_large_study_is_planned_merged_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let extent = bench::Extent { planned: 3, stores: 2, blocks: 8 };
    bench::steps(std::path::Path::new(env!("CARGO_BIN_EXE_pagelab")), directory.path(), extent).unwrap();
}

#[test]
fn stores_are_merged_once_and_conflicts_are_named() {
    if !needs(&[("a build with debug assertions", cfg!(debug_assertions))]) {
        return;
    }
    let bench = Bench::new();
    let (one, into) = (bench.word("one.sqlite"), bench.word("into.sqlite"));
    faked(&bench, &one, 1);
    let merge = |stores: &[&str]| bench.pagelab(&[&["study", "merge", "--store", &into], stores].concat()).ran();
    merge(&[&one]).assert_exit(0, &[]).assert_stdout(&["2 comparisons added"]);
    merge(&[&one, &one]).assert_exit(0, &[]).assert_stdout(&["0 comparisons added, 0 completed, 4 there already"]);
    merge(&["--study", "tinny", &one]).assert_exit(2, &["no store has anything of \"tinny\"", "the nearest is tiny"]);
    merge(&["--study", "tiny", &one]).assert_exit(0, &[]);
    if !needs(&[program("sqlite3")]) {
        return;
    }
    let sqlite = |store: &str, statement: &str| {
        assert!(Command::new("sqlite3").args([store, statement]).status().unwrap().success());
    };
    // The store is left as if only half of the shard had been copied.
    sqlite(&into, "PRAGMA foreign_keys = ON; DELETE FROM trials WHERE comparison = 1 AND block > 3");
    merge(&[&one]).assert_exit(0, &[]).assert_stdout(&["0 comparisons added, 1 completed, 1 there already"]);
    sqlite(&into, "UPDATE trials SET exit_code = 7 WHERE comparison = 1 AND block = 2");
    merge(&[&one]).assert_exit(2, &["comparison 1 of sleep conflicts with comparison 1", "1 comparisons conflict"]);
    merge(&[&bench.word("none.sqlite"), &one]).assert_exit(2, &["there is no such store"]);
    merge(&[&into]).assert_exit(2, &["is the store to merge into"]);
}
