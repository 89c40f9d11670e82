//! Killed and interrupted comparisons: settings return, nobody is left over, the store stays whole.

mod common;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::*;
use testing::Random;

/// How soon the settings must be back.
const SOON: Duration = Duration::from_secs(2);
/// All the ways in which settings are changed.
const POLICIES: &str = "base,mthp-64k,hugetlb-2m";
/// How often pagelab is killed.
const KILLS: u32 = 50;

/// A comparison that changes settings all the time, of a command that has the bench's directory in its
/// command line.
fn start(bench: &Bench) -> Running {
    let options = ["-p", POLICIES, "--blocks", "1000", "--min-blocks", "1000"];
    let script = bench.word("measured");
    bench
        .compare(&options, &words_of(&[&script]))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .begin()
}

fn bench() -> Bench {
    let bench = Bench::new();
    // What a test that failed may have left.
    bench.pagelab(&["restore"]).ran();
    let program = bench.word("pagelab");
    bench.script("measured", &format!("{program} workload page-touch --bytes 4M >/dev/null & sleep 0.01; wait"));
    bench
}

/// What is not as before when nobody has the lease any more. The number of huge pages holds those that a
/// killed program is still giving back, so that it is looked at until it is as before, or for too long.
fn differences(before: &Settings) -> Settings {
    let mut differences = Settings::new();
    within(SOON, || {
        differences = settings_at_rest().into_iter().filter(|setting| !before.contains(setting)).collect();
        differences.is_empty()
    });
    differences
}

/// What is not as before at this moment.
fn differences_now(before: &Settings) -> Settings {
    settings().into_iter().filter(|setting| !before.contains(setting)).collect()
}

/// Whether a setting is not as before at this moment. Pages beyond a pool (`surplus_hugepages`) count in the number of its pages, and
/// a trial that has just ended may still be giving them back when nothing is lent any more.
fn is_lent(before: &Settings) -> bool {
    let number = |path: &Path| std::fs::read_to_string(path).unwrap().trim().parse::<u64>().unwrap();
    let is_set = |path: &Path| {
        let surplus = path.with_file_name("surplus_hugepages");
        if !surplus.exists() {
            return false; // vm.nr_hugepages, another name of one of them
        }
        let beyond = number(&surplus);
        let pages = number(path);
        let was = before.iter().find(|(name, _)| name == path).map(|(_, value)| value.trim().parse().unwrap());
        number(&surplus) == beyond && Some(pages - beyond.min(pages)) != was
    };
    differences_now(before).iter().any(|(path, _)| match path.file_name().unwrap().to_str() {
        Some("nr_hugepages" | "nr_hugepages_mempolicy") => is_set(path),
        _ => true,
    })
}

/// How long nine trials take here and now, from the start of pagelab on: a slow machine has its moments later.
fn time_of_a_few_trials() -> Duration {
    let bench = bench();
    let since = Instant::now();
    let options = ["-p", POLICIES, "--blocks", "2", "--min-blocks", "2"];
    bench.compare(&options, &words_of(&[&bench.word("measured")])).ran().says(0, &[]);
    since.elapsed().max(Duration::from_millis(400))
}

/// The watchdog of a run: its fork, with its command line, as a program about to start is.
fn watchdog(bench: &Bench, child: &Running) -> Vec<u32> {
    let others = processes_with(&bench.store()).into_iter().map(|(pid, _)| pid);
    others.filter(|pid| *pid != child.id()).collect()
}

/// Stops a run at a moment at which settings are not as before.
fn stop_with_changed_settings(child: &Running, before: &Settings) {
    await_lease(child);
    // Some moments lie between the lease and the first change.
    let changed = within(Duration::from_secs(20), || {
        stop(child.id());
        let changed = is_lent(before);
        if !changed {
            send("CONT", child.id());
        }
        changed
    });
    assert!(changed, "no setting was ever changed");
}

/// Kills a run and its watchdog between two changes of settings.
fn kill_with_watchdog(bench: &Bench, child: Running, before: &Settings) {
    stop_with_changed_settings(&child, before);
    // Stopped, so that it puts nothing back between the two kills.
    watchdog(bench, &child).into_iter().for_each(|pid| send("KILL", pid));
    child.kill();
    nobody_is_left(bench);
}

fn nobody_is_left(bench: &Bench) {
    let word = bench.word("");
    let gone = within(SOON, || processes_with(&word).is_empty());
    assert!(gone, "left over: {:?}", processes_with(&word));
}

