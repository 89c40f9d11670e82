//! Runs the commands of tasks ([`succeed`]), and reads the date and the commit from their output.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a command and waits for it. A command that fails is an error.
pub fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

/// Whether a program is in PATH or in the administrator's directories.
pub fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let administrator = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(administrator).any(|directory| directory.join(program).is_file())
}

/// The commit in the output of `pagelab --version`: `pagelab 0.1.0 (d63f1c75481f)`.
pub fn commit_in(version: &str) -> String {
    let commit = version.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(commit, _)| commit);
    commit.unwrap_or(version).trim().to_owned()
}

/// Today's date, and the commit that is checked out.
pub fn stamp(root: &Path) -> (String, String) {
    let output = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).current_dir(root).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    };
    let changed = if output("git", &["status", "--porcelain", "-uno"]).is_empty() { "" } else { " with changes" };
    (output("date", &["-u", "+%Y-%m-%d"]), output("git", &["rev-parse", "--short", "HEAD"]) + changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_is_read_from_the_version() {
        assert_eq!(commit_in("pagelab 0.1.0 (d63f1c75481f with changes)\n\n"), "d63f1c75481f with changes");
        assert_eq!(commit_in("unknown"), "unknown");
    }
}
