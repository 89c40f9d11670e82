//! Creates files at paths named by the user ([`Output`]): the previous file stays until the new one is complete.
//!
//! pagelab often runs as root, in directories that others may write. So [`place`] resolves the path, the file is
//! written under a temporary name in the same directory and then renamed, and it gets the owner that it would otherwise
//! have had. A run that is killed leaves its temporary file; the next run of the same user removes it. A path that is
//! not a regular file (a pipe, a terminal, /dev/stdout) is written directly.

mod error;
mod leftovers;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat};

pub use error::{Error, Why};

use crate::place::{self, Caller, End, Missing, Owner, Place, new_file};

/// A file that is being written. It is removed if it is dropped before [`Output::finish`].
#[derive(Debug)]
pub struct Output {
    /// The path as given by the user.
    path: PathBuf,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// A temporary file that replaces the file at the path at the end.
    Replacement(Box<Replacement>),
    /// Something other than a file: a pipe, a device, a descriptor.
    Stream(File),
}

impl Output {
    /// Begins a file for a path. Nothing changes at the path before [`Output::finish`].
    pub fn create(path: &Path) -> Result<Output, Error> {
        Output::create_for(&Caller::of_process(), path)
    }

    fn create_for(caller: &Caller, path: &Path) -> Result<Output, Error> {
        let target = WriteMode::of(caller, path).and_then(|way| match way {
            WriteMode::Descriptor(number) => open_descriptor(&number).map(Target::Stream),
            WriteMode::Stream(place) => open_again(&place, OFlag::O_NOCTTY).map(Target::Stream),
            WriteMode::Replacement(place) => {
                Replacement::begin(caller, place).map(|replacement| Target::Replacement(Box::new(replacement)))
            }
        });
        let path = path.to_path_buf();
        match target {
            Ok(target) => Ok(Output { path, target }),
            Err(why) => Err(Error { path, why }),
        }
    }

    /// Syncs the file to disk and renames it to its path.
    pub fn finish(self) -> Result<(), Error> {
        let finished = match self.target {
            Target::Replacement(replacement) => replacement.finish(),
            Target::Stream(mut file) => file.flush().map_err(Why::from),
        };
        finished.map_err(|why| Error { path: self.path, why })
    }

