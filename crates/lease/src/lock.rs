//! One lease at a time: a lock file in a directory that only its owner can enter.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::LeaseError;
use super::holder::Holder;

/// How often a waiting process looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Makes sure that `path` is a directory of this user that nobody else can enter, and makes it if it is
/// missing. A symbolic link, another owner or open permissions are refused, because whoever controls the
/// directory would control what is written to the system's settings.
pub fn private_directory(path: &Path) -> Result<(), LeaseError> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(not_made(path, &error)),
        _ => {}
    }
    let wrong = |what: String, remedy: &str| LeaseError::Directory {
        path: path.to_path_buf(),
        what,
        remedy: remedy.to_string(),
    };
    let found = std::fs::symlink_metadata(path)
        .map_err(|error| wrong(format!("cannot be looked at: {error}"), "run as root, outside a container"))?;
    let user = nix::unistd::geteuid().as_raw();
    if !found.is_dir() {
        return Err(wrong("expected a directory, found something else (a symbolic link?)".into(), "remove it"));
    }
    if found.uid() != user {
        let remedy = match found.uid() {
            0 => "system settings are root's to change: run as root",
            _ => "run as its owner, or remove it",
        };
        return Err(wrong(format!("expected the owner {user}, found {}", found.uid()), remedy));
    }
    if found.mode() & 0o077 != 0 {
        let what = format!("expected the mode 0700, found {:04o}", found.mode() & 0o7777);
        return Err(wrong(
            what,
            "others could have written there: remove it, or chmod 700 it if you know that nobody did",
        ));
    }
    Ok(())
}

/// Why a directory cannot be made. What it lies in is not pagelab's to make: `mkdir` and a mount differ in what
/// outlives the boot.
fn not_made(path: &Path, error: &io::Error) -> LeaseError {
    let parent = path.parent().unwrap_or(Path::new("/")).display();
    let (what, remedy) = match error.kind() {
        io::ErrorKind::NotFound => (format!("{parent} is missing"), format!("make it: mkdir -p {parent}")),
        io::ErrorKind::NotADirectory => (format!("{parent} is no directory"), "make it one".to_string()),
        io::ErrorKind::ReadOnlyFilesystem => (error.to_string(), format!("mount what can be written at {parent}")),
        io::ErrorKind::PermissionDenied => (error.to_string(), "run as root".to_string()),
        _ => (error.to_string(), format!("look at what {parent} is mounted from (findmnt -T {parent})")),
    };
    LeaseError::Directory { path: path.to_path_buf(), what: format!("cannot be made: {what}"), remedy }
}

/// Who else may have the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nobody: settings are going to be changed.
    Exclusive,
    /// Whoever does not change settings either. Nothing is written.
    Shared,
}

/// The lock, held. It is held by the open file, which a forked child shares: it ends when the last of
/// them closes it, or one of them says so.
#[derive(Debug)]
pub struct Lock {
    file: File,
    mode: Mode,
}

impl Lock {
    /// Takes the lock, waiting for at most `patience`; `on_wait` hears who has it, about fifty times a
    /// second, and ends the waiting with `false`.
    pub fn take(
        path: &Path,
        mode: Mode,
        patience: Duration,
        mut on_wait: impl FnMut(&Holder, Duration) -> bool,
    ) -> Result<Lock, LeaseError> {
        let start = Instant::now();
        loop {
            let file = open(path).map_err(|source| LeaseError::of_file("open", path, source))?;
            if try_lock(&file, mode).map_err(|source| LeaseError::of_file("lock", path, source))? {
                if is_still(&file, path).map_err(|source| LeaseError::of_file("look at", path, source))? {
                    return Lock { file, mode }.sign(path);
                }
                continue;
            }
            let holder = match sharing(&file) {
                Ok(sharing) => sharing.unwrap_or_else(|| read_holder(&file)),
                // What the file says may be of somebody who is gone.
                Err(_) => Holder::unknown(),
            };
            if start.elapsed() >= patience {
                return Err(LeaseError::Held { holder });
            }
            if !on_wait(&holder, start.elapsed()) {
                return Err(LeaseError::Interrupted { holder });
            }
            std::thread::sleep(LOOK_AGAIN.min(patience.saturating_sub(start.elapsed())));
        }
    }

    fn sign(mut self, path: &Path) -> Result<Lock, LeaseError> {
        if self.mode == Mode::Shared {
            return Ok(self);
        }
        let text = Holder::this_process().and_then(|holder| serde_json::to_string(&holder).map_err(io::Error::from));
        let mut write = |text: String| self.file.set_len(0).and_then(|()| self.file.write_all(text.as_bytes()));
        text.and_then(&mut write).map_err(|source| LeaseError::of_file("write", path, source))?;
        Ok(self)
    }

