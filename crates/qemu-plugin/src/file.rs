// SPDX-License-Identifier: GPL-2.0-or-later
//! The file of a trace in a process that may close any descriptor.
//!
//! The descriptor has a high number, which no program uses by chance. A program that closes all descriptors closes this one too,
//! so every write first checks that the descriptor still is the file, and opens the file again if not.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::no_link;

/// A file that is written from beginning to end.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    descriptor: RawFd,
    /// Device and inode of the file.
    identity: (u64, u64),
    position: u64,
    /// Data that was written before the file may be changed.
    held: Option<Vec<u8>>,
    /// Data written since [`TraceFile::write_anew`].
    anew: Option<Vec<u8>>,
}

impl TraceFile {
    /// Opens an existing file, and keeps its content until [`TraceFile::begin`]. `identity`: its device and inode, where they are
    /// known.
    ///
    /// # Errors
    /// Those of the system; it is a different file, or a symbolic link.
    pub fn open(path: &Path, identity: Option<(u64, u64)>) -> io::Result<TraceFile> {
        let opened = TraceFile::of(path, open_no_link(path)?)?;
        if identity.is_none_or(|identity| identity == opened.identity) {
            Ok(TraceFile { held: Some(Vec::new()), ..opened })
        } else {
            Err(io::Error::other("the file was replaced by another one before anything was recorded"))
        }
    }

    /// The file of a descriptor that the recorder of the previous program passed on, with its content, which [`TraceFile::begin`]
    /// replaces. `path`: its name.
    ///
    /// # Errors
    /// Those of the system.
    ///
    /// # Safety
    /// Nothing else uses the descriptor.
    pub unsafe fn handed(path: &Path, descriptor: RawFd) -> io::Result<(TraceFile, Vec<u8>)> {
        // SAFETY: the caller guarantees it.
        let mut file = unsafe { File::from_raw_fd(descriptor) };
        let mut content = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut content)?;
        Ok((TraceFile { held: Some(Vec::new()), ..TraceFile::of(path, file)? }, content))
    }

    /// Replaces the old content of the file, where it was kept, by the data written so far.
    ///
    /// # Errors
    /// Those of the system.
    pub fn begin(&mut self) -> io::Result<()> {
        let Some(held) = self.held.take() else { return Ok(()) };
        self.file()?.set_len(0)?;
        self.write_all(&held)
    }

    /// Creates a new file; an existing file of that name belongs to someone else.
    ///
    /// # Errors
    /// Those of the system.
    pub fn create(path: &Path) -> io::Result<TraceFile> {
        TraceFile::of(path, no_link::open(path, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)?)
    }

    fn of(path: &Path, file: File) -> io::Result<TraceFile> {
        let metadata = file.metadata()?;
        let descriptor = raised(file)?;
        let identity = (metadata.dev(), metadata.ino());
        Ok(TraceFile { path: path.to_owned(), descriptor, identity, position: 0, held: None, anew: None })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns to a position. Data written from now on is put there by [`TraceFile::put`] in one system call, because this
    /// process may be killed at any moment (another thread executes a program): the file then has either the old or the new
    /// content.
    pub fn write_anew(&mut self, position: u64) {
        self.position = position;
        self.anew = Some(Vec::new());
    }

    /// Replaces the content after the position of [`TraceFile::write_anew`] by the data written since. Does nothing without that
    /// call.
    ///
    /// # Errors
    /// Those of the system. The file ends after the data that could be written.
    pub fn put(&mut self) -> io::Result<()> {
        let Some(anew) = self.anew.take() else { return Ok(()) };
        let written = self.write_all(&anew);
        let end = self.position;
        self.file()?.set_len(end)?;
        written
    }

    /// The file, opened again if the program has closed it. It must not be dropped, because the descriptor stays open.
    fn file(&mut self) -> io::Result<ManuallyDrop<File>> {
        let file = borrowed(self.descriptor);
        if self.is_own(&file) {
            return Ok(file);
        }
        // The program may use the number by now, so it is not closed.
        let file = open_no_link(&self.path)?;
        if !self.is_own(&file) {
            return Err(io::Error::other("the file was replaced by another one while it was being written"));
        }
        self.descriptor = raised(file)?;
        Ok(borrowed(self.descriptor))
    }

    fn is_own(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity)
    }
}

