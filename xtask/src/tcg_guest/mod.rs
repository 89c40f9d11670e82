//! `cargo xtask tcg-guest`: the arm64 Linux that `pagelab workload tcg-boot` boots, without root.
//!
//! The kernel is that of Debian's installer, out of a package for every architecture, so that apt needs no
//! foreign one. The initrd holds one program, assembled here: it says that it was reached, and powers off. A second
//! initrd is the installer's, which does more before that.

mod init;
mod installer;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::cpio;

/// The kernel, as `pagelab workload tcg-boot` looks for it.
const KERNEL: &str = "linux";
/// The initrd of `tcg-boot --until devices`.
const INSTALLER: &str = "initrd-installer";
/// Names the package that both are of.
const PACKAGE: &str = "package";

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
    fs::create_dir_all(&directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    let work = Work::begin(&directory)?;
    if again || ![KERNEL, INSTALLER, PACKAGE].iter().all(|name| directory.join(name).is_file()) {
        let package = package_name(&fs::read_to_string("/etc/os-release").unwrap_or_default())?;
        println!("==> apt-get download {package}");
        let archive = download(&package, &work.path)?;
        let version = archive.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let compressed = work.path.join("initrd.gz");
        extract(&archive, &path_in(&package, "linux"), &work.path.join(KERNEL))?;
        extract(&archive, &path_in(&package, "initrd.gz"), &compressed)?;
        installer::make(&compressed, &work.path.join(INSTALLER))?;
        replace(&directory, &version, &work)?;
    }
    put(&directory, "initrd", &cpio::archive(&[("init", 0o100_755, &init::program())]), &work)?;
    Ok(directory)
}

/// Puts what is of a package in the place of the last. `package` says what they are, so it goes first and comes last:
/// what is interrupted is fetched again.
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

/// A file's place in the package.
fn path_in(package: &str, file: &str) -> String {
    let version = package.split('-').nth(2).unwrap_or_default();
    format!("./usr/lib/debian-installer/images/{version}/arm64/text/debian-installer/arm64/{file}")
}

/// A directory for what is not whole yet. It goes when it is done with, and what an interrupted run has left goes when
/// the next begins; one run has it at a time.
struct Work {
    path: PathBuf,
    _lock: fs::File,
}

impl Work {
    /// Waits for another run to end.
    fn begin(directory: &Path) -> Result<Work, String> {
        let (path, lock) = (directory.join("work"), directory.join("lock"));
        let cannot = |path: &Path| {
            let path = path.display().to_string();
            move |error: std::io::Error| format!("cannot make {path}: {error}")
        };
        let locked = fs::File::create(&lock).and_then(|file| file.lock().map(|()| file)).map_err(cannot(&lock))?;
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => fs::create_dir(&path),
        }
        .map_err(cannot(&path))?;
        Ok(Work { path, _lock: locked })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
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
fn put(directory: &Path, name: &str, content: &[u8], work: &Work) -> Result<(), String> {
    let path = directory.join(name);
    if fs::read(&path).is_ok_and(|found| found == content) {
        return Ok(());
    }
    let partial = work.path.join(name);
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
        assert!(path_in(&package, "linux").contains("/images/12/arm64/text/"));
        assert!(package_name("ID=fedora\nVERSION_ID=41\n").unwrap_err().contains("\"fedora\""));
        assert!(package_name("ID=debian\n").is_err(), "testing has no number");
    }

    /// A directory that goes with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("pagelab-xtask-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Scratch(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_an_interrupted_one_left_is_removed() {
        let scratch = Scratch::new("work");
        fs::create_dir(scratch.0.join("work")).unwrap();
        fs::write(scratch.0.join("work/half"), "").unwrap();
        let work = Work::begin(&scratch.0).unwrap();
        assert_eq!(fs::read_dir(&work.path).unwrap().count(), 0);
        assert!(fs::File::open(scratch.0.join("lock")).unwrap().try_lock().is_err(), "another run waits");
        drop(work);
        assert_eq!(scratch.names(), ["lock"]);
    }

    #[test]
    fn a_kernel_is_never_said_to_be_of_another_package() {
        let scratch = Scratch::new("replace");
        let work = Work::begin(&scratch.0).unwrap();
        put(&scratch.0, "linux", b"old", &work).unwrap();
        put(&scratch.0, "package", b"1", &work).unwrap();
        fs::write(work.path.join("linux"), "new").unwrap();
        let lost = replace(&scratch.0, "2", &work).unwrap_err();
        assert!(lost.contains("initrd-installer"), "{lost}");
        assert!(!scratch.0.join("package").exists(), "what is half done is fetched again");
        fs::write(work.path.join("linux"), "new").unwrap();
        fs::write(work.path.join("initrd-installer"), "more").unwrap();
        replace(&scratch.0, "2", &work).unwrap();
        let read = |name: &str| fs::read_to_string(scratch.0.join(name)).unwrap();
        assert_eq!((read("linux"), read("initrd-installer")), ("new".into(), "more".into()));
        assert_eq!(read("package"), "2");
    }

    #[test]
    fn files_are_whole_or_absent() {
        let scratch = Scratch::new("put");
        let work = Work::begin(&scratch.0).unwrap();
        put(&scratch.0, "a", b"one", &work).unwrap();
        put(&scratch.0, "a", b"two", &work).unwrap();
        assert_eq!(fs::read(scratch.0.join("a")).unwrap(), b"two");
        assert!(put(&scratch.0.join("none"), "a", b"", &work).unwrap_err().contains("cannot write"));
        drop(work);
        assert_eq!(scratch.names(), ["a", "lock"]);
    }
}
