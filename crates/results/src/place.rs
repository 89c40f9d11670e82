//! Resolves a path, and decides whose symbolic links to follow on the way.
//!
//! Every component is opened relative to the previous directory, which is held open, so concurrent renames have no
//! effect. A symbolic link is followed if it belongs to root or to the user who runs pagelab. Root follows no link in
//! or below a directory of another user, because that user could have moved a link of root's there. In directories that
//! others may write, root follows no link that has several hard links, because without `fs.protected_hardlinks` any
//! user can create a hard link to root's link.

mod caller;
mod error;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, fchown};

pub use caller::{Caller, Owner, is_shared, is_sticky};
pub use error::Error;

/// Maximum number of links followed in one path, the same as in the kernel (path_resolution(7)).
const MAX_LINKS: u32 = 40;
/// The directories in which a process finds its own descriptors (proc(5)).
const DESCRIPTORS: [&str; 2] = ["/proc/self/fd", "/proc/thread-self/fd"];

/// File type bits of the mode.
pub fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// What to do if a directory on the way is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Missing directories are an error.
    Refuse,
    /// Create it with these permissions, subject to the umask.
    Make(Mode),
    /// Create it for its owner only (0700). It is an error if the new directory would belong to another user.
    MakePrivate,
}

/// The last component of a path, and its directory, which is held open.
#[derive(Debug)]
pub struct Place {
    /// The directory, opened with O_PATH.
    pub directory: OwnedFd,
    /// Status of the directory when it was checked.
    pub directory_stat: FileStat,
    /// The name in the directory.
    pub name: OsString,
    /// Status of the existing entry, which is never a symbolic link; `None` if there is no entry.
    pub there: Option<FileStat>,
    /// For root: whether no other user can rename or replace any directory on the way. Only then is [`Place::path`] as
    /// safe as the open directory.
    pub is_sheltered: bool,
    real: PathBuf,
}

/// A directory that was found by the rules of this module.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    /// Opened with O_PATH.
    pub directory: OwnedFd,
    /// See [`Place::is_sheltered`].
    pub is_sheltered: bool,
    /// Its path without links.
    pub path: PathBuf,
}

/// What a path leads to.
#[derive(Debug)]
pub enum End {
    /// A name in a directory.
    Place(Box<Place>),
    /// A descriptor of this process, as with /dev/stdout.
    Descriptor(OsString),
}

impl Place {
    /// Resolves a path.
    pub fn find(path: &Path, caller: &Caller, missing: Missing) -> Result<End, Error> {
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(Error::Directory);
        }
        Walk::to(path, *caller, missing)?.walk()
    }

    /// Opens the directory of a path.
    pub(crate) fn directory(path: &Path, caller: &Caller, missing: Missing) -> Result<OpenDirectory, Error> {
        let mut walk = Walk::to(path, *caller, missing)?;
        while let Some(name) = walk.rest.pop_front() {
            let stat = walk.stat_of(&name)?;
            walk.step(&name, stat.as_ref())?;
        }
        let Walk { directory, sheltered: is_sheltered, real: path, .. } = walk;
        Ok(OpenDirectory { directory, is_sheltered, path })
    }

    /// The path without links.
    pub fn path(&self) -> PathBuf {
        self.real.join(&self.name)
    }

    /// The directory's path without links.
    pub fn directory_path(&self) -> &Path {
        &self.real
    }
}

/// Opens the directory of a path. The last component is returned unresolved.
pub(crate) fn parent(path: &Path, missing: Missing) -> io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or(Error::Directory)?;
    let directory = Place::directory(path.parent().unwrap_or(Path::new("")), &Caller::of_process(), missing)?.directory;
    Ok((directory, name))
}

/// Creates a new file; fails if the name exists, even if it is a dangling link.
pub(crate) fn new_file(directory: &OwnedFd, name: &OsStr, mode: Mode) -> nix::Result<File> {
    let new = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(File::from(openat(directory, name, new, mode)?))
}

/// Opens again, with other flags, the file of an O_PATH descriptor, even if another file has its name now.
#[expect(clippy::disallowed_methods, reason = "a descriptor of this process")]
pub fn reopen(descriptor: &OwnedFd, flags: OFlag) -> nix::Result<File> {
    Ok(File::from(open(&descriptor_path(descriptor), flags | OFlag::O_CLOEXEC, Mode::empty())?))
}

