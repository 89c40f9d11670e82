//! Tests of messages: about programs that work against a policy, run in the background or share memory; and how messages look on
//! various terminals.

mod common;

use std::process::Stdio;

use common::*;

/// The daemon works much longer than 0.2 s of CPU time, up to which a process counts as idle.
#[test]
fn a_daemon_is_named_and_its_cpu_time_decides() {
    if !needs(&[program("gcc")]) {
        return;
    }
    let _alone = Alone::wait();
    let bench = Bench::new();
    let work =
        "volatile char *at = malloc(8 << 20); for (int r = 0; r < 40; r++) for (int i = 0; i < 8 << 20; i++) at[i]++;";
    let daemon = c_program(&bench, "daemon", &format!("if (fork()) return 0; setsid(); {work}"));
    let ran = ran_freely(bench.compare(&[&["-p", "default,base"][..], &QUICK].concat(), &daemon));
    ran.assert_exit(0, &[]).assert_stdout(&[
        "the command's first process ends while others keep running",
        "so CPU time decides",
        "--server",
    ]);
    assert!(!ran.stdout.contains("the runs take only"), "{ran}");
    let document = bench.stored(1);
    assert_eq!((&document["design"]["primary"], &document["result"]["primary"]), (&"wall_s".into(), &"cpu_s".into()));
    for trial in document["trials"].as_array().unwrap() {
        let [outlived, cpu, wall] = ["outlived_cpu_s", "cpu_s", "wall_s"].map(|name| observed(trial, name).unwrap());
        // The last sample of the daemon's CPU time is at most some hundredths of a second old.
        assert!(outlived > 0.5 * cpu && outlived <= cpu && wall < cpu, "{outlived} of {cpu} s, {wall} s");
    }
    // A program in the foreground causes no such message.
    let foreground =
        ran_freely(bench.compare(&[&["-p", "default,base"][..], &QUICK].concat(), &c_program(&bench, "fore", work)));
    assert!(!foreground.stdout.contains("first process") && foreground.stdout.contains("wall"), "{foreground}");
}

#[test]
fn a_real_daemon_is_named() {
    if !needs(&[program("redis-server")]) {
        return;
    }
    let bench = Bench::new();
    let socket = bench.word("daemon.sock");
    let command = ["redis-server", "--port", "0", "--unixsocket", &socket, "--daemonize", "yes", "--save", ""];
    let ran = ran_freely(bench.compare(&[&["-p", "default,base"][..], &QUICK].concat(), &words_of(&command)));
    ran.assert_exit(0, &[])
        .assert_stdout(&["first process ends while others keep running", "redis-server --daemonize no"]);
    assert_eq!(processes_with(&socket).len(), 0, "no trial leaves a process behind");
}

#[test]
fn shared_memory_is_named_with_its_bytes() {
    if !needs(&[program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let both = format!("{{ {} }} {}", touches("64 << 20", "MAP_SHARED", ""), touches("8 << 20", "MAP_PRIVATE", ""));
    let ran =
        ran_freely(bench.compare(&[&["-p", "default,base"][..], &QUICK].concat(), &c_program(&bench, "shares", &both)));
    ran.assert_exit(0, &[]).assert_stdout(&[
        "64M of the memory is shared: its page size is set by the program (PostgreSQL: huge_pages) or by shmem_enabled, and no \
         policy chooses it; the verdicts cover only the other memory",
    ]);
    for trial in bench.stored(1)["trials"].as_array().unwrap() {
        assert_eq!(observed(trial, "shared_bytes"), Some(f64::from(64 << 20)));
    }
    let alone = c_program(&bench, "private", &touches("8 << 20", "MAP_PRIVATE", ""));
    let ran = ran_freely(bench.compare(&[&["-p", "default,base"][..], &QUICK].concat(), &alone));
    assert!(!ran.stdout.contains("shared memory"), "{ran}");
}

#[test]
fn reports_a_leased_setting_as_leased() {
    if !needs(&[root(), program("setpriv")]) {
        return;
    }
    let _alone = Alone::wait();
    let bench = Bench::new();
    let mut measuring = bench.pagelab(&["exec", "-p", "mthp-64k", "--", "sleep", "600"]);
    let measuring = measuring.stdin(Stdio::null()).begin();
    await_lease(&measuring);
    let holder = format!("leased by process {} (", measuring.id());
    let exec = || bench.pagelab(&["exec", "-p", "thp", "--", "true"]).as_nobody().ran();
    // The other process takes the lease before it changes the settings, so this may have to be tried again.
    let mut ran = exec();
    within(LIMIT, || {
        ran = exec();
        ran.code == Some(3)
    });
    ran.assert_exit(
        3,
        &["system settings are", &holder, "exec -p mthp-64k -- sleep 600`)", "try again when it has ended"],
    );
    assert!(!ran.stderr.contains("needs root"), "{ran}");
    send("TERM", measuring.id());
    measuring.ran();
    let _lease = lease();
    let after = exec();
    assert!(!after.stderr.contains("leased"), "{after}");
}

// ---- terminals ----

#[test]
fn the_progress_line_shows_the_running_trial_and_the_rest() {
    if !needs(&[program("script")]) {
        return;
    }
    let bench = Bench::new();
    let words = |store: &str| {
        let command = bench.touch().join(" ");
        format!("compare --store {store} -p default,base --blocks 4 --min-blocks 4 -- {command}")
    };
    let shown = on_terminal(&bench, 60, "TERM=xterm", &words(&bench.store()));
    assert!(shown.contains("trial 1 of about 15: ") && shown.contains(" left (at most "), "{shown}");
    let dumb = on_terminal(&bench, 60, "TERM=dumb", &words(&bench.store()));
    assert!(dumb.contains("trial 1 of about 15: ") && !dumb.contains('\u{1b}'), "{dumb}");
    assert_eq!(
        dumb.matches("trial ").filter(|_| true).count(),
        5 + dumb.matches("1 trial").count(),
        "a line a block: {dumb}"
    );
    let piped = ran_freely(bench.compare(&[&["-p", "default,base"][..], &QUICK].concat(), &bench.touch()));
    assert!(!piped.stderr.contains("trial 1 of"), "{piped}");
}

#[test]
fn free_page_reporting_is_explained_once() {
    let reports = std::fs::read_dir("/sys/bus/virtio/devices").into_iter().flatten().flatten().any(|device| {
        let features = std::fs::read_to_string(device.path().join("features")).unwrap_or_default();
        let id = std::fs::read_to_string(device.path().join("device")).unwrap_or_default();
        id.trim() == "0x0005" && features.chars().nth(5) == Some('1')
    });
    if !needs(&[("a guest with free page reporting", reports)]) {
        return;
    }
    let bench = Bench::new();
    let options = [&["-p", "default,base", "--full"][..], &QUICK].concat();
    let first = ran_freely(bench.compare(&options, &bench.touch()));
    first.assert_stdout(&[
        "free page reporting is on (blocks of ",
        "free-page-reporting=off",
        "--prepare 'pagelab workload page-touch --bytes SIZE'",
    ]);
    let second = ran_freely(bench.compare(&options, &bench.touch()));
    second.assert_stdout(&[
        "free page reporting is on (blocks of ",
        "makes the hypervisor provide the memory again before each trial",
    ]);
    assert!(!second.stdout.contains("free-page-reporting=off"), "the rest is not repeated: {second}");
    let again = bench.pagelab(&["show", "1", "--full", "--store", &bench.store()]).ran();
    assert_eq!(again.stdout, first.stdout, "the first says it still");
}
