//! Shards ([`Shards`]): stores that the tasks of a study leave in a directory visible to all nodes. Each file appears
//! atomically.
//!
//! SQLite's write-ahead log is not safe on a file system that several nodes share. So no store is ever opened there. A
//! store is copied to the node's own disk; to publish it, it is copied back under a temporary name, which is renamed once
//! all data is on disk.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use host::if_exists;
use results::files;
use results::store::Store;
use serde_json::Value;
use study_files::definition::Definition;

use crate::failure::Failure;
use crate::output::{self, store_path};

/// The suffix of an incomplete copy.
const PARTIAL: &str = "partial";

/// The location of the shards of a study's tasks.
pub struct Shards {
    /// The store into which the shards are merged.
    pub store: PathBuf,
    /// The directory of shards, next to the store.
    pub directory: PathBuf,
    /// The beginning of the names of all files for this study and its size.
    pub stem: String,
}

impl Shards {
    /// The shards of a study next to a store: `results.shards` next to `results.sqlite`.
    ///
    /// # Errors
    /// There is no location for the store.
    pub fn of(definition: &Definition, store: Option<&Path>) -> Result<Shards, Failure> {
        let store = store_path(store)?;
        let store = std::path::absolute(&store).map_err(|error| Failure::about(&store, error))?;
        let stem = format!("{}-{}", definition.name, definition.size.name());
        Ok(Shards { directory: store.with_extension("shards"), store, stem })
    }

    /// Creates the directory.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn create_directory(&self) -> Result<(), Failure> {
        files::make_directories(&self.directory).map_err(Failure::input)
    }

    /// Whether a task of this study and size has left any file.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn has_any(&self) -> Result<bool, Failure> {
        let begin = format!("{}-", self.stem);
        let is_own = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begin));
        Ok(self.entries()?.iter().any(is_own))
    }

    /// The files in the directory; empty if it does not exist.
    fn entries(&self) -> Result<Vec<PathBuf>, Failure> {
        let failed = |error| Failure::about(&self.directory, error);
        let Some(entries) = if_exists(fs::read_dir(&self.directory)).map_err(failed)? else { return Ok(Vec::new()) };
        entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect()
    }

    /// The shard with a task's results.
    pub fn shard(&self, task: usize) -> PathBuf {
        self.directory.join(format!("{}-{task}.sqlite", self.stem))
    }

    /// The task's note: its state in the format of `study status --json`.
    pub fn note(&self, task: usize) -> PathBuf {
        self.directory.join(format!("{}-{task}.json", self.stem))
    }

    /// The output file of a task: `STEM-7.out`, or `STEM-1000+7.out` for an array that counts from an offset.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn output_file(&self, task: usize) -> Result<PathBuf, Failure> {
        let is_own = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let number = name.strip_prefix(&self.stem).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".out"));
            let parts = number.and_then(|number| number.split_once('+'));
            let sum =
                parts.and_then(|(offset, index)| Some(offset.parse::<usize>().ok()? + index.parse::<usize>().ok()?));
            sum == Some(task)
        };
        let found = self.entries()?.into_iter().find(is_own);
        Ok(found.unwrap_or_else(|| self.directory.join(format!("{}-{task}.out", self.stem))))
    }

    /// Incomplete copies of a task's shard that killed processes left.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn partial_copies(&self, task: usize) -> Result<Vec<PathBuf>, Failure> {
        let begin = format!("{}-{task}.sqlite.", self.stem);
        let is_partial = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&begin) && path.extension().is_some_and(|ending| ending == PARTIAL)
        };
        let mut partial_copies: Vec<PathBuf> = self.entries()?.into_iter().filter(is_partial).collect();
        partial_copies.sort();
        Ok(partial_copies)
    }

    /// Publishes a task's store and note to all nodes, in place of earlier ones.
    ///
    /// # Errors
    /// The files cannot be written; the earlier ones are then unchanged.
    pub fn publish(&self, task: usize, store: &Path, note: &str) -> Result<(), Failure> {
        for partial in self.partial_copies(task)? {
            files::remove_file(&partial).map_err(|error| Failure::about(&partial, error))?;
        }
        publish(store, &self.shard(task))?;
        output::write(&self.note(task), &|to| to.write_all(note.as_bytes()))
    }
}

/// Whether a file exists.
///
/// # Errors
/// It is unknown whether the file exists. This must be an error, because a file that was wrongly taken as absent would
/// be overwritten.
pub fn exists(path: &Path) -> Result<bool, Failure> {
    path.try_exists().map_err(|error| Failure::about(path, error))
}

/// The reasons in a task's note; `None` if every row of the task is done.
///
/// # Errors
/// The note cannot be read or parsed.
pub fn unfinished_rows(note: &Path) -> Result<Option<String>, Failure> {
    let text = files::open_to_read(note).and_then(io::read_to_string).map_err(|error| Failure::about(note, error))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| Failure::about(note, error))?;
    let rows = value["rows"].as_array().ok_or_else(|| Failure::about(note, io::Error::other("expected rows")))?;
    let row = |row: &Value| Some(format!("{}: {}", row["state"].as_str()?, row["why"].as_str()?));
    let left: Vec<String> = rows.iter().filter(|one| one["state"] != "done").filter_map(row).collect();
    Ok((!left.is_empty()).then(|| left.join("; ")))
}

/// Copies a file, and renames the copy once it is complete and on disk.
///
/// # Errors
/// The file cannot be read or written; an incomplete copy keeps its temporary name.
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

/// Copies a file, replacing an incomplete copy that a killed process left.
fn copy(from: &Path, to: &Path) -> io::Result<File> {
    files::remove_file(to)?;
    let mut read = files::open_to_read(from)?;
    let mut copy = files::create_new(to)?;
    io::copy(&mut read, &mut copy)?;
    Ok(copy)
}

/// Copies a store that no process has open to this node's own disk, and checks it completely.
///
/// # Errors
/// The store cannot be copied, is open, has a leftover log of a killed process, or is damaged.
pub fn working_copy(from: &Path, to: &Path) -> Result<Store, Failure> {
    let mut log = from.as_os_str().to_owned();
    log.push("-wal");
    let found = if_exists(fs::metadata(&log)).map_err(|error| Failure::about(log.as_ref(), error))?;
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

/// A directory on this node's own disk: in `SLURM_TMPDIR` if the site sets it, or `TMPDIR`, or /tmp. A job that is requeued
/// to the same node finds its earlier files there.
///
/// # Errors
/// The directory cannot be created, or belongs to another user.
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
