//! Tests that trials that do not end by themselves are ended, and that this is reported; that a signal takes effect at any
//! moment; and the exit codes of runs without a result.

mod common;
#[path = "common/terminal.rs"]
mod terminal;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use terminal::{PATIENCE, Typist};

/// The time within which a comparison must end after a signal. This is shorter than the ten seconds after which the subreaper of
/// a tree kills the remaining processes, and some hundred times longer than the end usually takes.
const ENDED: Duration = Duration::from_secs(8);
/// The number of signals that are sent.
const SIGNALS: u64 = 30;

/// The program whose process trees are hard to end.
fn forks(bench: &Bench) -> Option<String> {
    if !needs(&[program("gcc")]) {
        return None;
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/forks.c");
    let status = Command::new("gcc").args(["-O1", "-o"]).arg(bench.path("forks")).arg(source).status().unwrap();
    assert!(status.success());
    Some(bench.word("forks"))
}

/// Pseudorandom numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    /// A new seed for each run, which is printed.
    fn seeded() -> Random {
        let mut seed = [0; 8];
        std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").unwrap(), &mut seed).unwrap();
        let seed = u64::from_le_bytes(seed);
        println!("seed {seed}");
        Random(seed)
    }

    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % below
    }
}

fn no_process_is_left(bench: &Bench) {
    let word = bench.word("");
    let gone = within(LIMIT, || processes_with(&word).is_empty());
    assert!(gone, "left over: {:?}", processes_with(&word));
}

#[test]
fn a_chain_of_forks_is_a_trial_that_ends() {
    let _alone = is_root().then(Alone::wait);
    let bench = Bench::new();
    let Some(forks) = forks(&bench) else { return };
    for chain in ["chain", "sessions"] {
        let options = ["-p", "default,base,default+no-huge", "--blocks", "6", "--min-blocks", "6", "--json"];
        let ran = bench.compare(&options, &words_of(&[&forks, chain])).ran();
        let trials = ran.assert_exit(0, &[]).json()["trials"].as_array().unwrap().len();
        assert_eq!(trials, 3 * 7, "{chain}: {ran}");
        no_process_is_left(&bench);
    }
}

/// The tree is tested twice: as the measured command, and as the command before each trial, which is not traced.
#[test]
fn a_signal_ends_any_tree_at_any_moment() {
    let leases = is_root() && has("unshare");
    let bench = if leases { Bench::with_own_lease() } else { Bench::new() };
    let Some(forks) = forks(&bench) else { return };
    let before = leases.then(settings);
    let mut random = Random::seeded();
    for round in 0..SIGNALS {
        let tree = ["chain", "sessions", "storm"][random.below(3) as usize];
        let (name, number) = [("INT", 2), ("TERM", 15)][random.below(2) as usize];
        let prepare = format!("{forks} {}", ["chain", "storm"][random.below(2) as usize]);
        let mut options = vec!["-p", "default,base,mthp-64k", "--blocks", "1000", "--min-blocks", "1000"];
        if random.below(4) == 0 {
            options.extend(["--prepare", &prepare]);
        }
        if before.is_none() {
            options[1] = "default,base";
        }
        let mut compare = bench.compare(&options, &words_of(&[&forks, tree]));
        let child = compare.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).begin();
        if before.is_some() {
            bench.await_lease(&child);
        } else {
            assert!(within(LIMIT, || processes_with(&forks).len() > 1));
        }
        std::thread::sleep(Duration::from_micros(random.below(300_000)));
        send(name, child.id());
        let since = Instant::now();
        let ran = child.ran();
        assert!(since.elapsed() < ENDED, "round {round}, {tree}: {:?}", since.elapsed());
        ran.assert_exit(128 + number, &[&format!("stopped by signal {number}")]);
        no_process_is_left(&bench);
        if let Some(before) = &before {
            assert_eq!(bench.settings_at_rest(), *before, "round {round}, {tree}");
        }
    }
}

