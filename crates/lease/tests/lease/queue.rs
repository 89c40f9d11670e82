//! The order in which processes get the lock. No test here depends on time: each waits until the previous one is in the queue.

use super::*;

/// Number of processes that wait for the lock of the tree, which is the number before a newcomer.
fn waiting(tree: &Tree) -> usize {
    match tree.paths().acquire(Duration::ZERO, |_, _| true) {
        Err(LeaseError::Held { holder }) => holder.in_front,
        other => panic!("expected the lease to be held, found {other:?}"),
    }
}

fn await_waiting(tree: &Tree, count: usize) {
    soon(&format!("{count} waiting"), || waiting(tree) == count);
}

/// Takes a lease, a share, or a lease that its process only needs after reading the settings, briefly; records its name.
fn take(tree: &Tree, name: &'static str, order: &Mutex<Vec<&'static str>>) {
    let paths = tree.paths();
    let held = match name.split_once(' ').unwrap().0 {
        "lease" => Hold::Lease(Box::new(paths.acquire(LIMIT, |_, _| true).unwrap())),
        kind => paths.hold(LIMIT, |_, _| true, || kind == "change").unwrap(),
    };
    order.lock().unwrap().push(name);
    match (held, name.starts_with("share")) {
        (Hold::Share(_), true) => {}
        (Hold::Lease(lease), false) => assert!(lease.restore().unwrap().settings.is_empty()),
        (held, _) => panic!("{name}: {held:?}"),
    }
}

/// The order in which these get the lock that `held` has; each arrives after the previous one waits.
fn order_of_service<T>(tree: &Tree, held: T, names: &[&'static str]) -> Vec<&'static str> {
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (index, name) in names.iter().enumerate() {
            scope.spawn(|| take(tree, name, &order));
            await_waiting(tree, index + 1);
        }
        drop(held);
    });
    order.into_inner().unwrap()
}

#[test]
fn the_lock_is_given_in_the_order_of_arrival() {
    let tree = Tree::new();
    let names = ["lease 1", "share 2", "change 3", "lease 4", "share 5", "change 6", "lease 7"];
    assert_eq!(order_of_service(&tree, tree.lease(), &names), names);
}

#[test]
fn a_lease_is_given_before_shares_that_came_later() {
    let tree = Tree::new();
    let share = tree.paths().hold(LIMIT, |_, _| true, || false).unwrap();
    assert!(matches!(share, Hold::Share(_)));
    let names = ["change 1", "share that could have been had at once"];
    assert_eq!(order_of_service(&tree, share, &names), names);
}

#[test]
fn a_waiting_process_that_is_killed_is_out_of_the_queue() {
    let tree = Tree::new();
    let lease = tree.lease();
    let mut first = helper(tree.root(), "hold");
    await_waiting(&tree, 1);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| tree.paths().acquire(LIMIT, |_, _| true).unwrap());
        await_waiting(&tree, 2);
        first.kill().unwrap();
        first.wait().unwrap();
        assert_eq!(waiting(&tree), 1);
        drop(lease);
        second.join().unwrap().restore().unwrap();
    });
}

#[test]
fn a_stopped_process_is_passed_until_it_continues() {
    let tree = Tree::new();
    let lease = tree.lease();
    let mut first = helper(tree.root(), "hold");
    await_waiting(&tree, 1);
    kill(first.id() as i32, libc::SIGSTOP);
    await_waiting(&tree, 0);
    drop(lease);
    let second = tree.lease();
    kill(first.id() as i32, libc::SIGCONT);
    await_waiting(&tree, 1);
    drop(second);
    ready(&mut first);
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
}

/// The queue only orders. A holder that was killed leaves its text in the lock file.
#[test]
fn the_lock_alone_keeps_others_out() {
    let tree = Tree::new();
    tree.lease().restore().unwrap();
    let path = tree.root().join("run/pagelab/lease.lock");
    fs::write(&path, r#"{"pid":1,"start_ticks":1,"command":"old","since_unix_s":1}"#).unwrap();
    let lock = fs::File::options().append(true).open(&path).unwrap();
    lock.lock().unwrap();
    assert_eq!(order_of_service(&tree, lock, &["lease 1", "lease 2"]), ["lease 1", "lease 2"]);
}
