//! Tests of studies on model machines: which inputs identify a row, that recording and simulating are repeated if an input has
//! changed, and the messages if that is impossible.

mod common;
#[path = "common/traced.rs"]
mod traced;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::*;
use serde_json::Value;
use traced::Traced;

/// The machine of these simulations, as a separate file.
const MACHINE: &str = include_str!("../../../machines/cortex-a53.toml");

/// Writes a study of one workload on one machine.
fn written(bench: &Bench, workload: &str, machine: &str) -> String {
    let text = format!(
        "schema = \"pagelab.study/1\"\nname = \"modelled\"\nquestion = \"?\"\npolicies = [\"base\", \"thp\"]\n\
         machines = [\"{machine}\"]\n[sizes.standard]\nrecorded = 3000000\n[[workload]]\nname = \"own\"\n{workload}\n"
    );
    fs::write(bench.path("modelled.toml"), text).unwrap();
    bench.word("modelled.toml")
}

fn study(bench: &Bench, words: &[&str]) -> Command {
    bench.pagelab(&[&["study"], words, &["--store", &bench.store()]].concat())
}

/// The state of the only row, and the reason.
fn state(bench: &Bench, file: &str) -> (String, String) {
    let row = study(bench, &["status", file, "--json"]).ran().json()["rows"][0].clone();
    let text = |key: &str| row[key].as_str().unwrap().to_owned();
    (text("state"), text("why"))
}

/// The only row of the report.
fn row(bench: &Bench, file: &str) -> Value {
    study(bench, &["report", file, "--json"]).ran().json()["rows"][0].clone()
}

/// The number of walks under the baseline.
fn walks(bench: &Bench, file: &str) -> Option<f64> {
    row(bench, file)["cells"][0]["medians"]["walks"].as_f64()
}

#[test]
fn a_trace_of_another_content_is_simulated_anew() {
    let traced = Traced::new();
    let bench = &traced.bench;
    let file = written(bench, "trace = \"a.trace\"", "cortex-a53");
    study(bench, &["run", &file]).ran().assert_exit(0, &["simulating 1 of 1"]);
    assert_eq!(state(bench, &file), ("done".to_owned(), String::new()));
    let before = walks(bench, &file);
    assert!(before.is_some());
    let notes = row(bench, &file)["notes"].to_string();
    assert!(notes.contains("a core to itself") && notes.contains("figures of cortex-a53 are assumed"), "{notes}");
    study(bench, &["report", &file, "--markdown"])
        .ran()
        .assert_exit(0, &[])
        .assert_stdout(&["What limits these", "a core to itself"]);
    let content = fs::read(&traced.file).unwrap();
    fs::write(&traced.file, vec![0; content.len()]).unwrap();
    let why = "the stored outcomes are of other content of its trace";
    assert_eq!(state(bench, &file), ("missing".to_owned(), why.to_owned()));
    let shown = row(bench, &file);
    assert_eq!(walks(bench, &file), before, "what is there is shown, and said to be of another one");
    assert_eq!(shown["notes"][0], "its figures are of other content of its trace");
    // The file is no trace any more, and the reason is stored.
    study(bench, &["run", &file]).ran().assert_exit(1, &["simulating 1 of 1", "own"]);
    let (state_of, why) = state(bench, &file);
    assert!(state_of == "failed" && why.contains("a.trace"), "{state_of}: {why}");
    assert_eq!(row(bench, &file)["cells"][0]["conclusion"]["why"], why);
    fs::write(&traced.file, content).unwrap();
    assert_eq!(state(bench, &file), ("done".to_owned(), String::new()));
    assert_eq!(walks(bench, &file), before);
}

#[test]
fn reports_a_missing_trace_before_and_after_the_run() {
    let bench = Bench::new();
    let file = written(&bench, "trace = \"none.trace\"", "cortex-a53");
    let (state_of, why) = state(&bench, &file);
    assert!(state_of == "missing" && why.contains("there is no trace") && why.contains("none.trace"), "{why}");
    let ran = study(&bench, &["run", &file]).ran();
    ran.assert_exit(1, &["none.trace"]).assert_stdout(&["0 of 1 rows are done"]);
    let shown = row(&bench, &file)["cells"][0]["conclusion"]["why"].as_str().unwrap().to_owned();
    assert!(shown.contains("none.trace"), "{shown}");
}

