//! Resolves a path, and decides whose symbolic links to follow on the way.
//!
//! Every component is opened relative to the previous directory, which is held open, so concurrent renames have no
//! effect. A symbolic link is followed if it belongs to root or to the user who runs pagelab. Root follows no link in
//! or below a directory of another user, who could place root's existing links there; and in directories that others
//! may write, root follows no link with several hard links, because any user can create a hard link to a link if
//! `fs.protected_hardlinks` is off.

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

pub use error::Error;

/// Maximum number of links followed in one path, the same as in the kernel (path_resolution(7)).
const MAX_LINKS: u32 = 40;
/// The directory of this process's descriptors, under its two names (proc(5)).
const DESCRIPTORS: [&str; 2] = ["/proc/self/fd", "/proc/thread-self/fd"];

/// A user and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

/// The user who creates files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Effective user id.
    pub user: u32,
    /// Under sudo, the user who called it.
    pub invoker: Option<Owner>,
}

impl Caller {
    /// The caller of this process; the sudo caller is only trusted if this process is root (sudo(8), SUDO_UID).
    pub fn of_process() -> Caller {
        let user = Uid::effective().as_raw();
        let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        let invoker = number("SUDO_UID").zip(number("SUDO_GID")).map(|(user, group)| Owner { user, group });
        Caller { user, invoker: invoker.filter(|invoker| user == 0 && invoker.user != 0) }
    }

    /// Whether files of this user count as the caller's own.
    pub fn is_own(&self, user: u32) -> bool {
        user == self.user || user == 0 || self.invoker.is_some_and(|invoker| invoker.user == user)
    }

    /// The owner of something created in a directory; `None`: its creator. What root creates belongs to the directory's
    /// owner, so that a store in a user's home stays the user's. Under sudo it belongs to the user who called sudo, if
    /// that user could have created it too.
    pub fn owner_in(&self, directory: &FileStat) -> Option<Owner> {
        let invoker = self.invoker.filter(|one| one.user == directory.st_uid || directory.st_mode & 0o002 != 0);
        let inherited = Owner { user: directory.st_uid, group: directory.st_gid };
        (self.user == 0).then(|| invoker.unwrap_or(inherited))
    }

    /// Whether the caller may follow links in a directory.
    fn trusts(&self, directory: &FileStat) -> bool {
        self.user != 0 || directory.st_uid == 0
    }

    /// Whether, for root, only root can rename or replace root's entries in a directory.
    fn is_sheltered_in(&self, directory: &FileStat) -> bool {
        let is_roots = directory.st_uid == 0 || is_unmapped(directory.st_uid);
        self.user != 0 || (is_roots && (!is_shared(directory) || is_sticky(directory)))
    }
}

/// Whether this is the overflow id, which represents all users that the user namespace does not map
/// (user_namespaces(7)), including the host's root. Root of such a namespace has no power over their files, and must
/// trust the host's root like any user.
fn is_unmapped(user: u32) -> bool {
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").ok().and_then(|text| text.trim().parse().ok());
    let maps = |line: &str| {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().ok());
        let (first, _outside, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some((first..first + count).contains(&u64::from(user)))
    };
    // If the map cannot be read, no user is trusted.
    let is_mapped = |text: String| text.lines().any(|line| maps(line) != Some(false));
    overflow == Some(user) && fs::read_to_string("/proc/self/uid_map").is_ok_and(|text| !is_mapped(text))
}

/// Whether users other than its owner may write a directory; root's own group counts as root.
pub fn is_shared(directory: &FileStat) -> bool {
    directory.st_mode & 0o002 != 0 || (directory.st_mode & 0o020 != 0 && directory.st_gid != 0)
}

/// Whether only the owner of an entry can rename or remove it in a directory that all may write, as in /tmp.
pub fn is_sticky(directory: &FileStat) -> bool {
    directory.st_mode & SFlag::from_bits_retain(0o1000).bits() != 0
}

/// File type bits of the mode.
pub fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// What to do if a directory on the way is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It is an error.
    Refuse,
    /// Create it with these permissions, subject to the umask.
    Make(Mode),
    /// Create it for its owner only (0700); an error if it would belong to another user.
    MakePrivate,
}

/// A name in a directory that is held open.
#[derive(Debug)]
pub struct Place {
    /// The directory, opened with O_PATH.
    pub directory: OwnedFd,
    /// Status of the directory when it was checked.
    pub directory_stat: FileStat,
    /// The name in the directory.
    pub name: OsString,
    /// Status of the existing entry, which is not a symbolic link.
    pub there: Option<FileStat>,
    /// For root: whether no other user can rename or replace any directory on the way. Only then is [`Place::path`] as
    /// safe as the open directory.
    pub is_sheltered: bool,
    real: PathBuf,
}

/// The result of resolving a path.
#[derive(Debug)]
pub enum End {
    /// A name in a directory.
    Place(Box<Place>),
    /// A descriptor of this process, as with /dev/stdout.
    Descriptor(OsString),
}

impl Place {
    /// Resolves a path.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn find(path: &Path, caller: &Caller, missing: Missing) -> Result<End, Error> {
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(Error::Directory);
        }
        let mut walk = if path.is_absolute() {
            Walk::begin("/", "/".into(), *caller, missing)?
        } else {
            Walk::begin(".", current_directory(path)?, *caller, missing)?
        };
        walk.push(path);
        walk.walk()
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

