//! `cargo xtask tcg-guest`: makes the arm64 Linux guest that `pagelab workload tcg-boot` boots, without root.
//!
//! The kernel is that of Debian's installer. It comes from a package for all architectures, so that apt needs no foreign
//! architecture. There are three initrds. The first contains a single program, assembled here, which prints that it was
//! reached and powers off. The second is the installer's, which does more work before that. The third is a whole Debian, which
//! is large and made only on request.

mod init;
mod installer;
mod system;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use guest::cpio;

use crate::cache::{Work, cache, put};
use crate::debian::{Archive, unpack_file};

/// The file name of the kernel, as `pagelab workload tcg-boot` expects it.
const KERNEL: &str = "linux";
/// The file name of the initrd for `tcg-boot --until devices`.
const INSTALLER: &str = "initrd-installer";
/// A file with the name of the package from which the kernel and the installer come.
const PACKAGE: &str = "package";
/// The file name of the initrd for `tcg-boot --until system`.
const SYSTEM: &str = "initrd-system";
/// A file with the description of the whole Debian.
const SYSTEM_NAME: &str = "system";

/// Selects the parts of the guest to make.
#[derive(Clone, Copy, Debug)]
pub struct GuestParts {
    /// Whether to make existing parts again.
    pub again: bool,
    /// Whether to make the whole Debian too.
    pub system: bool,
}

/// Makes the missing parts and prints where they are.
pub fn run(parts: GuestParts) -> ExitCode {
    let made = assemble(parts.again).and_then(|directory| {
        if parts.system { assemble_system(&directory, parts.again).map(|()| directory) } else { Ok(directory) }
    });
    match made {
        Ok(directory) => {
            println!("{}", directory.display());
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("xtask: tcg-guest: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the guest if it is missing and returns its directory.
pub fn assemble(again: bool) -> Result<PathBuf, String> {
    let directory = cache()?.join("pagelab/tcg-guest");
    fs::create_dir_all(&directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    let work = Work::begin(&directory)?;
    if again || ![KERNEL, INSTALLER, PACKAGE].iter().all(|name| directory.join(name).is_file()) {
        let package = package_name(&fs::read_to_string("/etc/os-release").unwrap_or_default())?;
        println!("==> apt-get download {package}");
        let archive = download(&package, &work.path)?;
        let version = archive.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let compressed = work.path.join("initrd.gz");
        unpack_file(&archive, &path_in(&package, "linux"), &work.path.join(KERNEL))?;
        unpack_file(&archive, &path_in(&package, "initrd.gz"), &compressed)?;
        installer::make(&compressed, &work.path.join(INSTALLER))?;
        replace(&directory, &version, &work)?;
    }
    put(&directory, "initrd", &cpio::archive(&[("init", 0o100_755, &init::program())]), &work)?;
    Ok(directory)
}

/// Makes the whole Debian if it is missing.
fn assemble_system(directory: &Path, again: bool) -> Result<(), String> {
    if !again && [SYSTEM, SYSTEM_NAME].iter().all(|name| directory.join(name).is_file()) {
        return Ok(());
    }
    let release = value(&fs::read_to_string("/etc/os-release").unwrap_or_default(), "VERSION_CODENAME").to_owned();
    if release.is_empty() {
        return Err("/etc/os-release has no VERSION_CODENAME, which names the Debian release to make".to_owned());
    }
    let archive = Archive::open(&cache()?.join("pagelab"), &release, "arm64", again)?;
    let work = Work::begin(directory)?;
    let initrd = work.path.join(SYSTEM);
    let name = system::make(&archive, &work, &initrd)?;
    let place = directory.join(SYSTEM);
    fs::rename(&initrd, &place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
    put(directory, SYSTEM_NAME, name.as_bytes(), &work)
}

/// Replaces the files of the previous package. The file `package` is removed first and written last, so that files of an
/// interrupted run are fetched again.
fn replace(directory: &Path, version: &str, work: &Work) -> Result<(), String> {
    let name = directory.join(PACKAGE);
    match fs::remove_file(&name) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(format!("cannot remove {}: {error}", name.display()));
        }
        _ => {}
    }
    for file in [KERNEL, INSTALLER] {
        let place = directory.join(file);
        fs::rename(work.path.join(file), &place)
            .map_err(|error| format!("cannot make {}: {error}", place.display()))?;
    }
    put(directory, PACKAGE, version.as_bytes(), work)
}

/// The package of the installer, for the Debian release of this machine.
fn package_name(release: &str) -> Result<String, String> {
    match (value(release, "ID"), value(release, "VERSION_ID").parse::<u32>()) {
        ("debian", Ok(version)) => Ok(format!("debian-installer-{version}-netboot-arm64")),
        (id, _) => Err(format!(
            "expected a released Debian, which has the package debian-installer-N-netboot-arm64, found {id:?} in \
             /etc/os-release; copy the directory from a Debian, or give `workload tcg-boot` another guest (--guest)"
        )),
    }
}

/// The value of a key of os-release(5); empty if the key is missing.
fn value<'a>(release: &'a str, key: &str) -> &'a str {
    let line = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    line.map(|value| value.trim_matches('"')).unwrap_or_default()
}

/// The path of a file in the package.
fn path_in(package: &str, file: &str) -> String {
    let version = package.split('-').nth(2).unwrap_or_default();
    format!("./usr/lib/debian-installer/images/{version}/arm64/text/debian-installer/arm64/{file}")
}

fn download(package: &str, into: &Path) -> Result<PathBuf, String> {
    let output = Command::new("apt-get").args(["download", package]).current_dir(into).output();
    let output = output.map_err(|error| format!("cannot run apt-get: {error}; this needs Debian's apt"))?;
    let archive =
        fs::read_dir(into).ok().and_then(|mut entries| entries.find_map(Result::ok)).map(|entry| entry.path());
    match archive {
        Some(archive) if output.status.success() => Ok(archive),
        _ => Err(format!(
            "apt-get download {package} failed: {}; check the network and the package lists (apt-get update)",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::Scratch;

    #[test]
    fn the_package_is_that_of_the_release() {
        let package = package_name("NAME=x\nVERSION_ID=\"12\"\nID=debian\n").unwrap();
        assert_eq!(package, "debian-installer-12-netboot-arm64");
        assert!(path_in(&package, "linux").contains("/images/12/arm64/text/"));
        assert!(package_name("ID=fedora\nVERSION_ID=41\n").unwrap_err().contains("\"fedora\""));
        assert!(package_name("ID=debian\n").is_err(), "testing has no number");
    }

    #[test]
    fn a_kernel_is_never_attributed_to_another_package() {
        let scratch = Scratch::new("replace");
        let work = Work::begin(&scratch.0).unwrap();
        put(&scratch.0, "linux", b"old", &work).unwrap();
        put(&scratch.0, "package", b"1", &work).unwrap();
        fs::write(work.path.join("linux"), "new").unwrap();
        let problem = replace(&scratch.0, "2", &work).unwrap_err();
        assert!(problem.contains("initrd-installer"), "{problem}");
        assert!(!scratch.0.join("package").exists(), "an incomplete guest is fetched again");
        fs::write(work.path.join("linux"), "new").unwrap();
        fs::write(work.path.join("initrd-installer"), "more").unwrap();
        replace(&scratch.0, "2", &work).unwrap();
        let read = |name: &str| fs::read_to_string(scratch.0.join(name)).unwrap();
        assert_eq!((read("linux"), read("initrd-installer")), ("new".into(), "more".into()));
        assert_eq!(read("package"), "2");
    }
}
