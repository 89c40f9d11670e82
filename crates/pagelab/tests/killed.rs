//! Tests of comparisons that are killed or interrupted: settings are restored, no process is left over, and the store
//! stays intact.

mod common;

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::*;
use testing::Random;

/// The time within which a comparison must end after a signal. This is shorter than the ten seconds after which the subreaper of
/// a tree kills the remaining processes, and some hundred times longer than the end usually takes.
const ENDED: Duration = Duration::from_secs(8);
/// Policies that together change settings in all ways.
const POLICIES: &str = "base,mthp-64k,hugetlb-2m";
/// The number of times that pagelab is killed.
const KILLS: u32 = 50;

/// Starts a comparison that changes settings all the time. Its command line contains the bench's directory, by which its
/// processes are found.
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

/// A bench with the measured command of [`start`], and with a lease of its own.
fn bench() -> Bench {
    let bench = Bench::with_own_lease();
    let program = bench.word("pagelab");
    bench.script("measured", &format!("{program} workload page-touch --bytes 4M >/dev/null & sleep 0.01; wait"));
    bench
}

/// The settings that differ from `before` once no process holds the lease.
fn differences_at_rest(bench: &Bench, before: &Settings) -> Settings {
    bench.settings_at_rest().into_iter().filter(|setting| !before.contains(setting)).collect()
}

/// Waits until the settings are as before. The number of huge pages also counts pages that a killed program has not freed
/// yet.
fn await_as_before(bench: &Bench, before: &Settings, when: &str) {
    let as_before = within(LIMIT, || differences_at_rest(bench, before).is_empty());
    assert!(as_before, "{when}: {:?}", differences_at_rest(bench, before));
}

/// The settings that differ from `before` now.
fn differences_now(before: &Settings) -> Settings {
    settings().into_iter().filter(|setting| !before.contains(setting)).collect()
}

