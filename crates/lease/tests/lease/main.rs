//! Leases on a tree of plain files and, as root, on the host's own settings; and what is left when the
//! process that holds one is killed.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lease::{Fate, Lease, LeaseError, Recovered, Site, Taken};
use testing::{Random, skip};

const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
const TOP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const SCAN: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan";
const NONE: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none";
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const MIN_FREE: &str = "/proc/sys/vm/min_free_kbytes";
const TREE: [(&str, &str); 8] = [
    (ENABLED, "always inherit madvise [never]\n"),
    (TOP, "always [madvise] never\n"),
    (SCAN, "4096\n"),
    (NONE, "511\n"),
    (POOL, "3\n"),
    ("/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages", "0\n"),
    (MIN_FREE, "67584\n"),
    ("/proc/sys/kernel/random/boot_id", "11111111-2222-4333-8444-555555555555\n"),
];
/// What the settings of the tree are after they were written and put back.
const AT_REST: [(&str, &str); 6] =
    [(ENABLED, "never"), (TOP, "madvise"), (SCAN, "4096"), (NONE, "511"), (POOL, "3"), (MIN_FREE, "67584")];
const SOON: Duration = Duration::from_secs(1);
/// Tests that lease the host's own settings take turns: one that takes the lease again and again leaves
/// little room for another.
static HOST: Mutex<()> = Mutex::new(());
/// The pages of `POOL`.
const POOL_PAGE_BYTES: usize = 2 << 20;

/// A tree of settings that nobody else uses.
struct Tree {
    directory: tempfile::TempDir,
}

impl Tree {
    fn new() -> Tree {
        let directory = tempfile::tempdir().unwrap();
        for folder in ["run", "var/lib"] {
            fs::create_dir_all(directory.path().join(folder)).unwrap();
        }
        let tree = Tree { directory };
        for (path, text) in TREE {
            fs::create_dir_all(tree.file(path).parent().unwrap()).unwrap();
            tree.write(path, text);
        }
        tree
    }

    fn root(&self) -> &Path {
        self.directory.path()
    }

    fn site(&self) -> Site {
        Site::under(self.root())
    }

    fn lease(&self) -> Lease {
        self.site().acquire(SOON, |_, _| true).unwrap()
    }

    fn file(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.file(path), text).unwrap();
    }

    fn value(&self, path: &str) -> String {
        chosen(&fs::read_to_string(self.file(path)).unwrap())
    }

    fn journal(&self) -> PathBuf {
        self.root().join("var/lib/pagelab/lease.jsonl")
    }

    fn is_at_rest(&self) -> bool {
        AT_REST.iter().all(|(path, value)| self.value(path) == *value)
    }

    /// The watchdog that has the lock file of this tree open.
    fn watchdog(&self) -> Option<i32> {
        let lock = self.root().join("run/pagelab/lease.lock");
        processes().into_iter().find(|pid| {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            comm.trim() == "lease-watchdog" && descriptors(*pid).contains(&lock)
        })
    }
}

fn chosen(text: &str) -> String {
    host::chosen_word(text.lines().next().unwrap_or_default()).to_string()
}

fn processes() -> Vec<i32> {
    fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn descriptors(pid: i32) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()).collect()
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: kill takes no pointers.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "kill {pid}");
}

fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Waits until `holds`, for at most a second, and says how long it took.
fn soon(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < SOON, "after a second: not {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
    start.elapsed()
}

// ── A process that has a lease ────────────────────────────────────────────────────────────────────

/// Runs this test program again as a process that takes a lease on `root` and then does `work`.
fn helper(root: &Path, work: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "a_process_with_a_lease", "--nocapture"]);
    command.env("LEASE_ROOT", root).env("LEASE_WORK", work);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits until the helper says that it has done its work's beginning. What it said before.
