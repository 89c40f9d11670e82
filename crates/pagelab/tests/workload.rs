//! Tests of the built-in workloads as commands: their output, and how they end.

mod common;

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::*;

fn workload(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pagelab"))
        .arg("workload")
        .args(arguments.split_whitespace())
        .output()
        .expect("the program under test starts")
}

fn line(arguments: &str) -> String {
    let output = workload(arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn figure(line: &str, name: &str) -> f64 {
    let value = line.split_whitespace().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no {name} in {line}")).parse().unwrap()
}

#[test]
fn fork_cow_times_its_forks_and_finds_both_memories_right() {
    let line = line("fork-cow --bytes 1M --share 0.5 --rounds 3");
    assert!(line.starts_with("name=fork-cow bytes=1048576 ") && line.ends_with('\n'), "{line}");
    let page_bytes = figure(&line, "page_bytes");
    assert_eq!(figure(&line, "fork_count"), 3.0);
    assert_eq!(figure(&line, "cow_write_count"), 3.0 * 0.5 * 1048576.0 / page_bytes);
    assert!(figure(&line, "fork_p50_ns") > 0.0 && figure(&line, "child_p50_ns") > figure(&line, "cow_write_p50_ns"));
}

#[test]
fn the_answer_alone_is_the_same_in_every_run() {
    for arguments in
        ["fork-cow --bytes 256K --rounds 2", "gups --bytes 64K --updates 100", "stream --bytes 48K --rounds 2"]
    {
        let answer = |arguments: &str| line(&format!("{arguments} --answer-only"));
        assert_eq!(answer(arguments), answer(arguments));
        assert!(!answer(arguments).contains("_ns="), "{}", answer(arguments));
    }
}

#[test]
fn every_touched_page_is_timed_once() {
    let line = line("page-touch --bytes 1M --density 0.25 --order random --read-first");
    let touches = 0.25 * 1048576.0 / figure(&line, "page_bytes");
    assert_eq!((figure(&line, "read_count"), figure(&line, "write_count")), (touches, touches));
    assert!(figure(&line, "write_p50_ns") <= figure(&line, "write_p99_ns"));
    assert!(figure(&line, "write_p99_ns") <= figure(&line, "write_max_ns"));
}

#[test]
fn bad_arguments_end_with_2_and_name_the_option() {
    for (arguments, option) in
        [("gups --bytes 3", "--bytes"), ("page-touch --density 2", "--density"), ("chase --bytes x", "--bytes")]
    {
        let output = workload(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {message}");
        assert!(message.contains(option) && message.contains("expected"), "{message}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn memory_that_the_kernel_refuses_ends_with_1() {
    let program = env!("CARGO_BIN_EXE_pagelab");
    let script = format!("ulimit -v 262144; exec {program} workload gups --bytes 1G --updates 1");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("cannot map 1073741824 bytes") && message.contains("ulimit -v"), "{message}");
}

#[test]
fn a_process_of_one_thread_moves_its_break_and_forks() {
    for arguments in ["brk-growth --seconds 0.01", "fork-exec --seconds 0.01 --bytes 64K"] {
        let first = line(arguments);
        assert!(figure(&first, "operations") >= 5.0 && figure(&first, "ns_per_operation") > 0.0, "{first}");
        let answer = |seed: &str| line(&format!("{arguments} --answer-only --seed {seed}"));
        assert_eq!(answer("1"), answer("1"));
        assert_ne!(answer("1"), answer("2"));
    }
}

/// Minor faults of a run without transparent huge pages, as the kernel counts them for this process.
fn minor_faults_under_base(arguments: &str) -> f64 {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_pagelab"))
        .args(["compare", "-p", "base", "--aa", "--json", "--blocks", "1", "--min-blocks", "1", "--store"])
        .arg(directory.path().join("results.sqlite"))
        .args(["--", env!("CARGO_BIN_EXE_pagelab"), "workload"])
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let faults = &document["arms"][0]["medians"]["minor_faults"];
    faults.as_f64().unwrap_or_else(|| panic!("no faults in {:#}", document["arms"][0]))
}

#[test]
fn each_page_faults_once() {
    // The lock is needed because file pages that leave the page cache cause faults too.
    let _alone = Alone::wait();
    let arguments = |seconds: f64| format!("page-faults --seconds {seconds} --answer-only");
    // With this time the workload makes two rounds, and with the shortest time one. The difference is a round, which
    // touches 64M.
    let base_pages = f64::from(64 << 20) / figure(&line("page-touch --bytes 64K"), "page_bytes");
    let (one, two) = (minor_faults_under_base(&arguments(0.01)), minor_faults_under_base(&arguments(0.05)));
    assert!((two - one - base_pages).abs() < 0.01 * base_pages, "{base_pages} pages: {one} faults, then {two}");
    assert!((base_pages..1.1 * base_pages).contains(&one), "{base_pages} pages: {one} faults");
}

#[test]
fn a_program_that_cannot_be_executed_is_named() {
    let output = workload("fork-exec --seconds 0.002 --program ./no-such-program");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("cannot execute \"./no-such-program\"") && message.contains("--program"), "{message}");
    let output = workload("fork-exec --seconds 0.002 --program false");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("false ended with status 1; expected 0") && message.contains("--program"), "{message}");
}

#[test]
fn files_that_were_made_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["file-churn", "directory-read"] {
        let line = line(&format!("{name} --seconds 0.01 --directory {}", directory.path().display()));
        assert!(figure(&line, "ns_per_operation") > 0.0, "{line}");
        assert_eq!(directory.path().read_dir().unwrap().count(), 0, "{name}");
    }
}

#[test]
fn removes_its_files_when_the_workload_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let files = || directory.path().read_dir().unwrap().count();
    for name in ["file-churn", "directory-read"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_pagelab"))
            .args(["workload", name, "--seconds", "1000", "--directory"])
            .arg(directory.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        while files() == 0 {
            assert!(child.try_wait().unwrap().is_none(), "{name} ended before it had a directory");
            std::thread::sleep(Duration::from_millis(1));
        }
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(128 + 15), "{name}: {message}");
        assert!(message.contains("stopped by signal 15"), "{message}");
        assert_eq!(files(), 0, "{name}");
    }
}

