//! Recordings that cannot write what they record, and what killed ones leave behind.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Bench, Ran, Runs, needs, program, recording, root};

fn record(bench: &Bench, output: &str, command: &[&str]) -> Command {
    let mut record = bench.pagelab(&["record", "-o", output, "--"]);
    record.args(command).env("PAGELAB_QEMU_PLUGIN", testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab"))));
    record
}

/// Runs a command with a file system of this size at the bench's `small`.
fn on_a_small_disk(bench: &Bench, kib: u32, command: &Command, after: &str) -> Ran {
    let small = bench.word("small");
    fs::create_dir_all(&small).unwrap();
    let script = format!("mount -t tmpfs -o size={kib}k none {small} && {{ \"$@\"; code=$?; {after}; exit $code; }}");
    let mut outer = Command::new("unshare");
    outer.args(["--mount", "sh", "-c", &script, "sh"]);
    common::wrap(&mut outer, command);
    outer.ran()
}

#[test]
fn a_full_disk_ends_with_2_and_says_what_is_lost() {
    if !needs(&[root(), program("unshare"), program("/usr/bin/perl"), recording("qemu-x86_64")]) {
        return;
    }
    let bench = Bench::new();
    let trace = bench.word("small/trace");
    let script = "my %h; $h{$_ * 7919 % 65537} .= $_ for 1..30000; exit 0";
    let perl = ["/usr/bin/perl", "-e", script];
    let command = record(&bench, &trace, &perl);
    let keep = format!("cp {trace} {}", bench.word("kept"));
    let ran = on_a_small_disk(&bench, 128, &command, &keep);
    ran.says(
        2,
        &[
            "No space left on device",
            "could not be written any further",
            "instructions each is lost",
            "ended with exit status: 0",
        ],
    );
    // What is there can be read, and says that its end is missing.
    let told = bench.pagelab(&["sim", "kept", "-p", "base", "--json"]).ran().json();
    assert_eq!(told["traces"][0]["cut_off"], true);
    // Of another process than the first.
    let shell = format!("/usr/bin/perl -e '{script}'; exit 3");
    let command = record(&bench, &trace, &["/bin/sh", "-c", &shell]);
    let ran = on_a_small_disk(&bench, 128, &command, ":");
    ran.says(
        2,
        &["No space left on device", ".exec1: it could not be written any further", "ended with exit status: 3"],
    );
    // Where not even a beginning can be written.
    let full = record(&bench, &trace, &["/bin/true"]);
    let ran = on_a_small_disk(&bench, 4, &full, ":");
    ran.says(2, &["No space left on device", "Free some space"]);
    // With room enough nothing is said.
    on_a_small_disk(&bench, 65536, &record(&bench, &trace, &["/bin/true"]), ":").says(0, &[]);
}

/// The directories of recordings in shared memory that a process has.
fn directories(shared_memory: &Path, process: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(shared_memory).unwrap().map(|entry| entry.unwrap().path());
    let prefix = shared_memory.join(format!("pagelab-record-{process}-")).display().to_string();
    entries.filter(|path| path.to_string_lossy().starts_with(&prefix)).collect()
}

#[test]
fn what_a_killed_recording_leaves_is_removed_by_the_next() {
    let here = [recording("qemu-x86_64"), ("tmpfs at /dev/shm", Path::new("/dev/shm").is_dir())];
    if !(needs(&here) && needs(&[root(), program("unshare")])) {
        return;
    }
    // Shared memory of its own, where no other recording removes what a killed one left.
    let (bench, shared_memory) = (Bench::new(), tempfile::tempdir_in("/dev/shm").unwrap());
    let record = |output: &str, command: &[&str]| {
        let script = "mount --bind \"$0\" /dev/shm && exec \"$@\"";
        let mut outer = Command::new("unshare");
        outer.args(["--mount", "sh", "-c", script]).arg(shared_memory.path());
        common::wrap(&mut outer, &record(&bench, &bench.word(output), command));
        outer
    };
    let directories = |process: u32| directories(shared_memory.path(), process);
    // Each has a trace of its own: of two that write one file, one is refused.
    let start = |output: &str| {
        let mut command = record(output, &["/bin/sleep", "6000"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.begin()
    };
    let (mut killed, alive) = (start("killed"), start("alive"));
    let has_begun = |process: u32| !directories(process).is_empty();
    assert!(common::within(common::LIMIT, || has_begun(killed.id()) && has_begun(alive.id())));
    let emulator = || {
        let children = format!("/proc/{0}/task/{0}/children", killed.id());
        fs::read_to_string(children).unwrap_or_default().trim().to_owned()
    };
    assert!(common::within(common::LIMIT, || !emulator().is_empty()));
    let (process, emulator) = (killed.id(), emulator());
    let kill = |process: &str| Command::new("kill").args(["-KILL", process]).status().unwrap();
    kill(&process.to_string());
    killed.wait();
    kill(&emulator);
    assert_eq!(directories(process).len(), 1, "a killed process removes nothing");
    record("other", &["/bin/true"]).ran().says(0, &[]);
    assert_eq!(directories(process), Vec::<PathBuf>::new());
    assert_eq!(directories(alive.id()).len(), 1, "somebody still has it");
}
