//! Tests of advice: settings are tried, and the setting that is named works when it is followed.

mod common;

use std::path::Path;
use std::process::Command;

use common::*;
use serde_json::Value;

/// Compares by page faults, whose number hardly varies.
const BY_FAULTS: [&str; 6] = ["-p", "base,thp", "--primary", "minor_faults", "--blocks", "6"];

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
    for (number, name, call, source) in [
        (1, "disables", "prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)", "PR_SET_THP_DISABLE"),
        (2, "advises", "madvise(at, 32 << 20, MADV_NOHUGEPAGE)", "MADV_NOHUGEPAGE"),
    ] {
        let command = c_program(&bench, name, &touches("32 << 20", "MAP_PRIVATE", call));
        let ran = bench.advised(&[&BY_FAULTS[..], &["--html", &html]].concat(), &command).ran();
        let without = "advice: thp is not possible without changing the program: ";
        ran.assert_exit(0, &[]).assert_stdout(&["thp is the best of 2 policies", without, "pagelab exec -p thp -- "]);
        assert!(!ran.stdout.contains("echo "), "{ran}");
        let report = std::fs::read_to_string(&html).unwrap();
        let (_, advice) = report.split_once("<h2 id=\"advice\">").unwrap();
        assert!(advice.contains("without changing the program"), "{advice}");
        let advice = &bench.stored(number)["advice"];
        assert!(advice["source_change"].as_str().unwrap().contains(source), "{advice:#}");
        assert!(advice["attempts"].as_array().unwrap().iter().all(|attempt| attempt["holds"] == false), "{advice:#}");
    }
}

/// Settings are tried on a server as on any program. Redis has an allocator of its own, which glibc's tunable does not
/// reach.
#[test]
fn redis_gets_the_switch_of_its_allocator() {
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
    let ran = bench.advised(&options, &client).ran();
    ran.assert_exit(0, &[])
        .assert_stdout(&["thp is the best of 2 policies", "advice: start it with MALLOC_CONF=thp:always ("]);
    let shown = bench.pagelab(&["show", "1", "--store", &bench.store()]).ran();
    assert_eq!(shown.stdout, ran.stdout, "the stored comparison reads as the fresh one");
    let document = bench.stored(1);
    let attempt = &document["advice"]["attempts"][0];
    assert_eq!((&attempt["holds"], &attempt["changes"][0]["variable"]), (&true.into(), &"MALLOC_CONF".into()));
}

/// A server that does not start under a setting becomes a row, and the other settings are tried.
#[test]
fn a_server_that_ends_under_a_setting_is_a_row() {
    if !can_compare_c() {
        return;
    }
    let bench = Bench::new();
    let socket = bench.word("up");
    let body =
        format!("if (getenv(\"GLIBC_TUNABLES\")) return 3; {ALLOCATES} close(creat(\"{socket}\", 0600)); pause();");
    let server = c_program(&bench, "server", &body)[0].clone();
    let ready = format!("test -e {socket}");
    let prepare = format!("rm -f {socket}");
    let options = [&BY_FAULTS[..], &["--server", &server, "--ready", &ready, "--prepare", &prepare]].concat();
    let ran = bench.advised(&options, &words_of(&["true"])).ran();
    ran.assert_exit(0, &[]).assert_stdout(&["thp is the best of 2 policies", "advice: "]);
    let all = bench.pagelab(&["advise", "--show", "1", "--store", &bench.store()]).ran();
    all.assert_exit(0, &[]).assert_stdout(&["the program failed: the server ended", "start it with GLIBC_TUNABLES"]);
}

#[test]
fn a_policy_that_changes_nothing_gets_no_setting() {
    if !can_compare_c() {
        return;
    }
    let _alone = Alone::wait();
    let bench = Bench::new();
    // Mappings of one page each have no slot for a large page.
    let body = "for (int i = 0; i < 2000; i++) { char *at = mmap(0, 8192, PROT_READ | PROT_WRITE, \
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); at[0] = 1; mprotect(at + 4096, 4096, PROT_NONE); }";
    let ran = bench.advised(&[&BY_FAULTS[..], &QUICK[2..]].concat(), &c_program(&bench, "pieces", body)).ran();
    ran.assert_exit(0, &[]).assert_stdout(&[
        "not held",
        "nothing gained: asking for thp changes the minor faults of base by no more than 1 % in either direction",
    ]);
    let document = bench.stored(1);
    let arm = arm(&document, "thp");
    assert_eq!(arm["verdict"]["holding"], "not_held");
    ran.assert_stdout(&["advice: change nothing: no policy is better than the baseline"]);
}

