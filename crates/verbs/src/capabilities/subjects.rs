//! The memory that `capabilities` tries ([`Subject`]): each kind, and for files each mount.

use std::fs;
use std::path::{Path, PathBuf};

use host::{Host, Mount};
use policy::capability::{Kind, Memory};

use crate::failure::Failure;

/// Where a tmpfs is mounted on every Linux system that has POSIX shared memory (shm_overview(7)).
const TMPFS: &str = "/dev/shm";

/// File systems that keep files in memory. Files in them do not count as file memory ([`Kind::is_file`]).
const IN_MEMORY: [&str; 4] = ["tmpfs", "ramfs", "rootfs", "devtmpfs"];

/// The memory of one row, and the directory in which its files are made.
#[derive(Debug)]
pub struct Subject {
    pub memory: Memory,
    /// `None` for memory without a file, or if the file system that it needs is not mounted.
    pub directory: Option<PathBuf>,
}

/// A directory and its mount.
struct Place {
    directory: PathBuf,
    mount: Mount,
}

/// The subjects of these kinds. If none of `directories` is on a disk, the first usual directory for temporary files that is on a
/// disk is used.
pub fn find(host: &Host, kinds: &[Kind], directories: &[PathBuf]) -> Result<Vec<Subject>, Failure> {
    let named = directories.iter().map(|directory| place(host, directory)).collect::<Result<Vec<_>, _>>()?;
    let (mut in_memory, mut on_disk): (Vec<_>, Vec<_>) = named.into_iter().partition(Place::is_in_memory);
    if let Some(other) = in_memory.iter().find(|place| place.mount.kind != "tmpfs") {
        return Err(Failure::about(&other.directory, NoFileSystem(other.mount.kind.clone())));
    }
    let existing = |path: &Path| path.is_dir().then(|| place(host, path)).transpose();
    in_memory.extend(existing(Path::new(TMPFS))?.filter(|place| place.mount.kind == "tmpfs"));
    if on_disk.is_empty() {
        let usual = [std::env::temp_dir(), PathBuf::from("/var/tmp")];
        let found = usual.iter().map(|path| existing(path)).collect::<Result<Vec<_>, _>>()?;
        on_disk.extend(found.into_iter().flatten().find(|place| !place.is_in_memory()));
    }
    let of_kind = |kind: &Kind| match *kind {
        Kind::Tmpfs => subjects(Kind::Tmpfs, &in_memory),
        kind if kind.is_file() => subjects(kind, &on_disk),
        kind => vec![Subject { memory: Memory { kind, mount: None }, directory: None }],
    };
    Ok(kinds.iter().flat_map(of_kind).collect())
}

/// The directory is in memory, but not on a tmpfs.
#[derive(Debug, thiserror::Error)]
#[error("expected a directory of a disk's file system or of a tmpfs, found {0}")]
struct NoFileSystem(String);

fn place(host: &Host, directory: &Path) -> Result<Place, Failure> {
    let about = |error| Failure::about(directory, error);
    let directory = fs::canonicalize(directory).map_err(about)?;
    if !directory.is_dir() {
        return Err(about(std::io::ErrorKind::NotADirectory.into()));
    }
    let path = directory.to_str().ok_or_else(|| about(std::io::ErrorKind::InvalidFilename.into()))?;
    let mount = host.mount_of(path).map_err(Failure::input)?;
    let mount = mount.ok_or_else(|| about(std::io::Error::other("it is in no mount of /proc/self/mounts")))?;
    Ok(Place { directory, mount })
}

impl Place {
    fn is_in_memory(&self) -> bool {
        IN_MEMORY.contains(&self.mount.kind.as_str())
    }

    /// The name of the mount in the table's rows.
    fn label(&self) -> String {
        if self.mount.kind != "tmpfs" {
            return self.mount.kind.clone();
        }
        let huge = self.mount.options.iter().find(|option| option.starts_with("huge="));
        // A mount without this option has `huge=never` (tmpfs(5)).
        huge.cloned().unwrap_or_else(|| "huge=never".to_owned())
    }
}

/// One subject for each distinct label of a mount.
fn subjects(kind: Kind, places: &[Place]) -> Vec<Subject> {
    let mut found: Vec<Subject> = Vec::new();
    for place in places {
        let memory = Memory { kind, mount: Some(place.label()) };
        if found.iter().all(|known| known.memory != memory) {
            found.push(Subject { memory, directory: Some(place.directory.clone()) });
        }
    }
    if found.is_empty() {
        found.push(Subject { memory: Memory { kind, mount: None }, directory: None });
    }
    found
}
