//! Bare and sham trials.

use super::*;

/// Runs the program without a tracer, started in the same way.
fn run_untraced(command: &[&str]) -> (Result<Ended, LaunchError>, String) {
    let mut file = tempfile::tempfile().expect("a file for the output");
    let ended = run_bare(&launch(command, &file), Duration::from_millis(200));
    let mut output = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut output).unwrap();
    (ended, output.trim_end().to_string())
}

#[test]
fn a_bare_run_differs_from_a_traced_one_only_in_filter_and_tracer() {
    let _alone = alone();
    let look =
        ["sh", "-c", "grep -E '^(TracerPid|Seccomp|NoNewPrivs|SigBlk|SigIgn|CapEff)' /proc/self/status; ps -o sid= $$"];
    let (ended, bare) = run_untraced(&look);
    let traced = under("default", &look).output;
    assert_eq!(ended.unwrap().exit, Exit::Code(0));
    let field = |text: &str, name: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
        line.trim().to_string()
    };
    assert_eq!((&*field(&bare, "TracerPid:"), &*field(&bare, "Seccomp:")), ("0", "0"));
    assert_ne!((&*field(&traced, "TracerPid:"), &*field(&traced, "Seccomp:")), ("0", "0"));
    for name in ["NoNewPrivs:", "SigBlk:", "SigIgn:", "CapEff:"] {
        assert_eq!(field(&bare, name), field(&traced, name), "{name}");
    }
    assert_eq!(bare.lines().last(), traced.lines().last(), "the session");
}

#[test]
fn a_bare_run_returns_the_exit_of_its_program_and_kills_leftovers() {
    let _alone = alone();
    let exit = |line: &str| run_untraced(&["sh", "-c", line]).0.unwrap().exit;
    assert_eq!([exit("exit 7"), exit("kill -SEGV $$")], [Exit::Code(7), Exit::Signal(libc::SIGSEGV)]);
    let (ended, output) = run_untraced(&["sh", "-c", "sleep 1000 >/dev/null & echo $!"]);
    assert_eq!(ended.unwrap().killed_leftovers, 1);
    assert!(!Path::new("/proc").join(output).exists());
    let busy = "(i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done) & wait";
    let (ended, _) = run_untraced(&["sh", "-c", busy]);
    let ended = ended.unwrap();
    assert!(ended.usage.user_s > 0.0 && ended.wall_s > 0.0 && ended.stops == 0, "{ended:?}");
    assert!(matches!(run_untraced(&["/etc/passwd"]).0, Err(LaunchError::NotExecutable(_, Refusal::NoPermission))));
}

fn sham(policy: &str, pace: Pace, command: &[&str]) -> Outcome {
    let stops: Policy = policy.parse().expect("a policy");
    let rewriting = Rewriting::sham(&stops, &Policy::DEFAULT, host().page_sizes(), pace);
    rewritten(rewriting, command, |_| {}).unwrap_or_else(|error| panic!("{command:?} as {policy}: {error}"))
}

#[test]
fn a_sham_run_stops_as_often_as_the_policy_and_changes_nothing() {
    let _alone = alone();
    let Some(program) = c("churn") else { return };
    for policy in ["thp", "thp+no-guards", "thp+prefault", "hugetlb-2m"] {
        let command = [text(&program), "400", "4194304", "0"];
        let real = under(policy, &command).ended;
        let outcome = sham(policy, real.pace, &command);
        let (real_stops, sham_stops) = (real.stops as f64, outcome.ended.stops as f64);
        assert!((sham_stops / real_stops - 1.0).abs() < 0.05, "{policy}: {sham_stops} against {real_stops} stops");
        assert!(outcome.ended.answered.is_empty() && outcome.ended.causes.is_empty(), "{policy}: {:?}", outcome.ended);
    }
}

#[test]
fn a_program_keeps_its_memory_under_a_sham() {
    let _alone = alone();
    let Some(program) = c("torture") else { return };
    let pace = Pace { served_ratio: 0.7, further_stops: 3.5 };
    for policy in ["thp", "thp+no-guards", "thp+prefault", "hugetlb-2m"] {
        let outcome = sham(policy, pace, &[text(&program), "5", "1000", "closed"]);
        assert_eq!(outcome.output, "torture 5 1000 kept its memory", "{policy}");
        assert_eq!(outcome.seen.bytes("Private_Hugetlb"), 0, "{policy}");
    }
}

#[test]
fn a_sham_run_of_thp_gets_no_thp() {
    let _alone = alone();
    let Some(program) = c("thp_settings") else { return };
    let Some(_settings) = advised_only() else { return skip("root, and THP on 4K pages") };
    for how in ["advise", "zeroed", "grown"] {
        let outcome = sham("thp", Pace { served_ratio: 1.0, further_stops: 3.0 }, &[text(&program), how]);
        assert_eq!(outcome.seen.bytes("AnonHugePages"), 0, "{how}");
    }
    assert!(
        sham("thp", Pace::default(), &[text(&program), "huge"]).seen.bytes("AnonHugePages") >= 12 << 20,
        "the program's own advice is in force"
    );
}

#[test]
fn prctl_policies_stop_no_more_calls_than_default() {
    let _alone = alone();
    let (Some(churn), Some(program)) = (c("churn"), c("thp_settings")) else { return };
    let stops = |policy: &str| under(policy, &[text(&churn), "50", "1048576", "0"]).ended.stops;
    assert_eq!([stops("base"), stops("default+no-huge"), stops("thp+no-huge")], [stops("default"); 3]);
    let outcome = under("default+no-huge", &[text(&program), "disable"]);
    assert_eq!(outcome.output, "again: 0 1, resident 1", "the program gets the answer that it expects");
}