#[test]
fn after_sigkill_at_any_moment_settings_return_and_the_store_is_whole() {
    if !needs(&[root()]) {
        return;
    }
    let _alone = Alone::wait();
    let bench = bench();
    let before = settings_at_rest();
    let a_few_trials = time_of_a_few_trials();
    let mut random = Random::new();
    let mut with_lease = 0;
    for round in 0..KILLS {
        let child = start(&bench);
        if round % 2 == 0 {
            await_lease(&child);
        }
        std::thread::sleep(Duration::from_micros(random.below(a_few_trials.as_micros() as u64)));
        let had_lease = leaseholder() == Some(child.id());
        child.kill();
        // Pages that a killed program still has count as surplus pages of the pool until it is gone.
        within(SOON, || differences(&before).is_empty());
        assert_eq!(differences(&before), [], "round {round}");
        with_lease += u32::from(had_lease);
        nobody_is_left(&bench);
        let last = bench.listed();
        if let Some(summary) = last.iter().max_by_key(|one| one["number"].as_u64()) {
            let document = bench.stored(summary["number"].as_u64().unwrap());
            assert_eq!(document["trials"].as_array().unwrap().len() as u64, summary["trials"].as_u64().unwrap());
            assert_eq!(document["ended"]["reason"], "not_ended");
        }
    }
    let stored: u64 = bench.listed().iter().map(|one| one["trials"].as_u64().unwrap()).sum();
    println!("{with_lease} of {KILLS} kills met the lease; {stored} trials are stored");
    assert!(with_lease >= KILLS / 3, "only {with_lease} kills met the lease");
    assert!(stored >= u64::from(KILLS), "only {stored} trials were stored");
    let options = [&["-p", POLICIES][..], &QUICK].concat();
    bench.compare(&options, &bench.touch()).ran().says(0, &[]).prints(&["mthp-64k", "hugetlb-2m"]);
    assert_eq!(differences(&before), []);
}

#[test]
fn after_ctrl_c_and_sigterm_what_was_finished_is_stored_and_said() {
    if !needs(&[root()]) {
        return;
    }
    let _alone = Alone::wait();
    let bench = bench();
    let before = settings_at_rest();
    for (number, (name, signal)) in [("INT", 2), ("TERM", 15), ("HUP", 1)].into_iter().enumerate() {
        for after_ms in [0, 200] {
            let child = start(&bench);
            await_lease(&child);
            let is_stored =
                || bench.listed().iter().any(|one| one["ended"] == "running or killed" && one["trials"] != 0);
            assert!(within(Duration::from_secs(20), is_stored), "no trial was ever stored");
            std::thread::sleep(Duration::from_millis(after_ms));
            send(name, child.id());
            let ran = child.ran();
            ran.says(128 + signal, &[&format!("stopped by signal {signal}"), "stored", "restored"]);
            assert_eq!(differences(&before), [], "{name}");
            nobody_is_left(&bench);
        }
        let number = 2 * (number as u64 + 1);
        let document = bench.stored(number);
        assert_eq!(document["ended"]["reason"], "interrupted");
        assert!(!document["trials"].as_array().unwrap().is_empty());
    }
}

/// A terminal's Ctrl-C reaches the program too, which may end in any way before pagelab can kill it.
#[test]
fn a_trial_that_ended_while_pagelab_was_told_to_stop_does_not_count() {
    let _alone = is_root().then(Alone::wait);
    let bench = Bench::new();
    let (runs, own_id, go) = (bench.word("runs"), bench.word("own-id"), bench.word("go"));
    // The fourth run, the last of its block, waits without a call or a child that stops for the tracer, and fails.
    let program = bench.script(
        "measured",
        &format!(
            "echo run >> {runs}; n=0; while read -r _; do n=$((n + 1)); done < {runs}; [ $n = 4 ] || exit 0\n\
             echo $$ > {own_id}; while [ ! -e {go} ]; do :; done; exit 7"
        ),
    );
    // By this seed the last run of the first block is one of a policy.
    let options = ["-p", "default,default+prefault", "--seed", "2", "--blocks", "1000", "--min-blocks", "1000"];
    let mut compare = bench.compare(&options, &words_of(&[&program]));
    let child = compare.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).begin();
    let mut id = String::new();
    let runs_fourth = within(Duration::from_secs(60), || {
        id = std::fs::read_to_string(&own_id).unwrap_or_default();
        id.ends_with('\n')
    });
    assert!(runs_fourth, "the fourth run never came");
    stop(child.id());
    send("INT", child.id());
    std::fs::write(&go, "").unwrap();
    // It has its exit status, and stands there for its tracer.
    await_stop(id.trim().parse().unwrap());
    send("CONT", child.id());
    child.ran().says(130, &["stopped by signal 2", "stored"]);
    let document = bench.stored(1);
    assert_eq!(document["ended"]["reason"], "interrupted");
    let of = |key: &str| document[key].as_array().unwrap().clone();
    let trials = [of("trials"), of("control_trials")].concat();
    assert_eq!(trials.len(), 3, "{document:#}");
    assert!(trials.iter().all(|trial| trial["answer"]["exit_code"] == 0), "{trials:#?}");
    nobody_is_left(&bench);
}

