//! Tests of recording with the real QEMU, and of the trace verbs on the recordings.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "a benchmark has its own main")]
#[path = "../../benches/record.rs"]
mod cost;
#[path = "../common/terminal.rs"]
mod terminal;

mod accesses;
mod calls;
mod ends;
mod files;
mod machines;
mod native;
mod own_advice;
mod processes;
mod start;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Bench, Ran, Runs, needs, program, recording};
use serde_json::Value;

const FREESTANDING: [&str; 7] =
    ["-O2", "-static", "-nostdlib", "-fno-pie", "-fno-stack-protector", "-fno-tree-vectorize", "-Wl,--build-id=none"];
const HOSTED: [&str; 2] = ["-O1", "-pthread"];

fn plugin() -> PathBuf {
    testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab")))
}

/// Compiles a C program from this directory, and returns its path.
fn compiled(bench: &Bench, compiler: &str, name: &str, options: &[&str]) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let output = bench.word(&format!("{compiler}-{name}.out"));
    let status = Command::new(compiler).args(options).arg(source).arg("-o").arg(&output).status().unwrap();
    assert!(status.success());
    output
}

/// `pagelab record` of a command with these options, which writes the file `trace` in the bench.
fn record(bench: &Bench, options: &[&str], command: &[&str]) -> Command {
    let mut record = bench.pagelab(&["record", "-o", &bench.word("trace")]);
    record.args(options).arg("--").args(command).env("PAGELAB_QEMU_PLUGIN", plugin());
    record
}

/// The PID of the emulator of a running `pagelab record`. It is the child of pagelab's child, the subreaper.
fn emulator(pagelab: u32) -> Option<String> {
    let child_of = |pid: &str| {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        Some(children.trim().to_owned()).filter(|child| !child.is_empty())
    };
    child_of(&child_of(&pagelab.to_string())?)
}

fn can_record() -> bool {
    needs(&[recording("qemu-x86_64"), program("gcc")])
}

/// Whether the QEMU that recorded the trace is older than this version.
fn qemu_before(bench: &Bench, version: u64) -> bool {
    let info = info(bench, "trace");
    let recorded_version = info["header"]["emulator"]["version"].as_str().unwrap();
    recorded_version.split('.').next().unwrap().parse::<u64>().unwrap() < version
}

fn info(bench: &Bench, name: &str) -> Value {
    bench.pagelab(&["trace", "info", "--json", name]).ran().json()
}

fn sound(bench: &Bench, name: &str) {
    bench.pagelab(&["trace", "check", name]).ran().assert_exit(0, &[]);
}

/// All lines of `trace dump --json` except the first one.
fn dumped(bench: &Bench, name: &str) -> Vec<Value> {
    let ran = bench.pagelab(&["trace", "dump", "--json", name]).ran();
    ran.assert_exit(0, &[]);
    ran.stdout.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The events of a system call, of all threads.
fn events<'a>(lines: &'a [Value], call: &'a str) -> impl Iterator<Item = &'a Value> {
    lines.iter().filter(move |line| line["event"]["call"] == call).map(|line| &line["event"])
}

/// Whether a line is a run of the program's own accesses.
fn is_own(line: &Value) -> bool {
    line["run"].is_u64() && !line["kind"].as_str().unwrap().starts_with("kernel")
}

/// The runs of data, with page numbers relative to the first page of data, and the total number of fetches.
fn runs(lines: &[Value]) -> (Vec<(u64, String, u64)>, u64) {
    let of = |line: &Value, key: &str| line[key].as_u64().unwrap();
    let (fetches, data): (Vec<&Value>, Vec<&Value>) =
        lines.iter().filter(|line| is_own(line)).partition(|line| line["kind"] == "fetch");
    let first = data.iter().map(|line| of(line, "address")).min().unwrap();
    let page_and_count = |line: &&Value| {
        ((of(line, "address") - first) >> 12, line["kind"].as_str().unwrap().to_owned(), of(line, "accesses"))
    };
    (data.iter().map(page_and_count).collect(), fetches.iter().map(|line| of(line, "accesses")).sum())
}

/// The pages that runs of this kind access, among the `pages` pages from `begin` on, which are numbered from 0.
fn of_kind(lines: &[Value], kind: &str, begin: u64, pages: u64) -> Vec<u64> {
    let own = lines.iter().filter(|line| line["run"].is_u64() && line["kind"] == kind);
    let addresses = own.map(|line| line["address"].as_u64().unwrap());
    addresses.filter(|address| (begin..begin + pages * 4096).contains(address)).map(|at| (at - begin) >> 12).collect()
}

/// The page addresses that the runs of a thread access.
fn touched(lines: &[Value], thread: u64) -> std::collections::BTreeSet<u64> {
    let own = lines.iter().filter(|line| line["thread"] == thread && line["run"].is_u64() && line["kind"] != "fetch");
    own.map(|line| line["address"].as_u64().unwrap()).collect()
}

/// The pages of data to which a thread has stored, in order, among the `pages` pages from `begin` on.
fn order(lines: &[Value], thread: u64, begin: u64, pages: u64) -> Vec<u64> {
    let of = |line: &&Value| line["run"].is_u64() && line["thread"] == thread && line["kind"] == "store";
    let addresses = lines.iter().filter(of).map(|line| line["address"].as_u64().unwrap());
    addresses.filter_map(|address| address.checked_sub(begin).map(|at| at >> 12).filter(|page| *page < pages)).collect()
}

/// Checks that a recording ended with this exit code before its last blocks were written, that this is reported, and that the
/// trace is damaged only at its end.
fn cut_off(bench: &Bench, trace: &str, ran: &Ran, code: i32) {
    let missing = "up to 4,194,304 instructions of each thread are missing";
    ran.assert_exit(code, &[&bench.word(trace), "its last accesses", "cut off", missing]);
    let check = bench.pagelab(&["trace", "check", trace]).ran();
    assert!(check.code == Some(1) && check.stdout.contains("the index at the end is missing"), "{check}");
    let damages = check.stdout.lines().filter(|line| line.starts_with("at byte")).collect::<Vec<_>>();
    assert!(
        damages.iter().all(|line| line.contains("the file ends within the block")) && damages.len() <= 1,
        "{check}"
    );
}
