//! Tests that processes that cannot be inspected are refused with a remedy, and that changes during the inspection are
//! reported.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::provoked::Provoked;
use crate::common::{Bench, LIMIT, Runs, needs, program, root, send, within};

#[test]
fn refuses_processes_without_memory_by_name() {
    let bench = Bench::new();
    bench.pagelab(&["inspect", "4194304"]).ran().assert_exit(2, &["no process 4194304", "hidepid", "PID namespace"]);
    bench.pagelab(&["inspect", "2"]).ran().assert_exit(2, &["kernel thread"]);
    let expected = ["expected a PID, or the name of a running process", "found \"no such name\"", "inspect --all"];
    bench.pagelab(&["inspect", "no such name"]).ran().assert_exit(2, &expected);
    bench.pagelab(&["inspect", "kthreadd"]).ran().assert_exit(2, &["kernel thread"]);
    bench.pagelab(&["inspect", "--tree", "me"]).ran().assert_exit(2, &["expected a PID, found \"me\""]);
    bench.pagelab(&["inspect", "me", "--root", "x"]).ran().assert_exit(2, &["expected the PID of a captured process"]);
    bench.pagelab(&["inspect"]).ran().assert_exit(2, &["required"]);
    bench.pagelab(&["inspect", "1", "--all"]).ran().assert_exit(2, &["cannot be used with"]);
    bench.pagelab(&["inspect", "--tree", "4194304"]).ran().assert_exit(2, &["no process 4194304"]);
    bench
        .pagelab(&["inspect", "--cgroup", "/no/such/group"])
        .ran()
        .assert_exit(2, &["no control group", "cgroup.procs"]);
    bench.pagelab(&["inspect", "--", "/no/such/program"]).ran().assert_exit(127, &["/no/such/program"]);
}

#[test]
fn another_pid_namespace_is_named_as_a_reason() {
    if !needs(&[root(), program("unshare")]) {
        return;
    }
    let bench = Bench::new();
    let within = |words: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--mount-proc"]).arg(bench.program()).args(words);
        unshare.ran()
    };
    within(&["inspect", &std::process::id().to_string()])
        .assert_exit(2, &["no process", "another PID namespace", "hidepid"]);
    within(&["inspect", "--all"]).assert_exit(2, &["no other process with memory", "hidepid", "another PID namespace"]);
}

#[test]
fn sizes_alone_name_no_causes_and_say_what_was_not_read() {
    let bench = Bench::new();
    let own = std::process::id().to_string();
    for more in [&[][..], &["--regions"]] {
        let ran = bench.pagelab(&[&["inspect", &own, "--sizes"], more].concat()).ran();
        ran.assert_stdout(&["not read (smaps)", "by 4K"]);
        let causes = ["why not larger:", "why not larger (", "what no setting makes larger", "remedy"];
        assert!(!causes.iter().any(|part| ran.stdout.contains(part)), "{ran}");
    }
    let document = bench.pagelab(&["inspect", &own, "--sizes", "--json"]).ran().json();
    assert_eq!(document["sight"]["flags"], false);
    let regions = document["processes"][0]["regions"].as_array().unwrap();
    assert!(!regions.is_empty() && regions.iter().all(|region| region["causes"].is_null()), "{document}");
    bench.pagelab(&["inspect", &own, "--sizes", "--collapse"]).ran().assert_exit(2, &["cannot be used with"]);
}

#[test]
fn a_zombie_is_called_one() {
    let bench = Bench::new();
    // The shell starts a child that ends, and then execs a program that does not wait for the child, which stays a
    // zombie.
    let mut parent = Command::new("sh");
    parent.args(["-c", "true & exec sleep 60"]).stdin(Stdio::null());
    let parent = parent.begin();
    let zombie = || {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", parent.id())).ok()?;
        let child = children.split_whitespace().next()?.to_string();
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
        stat.contains(") Z ").then_some(child)
    };
    assert!(within(LIMIT, || zombie().is_some()));
    let words = ["inspect", &zombie().unwrap()].map(String::from);
    bench
        .pagelab(&words.each_ref().map(String::as_str))
        .ran()
        .assert_exit(2, &["is a zombie", "has not waited for it"]);
}