fn ready(helper: &mut Child) -> Vec<String> {
    let mut lines = BufReader::new(helper.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
    let mut before = Vec::new();
    loop {
        match lines.next().expect("the helper said nothing more, so it ended before it was ready") {
            line if line.contains("READY") => return before,
            line => before.push(line),
        }
    }
}

/// Not a test: what [`helper`] runs.
#[test]
#[ignore = "a process that other tests start"]
fn a_process_with_a_lease() {
    let root = PathBuf::from(std::env::var_os("LEASE_ROOT").expect("started by another test"));
    let work = std::env::var("LEASE_WORK").expect("started by another test");
    let site = if root == Path::new("/") { Site::host() } else { Site::under(&root) };
    let mut lease = site.acquire(Duration::from_secs(60), |_, _| true).unwrap();
    match work.as_str() {
        "hold" => {
            lease.apply([(ENABLED, "madvise"), (SCAN, "8192"), (POOL, "12")]).unwrap();
            println!("READY");
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            lease.restore().unwrap();
        }
        "fork" => {
            lease.apply([(ENABLED, "madvise"), (SCAN, "8192"), (POOL, "12")]).unwrap();
            // SAFETY: the child makes system calls only. It has every descriptor, and executes nothing.
            match unsafe { libc::fork() } {
                0 => loop {
                    // SAFETY: no pointers.
                    unsafe { libc::pause() };
                },
                child => println!("CHILD {child}\nREADY"),
            }
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        }
        "churn" => loop {
            lease.apply([(ENABLED, "madvise"), (TOP, "never"), (POOL, "12")]).unwrap();
            println!("READY");
            lease.apply([(SCAN, "8192"), (NONE, "0")]).unwrap();
            lease.apply([(ENABLED, "always")]).unwrap();
        },
        "churn-host" => loop {
            lease.apply([(NONE, "17"), (SCAN, "100")]).unwrap();
            println!("READY");
            lease.apply([(NONE, "18")]).unwrap();
        },
        "read-only" => {
            let error = lease.set(SCAN, "8192").unwrap_err();
            assert!(matches!(error, LeaseError::ReadOnly { mount: "/sys", .. }), "{error}");
            assert!(error.to_string().contains("mount -o remount,rw /sys"), "{error}");
        }
        other => panic!("no work {other:?}"),
    }
}

// ── The life of a lease ───────────────────────────────────────────────────────────────────────────

#[test]
fn settings_are_lent_and_put_back() {
    let tree = Tree::new();
    let mut lease = tree.lease();
    assert_eq!(*lease.recovered(), Recovered::Nothing);
    assert!(!tree.journal().exists(), "no journal before the first setting");
    assert_eq!(lease.set(ENABLED, "madvise").unwrap(), Taken::Whole);
    assert_eq!(lease.set(SCAN, "4096").unwrap(), Taken::Whole, "has it already");
    assert_eq!(lease.set(ENABLED, "always").unwrap(), Taken::Whole);
    assert_eq!((tree.value(ENABLED).as_str(), tree.journal().exists()), ("always", true));
    let report = lease.restore().unwrap();
    let fates: Vec<(&str, &Fate)> = report.settings.iter().map(|one| (one.path.as_str(), &one.fate)).collect();
    assert_eq!(fates, [(ENABLED, &Fate::Restored), (MIN_FREE, &Fate::Unchanged)]);
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
fn applying_makes_exactly_these_settings_hold() {
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
    assert_eq!(fs::read_to_string(tree.journal()).unwrap(), journal, "what is known is not written again");
    lease.apply([]).unwrap();
    assert!(tree.is_at_rest());
}

#[test]
fn a_value_that_the_kernel_changes_by_the_way_is_put_back_last() {
    let tree = Tree::new();
    let mut lease = tree.lease();
    lease.set(TOP, "never").unwrap();
    tree.write(MIN_FREE, "11111\n");
    let report = lease.restore().unwrap();
    assert_eq!(report.settings.last().map(|one| (one.path.as_str(), &one.fate)), Some((MIN_FREE, &Fate::Restored)));
    assert!(tree.is_at_rest());
}

#[test]
fn a_pool_may_give_fewer_pages() {
    let tree = Tree::new();
    let mut lease = tree.lease();
    tree.write("/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages", "1\n");
    assert_eq!(lease.set(POOL, "12").unwrap(), Taken::Granted { asked: 12, got: 11 });
    tree.write("/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages", "0\n");
    tree.write(POOL, "7\n");
    assert!(!lease.restore().unwrap().has_failed(), "some of the pages asked for are the lease's own");
    // The surplus page was part of the three that the file said before: two are the administrator's.
    assert_eq!(tree.value(POOL), "2");
}

#[test]
fn what_somebody_else_wrote_is_left_alone_and_told() {
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
fn the_watchdog_is_nobodys_child_and_has_nothing_of_the_programs() {
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
    // The process that it watches, from Linux 5.3 on.
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
fn a_second_process_waits_and_is_told_for_whom() {
    let tree = Tree::new();
    let mut helper = helper(tree.root(), "hold");
    ready(&mut helper);
    let error = tree.site().acquire(Duration::ZERO, |_, _| true).unwrap_err();
    let LeaseError::Held { holder } = &error else { panic!("{error}") };
    assert_eq!((holder.pid, holder.is_running()), (helper.id() as i32, true));
    assert!(error.to_string().contains("a_process_with_a_lease"), "{error}");
    assert!(matches!(tree.site().recover(), Err(LeaseError::Held { .. })));
    let refused = tree.site().acquire(SOON, |_, waited| waited < Duration::from_millis(50));
    assert!(matches!(refused, Err(LeaseError::Interrupted { .. })), "{refused:?}");
    let mut heard = None;
    let lease = tree.site().acquire(Duration::from_secs(10), |holder, _| {
        heard = Some(holder.pid);
        drop(helper.stdin.take());
        true
    });
    let mut lease = lease.unwrap();
    assert_eq!(heard, Some(helper.id() as i32));
    assert!(tree.is_at_rest(), "the other one put its settings back before");
    lease.set(NONE, "0").unwrap();
    lease.restore().unwrap();
    assert!(helper.wait().unwrap().success());
}

#[test]
fn many_processes_take_turns() {
    let tree = Tree::new();
    let take = || {
        let mut lease = tree.site().acquire(Duration::from_secs(20), |_, _| true).unwrap();
        assert!(tree.is_at_rest(), "somebody else's setting is in force");
        lease.set(NONE, "0").unwrap();
        lease.restore().unwrap();
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| (0..5).for_each(|_| take())))));
    assert!(tree.is_at_rest());
}

// ── Killed ────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn fifty_kills_at_any_moment_leave_nothing_behind() {
    let tree = Tree::new();
    let (mut leased, mut slowest) = (0, Duration::ZERO);
    let mut random = Random::new();
    for round in 0..50u64 {
        let mut helper = helper(tree.root(), "churn");
        // From before the lease is taken to well inside the loop, and never twice at the same point.
        std::thread::sleep(Duration::from_micros(round * 900 + random.below(700)));
        leased += u32::from(tree.journal().exists());
        helper.kill().unwrap();
        assert_eq!(helper.wait().unwrap().signal(), Some(libc::SIGKILL));
        slowest = slowest.max(soon("at rest", || tree.is_at_rest() && !tree.journal().exists()));
        tree.lease().restore().unwrap();
        assert!(tree.is_at_rest(), "round {round}");
    }
    println!("{leased} of 50 killed with settings on loan; put back within {slowest:?}");
    assert!(leased >= 10, "only {leased} of 50 had settings on loan: kill later");
}

