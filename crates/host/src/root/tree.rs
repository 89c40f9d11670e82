//! [`Tree`]: a captured tree, whose files are opened beneath its root, and only if they are regular.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};
use policy::size::format_bytes;

/// The most entries of a directory; /proc has at most this many processes (PID_MAX_LIMIT, include/linux/threads.h).
const MAX_ENTRIES: usize = 4 << 20;
/// How often a lookup is retried that a concurrent rename disturbed (openat2(2), EAGAIN).
const MAX_ATTEMPTS: usize = 64;

/// A captured tree.
#[derive(Debug)]
pub struct Tree {
    directory: OwnedFd,
    /// The first file that exists and was refused, with the reason.
    pub refused: OnceLock<(PathBuf, String)>,
}

impl Tree {
    /// Opens the tree in this directory.
    #[expect(clippy::disallowed_methods, reason = "it only reads, below the directory that its user names")]
    pub fn open(path: &Path) -> io::Result<Tree> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = nix::fcntl::open(path, flags, Mode::empty())?;
        Ok(Tree { directory, refused: OnceLock::new() })
    }

    /// Finds a file or directory beneath the root, without opening it.
    pub fn resolve(&self, path: &str) -> io::Result<OwnedFd> {
        let name = path.trim_start_matches('/');
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        for _ in 0..MAX_ATTEMPTS {
            match openat2(&self.directory, if name.is_empty() { "." } else { name }, how) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                found => return found.map_err(refusal),
            }
        }
        Err(refusal(Errno::EAGAIN))
    }

    /// Opens a regular file of at most `max` bytes.
    pub fn file(&self, path: &str, max: u64) -> io::Result<File> {
        let found = self.resolve(path)?;
        let kind = kind_of(&found)?;
        if kind != SFlag::S_IFREG {
            return Err(io::Error::other(format!("expected a regular file, found {}", word(kind))));
        }
        let file = File::open(by_descriptor(&found))?;
        let bytes = file.metadata()?.len();
        if bytes > max { Err(too_large(bytes, max)) } else { Ok(file) }
    }

    /// The names in a directory, in no particular order.
    pub fn entries(&self, path: &str) -> io::Result<Vec<String>> {
        let found = self.resolve(path)?;
        let kind = kind_of(&found)?;
        if kind != SFlag::S_IFDIR {
            return Err(io::Error::other(format!("expected a directory, found {}", word(kind))));
        }
        names(&by_descriptor(&found), MAX_ENTRIES)
    }
}

/// A path by which the kernel opens the file of a descriptor: exactly that file, even if its path leads elsewhere in the
/// meantime.
fn by_descriptor(found: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// The names in a directory, at most `max`.
pub fn names(directory: &Path, max: usize) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        if names.len() == max {
            return Err(io::Error::other(format!("expected at most {max} entries, found more")));
        }
        names.push(String::from_utf8_lossy(entry?.file_name().as_bytes()).into_owned());
    }
    Ok(names)
}

/// The file type, from its mode.
pub fn kind_of(file: &OwnedFd) -> io::Result<SFlag> {
    Ok(SFlag::from_bits_truncate(fstat(file)?.st_mode) & SFlag::S_IFMT)
}

fn word(kind: SFlag) -> &'static str {
    match kind {
        SFlag::S_IFREG => "a regular file",
        SFlag::S_IFDIR => "a directory",
        SFlag::S_IFIFO => "a FIFO",
        SFlag::S_IFSOCK => "a socket",
        SFlag::S_IFCHR | SFlag::S_IFBLK => "a device",
        _ => "something else",
    }
}

/// The error for a failed lookup.
fn refusal(error: Errno) -> io::Error {
    match error {
        Errno::EXDEV => io::Error::other("a link leads out of the captured tree"),
        Errno::ELOOP => io::Error::other("links lead in a circle, or to no file (magic links of /proc)"),
        Errno::ENOTDIR => io::Error::other("expected a directory on the way, found something else"),
        Errno::ENOSYS | Errno::EPERM => io::Error::other(format!(
            "captured trees are read by openat2 (Linux 5.6), which this kernel or container does not permit: {error}"
        )),
        other => other.into(),
    }
}

fn too_large(bytes: u64, max: u64) -> io::Error {
    io::Error::other(format!("expected at most {}, found {}", format_bytes(max), format_bytes(bytes)))
}

/// A file that may grow beyond its size: reading more than `max` bytes fails.
pub struct Bounded {
    file: File,
    left: u64,
    max: u64,
}

impl Bounded {
    /// Limits reading of a file to `max` bytes.
    pub fn new(file: File, max: u64) -> Bounded {
        Bounded { file, left: max, max }
    }
}

impl Read for Bounded {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(piece)?;
        self.left =
            self.left.checked_sub(read as u64).ok_or_else(|| too_large(self.max.saturating_add(1), self.max))?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_grows_while_it_is_read_is_refused_at_its_limit() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), "content\n").unwrap();
        let read =
            |max| Bounded::new(File::open(directory.path().join("file")).unwrap(), max).read_to_end(&mut Vec::new());
        assert_eq!(read(8).unwrap(), 8);
        assert!(read(7).unwrap_err().to_string().contains("expected at most 7"));
    }
}