    /// Whether output is written directly, so that another process may read it before the end, or stop reading it.
    pub fn is_stream(&self) -> bool {
        matches!(self.target, Target::Stream(_))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.target {
            Target::Replacement(replacement) => replacement.file.write(bytes),
            Target::Stream(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.target {
            Target::Replacement(replacement) => replacement.file.flush(),
            Target::Stream(file) => file.flush(),
        }
    }
}

/// Checks that a file can be written, without changing anything.
pub fn check(path: &Path) -> Result<(), Error> {
    let caller = Caller::of_process();
    let checked = WriteMode::of(&caller, path).and_then(|way| match way {
        WriteMode::Descriptor(number) => open_descriptor(&number).map(drop),
        // Opening the pipe would tell its reader that data is coming.
        WriteMode::Stream(place) => {
            let (write, effective) = (AccessFlags::W_OK, AtFlags::AT_EACCESS);
            faccessat(&place.directory, place.name.as_os_str(), write, effective).map_err(Why::from)
        }
        WriteMode::Replacement(place) => Replacement::begin(&caller, place).map(drop),
    });
    checked.map_err(|why| Error { path: path.to_path_buf(), why })
}

/// A regular file that is written in place, because a recorder opens it by its name.
#[derive(Debug)]
pub struct InPlace {
    /// Path of the file, without links.
    pub path: PathBuf,
    /// Device and inode.
    pub identity: (u64, u64),
    /// Whether the file was created here.
    pub is_new: bool,
}

impl InPlace {
    /// Checks that a path is a writable regular file. Creates the file if it does not exist; leaves an existing file
    /// unchanged.
    pub fn prepare(path: &Path) -> Result<InPlace, Error> {
        InPlace::prepare_for(&Caller::of_process(), path, are_hard_links_protected())
            .map_err(|why| Error { path: path.to_path_buf(), why })
    }

    fn prepare_for(caller: &Caller, path: &Path, protected: bool) -> Result<InPlace, Why> {
        const PIPE_OR_DEVICE: Why =
            Why::NotRegular { kind: "a device or a pipe, and this file is not written sequentially" };
        let WriteMode::Replacement(place) = WriteMode::of(caller, path)? else { return Err(PIPE_OR_DEVICE) };
        let file = match &place.there {
            Some(there) if there.st_nlink > 1 && !protected && !is_sheltered(caller, &place.directory_stat) => {
                return Err(Why::HardLinks);
            }
            Some(_) => open_again(&place, OFlag::empty())?,
            None => {
                let file = new_file(&place.directory, &place.name, Mode::from_bits_truncate(0o666))?;
                caller.owner_in(&place.directory_stat).map_or(Ok(()), |owner| place::give(&file, owner))?;
                file
            }
        };
        let stat = fstat(&file)?;
        Ok(InPlace { path: place.path(), identity: (stat.st_dev, stat.st_ino), is_new: place.there.is_none() })
    }
}

/// Opens a file that [`InPlace::prepare`] has returned, for reading and writing. Fails if the name now refers to
/// another file.
pub fn open_in_place(path: &Path, identity: (u64, u64)) -> io::Result<File> {
    let (directory, name) = place::parent(path, Missing::Refuse)?;
    let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = File::from(openat(&directory, name, flags, Mode::empty())?);
    let stat = fstat(&file)?;
    if (stat.st_dev, stat.st_ino) == identity {
        Ok(file)
    } else {
        Err(io::Error::other("the name now refers to another file"))
    }
}

/// Opens a file to write it in place; fails if the last component of the path is a symbolic link.
fn open_no_link(path: &Path) -> io::Result<File> {
    let (directory, name) = place::parent(path, Missing::Refuse)?;
    let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    Ok(File::from(openat(&directory, name, flags, Mode::empty())?))
}

/// Gives a file that root has just created the owner of the file `other`. A file that belongs to another user, or has several
/// hard links, keeps its owner. Refuses a path whose last component is a symbolic link.
pub fn give_as(path: &Path, other: &Path) -> io::Result<()> {
    let caller = Caller::of_process();
    if caller.user != 0 {
        return Ok(());
    }
    let file = open_no_link(path)?;
    let (own, other) = (fstat(&file)?, fstat(open_no_link(other)?)?);
    let is_new_of_root = own.st_uid == 0 && own.st_nlink == 1 && place::kind(&own) == SFlag::S_IFREG;
    if is_new_of_root { Ok(place::give(&file, Owner { user: other.st_uid, group: other.st_gid })?) } else { Ok(()) }
}

/// How output reaches its path.
enum WriteMode {
    /// To a descriptor of this process.
    Descriptor(OsString),
    /// Directly, to the pipe or device at the path.
    Stream(Place),
    /// To a new file that is renamed to the path.
    Replacement(Place),
}

impl WriteMode {
    fn of(caller: &Caller, path: &Path) -> Result<WriteMode, Why> {
        let place = match Place::find(path, caller, Missing::Refuse)? {
            End::Descriptor(number) => return Ok(WriteMode::Descriptor(number)),
            End::Place(place) => *place,
        };
        let Some(there) = place.there else { return Ok(WriteMode::Replacement(place)) };
        match place::kind(&there) {
            SFlag::S_IFREG => {
                refuse_foreign_file(caller, &place.directory_stat, &there).map(|()| WriteMode::Replacement(place))
            }
            SFlag::S_IFIFO if !caller.is_own(there.st_uid) => Err(Why::ForeignPipe { owner: there.st_uid }),
            SFlag::S_IFIFO | SFlag::S_IFCHR => Ok(WriteMode::Stream(place)),
            SFlag::S_IFDIR => Err(place::Error::Directory.into()),
            // A typo must not overwrite a disk.
            SFlag::S_IFBLK => Err(Why::NotRegular { kind: "a block device" }),
            SFlag::S_IFSOCK => Err(Why::NotRegular { kind: "a socket" }),
            _ => Err(Why::NotRegular { kind: "not a file" }),
        }
    }
}

/// Refuses to replace a file of another user in a directory in which others may create files: the replacement would
/// belong to the file's owner, who may be an attacker that put the file there.
fn refuse_foreign_file(caller: &Caller, directory: &FileStat, there: &FileStat) -> Result<(), Why> {
    let is_own = caller.is_own(there.st_uid) || there.st_uid == directory.st_uid;
    let is_planted = place::is_shared(directory) && (caller.user == 0 || place::is_sticky(directory));
    if is_planted && !is_own { Err(Why::ForeignFile { owner: there.st_uid }) } else { Ok(()) }
}

/// Whether the kernel prevents users from creating hard links to files that they cannot write (proc_sys_fs(5)).
fn are_hard_links_protected() -> bool {
    std::fs::read_to_string("/proc/sys/fs/protected_hardlinks").is_ok_and(|value| value.trim() != "0")
}

/// Whether only the caller can have created the names in a directory.
fn is_sheltered(caller: &Caller, directory: &FileStat) -> bool {
    directory.st_uid == caller.user && !place::is_shared(directory)
}

/// Opens for writing the file that was checked; fails if another file has replaced it meanwhile.
fn open_again(place: &Place, flags: OFlag) -> Result<File, Why> {
    let flags_of_check = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let there = openat(&place.directory, place.name.as_os_str(), flags_of_check, Mode::empty())?;
    let identity = |stat: &FileStat| (stat.st_dev, stat.st_ino);
    if place.there.as_ref().map(identity) != Some(identity(&fstat(&there)?)) {
        return Err(Why::System(io::Error::other("it was replaced while it was checked")));
    }
    // This call may wait forever for the reader of a pipe, so it is not repeated when a signal interrupts it.
    Ok(place::reopen(&there, OFlag::O_WRONLY | flags)?)
}

/// Opens a descriptor of this process. Standard output and standard error are duplicated, so that earlier output is
/// kept; any other descriptor is reopened for appending.
#[expect(clippy::disallowed_methods, reason = "a descriptor of this process")]
fn open_descriptor(number: &OsStr) -> Result<File, Why> {
    let cloned = |descriptor: io::Result<OwnedFd>| descriptor.map(File::from).map_err(Why::from);
    match number.to_str() {
        Some("1") => cloned(io::stdout().as_fd().try_clone_to_owned()),
        Some("2") => cloned(io::stderr().as_fd().try_clone_to_owned()),
        _ => {
            let path = Path::new("/proc/self/fd").join(number);
            let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
            Ok(File::from(open(&path, flags, Mode::empty())?))
        }
    }
}

/// A temporary file, which is removed unless it is renamed to its path.
#[derive(Debug)]
struct Replacement {
    place: Place,
    file: File,
    /// The temporary name; `None` once the file is renamed.
    name: Option<OsString>,
    /// Owner to set when the file is complete.
    owner: Option<Owner>,
    mode: Option<Mode>,
}

impl Replacement {
    fn begin(caller: &Caller, place: Place) -> Result<Replacement, Why> {
        leftovers::remove_once(caller, &place);
        if place.there.is_some() {
            // A caller who may not write the file may not replace it either.
            open_again(&place, OFlag::O_APPEND)?;
        }
        let in_directory = caller.owner_in(&place.directory_stat);
        let (owner, mode) = match &place.there {
            Some(there) => {
                let is_the_invokers = caller.invoker.is_some_and(|one| one.user == place.directory_stat.st_uid);
                let before = Owner { user: there.st_uid, group: there.st_gid };
                let owner = in_directory.map(|owner| if is_the_invokers { owner } else { before });
                (owner, Some(Mode::from_bits_truncate(there.st_mode & 0o777)))
            }
            None => (in_directory, None),
        };
        // If the mode is set only at the end, other users must not be able to read the file before.
        let at_first = Mode::from_bits_truncate(if mode.is_some() { 0o600 } else { 0o666 });
        loop {
            let name = leftovers::new_name();
            match new_file(&place.directory, OsStr::new(&name), at_first) {
                Ok(file) => return Ok(Replacement { place, file, name: Some(name.into()), owner, mode }),
                Err(Errno::EEXIST) => {}
                Err(errno) => {
                    let directory = place.directory_path().to_path_buf();
                    return Err(match Why::from(errno) {
                        Why::System(error) => Why::TemporaryFile { directory, error },
                        why => why,
                    });
                }
            }
        }
    }

    fn finish(mut self) -> Result<(), Why> {
        self.owner.map_or(Ok(()), |owner| place::give(&self.file, owner))?;
        // After chown, because chown clears mode bits.
        self.mode.map_or(Ok(()), |mode| fchmod(&self.file, mode))?;
        match self.file.sync_all() {
            // Some file systems do not support fsync (fsync(2)).
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => return Err(error.into()),
            _ => {}
        }
        let directory = &self.place.directory;
        if let Some(name) = &self.name {
            renameat(directory, name.as_os_str(), directory, self.place.name.as_os_str())?;
            self.name = None;
        }
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = unlinkat(&self.place.directory, name.as_os_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

#[cfg(test)]
mod tests;
