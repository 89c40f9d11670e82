//! Tests of the CPU time that the recorded command takes in a run without the recorder.

use std::fs;
use std::process::Stdio;

use serde_json::Value;
use study::stats::median;

use super::*;

/// The note in the trace of a recorded shell command, with these options.
fn note_of(bench: &Bench, options: &[&str], line: &str) -> Value {
    let recorded = record(bench, options, &["sh", "-c", line]).ran();
    assert!(recorded.code.is_some(), "{recorded}");
    noted(bench)
}

fn noted(bench: &Bench) -> Value {
    sound(bench, "trace");
    info(bench, "trace")["notes"]["native"].clone()
}

/// The user times of the native runs, sorted.
fn user_times_s(note: &Value) -> Vec<f64> {
    let runs = note["measured"]["runs"].as_array().unwrap_or_else(|| panic!("{note}"));
    let mut times: Vec<f64> = runs.iter().map(|run| run["user_s"].as_f64().unwrap()).collect();
    times.sort_by(f64::total_cmp);
    times
}

fn why(note: &Value) -> &str {
    note["unknown"].as_str().unwrap_or_else(|| panic!("{note}"))
}

/// A shell loop that takes some time.
const BUSY: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";

#[test]
fn the_command_runs_again_and_its_median_time_is_what_translation_is_a_share_of() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let note = note_of(&bench, &[], &format!("echo x >> ran; echo out; echo err >&2; {BUSY}"));
    let times = user_times_s(&note);
    assert!(times[0] > 0.0 && *times.last().unwrap() < 5.0 && times.len() <= 5, "{note}");
    let ran = fs::read_to_string(bench.path("ran")).unwrap();
    assert_eq!(ran, "x\n".repeat(1 + times.len()), "once under the recorder, and once for each time");
    let ran = record(&bench, &[], &["sh", "-c", "echo out; echo err >&2"]).ran();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out\n", "err\n"), "the second output is thrown away");
    let document = bench.pagelab(&["sim", "trace", "-m", "cascade-lake", "--json"]).ran().json();
    let trace = &document["traces"][0];
    assert_eq!(
        (&trace["run_time"]["source"], &trace["run_time"]["recorded_ratio"]),
        (&"measured".into(), &Value::Null)
    );
    let time = &trace["answers"][0];
    let lost = trace["simulations"][0]["max_lost_cycles"].as_f64().unwrap();
    let share = lost / (trace["run_time"]["cpu_s"].as_f64().unwrap() * 2.5e9);
    assert!((time["translation_ratio"].as_f64().unwrap() - share.min(1.0)).abs() < 1e-9, "{time}");
    let info = bench.pagelab(&["trace", "info", "trace"]).ran();
    info.assert_stdout(&["native CPU time"]);
}

#[test]
fn the_time_of_a_part_is_scaled_by_instructions() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    record(&bench, &["--max", "1000000"], &["sh", "-c", BUSY]).ran().assert_exit(0, &[]);
    let note = noted(&bench);
    let times = user_times_s(&note);
    let median_s = median(&mut times.clone()).unwrap();
    let counts = info(&bench, "trace")["total"].clone();
    let ratio = counts["recorded_instructions"].as_f64().unwrap() / counts["instructions"].as_f64().unwrap();
    let document = bench.pagelab(&["sim", "trace", "--json"]).ran().json();
    let time = &document["traces"][0]["run_time"];
    assert!((time["recorded_ratio"].as_f64().unwrap() - ratio).abs() < 1e-9 && ratio < 0.5, "{time}");
    assert!((time["cpu_s"].as_f64().unwrap() - median_s * ratio).abs() < 1e-9, "{time}");
    assert_eq!(time["runs_s"].as_array().unwrap().len(), times.len(), "{time}");
    // A part that was cut out of the trace has no notes.
    bench.pagelab(&["trace", "cut", "trace", "-o", "part", "--to", "500000"]).ran().assert_exit(0, &[]);
    let document = bench.pagelab(&["sim", "part", "--json"]).ran().json();
    assert_eq!(document["traces"][0]["run_time"]["source"], "assumed");
}

#[test]
fn a_run_that_was_another_one_gives_no_time() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    assert!(why(&note_of(&bench, &["--no-native-run"], "echo x >> ran")).contains("--no-native-run was given"));
    assert_eq!(fs::read_to_string(bench.path("ran")).unwrap(), "x\n");
    let otherwise = note_of(&bench, &[], "mkdir made");
    assert!(why(&otherwise).contains("ended differently (exit status 1, recorded: code 0)"), "{otherwise}");
    let stopped = note_of(&bench, &[], "kill -TERM $$");
    assert!(why(&stopped).contains("was stopped"), "{stopped}");
    // Both runs take three seconds of CPU time, as with a server that is driven for a given time. Starting the recorder, which takes
    // longer on a busy host, is a small part of that.
    let for_a_time = note_of(&bench, &[], "(ulimit -t 3; while :; do :; done); true");
    assert!(why(&for_a_time).contains("works for a time, and not for a result, or it waits"), "{for_a_time}");
    let left = note_of(&bench, &[], "sleep 3 & true");
    assert!(why(&left).contains("leaves processes running"), "{left}");
    let document = bench.pagelab(&["sim", "trace", "--json"]).ran().json();
    let time = &document["traces"][0]["run_time"];
    assert!(time["why"].as_str().unwrap().contains("leaves processes running"), "{time}");
}

/// The recorded run does some work, and the second run finds that work done.
#[test]
fn a_run_that_found_its_work_done_gives_no_time() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let note = note_of(&bench, &[], &format!("[ -e done ] || {{ {BUSY}; touch done; }}"));
    assert!(note["measured"].is_object(), "{note}");
    let document = bench.pagelab(&["sim", "trace", "-p", "base", "--json"]).ran().json();
    let time = &document["traces"][0]["run_time"];
    assert_eq!(time["source"], "assumed");
    assert!(time["why"].as_str().unwrap().contains("they may have found their work done"), "{time}");
}

#[test]
fn input_is_read_again_only_from_a_file() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    fs::write(bench.path("input"), "one\ntwo\nthree\n").unwrap();
    let with = |stdin: Stdio, line: &str| {
        let ran = record(&bench, &[], &["sh", "-c", line]).stdin(stdin).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        noted(&bench)
    };
    let file = || Stdio::from(fs::File::open(bench.path("input")).unwrap());
    // `wc` must find three lines in each run.
    let lines = "[ \"$(wc -l)\" -eq 3 ]";
    assert!(with(file(), lines)["measured"].is_object());
    let pipe = || {
        let (from, mut to) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut to, b"one\ntwo\nthree\n").unwrap();
        Stdio::from(from)
    };
    assert!(with(pipe(), "true")["measured"].is_object(), "a pipe that the command does not read");
    let note = with(pipe(), "cat > /dev/null");
    assert!(why(&note).contains("reads its standard input, which was not a file"), "{note}");
    // The second run cannot read the lines from the pipe again, so `wc` counts differently and the exit code is another
    // one.
    assert!(why(&with(pipe(), lines)).contains("ended differently"));
}
