//! Tests of recordings that cannot write their data, and of leftovers of killed recordings.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Bench, Ran, Runs, needs, program, recording, root};
use testing::Random;

fn record(bench: &Bench, output: &str, command: &[&str]) -> Command {
    let mut record = bench.pagelab(&["record", "-o", output, "--"]);
    record.args(command).env("PAGELAB_QEMU_PLUGIN", testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab"))));
    record
}

/// Runs a command with a file system of this size mounted at the bench's `small`.
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
fn a_full_disk_ends_with_2_and_lost_parts_are_reported() {
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
    ran.assert_exit(
        2,
        &[
            "No space left on device",
            "could not be written any further",
            "of each thread are kept, the rest is lost",
            "ended with exit status: 0",
        ],
    );
    // The part that was written can be read, and is reported as cut off.
    let simulated = bench.pagelab(&["sim", "kept", "-p", "base", "--json"]).ran().json();
    assert_eq!(simulated["traces"][0]["cut_off"], true);
    // The trace that cannot be completed belongs to a process other than the first.
    let shell = format!("/usr/bin/perl -e '{script}'; exit 3");
    let command = record(&bench, &trace, &["/bin/sh", "-c", &shell]);
    let ran = on_a_small_disk(&bench, 128, &command, ":");
    ran.assert_exit(
        2,
        &["No space left on device", ".exec1: it could not be written any further", "ended with exit status: 3"],
    );
    // Not even the header can be written.
    let full = record(&bench, &trace, &["/bin/true"]);
    let ran = on_a_small_disk(&bench, 4, &full, ":");
    ran.assert_exit(2, &["No space left on device", "Free some space"]);
    // With enough space there is no message.
    on_a_small_disk(&bench, 65536, &record(&bench, &trace, &["/bin/true"]), ":").assert_exit(0, &[]);
}

/// The temporary directories that a recording of this process has in these places.
fn directories(places: &[PathBuf], process: u32) -> Vec<PathBuf> {
    let entries = places.iter().flat_map(|place| fs::read_dir(place).into_iter().flatten());
    let prefix = format!("pagelab-record-{process}-");
    let is_of_process =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
    entries.map(|entry| entry.unwrap().path()).filter(is_of_process).collect()
}

/// The processes whose working directory is the bench's: the processes of its recordings, whatever program they
/// execute.
fn processes_in(bench: &Bench) -> Vec<(u32, String)> {
    let processes =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_in =
        |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|directory| directory == bench.path(""));
    let line = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
    processes.filter(is_in).map(|pid| (pid, line(pid))).collect()
}

/// A command that never ends: it forks and execs, also in detached children; or it is a machine that runs forever.
fn endless(bench: &Bench, is_system: bool) -> Vec<String> {
    if is_system {
        let machine = "qemu-system-aarch64 -nodefaults -no-user-config -display none -m 64M -M virt -cpu cortex-a57";
        return machine.split(' ').map(str::to_owned).collect();
    }
    let loops = bench.script("loops", "while :; do /bin/true; done");
    vec!["/bin/sh".to_owned(), bench.script("program", &format!("setsid {loops} & while :; do :; done"))]
}

/// The header at the start of a trace is shorter than this.
const HEADER_BYTES: u64 = 4096;

/// The number of times that a recorder is killed. `PAGELAB_TORTURE=full` selects the larger number.
fn kills() -> u32 {
    if std::env::var_os("PAGELAB_TORTURE").is_some_and(|size| size == "full") { 60 } else { 5 }
}

