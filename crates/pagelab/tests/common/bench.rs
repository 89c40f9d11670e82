//! A directory of its own for each test, with a copy of the program ([`Bench`]).

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::settings::{await_lease_in, leaseholder_in, settings_at_rest_in};
use super::{LeaseGuard, Running, Runs, Settings, ran_freely};

/// Few blocks, because these tests do not check precision.
pub const QUICK: [&str; 4] = ["--blocks", "2", "--min-blocks", "1"];

/// A script that executes a command with the directories `run` and `lib` of a bench mounted over those of the lease and
/// of its journal.
const WITH_OWN_LEASE: &str =
    "mount --bind \"$0/run\" /run/pagelab && mount --bind \"$0/lib\" /var/lib/pagelab && exec \"$@\"";

/// A directory with a copy of the program that every user can read, the store, and other files.
pub struct Bench {
    directory: TempDir,
    lease_guard: Option<LeaseGuard>,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::at(tempfile::tempdir().expect("a directory"))
    }

    /// A bench in tmpfs, whose files the kernel keeps in base pages.
    pub fn in_memory() -> Bench {
        Bench::at(tempfile::tempdir_in("/dev/shm").expect("a directory"))
    }

    /// A bench whose pagelabs have a lease of their own, while the test holds the host's lease. So no other pagelab makes them
    /// wait, takes the lease between two of them, or restores settings that they leave. Needs root and unshare.
    pub fn with_own_lease() -> Bench {
        let bench = Bench { lease_guard: Some(LeaseGuard::wait()), ..Bench::new() };
        for directory in ["run", "lib"] {
            fs::DirBuilder::new().mode(0o700).create(bench.path(directory)).unwrap();
        }
        bench
    }

    fn at(directory: TempDir) -> Bench {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let bench = Bench { directory, lease_guard: None };
        // A hard link, if the file system allows it, because a test build of the program is large.
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

    /// The path of a file in the directory, as a word of a command line.
    pub fn word(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn store(&self) -> String {
        self.word("results.sqlite")
    }

    /// Makes an executable shell script and returns its path.
    pub fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    /// A built-in workload that touches 48 MiB, which takes some hundredths of a second. The program's own memory, which no policy makes
    /// large, is only some 3 MiB.
    pub fn touch(&self) -> Vec<String> {
        let program = self.word("pagelab");
        [&program, "workload", "page-touch", "--bytes", "48M", "--answer-only"].map(str::to_string).to_vec()
    }

    /// A pagelab command with these words.
    pub fn pagelab(&self, words: &[&str]) -> Command {
        self.pagelab_by(&[], words)
    }

    /// Like [`Bench::pagelab`], but executed through another program.
    pub fn pagelab_by(&self, program: &[&str], words: &[&str]) -> Command {
        let pagelab = self.word("pagelab");
        let line = [program, &[pagelab.as_str()], words].concat();
        let mut command = match self.lease_guard {
            None => Command::new(line[0]),
            Some(_) => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "sh", "-c", WITH_OWN_LEASE]).arg(self.path("")).arg(line[0]);
                command
            }
        };
        command.args(&line[1..]).env("HOME", self.directory.path());
        command
            .env_remove("XDG_DATA_HOME")
            .env_remove("SUDO_UID")
            .env_remove("COLUMNS")
            .current_dir(self.directory.path());
        command
    }

    /// `pagelab compare` with the bench's store, these options, and a command. Frees large blocks first, so that large
    /// pages can be allocated.
    pub fn compare(&self, options: &[&str], command: &[String]) -> Command {
        self.advised(&[&["--no-advice"], options].concat(), command)
    }

    /// Like [`Bench::compare`], but with advice.
    pub fn advised(&self, options: &[&str], command: &[String]) -> Command {
        validation::free_large_blocks();
        let mut compare = self.pagelab(&["compare", "--store", &self.store()]);
        compare.args(options).arg("--").args(command);
        compare
    }

    /// Waits until the run holds the bench's own lease.
    pub fn await_lease(&self, child: &Running) {
        await_lease_in(&self.path("run"), child);
    }

    /// The process that holds the bench's own lease, from the lock file.
    pub fn leaseholder(&self) -> Option<u32> {
        leaseholder_in(&self.path("run"))
    }

    /// The host's settings while no process holds the bench's own lease.
    pub fn settings_at_rest(&self) -> Settings {
        settings_at_rest_in(&self.path("run"))
    }

    /// A stored comparison as JSON.
    pub fn stored(&self, number: u64) -> Value {
        self.pagelab(&["show", &number.to_string(), "--store", &self.store(), "--json"]).ran().json()
    }

    /// The stored comparisons, as `list` prints them.
    pub fn listed(&self) -> Vec<Value> {
        let listed = self.pagelab(&["list", "comparisons", "--json", "--store", &self.store()]).ran().json();
        listed["comparisons"].as_array().unwrap().clone()
    }
}

/// The output of a command, including standard error, on a terminal with this number of columns.
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
