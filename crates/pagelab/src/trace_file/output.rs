//! Files that are made: what was there before stays until the new one is whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// A file that is being made.
pub struct Output {
    path: PathBuf,
    to: To,
}

enum To {
    /// Beside the path, which it takes at the end.
    Beside(NamedTempFile),
    /// What is no file: a pipe, a device.
    There(File),
}

impl Output {
    /// Begins a file at a path. Until [`Output::finish`] nothing changes there.
    ///
    /// # Errors
    /// It cannot be written there.
    pub fn create(path: &Path) -> io::Result<Output> {
        // Through links: what they name is replaced, not they.
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let to = match std::fs::metadata(&real) {
            Ok(there) if !there.is_file() => To::There(OpenOptions::new().write(true).open(&real)?),
            there => {
                if there.is_ok() {
                    // Whoever may not write it may not replace it either.
                    OpenOptions::new().append(true).open(&real)?;
                }
                let mode = there.map_or(0o666, |there| there.permissions().mode() & 0o7777);
                To::Beside(beside(&real, mode)?)
            }
        };
        Ok(Output { path: real, to })
    }

    /// The file takes its place.
    ///
    /// # Errors
    /// It cannot be written or renamed.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        match self.to {
            To::Beside(file) => file.persist(&self.path).map(drop).map_err(|error| error.error),
            To::There(_) => Ok(()),
        }
    }
}

fn beside(path: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let permissions = std::fs::Permissions::from_mode(mode);
    Builder::new().prefix(".pagelab-").permissions(permissions).tempfile_in(directory)
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.to {
            To::Beside(file) => file.write(bytes),
            To::There(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            To::Beside(file) => file.flush(),
            To::There(file) => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_stays_until_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let mut output = Output::create(&path).unwrap();
        output.write_all(b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        drop(output);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left");
        let mut output = Output::create(&path).unwrap();
        output.write_all(b"new").unwrap();
        output.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_link_and_a_device_stay_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("a"), directory.path().join("link"));
        std::fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for place in [&link, Path::new("/dev/null")] {
            let mut output = Output::create(place).unwrap();
            output.write_all(b"new").unwrap();
            output.finish().unwrap();
        }
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert!(Output::create(&directory.path().join("none/a")).is_err());
        assert!(Output::create(directory.path()).is_err());
    }
}
