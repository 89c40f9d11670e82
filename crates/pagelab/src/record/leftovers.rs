//! Directories for temporary files of a recording, which nobody else may look into, and what killed recordings have left of them.
//!
//! The name of a directory says whose it is: the process, when it started (a number is given again), and the namespace in which
//! it has this number. One whose owner is gone is removed by the next recording of the same user.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use host::if_there;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use tempfile::TempDir;

/// What names begin with.
const PREFIX: &str = "pagelab-record-";
/// All files that such a directory can have.
const FILES: [&str; 5] = ["header", "written", "complete", "monitor", "memory"];

/// The process that a directory is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    process: u32,
    /// In clock ticks since boot (proc(5), `starttime`).
    start_ticks: u64,
    /// The inode of its PID namespace.
    namespace: u64,
}

impl Owner {
    fn this_process() -> io::Result<Owner> {
        let process = std::process::id();
        let start_ticks = start_ticks(process)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Owner { process, start_ticks, namespace: fs::metadata("/proc/self/ns/pid")?.ino() })
    }

    fn prefix(self) -> String {
        let Owner { process, start_ticks, namespace } = self;
        format!("{PREFIX}{process}-{start_ticks}-{namespace}-")
    }

    /// The owner of a directory of this name.
    fn of(name: &str) -> Option<Owner> {
        let mut words = name.strip_prefix(PREFIX)?.splitn(4, '-');
        let mut next = || words.next();
        let (process, start_ticks, namespace) = (next()?, next()?, next()?);
        next()?;
        let (process, start_ticks) = (process.parse().ok()?, start_ticks.parse().ok()?);
        Some(Owner { process, start_ticks, namespace: namespace.parse().ok()? })
    }

    /// Whether it has ended, as far as `this` process can know. One of which it cannot be read has not.
    fn is_gone(self, this: Owner) -> bool {
        let is_gone = || start_ticks(self.process).is_ok_and(|ticks| ticks != Some(self.start_ticks));
        self.namespace == this.namespace && is_gone()
    }
}

/// When a process started; `None` where it is gone.
fn start_ticks(process: u32) -> io::Result<Option<u64>> {
    ticks_in(host::content(format!("/proc/{process}/stat")))
}

fn ticks_in(stat: io::Result<String>) -> io::Result<Option<u64>> {
    let Some(stat) = if_there(stat)? else { return Ok(None) };
    // The second field is the program's name in parentheses, which can hold anything.
    let ticks = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse().ok());
    ticks.map(Some).ok_or_else(|| io::Error::other(format!("expected the stat of a process, found {stat:?}")))
}

/// Makes a directory of this process in another one.
///
/// # Errors
/// Those of the system.
pub fn directory_in(parent: &Path) -> io::Result<TempDir> {
    let prefix = Owner::this_process()?.prefix();
    tempfile::Builder::new().prefix(&prefix).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)
}

/// Removes the directories whose owners are gone. What cannot be removed stays.
pub fn remove_in(parent: &Path) {
    let Ok(this) = Owner::this_process() else { return };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(Owner::of);
        if owner.is_some_and(|owner| owner.is_gone(this)) {
            // Another recording may remove it too.
            let _ = remove(&entry.path());
        }
    }
}

/// Removes a directory of this user's, and no other: the name may be a link that somebody put there.
fn remove(path: &Path) -> io::Result<()> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = open(path, flags, Mode::empty())?;
    let of = fstat(&directory)?;
    if of.st_uid != geteuid().as_raw() || of.st_mode & 0o777 != 0o700 {
        return Err(io::Error::other("it is somebody else's"));
    }
    for name in FILES {
        let _ = unlinkat(&directory, name, UnlinkatFlags::NoRemoveDir);
    }
    // Whatever else is in it is not pagelab's, and keeps it.
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_of_which_it_cannot_be_read_is_not_gone() {
        use nix::errno::Errno;
        let refused = |errno: Errno| ticks_in(Err(errno.into()));
        assert!(matches!(refused(Errno::ENOENT), Ok(None)) && matches!(refused(Errno::ESRCH), Ok(None)));
        assert!(refused(Errno::EMFILE).is_err() && ticks_in(Ok("rubbish".into())).is_err());
    }

    #[test]
    fn a_name_tells_its_owner() {
        let this = Owner::this_process().unwrap();
        assert_eq!(Owner::of(&format!("{}a1B2c3", this.prefix())), Some(this));
        for other in ["", "pagelab-record-a1B2c3", "pagelab-record-1-2-x-y", "pagelab-record-1-2-3", "record-1-2-3-x"] {
            assert_eq!(Owner::of(other), None, "{other}");
        }
        assert!(!this.is_gone(this));
        assert!(Owner { start_ticks: this.start_ticks + 1, ..this }.is_gone(this));
        let elsewhere = Owner { process: u32::MAX, namespace: this.namespace + 1, ..this };
        assert!(!elsewhere.is_gone(this), "it may be there under this number");
    }

    #[test]
    fn only_own_directories_of_the_dead_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let this = Owner::this_process().unwrap();
        let dead = Owner { start_ticks: this.start_ticks + 1, ..this };
        let make = |owner: Owner, random: &str, mode: u32| {
            let path = parent.path().join(owner.prefix() + random);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("header"), "x").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        let (left, alive, open) = (make(dead, "a", 0o700), make(this, "b", 0o700), make(dead, "c", 0o755));
        let kept = make(dead, "d", 0o700);
        fs::write(kept.join("a file of the user's"), "x").unwrap();
        let elsewhere = make(Owner { namespace: this.namespace + 1, ..dead }, "e", 0o700);
        let target = tempfile::tempdir_in(parent.path()).unwrap();
        fs::write(target.path().join("header"), "x").unwrap();
        let link = parent.path().join(dead.prefix() + "f");
        std::os::unix::fs::symlink(target.path(), &link).unwrap();
        remove_in(parent.path());
        let are_there = [&left, &alive, &open, &elsewhere, &link].map(|path| path.symlink_metadata().is_ok());
        assert_eq!(are_there, [false, true, true, true, true]);
        assert!(kept.join("a file of the user's").exists() && target.path().join("header").exists());
        drop(directory_in(parent.path()).unwrap());
    }
}
