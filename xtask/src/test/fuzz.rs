//! Checks that the fuzz targets still compile. `cargo fuzz` runs them.
//!
//! The targets are checked but not linked, because libFuzzer is C++ that takes minutes to compile, and no test runs a
//! target.

use std::fs;
use std::path::{Path, PathBuf};

use super::tally::{Failure, Skip, SkipReason, Tally};

/// With this variable libFuzzer is not built (see its build.rs). The path names no library, because nothing is linked.
const NO_LIBFUZZER: (&str, &str) = ("CUSTOM_LIBFUZZER_PATH", "/nowhere/libfuzzer.a");

/// Checks the fuzz targets of all crates. If the dependencies of a package cannot be fetched, the package counts as
/// skipped.
pub fn check(root: &Path) -> Tally {
    let mut tally = Tally::default();
    for directory in directories(root) {
        let name = directory.strip_prefix(root).unwrap_or(&directory).display().to_string();
        match check_one(root, &directory) {
            Ok(()) => {
                tally.passed.insert(format!("fuzz {name}"));
            }
            Err(NotChecked::Needs(what)) => {
                tally.skips.push(Skip { test: format!("fuzz {name}"), why: SkipReason::Needs(what) });
            }
            Err(NotChecked::Failed(problem)) => {
                let repeat = Some(format!("cargo check --manifest-path {name}/Cargo.toml"));
                let test = format!("fuzz {name}");
                tally.failed.push(Failure { test, repeat, ..Failure::default() }.because(problem));
            }
        }
    }
    tally
}

/// Why targets were not checked.
enum NotChecked {
    /// This machine lacks something, which the text names.
    Needs(String),
    /// The targets do not compile; the text is the error.
    Failed(String),
}

/// The packages of fuzz targets, which are not part of the workspace.
fn directories(root: &Path) -> Vec<PathBuf> {
    let crates = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = crates.map(|entry| entry.path().join("fuzz")).collect();
    found.retain(|directory| directory.join("Cargo.toml").is_file());
    found.sort();
    found
}

fn check_one(root: &Path, directory: &Path) -> Result<(), NotChecked> {
    let cargo = |words: &[&str]| {
        let mut command = crate::cargo(root);
        command.args(words).arg("--manifest-path").arg(directory.join("Cargo.toml"));
        command
    };
    let fetch = cargo(&["fetch", "--locked", "--quiet"]).output();
    let fetch = fetch.map_err(|error| NotChecked::Failed(format!("cannot run cargo fetch: {error}")))?;
    if !fetch.status.success() {
        return Err(not_fetched(&String::from_utf8_lossy(&fetch.stderr), directory));
    }
    let mut check = cargo(&["check", "--locked", "--quiet"]);
    check.arg("--target-dir").arg(root.join("target/fuzz")).env(NO_LIBFUZZER.0, NO_LIBFUZZER.1);
    crate::command::succeed(&mut check).map_err(NotChecked::Failed)
}

/// Why cargo could not fetch the dependencies: the lock file does not match the manifest, or no registry can be reached.
fn not_fetched(message: &str, directory: &Path) -> NotChecked {
    if message.contains("--locked") {
        let manifest = directory.join("Cargo.toml");
        NotChecked::Failed(format!(
            "Cargo.lock is stale; run cargo update --workspace --manifest-path {}",
            manifest.display()
        ))
    } else {
        NotChecked::Needs("its dependencies, which cargo cannot fetch".to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_lock_file_is_a_failure_and_a_missing_registry_is_a_skip() {
        let of = |message: &str| not_fetched(message, Path::new("crates/trace/fuzz"));
        let stale = "error: cannot update the lock file because --locked was passed to prevent this";
        assert!(matches!(of(stale), NotChecked::Failed(what) if what.contains("cargo update")));
        assert!(matches!(of("error: failed to get `libfuzzer-sys`"), NotChecked::Needs(_)));
    }

    #[test]
    fn fuzz_targets_of_this_workspace_are_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert!(directories(&root).iter().any(|directory| directory.ends_with("crates/trace/fuzz")));
    }
}
