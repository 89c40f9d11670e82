//! [`Root`]: the source of a host's files, which is the running system or a tree that was captured on another one.
//!
//! Files of the running system are opened by name, without further checks. A captured tree may be damaged or hostile. Its files
//! are therefore opened beneath its root (openat2(2), Linux 5.6): no link leads out of it, no FIFO or device is opened, and the
//! amount read is limited. A file that exists and is refused is never treated like an absent one: the first refusal is recorded,
//! and [`Root::verify`] returns it, even where a caller took the file for absent.

mod tree;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::stat::SFlag;

use crate::absence::if_exists;
use crate::read::{self, HostError};
use tree::{Bounded, Tree, kind_of, names};

/// The largest file of a captured tree that is read as a whole. The largest real one is a dump of the kernel's page tables.
pub const MAX_TEXT_BYTES: u64 = 64 << 20;
/// The largest file that is read line by line: smaps of about 1.4 million mappings.
pub const MAX_STREAM_BYTES: u64 = 1 << 30;

/// The root directory of a host.
#[derive(Clone, Debug)]
pub struct Root {
    path: PathBuf,
    /// `None` for the running system.
    tree: Option<Arc<Tree>>,
}

impl Root {
    /// The running system.
    pub fn live() -> Root {
        Root { path: PathBuf::from("/"), tree: None }
    }

    /// The running system for `/`, else the captured tree in this directory.
    pub fn open(path: impl Into<PathBuf>) -> Result<Root, HostError> {
        let path = path.into();
        if path == Path::new("/") {
            return Ok(Root::live());
        }
        match Tree::open(&path) {
            Ok(tree) => Ok(Root { path, tree: Some(Arc::new(tree)) }),
            Err(source) => Err(HostError::Unreadable { path, source, remedy: "name the directory of a captured tree" }),
        }
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is the running system.
    pub fn is_live(&self) -> bool {
        self.tree.is_none()
    }

    /// The full path of a file; `path` is absolute, as on the host.
    pub fn under(&self, path: &str) -> PathBuf {
        read::under(&self.path, path)
    }

    /// Opens a file. An absent file is `NotFound`.
    pub fn file(&self, path: &str) -> io::Result<File> {
        match &self.tree {
            None => File::open(path),
            Some(tree) => self.record_refusal(path, tree.file(path, MAX_STREAM_BYTES)),
        }
    }

    /// The whole content of a file, as [`read::content`]. A captured file may have at most [`MAX_TEXT_BYTES`].
    pub fn text(&self, path: &str) -> io::Result<String> {
        match &self.tree {
            None => read::content(path),
            Some(tree) => {
                let bytes = || {
                    let mut bytes = Vec::new();
                    let file = tree.file(path, MAX_TEXT_BYTES)?;
                    Bounded::new(file, MAX_TEXT_BYTES).read_to_end(&mut bytes)?;
                    Ok(read::escaped(bytes))
                };
                self.record_refusal(path, bytes())
            }
        }
    }

    /// As [`Root::text`], for a file that every host has.
    pub fn required(&self, path: &str) -> Result<String, HostError> {
        self.text(path).map_err(|error| self.unreadable(path, error))
    }

    /// The error for a file that could not be read, with its remedy.
    pub fn unreadable(&self, path: &str, source: io::Error) -> HostError {
        let remedy = match (source.kind(), self.is_live()) {
            (io::ErrorKind::NotFound, _) | (_, true) => "mount /proc and /sys, or add the file to the captured tree",
            _ => REMEDY,
        };
        HostError::Unreadable { path: self.under(path), source, remedy }
    }

    /// Opens a file to be read line by line. Reading more than [`MAX_STREAM_BYTES`] of a captured file fails.
    pub fn lines(&self, path: &str) -> io::Result<Box<dyn BufRead>> {
        const PIECE: usize = 1 << 16;
        let file = self.file(path)?;
        Ok(if self.is_live() {
            Box::new(BufReader::with_capacity(PIECE, file))
        } else {
            Box::new(BufReader::with_capacity(PIECE, Bounded::new(file, MAX_STREAM_BYTES)))
        })
    }

    /// Whether a file or directory of this name exists.
    pub fn has(&self, path: &str) -> io::Result<bool> {
        let found = match &self.tree {
            None => return Path::new(path).try_exists(),
            Some(tree) => if_exists(self.record_refusal(path, tree.resolve(path))),
        };
        Ok(found?.is_some())
    }

    /// Whether a regular file of this name exists. In a captured tree everything except files and directories is refused.
    pub fn has_file(&self, path: &str) -> io::Result<bool> {
        let Some(tree) = &self.tree else {
            return Ok(if_exists(Path::new(path).metadata())?.is_some_and(|found| found.is_file()));
        };
        match if_exists(self.record_refusal(path, tree.resolve(path).and_then(|it| kind_of(&it))))? {
            None | Some(SFlag::S_IFDIR) => Ok(false),
            Some(_) => self.file(path).map(|_| true),
        }
    }

    /// The names in a directory, sorted. The kernel's names are always UTF-8; in other names invalid bytes are replaced. A missing
    /// directory is `NotFound`.
    pub fn entries(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = match &self.tree {
            None => names(Path::new(path), usize::MAX),
            Some(tree) => self.record_refusal(path, tree.entries(path)),
        }?;
        names.sort();
        Ok(names)
    }

    /// Fails if a file of a captured tree exists and has been refused. The error is [`HostError::Unreadable`] for the first of
    /// them.
    pub fn verify(&self) -> Result<(), HostError> {
        match self.tree.as_ref().and_then(|tree| tree.refused.get()) {
            None => Ok(()),
            Some((path, why)) => {
                Err(HostError::Unreadable { path: path.clone(), source: io::Error::other(why.clone()), remedy: REMEDY })
            }
        }
    }

    /// Records the error of a file that exists but was refused.
    fn record_refusal<T>(&self, path: &str, result: io::Result<T>) -> io::Result<T> {
        if let (Some(tree), Err(error)) = (&self.tree, &result)
            && error.kind() != io::ErrorKind::NotFound
        {
            tree.refused.get_or_init(|| (self.under(path), error.to_string()));
        }
        result
    }
}

const REMEDY: &str =
    "a captured tree has directories, regular files, and relative links inside it; copy the file anew or remove it";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use tempfile::TempDir;

