//! The file of a trace: what was there before stays until recording begins.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use super::error::RecordError;

/// A file that the recorder can write to. Where there was none it goes again with this value, unless it is kept.
pub struct Output {
    path: PathBuf,
    is_new: bool,
}

impl Output {
    /// Makes sure of the file, and changes nothing in it.
    ///
    /// # Errors
    /// It cannot be written, or is no file that can be read back.
    pub fn prepare(path: &Path) -> Result<Output, RecordError> {
        let wrong = |error: io::Error| RecordError::Output { path: path.to_owned(), error };
        let there = std::fs::metadata(path);
        if there.as_ref().is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            return Err(RecordError::NoFile(path.to_owned()));
        }
        OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(wrong)?;
        // The program may change its directory.
        let path = path.canonicalize().map_err(wrong)?;
        Ok(Output { path, is_new: there.is_err() })
    }

    /// Its full path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the file: there is a trace in it.
    pub fn keep(mut self) -> PathBuf {
        self.is_new = false;
        std::mem::take(&mut self.path)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.is_new {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(matches!(Output::prepare(path), Err(RecordError::NoFile(_))));
        }
        assert!(matches!(Output::prepare(directory.path()), Err(RecordError::Output { .. })));
        assert!(socket.exists() && directory.path().exists());
    }
}
