//! Programs that use filters, signals, debuggers or privileges.

use super::*;

#[test]
fn programs_may_install_their_own_filters() {
    let _alone = alone();
    let Some(program) = c("filters") else { return };
    let expected = [
        ("kill", "kill: 1, child 0"),
        ("threads", "threads: 0 0 1"),
        ("strict", "strict: 7, forbidden 1, refused 1"),
        ("foreign", "foreign: -1 1"),
    ];
    for (how, output) in expected {
        assert_eq!(bare(&[text(&program), how]), output);
        for policy in ["default", "base", "thp", "thp+prefault", "default+no-huge", "hugetlb-2m"] {
            let outcome = under(policy, &[text(&program), how]);
            assert_eq!(outcome.output, output, "{policy}");
            let filtered = outcome.has(&Cause::FilteredByProgram);
            let advises = policy.starts_with("thp");
            assert_eq!(filtered, advises && matches!(how, "kill" | "threads"), "{policy} {how}");
        }
    }
}

#[test]
fn timers_and_stops_work() {
    assert_timers_and_stops_work(&["default", "thp", "thp+no-guards"]);
}

#[test]
fn timers_and_stops_work_under_hugetlb() {
    assert_timers_and_stops_work(&["hugetlb-2m"]);
}

fn assert_timers_and_stops_work(policies: &[&str]) {
    let _alone = alone();
    let Some(program) = c("signals") else { return };
    for policy in policies {
        let outcome = under(policy, &[text(&program), "timer"]);
        assert_eq!(outcome.output, "timer: enough 1, strange 0, blocked 0", "{policy}");
        let outcome = under(policy, &[text(&program), "stops"]);
        assert_eq!(outcome.output, "stops: stopped 100, resumed 100, killed 9", "{policy}");
        assert_eq!(under(policy, &[text(&program), "self"]).output, bare(&[text(&program), "self"]), "{policy}");
    }
}

#[test]
fn nested_tracers_fail_and_are_reported() {
    let _alone = alone();
    for (tool, command) in
        [("strace", &["strace", "-f", "true"][..]), ("gdb", &["gdb", "-batch", "-ex", "run", "true"])]
    {
        if bare(&["sh", "-c", &format!("command -v {tool}")]).is_empty() {
            skip(tool);
            continue;
        }
        let outcome = under("thp", command);
        assert!(outcome.has(&Cause::Debugger), "{tool}: {:?} {}", outcome.ended.causes, outcome.output);
    }
}

#[test]
fn a_32_bit_program_runs_unchanged() {
    let _alone = alone();
    if !cfg!(target_arch = "x86_64") {
        return skip("x86-64");
    }
    // Without libraries, so that the host's compiler is enough.
    let options = ["-m32", "-static", "-nostdlib", "-ffreestanding", "-fno-pic", "-fno-stack-protector"];
    let Some(program) = compile("gcc", "abi32", &options) else { return skip("gcc") };
    let expected = bare(&[text(&program)]);
    assert_eq!(expected, "00002048");
    for policy in ["base", "thp", "default+no-huge", "hugetlb-2m", "thp+no-guards"] {
        let outcome = under(policy, &[text(&program)]);
        assert_eq!(outcome.output, expected, "{policy}");
        assert!(outcome.has(&Cause::ForeignAbi));
    }
    // The program enables THP for itself. No tracer stops that; the filter answers.
    validation::free_large_blocks();
    let Some(mut settings) = Settings::lease() else { return skip("root") };
    settings.set(&format!("{THP}/enabled"), "always");
    settings.set(&format!("{THP}/defrag"), "always");
    let huge = |policy: &str| under(policy, &[text(&program)]).seen.bytes("AnonHugePages");
    assert!(huge("default") >= 4 << 20);
    assert_eq!(huge("base"), 0);
}

#[test]
fn setuid_programs_change_the_user_only_if_root_runs_them() {
    let _alone = alone();
    let Some(program) = c("identity") else { return };
    if !is_root() {
        return skip("root");
    }
    let folder = public_folder();
    let program = public_copy(&folder, &program, 0o4755);
    let outcome = try_under("thp", &[text(&program)], |launch| launch.user = Some(nobody())).unwrap();
    assert_eq!(outcome.output, "user 65534 for 65534");
    assert!(outcome.has(&Cause::PrivilegeNotGained));
    std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let outcome = under("thp", &[text(&program)]);
    assert_eq!(outcome.output, "user 65534 for 0", "unless {folder:?} is mounted nosuid");
    assert!(!outcome.has(&Cause::PrivilegeNotGained));
}

/// Runs one ignored test of this file as the unprivileged user `nobody()`, on a program.
fn as_nobody(test: &str, program: &Path, mode: u32) {
    let folder = public_folder();
    let program = public_copy(&folder, program, mode);
    let tests = public_copy(&folder, &std::env::current_exe().unwrap(), 0o755);
    let mut command = Command::new(tests);
    command.args(["--exact", test, "--ignored", "--nocapture"]).env("PAGELAB_TEST_PROGRAM", program);
    let output = command.uid(65534).gid(65534).current_dir("/").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn works_without_root() {
    let _alone = alone();
    let (Some(mix), Some(identity)) = (c("mix"), c("identity")) else { return };
    if !is_root() {
        return skip("root, to become another user");
    }
    as_nobody("confined::nobody_traces", &mix, 0o755);
    as_nobody("confined::nobody_gains_no_privilege", &identity, 0o4755);
}

#[test]
#[ignore = "run by works_without_root, as another user"]
fn nobody_traces() {
    assert!(!is_root());
    let program = std::env::var("PAGELAB_TEST_PROGRAM").expect("a program");
    let expected = bare(&[&program]);
    for policy in POLICIES.into_iter().chain(["hugetlb-2m"]) {
        assert_eq!(under(policy, &[&program]).output, expected, "{policy}");
    }
    let refused = try_under("thp", &[&program], |launch| launch.user = Some(user("daemon", 1)));
    assert!(matches!(refused, Err(LaunchError::Prepare { step: "becoming the user", .. })), "only root can");
}

#[test]
#[ignore = "run by works_without_root, as another user"]
fn nobody_gains_no_privilege() {
    let program = std::env::var("PAGELAB_TEST_PROGRAM").expect("a program");
    let outcome = under("thp", &[&program]);
    assert_eq!(outcome.output, "user 65534 for 65534");
    assert!(outcome.has(&Cause::PrivilegeNotGained));
}