impl Write for TraceFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(later) = self.held.as_mut().or(self.anew.as_mut()) {
            return later.write(bytes);
        }
        let position = self.position;
        let written = self.file()?.write_at(bytes, position)?;
        self.position += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the path without following a link, and without waiting for a reader.
fn open_no_link(path: &Path) -> io::Result<File> {
    no_link::open(path, libc::O_WRONLY | libc::O_NONBLOCK)
}

/// The file of a descriptor, without ownership.
fn borrowed(descriptor: RawFd) -> ManuallyDrop<File> {
    // SAFETY: the file is never dropped, so nothing is closed; a descriptor that is no longer open returns errors.
    ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) })
}

/// Distance of the chosen descriptor to the highest possible one.
const BELOW_THE_HIGHEST: u64 = 32;

/// The same open file as a high descriptor, which execve closes.
fn raised(file: File) -> io::Result<RawFd> {
    // If the high numbers are taken, the low descriptor is kept.
    Ok(duplicated(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC).unwrap_or_else(|_| file.into_raw_fd()))
}

/// The same open file as another high descriptor, which execve leaves open.
///
/// # Errors
/// No descriptor is free.
pub fn passed_on(descriptor: RawFd) -> io::Result<RawFd> {
    duplicated(descriptor, libc::F_DUPFD)
}

fn duplicated(descriptor: RawFd, how: libc::c_int) -> io::Result<RawFd> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls on a local variable and an owned descriptor.
    let high = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        let lowest = limit.rlim_cur.min(1 << 20).saturating_sub(BELOW_THE_HIGHEST);
        libc::fcntl(descriptor, how, lowest as libc::c_int)
    };
    if high >= 0 { Ok(high) } else { Err(io::Error::last_os_error()) }
}

/// A descriptor for error messages after the program has closed standard error.
pub struct Complaints(RawFd);

impl Complaints {
    /// A copy of the current standard error.
    pub fn open() -> Complaints {
        let now = borrowed(libc::STDERR_FILENO);
        Complaints(now.try_clone().and_then(raised).unwrap_or(libc::STDERR_FILENO))
    }

    /// Prints a message; errors are ignored.
    pub fn say(&self, text: &str) {
        let _ = writeln!(&mut &*borrowed(self.0), "pagelab: {text}");
    }

    /// Prints an error and its causes.
    pub fn report(&self, error: &dyn Error) {
        self.say(&error_chain(error));
    }
}

/// An error and its causes, without repetition: some messages already contain their cause.
fn error_chain(error: &dyn Error) -> String {
    let (mut chain, mut next) = (error.to_string(), error.source());
    while let Some(cause) = next {
        let text = cause.to_string();
        if !chain.contains(&text) {
            chain = format!("{chain}: {text}");
        }
        next = cause.source();
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the header")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("the file ({0})")]
    struct Inner(#[source] io::Error);

    #[test]
    fn what_is_written_anew_comes_in_one_piece() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let content = || std::fs::read_to_string(&path).unwrap();
        let mut file = TraceFile::create(&path).unwrap();
        file.write_all(b"runs, and the end").unwrap();
        file.write_anew(6);
        file.write_all(b"more, ").unwrap();
        file.write_all(b"and the end").unwrap();
        assert_eq!(content(), "runs, and the end", "a process that is killed here leaves what it had");
        file.put().unwrap();
        assert_eq!(content(), "runs, more, and the end");
        file.write_anew(6);
        file.write_all(b"more").unwrap();
        file.put().unwrap();
        file.put().unwrap();
        file.write_all(b", at once").unwrap();
        assert_eq!(content(), "runs, more, at once");
    }

    #[test]
    fn every_cause_is_told_once() {
        let error = Outer(Inner(io::Error::other("no such device")));
        assert_eq!(error_chain(&error), "the header: the file (no such device)");
    }
}
