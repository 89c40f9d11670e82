//! What the tests of the whole program stand on: the program in a directory of its own, runs of it, and
//! the host's settings.
#![allow(dead_code, reason = "every test program uses a part of it")]

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The user that has no rights.
const NOBODY: &str = "65534";
/// Tests that compare settings run one at a time, in whatever program they are.
const TEST_LOCK: &str = "/run/pagelab-test.lock";
/// Where pagelab keeps the lock of its lease.
const LEASE: &str = "/run/pagelab";

/// How long one run of a program may take, on the slowest machine: whatever takes longer hangs.
const RUN: Duration = Duration::from_secs(300);
/// How long a test may wait for the tests before it.
const TURN: Duration = Duration::from_secs(900);
/// How long somebody may keep the lease.
const LEASED: Duration = Duration::from_secs(180);

/// Few blocks: the tests are about everything but precision.
pub const QUICK: [&str; 4] = ["--blocks", "2", "--min-blocks", "1"];

/// A copy of the program that every user can read, a place for the store, and for whatever else.
pub struct Bench {
    directory: TempDir,
}

/// What a run of the program left.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::at(tempfile::tempdir().expect("a directory"))
    }

    /// A bench in memory (tmpfs), whose files the kernel keeps in base pages.
    pub fn in_memory() -> Bench {
        Bench::at(tempfile::tempdir_in("/dev/shm").expect("a directory"))
    }

    fn at(directory: TempDir) -> Bench {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let bench = Bench { directory };
        // A hard link where the file system allows it: the program is large when it is built for tests.
        let original = env!("CARGO_BIN_EXE_pagelab");
        fs::hard_link(original, bench.program()).or_else(|_| fs::copy(original, bench.program()).map(drop)).unwrap();
        bench
    }

    pub fn program(&self) -> PathBuf {
        self.directory.path().join("pagelab")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A path in the directory, as a word of a command line.
    pub fn word(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn store(&self) -> String {
        self.word("results.sqlite")
    }

    /// Makes an executable shell script.
    pub fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    /// A built-in workload of 24 MiB, which takes some hundredths of a second.
    pub fn touch(&self) -> Vec<String> {
        let program = self.word("pagelab");
        [&program, "workload", "page-touch", "--bytes", "24M", "--answer-only"].map(str::to_string).to_vec()
    }

    /// pagelab with these words.
    pub fn pagelab(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        command.args(words).env("HOME", self.directory.path()).env_remove("XDG_DATA_HOME").env_remove("SUDO_UID");
        command.current_dir(self.directory.path());
        command
    }

    /// `pagelab compare` with the bench's store, these options, and a command.
    pub fn compare(&self, options: &[&str], command: &[String]) -> Command {
        let mut compare = self.pagelab(&["compare", "--store", &self.store()]);
        compare.args(options).arg("--").args(command);
        compare
    }

    /// A stored comparison as JSON.
    pub fn stored(&self, number: u64) -> Value {
        self.pagelab(&["show", &number.to_string(), "--store", &self.store(), "--json"]).ran().json()
    }

    /// The stored comparisons, as `list` says.
    pub fn listed(&self) -> Vec<Value> {
        let listed = self.pagelab(&["list", "comparisons", "--json", "--store", &self.store()]).ran().json();
        listed["comparisons"].as_array().unwrap().clone()
    }
}

/// Runs commands. None of them runs for ever, and none outlives its test.
pub trait Runs {
    /// Runs the command to its end, without input.
    fn ran(&mut self) -> Ran;
    /// Starts the command.
    fn begin(&mut self) -> Running;
    /// The same command, as the user that has no rights. Needs root.
    fn as_nobody(&self) -> Command;
}

impl Runs for Command {
    fn ran(&mut self) -> Ran {
        self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).begin().ran()
    }

    fn begin(&mut self) -> Running {
        let busy = |error: &std::io::Error| error.kind() == ErrorKind::ExecutableFileBusy;
        // Where a bench has a copy of the program, another test that forks meanwhile can still hold it open for writing.
        let child = (0..50).find_map(|_| match self.spawn() {
            Err(error) if busy(&error) => {
                std::thread::sleep(Duration::from_millis(100));
                None
            }
            spawned => Some(spawned),
        });
        let child = child.unwrap_or_else(|| self.spawn()).unwrap_or_else(|error| panic!("{self:?}: {error}"));
        Running { child, command: format!("{self:?}") }
    }

    fn as_nobody(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        wrap(&mut command, self);
        command
    }
}

/// Appends a command and its surroundings to another one.
pub fn wrap(outer: &mut Command, inner: &Command) {
    outer.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer.current_dir(inner.get_current_dir().expect("the bench's directory"));
}

/// A program that was started. Where it still runs when the test ends, which is when the test fails, it is
/// killed with all that it started; a watchdog is nobody's child and puts the settings back.
pub struct Running {
    child: Child,
    command: String,
}