/// The setting that advice names was seen to give the pages, and following the advice to the letter gives them.
#[test]
fn advice_names_a_setting_that_works_when_it_is_followed() {
    if !can_compare_c() {
        return;
    }
    let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
    if !needs(&[("THP for programs that ask for it (enabled: madvise)", is_for_advised())]) {
        return;
    }
    let bench = Bench::new();
    let mapped = touches("32 << 20", "MAP_PRIVATE", "(void)0");
    for (name, body, instruction) in [
        ("mapped", mapped.as_str(), format!("as root: echo always > {enabled}")),
        // The program of the demo.
        ("chase", "", format!("as root: echo always > {enabled}")),
        ("allocated", ALLOCATES, "start it with GLIBC_TUNABLES=glibc.malloc.hugetlb=1".to_owned()),
    ] {
        let command = if body.is_empty() { chase(&bench) } else { c_program(&bench, name, body) };
        let options = ["-p", "default,thp", "--primary", "minor_faults", "--blocks", "6"];
        let ran = bench.advised(&options, &command).ran();
        ran.assert_exit(0, &[]).assert_stdout(&["thp is the best of 2 policies", &format!("advice: {instruction} (")]);
        let followed = match instruction.split_once(": ") {
            Some((_, root)) => format!("{root}; {} inspect --json -- {}", bench.program().display(), command.join(" ")),
            None => {
                let variable = instruction.trim_start_matches("start it with ");
                format!("{variable} {} inspect --json -- {}", bench.program().display(), command.join(" "))
            }
        };
        let _lease_guard = LeaseGuard::wait();
        let looked = Command::new("sh").args(["-c", &followed]).ran();
        std::fs::write(enabled, "madvise").unwrap();
        assert!(large_bytes(&looked) >= 28 << 20, "{looked}");
    }
    let full = bench.pagelab(&["show", "1", "--full", "--store", &bench.store()]).ran();
    full.assert_exit(0, &[]).assert_stdout(&["no effect: 0 of ", "holds: "]);
    let all = bench.pagelab(&["advise", "--show", "1", "--store", &bench.store()]).ran();
    all.assert_exit(0, &[]).assert_stdout(&[
        "no effect: 0 of ",
        "start it with GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
        "holds: ",
    ]);
}

/// The files that are written have the effect that was seen, and the measurement has an interval of its own. Larger
/// sizes than the policy's are switched off, because they are not what won; the PMD size is enabled for advised memory
/// here.
#[test]
fn advice_on_mthp_switches_larger_sizes_off() {
    let sizes = Path::new("/sys/kernel/mm/transparent_hugepage/hugepages-64kB").exists();
    let is_for_advised = ("THP for programs that ask for it (enabled: madvise)", is_for_advised());
    if !can_compare_c() || !needs(&[is_for_advised, ("a kernel with folios of 64K", sizes)]) {
        return;
    }
    let bench = Bench::new();
    let program = c_program(&bench, "allocated", ALLOCATES);
    let options = ["-p", "default,mthp-64k", "--primary", "minor_faults", "--blocks", "6"];
    let off = "cd /sys/kernel/mm/transparent_hugepage; echo never > hugepages-2048kB/enabled; echo madvise > \
               hugepages-64kB/enabled";
    let expected =
        ["mthp-64k is the best of 2 policies", off, "GLIBC_TUNABLES=glibc.malloc.hugetlb=1", "in 64K pages, "];
    bench.advised(&options, &program).ran().assert_exit(0, &[]).assert_stdout(&expected);
}

