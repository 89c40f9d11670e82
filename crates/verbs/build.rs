//! Tells the program which commit it is built from: the variable `PAGELAB_COMMIT` where a package build sets it, otherwise git,
//! otherwise nothing. No git, or no checkout, is no failure.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What a package build sets.
const VARIABLE: &str = "PAGELAB_COMMIT";
/// What the program is made of, from the root of the workspace.
const PARTS: [&str; 5] = ["crates", "machines", "studies", "linux", "Cargo.lock"];

fn main() {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let root = package.parent().and_then(Path::parent).unwrap_or(&package);
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let given = std::env::var(VARIABLE).ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| {
        watch(root);
        of_checkout(root)
    });
    let version = env!("CARGO_PKG_VERSION");
    let commit = commit.unwrap_or_else(|| "commit unknown, built without git".to_owned());
    println!("cargo::rustc-env=PAGELAB_VERSION={version} ({commit})");
}

/// Asks again when the commit or what it is compared with has changed.
fn watch(root: &Path) {
    let sources = std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let sources = sources.map(|entry| entry.path().join("src"));
    let others = PARTS[1..].iter().map(|part| root.join(part));
    let logs = git(root, &["rev-parse", "--git-path", "logs/HEAD"]).map(|path| root.join(path));
    for path in sources.chain(others).chain(logs).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// The commit of the checkout, and whether files differ from it; `None` where the workspace is no checkout of its own.
fn of_checkout(root: &Path) -> Option<String> {
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let mut status = vec!["--no-optional-locks", "status", "--porcelain", "--"];
    status.extend(PARTS);
    let changes = git(root, &status).is_none_or(|changed| !changed.is_empty());
    Some(if changes { format!("{commit}, with changes") } else { commit })
}

fn git(root: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).current_dir(root).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
