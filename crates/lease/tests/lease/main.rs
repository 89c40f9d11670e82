//! Tests leases on a tree of plain files and, as root, on the host's own settings; and the state after the process that holds one
//! is killed.

mod killed;
mod left;
mod life;
mod queue;
mod refused;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lease::{Hold, Lease, LeaseError, LeasePaths, Recovered, ReportedOutcome, Written};
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
/// The settings of the tree after they were written and restored.
const AT_REST: [(&str, &str); 6] =
    [(ENABLED, "never"), (TOP, "madvise"), (SCAN, "4096"), (NONE, "511"), (POOL, "3"), (MIN_FREE, "67584")];
/// How long anything may take on a machine that is busy with other work; no test depends on speed.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a test may wait for processes that have the host's settings.
const TURN: Duration = Duration::from_secs(900);
/// Tests that lease the host's own settings take turns, because one that takes the lease repeatedly leaves little room for
/// another.
static HOST: Mutex<()> = Mutex::new(());
/// Size of the pages of `POOL`.
const POOL_PAGE_BYTES: usize = 2 << 20;

/// A tree of settings for one test.
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

    fn paths(&self) -> LeasePaths {
        LeasePaths::under(self.root())
    }

    fn lease(&self) -> Lease {
        self.paths().acquire(LIMIT, |_, _| true).unwrap()
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

/// Waits until `holds` returns true.
fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "after {LIMIT:?}: not {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A tree in which a process and its watchdog were killed while settings were leased.
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

/// Runs this test program again as a process that takes a lease on `root` and then does `work`.
fn helper(root: &Path, work: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "a_process_with_a_lease", "--nocapture"]);
    command.env("LEASE_ROOT", root).env("LEASE_WORK", work);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits until the helper reports that it is ready. Returns the lines that it printed before.
fn ready(helper: &mut Child) -> Vec<String> {
    let mut lines = BufReader::new(helper.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
    let mut before = Vec::new();
    loop {
        match lines.next().expect("the helper prints until it is ready, unless it ends before") {
            line if line.contains("READY") => return before,
            line => before.push(line),
        }
    }
}

/// Not a test: the code that [`helper`] runs.
#[test]
#[ignore = "a process that other tests start"]
fn a_process_with_a_lease() {
    let root = PathBuf::from(std::env::var_os("LEASE_ROOT").expect("started by another test"));
    let work = std::env::var("LEASE_WORK").expect("started by another test");
    let paths = if root == Path::new("/") { LeasePaths::host() } else { LeasePaths::under(&root) };
    let mut lease = paths.acquire(TURN, |_, _| true).unwrap();
    match work.as_str() {
        "hold" => {
            lease.apply([(ENABLED, "madvise"), (SCAN, "8192"), (POOL, "12")]).unwrap();
            println!("READY");
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            lease.restore().unwrap();
        }
        "fork" => {
            lease.apply([(ENABLED, "madvise"), (SCAN, "8192"), (POOL, "12")]).unwrap();
            // SAFETY: the child only makes system calls. It has every descriptor, and executes nothing.
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
