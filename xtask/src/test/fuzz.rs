//! The fuzz targets: whether they still build. Running them takes `cargo fuzz`, and somebody who waits.

use std::fs;
use std::path::{Path, PathBuf};

use super::tally::{Skip, Tally, Why};

/// Builds the fuzz targets of all crates, as far as this machine can; names those that it cannot.
pub fn build(root: &Path) -> Tally {
    let mut tally = Tally::default();
    for directory in directories(root) {
        let name = directory.strip_prefix(root).unwrap_or(&directory).display().to_string();
        match build_one(root, &directory) {
            Ok(()) => {
                tally.passed.insert(format!("fuzz {name}"));
            }
            Err(NotBuilt::Needs(what)) => {
                tally.skips.push(Skip { test: format!("fuzz {name}"), why: Why::Needs(what) });
            }
            Err(NotBuilt::Failed(problem)) => tally.failed.push(format!("fuzz {name}: {problem}")),
        }
    }
    tally
}

/// Why targets were not built.
enum NotBuilt {
    /// This machine lacks something.
    Needs(String),
    /// They are wrong.
    Failed(String),
}

/// The packages of fuzz targets, which are no part of the workspace.
fn directories(root: &Path) -> Vec<PathBuf> {
    let crates = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = crates.map(|entry| entry.path().join("fuzz")).collect();
    found.retain(|directory| directory.join("Cargo.toml").is_file());
    found.sort();
    found
}

fn build_one(root: &Path, directory: &Path) -> Result<(), NotBuilt> {
    if !super::packages::is_in_path("c++") {
        return Err(NotBuilt::Needs("g++, for libFuzzer".to_string()));
    }
    let cargo = |words: &[&str]| {
        let mut command = crate::cargo(root);
        command.args(words).arg("--manifest-path").arg(directory.join("Cargo.toml"));
        command
    };
    let fetch = cargo(&["fetch", "--locked", "--quiet"]).output();
    let fetch = fetch.map_err(|error| NotBuilt::Failed(format!("cannot run cargo fetch: {error}")))?;
    if !fetch.status.success() {
        return Err(not_fetched(&String::from_utf8_lossy(&fetch.stderr), directory));
    }
    let mut build = cargo(&["build", "--locked", "--quiet"]);
    crate::command::succeed(build.arg("--target-dir").arg(root.join("target/fuzz"))).map_err(NotBuilt::Failed)
}

/// Why cargo has not got the dependencies, from what it says: because the lock file is not that of the manifests, or because
/// it reaches no registry.
fn not_fetched(said: &str, directory: &Path) -> NotBuilt {
    if said.contains("--locked") {
        let manifest = directory.join("Cargo.toml");
        NotBuilt::Failed(format!(
            "Cargo.lock is not current; cargo update --workspace --manifest-path {}",
            manifest.display()
        ))
    } else {
        NotBuilt::Needs("its dependencies, which cargo cannot fetch".to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_that_is_not_current_is_a_failure_and_no_registry_is_a_want() {
        let of = |said: &str| not_fetched(said, Path::new("crates/trace/fuzz"));
        let stale = "error: cannot update the lock file because --locked was passed to prevent this";
        assert!(matches!(of(stale), NotBuilt::Failed(what) if what.contains("cargo update")));
        assert!(matches!(of("error: failed to get `libfuzzer-sys`"), NotBuilt::Needs(_)));
    }

    #[test]
    fn fuzz_targets_of_this_workspace_are_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert!(directories(&root).iter().any(|directory| directory.ends_with("crates/trace/fuzz")));
    }
}