/// The path of a descriptor of this process. Opening this path opens the same file without a lookup by the file's name.
pub fn descriptor_path(descriptor: &impl std::os::fd::AsRawFd) -> PathBuf {
    PathBuf::from(format!("{}/{}", DESCRIPTORS[0], descriptor.as_raw_fd()))
}

fn current_directory(path: &Path) -> Result<PathBuf, Error> {
    std::env::current_dir().map_err(|source| Error::System { part: path.to_path_buf(), source })
}

/// The state of resolving a path.
struct Walk {
    caller: Caller,
    missing: Missing,
    directory: OwnedFd,
    stat: FileStat,
    /// The path of the current directory, without links.
    real: PathBuf,
    /// Whether links may be followed: the caller is not root, or root owns all directories so far.
    trusted: bool,
    /// See [`Place::is_sheltered`].
    sheltered: bool,
    rest: VecDeque<OsString>,
    links: u32,
}

impl Walk {
    /// A walk that has the whole path before it. A relative path begins at the current directory, whose ancestors are not
    /// checked.
    fn to(path: &Path, caller: Caller, missing: Missing) -> Result<Walk, Error> {
        let mut walk = if path.is_absolute() {
            Walk::begin("/", "/".into(), caller, missing)?
        } else {
            Walk::begin(".", current_directory(path)?, caller, missing)?
        };
        walk.push(path);
        Ok(walk)
    }

    fn begin(at: &str, real: PathBuf, caller: Caller, missing: Missing) -> Result<Walk, Error> {
        let failed = |errno: Errno| Error::System { part: real.clone(), source: errno.into() };
        let directory = openat(AT_FDCWD, at, DIRECTORY, Mode::empty()).map_err(failed)?;
        let stat = fstat(&directory).map_err(failed)?;
        let (trusted, sheltered) = (caller.trusts(&stat), caller.is_sheltered_in(&stat));
        Ok(Walk { caller, missing, directory, stat, real, trusted, sheltered, rest: VecDeque::new(), links: 0 })
    }

