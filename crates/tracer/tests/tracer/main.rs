//! Runs programs of every kind under every policy: the programs must not notice, and the policy must hold.
//!
//! The programs are in `tests/programs` and are compiled on demand. If a test needs something that is missing (root, a
//! compiler, a tool), it prints `skipped: needs X`. Settings are changed under the lock of pagelab's lease and
//! restored.

mod confined;
mod controls;
mod ends;
mod enforced;
mod removal;
mod unnoticed;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use host::Host;
use policy::Exit;
use policy::cause::Cause;
use policy::size::PageSize;
use policy::{Granularity, Policy};
use testing::skip;
use tracer::{
    Ended, InspectedRemovals, Launch, LaunchError, Leftovers, Pace, Refusal, Rewriting, User, Witness, run, run_bare,
};

// ---- what the tests use ----

/// Only one tree at a time: forwarding signals and waiting are process-wide.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn host() -> Host {
    Host::open("/").expect("the host that runs the test")
}

fn nobody() -> User {
    user("nobody", 65534)
}

fn user(name: &str, id: u32) -> User {
    User { name: name.into(), uid: id, gid: id, groups: vec![id], home: "/".into(), shell: "/bin/sh".into() }
}

/// The directory of the compiled programs.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tracer");
    fs::create_dir_all(&folder).expect("a folder for programs");
    folder
});

/// A directory whose files every user can execute.
fn public_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("a readable folder");
    folder
}

/// Copies a program into `folder` with a file mode.
fn public_copy(folder: &tempfile::TempDir, program: &Path, mode: u32) -> PathBuf {
    let copy = folder.path().join(program.file_name().expect("a file"));
    fs::copy(program, &copy).expect("a copy");
    fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).expect("a mode");
    copy
}

/// Compiles a C program of `tests/programs`; `None` if the compiler is missing.
fn compile(compiler: &str, name: &str, options: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(format!("{name}.c"));
    let variant: String = options.iter().flat_map(|option| option.chars()).filter(|c| c.is_alphanumeric()).collect();
    let program = FOLDER.join(format!("{name}-{compiler}-{variant}"));
    let fresh = FOLDER.join(format!("{name}-{compiler}-{variant}.{}", std::process::id()));
    let mut command = Command::new(compiler);
    command.args(["-O1", "-pthread", "-o"]).arg(&fresh).arg(source).args(options).stderr(Stdio::null());
    let built = command.status().is_ok_and(|status| status.success());
    built.then(|| fs::rename(&fresh, &program).expect("a compiled program")).map(|()| program)
}

fn c(name: &str) -> Option<PathBuf> {
    compile("gcc", name, &[]).or_else(|| {
        skip("gcc");
        None
    })
}

/// The result, the memory and the output of a program's tree.
struct Outcome {
    ended: Ended,
    output: String,
    seen: Peaks,
}

impl Outcome {
    fn answered(&self, call: &str) -> bool {
        self.ended.answered.keys().any(|answered| answered.starts_with(call))
    }

    fn has(&self, cause: &Cause) -> bool {
        self.ended.causes.contains_key(cause)
    }
}

/// The largest value of each kind that any process had at its end, in bytes.
#[derive(Default)]
struct Peaks {
    processes: usize,
    without_memory: usize,
    bytes: BTreeMap<String, u64>,
}

impl Witness for Peaks {
    fn begins(&mut self, _: libc::pid_t) {}

    fn ends(&mut self, task: libc::pid_t) {
        self.processes += 1;
        let rollup = fs::read_to_string(format!("/proc/{task}/smaps_rollup")).unwrap_or_default();
        self.without_memory += usize::from(rollup.is_empty());
        for line in rollup.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(name), Some(Ok(kib))) = (words.next(), words.next().map(str::parse::<u64>)) else { continue };
            let most = self.bytes.entry(name.trim_end_matches(':').to_string()).or_default();
            *most = (*most).max(kib << 10);
        }
    }

    fn unmaps(&mut self, _: libc::pid_t, _: u64, _: u64) {}
}

impl Peaks {
    fn bytes(&self, name: &str) -> u64 {
        self.bytes.get(name).copied().unwrap_or(0)
    }
}

fn launch(command: &[&str], stdout: &File) -> Launch {
    Launch {
        command: command.iter().map(OsString::from).collect(),
        user: None,
        variables: Vec::new(),
        stdin: Some(OwnedFd::from(File::open("/dev/null").unwrap())),
        stdout: Some(OwnedFd::from(stdout.try_clone().unwrap())),
        stderr: Some(OwnedFd::from(stdout.try_clone().unwrap())),
        disable_thp: false,
        own_session: None,
        control_group: None,
        limit: None,
    }
}

