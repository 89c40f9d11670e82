//! The output file of a trace: its previous content stays until recording begins.

use std::path::{Path, PathBuf};

use results::output::InPlace;

use super::error::RecordError;

/// A file that the recorder can write to. If this created it, drop removes it, unless [`Output::keep`] was called.
pub struct Output {
    path: PathBuf,
    identity: (u64, u64),
    is_new: bool,
}

impl Output {
    /// Checks or creates the file without changing its content.
    ///
    /// # Errors
    /// The file cannot be written, or is not a file that can be read back.
    pub fn prepare(path: &Path) -> Result<Output, RecordError> {
        // Its path without links: the program may change its working directory.
        let InPlace { path, identity, is_new } = InPlace::prepare(path)?;
        Ok(Output { path, identity, is_new })
    }

    /// The full path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its device and inode numbers, so that a process that opens it can identify it.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Keeps the file, because it contains a trace.
    pub fn keep(mut self) -> PathBuf {
        self.is_new = false;
        std::mem::take(&mut self.path)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.is_new {
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
    fn nothing_changes_unless_it_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (new, old) = (directory.path().join("new"), directory.path().join("old"));
        std::fs::write(&old, "old").unwrap();
        for path in [&new, &old] {
            drop(Output::prepare(path).unwrap());
        }
        assert_eq!((new.exists(), std::fs::read(&old).unwrap()), (false, b"old".to_vec()));
        assert!(Output::prepare(&new).unwrap().keep().exists());
    }

    #[test]
    fn what_is_no_file_is_refused_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (socket, link) = (directory.path().join("socket"), directory.path().join("link"));
        let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        for path in [&socket, &link, Path::new("/dev/null")] {
            assert!(matches!(prepared(path), Err(Why::NoFile { .. })), "{path:?}");
        }
        assert!(matches!(prepared(directory.path()), Err(Why::Place(place::Error::Directory))));
        assert!(socket.exists() && directory.path().exists());
    }
}