#[test]
fn a_process_that_escapes_the_tracer_delays_no_trial() {
    let _alone = is_root().then(Alone::wait);
    let bench = Bench::new();
    let Some(forks) = forks(&bench) else { return };
    let options = [&["-p", "default,base,default+no-huge", "--check-output", "--json"][..], &QUICK].concat();
    let ran = bench.compare(&options, &words_of(&[&forks, "escape"])).ran();
    let document = ran.assert_exit(0, &[]).json();
    // The output of sha256sum for the line `printed`.
    let hash = "8f521f0f3624853f48fafedc6205f0f45cfd4851d0e1ac7a615f2fd4b87ab4c5";
    assert_eq!(document["trials"][0]["answer"]["stdout_sha256"], hash);
    no_process_is_left(&bench);
}

/// A command that hangs if THP is disabled for it, with a child that detaches.
fn hangs_under_base(bench: &Bench) -> Vec<String> {
    let forever = bench.script("forever", "while :; do sleep 0.05; done");
    let script = bench.script(
        "measured",
        &format!("while read -r name on; do [ \"$name $on\" = 'THP_enabled: 0' ] && {{ setsid {forever} & {forever}; }}; done < /proc/self/status; :"),
    );
    words_of(&[&script])
}

#[test]
fn a_policy_under_which_a_trial_takes_too_long_is_a_row() {
    let _alone = is_root().then(Alone::wait);
    let bench = Bench::new();
    let files = ["--csv", &bench.word("trials.csv"), "--html", &bench.word("report.html")];
    let options = [&["-p", "default,base,default+prefault", "--trial-time", "1500ms"][..], &files, &QUICK].concat();
    let ran = bench.compare(&options, &hangs_under_base(&bench)).ran();
    no_process_is_left(&bench);
    let words = "base took longer than 1.5 s (--trial-time) in block 0, and was ended";
    ran.assert_exit(1, &["took longer than --trial-time"]).assert_stdout(&["too slow", words]);
    let in_full = bench.pagelab(&["show", "1", "--full", "--store", &bench.store()]).ran();
    in_full.assert_exit(0, &[]).assert_stdout(&["not run again"]);
    assert!(!ran.stderr.contains("no terminal"), "it was asked for: {ran}");
    let document = bench.stored(1);
    assert_eq!((&document["design"]["trial_time_s"], &document["ended"]["reason"]), (&1.5.into(), &"blocks".into()));
    assert_eq!(arm(&document, "base")["outcome"]["outcome"], "too_slow");
    assert_ne!(arm(&document, "default+prefault")["outcome"]["outcome"], "too_slow");
    let trials = document["trials"].as_array().unwrap();
    let slow: Vec<_> = trials.iter().filter(|trial| trial["answer"]["too_slow"] == true).collect();
    assert_eq!((slow.len(), trials.len()), (1, 2 * 3 + 1), "it was not run again");
    assert!(slow[0]["label"] == "base" && slow[0]["observations"].as_array().unwrap().is_empty(), "{}", slow[0]);
    let csv = std::fs::read_to_string(bench.path("trials.csv")).unwrap();
    assert_eq!(csv.lines().filter(|line| line.contains(",too slow,")).count(), 1, "{csv}");
    let html = std::fs::read_to_string(bench.path("report.html")).unwrap();
    assert!(html.contains("too slow") && html.contains("time limit of a trial"), "the report says it");
    assert!(html.contains("took longer than 1.5 s"), "and why");
}

#[test]
fn without_the_baseline_there_is_no_result() {
    let _alone = is_root().then(Alone::wait);
    let bench = Bench::new();
    let options = ["-p", "base,default", "--baseline", "base", "--trial-time", "500ms"];
    let words = "the trial of base took longer than 0.5 s";
    let ran = bench.compare(&options, &hangs_under_base(&bench)).ran();
    assert!(ran.assert_exit(4, &[words]).stdout.is_empty(), "it is printed once: {ran}");
    no_process_is_left(&bench);
    let summary = &bench.listed()[0];
    assert_eq!(summary["ended"], "a trial was too slow", "{summary}");
    assert_eq!(bench.stored(1)["ended"]["reason"], "too_slow");
}

