//! Tests with recorded programs that execute other programs. These run as without a recorder and have a trace each; those without
//! a trace are named.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::{Bench, Ran, Runs, needs, program, recording, root};
use serde_json::Value;

fn can_record() -> bool {
    needs(&[recording("qemu-x86_64"), program("gcc")])
}

/// Compiles the program of `execs.c` in the bench, and returns its path.
fn compiled(bench: &Bench, compiler: &str) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/execs.c");
    let output = bench.word(&format!("{compiler}-execs"));
    let status = Command::new(compiler).args(["-O1", "-pthread"]).arg(source).arg("-o").arg(&output).status().unwrap();
    assert!(status.success());
    output
}

/// `pagelab record` of a command, which writes the file `trace` in the bench.
fn record(bench: &Bench, command: &[&str]) -> Command {
    let mut record = bench.pagelab(&["record", "-o", &bench.word("trace"), "--"]);
    record.args(command).env("PAGELAB_QEMU_PLUGIN", testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab"))));
    record
}

fn native(command: &[&str]) -> Ran {
    Command::new(command[0]).args(&command[1..]).ran()
}

/// The names of all traces except the first, in order.
fn others(bench: &Bench) -> Vec<String> {
    let names = fs::read_dir(bench.path("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("trace.")).collect();
    names.sort();
    names
}

fn info(bench: &Bench, trace: &str) -> Value {
    bench.pagelab(&["trace", "info", "--json", trace]).ran().json()
}

fn process(bench: &Bench, trace: &str) -> Value {
    info(bench, trace)["header"]["process"].clone()
}

fn sound(bench: &Bench, trace: &str) {
    bench.pagelab(&["trace", "check", trace]).ran().assert_exit(0, &[]);
}

/// The exec events in a trace.
fn execs(bench: &Bench, trace: &str) -> Vec<Value> {
    let ran = bench.pagelab(&["trace", "dump", "--json", trace]).ran();
    let events = ran.stdout.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap()["event"].clone());
    events.filter(|event| event["call"] == "exec").collect()
}

fn simulated(bench: &Bench) -> Value {
    bench.pagelab(&["sim", "trace", "-p", "base", "-m", "cascade-lake", "--json"]).ran().json()["traces"][0].clone()
}

#[test]
fn a_program_finds_what_it_would_find_without_a_recorder() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc");
    for (what, code) in [("hands over", 21), ("fails", 22), ("is interrupted", 25)] {
        let recorded = record(&bench, &[&path, what]).ran();
        let native = native(&[&path, what]);
        assert_eq!((recorded.code, &recorded.stdout), (native.code, &native.stdout), "{recorded}");
        assert_eq!(native.code, Some(code), "{native}");
    }
}

#[test]
fn every_program_that_is_executed_has_a_trace() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc");
    let ran = record(&bench, &[&path, "chain", "3"]).ran();
    // The first process has three images, and each image except the last has a child.
    ran.assert_exit(23, &["executed 4 programs (exec), 4 recorded separately", "trace.PID.execN"]);
    let first = process(&bench, "trace")["process"].as_u64().unwrap();
    let (own, children): (Vec<String>, Vec<String>) =
        others(&bench).into_iter().partition(|name| name.starts_with(&format!("trace.{first}.")));
    assert_eq!(own, [1, 2].map(|number| format!("trace.{first}.exec{number}")));
    assert_eq!(children.len(), 4, "{children:?}");
    for name in own.iter().chain(&children).map(String::as_str).chain(["trace"]) {
        sound(&bench, name);
    }
    for (execs, name) in own.iter().enumerate() {
        let expected = serde_json::json!({ "process": first, "parent": null, "execs": execs + 1 });
        assert_eq!(process(&bench, name), expected);
        let command = serde_json::json!([path, "chain", (2 - execs).to_string()]);
        assert_eq!(info(&bench, name)["header"]["command"], command);
    }
    assert_eq!(process(&bench, &children[0])["parent"], first);
    assert_eq!(process(&bench, &children[1]), {
        let child = process(&bench, &children[0])["process"].clone();
        serde_json::json!({ "process": child, "parent": first, "execs": 1 })
    });
    // Each trace ends with an execve whose program was recorded too.
    let event = &execs(&bench, "trace")[0];
    assert_eq!((&event["program"], &event["unrecorded"]), (&"/proc/self/exe".into(), &Value::Null));

    let simulated = simulated(&bench);
    assert_eq!(
        (&simulated["programs_executed"], &simulated["unrecorded_programs"]),
        (&4.into(), &Value::Array(vec![]))
    );
    let cell = &simulated["simulations"][0];
    // The processes are the first one and its two children.
    assert_eq!((&cell["processes"], &cell["forks"], &cell["complete"]), (&3.into(), &0.into(), &true.into()));
    // The images touch 3M, 2M and 1M one after the other, and an image inherits no memory of the previous one.
    let (faults, peak) = (cell["anonymous_faults"].as_u64().unwrap(), cell["resident_peak_bytes"].as_u64().unwrap());
    assert!((6 << 8..(6 << 8) + 400).contains(&faults) && peak > 3 << 20 && peak < 6 << 20, "{cell:#}");
    assert!(cell["resident_bytes"].as_u64().unwrap() < 3 << 20, "{cell:#}");
    // If the trace of an executed program is missing, the program is named, and counted.
    fs::remove_file(bench.path(&own[1])).unwrap();
    let ran = bench.pagelab(&["sim", "trace", "-p", "base"]).ran();
    let words = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("executed 1 program without a trace FILE.PID.execN"), "{ran}");
    assert!(words.contains("is not modelled: /proc/self/exe"), "{ran}");
    let swept = bench.pagelab(&["sim", "sweep", "trace"]).ran();
    assert!(
        swept.stdout.split_whitespace().collect::<Vec<_>>().join(" ").contains("executed /proc/self/exe"),
        "{swept}"
    );
}