impl Running {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("a pipe to its standard input")
    }

    pub fn stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("a pipe from its standard output")
    }

    /// Whether it has ended.
    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let is_over = within(RUN, || self.is_over());
        assert!(is_over, "it still runs after {RUN:?}: {}", self.command);
        self.child.wait().unwrap()
    }

    /// Kills it alone, and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.wait();
    }

    /// Waits for its end and for that of its output.
    pub fn ran(mut self) -> Ran {
        let (stdout, stderr) = (drain(self.child.stdout.take()), drain(self.child.stderr.take()));
        let status = self.wait();
        let whole = |output: Receiver<Vec<u8>>| match output.recv_timeout(LEASED) {
            Ok(bytes) => bytes,
            Err(_) => panic!("it ended, and {LEASED:?} later somebody still had its output open: {}", self.command),
        };
        Ran::of(&Output { status, stdout: whole(stdout), stderr: whole(stderr) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        let tree = descendants(self.id());
        let _ = self.child.kill();
        tree.into_iter().for_each(|pid| send("KILL", pid));
        within(LEASED, || self.child.try_wait().map_or(true, |status| status.is_some()));
    }
}

/// Reads a pipe to its end, in a thread: a test waits for that no longer than it wants to.
fn drain(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (done, output) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes).unwrap();
        }
        let _ = done.send(bytes);
    });
    output
}

impl Ran {
    pub fn of(output: &Output) -> Ran {
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Standard output as one JSON document.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// Checks the exit code, and that every one of these stands in the message.
    pub fn says(&self, code: i32, parts: &[&str]) -> &Ran {
        assert_eq!(self.code, Some(code), "{self}");
        let message = words(&self.stderr);
        parts.iter().for_each(|part| assert!(message.contains(part), "no {part:?} in {self}"));
        assert!(!message.contains("panicked"), "{self}");
        self
    }

    /// Checks that every one of these stands in standard output, however its lines are broken.
    pub fn prints(&self, parts: &[&str]) -> &Ran {
        let printed = words(&self.stdout);
        parts.iter().for_each(|part| assert!(printed.contains(part), "no {part:?} in {self}"));
        self
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit {:?}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.stdout, self.stderr)
    }
}

/// The words of a text with one space between them.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The arm of a policy in a document.
pub fn arm<'a>(document: &'a Value, label: &str) -> &'a Value {
    let arms = document["arms"].as_array().unwrap_or_else(|| panic!("no arms in {document:#}"));
    arms.iter().find(|arm| arm["label"] == label).unwrap_or_else(|| panic!("no arm {label} in {document:#}"))
}

/// A figure of a trial.
pub fn observed(trial: &Value, metric: &str) -> Option<f64> {
    trial["observations"].as_array().unwrap().iter().find(|one| one["metric"] == metric)?["value"].as_f64()
}

