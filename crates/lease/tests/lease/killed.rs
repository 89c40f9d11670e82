//! The state after a process was killed.

use super::*;

#[test]
fn fifty_kills_at_any_moment_leave_nothing_behind() {
    let tree = Tree::new();
    let mut random = Random::new();
    for round in 0..50u64 {
        let mut helper = helper(tree.root(), "churn");
        // Half of them are killed at any time after their start, the other half while they have leased settings.
        if round % 2 == 1 {
            ready(&mut helper);
            assert!(tree.journal().exists(), "round {round}");
        }
        std::thread::sleep(Duration::from_micros(round * 900 + random.below(700)));
        helper.kill().unwrap();
        assert_eq!(helper.wait().unwrap().signal(), Some(libc::SIGKILL));
        soon("at rest", || tree.is_at_rest() && !tree.journal().exists());
        tree.lease().restore().unwrap();
        assert!(tree.is_at_rest(), "round {round}");
    }
}

#[test]
fn fifty_kills_leave_the_hosts_own_settings_unchanged() {
    let _turn = HOST.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_root() || !Path::new(NONE).exists() || fs::OpenOptions::new().write(true).open(NONE).is_err() {
        skip(format!("root and a writable {NONE}"));
        return;
    }
    let guard = Lease::acquire(TURN, |_, _| true).unwrap();
    let value = |path| chosen(&fs::read_to_string(path).unwrap());
    let before = [NONE, SCAN].map(value);
    guard.restore().unwrap();
    for round in 0..50u64 {
        let mut helper = helper(Path::new("/"), "churn-host");
        ready(&mut helper);
        std::thread::sleep(Duration::from_micros(round * 97));
        helper.kill().unwrap();
        helper.wait().unwrap();
        // While this process has the lease, no other changes a setting.
        let lease = Lease::acquire(TURN, |_, _| true).unwrap();
        assert_eq!([NONE, SCAN].map(value), before, "round {round}");
        assert_eq!(*lease.recovered(), Recovered::Nothing, "the watchdog removed the journal");
        lease.restore().unwrap();
    }
}

#[test]
fn if_the_watchdog_is_killed_too_the_settings_are_restored_from_the_journal() {
    let tree = abandoned();
    assert_eq!((tree.value(ENABLED).as_str(), tree.value(POOL).as_str()), ("madvise", "12"));
    let Recovered::PutBack(report) = tree.paths().recover().unwrap() else { panic!("nothing recovered") };
    assert!(report.settings.len() == 4 && !report.has_failed(), "{report}");
    assert!(tree.is_at_rest() && !tree.journal().exists());
    assert_eq!(tree.paths().recover().unwrap(), Recovered::Nothing);
}

/// A process that is killed between a fork and the following exec leaves a child that has all its descriptors.
#[test]
fn a_forked_process_that_lives_on_keeps_neither_the_settings_nor_the_lease() {
    let tree = Tree::new();
    let mut helper = helper(tree.root(), "fork");
    let lines = ready(&mut helper);
    let child: i32 = lines.iter().find_map(|line| line.split("CHILD ").nth(1)?.parse().ok()).expect("a child");
    helper.kill().unwrap();
    helper.wait().unwrap();
    let leased = tree.paths().acquire(LIMIT, |_, _| true);
    let at_rest = tree.is_at_rest();
    let holds_the_lock = descriptors(child).contains(&tree.root().join("run/pagelab/lease.lock"));
    kill(child, libc::SIGKILL);
    assert!(holds_the_lock, "the child with the lock is gone: this test tests nothing");
    assert!(at_rest, "the watchdog waits for the child");
    leased.unwrap().restore().unwrap();
}

#[test]
fn without_a_watchdog_no_setting_is_changed() {
    let tree = Tree::new();
    let mut lease = tree.lease();
    lease.set(NONE, "0").unwrap();
    kill(tree.watchdog().unwrap(), libc::SIGKILL);
    // A process that dies counts as alive until the kernel has closed its socket.
    soon("refused", || matches!(lease.set(SCAN, "1"), Err(LeaseError::WatchdogGone)));
    assert!(!lease.restore().unwrap().has_failed());
    assert!(tree.is_at_rest() && !tree.journal().exists());
}