#[test]
fn records_programs_that_a_shell_and_make_execute() {
    if !can_record() || !needs(&[program("make")]) {
        return;
    }
    let bench = Bench::new();
    let script = bench.script("a script", "/bin/echo one | /bin/cat; exec /bin/echo two \"$@\"");
    let command = format!("'{script}' x; /bin/echo three; /nowhere/program");
    let ran = record(&bench, &["/bin/sh", "-c", &command]).ran();
    ran.assert_exit(127, &["/nowhere/program", "executed 5 programs (exec), 5 recorded"])
        .assert_stdout(&["one", "two x", "three"]);
    others(&bench).iter().for_each(|name| sound(&bench, name));
    // The image of a script is that of its interpreter. Two programs are executed, because the interpreter executes another one.
    let images: Vec<String> = others(&bench).into_iter().filter(|name| name.ends_with(".exec2")).collect();
    let [last] = &images[..] else { panic!("{images:?}") };
    assert_eq!(info(&bench, last)["header"]["command"], serde_json::json!(["/bin/echo", "two", "x"]));
    let before = info(&bench, &last.replace(".exec2", ".exec1"));
    assert_eq!(before["header"]["command"], serde_json::json!(["/bin/sh", script, "x"]));
    assert_eq!(simulated(&bench)["programs_executed"], 5);

    fs::write(bench.path("Makefile"), "all: a b\na b:\n\t@/bin/echo $@ >$@\n").unwrap();
    others(&bench).iter().for_each(|name| fs::remove_file(bench.path(name)).unwrap());
    // make starts a shell for each rule, and each shell executes a program.
    record(&bench, &["make", "-j2"]).ran().assert_exit(0, &["executed 4 programs (exec), 4 recorded"]);
    assert_eq!(fs::read_to_string(bench.path("b")).unwrap(), "b\n");
    let simulated = simulated(&bench);
    assert_eq!(simulated["programs_executed"], 4);
    assert_eq!(simulated["simulations"][0]["forks"], 0, "{simulated:#}");
}

