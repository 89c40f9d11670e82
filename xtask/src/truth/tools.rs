//! The tools with which the truth table is made ([`Tools`]): pagelab and its recorder, and other programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::is_in_path;

/// The other programs that the table needs, each with its package.
const PROGRAMS: [(&str, &str); 7] = [
    ("setarch", "util-linux"),
    ("prlimit", "util-linux"),
    ("setpriv", "util-linux"),
    ("strace", "strace"),
    ("qemu-x86_64", "qemu-user"),
    ("timeout", "coreutils"),
    ("gcc", "gcc"),
];

/// The suffix of the commit's name if the source has changed since.
const CHANGED: &str = " with changes";

/// The file name of the recorder.
const PLUGIN: &str = "libpagelab_qemu_plugin.so";

/// The paths of pagelab and its recorder.
#[derive(Clone, Debug)]
pub struct Tools {
    pub pagelab: PathBuf,
    pub plugin: PathBuf,
}

impl Tools {
    /// The tools in the directory `built`; without one, builds them for release.
    pub fn ready(root: &Path, built: Option<&Path>) -> Result<Tools, String> {
        if !cfg!(target_arch = "x86_64") {
            return Err("expected x86-64, which the model of the kernel describes".to_owned());
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if !status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0")) {
            return Err("needs root, for hugetlb pools and /proc/kpageflags".to_owned());
        }
        if let Some((program, package)) = PROGRAMS.iter().find(|(program, _)| !is_in_path(program)) {
            return Err(format!("needs {program}: apt-get install {package}"));
        }
        let directory = match built {
            Some(directory) => std::path::absolute(directory).map_err(|error| error.to_string())?,
            None => build(root)?,
        };
        let (pagelab, plugin) = (directory.join("pagelab"), directory.join(PLUGIN));
        if let Some(missing) = [&pagelab, &plugin].into_iter().find(|file| !file.is_file()) {
            let missing = missing.display();
            return Err(format!("{missing} does not exist; run cargo build --release -p pagelab -p qemu-plugin"));
        }
        Ok(Tools { pagelab, plugin })
    }
}

/// Builds pagelab and the recorder, and returns their directory.
fn build(root: &Path) -> Result<PathBuf, String> {
    let mut cargo = crate::cargo(root);
    let status = cargo.args(["build", "--release", "--quiet", "-p", "pagelab", "-p", "qemu-plugin"]).status();
    match status {
        Ok(status) if status.success() => Ok(root.join("target/release")),
        Ok(status) => Err(format!("cargo build: {status}")),
        Err(error) => Err(format!("cannot run cargo: {error}")),
    }
}

/// Where a row comes from: the kernel, and pagelab's commit.
pub fn provenance(root: &Path) -> (String, String) {
    let printed = |command: &mut Command| {
        let output = command.output().map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&output).trim().to_owned()
    };
    let commit = printed(Command::new("git").args(["rev-parse", "--short=10", "HEAD"]).current_dir(root));
    let is_dirty = !printed(Command::new("git").args(["status", "--porcelain", "crates"]).current_dir(root)).is_empty();
    let kernel = printed(Command::new("uname").args(["-sr"]));
    (kernel, if is_dirty { format!("{commit}{CHANGED}") } else { commit })
}

/// Whether the source differs from the commit, so that the row cannot be reproduced.
pub fn is_changed((_, commit): &(String, String)) -> bool {
    commit.ends_with(CHANGED)
}

/// Today's date, such as 2026-01-31.
pub fn today() -> String {
    let output = Command::new("date").arg("+%Y-%m-%d").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}
