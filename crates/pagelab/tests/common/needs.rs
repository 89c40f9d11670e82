//! The requirements of a test, and whether this machine meets them ([`needs`]).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

pub fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Whether all requirements are met. Reports a skip with those that are not.
pub fn needs(needed: &[(&str, bool)]) -> bool {
    let missing: Vec<&str> = needed.iter().filter(|(_, here)| !here).map(|(what, _)| *what).collect();
    if !missing.is_empty() {
        testing::skip(missing.join(" and "));
    }
    missing.is_empty()
}

pub fn root() -> (&'static str, bool) {
    ("root", is_root())
}

pub fn program(name: &'static str) -> (&'static str, bool) {
    (name, has(name))
}

/// The requirements of a bench with a lease of its own.
pub fn own_lease() -> [(&'static str, bool); 2] {
    [root(), program("unshare")]
}

/// The requirement of a QEMU into which the recorder can be loaded.
pub fn recording(emulator: &'static str) -> (&'static str, bool) {
    let help = Command::new(emulator).arg("--help").output().map(|output| output.stdout).unwrap_or_default();
    match String::from_utf8_lossy(&help).lines().any(|line| line.starts_with("-plugin ")) {
        true => (emulator, true),
        false if has(emulator) => ("a QEMU with plugins", false),
        false => (emulator, false),
    }
}

/// The path of the Python interpreter itself. The `python3` in PATH may be a script of a version manager, which forks many times
/// before it starts the interpreter; the pages of the forks would be counted with the program's.
pub fn python() -> Option<String> {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim().to_string();
    output.status.success().then_some(path).filter(|path| !path.is_empty())
}
