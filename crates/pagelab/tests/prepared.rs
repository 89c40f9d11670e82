//! Tests of `compare --prepare`, the command that runs before each trial.

mod common;

use std::process::Stdio;
use std::time::Instant;

use common::*;

/// A setting that the policy mthp-64k changes.
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";

/// The number of 4K pages that the preparation (`tail -c 64M`) must touch.
const PREPARED_PAGES: f64 = 64.0 * 1024.0 / 4.0;

/// A script that appends its name and the output of `command` to the log.
fn logging(bench: &Bench, name: &str, command: &str, then: &str) -> String {
    bench.script(name, &format!("echo {name} $({command}) >> {}\n{then}", bench.word("log")))
}

fn log(bench: &Bench) -> Vec<String> {
    let text = std::fs::read_to_string(bench.path("log")).unwrap_or_default();
    text.lines().map(String::from).collect()
}

#[test]
fn the_preparation_runs_untimed_before_each_trial_and_is_reported() {
    let bench = Bench::new();
    let prepare = logging(
        &bench,
        "prepare",
        "echo $1",
        "echo never seen; sleep 0.5; head -c 64M /dev/zero | tail -c 64M > /dev/null",
    );
    let prepare = prepare + " 'two words'";
    let measured = logging(&bench, "measured", ":", ":");
    let options = [&["-p", "default,base", "--json", "--prepare", &prepare][..], &QUICK].concat();
    let since = Instant::now();
    let document = bench.compare(&options, &words_of(&[&measured])).ran().json();
    let all_s = since.elapsed().as_secs_f64();
    let trials = document["trials"].as_array().unwrap();
    // If a setting of the host changed during a trial, there are more trials.
    assert!(trials.len() >= 6, "two arms, two blocks and a discarded one: {:#}", document["ended"]);
    for trial in trials {
        let faults = observed(trial, "minor_faults").unwrap();
        assert!(faults < PREPARED_PAGES, "{faults} faults: what prepares is not measured");
    }
    // However busy the machine is, the time of no trial contains the half second of sleep before it.
    let controls = document["control_trials"].as_array().unwrap();
    let (runs, all) = (trials.len() + controls.len(), trials.iter().chain(controls));
    let measured_s: f64 = all.map(|trial| observed(trial, "wall_s").unwrap()).sum();
    assert!(measured_s <= all_s - 0.5 * runs as f64, "{measured_s} of {all_s} s");
    assert!(controls.len() >= 3, "one of the bare arm in each block: {controls:#?}");
    assert_eq!(log(&bench), ["prepare two words", "measured"].repeat(runs), "of the bare arm too");
    assert_eq!(document["invocation"]["prepare"][1], "two words");
    assert_eq!(bench.stored(1)["invocation"], document["invocation"]);
    let page = bench.word("page.html");
    bench.pagelab(&["show", "1", "--store", &bench.store(), "--html", &page]).ran().assert_exit(0, &[]);
    assert!(std::fs::read_to_string(page).unwrap().contains("before each trial"));
}

#[test]
fn the_preparation_runs_under_no_policy() {
    let is_off = std::fs::read_to_string(SETTING).is_ok_and(|setting| setting.contains("[never]"));
    if !(needs(&[("Linux 6.8 with folios of 64K, switched off", is_off)]) && needs(&own_lease())) {
        return;
    }
    let bench = Bench::with_own_lease();
    let look = format!("cat {SETTING}");
    let (prepare, measured) = (logging(&bench, "prepare", &look, ""), logging(&bench, "measured", &look, ""));
    let before = std::fs::read_to_string(SETTING).unwrap();
    let options = [&["-p", "default,mthp-64k", "--prepare", &prepare][..], &QUICK].concat();
    bench.compare(&options, &words_of(&[&measured])).ran().assert_exit(0, &[]);
    let seen_by =
        |who: &str| log(&bench).into_iter().filter_map(|line| line.strip_prefix(who).map(String::from)).collect();
    let (prepared, ran): (Vec<String>, Vec<String>) = (seen_by("prepare "), seen_by("measured "));
    assert!(prepared.len() >= 10 && prepared.len() == ran.len(), "with the bare and the sham arm: {prepared:?}");
    assert!(prepared.iter().all(|setting| setting == before.trim()), "{prepared:?}");
    assert!(ran.iter().any(|setting| setting != before.trim()), "the policy changes it: {ran:?}");
}