fn try_under(policy: &str, command: &[&str], change: impl FnOnce(&mut Launch)) -> Result<Outcome, LaunchError> {
    let policy: Policy = policy.parse().expect("a policy");
    // It would take pages of a pool that another test made.
    let takes_pool_pages = matches!(policy.granularity, Granularity::Hugetlb(_)) && !HAS_LOCKS.get();
    let _settings = takes_pool_pages.then(Settings::lease);
    rewritten(Rewriting::of(&policy, host().page_sizes()), command, change)
}

fn rewritten(rewriting: Rewriting, command: &[&str], change: impl FnOnce(&mut Launch)) -> Result<Outcome, LaunchError> {
    let mut file = tempfile::tempfile().expect("a file for the output");
    let mut launch = launch(command, &file);
    launch.disable_thp = rewriting.disable_thp;
    change(&mut launch);
    let mut seen = Peaks::default();
    let ended = run(&launch, &rewriting, Some(&mut seen), Leftovers::KillAfter(Duration::from_millis(200)))?;
    let mut output = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut output).unwrap();
    Ok(Outcome { ended, output: output.trim_end().to_string(), seen })
}

fn under(policy: &str, command: &[&str]) -> Outcome {
    try_under(policy, command, |_| {}).unwrap_or_else(|error| panic!("{command:?} under {policy}: {error}"))
}

fn bare(command: &[&str]) -> String {
    let output = Command::new(command[0]).args(&command[1..]).stderr(Stdio::null()).output().expect("the bare program");
    String::from_utf8(output.stdout).unwrap().trim_end().to_string()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

fn pool_file() -> String {
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages".into()
}

/// Settings that are restored on drop. Meanwhile it holds the lock of the tests and that of pagelab's lease, so that no
/// pagelab changes the settings too, or saves these values as the original ones.
struct Settings {
    saved: Vec<(String, String)>,
    _locks: [Flock<File>; 2],
}

thread_local! {
    /// Whether this thread has the locks.
    static HAS_LOCKS: Cell<bool> = const { Cell::new(false) };
}

impl Settings {
    /// `None` if this user may not change settings.
    fn lease() -> Option<Settings> {
        if !is_root() {
            return None;
        }
        let _ = fs::DirBuilder::new().mode(0o700).create("/run/pagelab");
        let locked = |path: &str| {
            let file = File::options().create(true).append(true).open(path).ok()?;
            Flock::lock(file, FlockArg::LockExclusive).ok()
        };
        let locks = [locked("/run/pagelab-test.lock")?, locked("/run/pagelab/lease.lock")?];
        HAS_LOCKS.set(true);
        Some(Settings { saved: Vec::new(), _locks: locks })
    }

    /// Sets a setting. Returns whether it took effect.
    fn set(&mut self, path: &str, value: &str) -> bool {
        let Ok(found) = fs::read_to_string(path) else { return false };
        let chosen = found.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
        let former = chosen.unwrap_or(found.trim()).to_string();
        if fs::write(path, value).is_err() {
            return false;
        }
        self.saved.push((path.to_string(), former));
        let now = fs::read_to_string(path).unwrap_or_default();
        now.trim() == value || now.contains(&format!("[{value}]"))
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        for (path, value) in self.saved.iter().rev() {
            fs::write(path, value).unwrap_or_else(|error| panic!("{path} could not be restored to {value}: {error}"));
        }
        HAS_LOCKS.set(false);
    }
}

fn has_4k_pages_and_2m_leaves() -> bool {
    let host = host();
    host.page_sizes().base == PageSize::K4 && host.page_sizes().pmd == Some(PageSize::M2)
}

/// Enables THP for advised memory only, so that the advice makes the difference.
fn advised_only() -> Option<Settings> {
    validation::free_large_blocks();
    let mut settings = Settings::lease()?;
    let set = settings.set(&format!("{THP}/enabled"), "madvise") && has_4k_pages_and_2m_leaves();
    settings.set(&format!("{THP}/defrag"), "madvise");
    set.then_some(settings)
}

/// Policies that need only the kernel.
const POLICIES: [&str; 7] =
    ["default", "base", "thp", "thp+prefault", "default+no-huge", "thp+no-guards", "thp+no-guards+prefault"];
