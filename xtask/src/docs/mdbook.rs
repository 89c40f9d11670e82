//! Installs and runs mdBook.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The version for which the book is written. It is built from the registry once, in target/.
const VERSION: &str = "0.5.4";

/// The mdBook of an earlier run, or an installed one of this version; if there is neither, installs it.
pub fn find_or_install(root: &Path) -> Result<PathBuf, String> {
    let directory = root.join("target").join(format!("mdbook-{VERSION}"));
    let candidates = [directory.join("bin/mdbook"), PathBuf::from("mdbook")];
    let found = || candidates.iter().find(|program| is_usable(program)).cloned();
    if let Some(program) = found() {
        return Ok(program);
    }
    println!("==> installing mdbook {VERSION}");
    let mut install = crate::cargo(root);
    install.args(["install", "mdbook", "--locked", "--version", VERSION]);
    install.args(["--no-default-features", "--features", "search", "--root"]).arg(&directory);
    install.arg("--target-dir").arg(directory.join("build"));
    crate::command::succeed(&mut install).map_err(|problem| format!("cargo install mdbook: {problem}"))?;
    found().ok_or_else(|| format!("mdbook {VERSION} is installed but does not run here"))
}

fn is_usable(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").stderr(Stdio::null()).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == format!("mdbook v{VERSION}"))
}

/// Builds the book in this directory. Warnings are errors.
pub fn build(mdbook: &Path, book: &Path) -> Result<(), String> {
    let output = Command::new(mdbook).arg("build").arg(book).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", mdbook.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let warned = errors.lines().any(|line| line.contains("WARN") || line.contains("ERROR"));
    if output.status.success() && !warned { Ok(()) } else { Err(format!("mdbook: {}", errors.trim())) }
}
