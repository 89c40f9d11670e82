//! Tests of `pagelab exec`, which runs a command under one policy, as if the command were run directly.

mod common;

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use common::*;

/// Policies that need no change of settings, and with root also those that do.
fn policies() -> Vec<&'static str> {
    let mut policies = vec!["default", "base", "thp+no-huge"];
    if needs(&[root()]) {
        policies.extend(["thp", "thp+no-guards", "hugetlb-2m", "mthp-64k"]);
    }
    policies
}

#[test]
fn streams_and_status_are_the_commands() {
    let bench = Bench::new();
    for policy in policies() {
        let mut exec = bench.pagelab(&["exec", "-p", policy, "--", "sh", "-c", "cat; echo err >&2; exit 7"]);
        let mut child = exec.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).begin();
        child.stdin().write_all(b"through\0it\n").unwrap();
        let ran = child.ran();
        ran.assert_exit(7, &["err"]);
        assert_eq!(ran.stdout, "through\0it\n", "{policy}");
    }
}

#[test]
fn reports_a_signal_that_ends_the_command() {
    let bench = Bench::new();
    for policy in policies() {
        for (name, signal) in [("TERM", 15), ("SEGV", 11), ("KILL", 9), ("PIPE", 13)] {
            let script = format!("kill -{name} $$");
            let status = bench.pagelab(&["exec", "-p", policy, "--", "sh", "-c", &script]).begin().wait();
            let received = status.signal().or(status.code().map(|code| code - 128));
            assert_eq!(received, Some(signal), "{policy}: {status}");
        }
    }
}

#[test]
fn a_closed_pipe_ends_the_command_as_without_pagelab() {
    let bench = Bench::new();
    for policy in policies() {
        let script = format!("{} exec -p {policy} -- yes | head -1", bench.word("pagelab"));
        let ran = bench.pagelab(&["exec", "-p", "default", "--", "sh", "-c", &script]).ran();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "y\n"), "{policy}: {ran}");
    }
}

#[test]
fn default_replaces_pagelab_itself() {
    let bench = Bench::new();
    let mut exec = bench.pagelab(&["exec", "-p", "default", "--", "sh", "-c", "echo $$"]);
    let child = exec.stdout(Stdio::piped()).begin();
    let pid = child.id();
    assert_eq!(child.ran().stdout, format!("{pid}\n"));
}

/// Checks the memory as the program itself sees it, not as pagelab reports it.
#[test]
fn the_program_has_the_pages_that_were_asked_for() {
    if !needs(&[root(), program("python3")]) {
        return;
    }
    let bench = Bench::new();
    let script = "import mmap,re\nm = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                  for at in range(0, len(m), 4096): m[at] = 1\n\
                  text = open('/proc/self/smaps').read()\n\
                  print(*(sum(map(int, re.findall(name + r':\\s+(\\d+)', text))) >> 10 for name in\n\
                  ('AnonHugePages', 'Private_Hugetlb')))";
    for (policy, thp_mib, hugetlb_mib) in [("base", 0..1, 0..1), ("thp", 60..200, 0..1), ("hugetlb-2m", 0..1, 60..200)]
    {
        let ran = bench.pagelab(&["exec", "-p", policy, "--", "python3", "-c", script]).ran();
        ran.assert_exit(0, &[]);
        let seen: Vec<u32> = ran.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
        assert!(thp_mib.contains(&seen[0]) && hugetlb_mib.contains(&seen[1]), "{policy}: {seen:?} MiB");
    }
}