#[test]
fn a_machine_of_a_file_is_a_row_by_its_own_name() {
    let traced = Traced::new();
    let bench = &traced.bench;
    let machine = |bits: &str| {
        let text = MACHINE.replace("name = \"cortex-a53\"", "name = \"mine\"");
        fs::write(bench.path("my.toml"), text.replacen("entries = { is = 10,", bits, 1)).unwrap();
    };
    machine("entries = { is = 10,");
    let file = written(bench, "trace = \"a.trace\"", "./my.toml");
    let ran = study(bench, &["run", &file]).ran();
    ran.assert_exit(0, &["own on ./my.toml"]).assert_stdout(&["1 of 1 rows are done"]);
    let shown = row(bench, &file);
    assert_eq!(shown["machine"], "mine");
    assert!(walks(bench, &file).is_some());
    assert_eq!(shown["origins"][0]["commands"][0].as_array().unwrap().last().unwrap(), "./my.toml");
    machine("entries = { is = 20,");
    let why = "the stored outcomes are of other figures of the machine";
    assert_eq!(state(bench, &file), ("missing".to_owned(), why.to_owned()));
    study(bench, &["run", &file]).ran().assert_exit(0, &["simulating 1 of 1"]);
    assert_eq!(state(bench, &file).0, "done");
    // Two names of one machine would give two equal rows.
    fs::write(bench.path("my.toml"), MACHINE).unwrap();
    let file = written(bench, "trace = \"a.trace\"", "cortex-a53\", \"./my.toml");
    study(bench, &["status", &file]).ran().assert_exit(2, &["cortex-a53 and ./my.toml are both \"cortex-a53\""]);
}

#[test]
fn a_policy_that_is_added_is_simulated() {
    let traced = Traced::new();
    let bench = &traced.bench;
    let file = written(bench, "trace = \"a.trace\"", "cortex-a53");
    study(bench, &["run", &file]).ran().assert_exit(0, &[]);
    let text = fs::read_to_string(&file).unwrap().replace("\"thp\"]", "\"thp\", \"contig-64k\"]");
    fs::write(&file, text).unwrap();
    assert_eq!(state(bench, &file), ("missing".to_owned(), "contig-64k not simulated yet".to_owned()));
    study(bench, &["run", &file]).ran().assert_exit(0, &["simulating 1 of 1"]);
    assert!(row(bench, &file)["cells"][2]["medians"]["walks"].as_f64().is_some());
}