#[test]
fn fifty_kills_leave_the_hosts_own_settings_alone() {
    let _turn = HOST.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_root() || !Path::new(NONE).exists() || fs::OpenOptions::new().write(true).open(NONE).is_err() {
        skip(format!("root and a writable {NONE}"));
        return;
    }
    let guard = Lease::acquire(Duration::from_secs(60), |_, _| true).unwrap();
    let value = |path| chosen(&fs::read_to_string(path).unwrap());
    let before = [NONE, SCAN].map(value);
    guard.restore().unwrap();
    for round in 0..50u64 {
        let mut helper = helper(Path::new("/"), "churn-host");
        ready(&mut helper);
        std::thread::sleep(Duration::from_micros(round * 97));
        helper.kill().unwrap();
        helper.wait().unwrap();
        soon("the host at rest", || [NONE, SCAN].map(value) == before);
        let lease = Lease::acquire(SOON, |_, _| true).unwrap();
        assert_eq!(*lease.recovered(), Recovered::Nothing, "the watchdog removed the journal");
        lease.restore().unwrap();
    }
}

#[test]
fn when_the_watchdog_is_killed_too_the_journal_puts_things_back() {
    let tree = Tree::new();
    let mut helper = helper(tree.root(), "hold");
    ready(&mut helper);
    kill(tree.watchdog().unwrap(), libc::SIGKILL);
    helper.kill().unwrap();
    helper.wait().unwrap();
    soon("without a watchdog", || tree.watchdog().is_none());
    assert_eq!((tree.value(ENABLED).as_str(), tree.value(POOL).as_str()), ("madvise", "12"));
    let Recovered::PutBack(report) = tree.site().recover().unwrap() else { panic!("nothing recovered") };
    assert!(report.settings.len() == 4 && !report.has_failed(), "{report}");
    assert!(tree.is_at_rest() && !tree.journal().exists());
    assert_eq!(tree.site().recover().unwrap(), Recovered::Nothing);
}

