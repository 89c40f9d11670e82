//! How trees end, and what the witness inspects before.

use super::*;

#[test]
fn processes_that_outlive_the_root_are_killed() {
    let _alone = alone();
    let line = "sleep 600 & (trap '' TERM HUP; while :; do sleep 0.01; done) & echo done";
    let outcome = under("thp", &["sh", "-c", line]);
    assert_eq!(outcome.output, "done");
    assert!(outcome.ended.killed_leftovers >= 2);
}

/// A daemon that works is waited for, like a program in the foreground; one that is idle is not.
#[test]
fn working_processes_that_outlive_the_root_may_finish() {
    let _alone = alone();
    let work = "i=0; while [ $i -lt 400000 ]; do i=$((i + 1)); done; echo done";
    let outcome = under("thp", &["sh", "-c", &format!("({work}) &")]);
    assert_eq!((outcome.output.as_str(), outcome.ended.killed_leftovers), ("done", 0));
    let Ended { outlived_s, outlived_cpu_s, usage, wall_s, cut_short, .. } = outcome.ended;
    let cpu_s = usage.user_s + usage.system_s;
    assert!(
        outlived_s > wall_s && outlived_cpu_s > cpu_s / 2.0 && outlived_cpu_s <= cpu_s,
        "{outlived_cpu_s} of {cpu_s} s"
    );
    assert!(!cut_short);
    let alone = under("thp", &["sh", "-c", "exit 0"]).ended;
    assert_eq!((alone.outlived_s, alone.outlived_cpu_s), (0.0, 0.0));
}

/// A witness each of whose inspections takes this long.
struct Slow(Duration);

impl Witness for Slow {
    fn begins(&mut self, _: libc::pid_t) {}

    fn ends(&mut self, _: libc::pid_t) {
        std::thread::sleep(self.0);
    }

    fn unmaps(&mut self, _: libc::pid_t, _: u64, _: u64) {}
}

/// A witness that counts all freed memory.
#[derive(Default)]
struct Everything {
    freed_bytes: u64,
    replaced: usize,
}

impl Witness for Everything {
    fn begins(&mut self, _: libc::pid_t) {}
    fn ends(&mut self, _: libc::pid_t) {}

    fn unmaps(&mut self, _: libc::pid_t, start: u64, end: u64) {
        self.freed_bytes += end - start;
    }

    fn inspected_removals(&self) -> InspectedRemovals {
        InspectedRemovals::All
    }

    fn replaces(&mut self, _: libc::pid_t) {
        self.replaced += 1;
    }
}

#[test]
fn programs_do_not_notice_that_all_freed_memory_is_inspected() {
    let _alone = alone();
    let (Some(mix), Some(pieces)) = (c("mix"), c("freed")) else { return };
    let inspected = |policy: &str, command: &[&str]| {
        let rewriting = Rewriting::of(&policy.parse().unwrap(), host().page_sizes());
        let mut file = tempfile::tempfile().unwrap();
        let mut everything = Everything::default();
        let leftovers = Leftovers::KillAfter(Duration::from_millis(200));
        let mut launch = launch(command, &file);
        launch.disable_thp = rewriting.disable_thp;
        let ended = run(&launch, &rewriting, Some(&mut everything), leftovers).unwrap();
        let mut output = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut output).unwrap();
        (ended.exit, output.trim_end().to_string(), everything)
    };
    let expected = bare(&[text(&mix)]);
    for policy in ["default", "base", "thp", "thp+prefault", "default+no-guards", "default+no-huge", "hugetlb-2m"] {
        let (exit, output, _) = inspected(policy, &[text(&mix)]);
        assert_eq!((exit, &output), (Exit::Code(0), &expected), "{policy}");
        for how in ["unmap", "heap", "shrink", "drop", "free", "over"] {
            let (exit, _, seen) = inspected(policy, &[text(&pieces), "524288", "16777216", how]);
            // Under hugetlb a pool page is freed with its last piece.
            let all_but = if policy == "hugetlb-2m" && how == "free" { 16 << 20 } else { 2 << 20 };
            assert!(exit == Exit::Code(0) && seen.freed_bytes >= (16 << 20) - all_but, "{policy} {how}: {exit:?}");
        }
        // Failed exec attempts along PATH are reported too, but the start of the program itself is not.
        let (exit, _, seen) = inspected(policy, &[text(&pieces), "524288", "1048576", "exec"]);
        assert!(exit == Exit::Code(0) && seen.replaced >= 1, "{policy}: {exit:?}");
        assert_eq!(inspected(policy, &[text(&pieces), "524288", "1048576", "keep"]).2.replaced, 0, "{policy}");
    }
}

