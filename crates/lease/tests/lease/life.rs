//! The life of a lease.

use super::*;

#[test]
fn settings_are_lent_and_put_back() {
    let tree = Tree::new();
    let mut lease = tree.lease();
    assert_eq!(*lease.recovered(), Recovered::Nothing);
    assert!(!tree.journal().exists(), "no journal before the first setting");
    assert_eq!(lease.set(ENABLED, "madvise").unwrap(), Written::InFull);
    assert_eq!(lease.set(SCAN, "4096").unwrap(), Written::InFull, "it already has the value");
    assert_eq!(lease.set(ENABLED, "always").unwrap(), Written::InFull);
    assert_eq!((tree.value(ENABLED).as_str(), tree.journal().exists()), ("always", true));
    let report = lease.restore().unwrap();
    let fates: Vec<(&str, &ReportedOutcome)> =
        report.settings.iter().map(|one| (one.path.as_str(), &one.outcome)).collect();
    assert_eq!(fates, [(ENABLED, &ReportedOutcome::Restored), (MIN_FREE, &ReportedOutcome::Unchanged)]);
    assert!(tree.is_at_rest() && !tree.journal().exists());
    assert_eq!(tree.watchdog(), None);
    assert!(tree.lease().restore().unwrap().settings.is_empty());
}

#[test]
fn dropping_puts_back_too() {
    let tree = Tree::new();
    let outcome = std::panic::catch_unwind(|| {
        let mut lease = tree.lease();
        lease.set(NONE, "0").unwrap();
        panic!("an error of the program");
    });
    assert!(outcome.is_err());
    assert!(tree.is_at_rest() && !tree.journal().exists() && tree.watchdog().is_none());
}

#[test]
fn applying_puts_exactly_these_settings_in_force() {
    let tree = Tree::new();
    let mut lease = tree.lease();
    lease.apply([(ENABLED, "madvise"), (SCAN, "1")]).unwrap();
    assert_eq!((tree.value(ENABLED).as_str(), tree.value(SCAN).as_str()), ("madvise", "1"));
    lease.apply([(NONE, "0")]).unwrap();
    let values = [ENABLED, SCAN, NONE].map(|path| tree.value(path));
    assert_eq!(values, ["never", "4096", "0"]);
    let journal = fs::read_to_string(tree.journal()).unwrap();
    for _ in 0..20 {
        lease.apply([(ENABLED, "madvise"), (SCAN, "1")]).unwrap();
        lease.apply([(NONE, "0")]).unwrap();
    }
    assert_eq!(fs::read_to_string(tree.journal()).unwrap(), journal, "a recorded value is not recorded again");
    lease.apply([]).unwrap();
    assert!(tree.is_at_rest());
}

#[test]
fn a_value_that_the_kernel_changes_as_a_side_effect_is_put_back_last() {
    let tree = Tree::new();
    let mut lease = tree.lease();
    lease.set(TOP, "never").unwrap();
    tree.write(MIN_FREE, "11111\n");
    let report = lease.restore().unwrap();
    assert_eq!(
        report.settings.last().map(|one| (one.path.as_str(), &one.outcome)),
        Some((MIN_FREE, &ReportedOutcome::Restored))
    );
    assert!(tree.is_at_rest());
}

#[test]
fn a_pool_may_give_fewer_pages() {
    let tree = Tree::new();
    let mut lease = tree.lease();
    tree.write("/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages", "1\n");
    assert_eq!(lease.set(POOL, "12").unwrap(), Written::Granted { asked: 12, got: 11 });
    tree.write("/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages", "0\n");
    tree.write(POOL, "7\n");
    assert!(!lease.restore().unwrap().has_failed(), "fewer pages than requested count as written by the lease");
    // The surplus page was included in the three that the file showed before: two are the administrator's.
    assert_eq!(tree.value(POOL), "2");
}