/// A process that is killed between a fork and the exec after it leaves one that has all its descriptors.
#[test]
fn a_forked_process_that_lives_on_keeps_neither_the_settings_nor_the_lease() {
    let tree = Tree::new();
    let mut helper = helper(tree.root(), "fork");
    let said = ready(&mut helper);
    let child: i32 = said.iter().find_map(|line| line.split("CHILD ").nth(1)?.parse().ok()).expect("a child");
    helper.kill().unwrap();
    helper.wait().unwrap();
    let start = Instant::now();
    while !tree.is_at_rest() && start.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(2));
    }
    let (at_rest, leased) = (tree.is_at_rest(), tree.site().acquire(SOON, |_, _| true));
    let holds_the_lock = descriptors(child).contains(&tree.root().join("run/pagelab/lease.lock"));
    kill(child, libc::SIGKILL);
    assert!(holds_the_lock, "the child that was to have the lock is gone: this test tests nothing");
    assert!(at_rest, "the watchdog waits for the child");
    leased.unwrap().restore().unwrap();
}

#[test]
fn without_a_watchdog_no_setting_is_changed() {
    let tree = Tree::new();
    let mut lease = tree.lease();
    lease.set(NONE, "0").unwrap();
    kill(tree.watchdog().unwrap(), libc::SIGKILL);
    soon("without a watchdog", || tree.watchdog().is_none());
    assert!(matches!(lease.set(SCAN, "1"), Err(LeaseError::WatchdogGone)));
    assert!(!lease.restore().unwrap().has_failed());
    assert!(tree.is_at_rest() && !tree.journal().exists());
}

// ── What an earlier lease left ────────────────────────────────────────────────────────────────────

/// A tree on which a process and its watchdog were killed while settings were on loan.
fn abandoned() -> Tree {
    let tree = Tree::new();
    let mut helper = helper(tree.root(), "hold");
    ready(&mut helper);
    kill(tree.watchdog().unwrap(), libc::SIGKILL);
    helper.kill().unwrap();
    helper.wait().unwrap();
    soon("without a watchdog", || tree.watchdog().is_none());
    tree
}

#[test]
fn the_next_lease_puts_back_what_the_last_one_left() {
    let tree = abandoned();
    let lease = tree.lease();
    assert!(matches!(lease.recovered(), Recovered::PutBack(report) if !report.has_failed()));
    assert!(tree.is_at_rest());
}

#[test]
fn a_journal_of_another_boot_is_void() {
    let tree = abandoned();
    tree.write("/proc/sys/kernel/random/boot_id", "another\n");
    assert_eq!(tree.site().recover().unwrap(), Recovered::Rebooted { settings: 4 });
    assert_eq!(tree.value(ENABLED), "madvise", "nothing is written");
    assert!(!tree.journal().exists());
}

#[test]
fn a_setting_that_cannot_be_put_back_keeps_its_journal() {
    let tree = abandoned();
    fs::rename(tree.file(SCAN), tree.root().join("aside")).unwrap();
    let error = tree.site().acquire(SOON, |_, _| true).unwrap_err();
    assert!(matches!(&error, LeaseError::Unrestored { .. }) && error.to_string().contains("echo 4096 >"), "{error}");
    assert!(tree.journal().exists());
    assert_eq!(tree.value(ENABLED), "never", "the others are put back all the same");
    fs::rename(tree.root().join("aside"), tree.file(SCAN)).unwrap();
    assert!(matches!(tree.site().recover().unwrap(), Recovered::PutBack(report) if !report.has_failed()));
    assert!(tree.is_at_rest() && !tree.journal().exists());
}

