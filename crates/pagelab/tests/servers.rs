//! Tests of servers that run under a policy, driven by a client that does not.

mod common;

use std::net::TcpListener;
use std::process::Stdio;

use common::*;

/// A TCP port of the loopback interface that was free a moment ago.
fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

fn redis() -> bool {
    needs(&[root(), program("redis-server"), program("redis-benchmark"), program("redis-cli")])
}

/// Compares a small redis-server under the policies.
fn compare_redis(bench: &Bench) -> Ran {
    let port = free_port();
    let server = format!("redis-server --port {port} --bind 127.0.0.1 --save '' --appendonly no --disable-thp no");
    let ready = format!("redis-cli -p {port} ping");
    let client = "redis-benchmark -q -t set,get -n 3000 -r 100000 -d 512 -p";
    let client: Vec<String> = client.split(' ').chain([port.as_str()]).map(str::to_string).collect();
    let metric = ["--metric", r"rps=GET: ([0-9.]+) requests per second", "--primary", "rps"];
    let options = ["-p", "default,base,thp", "--server", &server, "--ready", &ready, "--json"];
    bench.compare(&[&options[..], &metric, &QUICK].concat(), &client).ran()
}

#[test]
fn redis_under_policies_gives_its_throughput() {
    if !redis() {
        return;
    }
    let bench = Bench::new();
    let document = compare_redis(&bench).json();
    assert_eq!(document["ended"]["reason"], "blocks", "{:#}", document["ended"]);
    assert_eq!(document["invocation"]["command"][0], "redis-server");
    assert_eq!(document["invocation"]["client"][0], "redis-benchmark");
    for label in ["default", "base", "thp"] {
        let arm = arm(&document, label);
        assert!(arm["medians"]["rps"].as_f64().unwrap() > 100.0, "{arm:#}");
        assert!(arm["medians"]["peak_resident_bytes"].as_f64().unwrap() > 1e6, "the server's: {arm:#}");
        assert!(arm["verdict"]["answered_calls"].as_array().unwrap().is_empty(), "{arm:#}");
    }
    assert_eq!(arm(&document, "base")["verdict"]["holding"], "held");
    let covered = |label: &str| arm(&document, label)["verdict"]["coverage_ratio"].as_f64().unwrap();
    assert!(covered("thp") > 0.3, "a small server has much memory in small mappings: {}", covered("thp"));
    let throughput = document["design"]["metrics"].as_array().unwrap().iter().find(|metric| metric["name"] == "rps");
    assert_eq!(throughput.unwrap()["direction"], "higher");
}

/// Redis and MariaDB disable THP for themselves. The policy stays in force, and its row reports the call.
#[test]
fn answers_a_program_that_turns_thp_off_and_reports_it() {
    let python = python();
    if !needs(&[root(), ("python3", python.is_some())]) {
        return;
    }
    let python = python.unwrap();
    let bench = Bench::new();
    let program = "import ctypes, mmap; ctypes.CDLL(None).prctl(41, 1, 0, 0, 0); m = mmap.mmap(-1, 256 << 20, \
                   flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\nfor at in range(0, len(m), 4096): m[at] = 1";
    let options = [&["-p", "default,thp", "--full"][..], &QUICK].concat();
    let ran = bench.compare(&options, &words_of(&[&python, "-c", program])).ran();
    ran.assert_exit(0, &[]).assert_stdout(&["PR_SET_THP_DISABLE"]);
    let document = bench.stored(1);
    let verdict = &arm(&document, "thp")["verdict"];
    assert!(verdict["answered_calls"][0]["call"].as_str().unwrap().contains("PR_SET_THP_DISABLE"), "{verdict:#}");
    assert_eq!(verdict["holding"], "held", "{verdict:#}");
    assert_eq!(arm(&document, "default")["verdict"]["answered_calls"].as_array().unwrap().len(), 0);
}

#[test]
fn the_client_is_timed_and_the_server_is_ended() {
    let bench = Bench::new();
    let server = bench.script("server", "trap 'exit 0' TERM; while :; do sleep 0.01; done");
    let options = [&["-p", "default,base", "--json", "--server", &server, "--ready", "true"][..], &QUICK].concat();
    let document = bench.compare(&options, &words_of(&["sleep", "0.1"])).ran().json();
    assert_eq!(document["ended"]["reason"], "blocks", "{:#}", document["ended"]);
    for trial in document["trials"].as_array().unwrap() {
        let wall_s = observed(trial, "wall_s").unwrap();
        assert!(wall_s >= 0.1, "{wall_s}");
    }
    assert_eq!(processes_with(&server), []);
}