#[test]
fn written_files_put_the_setting_into_effect() {
    if !can_compare_c() || !needs(&[("THP for programs that ask for it (enabled: madvise)", is_for_advised())]) {
        return;
    }
    let bench = Bench::new();
    let command = c_program(&bench, "allocated", ALLOCATES);
    let written = bench.word("written");
    let options = ["-p", "default,thp", "--primary", "minor_faults", "--blocks", "6"];
    let advise = |words: &[&str]| bench.pagelab(&[&["advise", "--store", &bench.store()], words].concat());
    let mut first = advise(&[&options[..], &["--measure", "--write", &written, "--"]].concat());
    let ran = first.args(&command).ran();
    ran.assert_exit(0, &[]).assert_stdout(&[
        "holds: ",
        "measured without the tracer, comparison 2: setting is the best of 2 arms: minor faults",
    ]);
    let wrapper = Path::new(&written).join("bin/allocated");
    let lease_guard = LeaseGuard::wait();
    let looked = bench.pagelab(&["inspect", "--json", "--", wrapper.to_str().unwrap()]).ran();
    drop(lease_guard);
    assert!(large_bytes(&looked) >= 56 << 20, "{looked}");
    let drop_in = std::fs::read_to_string(Path::new(&written).join("allocated.service.d/pages.conf")).unwrap();
    assert_eq!(drop_in, "[Service]\nEnvironment=\"GLIBC_TUNABLES=glibc.malloc.hugetlb=1\"\n");
    let again = advise(&["--show", "1", "--write", &written]).ran();
    again.assert_exit(2, &["bin/allocated", "exists"]);
    let measured = bench.stored(2);
    let trials = measured["trials"].as_array().unwrap();
    assert!(trials.iter().all(|trial| observed(trial, "tracer_stops").is_none_or(|stops| stops == 0.0)), "untraced");
    assert_eq!(measured["arms"].as_array().unwrap().len(), 2);
}

/// A program that requests hugetlb pages itself needs only a pool. A program that uses malloc also needs glibc's
/// tunable.
#[test]
fn pools_are_as_large_as_the_program_needs_them() {
    if !can_compare_c() {
        return;
    }
    let bench = Bench::new();
    let asks = "char *at = mmap(0, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0); \
                if (at == MAP_FAILED) at = mmap(0, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); \
                memset(at, 1, 32 << 20);";
    let options = ["-p", "default,hugetlb-2m", "--primary", "minor_faults", "--blocks", "6"];
    for (number, name, body, kinds, pages) in
        [(1, "asks", asks, &["pool"][..], 16..=16), (2, "allocated", ALLOCATES, &["pool", "environment"], 31..=36)]
    {
        let ran = bench.advised(&options, &c_program(&bench, name, body)).ran();
        ran.assert_exit(0, &[]).assert_stdout(&["hugetlb-2m is the best of 2 policies"]);
        let advice = bench.stored(number)["advice"].clone();
        let attempt = advice["attempts"].as_array().unwrap().last().unwrap();
        assert_eq!(attempt["holds"], true, "{advice:#}");
        let changes = attempt["changes"].as_array().unwrap();
        assert_eq!(changes.iter().map(|change| change["kind"].as_str().unwrap()).collect::<Vec<_>>(), kinds);
        assert!(pages.contains(&changes[0]["pages"].as_u64().unwrap()), "{advice:#}");
    }
}

/// A setting under which the program hangs, or gives another answer, becomes a row, and the next setting is tried.
#[test]
fn a_hang_and_another_answer_are_rows() {
    if !can_compare_c() || !needs(&[("THP for programs that ask for it (enabled: madvise)", is_for_advised())]) {
        return;
    }
    let bench = Bench::new();
    let (mapped, prints) = (touches("64 << 20", "MAP_PRIVATE", "(void)0"), "write(1, at, 1);");
    let options = [&BY_FAULTS[..], &["--check-output", "--trial-time", "3s"]].concat();
    for (number, name, reaction, row) in [
        (1, "hangs", "pause();", "the program failed: it took longer than --trial-time"),
        (2, "differs", "write(1, \"?\", 1);", "the program gave another answer"),
    ] {
        let body = format!("if (getenv(\"GLIBC_TUNABLES\")) {{ {reaction} }} {mapped} {prints}");
        let program = c_program(&bench, name, &body);
        bench.advised(&options, &program).ran().assert_exit(0, &[]).assert_stdout(&["advice: as root: echo always"]);
        let all = bench.pagelab(&["advise", "--show", &format!("{number}"), "--store", &bench.store()]).ran();
        all.assert_exit(0, &[]).assert_stdout(&[row, "holds: 64M: as root: echo always"]);
    }
}

