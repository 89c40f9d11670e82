//! The initial file system of a guest ([`Programs`]): busybox, pagelab, the programs of the checks, and the scripts of
//! the checks.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use guest::cpio;

use super::programs;
use crate::cache::Work;
use crate::debian::{Archive, unpack_file};
use crate::dist::Target;

/// The files that the guests of one architecture have in common.
#[derive(Debug, Default)]
pub struct Programs {
    files: Vec<(String, Vec<u8>)>,
    /// The directory on this machine with the compiled programs, their inputs, and busybox.
    place: PathBuf,
    busybox: PathBuf,
}

/// The path of busybox in its package: since Debian merged /bin into /usr/bin, and before that.
const BUSYBOX: [&str; 2] = ["./usr/bin/busybox", "./bin/busybox"];

impl Programs {
    /// Reads pagelab, with its libraries if it is linked dynamically, and busybox, and compiles the other programs.
    pub fn make(root: &Path, target: &Target, pagelab: &Path, busybox: &Path) -> Result<Programs, String> {
        let place = root.join("target/guests/programs").join(target.architecture);
        fs::create_dir_all(&place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
        let mut files = vec![("bin/busybox".to_owned(), read(busybox)?)];
        if target.is_here() {
            files.push(("bin/pagelab".to_owned(), read(&stripped(pagelab, &place)?)?));
            files.extend(libraries(pagelab)?);
        } else {
            files.push(("bin/pagelab".to_owned(), read(pagelab)?));
        }
        for name in ["looks", "read_first"] {
            let source = root.join("xtask/src/guests/programs").join(name).with_extension("c");
            files.push((format!("bin/{name}"), read(&compile(target, &source, &place)?)?));
        }
        for source in sources(&root.join("crates/pagelab/tests/torture"))? {
            let program = compile(target, &source, &place)?;
            let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((format!("torture/{name}"), read(&program)?));
        }
        for source in programs::sources(root) {
            let program = compile(target, &source, &place)?;
            let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((format!("programs/{name}"), read(&program)?));
        }
        for (name, content) in programs::inputs() {
            let path = place.join(name);
            fs::write(&path, &content).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            files.push((format!("programs/{name}"), content));
        }
        // The busybox that was extracted from its package is not executable, so an executable copy is made.
        let runnable = place.join("busybox");
        let ready = fs::copy(busybox, &runnable)
            .and_then(|_| fs::set_permissions(&runnable, fs::Permissions::from_mode(0o755)));
        ready.map_err(|error| format!("cannot make {}: {error}", runnable.display()))?;
        Ok(Programs { files, place, busybox: runnable })
    }

    /// Translates a program's command line in the guest into one with the paths of this machine.
    pub fn here(&self, words: &str) -> Vec<String> {
        let here = |word: &str| match (word.strip_prefix("/programs/"), word) {
            (Some(name), _) => self.place.join(name).display().to_string(),
            (None, "/bin/busybox") => self.busybox.display().to_string(),
            (None, word) => word.to_owned(),
        };
        words.split(' ').map(here).collect()
    }

    /// Makes the initial file system of a boot, with these checks in this order, and with further files.
    pub fn initrd(&self, checks: &[(&str, &str)], others: &[(&str, &[u8])]) -> Vec<u8> {
        let mut order: Vec<&str> = checks.iter().map(|(name, _)| *name).collect();
        order.push("");
        let scripts = checks.iter().map(|(name, script)| (format!("checks/{name}.sh"), script.as_bytes().to_vec()));
        let mut files: Vec<(String, Vec<u8>)> = scripts.collect();
        files.push(("checks/order".to_owned(), order.join("\n").into_bytes()));
        files.push(("init".to_owned(), include_bytes!("init.sh").to_vec()));
        files.extend(others.iter().map(|(name, content)| ((*name).to_owned(), content.to_vec())));
        files.extend(self.files.iter().cloned());
        let mut directories: Vec<String> = files.iter().flat_map(|(name, _)| above(name)).collect();
        directories.push("dev".to_owned());
        directories.sort();
        directories.dedup();
        let mut entries: Vec<(&str, u32, &[u8])> =
            directories.iter().map(|name| (name.as_str(), 0o040_755, &[][..])).collect();
        entries.extend(files.iter().map(|(name, content)| (name.as_str(), 0o100_755, content.as_slice())));
        cpio::archive(&entries)
    }
}

/// All directories above a file, the outermost first.
fn above(name: &str) -> Vec<String> {
    name.match_indices('/').map(|(at, _)| name[..at].to_owned()).collect()
}

/// A static busybox. It is fetched if it is missing, or if `again` is true.
pub fn busybox(cache: &Path, target: &'static Target, again: bool) -> Result<PathBuf, String> {
    let place = cache.join("busybox");
    fs::create_dir_all(&place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
    let work = Work::begin(&place)?;
    let file = place.join(target.architecture);
    if again || !file.is_file() {
        let archive = Archive::open(cache, "sid", target.architecture, again)?;
        let package = archive.fetch("busybox-static", &work)?;
        let unpacked = work.path.join("busybox");
        unpack_file(&package, BUSYBOX[0], &unpacked).or_else(|_| unpack_file(&package, BUSYBOX[1], &unpacked))?;
        fs::rename(&unpacked, &file).map_err(|error| format!("cannot make {}: {error}", file.display()))?;
    }
    Ok(file)
}

/// The C sources in a directory, sorted by name.
fn sources(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut sources: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    sources.retain(|path| path.extension().is_some_and(|end| end == "c"));
    sources.sort();
    Ok(sources)
}

/// A copy of a program without symbols and debugging information, which are two thirds of the file.
fn stripped(program: &Path, place: &Path) -> Result<PathBuf, String> {
    let copy = place.join("pagelab");
    crate::command::succeed(Command::new("strip").arg("-o").arg(&copy).arg(program))?;
    Ok(copy)
}

/// The loader and the libraries of a program for this machine, by their paths without the leading `/`. Empty for a static
/// program.
fn libraries(program: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    let output = Command::new("ldd").arg(program).output().map_err(|error| format!("cannot run ldd: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths.map(|path| Ok((path.trim_start_matches('/').to_owned(), read(Path::new(path))?))).collect()
}

/// Compiles a program for the target, linked statically.
fn compile(target: &Target, source: &Path, place: &Path) -> Result<PathBuf, String> {
    let program = place.join(source.file_stem().unwrap_or_default());
    let mut command = Command::new(target.compiler()?);
    command.args(["-O1", "-pthread", "-static", "-s", "-o"]).arg(&program).arg(source);
    crate::command::succeed(&mut command)
        .map_err(|problem| format!("cannot compile {}: {problem}", source.display()))?;
    Ok(program)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_precede_their_files() {
        let files = vec![("bin/pagelab".into(), b"elf".to_vec())];
        let programs = Programs { files, ..Programs::default() };
        let initrd = programs.initrd(&[("one", "run a"), ("two", "")], &[("var/lib/x", b"y")]);
        let text = String::from_utf8_lossy(&initrd);
        let at = |name: &str| text.find(&format!("{name}\0")).unwrap_or_else(|| panic!("no {name}"));
        assert!(at("var") < at("var/lib") && at("var/lib") < at("var/lib/x") && at("bin") < at("bin/pagelab"));
        assert!(text.contains("one\ntwo\n") && text.contains("#!/bin/busybox sh"), "the order and the first process");
    }
}
