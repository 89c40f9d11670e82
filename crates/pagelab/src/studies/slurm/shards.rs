//! Shards: the stores that tasks leave in a directory that all nodes see, each a file that is there wholly or not at all.
//!
//! SQLite's log is not safe on a file system that several nodes share. So no store is ever open there: it is copied to
//! the node's own disk, and back under another name, which becomes its own once all of it is on the disk.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use host::if_there;
use results::files;
use results::store::Store;
use serde_json::Value;
use study::definition::Definition;

use crate::failure::Failure;
use crate::output::{self, store_path};

/// How a copy is called until it is whole.
const PARTIAL: &str = "partial";

/// Where the tasks of a study leave their shards.
pub struct Shards {
    /// The store that they are merged into.
    pub store: PathBuf,
    /// The directory beside it.
    pub directory: PathBuf,
    /// How every file of this study's size begins.
    pub stem: String,
}

impl Shards {
    /// Those of a study beside a store: `results.shards` beside `results.sqlite`.
    ///
    /// # Errors
    /// There is no place for the store.
    pub fn of(definition: &Definition, store: Option<&Path>) -> Result<Shards, Failure> {
        let store = store_path(store)?;
        let store = std::path::absolute(&store).map_err(|error| Failure::about(&store, error))?;
        let stem = format!("{}-{}", definition.name, definition.size.name());
        Ok(Shards { directory: store.with_extension("shards"), store, stem })
    }

    /// Makes the directory.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(&self) -> Result<(), Failure> {
        files::make_directories(&self.directory).map_err(Failure::input)
    }

    /// Whether a task of this study and size has left anything.
    ///
    /// # Errors
    /// Their directory cannot be read.
    pub fn has_any(&self) -> Result<bool, Failure> {
        let begin = format!("{}-", self.stem);
        let is_own = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begin));
        Ok(self.entries()?.iter().any(is_own))
    }

    /// What is in the directory; nothing where there is none.
    fn entries(&self) -> Result<Vec<PathBuf>, Failure> {
        let failed = |error| Failure::about(&self.directory, error);
        let Some(entries) = if_there(fs::read_dir(&self.directory)).map_err(failed)? else { return Ok(Vec::new()) };
        entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect()
    }

    /// What a task has measured.
    pub fn shard(&self, task: usize) -> PathBuf {
        self.directory.join(format!("{}-{task}.sqlite", self.stem))
    }

    /// How far a task came, as `study status --json` says it.
    pub fn note(&self, task: usize) -> PathBuf {
        self.directory.join(format!("{}-{task}.json", self.stem))
    }

    /// What a task has printed: `STEM-7.out`, or of an array that counts from an offset `STEM-1000+7.out`.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn printed(&self, task: usize) -> Result<PathBuf, Failure> {
        let is_own = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let number = name.strip_prefix(&self.stem).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".out"));
            let parts = number.and_then(|number| number.split_once('+'));
            let sum =
                parts.and_then(|(offset, index)| Some(offset.parse::<usize>().ok()? + index.parse::<usize>().ok()?));
            sum == Some(task)
        };
        let own = self.entries()?.into_iter().find(is_own);
        Ok(own.unwrap_or_else(|| self.directory.join(format!("{}-{task}.out", self.stem))))
    }

    /// Copies of a task's shard that somebody began and did not end.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn halves(&self, task: usize) -> Result<Vec<PathBuf>, Failure> {
        let begin = format!("{}-{task}.sqlite.", self.stem);
        let is_half = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&begin) && path.extension().is_some_and(|ending| ending == PARTIAL)
        };
        let mut halves: Vec<PathBuf> = self.entries()?.into_iter().filter(is_half).collect();
        halves.sort();
        Ok(halves)
    }

    /// Puts a task's store and note where everybody sees them, in place of earlier ones.
    ///
    /// # Errors
    /// They cannot be written; what was there before is as it was.
    pub fn publish(&self, task: usize, store: &Path, note: &str) -> Result<(), Failure> {
        for half in self.halves(task)? {
            files::remove_file(&half).map_err(|error| Failure::about(&half, error))?;
        }
        publish(store, &self.shard(task))?;
        output::write(&self.note(task), &|to| to.write_all(note.as_bytes()))
    }
}

/// Whether there is such a file.
///
/// # Errors
/// It is not known: an existing file must not count as absent, and be overwritten.
pub fn is_there(path: &Path) -> Result<bool, Failure> {
    path.try_exists().map_err(|error| Failure::about(path, error))
}

