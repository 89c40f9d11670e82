//! A fresh Debian in a directory ([`Fresh`]): made once by debootstrap, kept as an archive, and unpacked for each use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::is_in_path;
use crate::debian::Mirrors;

/// Packages that the checks use, and that many installations have but not all.
const EXTRA_PACKAGES: &str = "--include=man-db,bash-completion,ca-certificates";

/// A system in a directory, removed when this is dropped.
#[derive(Debug)]
pub struct Fresh {
    /// Path of its root.
    pub path: PathBuf,
}

impl Fresh {
    /// Unpacks a release into a directory. The directory also contains the archive of the release.
    pub fn unpacked(directory: &Path, release: &str) -> Result<Fresh, String> {
        let cannot = |error: std::io::Error| format!("cannot write {}: {error}", directory.display());
        fs::create_dir_all(directory).map_err(cannot)?;
        let archive = directory.join(format!("{release}.tar"));
        let path = directory.join(release);
        let _ = fs::remove_dir_all(&path);
        let system = Fresh { path };
        if !archive.is_file() {
            bootstrap(&system.path, release, &archive)?;
        } else {
            fs::create_dir(&system.path).map_err(cannot)?;
            tar(&["--extract", "--numeric-owner"], &archive, &system.path)?;
        }
        system.set_up_apt(release)?;
        Ok(system)
    }

    /// Gives apt inside the system the settings for downloads that apt outside has, such as a proxy.
    fn set_up_apt(&self, release: &str) -> Result<(), String> {
        let settings = Command::new("apt-config").args(["dump", "Acquire"]).output();
        let settings = settings.map_err(|error| format!("cannot run apt-config: {error}"))?.stdout;
        let sources = Mirrors::of_apt()?.sources(release, super::super::compiler::host()?);
        let cannot = |error: std::io::Error| format!("cannot write {}: {error}", self.path.display());
        fs::write(self.path.join("etc/apt/sources.list"), sources).map_err(cannot)?;
        fs::write(self.path.join("etc/apt/apt.conf.d/90outside"), settings).map_err(cannot)?;
        fs::copy("/etc/resolv.conf", self.path.join("etc/resolv.conf")).map(drop).map_err(cannot)
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn bootstrap(path: &Path, release: &str, archive: &Path) -> Result<(), String> {
    if !is_in_path("debootstrap") {
        return Err("needs debootstrap, which makes a fresh Debian; apt-get install debootstrap".to_owned());
    }
    println!("==> debootstrap {release}");
    let mut command = Command::new("debootstrap");
    command.args(["--variant=minbase", EXTRA_PACKAGES, release]).arg(path).arg(Mirrors::of_apt()?.main);
    let output = command.output().map_err(|error| format!("cannot run debootstrap: {error}"))?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let last = printed.trim().lines().last().unwrap_or_default();
        return Err(format!("debootstrap {release} failed, it needs root and the network: {last}"));
    }
    let partial = archive.with_extension("partial");
    tar(&["--create", "--numeric-owner"], &partial, path)?;
    fs::rename(&partial, archive).map_err(|error| format!("cannot write {}: {error}", archive.display()))
}

fn tar(words: &[&str], archive: &Path, directory: &Path) -> Result<(), String> {
    let mut command = Command::new("tar");
    command.args(words).arg("--file").arg(archive).arg("--directory").arg(directory).arg(".");
    crate::command::succeed(&mut command).map_err(|problem| format!("tar: {problem}"))
}