#[test]
fn the_preparation_runs_as_the_user_of_the_command() {
    if !needs(&[root()]) {
        return;
    }
    let bench = Bench::new();
    let who = "echo $(id -u) $(id -G) $LOGNAME";
    let (prepare, measured) = (logging(&bench, "prepare", who, ""), logging(&bench, "measured", who, ""));
    let options = [&["-p", "default,base", "--user", "nobody", "--prepare", &prepare][..], &QUICK].concat();
    bench.compare(&options, &words_of(&[&measured])).env("LOGNAME", "root").ran().assert_exit(0, &[]);
    let seen: Vec<String> = log(&bench).iter().map(|line| line.split_once(' ').unwrap().1.to_string()).collect();
    assert!(seen.len() >= 18 && seen.iter().all(|one| *one == seen[0] && one.ends_with("nobody")), "{seen:?}");
}

#[test]
fn its_failure_ends_the_comparison_and_loses_nothing() {
    let bench = Bench::new();
    let fourth = format!("[ $(grep -c prepare {}) -lt 4 ] || {{ echo no wood >&2; exit 7; }}", bench.word("log"));
    let prepare = logging(&bench, "prepare", ":", &fourth);
    let measured = logging(&bench, "measured", ":", "");
    let options = [&["-p", "default,base", "--prepare", &prepare][..], &QUICK].concat();
    let ran = bench.compare(&options, &words_of(&[&measured])).ran();
    ran.assert_exit(1, &["block 1", "--prepare", &prepare, "exit status 7", "no wood"]);
    assert_eq!(log(&bench).iter().filter(|line| *line == "measured").count(), 3);
    let document = bench.stored(1);
    assert_eq!((document["trials"].as_array().unwrap().len(), &document["ended"]["reason"]), (2, &"failed".into()));
    for (prepare, code, parts) in [
        ("no-such-program", 127, &["\"no-such-program\" was not found"][..]),
        ("false", 1, &["\"false\" failed (exit status 1); it printed nothing"]),
        ("", 2, &["--prepare", "expected a command line"]),
        ("unclosed 'quote", 2, &["--prepare", "expected a command line"]),
    ] {
        let options = ["-p", "default,base", "--prepare", prepare];
        bench.compare(&options, &words_of(&[&measured])).ran().assert_exit(code, parts);
    }
    assert_eq!(log(&bench).iter().filter(|line| *line == "measured").count(), 3, "nothing more was run");
}

/// Also covers children of the preparation, which have sessions of their own.
#[test]
fn nothing_of_it_is_left_behind() {
    let bench = Bench::new();
    let grandchild = bench.script("grandchild", "sleep 1000");
    let prepare = bench.script("prepare", &format!("setsid {grandchild} & {grandchild}"));
    for (signal, code) in [("INT", Some(130)), ("KILL", None)] {
        let mut compare = bench.compare(&["-p", "default,base", "--prepare", &prepare], &words_of(&["true"]));
        let pagelab = compare.stdout(Stdio::null()).stderr(Stdio::null()).begin();
        // Another comparison on this host may hold the lease for a while.
        assert!(within(LIMIT, || processes_with(&grandchild).len() >= 2), "it has begun");
        send(signal, pagelab.id());
        assert_eq!(pagelab.ran().code, code);
        let gone = || processes_with(&bench.word("prepare")).is_empty() && processes_with(&grandchild).is_empty();
        assert!(within(LIMIT, gone), "{:?}", processes_with(&bench.word("")));
    }
}