/// A place in a directory, for an arbitrary name.
pub(crate) fn inside(directory: &Path, missing: Missing) -> Result<Box<Place>, Error> {
    match Place::find(&directory.join("any"), &Caller::of_process(), missing)? {
        End::Place(place) => Ok(place),
        End::Descriptor(_) => Err(Error::Directory),
    }
}

/// Opens the directory of a path, and returns it with the last component, which is not followed.
pub(crate) fn parent(path: &Path, missing: Missing) -> io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or(Error::Directory)?;
    let directory = inside(path.parent().unwrap_or(Path::new("")), missing)?.directory;
    Ok((directory, name))
}

/// Creates a new file; fails if the name exists, also as a link.
pub(crate) fn new_file(directory: &OwnedFd, name: &OsStr, mode: Mode) -> nix::Result<File> {
    let new = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(File::from(openat(directory, name, new, mode)?))
}

/// Reopens a file by its O_PATH descriptor: this opens the same file even if another one has its name by now.
///
/// # Errors
/// Those of open(2).
#[expect(clippy::disallowed_methods, reason = "a descriptor of this process")]
pub fn reopen(descriptor: &OwnedFd, flags: OFlag) -> nix::Result<File> {
    Ok(File::from(open(&descriptor_path(descriptor), flags | OFlag::O_CLOEXEC, Mode::empty())?))
}

/// A path that refers to a descriptor of this process: opening it opens the file itself and not a name.
pub fn descriptor_path(descriptor: &impl std::os::fd::AsRawFd) -> PathBuf {
    PathBuf::from(format!("{}/{}", DESCRIPTORS[0], descriptor.as_raw_fd()))
}

fn current_directory(path: &Path) -> Result<PathBuf, Error> {
    std::env::current_dir().map_err(|source| Error::System { part: path.to_path_buf(), source })
}

/// A path that is being resolved.
struct Walk {
    caller: Caller,
    missing: Missing,
    directory: OwnedFd,
    stat: FileStat,
    /// The path of the current directory, without links.
    real: PathBuf,
    /// Whether no other user can change what the directories on the way contain.
    trusted: bool,
    /// See [`Place::is_sheltered`].
    sheltered: bool,
    rest: VecDeque<OsString>,
    links: u32,
}

impl Walk {
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
            let is_last = self.rest.is_empty();
            if name == ".." {
                self.enter(&name)?;
                continue;
            }
            let there = match fstatat(&self.directory, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(stat) => Some(stat),
                Err(Errno::ENOENT) => None,
                Err(errno) => return Err(self.failed(&name, errno)),
            };
            match there {
                Some(stat) if kind(&stat) == SFlag::S_IFLNK => {
                    if self.is_of_descriptors() && is_last {
                        return Ok(End::Descriptor(name));
                    }
                    self.follow(&name, &stat)?;
                }
                there if is_last => return self.end(name, there),
                Some(_) => self.enter(&name)?,
                None => self.make(&name)?,
            }
        }
        Err(Error::Directory)
    }

    fn end(self, name: OsString, there: Option<FileStat>) -> Result<End, Error> {
        let Walk { directory, stat: directory_stat, real, sheltered: is_sheltered, .. } = self;
        Ok(End::Place(Box::new(Place { directory, directory_stat, name, there, is_sheltered, real })))
    }

    fn failed(&self, name: &OsStr, errno: Errno) -> Error {
        Error::System { part: self.real.join(name), source: errno.into() }
    }

    /// Whether the current directory is that of this process's descriptors.
    fn is_of_descriptors(&self) -> bool {
        let identity = (self.stat.st_dev, self.stat.st_ino);
        DESCRIPTORS.iter().any(|path| fs::metadata(path).is_ok_and(|one| (one.dev(), one.ino()) == identity))
    }

    fn follow(&mut self, name: &OsStr, link: &FileStat) -> Result<(), Error> {
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
        if target.as_os_str().as_bytes().ends_with(b"/") && self.rest.is_empty() {
            Err(Error::Directory)
        } else {
            Ok(())
        }
    }

    fn enter(&mut self, name: &OsStr) -> Result<(), Error> {
        let directory = openat(&self.directory, name, DIRECTORY, Mode::empty());
        self.directory = directory.map_err(|errno| self.failed(name, errno))?;
        if name == ".." {
            self.real.pop();
        } else {
            self.real.push(name);
        }
        self.stat = fstat(&self.directory).map_err(|errno| self.failed(OsStr::new(""), errno))?;
        self.trusted = self.trusted && self.caller.trusts(&self.stat);
        self.sheltered = self.sheltered && self.caller.is_sheltered_in(&self.stat);
        Ok(())
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

    /// Changes the owner of the current directory.
    fn give(&mut self, owner: Owner) -> Result<(), Error> {
        let readable = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let given = openat(&self.directory, ".", readable, Mode::empty()).and_then(|opened| {
            give(&opened, owner)?;
            fstat(&opened)
        });
        self.stat = given.map_err(|errno| self.failed(OsStr::new(""), errno))?;
        Ok(())
    }
}

/// Changes the owner of an open file.
///
/// # Errors
/// Those of fchown(2).
pub fn give(file: impl AsFd, owner: Owner) -> nix::Result<()> {
    fchown(file, Some(Uid::from_raw(owner.user)), Some(Gid::from_raw(owner.group)))
}

const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