    /// Inserts the components of a path before the remaining ones.
    fn push(&mut self, path: &Path) {
        for part in path.components().rev() {
            match part {
                Component::Normal(name) => self.rest.push_front(name.to_os_string()),
                Component::ParentDir => self.rest.push_front("..".into()),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
    }

    fn walk(mut self) -> Result<End, Error> {
        while let Some(name) = self.rest.pop_front() {
            let is_last = self.rest.is_empty() && name != "..";
            let stat = self.stat_of(&name)?;
            if !is_last {
                self.step(&name, stat.as_ref())?;
                continue;
            }
            let Some(link) = stat.filter(|stat| kind(stat) == SFlag::S_IFLNK) else { return self.end(name, stat) };
            if self.is_of_descriptors() {
                return Ok(End::Descriptor(name));
            }
            // A trailing slash makes the target of the link a directory.
            if self.follow(&name, &link)? {
                return Err(Error::Directory);
            }
        }
        Err(Error::Directory)
    }

    /// The status of an entry of the current directory.
    fn stat_of(&self, name: &OsStr) -> Result<Option<FileStat>, Error> {
        match fstatat(&self.directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.failed(name, errno)),
        }
    }

    /// Follows a link, or enters a directory. A missing directory is created.
    fn step(&mut self, name: &OsStr, stat: Option<&FileStat>) -> Result<(), Error> {
        match stat {
            Some(stat) if kind(stat) == SFlag::S_IFLNK => self.follow(name, stat).map(drop),
            Some(_) => self.enter(name),
            None => self.make(name),
        }
    }

    fn end(self, name: OsString, there: Option<FileStat>) -> Result<End, Error> {
        let Walk { directory, stat: directory_stat, real, sheltered: is_sheltered, .. } = self;
        Ok(End::Place(Box::new(Place { directory, directory_stat, name, there, is_sheltered, real })))
    }

    fn failed(&self, name: &OsStr, errno: Errno) -> Error {
        Error::System { part: self.real.join(name), source: errno.into() }
    }

    fn failed_here(&self, errno: Errno) -> Error {
        Error::System { part: self.real.clone(), source: errno.into() }
    }

    /// Whether the current directory lists the descriptors of this process.
    fn is_of_descriptors(&self) -> bool {
        let identity = (self.stat.st_dev, self.stat.st_ino);
        DESCRIPTORS.iter().any(|path| fs::metadata(path).is_ok_and(|one| (one.dev(), one.ino()) == identity))
    }

    /// Follows a link. Returns whether its target ends with a slash.
    fn follow(&mut self, name: &OsStr, link: &FileStat) -> Result<bool, Error> {
        let path = self.real.join(name);
        if link.st_uid != 0 && link.st_uid != self.caller.user {
            return Err(Error::ForeignLink { link: path, owner: link.st_uid });
        }
        let has_other_names = link.st_nlink > 1 && is_shared(&self.stat);
        if !self.trusted || has_other_names {
            return Err(Error::MovableLink { link: path });
        }
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Error::Loop { link: path });
        }
        let target = PathBuf::from(readlinkat(&self.directory, name).map_err(|errno| self.failed(name, errno))?);
        if target.is_absolute() {
            let root = Walk::begin("/", "/".into(), self.caller, self.missing)?;
            (self.directory, self.stat, self.real) = (root.directory, root.stat, root.real);
            (self.trusted, self.sheltered) = (root.trusted, root.sheltered);
        }
        self.push(&target);
        Ok(target.as_os_str().as_bytes().ends_with(b"/"))
    }

    fn enter(&mut self, name: &OsStr) -> Result<(), Error> {
        let directory = openat(&self.directory, name, DIRECTORY, Mode::empty());
        self.directory = directory.map_err(|errno| self.failed(name, errno))?;
        if name == ".." {
            self.real.pop();
        } else {
            self.real.push(name);
        }
        self.stat = fstat(&self.directory).map_err(|errno| self.failed_here(errno))?;
        self.check();
        Ok(())
    }

    /// Updates `trusted` and `sheltered` by the owner and the permissions of the current directory.
    fn check(&mut self) {
        self.trusted = self.trusted && self.caller.trusts(&self.stat);
        self.sheltered = self.sheltered && self.caller.is_sheltered_in(&self.stat);
    }

    fn make(&mut self, name: &OsStr) -> Result<(), Error> {
        let owner = self.caller.owner_in(&self.stat);
        let mode = match (self.missing, owner) {
            (Missing::Refuse, _) => return Err(Error::NoDirectory { directory: self.real.join(name) }),
            (Missing::MakePrivate, Some(Owner { user, .. })) if !self.caller.is_own(user) => {
                return Err(Error::ForeignDirectory { directory: self.real.clone(), owner: user });
            }
            (Missing::MakePrivate, _) => Mode::S_IRWXU,
            (Missing::Make(mode), _) => mode,
        };
        match mkdirat(&self.directory, name, mode) {
            Ok(()) => {
                self.enter(name)?;
                owner.map_or(Ok(()), |owner| self.give(owner))
            }
            Err(Errno::EEXIST) => self.enter(name),
            Err(errno) => Err(self.failed(name, errno)),
        }
    }

    /// Changes the owner of the current directory, which was just created. If the directory is not empty, the owner of its parent
    /// has put another directory in its place, and this fails.
    fn give(&mut self, owner: Owner) -> Result<(), Error> {
        let readable = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let opened = openat(&self.directory, ".", readable, Mode::empty()).map_err(|errno| self.failed_here(errno))?;
        let is_empty = fs::read_dir(descriptor_path(&opened)).is_ok_and(|mut entries| entries.next().is_none());
        let given = if is_empty { give(&opened, owner).and_then(|()| fstat(&opened)) } else { Err(Errno::EEXIST) };
        self.stat = given.map_err(|errno| self.failed_here(errno))?;
        self.check();
        Ok(())
    }
}

/// Changes the owner of an open file.
pub fn give(file: impl AsFd, owner: Owner) -> nix::Result<()> {
    fchown(file, Some(Uid::from_raw(owner.user)), Some(Gid::from_raw(owner.group)))
}

const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