/// Whether any setting differs from before because pagelab has changed it. Surplus pages (`surplus_hugepages`) do not count:
/// they are included in a pool's number of pages, and a trial that has just ended may still be freeing them when pagelab has
/// restored all settings.
fn is_lent(before: &Settings) -> bool {
    let number = |path: &Path| std::fs::read_to_string(path).unwrap().trim().parse::<u64>().unwrap();
    let is_set = |path: &Path| {
        let surplus = path.with_file_name("surplus_hugepages");
        if !surplus.exists() {
            return false; // vm.nr_hugepages is another name of one pool's setting
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

/// The watchdog of a run: a fork of pagelab with the same command line. A child that has not yet executed its program looks the
/// same.
fn watchdog(bench: &Bench, child: &Running) -> Vec<u32> {
    let others = processes_with(&bench.store()).into_iter().map(|(pid, _)| pid);
    others.filter(|pid| *pid != child.id()).collect()
}

/// Stops a run at a moment when settings differ from before.
fn stop_with_changed_settings(bench: &Bench, child: &Running, before: &Settings) {
    bench.await_lease(child);
    // When the run is stopped, it may have taken the lease without having changed a setting.
    let changed = within(LIMIT, || {
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
    stop_with_changed_settings(bench, &child, before);
    // The run is already stopped, so that it restores nothing between the two kills.
    watchdog(bench, &child).into_iter().for_each(|pid| send("KILL", pid));
    child.kill();
    no_process_is_left(bench);
}

/// The number of the last comparison in the store; 0 if there is none.
fn last_number(bench: &Bench) -> u64 {
    bench.listed().iter().filter_map(|one| one["number"].as_u64()).max().unwrap_or(0)
}

/// Waits until a comparison with a higher number than this has stored a trial.
fn await_trial(bench: &Bench, after: u64) {
    let is_stored =
        || bench.listed().iter().any(|one| one["number"].as_u64() > Some(after) && one["trials"].as_u64() > Some(0));
    assert!(within(LIMIT, is_stored), "no trial was ever stored");
}

fn no_process_is_left(bench: &Bench) {
    let word = bench.word("");
    let gone = within(LIMIT, || processes_with(&word).is_empty());
    assert!(gone, "left over: {:?}", processes_with(&word));
}

#[test]
fn after_sigkill_at_any_moment_settings_return_and_the_store_is_whole() {
    if !needs(&own_lease()) {
        return;
    }
    let bench = bench();
    let before = settings();
    let mut random = Random::new();
    for round in 0..KILLS {
        let earlier = last_number(&bench);
        let child = start(&bench);
        // Depending on the round, pagelab is killed right after its start, while it holds the lease, or after its first
        // trials.
        match round % 3 {
            0 => {}
            1 => bench.await_lease(&child),
            _ => await_trial(&bench, earlier),
        }
        std::thread::sleep(Duration::from_micros(random.below(400_000)));
        assert!(round % 3 == 0 || bench.leaseholder() == Some(child.id()), "round {round}");
        child.kill();
        await_as_before(&bench, &before, &format!("round {round}"));
        no_process_is_left(&bench);
        let listed = bench.listed();
        if let Some(summary) = listed.iter().max_by_key(|one| one["number"].as_u64()) {
            let document = bench.stored(summary["number"].as_u64().unwrap());
            assert_eq!(document["trials"].as_array().unwrap().len() as u64, summary["trials"].as_u64().unwrap());
            assert_eq!(document["ended"]["reason"], "not_ended");
        }
    }
    let options = [&["-p", POLICIES][..], &QUICK].concat();
    bench.compare(&options, &bench.touch()).ran().assert_exit(0, &[]).assert_stdout(&["mthp-64k", "hugetlb-2m"]);
    await_as_before(&bench, &before, "at the end");
}

#[test]
fn after_ctrl_c_and_sigterm_finished_trials_are_stored_and_reported() {
    if !needs(&own_lease()) {
        return;
    }
    let bench = bench();
    let before = settings();
    for (number, (name, signal)) in [("INT", 2), ("TERM", 15), ("HUP", 1)].into_iter().enumerate() {
        for after_ms in [0, 200] {
            let earlier = last_number(&bench);
            let child = start(&bench);
            await_trial(&bench, earlier);
            std::thread::sleep(Duration::from_millis(after_ms));
            send(name, child.id());
            let ran = child.ran();
            ran.assert_exit(128 + signal, &[&format!("stopped by signal {signal}"), "stored", "restored"]);
            await_as_before(&bench, &before, name);
            no_process_is_left(&bench);
        }
        let number = 2 * (number as u64 + 1);
        let document = bench.stored(number);
        assert_eq!(document["ended"]["reason"], "interrupted");
        assert!(!document["trials"].as_array().unwrap().is_empty());
    }
}

/// Ctrl-C on a terminal also reaches the measured program, which may end in any way before pagelab can kill it.
#[test]
fn a_trial_that_ended_while_pagelab_was_stopping_does_not_count() {
    let _alone = is_root().then(Alone::wait);
    let bench = Bench::new();
    let (runs, own_id, go) = (bench.word("runs"), bench.word("own-id"), bench.word("go"));
    // The fourth run is the last of its block. It waits without making a system call or having a child for which the tracer would
    // stop it, and then fails.
    let program = bench.script(
        "measured",
        &format!(
            "echo run >> {runs}; n=0; while read -r _; do n=$((n + 1)); done < {runs}; [ $n = 4 ] || exit 0\n\
             echo $$ > {own_id}; while [ ! -e {go} ]; do :; done; exit 7"
        ),
    );
    // With this seed the last run of the first block is one with a policy.
    let options = ["-p", "default,default+prefault", "--seed", "2", "--blocks", "1000", "--min-blocks", "1000"];
    let mut compare = bench.compare(&options, &words_of(&[&program]));
    let child = compare.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).begin();
    let mut id = String::new();
    let runs_fourth = within(LIMIT, || {
        id = std::fs::read_to_string(&own_id).unwrap_or_default();
        id.ends_with('\n')
    });
    assert!(runs_fourth, "the fourth run never came");
    stop(child.id());
    send("INT", child.id());
    std::fs::write(&go, "").unwrap();
    // The program has exited, and is stopped for its tracer.
    await_stop(id.trim().parse().unwrap());
    send("CONT", child.id());
    child.ran().assert_exit(130, &["stopped by signal 2", "stored"]);
    let document = bench.stored(1);
    assert_eq!(document["ended"]["reason"], "interrupted");
    let of = |key: &str| document[key].as_array().unwrap().clone();
    let trials = [of("trials"), of("control_trials")].concat();
    assert_eq!(trials.len(), 3, "{document:#}");
    assert!(trials.iter().all(|trial| trial["answer"]["exit_code"] == 0), "{trials:#?}");
    no_process_is_left(&bench);
}

fn has_open(pid: u32, file: &Path) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|descriptor| std::fs::metadata(descriptor.path()).ok()).any(|open| is_same(&open, file))
}

fn is_same(open: &Metadata, file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|file| (file.dev(), file.ino()) == (open.dev(), open.ino()))
}

/// The watchdog is slower than the user's next command.
#[test]
fn restore_right_after_sigkill_leaves_the_watchdog_its_time() {
    if !needs(&own_lease()) {
        return;
    }
    let bench = bench();
    let before = settings();
    let child = start(&bench);
    stop_with_changed_settings(&bench, &child, &before);
    let watchdog = watchdog(&bench, &child);
    watchdog.iter().for_each(|pid| stop(*pid));
    let who = format!("by process {}", child.id());
    child.kill();
    let late = bench.pagelab(&["restore"]).ran();
    late.assert_exit(2, &["are leased", &who]);
    assert!(!differences_now(&before).is_empty(), "nobody put them back");

    let mut restore = bench.pagelab(&["restore"]);
    let restore = restore.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).begin();
    assert!(within(LIMIT, || has_open(restore.id(), &bench.path("run/lease.queue"))), "it never waited");
    watchdog.iter().for_each(|pid| send("CONT", *pid));
    restore.ran().assert_exit(0, &[]).assert_stdout(&["nothing to restore"]);
    await_as_before(&bench, &before, "after the watchdog");
    no_process_is_left(&bench);
}

