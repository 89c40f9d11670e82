//! Tests of commands that run as another user. Such a command gets nothing of root's: not its terminal, not its environment, and
//! no privilege by exec. In everything else it behaves as usual.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/terminal.rs"]
mod terminal;

mod environment;
mod inputs;
mod relay;
mod session;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Bench, QUICK, Ran, Runs, needs, program, root, send, shell, within, words_of};
use terminal::{PATIENCE, Typist};

/// A policy that traces the command, and one that does not.
const POLICIES: [&str; 2] = ["base", "default+no-huge"];

/// The options that select the other user.
const NOBODY: [&str; 2] = ["--user", "nobody"];

/// A bench with a compiled program of this directory, which every user can execute.
fn bench_with(name: &str, mode: u32) -> (Bench, String) {
    let bench = Bench::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(format!("{name}.c"));
    let compiled = bench.path(name);
    let status = Command::new("gcc").arg("-O1").arg(source).arg("-o").arg(&compiled).status().unwrap();
    assert!(status.success());
    fs::set_permissions(&compiled, Permissions::from_mode(mode)).unwrap();
    let word = bench.word(name);
    (bench, word)
}

fn can_become_another() -> bool {
    needs(&[root(), program("gcc"), program("setsid")])
}

/// `pagelab exec` that runs a command as the user `nobody`.
fn exec(bench: &Bench, policy: &str, command: &[&str]) -> Command {
    bench.pagelab(&[&["exec", "-p", policy][..], &NOBODY, &["--"], command].concat())
}

/// A shell with job control on a terminal.
fn interactive(bench: &Bench) -> Typist {
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-i"]).current_dir(bench.path("")).env("HOME", bench.path(""));
    bash.env("PS1", "NEXT> ").env("HISTFILE", "/dev/null").env_remove("SUDO_UID");
    let mut typist = Typist::at(&bash);
    typist.sees("NEXT> ");
    typist.types("bind 'set enable-bracketed-paste off'\n");
    typist.sees("off'");
    typist.sees("NEXT> ");
    typist
}
