//! `cargo xtask dist --install-test`: installs the packages with apt in a fresh Debian 12 and a fresh Debian 13, uses them as root
//! and as a user, and removes them again. Then runs the commands of the guide. The scripts that run inside (`inside.sh`,
//! `guide.sh`) print one line for each check.

mod fresh;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fresh::Fresh;

use crate::cache::{Work, cache};
use crate::debian::Archive;

/// Names of the Debian releases.
const RELEASES: [&str; 2] = ["bookworm", "trixie"];
/// The packages of Debian 12's QEMU, which supports plugins, and of a library that it needs and that Debian 13 does not
/// have any more.
const EMULATOR: [&str; 2] = ["qemu-user", "libcapstone4"];
/// The scripts that run inside the system.
const SCRIPTS: [(&str, &str); 2] = [("inside.sh", include_str!("inside.sh")), ("guide.sh", include_str!("guide.sh"))];
/// Pages of the book from which commands are run.
const PAGES: [&str; 2] = ["installing.md", "first-comparison.md"];
/// The lock that a lease holds (`host::LEASE_DIRECTORY`). Holding it keeps other runs on this machine from changing
/// settings meanwhile.
const LOCK: &str = "/run/pagelab/lease.lock";

/// Installs the packages of a directory in each release, and prints the results of the checks.
pub fn test(root: &Path, packages: &Path) -> Result<(), String> {
    let files = packages_in(packages)?;
    let mut failed = Vec::new();
    for release in RELEASES {
        println!("==> {release}");
        let system = Fresh::unpacked(&root.join("target/install"), release)?;
        put(&system, root, &files)?;
        if release != "bookworm" {
            put_emulator(&system)?;
        }
        for phase in ["install", "run", "remove", "guide"] {
            if let Err(problem) = run(&system, phase) {
                failed.push(format!("{release}: {phase}: {problem}"));
                break;
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn packages_in(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "deb")).collect();
    match files.len() {
        2 => Ok(files),
        _ => Err(format!("{} has no packages; make them first: cargo xtask dist --target ...", directory.display())),
    }
}

/// Copies the packages, the scripts and the pages into a system, to a place that apt's own user can read.
fn put(system: &Fresh, root: &Path, files: &[PathBuf]) -> Result<(), String> {
    let room = system.path.join("srv/packages");
    let cannot = |error: std::io::Error| format!("cannot write {}: {error}", room.display());
    fs::create_dir_all(&room).map_err(cannot)?;
    let pages = PAGES.map(|page| root.join("docs/guide").join(page));
    for file in files.iter().chain(&pages) {
        fs::copy(file, room.join(file.file_name().unwrap_or_default())).map_err(cannot)?;
    }
    SCRIPTS.iter().try_for_each(|(name, text)| fs::write(room.join(name), text).map_err(cannot))
}

/// Copies the packages of a QEMU that supports plugins to the directory in which the commands of the guide expect them.
fn put_emulator(system: &Fresh) -> Result<(), String> {
    let cache = cache()?.join("pagelab");
    let archive = Archive::open(&cache, "bookworm", super::compiler::host()?, false)?;
    let room = cache.join("emulator");
    fs::create_dir_all(&room).map_err(|error| format!("cannot make {}: {error}", room.display()))?;
    let work = Work::begin(&room)?;
    let to = system.path.join("srv/emulator");
    fs::create_dir_all(&to).map_err(|error| format!("cannot make {}: {error}", to.display()))?;
    for package in EMULATOR {
        let file = archive.fetch(package, &work)?;
        fs::copy(&file, to.join(file.file_name().unwrap_or_default()))
            .map_err(|error| format!("cannot write {}: {error}", to.display()))?;
    }
    Ok(())
}

/// Runs a phase of the script in the system, with the kernel's file systems mounted. If the phase changes settings, also with
/// this machine's lease lock. The mounts end with the process.
fn run(system: &Fresh, phase: &str) -> Result<(), String> {
    let mut command = Command::new("unshare");
    if matches!(phase, "run" | "guide") && Path::new(LOCK).exists() {
        command = Command::new("flock");
        command.args([LOCK, "unshare"]);
    }
    let mounted = "for part in proc sys dev; do mount --rbind --make-rslave /$part \"$1\"/$part; done; \
                   exec chroot \"$1\" /bin/bash /srv/packages/inside.sh \"$2\"";
    command.args(["--mount", "--propagation", "private", "sh", "-ec", mounted, "sh"]).arg(&system.path).arg(phase);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
    crate::command::succeed(&mut command)
}