#[test]
fn a_program_that_qemu_cannot_take_is_named_with_the_reason() {
    if !can_record() || !needs(&[root(), program("setpriv")]) {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc");
    let plugin = testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab")));
    // The other user cannot read the directory of the build, so the plugin is copied.
    fs::copy(plugin, bench.path("recorder.so")).unwrap();
    fs::set_permissions(bench.path("recorder.so"), Permissions::from_mode(0o755)).unwrap();
    let other = bench.word("other");
    for (mode, why) in
        [(0o4755, "it gains privileges, which it would not under QEMU"), (0o111, "its file may not be read")]
    {
        fs::copy(&path, &other).unwrap();
        fs::set_permissions(&other, Permissions::from_mode(mode)).unwrap();
        let mut command = record(&bench, &[&path, "executes", &other]);
        command.env("PAGELAB_QEMU_PLUGIN", bench.path("recorder.so"));
        command
            .as_nobody()
            .ran()
            .assert_exit(24, &["0 recorded separately", "1 not, which ran outside the emulation", &other, why]);
        sound(&bench, "trace");
        assert_eq!(execs(&bench, "trace")[0]["unrecorded"], why);
        let simulated = simulated(&bench);
        assert_eq!(simulated["unrecorded_programs"], serde_json::json!([{ "program": other, "why": why, "times": 1 }]));
        assert!(simulated["notes"].to_string().contains(why), "{simulated:#}");
        fs::remove_file(bench.path("trace")).unwrap();
        fs::remove_file(&other).unwrap();
    }
    // Executing the program gives root no new privileges, so the program is recorded.
    fs::copy(&path, &other).unwrap();
    fs::set_permissions(&other, Permissions::from_mode(0o4755)).unwrap();
    record(&bench, &[&path, "executes", &other]).ran().assert_exit(24, &["executed 1 program (exec), 1 recorded"]);
}

#[test]
fn a_trace_that_is_there_already_is_named_and_the_program_runs() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc");
    // The program cannot know the PID and number of its next image, so it takes every possible name.
    let script = "for n in 1 2; do : >\"$1.$$.exec$n\"; done; exec /bin/echo ran";
    let trace = bench.word("trace");
    let ran = record(&bench, &["/bin/sh", "-c", script, "sh", &trace]).ran();
    ran.assert_exit(0, &["1 not, which ran outside the emulation: /bin/echo", "cannot be made: File exists"])
        .assert_stdout(&["ran"]);
    // A program that cannot start leaves no trace.
    let unstartable = format!("{path} chain 1");
    record(&bench, &["/bin/sh", "-c", &format!("exec {unstartable}")]).ran().assert_exit(23, &["1 recorded"]);
}

#[test]
fn a_thread_executes_a_program_and_the_others_end() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let path = compiled(&bench, "gcc");
    let ran = record(&bench, &[&path, "of a thread"]).ran();
    // The last data of the other thread is missing, because it had not been written yet.
    ran.assert_exit(24, &["cut off", "executed 1 program (exec), 1 recorded"]);
    let [program] = &others(&bench)[..] else { panic!("{:?}", others(&bench)) };
    sound(&bench, program);
    let simulated = simulated(&bench);
    assert_eq!((&simulated["programs_executed"], &simulated["cut_off"]), (&1.into(), &true.into()));
}

#[test]
fn programs_for_another_instruction_set_execute_their_own() {
    if !needs(&[recording("qemu-aarch64"), program("aarch64-linux-gnu-gcc")]) {
        return;
    }
    let bench = Bench::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/execs.c");
    let path = bench.word("foreign");
    let status = Command::new("aarch64-linux-gnu-gcc")
        .args(["-O1", "-pthread", "-static"])
        .arg(source)
        .arg("-o")
        .arg(&path)
        .status()
        .unwrap();
    assert!(status.success());
    record(&bench, &[&path, "chain", "2"]).ran().assert_exit(23, &["executed 2 programs (exec), 2 recorded"]);
    record(&bench, &[&path, "hands over"])
        .ran()
        .assert_exit(21, &[])
        .assert_stdout(&["argument 3: two words", "of pagelab 0"]);
    // A program for this machine's instruction set runs natively.
    let ran = record(&bench, &[&path, "executes", "/bin/true"]).ran();
    ran.assert_exit(0, &["1 not, which ran outside the emulation: /bin/true"]);
    if cfg!(target_arch = "x86_64") {
        ran.assert_exit(0, &["for x86_64, and aarch64 is emulated"]);
    }
}
