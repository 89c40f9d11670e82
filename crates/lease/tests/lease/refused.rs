//! Refusals, and the unchanged state of the host after them.

use super::*;

#[test]
fn only_settings_of_memory_management_are_lent() {
    let tree = Tree::new();
    let mut lease = tree.lease();
    for path in [
        "/etc/passwd",
        "/proc/sys/kernel/core_pattern",
        "/sys/kernel/mm/../../../etc/passwd",
        "/sys/kernel/mm//x",
        "/sys/kernel/mm/",
        "sys/kernel/mm/x",
        "",
        "/sys/kernel/mm/x\0y",
    ] {
        assert!(matches!(lease.set(path, "1"), Err(LeaseError::NotAllowed { .. })), "{path:?}");
    }
    for value in ["", "1\n2", " 1", &"9".repeat(200)] {
        assert!(matches!(lease.set(SCAN, value), Err(LeaseError::NotAValue { .. })), "{value:?}");
    }
    let missing = lease.set("/sys/kernel/mm/no_such_thing", "1").unwrap_err();
    assert!(matches!(&missing, LeaseError::Missing { .. }) && missing.to_string().contains("doctor"), "{missing}");
    assert!(!tree.journal().exists());
}

#[test]
fn the_kernel_refuses_and_nothing_changes() {
    let _turn = HOST.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_root() || fs::OpenOptions::new().write(true).open(TOP).is_err() {
        skip(format!("root and a writable {TOP}"));
        return;
    }
    let mut lease = Lease::acquire(TURN, |_, _| true).unwrap();
    let before = fs::read_to_string(TOP).unwrap();
    let refused = lease.set(TOP, "sometimes").unwrap_err();
    assert!(matches!(&refused, LeaseError::Refused { takes, .. } if takes.contains("madvise")), "{refused}");
    let denied = lease.set("/proc/sys/vm/compact_memory", "1").unwrap_err();
    assert!(matches!(denied, LeaseError::Denied { operation: "read", .. }), "a write-only file: {denied}");
    lease.restore().unwrap();
    let _lease = Lease::acquire(TURN, |_, _| true).unwrap();
    assert_eq!(fs::read_to_string(TOP).unwrap(), before);
}

#[test]
fn the_hosts_pools_and_watermarks_are_as_before() {
    let _turn = HOST.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_root() || fs::OpenOptions::new().write(true).open(POOL).is_err() {
        skip(format!("root and a writable {POOL}"));
        return;
    }
    let mut lease = Lease::acquire(TURN, |_, _| true).unwrap();
    let value = |path| chosen(&fs::read_to_string(path).unwrap());
    let before = [POOL, TOP, MIN_FREE].map(value);
    let pages = before[0].parse::<u64>().unwrap() + 4;
    lease.apply([(POOL, pages.to_string().as_str()), (TOP, "never")]).unwrap();
    assert_eq!((value(POOL), value(TOP)), (pages.to_string(), "never".into()));
    let report = lease.restore().unwrap();
    let _lease = Lease::acquire(TURN, |_, _| true).unwrap();
    assert_eq!([POOL, TOP, MIN_FREE].map(value), before, "{report}");
}

/// A program that has pages of the host's pool: some in use, others only reserved. Returns its PID.
fn program_with_pool_pages(pages: usize) -> i32 {
    let bytes = pages * POOL_PAGE_BYTES;
    let mut ends = [0; 2];
    let mut byte = 0u8;
    // SAFETY: the child only makes system calls, and touches memory that it has just mapped.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
            let start = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            if start == libc::MAP_FAILED {
                libc::_exit(1);
            }
            for page in 0..pages / 2 {
                start.cast::<u8>().add(page * POOL_PAGE_BYTES).write_volatile(1);
            }
            libc::write(ends[1], (&raw const byte).cast(), 1);
            loop {
                libc::pause();
            }
        }
        libc::close(ends[1]);
        let read = libc::read(ends[0], (&raw mut byte).cast(), 1);
        libc::close(ends[0]);
        assert_eq!(read, 1, "the program has no pages");
        child
    }
}

/// The kernel does not free pages that a program gives back while the pool is being shrunk.
#[test]
fn a_pool_that_shrinks_under_a_dying_program_keeps_no_page() {
    let _turn = HOST.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_root() || fs::OpenOptions::new().write(true).open(POOL).is_err() {
        skip(format!("root and a writable {POOL}"));
        return;
    }
    for round in 0..150u64 {
        let mut lease = Lease::acquire(TURN, |_, _| true).unwrap();
        let before = fs::read_to_string(POOL).unwrap();
        let pages = before.trim().parse::<u64>().unwrap() + 24;
        if lease.set(POOL, &pages.to_string()).unwrap() != Written::InFull {
            skip(format!("contiguous memory for {pages} pages of the pool"));
            return;
        }
        let program = program_with_pool_pages(16);
        kill(program, libc::SIGKILL);
        // The delays range from before the program has noticed the signal to after it is gone.
        std::thread::sleep(Duration::from_micros(round * 4));
        let report = lease.restore().unwrap();
        // SAFETY: the child was not reaped yet; a null pointer means that the status is not requested.
        assert_eq!(unsafe { libc::waitpid(program, std::ptr::null_mut(), 0) }, program);
        assert!(!report.has_failed(), "round {round}: {report}");
        soon("as many pages as before", || fs::read_to_string(POOL).unwrap() == before);
    }
}

#[test]
fn reports_a_read_only_sysfs_with_its_remedy() {
    if !is_root() {
        skip("root, to mount");
        return;
    }
    let tree = Tree::new();
    let script = "set -e; mount --make-rprivate / ; mount -t tmpfs none \"$LEASE_ROOT/sys\"
        mkdir -p \"$LEASE_ROOT$(dirname $LEASE_FILE)\"; echo 4096 > \"$LEASE_ROOT$LEASE_FILE\"
        mount -o remount,ro \"$LEASE_ROOT/sys\"; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "a_process_with_a_lease", "--nocapture"]);
    command.env("LEASE_ROOT", tree.root()).env("LEASE_WORK", "read-only").env("LEASE_FILE", SCAN);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
