//! Prepares a program for the truth table ([`Bench`]): makes a directory in a tmpfs with a copy of the program, its libraries
//! and its input files, and determines how to start it.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use validation::lab::Lab;
use validation::launch::Launch;

use super::programs::{DIRECTORY, Program};
use super::tools::Tools;

/// A tmpfs. On another file system the kernel maps a large folio of a file whole at one fault, and which folios a file has
/// depends on how the file was read.
const MEMORY: &str = "/dev/shm";

/// Why a program is not in the table.
#[derive(Debug)]
pub enum NotReady {
    /// The program is not installed.
    Missing(String),
    /// The program or its input could not be made.
    Failed(String),
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReady::Missing(package) => write!(f, "skipped: needs {package}"),
            NotReady::Failed(why) => write!(f, "not made: {why}"),
        }
    }
}

/// A program that is ready to run. Its directory is removed when this is dropped.
pub struct Bench {
    /// How the program is measured and simulated.
    pub lab: Lab,
    pub command: Vec<String>,
    /// How the program is started, so that it maps the same memory on both sides.
    pub launch: Launch,
    /// What could not be made equal on both sides, if anything.
    pub differs: Option<&'static str>,
    _directory: Directory,
}

/// A directory that is removed when this is dropped.
pub struct Directory(PathBuf);

impl Directory {
    /// Makes a directory in tmpfs that every user can read.
    pub fn new(name: &str) -> Result<Directory, NotReady> {
        let path = Path::new(MEMORY).join(format!("pagelab-truth-{}-{name}", std::process::id()));
        let made = fs::create_dir(&path).and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)));
        made.map_err(|error| NotReady::Failed(format!("cannot make {}: {error}", path.display())))?;
        Ok(Directory(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Bench {
    /// Prepares a program.
    pub fn new(program: &Program, tools: &Tools) -> Result<Bench, NotReady> {
        let directory = Directory::new(&program.name.replace(' ', "-"))?;
        let place = directory.0.display().to_string();
        let filled = |word: &str| word.replace(DIRECTORY, &place);
        if let Some(user) = &program.user {
            // The recording runs as that user, and writes its trace to this directory.
            make(&["chown".to_owned(), user.clone(), place.clone()], program)?;
        }
        for (name, content) in &program.files {
            let text = content.bytes();
            let text = String::from_utf8(text).map(|text| filled(&text).into_bytes()).unwrap_or_default();
            write(&directory.0.join(name), &text)?;
        }
        let is_made = program.run.starts_with(DIRECTORY);
        if !is_made && !Path::new(&program.run).exists() {
            return Err(NotReady::Missing(program.package.clone()));
        }
        for words in &program.make {
            make(&words.iter().map(|word| filled(word)).collect::<Vec<_>>(), program)?;
        }
        let run = PathBuf::from(filled(&program.run));
        let libraries = directory.0.join("lib");
        let run = if is_made || program.in_place { run } else { copy_into(&run, &directory.0)? };
        let has_interpreter = copy_libraries(&run, &libraries)?;
        let words = std::iter::once(run.display().to_string()).chain(program.arguments.iter().map(|word| filled(word)));
        let command: Vec<String> = words.collect();
        let environment =
            [("PATH".to_owned(), std::env::var("PATH").unwrap_or_default()), ("HOME".to_owned(), place.clone())];
        let own = program.environment.iter().map(|(name, value)| (name.clone(), filled(value)));
        let launch = Launch::new(environment.into_iter().chain(own).collect());
        // A program of another user would have to be traced as that user, so its mappings are not compared.
        let is_matched = has_interpreter && program.user.is_none() && !program.in_place;
        let (launch, differs) = match_start(launch, &command, is_matched.then_some(&libraries), program.addresses);
        let lab = Lab {
            pagelab: tools.pagelab.clone(),
            plugin: tools.plugin.clone(),
            directory: directory.0.clone(),
            limit_s: program.limit_s,
            user: program.user.clone(),
            input: program.input.as_ref().map(|input| directory.0.join(input)),
            prepare: program.prepare.as_deref().map(filled),
        };
        Ok(Bench { lab, command, launch, differs, _directory: directory })
    }
}

/// The launch with which a program maps the same on both sides. If there is none, the plain launch, and what differs.
fn match_start(
    launch: Launch,
    command: &[String],
    libraries: Option<&PathBuf>,
    by_addresses: bool,
) -> (Launch, Option<&'static str>) {
    let Some(libraries) = libraries else { return (launch, None) };
    // Names the same directory, with a path that is longer by this number of bytes.
    let named = |bytes: usize| format!("{}/{}", libraries.display(), "./".repeat(bytes / 2));
    let Some(started) = launch.same_start(command, named) else {
        let mut launch = launch;
        launch.environment.push(("LD_LIBRARY_PATH".to_owned(), named(0)));
        return (launch, Some("the interpreter maps differently under QEMU"));
    };
    if !by_addresses {
        return (started, None);
    }
    match started.same_addresses(command) {
        Some(launch) => (launch, None),
        None => (started, Some("it maps differently at QEMU's addresses")),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), NotReady> {
    fs::write(path, bytes).map_err(|error| NotReady::Failed(format!("cannot write {}: {error}", path.display())))
}

/// Runs a command that makes something. If the command does not exist, the program's package is not installed.
fn make(words: &[String], program: &Program) -> Result<(), NotReady> {
    let output = Command::new(&words[0]).args(&words[1..]).stdin(Stdio::null()).output();
    let output = output.map_err(|_| NotReady::Missing(format!("{} ({})", program.package, words[0])))?;
    if output.status.success() {
        Ok(())
    } else {
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(NotReady::Failed(format!("{}: {}", words.join(" "), errors.lines().last().unwrap_or_default())))
    }
}

/// Copies a file into the directory, and returns the path of the copy.
fn copy_into(file: &Path, directory: &Path) -> Result<PathBuf, NotReady> {
    let copy = directory.join(file.file_name().unwrap_or_default());
    let done = fs::copy(file, &copy);
    done.map_err(|error| NotReady::Failed(format!("cannot copy {}: {error}", file.display())))?;
    Ok(copy)
}

/// Copies the libraries of a program. Returns whether it has any.
fn copy_libraries(program: &Path, to: &Path) -> Result<bool, NotReady> {
    let listed = Command::new("ldd").arg(program).output();
    let listed = listed.map_err(|error| NotReady::Failed(format!("cannot run ldd: {error}")))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let libraries: Vec<&str> = listed.lines().filter_map(|line| line.split_once("=> ")?.1.split(' ').next()).collect();
    let failed = |error: std::io::Error| NotReady::Failed(format!("cannot make {}: {error}", to.display()));
    fs::create_dir_all(to).map_err(failed)?;
    for library in libraries.iter().filter(|library| library.starts_with('/')) {
        copy_into(Path::new(library), to)?;
    }
    Ok(!libraries.is_empty())
}