/// A watchdog that is not as fast as a user's next command.
#[test]
fn restore_right_after_sigkill_leaves_the_watchdog_its_time() {
    if !needs(&[root()]) {
        return;
    }
    let _alone = Alone::wait();
    let bench = bench();
    let before = settings_at_rest();
    let child = start(&bench);
    stop_with_changed_settings(&child, &before);
    let watchdog = watchdog(&bench, &child);
    watchdog.iter().for_each(|pid| stop(*pid));
    let who = format!("by process {}", child.id());
    child.kill();
    let late = bench.pagelab(&["restore"]).ran();
    late.says(2, &["are leased", &who]);
    assert!(!differences_now(&before).is_empty(), "nobody put them back");

    let mut restore = bench.pagelab(&["restore"]);
    let restore = restore.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).begin();
    std::thread::sleep(Duration::from_millis(500));
    watchdog.iter().for_each(|pid| send("CONT", *pid));
    restore.ran().says(0, &[]).prints(&["nothing to restore"]);
    assert_eq!(differences(&before), []);
    nobody_is_left(&bench);
}

/// The whole process tree of a session at once: what a service manager or the OOM killer can do.
#[test]
fn after_the_watchdog_died_too_restore_restores() {
    if !needs(&[root()]) {
        return;
    }
    let _alone = Alone::wait();
    let bench = bench();
    let before = settings_at_rest();
    for _ in 0..3 {
        kill_with_watchdog(&bench, start(&bench), &before);
        assert!(!differences(&before).is_empty(), "nobody put them back");
        bench.pagelab(&["restore"]).ran().says(0, &[]).prints(&[" again"]);
        assert_eq!(differences(&before), []);
        bench.pagelab(&["restore"]).ran().says(0, &[]).prints(&["nothing to restore"]);
        let json = bench.pagelab(&["restore", "--json"]).ran().json();
        assert_eq!((&json["schema"], &json["found"]), (&"pagelab.restore/1".into(), &"nothing".into()));
    }
}

#[test]
fn the_next_comparison_restores_what_a_crash_left() {
    if !needs(&[root()]) {
        return;
    }
    let _alone = Alone::wait();
    let bench = bench();
    let before = settings_at_rest();
    kill_with_watchdog(&bench, start(&bench), &before);
    assert!(!differences(&before).is_empty());
    let options = [&["-p", "base,mthp-64k"][..], &QUICK].concat();
    bench.compare(&options, &bench.touch()).ran().says(0, &[]);
    within(SOON, || differences(&before).is_empty());
    assert_eq!(differences(&before), []);
}

/// The client is no part of the traced tree.
#[test]
fn a_killed_comparison_leaves_neither_server_nor_client() {
    // It has the lease, which no other test can have meanwhile.
    let _alone = is_root().then(Alone::wait);
    let bench = Bench::new();
    // In short sleeps, so that none of them outlives its killed shell for long.
    let forever = "while :; do sleep 0.05; done";
    let (server, client) = (bench.script("server", forever), bench.script("client", forever));
    let mut compare =
        bench.compare(&["-p", "default,base", "--server", &server, "--ready", "true"], &words_of(&[&client]));
    for signal in ["KILL", "TERM"] {
        let mut child = compare.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).begin();
        let runs = within(Duration::from_secs(10), || processes_with(&client).len() >= 2);
        assert!(runs, "pagelab and the client: {:?}", processes_with(&client));
        send(signal, child.id());
        let over = within(SOON, || child.is_over());
        assert!(over, "{signal}");
        let gone = within(SOON, || processes_with(&server).is_empty() && processes_with(&client).is_empty());
        assert!(gone, "{signal}: {:?}", processes_with(&bench.word("")));
    }
}