pub fn words_of(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

pub fn shell(text: &str) -> Vec<String> {
    words_of(&["sh", "-c", text])
}

pub fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Whether what a test needs is here; says what is not.
pub fn needs(needed: &[(&str, bool)]) -> bool {
    let missing: Vec<&str> = needed.iter().filter(|(_, here)| !here).map(|(what, _)| *what).collect();
    if !missing.is_empty() {
        testing::skip(missing.join(" and "));
    }
    missing.is_empty()
}

pub fn root() -> (&'static str, bool) {
    ("root", is_root())
}

pub fn program(name: &'static str) -> (&'static str, bool) {
    (name, has(name))
}

/// A QEMU that the recorder can be loaded into.
pub fn recording(emulator: &'static str) -> (&'static str, bool) {
    let help = Command::new(emulator).arg("--help").output().map(|output| output.stdout).unwrap_or_default();
    match String::from_utf8_lossy(&help).lines().any(|line| line.starts_with("-plugin ")) {
        true => (emulator, true),
        false if has(emulator) => ("a QEMU with plugins", false),
        false => (emulator, false),
    }
}

// ---- the host's settings ----

/// Nobody else's test compares or changes settings while this lives.
pub struct Alone(#[allow(dead_code, reason = "held, not read")] File);

/// No pagelab can change a setting while this lives: the test has the lease itself.
pub struct Still {
    _alone: Alone,
    _lease: File,
}

impl Alone {
    pub fn wait() -> Alone {
        let mut lock = locked(Path::new(TEST_LOCK), TURN);
        lock.set_len(0).unwrap();
        let test = std::thread::current().name().unwrap_or_default().to_string();
        write!(lock, "the test {test} of process {}", std::process::id()).unwrap();
        Alone(lock)
    }
}

impl Still {
    /// Waits for the lease. Needs root.
    pub fn wait() -> Still {
        Still { _alone: Alone::wait(), _lease: lease() }
    }
}

/// The lease, taken by the test itself: no pagelab changes a setting while it lives. Needs root.
pub fn lease() -> File {
    let _ = fs::DirBuilder::new().mode(0o700).create(LEASE);
    locked(&Path::new(LEASE).join("lease.lock"), LEASED)
}

/// A locked file. Where somebody else keeps the lock for too long it says who.
fn locked(path: &Path, patience: Duration) -> File {
    let file = File::options().create(true).append(true).open(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    if !within(patience, || file.try_lock().is_ok()) {
        panic!("{path:?} is still locked after {patience:?}, by {:?}", fs::read_to_string(path).unwrap_or_default());
    }
    file
}

/// Waits until the run has the lease: it is about to change a setting, or has changed some.
pub fn await_lease(child: &Running) {
    // Another comparison on this host may have it for a while.
    assert!(within(Duration::from_secs(120), || leaseholder() == Some(child.id())), "it never had the lease");
}

/// The process that has the lease of the host's settings, as it says itself.
pub fn leaseholder() -> Option<u32> {
    let text = fs::read_to_string(Path::new(LEASE).join("lease.lock")).ok()?;
    serde_json::from_str::<Value>(&text).ok()?["pid"].as_u64()?.try_into().ok()
}

/// The settings while no pagelab has the lease: of a watchdog at work, or of another comparison on this
/// host, the end is waited for.
pub fn settings_at_rest() -> Settings {
    let _lease = lease();
    settings()
}

/// Settings with their values.
pub type Settings = Vec<(PathBuf, String)>;

/// Every THP, mTHP and hugetlb setting with its value: an independent look at what pagelab may change.
pub fn settings() -> Settings {
    let mut found = Vec::new();
    for directory in ["/sys/kernel/mm/transparent_hugepage", "/sys/kernel/mm/hugepages"] {
        collect(Path::new(directory), &mut found);
    }
    for name in ["min_free_kbytes", "nr_hugepages", "nr_overcommit_hugepages"] {
        read(&Path::new("/proc/sys/vm").join(name), &mut found);
    }
    found.sort();
    found
}

fn collect(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => collect(&path, found),
            false => read(&path, found),
        }
    }
}

/// Counters are no settings.
fn read(path: &Path, found: &mut Vec<(PathBuf, String)>) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let counts = ["pages_collapsed", "full_scans", "free_hugepages", "resv_hugepages", "surplus_hugepages"];
    let is_statistic = path.parent().is_some_and(|parent| parent.ends_with("stats"));
    if !counts.contains(&name.as_ref())
        && !is_statistic
        && let Ok(value) = fs::read_to_string(path)
    {
        found.push((path.to_path_buf(), value));
    }
}

// ---- processes ----

/// Sends a signal by its name.
pub fn send(signal: &str, pid: u32) {
    let _ = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Stops a process, and waits until none of its threads does anything any more.
pub fn stop(pid: u32) {
    send("STOP", pid);
    await_stop(pid);
}

/// Waits until none of a process's threads does anything any more, because it was stopped or stands at its end.
pub fn await_stop(pid: u32) {
    assert!(
        within(LEASED, || stands(pid)),
        "process {pid} should have stopped {LEASED:?} ago; its threads: {:?}",
        threads(pid)
    );
}

/// Whether none of a process's threads does anything any more.
pub fn stands(pid: u32) -> bool {
    threads(pid).iter().all(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

/// The states of a process's threads (proc(5), /proc/PID/stat).
fn threads(pid: u32) -> Vec<char> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    stats.filter_map(|stat| stat.rsplit_once(')')?.1.trim_start().chars().next()).collect()
}

/// What a process has started, and what that has, as far as it still has its parent.
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        for task in fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        next += 1;
    }
    found.split_off(1)
}

/// Processes whose command line has this word.
pub fn processes_with(word: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(word) && pid != std::process::id() {
            found.push((pid, line));
        }
    }
    found
}

/// Waits until something is so, for at most this long; says whether it is.
pub fn within(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Runs a comparison without privileges where the test has some: what needs no setting changed waits for nobody then.
pub fn ran_freely(mut command: Command) -> Ran {
    if is_root() && has("setpriv") { command.as_nobody().ran() } else { command.ran() }
}

/// What a command writes to a terminal of so many columns, standard error included.
pub fn on_terminal(bench: &Bench, columns: usize, environment: &str, words: &str) -> String {
    let line = format!("stty cols {columns} rows 50; exec env {environment} {} {words}", bench.program().display());
    let mut script = Command::new("script");
    script
        .args(["-qec", &line, "/dev/null"])
        .env("HOME", bench.path(""))
        .env("TERM", "xterm")
        .current_dir(bench.path(""));
    script.env_remove("LC_ALL").env_remove("LANG").env_remove("LC_CTYPE").env_remove("NO_COLOR");
    ran_freely(script).stdout.replace('\r', "\n")
}
