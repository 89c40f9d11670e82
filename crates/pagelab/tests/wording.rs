//! The messages of pagelab for programs that work against a policy, run in the background or share memory, and their appearance on
//! various terminals.

mod common;

use std::process::{Command, Stdio};

use common::*;

/// Compares by page faults, which hardly vary.
const BY_FAULTS: [&str; 6] = ["-p", "base,thp", "--primary", "minor_faults", "--blocks", "6"];

/// Compiles a C program with this body of `main`.
fn c_program(bench: &Bench, name: &str, body: &str) -> Vec<String> {
    let source = bench.path(&format!("{name}.c"));
    let headers = ["stdlib", "string", "sys/mman", "sys/prctl", "unistd"].map(|name| format!("#include <{name}.h>\n"));
    std::fs::write(&source, format!("#define _GNU_SOURCE\n{}int main(void) {{ {body} }}\n", headers.concat())).unwrap();
    let program = bench.word(name);
    let compiled = Command::new("gcc").args(["-O1", "-o", &program]).arg(&source).status().unwrap();
    assert!(compiled.success(), "{body}");
    vec![program]
}

/// C code that maps `length` bytes, makes a call about them, and touches them.
fn touches(length: &str, flags: &str, call: &str) -> String {
    format!(
        "char *at = mmap(0, {length}, PROT_READ | PROT_WRITE, {flags} | MAP_ANONYMOUS, -1, 0); {call}; \
         for (size_t i = 0; i < ({length}); i += 4096) at[i] = 1;"
    )
}

fn can_compare_c() -> bool {
    needs(&[root(), program("gcc")])
}

#[test]
fn a_program_that_turns_pages_off_gets_no_command_that_cannot_work() {
    if !can_compare_c() {
        return;
    }
    let bench = Bench::new();
    let html = bench.word("report.html");
    for (number, name, call, why) in [
        (
            1,
            "disables",
            "prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)",
            "turns it off for itself (prctl(PR_SET_THP_DISABLE, 1)",
        ),
        (2, "advises", "madvise(at, 32 << 20, MADV_NOHUGEPAGE)", "advises against it (madvise(MADV_NOHUGEPAGE)"),
    ] {
        let command = c_program(&bench, name, &touches("32 << 20", "MAP_PRIVATE", call));
        let ran = bench.compare(&[&BY_FAULTS[..], &["--html", &html]].concat(), &command).ran();
        ran.says(0, &[]).prints(&[
            "thp is the best of 2 policies",
            "it cannot be had without changing the program",
            why,
        ]);
        assert!(!ran.stdout.contains("echo "), "{ran}");
        let stored = number.to_string();
        let all = bench.pagelab(&["show", &stored, "--store", &bench.store(), "--adopt-all"]).ran();
        all.says(0, &[]).prints(&["once the program no longer does that", "transparent_hugepage=always", why]);
        assert!(ran.stdout.contains("This runs it that way: pagelab exec -p thp -- "), "{ran}");
        let report = std::fs::read_to_string(&html).unwrap();
        let (_, adoption) = report.split_once("To adopt the best policy").unwrap();
        let (before, folded) = adoption.split_once("other ways</summary>").unwrap();
        assert!(before.contains("without changing the program") && !before.contains("<code>"), "{before}");
        assert!(folded.contains("transparent_hugepage=always"));
        let arm_of = arm(&bench.stored(number), "thp").clone();
        assert!(arm_of["adoption_obstacle"].as_str().unwrap().contains(why), "{arm_of:#}");
    }
}

/// Redis's own option comes first.
#[test]
fn redis_is_adopted_by_its_own_switch() {
    if !needs(&[root(), program("redis-server"), program("redis-cli")]) {
        return;
    }
    let bench = Bench::new();
    let socket = bench.word("redis.sock");
    let server = format!("redis-server --port 0 --unixsocket {socket} --save '' --appendonly no");
    let ready = format!("redis-cli -s {socket} ping");
    let options = [&BY_FAULTS[..], &["--server", &server, "--ready", &ready]].concat();
    let client =
        words_of(&["redis-cli", "-s", &socket, "eval", "redis.call('setrange', KEYS[1], 200000000, 'x')", "1", "key"]);
    let ran = bench.compare(&options, &client).ran();
    ran.says(0, &[]).prints(&["thp is the best of 2 policies"]);
    assert_eq!(ran.stdout.matches("To adopt ").count(), 0, "{ran}");
    let all = bench.pagelab(&["show", "1", "--store", &bench.store(), "--adopt-all"]).ran();
    all.says(0, &[]).prints(&["To adopt thp (not tried), its own switch", "redis-server --disable-thp no"]);
    assert!(all.stdout.matches("To adopt ").count() > 3, "{all}");
}