/// The program calls prctl itself, which would end the policy. No tracer is attached: a seccomp filter of pagelab makes the
/// kernel answer the call.
#[test]
fn base_holds_against_the_program_itself() {
    if !needs(&[program("python3")]) {
        return;
    }
    let bench = Bench::new();
    let script = "import ctypes,mmap,re\nlibc = ctypes.CDLL(None)\n\
                  call = lambda *a: libc.prctl(*(ctypes.c_ulong(n) for n in a))\n\
                  set, get = 41, 42\n\
                  print(call(set, 0, 0, 0, 0), call(set, 0, 0, 1, 0), call(set, 0, 2, 0, 0), call(set, 1, 99, 0, 0))\n\
                  excepts = call(set, 1, 2, 0, 0)\n\
                  m = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                  m.madvise(mmap.MADV_HUGEPAGE)\n\
                  for at in range(0, len(m), 4096): m[at] = 1\n\
                  text = open('/proc/self/smaps').read()\n\
                  print(sum(map(int, re.findall(r'AnonHugePages:\\s+(\\d+)', text))), call(get, 0, 0, 0, 0))\n\
                  print(re.findall(r'THP_enabled:\\s+(\\d+)', open('/proc/self/status').read()))";
    let answers = |exec: &mut Command| {
        let ran = exec.ran();
        ran.assert_exit(0, &[]);
        assert_eq!(ran.stdout, "0 -1 -1 -1\n0 1\n['0']\n", "{ran}");
    };
    answers(&mut bench.pagelab(&["exec", "-p", "base", "--", "python3", "-c", script]));
    if needs(&[root(), program("setpriv")]) {
        answers(&mut bench.pagelab(&["exec", "-p", "base", "--", "python3", "-c", script]).as_nobody());
    }
}

/// `exec` prints no table, so it reports this at the end.
#[test]
fn reports_at_the_end_what_the_tracer_did_and_prevented() {
    let bench = Bench::new();
    let quiet = bench.pagelab(&["exec", "-p", "default+no-huge", "--", "sh", "-c", "exit 3"]).ran();
    quiet.assert_exit(3, &[]);
    assert!(!quiet.stderr.contains("default+no-huge: "), "nothing to say: {quiet}");
    if needs(&[program("strace")]) {
        let ran = bench.pagelab(&["exec", "-p", "default+no-huge", "--", "strace", "true"]).ran();
        ran.assert_exit(
            1,
            &["pagelab: default+no-huge: the program traces processes itself (ptrace)", "without the debugger"],
        );
    }
    if needs(&[root(), program("setpriv"), program("id")]) {
        let (original, copy) = ("/usr/bin/id", bench.path("id"));
        std::fs::copy(original, &copy).unwrap();
        std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
        let words = ["exec", "-p", "default+no-huge", "--", &bench.word("id"), "-u"];
        let ran = bench.pagelab(&words).as_nobody().ran();
        ran.assert_exit(0, &["a setuid program ran without its privilege", "run pagelab as root"]);
        assert_ne!(ran.stdout, "0\n", "{ran}");
    }
}

#[test]
fn a_command_that_cannot_run_ends_as_in_a_shell_and_an_unsupported_policy_with_3() {
    let bench = Bench::new();
    let exec = |policy: &str, command: &str| bench.pagelab(&["exec", "-p", policy, "--", command]).ran();
    for policy in ["default", "base", "thp+no-huge"] {
        exec(policy, "no-such-command").assert_exit(127, &["\"no-such-command\" was not found", "PATH"]);
        exec(policy, "/tmp").assert_exit(126, &["\"/tmp\" is not executable", "directory"]);
    }
    exec("thq", "true").assert_exit(2, &["nearest is \"thp\""]);
    exec("mthp-2k", "true").assert_exit(3, &["mthp-2k", "no folios of 2K"]);
}

#[test]
fn a_signal_to_pagelab_reaches_the_command_and_settings_return() {
    if !needs(&own_lease()) {
        return;
    }
    let bench = Bench::with_own_lease();
    let before = settings();
    let script = "trap 'echo told; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let mut exec = bench.pagelab(&["exec", "-p", "mthp-64k", "--", "sh", "-c", script]);
    let mut child = exec.stdin(Stdio::null()).stdout(Stdio::piped()).begin();
    let mut stdout = std::io::BufReader::new(child.stdout());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert_ne!(settings(), before, "the policy needs settings");
    send("TERM", child.id());
    std::io::Read::read_to_string(&mut stdout, &mut line).unwrap();
    assert_eq!((line.as_str(), child.wait().code()), ("ready\ntold\n", Some(5)));
    assert_eq!(bench.settings_at_rest(), before);
}
