//! Allows only one runner per study and store. Two runners would disturb each other's measurements, and store
//! everything twice.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};

use super::place::{StoreFile, prepare};
use super::{Error, Store};
use crate::place::reopen;

/// A lock on a study: while it exists, no other process runs the study on the same store. It is released on drop, or when
/// the process ends.
#[derive(Debug)]
pub struct StudyLock {
    _lock: Flock<File>,
}

impl Store {
    /// Locks a study, whose name must be a valid file name: letters, digits, `-` and `_`. Fails with [`Error::StudyLock`] if
    /// another process has locked it.
    pub fn lock_study(&self, study: &str) -> Result<StudyLock, Error> {
        let StoreFile { path, file } = prepare(&lock_path(&self.path, study))?;
        let failed = |error: std::io::Error| Error::Unopenable { path: path.clone(), reason: error.to_string() };
        let mut file = reopen(&file, OFlag::O_RDWR).map_err(|errno| failed(errno.into()))?;
        let mut by = String::new();
        // The process that holds the lock has written its identity into the file. Older content is from a process that
        // has ended.
        file.read_to_string(&mut by).map_err(failed)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                let written = lock.set_len(0).and_then(|()| lock.rewind());
                let own = format!("process {}", std::process::id());
                written.and_then(|()| lock.write_all(own.as_bytes())).map_err(failed)?;
                Ok(StudyLock { _lock: lock })
            }
            Err((_, Errno::EWOULDBLOCK)) => {
                let by = if by.is_empty() { "another process".to_owned() } else { by };
                Err(Error::StudyLock { study: study.to_owned(), by })
            }
            Err((_, errno)) => Err(failed(errno.into())),
        }
    }
}

/// The lock file of `results.sqlite` is `results.STUDY.lock`, in the same directory.
fn lock_path(store: &Path, study: &str) -> PathBuf {
    store.with_extension(format!("{study}.lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_study_is_locked_once_and_released() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().join("results.sqlite")).unwrap();
        let held = store.lock_study("base-64k").unwrap();
        let error = store.lock_study("base-64k").unwrap_err().to_string();
        assert!(error.contains("base-64k is already running"), "{error}");
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        store.lock_study("contig-hint").expect("another study");
        drop(held);
        store.lock_study("base-64k").expect("it was released");
    }
}