/// The whole process tree of a session is killed at once, as a service manager or the OOM killer can do.
#[test]
fn after_the_watchdog_died_too_restore_restores() {
    if !needs(&own_lease()) {
        return;
    }
    let bench = bench();
    let before = settings();
    for _ in 0..3 {
        kill_with_watchdog(&bench, start(&bench), &before);
        assert!(!differences_at_rest(&bench, &before).is_empty(), "nobody put them back");
        bench.pagelab(&["restore"]).ran().assert_exit(0, &[]).assert_stdout(&[" again"]);
        await_as_before(&bench, &before, "after restore");
        bench.pagelab(&["restore"]).ran().assert_exit(0, &[]).assert_stdout(&["nothing to restore"]);
        let json = bench.pagelab(&["restore", "--json"]).ran().json();
        assert_eq!((&json["schema"], &json["found"]), (&"pagelab.restore/1".into(), &"nothing".into()));
    }
}

#[test]
fn the_next_comparison_restores_what_a_crash_left() {
    if !needs(&own_lease()) {
        return;
    }
    let bench = bench();
    let before = settings();
    kill_with_watchdog(&bench, start(&bench), &before);
    assert!(!differences_at_rest(&bench, &before).is_empty());
    let options = [&["-p", "base,mthp-64k"][..], &QUICK].concat();
    bench.compare(&options, &bench.touch()).ran().assert_exit(0, &[]);
    await_as_before(&bench, &before, "after a comparison");
}

/// The client is a process outside the traced tree.
#[test]
fn a_killed_comparison_leaves_neither_server_nor_client() {
    let bench = if is_root() && has("unshare") { Bench::with_own_lease() } else { Bench::new() };
    // The sleeps are short, so that none outlives its killed shell for long.
    let forever = "while :; do sleep 0.05; done";
    let (server, client) = (bench.script("server", forever), bench.script("client", forever));
    let mut compare =
        bench.compare(&["-p", "default,base", "--server", &server, "--ready", "true"], &words_of(&[&client]));
    for signal in ["KILL", "TERM"] {
        let mut child = compare.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).begin();
        let runs = within(LIMIT, || processes_with(&client).len() >= 2);
        assert!(runs, "pagelab and the client: {:?}", processes_with(&client));
        send(signal, child.id());
        let over = within(ENDED, || child.is_over());
        assert!(over, "{signal}");
        let gone = within(ENDED, || processes_with(&server).is_empty() && processes_with(&client).is_empty());
        assert!(gone, "{signal}: {:?}", processes_with(&bench.word("")));
    }
}
