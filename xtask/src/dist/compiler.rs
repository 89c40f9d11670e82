//! Finds a compiler, and a standard library for its target ([`Compiler`]). The library is installed with rustc already, or comes
//! from Debian's packages of one version, or is built from the library's source in those packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::target::Target;
use crate::cache::{Work, put};
use crate::debian::{Archive, unpack};

/// The directory in the cache into which Debian's compiler is unpacked.
const ROOM: &str = "rust";
/// A file in that directory that lists the packages. It is written last, so that it exists only if everything was
/// unpacked.
const PACKAGES: &str = "packages";

/// A compiler for one target.
#[derive(Debug)]
pub struct Compiler {
    /// Path of rustc, or `None` for the one that cargo uses by default.
    pub rustc: Option<PathBuf>,
    /// Where its standard library comes from, as text.
    pub library: String,
    /// Whether the standard library is built from its source (`-Zbuild-std`).
    pub builds_library: bool,
    /// The prefix of the paths of the library's source files.
    pub sysroot: PathBuf,
}

impl Compiler {
    /// Finds the first of these that is available: the compiler in use, if it has the target's library; Debian's compiler with the
    /// packaged library; Debian's compiler with a library that is built. If `again` is true, newer packages are fetched.
    pub fn find(root: &Path, target: &Target, cache: &Path, again: bool) -> Result<Compiler, String> {
        let sysroot = sysroot(root)?;
        if has_library(&sysroot, target) {
            let library = "the compiler's own".to_owned();
            return Ok(Compiler { rustc: None, library, builds_library: false, sysroot });
        }
        of_debian(target, cache, again).map_err(|problem| {
            format!(
                "rustc has no standard library for {0} here, and Debian's is not available: {problem}; where rustup \
                 is, `rustup target add {0}` brings it",
                target.triple
            )
        })
    }

    /// The version of the compiler, and where it comes from.
    pub fn version(&self, root: &Path) -> Result<String, String> {
        let rustc = self.rustc.as_deref().unwrap_or(Path::new("rustc"));
        output(Command::new(rustc).arg("-vV").current_dir(root))
    }
}

fn sysroot(root: &Path) -> Result<PathBuf, String> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root))?;
    Ok(PathBuf::from(sysroot.trim()))
}

fn has_library(sysroot: &Path, target: &Target) -> bool {
    let library = sysroot.join("lib/rustlib").join(target.triple).join("lib");
    let mut files = fs::read_dir(library).into_iter().flatten().flatten();
    files.any(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libstd-") && name.ends_with(".rlib")
    })
}

/// Debian's compiler for this machine, unpacked, together with the target's library or the library's source.
fn of_debian(target: &Target, cache: &Path, again: bool) -> Result<Compiler, String> {
    let room = cache.join(ROOM);
    fs::create_dir_all(&room).map_err(|error| format!("cannot make {}: {error}", room.display()))?;
    let work = Work::begin(&room)?;
    let sysroot = room.join("tree/usr");
    if again || !room.join(PACKAGES).is_file() {
        fetch(&room, &work, again)?;
    }
    let packages = fs::read_to_string(room.join(PACKAGES)).unwrap_or_default();
    let builds_library = !has_library(&sysroot, target);
    if builds_library && !sysroot.join("lib/rustlib/src/rust/library/Cargo.lock").is_file() {
        return Err(format!("{} has neither a library for it nor the library's source", packages.trim()));
    }
    let origin = if builds_library { "built from the source in" } else { "of" };
    let library = format!("{origin} {}", packages.trim());
    Ok(Compiler { rustc: Some(room.join("rustc")), library, builds_library, sysroot })
}

/// Fetches the compiler and all libraries of its version, and replaces the previous ones.
fn fetch(room: &Path, work: &Work, again: bool) -> Result<(), String> {
    let cache = room.parent().unwrap_or(room);
    let release = release(&fs::read_to_string("/etc/os-release").unwrap_or_default())?;
    let host = host()?;
    let here = Archive::open(cache, &release, host, again)?;
    let (flavour, version) = newest(&here)?;
    let tree = work.path.join("tree");
    let mut packages = Vec::new();
    let mut take = |archive: &Archive, package: &str| -> Result<(), String> {
        let file = archive.fetch(package, work)?;
        packages.push(file.file_stem().unwrap_or_default().to_string_lossy().into_owned());
        unpack(&file, &tree)
    };
    take(&here, &format!("rustc{flavour}"))?;
    take(&here, &format!("libstd-rust{flavour}-dev"))?;
    for package in libraries(&here, flavour)? {
        take(&here, &package)?;
    }
    let source = if flavour.is_empty() { "rust-src".to_owned() } else { format!("rust{flavour}-src") };
    take(&here, &source)?;
    for target in &super::target::TARGETS {
        if target.architecture != host
            && let Some(archive) = with_library(cache, &release, target, flavour, &version, again)
        {
            take(&archive, &format!("libstd-rust{flavour}-dev"))?;
        }
    }
    let _ = fs::remove_file(room.join(PACKAGES));
    let _ = fs::remove_dir_all(room.join("tree"));
    fs::rename(&tree, room.join("tree")).map_err(|error| format!("cannot make {}: {error}", room.display()))?;
    script(room, work)?;
    put(room, PACKAGES, packages.join(" ").as_bytes(), work)
}

