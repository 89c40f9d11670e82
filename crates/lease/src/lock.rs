//! [`Lock`]: the lock file in the private directory, which ensures that there is one lease at a time.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::LeaseError;
use super::holder::Holder;
use super::private::open;
use super::queue::Ticket;

/// The interval at which a waiting process tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Which other processes may have the lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No other process: settings will be changed.
    Exclusive,
    /// Processes that do not change settings either. Nothing is written to the lock file.
    Shared,
}

/// A held lock. The lock belongs to the open file, which a forked child shares: it ends when the last of them closes the file, or
/// one of them unlocks it.
#[derive(Debug)]
pub struct Lock {
    file: File,
    mode: Mode,
}

impl Lock {
    /// Takes the lock of the directory `run` when the ticket is first in the queue. Waits for at most `patience`; `on_wait` is
    /// called with the holder about fifty times a second, and ends the waiting by returning `false`.
    pub fn take(
        run: &Path,
        ticket: &Ticket,
        mode: Mode,
        patience: Duration,
        mut on_wait: impl FnMut(&Holder, Duration) -> bool,
    ) -> Result<Lock, LeaseError> {
        let path = &path_in(run);
        let start = Instant::now();
        loop {
            let in_front = ticket.in_front()?;
            let file = open(path).map_err(|source| LeaseError::of_file("open", path, source))?;
            if in_front == 0 && try_lock(&file, mode).map_err(|source| LeaseError::of_file("lock", path, source))? {
                if is_still_at(&file, path).map_err(|source| LeaseError::of_file("stat", path, source))? {
                    return Lock { file, mode }.record_holder(path);
                }
                continue;
            }
            let holder = match sharing(&file) {
                Ok(sharing) => sharing.unwrap_or_else(|| read_holder(&file)),
                // The file may still name a process that is gone.
                Err(_) => Holder::unknown(),
            };
            let holder = Holder { in_front, ..holder };
            if start.elapsed() >= patience {
                return Err(LeaseError::Held { holder: Holder { changed: host::changed_settings(), ..holder } });
            }
            if !on_wait(&holder, start.elapsed()) {
                return Err(LeaseError::Interrupted { holder });
            }
            std::thread::sleep(RETRY_INTERVAL.min(patience.saturating_sub(start.elapsed())));
        }
    }

    /// Writes the identity of this process to the lock file.
    fn record_holder(mut self, path: &Path) -> Result<Lock, LeaseError> {
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

    /// Releases the lock, even if other processes still have the file open.
    pub fn release(self) {}
}

impl Drop for Lock {
    /// Closing the file is not enough: a process that was forked and has not yet executed a program has it open too.
    fn drop(&mut self) {
        if self.mode == Mode::Exclusive {
            let _ = self.file.set_len(0);
        }
        // SAFETY: flock takes no pointers, and the descriptor is open.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// The lock file of a directory.
pub fn path_in(run: &Path) -> PathBuf {
    run.join("lease.lock")
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

/// Whether the locked file still has this path: it may have been deleted in between.
fn is_still_at(file: &File, path: &Path) -> io::Result<bool> {
    let (locked, named) = (file.metadata()?, host::if_exists(std::fs::symlink_metadata(path))?);
    Ok(named.is_some_and(|named| (locked.dev(), locked.ino()) == (named.dev(), named.ino())))
}

/// The longest-running of the processes that share the lock, according to the kernel (proc_locks(5)); `None` where no process
/// shares it. The content of the file is then from a process that is gone.
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

    fn take(run: &Path, mode: Mode) -> Result<Lock, LeaseError> {
        Lock::take(run, &Ticket::take(run)?, mode, Duration::ZERO, |_, _| true)
    }

    #[test]
    fn shares_write_nothing_and_are_reported_to_a_waiting_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = path_in(directory.path());
        let take = |mode| take(directory.path(), mode);
        std::fs::write(&path, "of a process that is gone").unwrap();
        let two = [take(Mode::Shared).unwrap(), take(Mode::Shared).unwrap()];
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of a process that is gone");
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
        let refused = || take(directory.path(), Mode::Exclusive).unwrap_err().to_string();
        assert!(refused().contains("lease.lock"), "{}", refused());
        std::fs::remove_file(directory.path().join("lease.queue")).unwrap();
        std::fs::rename(&path, directory.path().join("lease.queue")).unwrap();
        assert!(refused().contains("lease.queue"), "{}", refused());
        assert_eq!(std::fs::read_to_string(target).unwrap(), "precious");
    }
}