#[test]
fn a_program_that_was_built_anew_is_recorded_anew() {
    if !needs(&[recording("qemu-x86_64"), program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let program = bench.word("touches");
    let build = |pages: u32| {
        let text = format!(
            "static volatile char memory[{pages} * 4096];\n\
             int main(void) {{ for (int page = 0; page < {pages}; page++) memory[page * 4096] = 1; return 0; }}\n"
        );
        fs::write(bench.path("touches.c"), text).unwrap();
        let built = Command::new("gcc").args(["-O1", "-o", &program, &bench.word("touches.c")]).status().unwrap();
        assert!(built.success());
    };
    let recorder = testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab")));
    let run = |file: &str| study(&bench, &["run", file]).env("PAGELAB_QEMU_PLUGIN", &recorder).ran();
    build(50);
    let file = written(&bench, &format!("command = [\"{program}\"]"), "cortex-a53");
    run(&file).assert_exit(0, &["simulating 1 of 1"]).assert_stdout(&["1 of 1 rows are done"]);
    let again = run(&file);
    assert!(!again.assert_exit(0, &[]).stderr.contains("simulating"), "{again}");
    let before = walks(&bench, &file).unwrap();
    let made = row(&bench, &file)["origins"][0].clone();
    assert_eq!(made["programs"][&program].as_str().map(str::len), Some(64));
    build(2000);
    assert_eq!(
        state(&bench, &file),
        ("missing".to_owned(), format!("the stored outcomes are of another build of {program}"))
    );
    run(&file).assert_exit(0, &["simulating 1 of 1"]);
    assert_eq!(state(&bench, &file).0, "done");
    let after = walks(&bench, &file).unwrap();
    let notes = row(&bench, &file)["notes"].to_string();
    assert!(notes.contains("one address layout") && notes.contains("recorded on x86_64"), "{notes}");
    assert!(after > before + 1500.0, "{before} and {after}: what was recorded before is of another build");
    // If the program fails, the row has the reason.
    fs::write(bench.path("touches.c"), "int main(void) { return 3; }\n").unwrap();
    let built = Command::new("gcc").args(["-o", &program, &bench.word("touches.c")]).status().unwrap();
    assert!(built.success());
    run(&file).assert_exit(1, &["own"]);
    let (state_of, why) = state(&bench, &file);
    assert!(state_of == "failed" && why.contains("it cannot be recorded"), "{state_of}: {why}");
}

#[test]
fn simulations_are_merged_once_and_conflicts_are_named() {
    if !needs(&[program("sqlite3")]) {
        return;
    }
    let traced = Traced::new();
    let bench = &traced.bench;
    let (file, into) = (written(bench, "trace = \"a.trace\"", "cortex-a53"), bench.word("into.sqlite"));
    study(bench, &["run", &file]).ran().assert_exit(0, &[]);
    let merge = |from: &str| bench.pagelab(&["study", "merge", from, "--store", &into]).ran();
    merge(&bench.word("none.sqlite")).assert_exit(2, &["none.sqlite: there is no such store"]);
    assert!(!Path::new(&into).exists(), "nothing was merged, and nothing is made");
    merge(&bench.store()).assert_exit(0, &[]).assert_stdout(&["2 simulations added, 0 there already"]);
    merge(&bench.store()).assert_exit(0, &[]).assert_stdout(&["0 simulations added, 2 there already"]);
    let other = "UPDATE study_simulations SET outcome = json_set(outcome, '$.figures.walks', 7) WHERE policy = 'thp'";
    assert!(Command::new("sqlite3").args([&into, other]).status().unwrap().success());
    let ran = merge(&bench.store());
    ran.assert_exit(2, &["the simulation of own on cortex-a53 under thp conflicts", "1 simulations conflict"]);
    ran.assert_stdout(&["0 simulations added, 1 there already"]);
    let kept = "SELECT json_extract(outcome, '$.figures.walks') FROM study_simulations WHERE policy = 'thp'";
    let kept = Command::new("sqlite3").args([&into, kept]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&kept.stdout).trim(), "7", "what is there stays");
    // A failed simulation is replaced by a new one.
    let failed = "UPDATE study_simulations SET outcome = '{\"outcome\":\"failed\",\"why\":\"x\"}' WHERE policy = 'thp'";
    assert!(Command::new("sqlite3").args([&into, failed]).status().unwrap().success());
    merge(&bench.store()).assert_exit(0, &[]).assert_stdout(&["1 simulations added, 1 there already"]);
}

#[test]
fn exports_nothing_without_a_sample() {
    let traced = Traced::new();
    let bench = &traced.bench;
    let (file, csv) = (written(bench, "trace = \"a.trace\"", "cortex-a53"), bench.word("samples.csv"));
    let export = || study(bench, &["export", &file, "-o", &csv]).ran();
    export().assert_exit(2, &["results.sqlite: there is no such store"]);
    study(bench, &["run", &file]).ran().assert_exit(0, &[]);
    export().assert_exit(2, &["there is no sample of the study modelled", "simulations have none"]);
    assert!(!Path::new(&csv).exists());
}

#[test]
fn a_dry_run_lists_recordings_and_simulations() {
    let traced = Traced::new();
    let bench = &traced.bench;
    let file = written(bench, "trace = \"a.trace\"", "cortex-a53");
    let ran = study(bench, &["run", &file, "--dry-run"]).ran();
    ran.assert_exit(0, &[]).assert_stdout(&["simulate", "a.trace", "to record and simulate 1 row is not estimated"]);
    assert!(!ran.stdout.contains(" min") && !ran.stdout.contains("remaining measurements"), "{ran}");
    // After one simulation, the time for another machine can be estimated.
    study(bench, &["run", &file]).ran().assert_exit(0, &[]);
    let both = written(bench, "trace = \"a.trace\"", "cortex-a53\", \"cortex-a57");
    let ran = study(bench, &["run", &both, "--dry-run"]).ran();
    ran.assert_exit(0, &[])
        .assert_stdout(&["about 1 min", "to record and simulate 1 row takes about 1 min, as earlier simulations"]);
    let file = written(bench, "trace = \"none.trace\"", "cortex-a53");
    study(bench, &["run", &file, "--dry-run"]).ran().assert_exit(0, &[]).assert_stdout(&["missing: there is no trace"]);
    let file = written(bench, "command = [\"true\"]", "cortex-a53");
    study(bench, &["run", &file, "--dry-run"]).ran().assert_exit(0, &[]).assert_stdout(&["record and simulate"]);
}

#[test]
fn instructions_that_are_recorded_have_units() {
    let bench = Bench::new();
    let file = written(&bench, "trace = \"none.trace\"", "cortex-a53");
    let text = fs::read_to_string(&file).unwrap();
    let status = |recorded: &str| {
        fs::write(&file, text.replace("recorded = 3000000", &format!("recorded = {recorded}"))).unwrap();
        study(&bench, &["status", &file]).ran()
    };
    for fine in ["\"400M\"", "\"3k\"", "\"1G\"", "\"5\"", "7"] {
        status(fine).assert_exit(0, &[]);
    }
    for wrong in ["0", "-1", "\"400 MB\"", "\"M\"", "\"99999999999999G\""] {
        status(wrong).assert_exit(2, &["expected a count of instructions above 0", "400M"]);
    }
}

/// Machine code for QEMU's `virt` machine: loads from three pages of the third megabyte, again and again.
const LOADS: [u32; 5] = [
    0xd2a0_0000 | 0x4030 << 5,      // movz x0, #0x4030, lsl #16
    0xf940_0001,                    // ldr  x1, [x0]
    0xf940_0001 | 0x200 << 10,      // ldr  x1, [x0, #0x1000]
    0xf940_0001 | 0x400 << 10,      // ldr  x1, [x0, #0x2000]
    0x1400_0000 | (0x400_0000 - 3), // b .-12
];

#[test]
fn a_whole_machine_is_recorded_for_the_policies_of_its_direct_map() {
    let bench = Bench::new();
    let code: Vec<u8> = LOADS.iter().flat_map(|word| word.to_le_bytes()).collect();
    fs::write(bench.path("code"), code).unwrap();
    let study_of = |workloads: &str| {
        let text = format!(
            "schema = \"pagelab.study/1\"\nname = \"modelled\"\nquestion = \"?\"\nbaseline = \"direct-map-2m\"\n\
             policies = [\"direct-map-1g\", \"direct-map-mixed\", \"direct-map-2m\", \"direct-map-4k\"]\n\
             machines = [\"cortex-a57\"]\n[sizes.standard]\nrecorded = 5000\n{workloads}"
        );
        fs::write(bench.path("modelled.toml"), text).unwrap();
        bench.word("modelled.toml")
    };
    // A workload that cannot be recorded is reported under its name, with the reason.
    let program = study_of("[[workload]]\nname = \"own\"\ncommand = [\"true\"]\n");
    assert!(state(&bench, &program).1.contains("name a machine to record (`recorded`, a command of qemu-system-*)"));
    let nothing =
        study_of("[[workload]]\nname = \"own\"\nneeds = [\"/no/linux\"]\nrecorded = [\"qemu-system-none\"]\n");
    assert!(state(&bench, &nothing).1.contains("qemu-system-none"), "{:?}", state(&bench, &nothing));
    if !needs(&[recording("qemu-system-aarch64")]) {
        return;
    }
    let guest =
        study_of("[[workload]]\nname = \"own\"\nneeds = [\"/no/linux\"]\nrecorded = [\"qemu-system-aarch64\"]\n");
    assert_eq!(state(&bench, &guest).1, "there is no /no/linux");
    let machine = format!(
        "\"qemu-system-aarch64\", \"-M\", \"virt\", \"-cpu\", \"cortex-a57\", \"-m\", \"2G\", \"-nodefaults\", \"-display\", \
         \"none\", \"-device\", \"loader,file={},addr=0x40200000,cpu-num=0,force-raw=on\"",
        bench.word("code")
    );
    let file = study_of(&format!("[[workload]]\nname = \"own\"\nskipped = \"1k\"\nrecorded = [{machine}]\n"));
    let recorder = testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab")));
    let run = || study(&bench, &["run", &file]).env("PAGELAB_QEMU_PLUGIN", &recorder).ran();
    run().assert_exit(0, &["simulating 1 of 1"]);
    let row = row(&bench, &file);
    let walks = |at: usize| row["cells"][at]["medians"]["walks"].as_f64();
    // The walks are for three pages of data and one of code, all within one 2M leaf.
    assert_eq!([0, 1, 2, 3].map(walks), [Some(1.0), None, Some(1.0), Some(4.0)], "{row}");
    assert!(row["cells"][1]["conclusion"]["why"].as_str().unwrap().contains("models have no such policy"), "{row}");
    let recorded = row["origins"][0]["commands"][0].to_string();
    assert!(recorded.contains("--system") && recorded.contains("\"--skip\",\"1000\""), "{recorded}");
    assert!(row["notes"].to_string().contains("a whole machine was recorded"), "{row}");
    assert!(!run().assert_exit(0, &[]).stderr.contains("simulating"), "it is done");
}