#[test]
fn a_corrupt_journal_is_neither_ignored_nor_removed() {
    let tree = abandoned();
    let text = fs::read_to_string(tree.journal()).unwrap();
    for spoiled in [
        text.replace("\"before\"", "\"befor\""),
        text.replace(SCAN, "/etc/passwd"),
        text.replace(SCAN, "/sys/kernel/mm/../../../etc/passwd"),
        "\u{0}\u{0}\n".to_string(),
    ] {
        fs::write(tree.journal(), &spoiled).unwrap();
        for error in [tree.site().recover().unwrap_err(), tree.site().acquire(SOON, |_, _| true).unwrap_err()] {
            let told = error.to_string();
            assert!(matches!(error, LeaseError::JournalCorrupt { .. }) && told.contains("by hand"), "{told}");
        }
        assert!(tree.journal().exists());
        assert_eq!(tree.value(ENABLED), "madvise", "nothing is put back by half a journal");
    }
}

// ── Refusals ──────────────────────────────────────────────────────────────────────────────────────

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
    let before = fs::read_to_string(TOP).unwrap();
    let mut lease = Lease::acquire(Duration::from_secs(60), |_, _| true).unwrap();
    let refused = lease.set(TOP, "sometimes").unwrap_err();
    assert!(matches!(&refused, LeaseError::Refused { takes, .. } if takes.contains("madvise")), "{refused}");
    let denied = lease.set("/proc/sys/vm/compact_memory", "1").unwrap_err();
    assert!(matches!(denied, LeaseError::Denied { operation: "read", .. }), "what cannot be read: {denied}");
    lease.restore().unwrap();
    assert_eq!(fs::read_to_string(TOP).unwrap(), before);
}

#[test]
fn the_hosts_pools_and_watermarks_are_as_before() {
    let _turn = HOST.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_root() || fs::OpenOptions::new().write(true).open(POOL).is_err() {
        skip(format!("root and a writable {POOL}"));
        return;
    }
    let mut lease = Lease::acquire(Duration::from_secs(60), |_, _| true).unwrap();
    let value = |path| chosen(&fs::read_to_string(path).unwrap());
    let before = [POOL, TOP, MIN_FREE].map(value);
    let pages = before[0].parse::<u64>().unwrap() + 4;
    lease.apply([(POOL, pages.to_string().as_str()), (TOP, "never")]).unwrap();
    assert_eq!((value(POOL), value(TOP)), (pages.to_string(), "never".into()));
    let report = lease.restore().unwrap();
    assert_eq!([POOL, TOP, MIN_FREE].map(value), before, "{report}");
}

/// A program that has pages of the host's pool: some in use, some reserved only. Its process id.
fn program_with_pool_pages(pages: usize) -> i32 {
    let bytes = pages * POOL_PAGE_BYTES;
    let mut ends = [0; 2];
    let mut byte = 0u8;
    // SAFETY: the child makes system calls only, and touches memory that it has just mapped.
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

/// The kernel forgets to free pages that a program gives back in the middle of a shrinking of the pool.
#[test]
fn a_pool_that_shrinks_under_a_dying_program_keeps_no_page() {
    let _turn = HOST.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_root() || fs::OpenOptions::new().write(true).open(POOL).is_err() {
        skip(format!("root and a writable {POOL}"));
        return;
    }
    for round in 0..150u64 {
        let mut lease = Lease::acquire(Duration::from_secs(60), |_, _| true).unwrap();
        let before = fs::read_to_string(POOL).unwrap();
        let pages = before.trim().parse::<u64>().unwrap() + 24;
        if lease.set(POOL, &pages.to_string()).unwrap() != Taken::Whole {
            skip(format!("contiguous memory for {pages} pages of the pool"));
            return;
        }
        let program = program_with_pool_pages(16);
        kill(program, libc::SIGKILL);
        // From before it has heard of it to when it is gone.
        std::thread::sleep(Duration::from_micros(round * 4));
        let report = lease.restore().unwrap();
        // SAFETY: the child was not waited for yet; a null pointer says that the status is not wanted.
        assert_eq!(unsafe { libc::waitpid(program, std::ptr::null_mut(), 0) }, program);
        assert!(!report.has_failed(), "round {round}: {report}");
        soon("as many pages as before", || fs::read_to_string(POOL).unwrap() == before);
    }
}

#[test]
fn a_read_only_sysfs_is_told_with_its_remedy() {
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