#[test]
fn record_killed_by_sigkill_leaves_no_process_and_no_file_but_a_readable_trace() {
    if !needs(&[recording("qemu-x86_64"), program("setsid")]) {
        return;
    }
    // Root's temporary files must be in a directory that only root can change.
    let (bench, temporary) = (Bench::new(), tempfile::tempdir().unwrap());
    let has_machines = needs(&[recording("qemu-system-aarch64")]);
    let mut random = Random::new();
    let mut killed = Vec::new();
    for round in 0..kills() {
        let is_system = has_machines && round % 3 == 2;
        let command = endless(&bench, is_system);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let output = format!("trace-{round}");
        let mut record = record(&bench, &bench.word(&output), &words);
        if is_system {
            record = bench.pagelab(&[&["record", "--system", "-o", &output, "--"], &words[..]].concat());
            record.env("PAGELAB_QEMU_PLUGIN", testing::recorder(Path::new(env!("CARGO_BIN_EXE_pagelab"))));
        }
        record.env("TMPDIR", temporary.path());
        let mut running = record.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).begin();
        let pid = running.id();
        // Every second recording is killed as soon as it could leave something behind.
        if round % 2 == 0 {
            let has_begun = || fs::metadata(bench.path(&output)).is_ok_and(|file| file.len() > 0);
            assert!(common::within(common::LIMIT, || running.is_over() || has_begun()));
            assert!(has_begun(), "round {round}: it ended before anything was recorded");
        }
        std::thread::sleep(Duration::from_micros(random.below(800_000)));
        running.kill();
        let gone = common::within(common::LIMIT, || processes_in(&bench).is_empty());
        assert!(gone, "round {round}: left {:?}", processes_in(&bench));
        for trace in traces(&bench, &output).into_iter().take(4) {
            let checked = bench.pagelab(&["trace", "check", &trace]).ran();
            // If the recording was killed while it wrote the header, nothing was recorded, and the file is refused.
            let has_begun = fs::metadata(bench.path(&trace)).unwrap().len() >= HEADER_BYTES;
            let is_sound = [Some(0), Some(1)].contains(&checked.code) || !has_begun && checked.code == Some(2);
            assert!(is_sound, "round {round}: {trace}: {checked}");
        }
        killed.push(pid);
    }
    let mut last = record(&bench, &bench.word("last"), &["/bin/true"]);
    last.env("TMPDIR", temporary.path()).ran().assert_exit(0, &[]);
    let places = [PathBuf::from("/dev/shm"), temporary.path().to_owned()];
    let left: Vec<PathBuf> = killed.iter().flat_map(|pid| directories(&places, *pid)).collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}

/// The non-empty traces of a recording.
fn traces(bench: &Bench, output: &str) -> Vec<String> {
    let entries = fs::read_dir(bench.path("")).unwrap().flatten();
    let written = entries.filter(|entry| entry.metadata().is_ok_and(|file| file.len() > 0));
    let names = written.map(|entry| entry.file_name().into_string().unwrap());
    let is_of_it = |name: &String| name == output || name.starts_with(&format!("{output}."));
    let mut names: Vec<String> = names.filter(is_of_it).collect();
    names.sort_by_key(String::len);
    names
}

#[test]
fn the_next_recording_removes_leftovers_of_a_killed_one() {
    let here = [recording("qemu-x86_64"), ("tmpfs at /dev/shm", Path::new("/dev/shm").is_dir())];
    if !(needs(&here) && needs(&[root(), program("unshare")])) {
        return;
    }
    // The test has its own directory for shared memory, so that no other recording removes the leftovers of a killed
    // one.
    let (bench, shared_memory) = (Bench::new(), tempfile::tempdir_in("/dev/shm").unwrap());
    let record = |output: &str, command: &[&str]| {
        let script = "mount --bind \"$0\" /dev/shm && exec \"$@\"";
        let mut outer = Command::new("unshare");
        outer.args(["--mount", "sh", "-c", script]).arg(shared_memory.path());
        common::wrap(&mut outer, &record(&bench, &bench.word(output), command));
        outer
    };
    let directories = |process: u32| directories(&[shared_memory.path().to_owned()], process);
    // Each recording has a trace of its own: if two recordings wrote one file, one of them would be refused.
    let start = |output: &str| {
        let mut command = record(output, &["/bin/sleep", "6000"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.begin()
    };
    let (killed, alive) = (start("killed"), start("alive"));
    let has_begun = |process: u32| !directories(process).is_empty();
    assert!(common::within(common::LIMIT, || has_begun(killed.id()) && has_begun(alive.id())));
    let process = killed.id();
    killed.kill();
    assert_eq!(directories(process).len(), 1, "a killed process removes nothing");
    record("other", &["/bin/true"]).ran().assert_exit(0, &[]);
    assert_eq!(directories(process), Vec::<PathBuf>::new());
    assert_eq!(directories(alive.id()).len(), 1, "another process uses it");
}

/// Ctrl-C on a terminal also reaches the program directly, but SIGTERM from a supervisor reaches only pagelab.
#[test]
fn a_stopped_recording_leaves_no_process() {
    if !needs(&[recording("qemu-x86_64"), program("setsid")]) {
        return;
    }
    let bench = Bench::new();
    let command = endless(&bench, false);
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut recording = record(&bench, &bench.word("trace"), &words);
    let mut recording = recording.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).begin();
    let forks = || {
        fs::read_dir(bench.path(""))
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("trace."))
            .count()
            > 2
    };
    assert!(common::within(common::LIMIT, forks), "it does not fork");
    common::send("TERM", recording.id());
    assert_eq!(recording.wait().code(), Some(128 + 15));
    assert_eq!(processes_in(&bench), []);
}