#[test]
fn another_users_process_is_refused_and_ones_own_is_not() {
    if !needs(&[root(), program("setpriv"), program("gcc")]) {
        return;
    }
    let provoked = Provoked::start("advised_late").unwrap();
    let bench = &provoked.bench;
    let refused = bench.pagelab(&["inspect", &provoked.pid()]).as_nobody().ran();
    refused.assert_exit(2, &["Permission denied", "root", "same user"]);
    let all = bench.pagelab(&["inspect", "--all"]).as_nobody().ran();
    all.assert_stdout(&["could not be inspected", "Permission denied"]);
    // Without root, users can inspect their own programs: leaves are exact, and folios are reported as not visible.
    let program = bench.word("pagelab");
    let touch = [&program, "workload", "page-touch", "--bytes", "128M", "--answer-only"];
    let own = bench.pagelab(&[&["inspect", "--json", "--"], &touch[..]].concat()).as_nobody().ran();
    assert_eq!(own.code, Some(0), "{own}");
    let document = &own.stdout[own.stdout.find("{\n").unwrap()..];
    let document: serde_json::Value = serde_json::from_str(document).unwrap();
    assert_eq!(
        (document["sight"]["by_page"].as_bool(), document["sight"]["folios"].as_bool()),
        (Some(true), Some(false))
    );
    // The program frees its memory before it ends, which is reported.
    let partial = document["processes"][0]["partial"][0].as_str().unwrap_or_default();
    assert!(partial.contains("at the peak"), "{document:#}");
    assert!(document["peak"]["process"]["resident_bytes"].as_u64() > Some(100 << 20), "{document:#}");
}

#[test]
fn names_cannot_move_the_cursor() {
    let bench = Bench::new();
    let name = "a\u{1b}[2Jb";
    std::fs::copy("/bin/sleep", bench.path(name)).unwrap();
    let sleep = Command::new(bench.path(name)).arg("60").stdin(Stdio::null()).begin();
    let pid = sleep.id().to_string();
    let executed = || std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.contains("[2J"));
    assert!(within(LIMIT, executed));
    for words in [&["inspect", &pid][..], &["inspect", &pid, "--regions"], &["inspect", "--tree", &pid]] {
        let ran = bench.pagelab(words).ran();
        assert_eq!(ran.code, Some(0), "{ran}");
        assert!(!ran.stdout.contains('\u{1b}') && ran.stdout.contains("\\x1b[2J"), "{ran}");
    }
}

#[test]
fn a_process_that_changes_meanwhile_gives_an_answer() {
    if !needs(&[program("python3")]) {
        return;
    }
    let bench = Bench::new();
    // The script maps, unmaps and executes itself, again and again.
    let script = "import mmap,os,sys,time\n\
                  end=float(sys.argv[1])\n\
                  for _ in range(20):\n m=mmap.mmap(-1,8<<20)\n m[0]=1\n m.close()\n\
                  os.execv(sys.executable,[sys.executable,'-c',sys.orig_argv[2],str(end)]) if time.time()<end else None\n";
    let end = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 8;
    let mut python = Command::new("python3").args(["-c", script, &end.to_string()]).stdin(Stdio::null()).begin();
    let pid = python.id().to_string();
    let mut looks = 0;
    while !python.is_over() {
        let ran = bench.pagelab(&["inspect", &pid]).ran();
        assert!(matches!(ran.code, Some(0 | 2)) && !ran.stderr.contains("panicked"), "{ran}");
        looks += usize::from(ran.code == Some(0));
    }
    assert!(looks > 0);
}

#[test]
fn reports_a_pid_that_another_process_reuses() {
    if !needs(&[root(), program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/reborn.c");
    let compiled = bench.word("reborn");
    assert!(Command::new("gcc").arg("-O1").arg(source).arg("-o").arg(&compiled).status().expect("gcc").success());
    let mut parent = Command::new(&compiled).stdin(Stdio::piped()).stdout(Stdio::piped()).begin();
    let (mut orders, mut lines) = (parent.stdin(), BufReader::new(parent.stdout()).lines());
    let pid = lines.next().unwrap().unwrap();
    let mut again = || {
        writeln!(orders).unwrap();
        lines.next().is_some()
    };
    if !again() {
        return testing::skip("a kernel that gives a process its number (clone3 with set_tid)");
    }
    // The process is replaced by another one with the same PID between two samples. pagelab is stopped meanwhile, because for a
    // moment no process has the PID.
    let mut watching = bench.pagelab(&["inspect", &pid, "--every", "5s"]);
    let mut watching = watching.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).begin();
    let mut stdout = BufReader::new(watching.stdout());
    stdout.read_line(&mut String::new()).unwrap();
    send("STOP", watching.id());
    assert!(again());
    send("CONT", watching.id());
    assert!(within(LIMIT, || watching.is_over()));
    watching.ran().assert_exit(0, &[&format!("process {pid} has ended, and its number belongs to another process")]);
    // If the process is replaced during an inspection, there is an answer or a refusal, but never an answer that mixes two processes.
    // Reading 4000 regions takes half a second, so nearly every attempt stops pagelab during the inspection.
    let was_replaced = within(LIMIT, || {
        let looking = bench.pagelab(&["inspect", &pid]).stdout(Stdio::piped()).stderr(Stdio::piped()).begin();
        std::thread::sleep(Duration::from_millis(150));
        send("STOP", looking.id());
        assert!(again());
        send("CONT", looking.id());
        let ran = looking.ran();
        assert!(matches!(ran.code, Some(0 | 2)) && !ran.stderr.contains("panicked"), "{ran}");
        ran.stderr.contains("its PID belongs to another process now: inspect again")
    });
    assert!(was_replaced, "{pid}");
}
