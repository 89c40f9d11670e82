//! Hashes the content of an input ([`hash`]).
//!
//! Another user may own the files and change them at any time. So every directory is opened relative to its parent's
//! descriptor, links are not followed, and only regular files are opened.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use results::place::{descriptor_path, kind};
use sha2::{Digest, Sha256};

/// Maximum depth of nested directories. Each level needs a descriptor.
const MAX_DEPTH: usize = 200;
/// The size of the read buffer.
const BUFFER_BYTES: usize = 1 << 20;

/// The hash, in hexadecimal, of all files below a directory: their paths and contents, in the order of paths.
///
/// # Errors
/// A system call failed; a file was replaced while it was read; directories are nested too deeply.
pub fn hash(directory: &Path) -> io::Result<String> {
    let opened = openat(AT_FDCWD, directory, DIRECTORY, Mode::empty())?;
    let mut content = Content { hash: Sha256::new(), buffer: vec![0; BUFFER_BYTES] };
    content.add(&opened, Path::new(""), 0)?;
    Ok(hexadecimal(&content.hash.finalize()))
}

/// Formats bytes in hexadecimal.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(READING);
/// With O_NONBLOCK, because another user may replace a file by a FIFO, and opening that would block.
const READING: OFlag = OFlag::O_RDONLY.union(OFlag::O_NOFOLLOW).union(OFlag::O_NONBLOCK).union(OFlag::O_CLOEXEC);

struct Content {
    hash: Sha256,
    buffer: Vec<u8>,
}

impl Content {
    /// Adds regular files and links below a directory; ignores other types, such as sockets.
    fn add(&mut self, directory: &OwnedFd, path: &Path, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(io::Error::other(format!("more than {MAX_DEPTH} nested directories")));
        }
        let entries = std::fs::read_dir(descriptor_path(directory))?;
        let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<OsString>>>()?;
        names.sort();
        for name in &names {
            let path = path.join(name);
            let stat = fstatat(directory, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?;
            match kind(&stat) {
                SFlag::S_IFDIR => {
                    let inner = openat(directory, name.as_os_str(), DIRECTORY, Mode::empty())?;
                    self.add(&inner, &path, depth + 1)?;
                }
                SFlag::S_IFLNK => {
                    self.add_path(&path);
                    self.hash.update(readlinkat(directory, name.as_os_str())?.as_encoded_bytes());
                }
                SFlag::S_IFREG => self.add_file(directory, name, &path, &stat)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn add_path(&mut self, path: &Path) {
        self.hash.update([path.as_os_str().as_encoded_bytes(), &[0]].concat());
    }

    fn add_file(&mut self, directory: &OwnedFd, name: &OsStr, path: &Path, stat: &FileStat) -> io::Result<()> {
        let file = File::from(openat(directory, name, READING, Mode::empty())?);
        let opened = fstat(&file)?;
        if (opened.st_dev, opened.st_ino) != (stat.st_dev, stat.st_ino) {
            return Err(io::Error::other(format!("{} was replaced while it was read", path.display())));
        }
        self.add_path(path);
        let size = opened.st_size.cast_unsigned();
        self.hash.update(size.to_le_bytes());
        // Reads at most the size at the beginning, because another process may append to the file without end.
        let mut file = file.take(size);
        loop {
            match file.read(&mut self.buffer)? {
                0 => return Ok(()),
                count => self.hash.update(&self.buffer[..count]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_hash_is_of_names_and_contents_and_of_nothing_else() {
        let hashed = |files: &[(&str, &str)]| {
            let directory = tempfile::tempdir().unwrap();
            for (name, content) in files {
                let path = directory.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            hash(directory.path()).unwrap()
        };
        let one = hashed(&[("a", "1"), ("b/c", "2")]);
        assert_eq!(one.len(), 64);
        assert_eq!(one, hashed(&[("b/c", "2"), ("a", "1")]));
        for other in [&[("a", "2"), ("b/c", "2")][..], &[("a", "1"), ("b/d", "2")], &[("a", "1")]] {
            assert_ne!(one, hashed(other), "{other:?}");
        }
    }

    /// The hashes that identify stored inputs depend on this order.
    #[test]
    fn paths_are_in_the_order_of_their_components() {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in [("a/x", "1"), ("a-b", "2"), ("a.c", "")] {
            fs::create_dir_all(directory.path().join(name).parent().unwrap()).unwrap();
            fs::write(directory.path().join(name), content).unwrap();
        }
        symlink("a/x", directory.path().join("link")).unwrap();
        let expected =
            [&b"a/x\0\x01\0\0\0\0\0\0\x001"[..], b"a-b\0\x01\0\0\0\0\0\0\x002", b"a.c\0\0\0\0\0\0\0\0\0", b"link\0a/x"];
        assert_eq!(hash(directory.path()).unwrap(), hexadecimal(&Sha256::digest(expected.concat())));
    }

    #[test]
    fn links_are_not_followed_and_pipes_not_opened() {
        let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join("file"), "1").unwrap();
        symlink(other.path(), directory.path().join("link")).unwrap();
        let before = hash(directory.path()).unwrap();
        nix::unistd::mkfifo(&directory.path().join("pipe"), Mode::S_IRWXU).unwrap();
        fs::write(other.path().join("file"), "2").unwrap();
        assert_eq!(hash(directory.path()).unwrap(), before);
        assert!(hash(&directory.path().join("link")).is_err(), "the directory itself may not be a link");
    }

    #[test]
    fn nested_directories_have_a_limit() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("d/".repeat(MAX_DEPTH + 1))).unwrap();
        assert!(hash(directory.path()).unwrap_err().to_string().contains("more than 200 nested directories"));
    }
}
