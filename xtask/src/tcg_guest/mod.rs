//! `cargo xtask tcg-guest`: the arm64 Linux that `pagelab workload tcg-boot` boots, without root.
//!
//! The kernel is that of Debian's installer, out of a package for every architecture, so that apt needs no
//! foreign one. The initrd holds one program, assembled here: it says that it was reached, and powers off.

mod cpio;
mod init;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Fetches what is missing and says where it is; with `again`, fetches it anew.
pub fn run(again: bool) -> ExitCode {
    match assemble(again) {
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

/// Makes the guest where it is missing and returns its directory.
pub fn assemble(again: bool) -> Result<PathBuf, String> {
    let directory = cache()?.join("pagelab/tcg-guest");
    let initrd = cpio::archive(&[("init", 0o100_755, &init::program())]);
    let whole = ["linux", "package"].iter().all(|name| directory.join(name).is_file());
    if whole && !again {
        return put(&directory, "initrd", &initrd).map(|()| directory);
    }
    let cannot = |error: std::io::Error| format!("cannot make {}: {error}", directory.display());
    fs::create_dir_all(&directory).map_err(cannot)?;
    let work = Work::begin(&directory)?;
    let package = package_name(&fs::read_to_string("/etc/os-release").unwrap_or_default())?;
    println!("==> apt-get download {package}");
    let archive = download(&package, &work.0)?;
    extract(&archive, &kernel_path(&package), &work.0.join("linux"))?;
    fs::rename(work.0.join("linux"), directory.join("linux")).map_err(cannot)?;
    let version = archive.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    put(&directory, "initrd", &initrd)?;
    put(&directory, "package", version.as_bytes())?;
    Ok(directory)
}

/// `$XDG_CACHE_HOME`, or `~/.cache` (XDG Base Directory Specification); `pagelab workload tcg-boot` looks there.
fn cache() -> Result<PathBuf, String> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache.ok_or_else(|| "neither XDG_CACHE_HOME nor HOME is an absolute path; set one".to_string())
}

/// The installer of the Debian that this is.
fn package_name(release: &str) -> Result<String, String> {
    let value = |key: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.map(|value| value.trim_matches('"')).unwrap_or_default()
    };
    match (value("ID"), value("VERSION_ID").parse::<u32>()) {
        ("debian", Ok(version)) => Ok(format!("debian-installer-{version}-netboot-arm64")),
        (id, _) => Err(format!(
            "expected a released Debian, which has the package debian-installer-N-netboot-arm64, found {id:?} in \
             /etc/os-release; copy the directory from a Debian, or give `workload tcg-boot` another guest (--guest)"
        )),
    }
}

/// The kernel's place in the package.
fn kernel_path(package: &str) -> String {
    let version = package.split('-').nth(2).unwrap_or_default();
    format!("./usr/lib/debian-installer/images/{version}/arm64/text/debian-installer/arm64/linux")
}

/// A directory of its own that goes when it is done with, whatever happened.
struct Work(PathBuf);

impl Work {
    /// Also removes what an interrupted one has left.
    fn begin(directory: &Path) -> Result<Work, String> {
        for left in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = left.file_name().to_string_lossy().into_owned();
            if name.strip_prefix("work.").is_some_and(|process| !Path::new("/proc").join(process).exists()) {
                let _ = fs::remove_dir_all(left.path());
            }
        }
        let path = directory.join(format!("work.{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(Work(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn download(package: &str, into: &Path) -> Result<PathBuf, String> {
    let output = Command::new("apt-get").args(["download", package]).current_dir(into).output();
    let output = output.map_err(|error| format!("cannot run apt-get: {error}; this needs Debian's apt"))?;
    let archive =
        fs::read_dir(into).ok().and_then(|mut entries| entries.find_map(Result::ok)).map(|entry| entry.path());
    match archive {
        Some(archive) if output.status.success() => Ok(archive),
        _ => Err(format!(
            "apt-get download {package} failed: {}; is there a network, and are the lists there (apt-get update)?",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// Takes one file out of a package.
fn extract(archive: &Path, path: &str, to: &Path) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("cannot unpack {}: {error}", archive.display());
    let mut unpacking = Command::new("dpkg-deb").arg("--fsys-tarfile").arg(archive).stdout(Stdio::piped()).spawn();
    let unpacking = unpacking.as_mut().map_err(|error| format!("cannot run dpkg-deb: {error}"))?;
    let tar = unpacking.stdout.take().ok_or("dpkg-deb has no output")?;
    let file = fs::File::create(to).map_err(cannot)?;
    let found = Command::new("tar").args(["-x", "-O", "-f", "-", path]).stdin(tar).stdout(file).status();
    let unpacked = unpacking.wait().map_err(cannot)?;
    if found.map_err(cannot)?.success() && unpacked.success() {
        return Ok(());
    }
    Err(format!("{} has no {path}; the package has changed, and xtask/src/tcg_guest/mod.rs must", archive.display()))
}

/// Writes a file at once or not at all; one that holds the same already is left alone.
fn put(directory: &Path, name: &str, content: &[u8]) -> Result<(), String> {
    let path = directory.join(name);
    if fs::read(&path).is_ok_and(|found| found == content) {
        return Ok(());
    }
    let partial = directory.join(format!("{name}.{}", std::process::id()));
    let written = fs::write(&partial, content).and_then(|()| fs::rename(&partial, &path));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_is_that_of_the_release() {
        let package = package_name("NAME=x\nVERSION_ID=\"12\"\nID=debian\n").unwrap();
        assert_eq!(package, "debian-installer-12-netboot-arm64");
        assert!(kernel_path(&package).contains("/images/12/arm64/text/"));
        assert!(package_name("ID=fedora\nVERSION_ID=41\n").unwrap_err().contains("\"fedora\""));
        assert!(package_name("ID=debian\n").is_err(), "testing has no number");
    }

    #[test]
    fn what_an_interrupted_one_left_is_removed() {
        let directory = std::env::temp_dir().join(format!("pagelab-xtask-work-{}", std::process::id()));
        let [gone, here] = ["work.4194305".to_string(), "work.1".to_string()].map(|name| directory.join(name));
        fs::create_dir_all(&gone).unwrap();
        fs::create_dir_all(&here).unwrap();
        let work = Work::begin(&directory).unwrap();
        assert!(work.0.is_dir() && !gone.exists() && here.exists(), "no process has a number above pid_max's limit");
        drop(work);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn files_are_whole_or_absent() {
        let directory = std::env::temp_dir().join(format!("pagelab-xtask-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        put(&directory, "a", b"one").unwrap();
        put(&directory, "a", b"two").unwrap();
        assert_eq!(fs::read(directory.join("a")).unwrap(), b"two");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
        assert!(put(&directory, "a", b"").unwrap_err().contains("cannot write"));
    }
}
