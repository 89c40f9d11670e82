//! Makes the packages of one target ([`make`]): a `.deb` and a `tar.gz` each for the program and for the recorder's
//! plugin.

mod archive;
mod control;
mod licences;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use archive::{File, deb, gzip, tar_gz};
pub use control::Maintainer;
use control::Name;

use super::commit::Commit;
use super::target::Target;
use crate::docs;

/// The version of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The directory of the book in the package of the program.
const BOOK: &str = "share/doc/pagelab/html";
/// Files of the book's site that only a web server needs.
const SERVER_FILES: [&str; 3] = ["404.html", ".nojekyll", "CNAME"];
/// Directories with definitions. They are built into the program, but users also read and copy them. A missing directory is
/// skipped.
const DEFINITIONS: [&str; 4] = ["linux", "machines", "studies", "suites"];
/// The shells for which there are completions, and the file that each shell expects, below `share`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/pagelab"),
    ("zsh", "zsh/vendor-completions/_pagelab"),
    ("fish", "fish/vendor_completions.d/pagelab.fish"),
];

/// From what the packages are made.
#[derive(Debug)]
pub struct Parts<'a> {
    pub program: &'a Path,
    /// Path of the recorder's plugin.
    pub plugin: &'a Path,
    /// The record of the build, one tool or source per line.
    pub record: &'a str,
    /// The commit from which program and plugin were built.
    pub commit: &'a Commit,
    /// The maintainer of the packages, if there is one.
    pub maintainer: Option<&'a Maintainer>,
}

/// Makes the packages in a directory, replaces existing ones, and returns their paths.
pub fn make(root: &Path, target: &Target, parts: &Parts, directory: &Path) -> Result<Vec<PathBuf>, String> {
    let _ = fs::remove_dir_all(directory);
    fs::create_dir_all(directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    let plugin = read(parts.plugin)?;
    let version = parts.commit.version(VERSION);
    let mut made = Vec::new();
    for name in Name::ALL {
        let mut files = about(root, target, parts, name)?;
        match name {
            Name::Program => files.extend(program(root, target, parts, directory)?),
            Name::Recorder => files.push(File::new("lib/pagelab/libpagelab_qemu_plugin.so", plugin.clone())),
        }
        let identity = (version.as_str(), target.architecture, parts.maintainer);
        let control = control::files(name, identity, &files, &plugin);
        let stem = format!("{}_{version}_{}", name.text(), target.architecture);
        let top = format!("pagelab-{version}-{}/", target.architecture);
        let time_s = parts.commit.time_s;
        for (end, packed) in [("deb", deb(&control, &files, time_s)), ("tar.gz", tar_gz(&top, &files, time_s))] {
            let path = directory.join(format!("{stem}.{end}"));
            packed.and_then(|packed| fs::write(&path, packed)).map_err(cannot(&path))?;
            made.push(path);
        }
    }
    Ok(made)
}

/// The documents in every package: licences, changes, and the record of the build.
fn about(root: &Path, target: &Target, parts: &Parts, name: Name) -> Result<Vec<File>, String> {
    let text = |path: &str| read(&root.join(path)).map(|text| String::from_utf8_lossy(&text).into_owned());
    let mit = text("LICENSE-MIT")?;
    let mut files = vec![
        File::new("copyright", control::copyright(name, &mit)),
        File::new("changelog.gz", packed(text("CHANGELOG.md")?.as_bytes())?),
        File::new("third-party.gz", packed(licences::of(root, name.of_workspace(), target)?.as_bytes())?),
        File::new("built-with", parts.record),
    ];
    let licences: &[&str] = match name {
        Name::Program => &["LICENSE-APACHE", "LICENSE-MIT"],
        Name::Recorder => &["LICENSE-APACHE", "LICENSE-MIT", "crates/qemu-plugin/COPYING"],
    };
    for licence in licences {
        let file_name = licence.rsplit('/').next().unwrap_or(licence);
        files.push(File::new(format!("{file_name}.gz"), packed(text(licence)?.as_bytes())?));
    }
    let below = |file: File| File { path: format!("share/doc/{}/{}", name.text(), file.path), ..file };
    Ok(files.into_iter().map(below).collect())
}

/// Builds the site and returns its files, relative to the directory of its front page.
fn book_files(root: &Path) -> Result<Vec<File>, String> {
    let site = docs::site(root)?;
    let files = docs::files_below(&site)?;
    let named = files.iter().map(|file| (file, file.strip_prefix(&site).unwrap_or(file).display().to_string()));
    let kept = named.filter(|(_, name)| !SERVER_FILES.contains(&name.as_str()));
    kept.map(|(file, name)| read(file).map(|content| File::new(name, content))).collect()
}

/// The files of the program's package: the program, its manual pages and completions, the book, and its definitions.
fn program(root: &Path, target: &Target, parts: &Parts, directory: &Path) -> Result<Vec<File>, String> {
    let mut files = vec![File::program("bin/pagelab", read(parts.program)?)];
    let work = directory.join("documents");
    for (name, content) in manual(root, target, parts, &work)? {
        files.push(File::new(format!("share/man/man1/{name}.gz"), packed(&content)?));
    }
    for (shell, place) in COMPLETIONS {
        let script = succeed(pagelab(root, target, parts).args(["completions", shell]))?;
        files.push(File::new(format!("share/{place}"), script));
    }
    fs::remove_dir_all(&work).map_err(cannot(&work))?;
    let below = |page: File| File { path: format!("{BOOK}/{}", page.path), ..page };
    files.extend(book_files(root)?.into_iter().map(below));
    for path in definitions(root)? {
        let content = read(&root.join(&path))?;
        let to = format!("share/pagelab/{path}");
        files.push(if content.starts_with(b"#!") { File::program(to, content) } else { File::new(to, content) });
    }
    Ok(files)
}

/// The program; if it cannot run on this machine, a build of it for this machine.
fn pagelab(root: &Path, target: &Target, parts: &Parts) -> Command {
    if target.is_here() {
        return Command::new(parts.program);
    }
    let mut command = crate::cargo(root);
    command.args(["run", "--quiet", "--locked", "--package", "pagelab", "--"]);
    command.env(super::commit::VARIABLE, parts.commit.text());
    command
}

/// The standard output of a command that succeeds.
fn succeed(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    let message = || format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    if output.status.success() { Ok(output.stdout.clone()) } else { Err(message()) }
}

/// The manual pages, sorted by name.
fn manual(root: &Path, target: &Target, parts: &Parts, directory: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    fs::create_dir_all(directory).map_err(cannot(directory))?;
    succeed(pagelab(root, target, parts).arg("man").arg(directory))?;
    let entries = fs::read_dir(directory).map_err(cannot(directory))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        read(path).map(|content| (name, content))
    };
    paths.iter().map(named).collect()
}

/// The tracked files in the directories of definitions, relative to the workspace.
fn definitions(root: &Path) -> Result<Vec<String>, String> {
    let existing = DEFINITIONS.iter().filter(|directory| root.join(directory).is_dir());
    let mut words = vec!["ls-files", "--"];
    words.extend(existing);
    Ok(super::commit::git(root, &words)?.lines().map(str::to_owned).collect())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn packed(content: &[u8]) -> Result<Vec<u8>, String> {
    gzip(content).map_err(|error| format!("cannot compress: {error}"))
}

fn cannot(path: &Path) -> impl Fn(io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("cannot write {path}: {error}")
}