#[test]
fn reports_a_failed_server_soon() {
    let bench = Bench::new();
    let dies = bench.script("dies", "echo no room >&2; sleep 0.1; exit 3");
    let silent = bench.script("silent", "sleep 0.1; exit 5");
    let daemon = bench.script("daemon", "sleep 0.3 & exit 0");
    let waits = bench.script("waits", "sleep 1000");
    for (server, ready, client, parts) in [
        (&dies, "false", "true", &["server ended by itself", "exit status 3", "no room"][..]),
        (&dies, "true", "sleep", &["server ended by itself", "exit status 3", "no room"]),
        (
            &silent,
            "false",
            "true",
            &[
                "server ended by itself (exit status 5); it printed nothing; run it by itself to see why: --server needs",
            ],
        ),
        (&silent, "true", "sleep", &["server ended by itself (exit status 5); it printed nothing"]),
        (
            &daemon,
            "false",
            "true",
            &["(exit status 0); it printed nothing; if it forks into the background, keep it in the foreground"],
        ),
        (&waits, "false", "true", &["server was not ready after 1 s", "--ready-time"]),
        (&waits, "sleep 1000", "true", &["server was not ready after 1 s"]),
        (&waits, "true", "false", &["exit status 1"]),
    ] {
        // If a failing server were noticed too late, the reported failure would be another: that the trial took too
        // long.
        let limits = ["--ready-time", "1s", "--trial-time", "8s"];
        let options = [&["-p", "default,base", "--server", server, "--ready", ready], &limits[..]].concat();
        let client = if client == "sleep" { words_of(&["sleep", "1000"]) } else { words_of(&[client]) };
        bench.compare(&options, &client).ran().assert_exit(1, parts);
        assert_eq!(processes_with(&bench.word("")), [], "{server}, {ready}");
    }
}

#[test]
fn reports_a_missing_server_probe_or_client_as_a_shell_does() {
    let bench = Bench::new();
    let missing = "no-such-program";
    for (server, ready, client) in [(missing, "true", "true"), ("true", missing, "true"), ("true", "true", missing)] {
        let options = ["-p", "default,base", "--server", server, "--ready", ready];
        bench.compare(&options, &words_of(&[client])).ran().assert_exit(127, &["\"no-such-program\" was not found"]);
    }
    assert!(bench.listed().is_empty(), "nothing began");
}

/// When databases end, they free their buffers in many pieces, or drop their content first (MariaDB). That is not part of the timed
/// section.
#[test]
fn sees_memory_that_a_server_frees_at_its_end() {
    const PIECES: u64 = 200;
    const POOL: u64 = 300;
    if !needs(&[program("python3")]) {
        return;
    }
    let bench = Bench::new();
    let server = format!(
        "import mmap, os, signal\nflags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS\n\
         pieces = [mmap.mmap(-1, 1 << 20, flags=flags) for _ in range({PIECES})]\n\
         pool = mmap.mmap(-1, {POOL} << 20, flags=flags)\n\
         for piece in pieces + [pool]:\n for at in range(0, len(piece), mmap.PAGESIZE): piece[at] = 1\n\
         signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\nopen('{}', 'w')\n\
         signal.sigwait([signal.SIGTERM])\nfor piece in pieces: piece.close()\n\
         pool.madvise(mmap.MADV_DONTNEED)\npool.close()\nos.remove('{}')",
        bench.word("ready"),
        bench.word("ready")
    );
    let (server, ready) = (format!("python3 -c \"{server}\""), format!("test -e {}", bench.word("ready")));
    let options = [&["-p", "default,base", "--json", "--server", &server, "--ready", &ready][..], &QUICK].concat();
    let document = bench.compare(&options, &words_of(&["sleep", "0.05"])).ran().json();
    let rows = arm(&document, "base")["census"].as_array().unwrap().iter();
    let anonymous = rows.filter(|row| row["backing"] == "anonymous");
    let bytes: u64 = anonymous.map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert!(bytes >= (PIECES + POOL) << 20, "{bytes} bytes were seen: {document:#}");
}

/// The client's own children have sessions of their own. They are neither traced nor in a process group of pagelab.
#[test]
fn a_killed_pagelab_leaves_nothing_of_a_client_behind() {
    let bench = Bench::new();
    let server = bench.script("server", "sleep 1000");
    let grandchild = bench.script("grandchild", "sleep 1000");
    let client = bench.script("client", &format!("setsid {grandchild} & {grandchild}"));
    let options = ["-p", "default,base", "--server", &server, "--ready", "true"];
    let mut pagelab = bench.compare(&options, &[client]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert!(within(LIMIT, || processes_with(&grandchild).len() >= 2), "the client has begun");
    pagelab.kill().unwrap();
    pagelab.wait().unwrap();
    assert!(within(LIMIT, || processes_with(&bench.word("")).is_empty()), "{:?}", processes_with(&bench.word("")));
}