/// The packages of the compiler's shared libraries: its own and LLVM.
fn libraries(here: &Archive, flavour: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for package in here.dependencies(&format!("libstd-rust{flavour}-dev"))? {
        if package.starts_with("libstd-rust") {
            let of_llvm = here.dependencies(&package)?;
            found.extend(of_llvm.into_iter().filter(|name| name.starts_with("libllvm")));
            found.push(package);
        }
    }
    Ok(found)
}

/// The archive of a target, if it has the library in exactly this version.
fn with_library(
    cache: &Path,
    release: &str,
    target: &Target,
    flavour: &str,
    version: &str,
    again: bool,
) -> Option<Archive> {
    let report = |problem: String| println!("no library for {}: {problem}", target.architecture);
    let archive = Archive::open(cache, release, target.architecture, again).map_err(report).ok()?;
    let found = archive.newest(&format!("libstd-rust{flavour}-dev")).ok()??;
    (source_version(&found) == source_version(version)).then_some(archive)
}

/// A version without the suffix of a binary-only rebuild (`+b1`).
fn source_version(version: &str) -> &str {
    let built_again = version.rsplit_once("+b").filter(|(_, count)| count.bytes().all(|byte| byte.is_ascii_digit()));
    built_again.map_or(version, |(source, _)| source)
}

/// The newer of Debian's two compilers. Stable releases have a second one, with which browsers are built.
fn newest(here: &Archive) -> Result<(&'static str, String), String> {
    let mut found = Vec::new();
    for flavour in ["-web", ""] {
        found.extend(here.newest(&format!("rustc{flavour}"))?.map(|version| (flavour, version)));
    }
    let newest = found.into_iter().max_by_key(|(_, version)| numbers(version));
    newest.ok_or_else(|| format!("{} has no rustc", here.name()))
}

/// The first two numbers of a version, for comparison: 1.96 is newer than 1.9.
fn numbers(version: &str) -> (u32, u32) {
    let mut numbers = version.split(['.', '+', '-', '~']).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Writes a script that runs the unpacked compiler with the compiler's own libraries. No other program on the machine
/// uses these.
fn script(room: &Path, work: &Work) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let text = "#!/bin/sh\nroom=$(dirname \"$(readlink -f \"$0\")\")/tree/usr\n\
                for libraries in \"$room\"/lib/*-linux-gnu; do LD_LIBRARY_PATH=$libraries; done\n\
                export LD_LIBRARY_PATH\nexec \"$room/bin/rustc\" --sysroot \"$room\" \"$@\"\n";
    put(room, "rustc", text.as_bytes(), work)?;
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(room.join("rustc"), executable).map_err(|error| format!("{}: {error}", room.display()))
}

/// The Debian release of this machine. The compiler must come from it, because one from another release does not run
/// here.
fn release(text: &str) -> Result<String, String> {
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    match (value("ID").as_deref(), value("VERSION_CODENAME")) {
        (Some("debian"), Some(name)) => Ok(name),
        (id, _) => Err(format!("expected Debian, because its rustc packages are used, found {id:?}")),
    }
}

/// Debian's name of this machine's architecture.
pub fn host() -> Result<&'static str, String> {
    let here = super::target::TARGETS.iter().find(|target| target.is_here());
    here.map(|target| target.architecture).ok_or_else(|| format!("no target is {}", std::env::consts::ARCH))
}

fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("cannot run {program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(numbers("1.96.0+dfsg1-1~deb12u2") > numbers("1.63.0+dfsg1-2"));
        assert!(numbers("1.100.0-1") > numbers("1.96.0-1"));
    }

    #[test]
    fn a_binary_only_rebuild_has_the_same_source_version() {
        assert_eq!(source_version("1.96.0+dfsg1-1~deb13u1+b1"), "1.96.0+dfsg1-1~deb13u1");
        assert_eq!(source_version("1.96.0+bsomething"), "1.96.0+bsomething");
        assert_eq!(source_version("1.96.0+dfsg1-1"), "1.96.0+dfsg1-1");
    }

    #[test]
    fn the_error_names_another_distribution() {
        assert_eq!(release("ID=debian\nVERSION_CODENAME=bookworm\n").unwrap(), "bookworm");
        assert!(release("ID=fedora\n").unwrap_err().contains("fedora"));
    }
}