    use super::*;

    /// A tree with a file outside, and one of every kind inside.
    fn tree() -> (TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("tree/a/b")).unwrap();
        fs::write(at("outside"), "secret").unwrap();
        fs::write(at("tree/a/b/file"), "content\n").unwrap();
        mkfifo(&at("tree/fifo"), Mode::S_IRWXU).unwrap();
        drop(UnixListener::bind(at("tree/socket")).unwrap());
        for (name, target) in [
            ("inside", "a/b/file"),
            ("a/up", "../a/b/file"),
            ("folder", "a"),
            ("dangling", "a/none"),
            ("zero", "/dev/zero"),
            ("out", "../outside"),
            ("absolute", "/etc/passwd"),
            ("circle", "circle"),
            ("up", ".."),
        ] {
            symlink(target, at("tree").join(name)).unwrap();
        }
        let root = Root::open(at("tree")).unwrap();
        (directory, root)
    }

    #[test]
    fn files_inside_are_read_and_absent_ones_are_absent() {
        let (_directory, root) = tree();
        for path in ["/a/b/file", "/inside", "/a/up", "/folder/b/file"] {
            assert_eq!(root.text(path).unwrap(), "content\n", "{path}");
            assert!(root.has(path).unwrap() && root.has_file(path).unwrap(), "{path}");
            assert_eq!(root.lines(path).unwrap().lines().map_while(Result::ok).collect::<Vec<_>>(), ["content"]);
        }
        for path in ["/none", "/a/none", "/dangling", "/none/file"] {
            assert_eq!(root.text(path).unwrap_err().kind(), io::ErrorKind::NotFound, "{path}");
            assert!(!root.has(path).unwrap() && !root.has_file(path).unwrap(), "{path}");
        }
        assert_eq!(root.entries("/folder").unwrap(), ["b", "up"]);
        assert_eq!(root.entries("/none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(root.has("/a").unwrap() && !root.has_file("/a").unwrap());
        root.verify().unwrap();
    }

    #[test]
    fn refuses_a_non_regular_file_and_never_calls_it_absent() {
        for (path, why) in [
            ("/fifo", "expected a regular file, found a FIFO"),
            ("/socket", "expected a regular file, found a socket"),
            ("/a", "expected a regular file, found a directory"),
            ("/zero", "a link leads out of the captured tree"),
            ("/out", "a link leads out of the captured tree"),
            ("/absolute", "a link leads out of the captured tree"),
            ("/up/outside", "a link leads out of the captured tree"),
            ("/circle", "links lead in a circle"),
            ("/inside/b", "expected a directory on the way"),
        ] {
            type Read = fn(&Root, &str) -> Option<io::Error>;
            let reads: [Read; 3] = [
                |root, path| root.text(path).err(),
                |root, path| root.file(path).err(),
                |root, path| root.lines(path).err(),
            ];
            for read in reads {
                let (_directory, root) = tree();
                let error = read(&root, path).unwrap_or_else(|| panic!("{path} was read"));
                assert!(error.kind() != io::ErrorKind::NotFound && error.to_string().contains(why), "{path}: {error}");
                let kept = root.verify().unwrap_err().to_string();
                assert!(kept.contains(why) && kept.contains(&root.under(path).display().to_string()), "{kept}");
                root.clone().verify().unwrap_err();
            }
        }
        let refused = |ask: fn(&Root) -> bool| {
            let (_directory, root) = tree();
            (ask(&root), root.verify().is_err())
        };
        assert_eq!(refused(|root| root.has("/out").is_err()), (true, true));
        assert_eq!(refused(|root| root.has_file("/fifo").is_err()), (true, true));
        assert_eq!(refused(|root| root.entries("/up").is_err()), (true, true));
        assert_eq!(refused(|root| root.entries("/inside").is_err()), (true, true));
    }

    #[test]
    fn files_are_read_up_to_their_limit() {
        let (directory, root) = tree();
        let sparse = |bytes: u64| File::create(directory.path().join("tree/large")).unwrap().set_len(bytes).unwrap();
        sparse(MAX_TEXT_BYTES);
        assert_eq!(root.text("/large").unwrap().len() as u64, MAX_TEXT_BYTES);
        sparse(MAX_TEXT_BYTES + 1);
        assert!(root.text("/large").unwrap_err().to_string().contains("expected at most 64M, found"));
        root.file("/large").unwrap();
        sparse(MAX_STREAM_BYTES + 1);
        assert!(root.lines("/large").err().unwrap().to_string().contains("expected at most 1G, found"));
    }

    #[test]
    fn the_running_system_refuses_nothing() {
        let root = Root::open("/").unwrap();
        assert!(root.is_live() && root.text("/proc/self/stat").is_ok() && root.has("/proc").unwrap());
        assert!(root.file("/none").is_err() && root.entries("/none").is_err());
        root.verify().unwrap();
    }

    #[test]
    fn a_root_that_is_no_directory_is_an_error() {
        let (directory, _root) = tree();
        for name in ["none", "outside"] {
            let error = Root::open(directory.path().join(name)).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("captured tree"), "{error}");
        }
    }
}
