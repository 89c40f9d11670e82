//! Tests of `compare --own-session`: the session of every run, the weight of its autogroup, and what is reported if the weight
//! has no effect.

mod common;

use std::collections::BTreeSet;
use std::fs;

use common::*;

const SWITCH: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// The requirement that the scheduler weighs the sessions of this process by their autogroups.
fn has_autogroups() -> (&'static str, bool) {
    let is_on = fs::read_to_string(SWITCH).is_ok_and(|switch| switch.trim() == "1");
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let is_in_root = groups.lines().any(|line| line.ends_with(":cpu:/") || line.ends_with(":cpu,cpuacct:/"))
        || groups.trim() == "0::/" && !fs::exists("/sys/fs/cgroup/cpu.weight").unwrap_or(true);
    ("a kernel that weighs sessions (autogroups, outside of groups of the cpu controller)", is_on && is_in_root)
}

/// A script that appends its name, PID, session and the nice value of its autogroup to the log.
fn logging(bench: &Bench, name: &str, then: &str) -> String {
    let look = "$$ $(cut -d' ' -f6 /proc/$$/stat) $(sed 's/.* //' /proc/$$/autogroup)";
    let script = bench.script(name, &format!("echo {name} {look} >> {}\n{then}", bench.word("log")));
    // A program of another user writes to the log too.
    let log = fs::File::options().create(true).append(true).open(bench.path("log")).unwrap();
    log.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    script
}

/// What a run found out about itself.
struct Seen {
    name: String,
    pid: u32,
    session: u32,
    /// `None` in the kernel's first autogroup, which has no weight. It contains the processes none of whose ancestors
    /// made a session.
    nice: Option<i32>,
}

fn seen(bench: &Bench) -> Vec<Seen> {
    let text = fs::read_to_string(bench.path("log")).unwrap();
    let of_line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let (name, pid, session) = (words[0].to_owned(), words[1].parse().unwrap(), words[2].parse().unwrap());
        Seen { name, pid, session, nice: words.get(3).map(|nice| nice.parse().unwrap()) }
    };
    text.lines().map(of_line).collect()
}

#[test]
fn every_arm_has_a_session_of_its_own_with_the_top_weight() {
    if !needs(&[root(), has_autogroups()]) {
        return;
    }
    let bench = Bench::new();
    let own = fs::read_to_string("/proc/self/autogroup").unwrap();
    let command = logging(&bench, "command", ":");
    let prepare = logging(&bench, "prepare", ":");
    let options = ["-p", "default,base", "--own-session", "--prepare", &prepare, "--json"];
    let document =
        bench.compare(&[&options[..], &QUICK].concat(), &words_of(&[&command])).ran().assert_exit(0, &[]).json();
    let runs = document["trials"].as_array().unwrap().len() + document["control_trials"].as_array().unwrap().len();
    assert!(!document["control_trials"].as_array().unwrap().is_empty(), "with the bare arm");
    let (measured, prepared): (Vec<Seen>, Vec<Seen>) = seen(&bench).into_iter().partition(|one| one.name == "command");
    assert_eq!((measured.len(), prepared.len()), (runs, runs));
    assert!(measured.iter().all(|one| one.session == one.pid && one.nice == Some(-20)));
    let sessions: BTreeSet<u32> = measured.iter().map(|one| one.session).collect();
    assert_eq!(sessions.len(), runs, "each has another one");
    assert!(
        prepared.iter().all(|one| one.session != one.pid && one.nice.unwrap_or(0) == 0),
        "nothing of it is measured"
    );
    assert_eq!(document["design"]["own_session"]["effect"], "top_weight");
    assert_eq!(fs::read_to_string("/proc/self/autogroup").unwrap(), own, "that of the caller is as before");
    let page = bench.word("page.html");
    let shown = bench.pagelab(&["show", "1", "--full", "--store", &bench.store(), "--html", &page]).ran();
    let note = "a session of its own, whose autogroup has the top weight (nice -20) (--own-session)";
    shown.assert_exit(0, &[]).assert_stdout(&[note]);
    assert!(fs::read_to_string(page).unwrap().contains("whose autogroup has the top weight"));
}

#[test]
fn a_server_and_its_client_have_one_each() {
    if !needs(&[root(), has_autogroups()]) {
        return;
    }
    let bench = Bench::new();
    let [server, client] =
        ["server", "client"].map(|name| logging(&bench, name, if name == "server" { "exec sleep 1000" } else { ":" }));
    // A server is ready when the log has a new line of a server.
    let log = bench.word("log");
    let ready = bench.script("ready", &format!("test $(grep -c ^server {log}) -gt $(grep -c ^client {log})"));
    let options = ["-p", "default,base", "--own-session", "--server", &server, "--ready", &ready];
    bench.compare(&[&options[..], &QUICK].concat(), &words_of(&[&client])).ran().assert_exit(0, &[]);
    let all = seen(&bench);
    assert!(all.iter().any(|one| one.name == "server") && all.iter().any(|one| one.name == "client"));
    assert!(all.iter().all(|one| one.nice == Some(-20)));
    let sessions: BTreeSet<u32> = all.iter().map(|one| one.session).collect();
    assert_eq!(sessions.len(), all.len(), "each has another one");
}

#[test]
fn another_users_command_has_the_top_weight_too() {
    if !needs(&[root(), has_autogroups()]) {
        return;
    }
    let bench = Bench::new();
    let command = logging(&bench, "command", ":");
    let options = ["-p", "default,base", "--own-session", "--user", "nobody"];
    bench.compare(&[&options[..], &QUICK].concat(), &words_of(&[&command])).ran().assert_exit(0, &[]);
    assert!(seen(&bench).iter().all(|one| one.session == one.pid && one.nice == Some(-20)));
}

#[test]
fn without_root_the_session_has_the_usual_weight_and_that_is_reported() {
    // Without root a comparison takes no lease, so another test could change settings meanwhile.
    let _alone = is_root().then(Alone::wait);
    if !needs(&[root(), program("setpriv"), has_autogroups()]) {
        return;
    }
    let bench = Bench::new();
    let command = logging(&bench, "command", ":");
    let options = [&["-p", "default,base", "--own-session"][..], &QUICK].concat();
    let ran = bench.compare(&options, &words_of(&[&command])).as_nobody().ran();
    ran.assert_exit(
        0,
        &["--own-session: every run has a session of its own", "the usual weight (nice 0)", "run pagelab as root"],
    );
    assert_eq!(ran.stderr.matches("the usual weight").count(), 1, "{ran}");
    let seen = seen(&bench);
    assert!(!seen.is_empty() && seen.iter().all(|one| one.session == one.pid && one.nice == Some(0)));
    assert_eq!(bench.stored(1)["design"]["own_session"]["effect"], "usual_weight");
}

#[test]
fn without_the_option_a_run_is_in_the_session_of_pagelab() {
    let bench = Bench::new();
    let command = bench.script("command", &format!("cut -d' ' -f6 /proc/$$/stat >> {}", bench.word("log")));
    bench.compare(&[&["-p", "default,base"][..], &QUICK].concat(), &words_of(&[&command])).ran().assert_exit(0, &[]);
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let own = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap();
    let log = fs::read_to_string(bench.path("log")).unwrap();
    assert!(log.lines().count() >= 6 && log.lines().all(|session| session == own), "{own}: {log}");
}