/// An environment variable does not reach a program that is started with an empty environment.
#[test]
fn an_environment_that_is_cleared_is_named() {
    if !can_compare_c() || !needs(&[("THP for programs that ask for it (enabled: madvise)", is_for_advised())]) {
        return;
    }
    let bench = Bench::new();
    let program = c_program(&bench, "allocated", ALLOCATES);
    let command = [words_of(&["env", "-i"]), program].concat();
    let ran = bench.advised(&["-p", "default,thp", "--primary", "minor_faults", "--blocks", "6"], &command).ran();
    ran.assert_exit(0, &[])
        .assert_stdout(&["thp is the best of 2 policies", "advice: thp is not possible without changing the program"]);
    let all = bench.pagelab(&["advise", "--show", "1", "--store", &bench.store()]).ran();
    all.assert_exit(0, &[])
        .assert_stdout(&["clears its environment, so GLIBC_TUNABLES did not reach it: start it with GLIBC_TUNABLES"]);
}

/// A program that advises its own memory needs no setting, even if the policy gives a little more.
#[test]
fn nothing_is_changed_for_a_program_that_advises_its_memory() {
    if !can_compare_c() || !needs(&[("THP for programs that ask for it (enabled: madvise)", is_for_advised())]) {
        return;
    }
    let bench = Bench::new();
    let advised = touches("64 << 20", "MAP_PRIVATE", "madvise(at, 64 << 20, MADV_HUGEPAGE)");
    let other = touches("5 << 20", "MAP_PRIVATE", "(void)0").replace("char *at", "at");
    let program = c_program(&bench, "advises", &format!("{advised} {other}"));
    let ran = bench.advised(&["-p", "default,thp", "--primary", "minor_faults", "--blocks", "6"], &program).ran();
    ran.assert_exit(0, &[]).assert_stdout(&[
        "thp is the best of 2 policies",
        "advice: change nothing: the program has 64M in large pages without a policy, 6",
    ]);
}

#[test]
fn a_running_process_gets_a_list_and_a_collapse() {
    if !can_compare_c() || !needs(&[("THP for programs that ask for it (enabled: madvise)", is_for_advised())]) {
        return;
    }
    let bench = Bench::new();
    let _lease_guard = LeaseGuard::wait();
    let program = c_program(&bench, "pauses", &format!("{ALLOCATES} close(creat(getenv(\"UP\"), 0600)); pause();"));
    let up = bench.path("up");
    let running = Command::new(&program[0]).env_clear().env("UP", &up).begin();
    assert!(within(LIMIT, || up.exists()));
    let pid = running.id().to_string();
    let advised = bench.pagelab(&["advise", &pid]).ran();
    advised.assert_exit(0, &[]).assert_stdout(&[
        "not tried",
        "start it with GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
        "--collapse",
    ]);
    bench.pagelab(&["advise", &pid, "--collapse"]).ran().assert_exit(0, &[]).assert_stdout(&["gained of"]);
    let bare = Command::new("sleep").arg("600").env_clear().begin();
    let noted = bench.pagelab(&["advise", &bare.id().to_string()]).ran();
    noted.assert_exit(0, &[]).assert_stdout(&["its environment is empty"]);
    for words in [&[&pid, "--measure"][..], &[&pid, "--write", "x"], &["--show", "1", &pid], &["none-such"], &[]] {
        assert_eq!(bench.pagelab(&[&["advise"], words].concat()).ran().code, Some(2), "{words:?}");
    }
}

/// The workload of the demo, with less memory.
fn chase(bench: &Bench) -> Vec<String> {
    let program = bench.program().display().to_string();
    [vec![program], words_of(&["workload", "chase", "--bytes", "32M", "--steps", "1000"])].concat()
}

/// A C program's body that allocates and touches 62M in small steps.
const ALLOCATES: &str = "for (int i = 0; i < 4000; i++) memset(malloc(16000), 1, 16000);";

fn is_for_advised() -> bool {
    let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
    std::fs::read_to_string(enabled).is_ok_and(|text| text.contains("[madvise]"))
}

/// Bytes that 2M leaves map in a command, at its exit or at its peak.
fn large_bytes(looked: &Ran) -> u64 {
    // The output of the program comes first.
    let document: Value = serde_json::from_str(&looked.stdout[looked.stdout.find('{').unwrap()..]).unwrap();
    let of = |process: &Value| {
        let rows =
            process["regions"].as_array().into_iter().flatten().flat_map(|region| region["census"].as_array().unwrap());
        rows.filter(|row| row["leaf_bytes"] == 2 << 20).map(|row| row["bytes"].as_u64().unwrap()).sum()
    };
    u64::max(of(&document["processes"][0]), of(&document["peak"]["process"]))
}