#[test]
fn the_wall_time_includes_only_inspections_within_it() {
    let _alone = alone();
    let rewriting = Rewriting::of(&Policy::DEFAULT, host().page_sizes());
    let inspection_s = 0.3;
    let inspected = |line: &str| {
        let file = tempfile::tempfile().unwrap();
        let mut slow = Slow(Duration::from_secs_f64(inspection_s));
        let leftovers = Leftovers::KillAfter(Duration::from_millis(50));
        run(&launch(&["sh", "-c", line], &file), &rewriting, Some(&mut slow), leftovers).unwrap()
    };
    for (line, apart, within, after) in
        [("exit 0", 1.0, 0.0, 0.0), ("(exit 0); exit 0", 1.0, 1.0, 0.0), ("sleep 600 & sleep 0.1", 1.0, 1.0, 1.0)]
    {
        let since = Instant::now();
        let Ended { wall_s, tracer_s, inspection_times, .. } = inspected(line);
        let all_s = since.elapsed().as_secs_f64();
        for (took_s, count) in [
            (inspection_times.excluded_s, apart),
            (inspection_times.included_s, within),
            (inspection_times.after_root_s, after),
        ] {
            assert!(took_s >= inspection_s * count && (count > 0.0 || took_s == 0.0), "{line}: {took_s}");
        }
        // This holds however slow the machine is: `excluded_s` and `after_root_s` are not in the wall time, and `included_s` is.
        assert!(
            wall_s >= inspection_times.included_s
                && wall_s <= all_s - inspection_times.excluded_s - inspection_times.after_root_s,
            "{line}: {wall_s} of {all_s} s"
        );
        assert!(wall_s > 0.0 && tracer_s >= inspection_s * (apart + within + after), "{line}: {wall_s} {tracer_s}");
    }
}

#[test]
fn distinguishes_exits_and_failures() {
    let _alone = alone();
    let exit = |line: &str| under("thp", &["sh", "-c", line]).ended.exit;
    assert_eq!(exit("exit 7"), Exit::Code(7));
    assert_eq!(exit("kill -SEGV $$"), Exit::Signal(libc::SIGSEGV));
    let fails = |command: &[&str]| try_under("thp", command, |_| {}).err().expect("a failure");
    assert!(matches!(fails(&["no-such-command-here"]), LaunchError::NotFound(_)));
    let refusal = |command: &str| match fails(&[command]) {
        LaunchError::NotExecutable(_, refusal) => refusal,
        other => panic!("{command}: {other}"),
    };
    assert_eq!(refusal("/etc/passwd"), Refusal::NoPermission);
    assert_eq!(refusal("/"), Refusal::Directory);
    let file = FOLDER.join(format!("nothing.{}", std::process::id()));
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(refusal(text(&file)), Refusal::NoProgram);
    fs::write(&file, "#!/no/such\n").unwrap();
    assert_eq!(refusal(text(&file)), Refusal::NoInterpreter("/no/such".into(), file.clone()));
    fs::write(&file, "#!/etc/passwd\n").unwrap();
    assert_eq!(refusal(text(&file)), Refusal::Forbidden);
    fs::remove_file(file).unwrap();
}

#[test]
fn redis_keeps_its_data_and_its_large_pages() {
    let _alone = alone();
    if bare(&["sh", "-c", "command -v redis-server redis-cli"]).is_empty() {
        return skip("redis-server and redis-tools");
    }
    // redis disables THP for itself; saving forks a copy of the whole memory.
    let line = "d=$(mktemp -d); cd $d; trap 'rm -rf $d' EXIT; \
        redis-server --port 0 --unixsocket $d/s --save '' --appendonly no --enable-debug-command yes > log & \
        c=\"redis-cli -s $d/s\"; until $c ping > /dev/null 2>&1; do sleep 0.02; done; \
        $c debug populate 100000 key 100 > /dev/null; $c bgsave > /dev/null; \
        until $c info persistence | grep -q bgsave_in_progress:0; do sleep 0.02; done; \
        $c info persistence | grep -o last_bgsave_status:ok; $c dbsize; $c debug digest; $c shutdown nosave; wait";
    let mut settings = Settings::lease();
    // redis disables THP if it is enabled for all memory.
    let disables = settings.as_mut().is_some_and(|settings| settings.set(&format!("{THP}/enabled"), "always"));
    let expected = bare(&["sh", "-c", line]);
    assert!(expected.contains("ok") && expected.contains("100000"), "{expected}");
    for policy in ["base", "thp", "hugetlb-2m"] {
        let outcome = under(policy, &["sh", "-c", line]);
        assert_eq!(outcome.output, expected, "{policy}");
        assert_eq!(outcome.answered("prctl(PR_SET_THP_DISABLE, 1)"), disables && policy == "thp", "{policy}");
    }
}