#[test]
fn copies_run_at_the_same_time_and_must_say_the_same() {
    let one = line("copies --count 1 --answer-only -- pagelab workload syscalls --seconds 0.01 --answer-only");
    let two = line("copies --count 2 --answer-only -- pagelab workload syscalls --seconds 0.01 --answer-only");
    assert_eq!(one.replace("count=1", "count=2"), two);
    for (arguments, code, message) in [
        ("copies --count 2 -- false", 1, "of false ended with exit status: 1"),
        ("copies -- no-such-program", 1, "no-such-program cannot be run"),
        ("copies --count 0 -- true", 2, "`processors`, or a number above 0"),
        (
            "copies --count 2 -- pagelab workload chase --bytes 64K --steps 1000",
            1,
            "copy 2 of pagelab printed different output",
        ),
    ] {
        let ended = workload(arguments);
        let printed = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(code) && printed.contains(message), "{arguments}: {printed}");
    }
}

/// The tool, the raw file and the figures were made by hand, because SPEC CPU requires a licence.
#[test]
fn a_benchmark_of_spec_cpu_is_run_and_its_raw_file_read() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/spec-cpu");
    let spec = tempfile::tempdir().unwrap();
    let place = spec.path().display().to_string();
    let runcpu = format!(
        "test -n \"$SPEC\" || exit 9\ncase $1 in nothing) exit 0;; fails) echo no license; exit 3;; esac\n\
                          echo '  format: raw -> {fixtures}/unverified-cpu2017.rsf'\n"
    );
    std::fs::write(spec.path().join("shrc"), "export SPEC=$PWD PATH=$PWD/bin:$PATH\n").unwrap();
    std::fs::create_dir(spec.path().join("bin")).unwrap();
    std::fs::write(spec.path().join("bin/runcpu"), format!("#!/bin/sh\n{runcpu}")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(spec.path().join("bin/runcpu"), mode).unwrap();
    let ended = workload(&format!("spec-cpu --spec {place} -- runcpu 605.mcf_s"));
    let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(printed.contains("605.mcf_s base 000: 12.125 s") && printed.contains("reported_s=15.625"), "{printed}");
    let read = line(&format!("spec-cpu --raw {fixtures}/unverified-cpu2006.rsf --answer-only"));
    assert!(read.contains("suite=cpu2006 benchmarks=429.mcf/base,462.libquantum/base"), "{read}");
    for (arguments, code, message) in [
        ("spec-cpu".to_owned(), 2, "expected either --raw FILE or a command"),
        (format!("spec-cpu --raw {place}/none.rsf"), 2, "none.rsf"),
        (format!("spec-cpu --raw {place}/shrc"), 2, "not a raw result file of SPEC CPU"),
        ("spec-cpu --spec /nowhere -- runcpu".to_owned(), 2, "there is no /nowhere/shrc"),
        (format!("spec-cpu --spec {place} -- runcpu nothing"), 1, "names no raw result file"),
        (format!("spec-cpu --spec {place} -- runcpu fails"), 1, "no license"),
    ] {
        let ended = workload(&arguments);
        let printed = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(
            ended.status.code() == Some(code) && printed.contains(message),
            "{arguments}: {:?} {printed}",
            ended.status
        );
    }
}

#[test]
fn files_of_an_overlay_are_held_as_those_below_it() {
    let has_overlay = std::fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.contains("\toverlay\n"));
    if !needs(&[root(), program("unshare"), ("overlayfs in this kernel", has_overlay)]) {
        return;
    }
    let bench = Bench::new();
    let script = "cd \"$1\" && mount -t tmpfs memory . && cd \"$1\" && mkdir lower upper work files \
                  && mount -t overlay files -o lowerdir=lower,upperdir=upper,workdir=work files \
                  && exec \"$2\" workload page-cache --sizes 1,5K --directory files";
    let mut command = Command::new("unshare");
    // Root creates files only where no other user can change the path.
    let room = tempfile::tempdir().unwrap();
    command.args(["--mount", "sh", "-ec", script, "sh"]).arg(room.path()).arg(bench.program());
    let page = host::Host::open("/").unwrap().page_sizes().base.bytes();
    let held = |bytes: u64| format!("of_{bytes}_held_bytes={}", bytes.next_multiple_of(page));
    command.ran().assert_stdout(&["told_by=mincore", &held(1), &held(5120)]);
}

/// In the namespace, all other users of the host, including the host's root, have the same user ID.
#[test]
fn root_of_a_user_namespace_makes_files_where_the_user_who_made_it_does() {
    let bench = Bench::new();
    let in_namespace = |command: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "sh", "-c", command]).arg(bench.program()).current_dir(bench.path(""));
        if is_root() { unshare.as_nobody() } else { unshare }
    };
    if !needs(&[program("unshare"), program("setpriv")]) {
        return;
    }
    if in_namespace("true").ran().code != Some(0) {
        return testing::skip("the right to make a user namespace");
    }
    let mine = in_namespace("id -u; exec \"$0\" workload file-churn --seconds 0.01").ran();
    mine.assert_exit(0, &[]).assert_stdout(&["0 name=file-churn"]);
}