#[test]
fn keeps_and_reports_values_written_by_others() {
    let tree = Tree::new();
    let mut lease = tree.lease();
    lease.apply([(SCAN, "1"), (NONE, "0")]).unwrap();
    tree.write(SCAN, "777\n");
    let error = lease.set(SCAN, "2").unwrap_err();
    assert!(matches!(&error, LeaseError::ChangedByOther { found, .. } if found == "777"), "{error}");
    assert!(matches!(lease.apply([(NONE, "0")]), Err(LeaseError::ChangedByOther { .. })));
    let report = lease.restore().unwrap();
    let foreign: Vec<String> = report.foreign().map(ToString::to_string).collect();
    assert!(foreign.len() == 1 && foreign[0].contains("\"777\"") && foreign[0].contains("echo 4096"), "{foreign:?}");
    assert_eq!((tree.value(SCAN).as_str(), tree.value(NONE).as_str()), ("777", "511"));
    assert!(!tree.journal().exists());
}

#[test]
fn the_watchdog_is_not_a_child_and_keeps_only_its_own_descriptors() {
    let tree = Tree::new();
    let mut helper = helper(tree.root(), "hold");
    ready(&mut helper);
    let watchdog = tree.watchdog().expect("a watchdog");
    let stat = fs::read_to_string(format!("/proc/{watchdog}/stat")).unwrap();
    let fields: Vec<i32> =
        stat.rsplit_once(')').unwrap().1.split_whitespace().skip(1).take(3).map(|n| n.parse().unwrap()).collect();
    let [parent, group, session] = fields[..] else { panic!("{stat}") };
    assert!(parent != helper.id() as i32 && group == session && session != helper.id() as i32, "{stat}");
    let mut open: Vec<String> = descriptors(watchdog).iter().map(|path| path.display().to_string()).collect();
    open.sort();
    let lock = tree.root().join("run/pagelab/lease.lock").display().to_string();
    assert_eq!(open.iter().filter(|name| *name == "/dev/null").count(), 3, "{open:?}");
    assert_eq!(open.iter().filter(|name| **name == lock).count(), 1, "{open:?}");
    assert_eq!(open.iter().filter(|name| name.starts_with("socket:")).count(), 1, "{open:?}");
    // The pidfd of the watched process, from Linux 5.3 on.
    let processes = open.iter().filter(|name| name.contains("pidfd")).count();
    assert!(processes <= 1 && open.len() == 5 + processes, "{open:?}");
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE, libc::SIGALRM] {
        kill(watchdog, signal);
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(tree.watchdog(), Some(watchdog), "signals end it");
    drop(helper.stdin.take());
    assert!(helper.wait().unwrap().success());
    assert_eq!((tree.watchdog(), tree.is_at_rest()), (None, true));
}

#[test]
fn a_second_process_waits_and_learns_the_holder() {
    let tree = Tree::new();
    let mut helper = helper(tree.root(), "hold");
    ready(&mut helper);
    let error = tree.paths().acquire(Duration::ZERO, |_, _| true).unwrap_err();
    let LeaseError::Held { holder } = &error else { panic!("{error}") };
    assert_eq!((holder.pid, holder.is_running()), (helper.id() as i32, true));
    assert!(error.to_string().contains("a_process_with_a_lease"), "{error}");
    assert!(matches!(tree.paths().recover(), Err(LeaseError::Held { .. })));
    let refused = tree.paths().acquire(LIMIT, |_, waited| waited < Duration::from_millis(50));
    assert!(matches!(refused, Err(LeaseError::Interrupted { .. })), "{refused:?}");
    // The first holder that is reported: while a holder gives the lease up, the file no longer contains its name.
    let mut reported = None;
    let lease = tree.paths().acquire(LIMIT, |holder, _| {
        reported.get_or_insert(holder.pid);
        drop(helper.stdin.take());
        true
    });
    let mut lease = lease.unwrap();
    assert_eq!(reported, Some(helper.id() as i32));
    assert!(tree.is_at_rest(), "the other process put its settings back before");
    lease.set(NONE, "0").unwrap();
    lease.restore().unwrap();
    assert!(helper.wait().unwrap().success());
}

#[test]
fn many_processes_take_turns() {
    let tree = Tree::new();
    let take = || {
        let mut lease = tree.paths().acquire(LIMIT, |_, _| true).unwrap();
        assert!(tree.is_at_rest(), "a setting of another lease is in force");
        lease.set(NONE, "0").unwrap();
        lease.restore().unwrap();
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| (0..5).for_each(|_| take())))));
    assert!(tree.is_at_rest());
}
