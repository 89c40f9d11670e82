//! Tests of `pagelab inspect --stacks` on programs that plant memory at known functions.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Bench, Ran, Runs, has, needs, program, root};
use serde_json::Value;

const M: u64 = 1 << 20;

fn source(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Compiles a C program, and returns its path.
fn compiled(bench: &Bench, name: &str, options: &[&str]) -> String {
    let output = bench.word(name);
    let source = source(&format!("{name}.c"));
    let status = Command::new("gcc").arg("-O1").args(options).arg(source).arg("-o").arg(&output).status().unwrap();
    assert!(status.success());
    output
}

/// The document that follows what the command prints.
fn document(ran: &Ran) -> Value {
    assert_eq!(ran.code, Some(0), "{ran}");
    serde_json::from_str(&ran.stdout[ran.stdout.find("{\n").unwrap()..]).unwrap()
}

fn inspected(bench: &Bench, command: &[&str]) -> Value {
    document(&bench.pagelab(&[&["inspect", "--stacks", "--json", "--"], command].concat()).ran())
}

/// The memory of all stacks that contain a function.
fn bytes_at(document: &Value, function: &str) -> u64 {
    let stacks = document["first_touches"]["stacks"].as_array().unwrap().iter();
    let has = |stack: &&Value| stack["frames"].as_array().unwrap().iter().any(|frame| frame.as_str() == Some(function));
    stacks.filter(has).map(|stack| stack["bytes"].as_u64().unwrap()).sum()
}

/// Asserts that at least 95 % of the planted bytes are at the function, and no more than as much too many.
fn assert_planted(document: &Value, function: &str, planted: u64) {
    let found = bytes_at(document, function);
    assert!(
        found.abs_diff(planted) <= planted / 20,
        "{function}: {found} of {planted} in {:#}",
        document["first_touches"]
    );
}

fn assert_planted_in_c(document: &Value) {
    let planted = [("memset_40M", 40), ("loop_24M", 24), ("before_16M", 16), ("after_16M", 16), ("advised_32M", 32)];
    planted.iter().for_each(|(function, size)| assert_planted(document, function, size * M));
    assert_eq!(bytes_at(document, "populate_8M"), 8 * M, "{:#}", document["first_touches"]);
}

#[test]
fn memory_is_at_the_functions_that_touched_it() {
    if !needs(&[root(), program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    for options in [["-fno-omit-frame-pointer", "-g0"], ["-fomit-frame-pointer", "-fno-inline"]] {
        let program = compiled(&bench, "first_touches", &options);
        let ran = bench.pagelab(&["inspect", "--stacks", "--json", "--", &program]).ran();
        let found = document(&ran);
        let touches = &found["first_touches"];
        assert_eq!(touches["source"], "page_faults", "{found:#}");
        assert_eq!(touches["includes_kernel"], true, "{found:#}");
        assert_planted_in_c(&found);
        assert_planted(&found, "read_12M", 12 * M);
        // The process is inspected when it exits, or earlier if it had more memory then.
        let whole = if found["peak"]["process"].is_null() { &found["processes"][0] } else { &found["peak"]["process"] };
        let sum: u64 = touches["stacks"].as_array().unwrap().iter().map(|stack| stack["bytes"].as_u64().unwrap()).sum();
        let resident = whole["resident_bytes"].as_u64().unwrap();
        assert!(sum.abs_diff(resident) <= resident / 20, "{sum} of {resident}");
        let large: u64 = ran.stdout.lines().nth(1).unwrap().parse().unwrap();
        let stacks = touches["stacks"].as_array().unwrap().iter();
        let advised =
            stacks.filter(|stack| stack["frames"].as_array().unwrap().iter().any(|frame| frame == "advised_32M"));
        let by_leaf = advised.map(|stack| stack["leaves_bytes"]["2097152"].as_u64().unwrap_or(0)).sum::<u64>();
        assert_eq!(by_leaf, large, "{found:#}");
    }
}

#[test]
fn a_fork_keeps_the_touches_of_its_parent() {
    if !needs(&[root(), program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let program = compiled(&bench, "first_touches", &["-fno-omit-frame-pointer"]);
    let found = inspected(&bench, &[&program, "fork"]);
    // In the parent and in the child, whose copies are of pages that were present.
    assert_planted(&found, "loop_24M", 48 * M);
    assert_eq!(bytes_at(&found, "child_copies"), 0, "{found:#}");
}

/// Starts a command that must not call perf_event_open, as in a container.
fn without_perf(bench: &Bench, words: &[&str]) -> Ran {
    let confined = compiled(bench, "without_perf", &[]);
    bench.pagelab_by(&[&confined], words).ran()
}

#[test]
fn without_perf_the_memory_is_at_the_functions_that_mapped_it() {
    if !needs(&[program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let program = compiled(&bench, "first_touches", &["-fno-omit-frame-pointer"]);
    let found = document(&without_perf(&bench, &["inspect", "--stacks", "--json", "--", &program]));
    let touches = &found["first_touches"];
    assert_eq!(touches["source"], "mapping_calls", "{found:#}");
    assert!(touches["why_not_page_faults"].as_str().unwrap().contains("a seccomp filter"), "{found:#}");
    assert!(touches["faults"].is_null(), "{found:#}");
    assert_planted_in_c(&found);
    let ran = without_perf(&bench, &["inspect", "--stacks", "--", &program]);
    ran.assert_exit(0, &[]).assert_stdout(&["mapped by", "page faults could not be recorded (", "--cap-add PERFMON"]);
}

#[test]
fn without_root_memory_that_the_kernel_touched_is_at_the_function_that_mapped_it() {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let is_user_only = paranoid.trim() == "2";
    if !needs(&[root(), program("gcc"), program("setpriv"), ("kernel.perf_event_paranoid=2", is_user_only)]) {
        return;
    }
    let bench = Bench::new();
    let program = compiled(&bench, "first_touches", &["-fno-omit-frame-pointer"]);
    let user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let words = ["inspect", "--stacks", "--json", "--", &program];
    let found = document(&bench.pagelab_by(&user, &words).ran());
    assert_eq!(found["first_touches"]["includes_kernel"], false, "{found:#}");
    // A user may lock little memory for perf's buffers, so faults can be lost. Those of large pages are rare, and are not.
    let lost = found["first_touches"]["lost_faults"].as_u64().unwrap() * 4096;
    let (unseen, set) = (bytes_at(&found, "[not seen]"), bytes_at(&found, "memset_40M"));
    assert!((12 * M / 20 * 19..12 * M / 20 * 21 + lost).contains(&unseen), "{unseen}, {lost} lost: {found:#}");
    assert!((40 * M / 20 * 19 - lost.min(8 * M)..40 * M / 20 * 21).contains(&set), "{set}, {lost} lost: {found:#}");
}

#[test]
fn memory_of_a_go_program_is_at_its_functions() {
    if !needs(&[root(), program("go")]) {
        return;
    }
    let bench = Bench::new();
    let output = bench.word("first_touches");
    let mut build = Command::new("go");
    build.args(["build", "-o", &output]).arg(source("first_touches.go")).env("GOCACHE", bench.path("cache"));
    assert!(build.status().unwrap().success());
    let found = inspected(&bench, &[&output]);
    assert_planted(&found, "main.planted64M", 64 * M);
    assert_planted(&found, "main.inGoroutine32M", 32 * M);
}

#[test]
fn memory_of_a_java_program_is_at_its_methods() {
    if !needs(&[root(), ("java with javac", has("java") && has("javac"))]) {
        return;
    }
    let bench = Bench::new();
    let compiled =
        Command::new("javac").arg("-d").arg(bench.path("")).arg(source("FirstTouches.java")).status().unwrap();
    assert!(compiled.success());
    let classes = bench.word("");
    let found = inspected(
        &bench,
        // Memory does not move, and every method is compiled, so that it has a name.
        &[
            "java",
            "-XX:+UnlockExperimentalVMOptions",
            "-XX:+UseEpsilonGC",
            "-Xmx512m",
            "-Xcomp",
            "-XX:CompileCommand=quiet",
            "-XX:CompileCommand=compileonly,FirstTouches::*",
            "-XX:CompileCommand=dontinline,FirstTouches::*",
            "-XX:+PreserveFramePointer",
            "-XX:+UnlockDiagnosticVMOptions",
            "-XX:+DumpPerfMapAtExit",
            "-cp",
            &classes,
            "FirstTouches",
        ],
    );
    let (bytes, longs) = ("byte[] FirstTouches.bytes48M()", "long[] FirstTouches.longs64M()");
    assert_planted(&found, bytes, 48 * M);
    assert_planted(&found, longs, 64 * M);
}

#[test]
fn stacks_are_written_as_folded_lines_and_as_a_picture() {
    if !needs(&[program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let program = compiled(&bench, "first_touches", &["-fno-omit-frame-pointer"]);
    let (folded, svg) = (bench.word("folded"), bench.word("picture.svg"));
    let ran = bench.pagelab(&["inspect", "--stacks", "--folded", &folded, "--svg", &svg, "--", &program]).ran();
    ran.assert_exit(0, &[]).assert_stdout(&["first touched by", "memset_40M < main", "page faults"]);
    let folded = std::fs::read_to_string(folded).unwrap();
    for line in folded.lines() {
        let (stack, bytes) = line.rsplit_once(' ').unwrap();
        assert!(stack.starts_with("first_touches;") && stack.ends_with(" pages]"), "{line}");
        assert!(bytes.parse::<u64>().unwrap() > 0, "{line}");
    }
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("memset_40M") && svg.ends_with("</svg>\n"), "{svg}");
}

#[test]
fn stacks_need_a_command() {
    let bench = Bench::new();
    let own = std::process::id().to_string();
    bench.pagelab(&["inspect", "--stacks", &own]).ran().assert_exit(2, &["inspect --stacks -- COMMAND"]);
    let same = ["inspect", "--stacks", "--folded", "x", "--svg", "x", "--", "true"];
    bench.pagelab(&same).ran().assert_exit(2, &["expected two files"]);
    bench.pagelab(&["inspect", "--folded", "x", "--", "true"]).ran().assert_exit(2, &["--stacks"]);
    bench.pagelab(&["inspect", "--stacks", "--every", "1s", "--", "true"]).ran().assert_exit(2, &["--every"]);
    let nowhere = bench.word("missing/folded");
    bench.pagelab(&["inspect", "--stacks", "--folded", &nowhere, "--", "true"]).ran().assert_exit(2, &["missing"]);
}
