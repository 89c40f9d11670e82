//! The file for a trace ([`Output`]): its previous content stays until recording begins.

use std::path::{Path, PathBuf};

use results::output::{InPlace, open_in_place};
use trace::{Notes, ReadError, add_notes};

use super::error::RecordError;

/// The file to which the recorder writes. If `prepare` created the file and `keep` was not called, dropping this removes
/// the file.
pub struct Output {
    path: PathBuf,
    identity: (u64, u64),
    is_new: bool,
}

impl Output {
    /// Checks or creates the file without changing its content.
    pub fn prepare(path: &Path) -> Result<Output, RecordError> {
        // The path is absolute and without links, because the recorder opens it from within the recorded program, which may have
        // another working directory.
        let InPlace { path, identity, is_new } = InPlace::prepare(path)?;
        Ok(Output { path, identity, is_new })
    }

    /// The full path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Device and inode number, by which another process can check that it has opened this file.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Keeps the file, because it contains a trace.
    pub fn keep(&mut self) {
        self.is_new = false;
    }

    /// Adds notes to the trace in the file, if the trace is complete.
    pub fn note(&self, notes: &Notes) -> Result<(), ReadError> {
        let file = open_in_place(&self.path, self.identity)?;
        add_notes(file, notes).map(drop)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // Another process may have put a file of its own at this path.
        if self.is_new && open_in_place(&self.path, self.identity).is_ok() {
            let _ = results::files::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::output::Why;
    use results::place;

    fn prepared(path: &Path) -> Result<(), Why> {
        match Output::prepare(path) {
            Err(RecordError::Output(error)) => Err(error.why),
            other => other.map(drop).map_err(|error| panic!("{error}")),
        }
    }

    #[test]
    fn a_new_file_is_removed_unless_kept_and_an_old_one_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (new, old) = (directory.path().join("new"), directory.path().join("old"));
        std::fs::write(&old, "old").unwrap();
        for path in [&new, &old] {
            drop(Output::prepare(path).unwrap());
        }
        assert_eq!((new.exists(), std::fs::read(&old).unwrap()), (false, b"old".to_vec()));
        let mut output = Output::prepare(&new).unwrap();
        output.keep();
        drop(output);
        assert!(new.exists());
    }

    #[test]
    fn what_is_not_a_regular_file_is_refused_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (socket, link) = (directory.path().join("socket"), directory.path().join("link"));
        let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        for path in [&socket, &link, Path::new("/dev/null")] {
            assert!(matches!(prepared(path), Err(Why::NotRegular { .. })), "{path:?}");
        }
        assert!(matches!(prepared(directory.path()), Err(Why::Place(place::Error::Directory))));
        assert!(socket.exists() && directory.path().exists());
    }
}