#[test]
fn a_policy_that_was_not_held_is_not_adopted() {
    if !can_compare_c() {
        return;
    }
    let bench = Bench::new();
    // Mappings of one page each have no slot for a large page.
    let body = "for (int i = 0; i < 2000; i++) { char *at = mmap(0, 8192, PROT_READ | PROT_WRITE, \
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); at[0] = 1; mprotect(at + 4096, 4096, PROT_NONE); }";
    let ran = bench.compare(&[&BY_FAULTS[..], &QUICK[2..]].concat(), &c_program(&bench, "pieces", body)).ran();
    ran.says(0, &[]).prints(&["not held"]);
    assert!(!ran.stdout.contains("To adopt"), "{ran}");
    let document = bench.stored(1);
    let arm = arm(&document, "thp");
    assert_eq!(arm["verdict"]["holding"], "not_held");
    assert!(arm["adoptions"].as_array().unwrap().is_empty() && arm["adoption_obstacle"].is_null(), "{arm:#}");
}

/// The work of the daemon takes much longer than the 0.2 s of CPU time that an idle process has.
#[test]
fn a_daemon_is_named_and_its_cpu_time_decides() {
    if !needs(&[program("gcc")]) {
        return;
    }
    let bench = Bench::new();
    let work =
        "volatile char *at = malloc(8 << 20); for (int r = 0; r < 40; r++) for (int i = 0; i < 8 << 20; i++) at[i]++;";
    let daemon = c_program(&bench, "daemon", &format!("if (fork()) return 0; setsid(); {work}"));
    let ran = ran_freely(bench.compare(&[&["-p", "default,base"][..], &QUICK].concat(), &daemon));
    ran.says(0, &[]).prints(&[
        "the command's first process ends while others go on",
        "so CPU time decides",
        "--server",
    ]);
    assert!(!ran.stdout.contains("the runs take only"), "{ran}");
    let document = bench.stored(1);
    assert_eq!((&document["design"]["primary"], &document["result"]["primary"]), (&"wall_s".into(), &"cpu_s".into()));
    for trial in document["trials"].as_array().unwrap() {
        let [outlived, cpu, wall] = ["outlived_cpu_s", "cpu_s", "wall_s"].map(|name| observed(trial, name).unwrap());
        // The last sample of it is at most some hundredths of a second old.
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
    ran.says(0, &[]).prints(&["first process ends while others go on", "redis-server --daemonize no"]);
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
    ran.says(0, &[]).prints(&["64M of shared memory is not changed by any policy; 8."]);
    for trial in bench.stored(1)["trials"].as_array().unwrap() {
        assert_eq!(observed(trial, "shared_bytes"), Some(f64::from(64 << 20)));
    }
    let alone = c_program(&bench, "private", &touches("8 << 20", "MAP_PRIVATE", ""));
    let ran = ran_freely(bench.compare(&[&["-p", "default,base"][..], &QUICK].concat(), &alone));
    assert!(!ran.stdout.contains("shared memory"), "{ran}");
}

#[test]
fn a_setting_on_loan_is_said_to_be_on_loan() {
    if !needs(&[root(), program("setpriv")]) {
        return;
    }
    let _alone = Alone::wait();
    let bench = Bench::new();
    let mut measuring = bench.pagelab(&["exec", "-p", "mthp-64k", "--", "sleep", "600"]);
    let measuring = measuring.stdin(Stdio::null()).begin();
    await_lease(&measuring);
    let holder = format!("on loan to process {} (", measuring.id());
    let exec = || bench.pagelab(&["exec", "-p", "thp", "--", "true"]).as_nobody().ran();
    // It holds the lease before it has changed the settings.
    let mut ran = exec();
    within(LIMIT, || {
        ran = exec();
        ran.code == Some(3)
    });
    ran.says(3, &["system settings are", &holder, "exec -p mthp-64k -- sleep 600`)", "try again when it has ended"]);
    assert!(!ran.stderr.contains("needs root"), "{ran}");
    send("TERM", measuring.id());
    measuring.ran();
    let _lease = lease();
    let after = exec();
    assert!(!after.stderr.contains("on loan"), "{after}");
}

// ---- terminals ----

#[test]
fn the_progress_line_says_what_runs_and_what_is_left() {
    if !needs(&[program("script")]) {
        return;
    }
    let bench = Bench::new();
    let words = |store: &str| {
        let command = bench.touch().join(" ");
        format!("compare --store {store} -p default,base --blocks 4 --min-blocks 4 -- {command}")
    };
    let shown = on_terminal(&bench, 60, "TERM=xterm", &words(&bench.store()));
    assert!(shown.contains("trial 1 of about 15: ") && shown.contains(" left: "), "{shown}");
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
    let options = [&["-p", "default,base"][..], &QUICK].concat();
    let first = ran_freely(bench.compare(&options, &bench.touch()));
    first.prints(&[
        "this guest gives its hypervisor free blocks",
        "--prepare 'pagelab workload page-touch --bytes SIZE'",
    ]);
    let second = ran_freely(bench.compare(&options, &bench.touch()));
    second.prints(&["free page reporting is on here", "comparison 1 says what to do"]);
    assert!(!second.stdout.contains("--prepare"), "{second}");
    let again = bench.pagelab(&["show", "1", "--store", &bench.store()]).ran();
    assert_eq!(again.stdout, first.stdout, "the first says it still");
}

/// A setting is named that was seen to give the pages, and following it to the letter gives them.
#[test]
fn advice_names_a_setting_that_works_when_it_is_followed() {
    if !can_compare_c() {
        return;
    }
    let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
    let is_for_advised = std::fs::read_to_string(enabled).is_ok_and(|text| text.contains("[madvise]"));
    if !needs(&[("THP for programs that ask for it (enabled: madvise)", is_for_advised)]) {
        return;
    }
    let bench = Bench::new();
    let mapped = touches("32 << 20", "MAP_PRIVATE", "(void)0");
    let allocated = "for (int i = 0; i < 4000; i++) memset(malloc(16000), 1, 16000);";
    for (name, body, instruction) in [
        ("mapped", mapped.as_str(), format!("as root: echo always > {enabled}")),
        ("allocated", allocated, "start it with GLIBC_TUNABLES=glibc.malloc.hugetlb=1".to_owned()),
    ] {
        let command = c_program(&bench, name, body);
        let options = ["-p", "default,thp", "--primary", "minor_faults", "--blocks", "6"];
        let ran = bench.compare(&options, &command).ran();
        ran.says(0, &[]).prints(&["thp is the best of 2 policies", &format!("advice: {instruction} (thp brings")]);
        let followed = match instruction.split_once(": ") {
            Some((_, root)) => format!("{root}; {} inspect --json -- {}", bench.program().display(), command[0]),
            None => {
                let variable = instruction.trim_start_matches("start it with ");
                format!("{variable} {} inspect --json -- {}", bench.program().display(), command[0])
            }
        };
        let _still = Still::wait();
        let looked = Command::new("sh").args(["-c", &followed]).ran();
        std::fs::write(enabled, "madvise").unwrap();
        let regions = looked.json()["processes"][0]["regions"].as_array().unwrap().clone();
        let rows = regions.iter().flat_map(|region| region["census"].as_array().unwrap());
        let large = rows.filter(|row| row["leaf_bytes"] == 2 << 20).map(|row| row["bytes"].as_u64().unwrap());
        assert!(large.sum::<u64>() >= 28 << 20, "{looked}");
    }
    let all = bench.pagelab(&["advise", "--show", "1", "--store", &bench.store()]).ran();
    all.says(0, &[]).prints(&["no effect: 0 of ", "start it with GLIBC_TUNABLES=glibc.malloc.hugetlb=1", "holds: "]);
}