#[test]
fn servers_clients_and_preparations_have_that_time_too() {
    let _alone = is_root().then(Alone::wait);
    let bench = Bench::new();
    let forever = bench.script("forever", "trap '' TERM; while :; do sleep 0.05; done");
    let limit = ["-p", "default,base", "--trial-time", "500ms"];
    let served = [&limit[..], &["--server", &forever, "--ready", "true"]].concat();
    bench.compare(&served, &words_of(&[&forever])).ran().assert_exit(4, &["took longer than 0.5 s"]);
    no_process_is_left(&bench);
    let never_ready = [&limit[..], &["--server", &forever, "--ready", &forever]].concat();
    bench.compare(&never_ready, &words_of(&["true"])).ran().assert_exit(4, &["took longer than 0.5 s"]);
    no_process_is_left(&bench);
    let prepared = [&limit[..], &["--prepare", &forever]].concat();
    bench.compare(&prepared, &words_of(&["true"])).ran().assert_exit(1, &["--prepare", "took longer than 0.5 s"]);
    no_process_is_left(&bench);
}

#[test]
fn an_unattended_trial_has_a_time_limit() {
    let bench = Bench::new();
    let quick = |options: &[&str]| {
        let options = [&["-p", "default,base", "--json"], &QUICK[..], options].concat();
        bench.compare(&options, &words_of(&["true"])).ran()
    };
    for (options, limit_s) in [(&[][..], 3600.0), (&["--max-time", "5h"], 18000.0)] {
        assert_eq!(quick(options).json()["design"]["trial_time_s"], limit_s);
    }
    assert!(quick(&["--trial-time", "none"]).json()["design"]["trial_time_s"].is_null());
    bench.compare(&["--trial-time", "soon"], &words_of(&["true"])).ran().assert_exit(2, &["90s", "or none"]);
}

#[test]
fn a_comparison_without_a_result_says_so_by_its_exit_code() {
    let bench = Bench::new();
    let options = ["-p", "default,base", "--max-time", "1ms"];
    let ran = bench.compare(&options, &words_of(&["sleep", "0.01"])).ran();
    assert!(ran.assert_exit(4, &["no result", "--max-time"]).stdout.is_empty(), "it is printed once: {ran}");
    assert_eq!(bench.stored(1)["ended"]["reason"], "time");
}

#[test]
fn an_input_that_can_be_read_once_is_refused() {
    let bench = Bench::new();
    let fifo = bench.word("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    bench.compare(&["--input", &fifo], &words_of(&["cat"])).ran().assert_exit(2, &["--input", "found a pipe"]);
}

/// A comparison reacts to signals even if its terminal accepts no output (Ctrl-S).
#[test]
fn a_terminal_that_takes_nothing_holds_no_comparison() {
    if !needs(&[program("setsid"), program("setpriv")]) {
        return;
    }
    let bench = Bench::new();
    let store = bench.store();
    let words = ["compare", "--store", &store, "-p", "default,base", "--blocks", "1000", "--", "sleep", "0.01"];
    // Without privileges the comparison holds no lease, so other tests can run meanwhile.
    let compare = bench.pagelab(&words);
    let mut typist = Typist::at(&if is_root() { compare.as_nobody() } else { compare });
    typist.sees("trial 3 of");
    typist.types("\x13");
    // The comparison fills the buffer of the terminal, and then blocks.
    let pid = typist.command.id();
    let is_stuck = || std::fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|at| at.contains("wait_woken"));
    assert!(within(PATIENCE, is_stuck), "it should stop at the full terminal");
    send("TERM", pid);
    assert_eq!(typist.command.wait().code(), Some(128 + 15));
    assert!(!bench.listed().is_empty(), "its trials are stored");
}
