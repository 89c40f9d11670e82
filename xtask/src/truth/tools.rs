//! What the table is made with: pagelab and its recorder, as they are built, and the programs around them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::test::packages::is_in_path;

/// The programs around a comparison: each with the package that has it.
const AROUND: [(&str, &str); 7] = [
    ("setarch", "util-linux"),
    ("prlimit", "util-linux"),
    ("setpriv", "util-linux"),
    ("strace", "strace"),
    ("qemu-x86_64", "qemu-user"),
    ("timeout", "coreutils"),
    ("gcc", "gcc"),
];

/// What stands behind the commit where the source was changed.
const CHANGED: &str = " with changes";

/// The recorder's file.
const PLUGIN: &str = "libpagelab_qemu_plugin.so";

/// pagelab and its recorder.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The program.
    pub pagelab: PathBuf,
    /// The recorder.
    pub plugin: PathBuf,
}

impl Tools {
    /// Those in a directory, or those that are built here for release.
    ///
    /// # Errors
    /// What is missing: root, another architecture, a program, a build that failed.
    pub fn ready(root: &Path, built: Option<&Path>) -> Result<Tools, String> {
        if !cfg!(target_arch = "x86_64") {
            return Err("expected x86-64, of which the model of the kernel is compared".to_owned());
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if !status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0")) {
            return Err(
                "needs root: pools of hugetlb pages, and /proc/kpageflags, which says what maps a page".to_owned()
            );
        }
        if let Some((program, package)) = AROUND.iter().find(|(program, _)| !is_in_path(program)) {
            return Err(format!("needs {program}: apt-get install {package}"));
        }
        let directory = match built {
            Some(directory) => std::path::absolute(directory).map_err(|error| error.to_string())?,
            None => build(root)?,
        };
        let (pagelab, plugin) = (directory.join("pagelab"), directory.join(PLUGIN));
        if let Some(missing) = [&pagelab, &plugin].into_iter().find(|file| !file.is_file()) {
            let missing = missing.display();
            return Err(format!("there is no {missing}; cargo build --release -p pagelab -p qemu-plugin"));
        }
        Ok(Tools { pagelab, plugin })
    }
}

/// Builds both: their directory.
fn build(root: &Path) -> Result<PathBuf, String> {
    let mut cargo = crate::cargo(root);
    let status = cargo.args(["build", "--release", "--quiet", "-p", "pagelab", "-p", "qemu-plugin"]).status();
    match status {
        Ok(status) if status.success() => Ok(root.join("target/release")),
        Ok(status) => Err(format!("cargo build: {status}")),
        Err(error) => Err(format!("cannot run cargo: {error}")),
    }
}

/// What the table says of where it was made: the kernel, and pagelab's commit.
pub fn provenance(root: &Path) -> (String, String) {
    let said = |command: &mut Command| {
        let output = command.output().map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&output).trim().to_owned()
    };
    let commit = said(Command::new("git").args(["rev-parse", "--short=10", "HEAD"]).current_dir(root));
    let is_dirty = !said(Command::new("git").args(["status", "--porcelain", "crates"]).current_dir(root)).is_empty();
    let kernel = said(Command::new("uname").args(["-sr"]));
    (kernel, if is_dirty { format!("{commit}{CHANGED}") } else { commit })
}

/// Whether the source is not that of the commit: then nobody knows with what a row was made.
pub fn is_changed((_, commit): &(String, String)) -> bool {
    commit.ends_with(CHANGED)
}

/// The day, as in 2026-01-31.
pub fn today() -> String {
    let output = Command::new("date").arg("+%Y-%m-%d").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}