    /// The descriptor, for the watchdog.
    pub fn descriptor(&self) -> libc::c_int {
        self.file.as_raw_fd()
    }

    /// Lets it go, whoever else still has the file open.
    pub fn release(self) {}
}

impl Drop for Lock {
    /// Closing the file is not enough: a process that was forked, and has not yet executed, has it too.
    fn drop(&mut self) {
        if self.mode == Mode::Exclusive {
            let _ = self.file.set_len(0);
        }
        // SAFETY: flock takes no pointers, and the descriptor is open.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// Where the lock file lies.
pub fn path_in(run: &Path) -> PathBuf {
    run.join("lease.lock")
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path)
}

fn try_lock(file: &File, mode: Mode) -> io::Result<bool> {
    let kind = if mode == Mode::Exclusive { libc::LOCK_EX } else { libc::LOCK_SH };
    // SAFETY: flock takes no pointers, and the descriptor is open.
    match unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EWOULDBLOCK) => Ok(false),
            error => Err(error),
        },
    }
}

/// Whether the locked file is the one that others will find: it may have been deleted in between.
fn is_still(file: &File, path: &Path) -> io::Result<bool> {
    let (mine, there) = (file.metadata()?, host::if_there(std::fs::symlink_metadata(path))?);
    Ok(there.is_some_and(|there| (mine.dev(), mine.ino()) == (there.dev(), there.ino())))
}

/// The one of those who share the lock that runs the longest, as the kernel knows them (proc_locks(5)); `None` where
/// nobody shares it. What the file says is then of somebody who is gone.
fn sharing(file: &File) -> io::Result<Option<Holder>> {
    let locks = host::content("/proc/locks")?;
    let metadata = file.metadata()?;
    let (major, minor) = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
    let here = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    let reader = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(words[..], [_, "FLOCK", _, "READ", _, place, ..] if place == here).then(|| words[4].parse().ok())?
    };
    let mut holders = Vec::new();
    for pid in locks.lines().filter_map(reader) {
        holders.extend(Holder::of_process(pid)?);
    }
    holders.sort_by_key(|holder| holder.start_ticks);
    let sharing = holders.len().saturating_sub(1);
    Ok(holders.into_iter().next().map(|holder| Holder { sharing, ..holder }))
}

fn read_holder(mut file: &File) -> Holder {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    let holder = read.ok().and_then(|_| serde_json::from_str(&text).ok());
    holder.unwrap_or_else(Holder::unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        private_directory(&path).unwrap();
        private_directory(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = private_directory(&path).unwrap_err().to_string();
        assert!(error.contains("0700") && error.contains("0755"), "{error}");
    }

    #[test]
    fn a_symbolic_link_or_a_foreign_owner_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let (real, link) = (parent.path().join("real"), parent.path().join("link"));
        private_directory(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(matches!(private_directory(&link), Err(LeaseError::Directory { .. })));
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&real, Some(65534), None).unwrap();
            assert!(private_directory(&real).unwrap_err().to_string().contains("found 65534"));
        }
    }

    #[test]
    fn a_missing_parent_is_named_and_not_made() {
        let root = tempfile::tempdir().unwrap();
        let parent = root.path().join("var/lib");
        let error = private_directory(&parent.join("pagelab")).unwrap_err().to_string();
        let parent = parent.display();
        assert!(error.contains(&format!("{parent} is missing; make it: mkdir -p {parent}")), "{error}");
        assert!(!root.path().join("var").exists());
        std::fs::write(root.path().join("file"), "").unwrap();
        let error = private_directory(&root.path().join("file/pagelab")).unwrap_err().to_string();
        assert!(error.contains("file is no directory"), "{error}");
    }

    #[test]
    fn several_share_it_and_write_nothing_and_who_waits_hears_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = path_in(directory.path());
        let take = |mode| Lock::take(&path, mode, Duration::ZERO, |_, _| true);
        std::fs::write(&path, "of somebody who is gone").unwrap();
        let two = [take(Mode::Shared).unwrap(), take(Mode::Shared).unwrap()];
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of somebody who is gone");
        let error = take(Mode::Exclusive).unwrap_err().to_string();
        let here = format!("by process {} (`", std::process::id());
        assert!(error.contains(&here) && error.contains(", and one more"), "{error}");
        drop(two);
        let one = take(Mode::Exclusive).unwrap();
        let error = take(Mode::Shared).unwrap_err().to_string();
        assert!(error.contains(&here) && !error.contains("more"), "{error}");
        drop(one);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    }

    #[test]
    fn a_lock_file_that_is_a_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (target, path) = (directory.path().join("target"), path_in(directory.path()));
        std::fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(Lock::take(&path, Mode::Exclusive, Duration::ZERO, |_, _| true).is_err());
        assert_eq!(std::fs::read_to_string(target).unwrap(), "precious");
    }
}