/// The reasons that a task has given itself in its note; `None` where every row of it is done.
///
/// # Errors
/// The note cannot be read, or is none.
pub fn told(note: &Path) -> Result<Option<String>, Failure> {
    let text = files::open_to_read(note).and_then(io::read_to_string).map_err(|error| Failure::about(note, error))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| Failure::about(note, error))?;
    let rows = value["rows"].as_array().ok_or_else(|| Failure::about(note, io::Error::other("expected rows")))?;
    let row = |row: &Value| Some(format!("{}: {}", row["state"].as_str()?, row["why"].as_str()?));
    let left: Vec<String> = rows.iter().filter(|one| one["state"] != "done").filter_map(row).collect();
    Ok((!left.is_empty()).then(|| left.join("; ")))
}

/// Copies a file and gives it its name once it is whole and on the disk.
///
/// # Errors
/// It cannot be read or written; a half copy stays under its own name, which says so.
pub fn publish(from: &Path, to: &Path) -> Result<(), Failure> {
    let node = std::env::var("SLURMD_NODENAME").unwrap_or_default();
    let node: String = node.chars().filter(|letter| letter.is_ascii_alphanumeric() || "-.".contains(*letter)).collect();
    let mut name = to.as_os_str().to_owned();
    name.push(format!(".{node}-{}.{PARTIAL}", std::process::id()));
    let partial = PathBuf::from(name);
    let failed = |error| Failure::about(&partial, error);
    copy(from, &partial).and_then(|file| file.sync_all()).map_err(failed)?;
    files::rename(&partial, to).map_err(failed)?;
    let directory = to.parent().unwrap_or(Path::new("."));
    File::open(directory).and_then(|file| file.sync_all()).map_err(|error| Failure::about(directory, error))
}

/// Copies a file, in the place of one that somebody who was killed has left.
fn copy(from: &Path, to: &Path) -> io::Result<File> {
    files::remove_file(to)?;
    let mut read = files::open_to_read(from)?;
    let mut copy = files::create_new(to)?;
    io::copy(&mut read, &mut copy)?;
    Ok(copy)
}

/// A copy on this node's own disk of a store that nobody has open, looked at wholly.
///
/// # Errors
/// It cannot be copied; it is open, or its log was left by somebody who was killed; it is damaged.
pub fn working_copy(from: &Path, to: &Path) -> Result<Store, Failure> {
    let mut log = from.as_os_str().to_owned();
    log.push("-wal");
    let found = if_there(fs::metadata(&log)).map_err(|error| Failure::about(log.as_ref(), error))?;
    if found.is_some_and(|log| log.len() > 0) {
        return Err(Failure::Input(format!(
            "{} is open, or was left by a pagelab that was killed: wait until it is closed, or read it once with `pagelab list comparisons --store`",
            from.display()
        )));
    }
    let partial = to.with_extension(PARTIAL);
    copy(from, &partial).map_err(|error| Failure::about(from, error))?;
    files::rename(&partial, to).map_err(|error| Failure::about(to, error))?;
    let store = output::open(to)?;
    store.check().map_err(Failure::input)?;
    Ok(store)
}

/// A directory on this node's own disk: `SLURM_TMPDIR` where the site has one, or `TMPDIR`, or /tmp. A job that is
/// queued again and comes back to its node finds what it left.
///
/// # Errors
/// It cannot be made, or somebody else has it.
#[expect(clippy::disallowed_methods, reason = "no other user can change the path of the directory above")]
pub fn own_directory(of: &str) -> Result<PathBuf, Failure> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = variable("SLURM_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let base = files::sheltered_directory(&base).map_err(Failure::input)?;
    let job = variable("SLURM_ARRAY_JOB_ID").or_else(|| variable("SLURM_JOB_ID"));
    let job = job.map_or_else(|| format!("p{}", std::process::id()), |job| job.to_string_lossy().into_owned());
    let directory = base.join(format!("pagelab-{job}-{of}"));
    let failed = |error| Failure::about(&directory, error);
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let found = fs::symlink_metadata(&directory).map_err(failed)?;
    let is_own = found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw() && found.mode() & 0o022 == 0;
    if is_own {
        Ok(directory)
    } else {
        Err(Failure::Input(format!(
            "{} exists and is not this user's own directory; remove it, or set SLURM_TMPDIR or TMPDIR",
            directory.display()
        )))
    }
}
