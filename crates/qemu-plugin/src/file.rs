// SPDX-License-Identifier: GPL-2.0-or-later
//! [`TraceFile`]: the file of a trace, in a process that may close any descriptor.
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
    /// Data written before [`TraceFile::begin`], while the file must keep its old content.
    before_begin: Option<Vec<u8>>,
    /// Data written since [`TraceFile::rewrite_from`].
    rewritten: Option<Vec<u8>>,
}

impl TraceFile {
    /// Opens an existing file, and keeps its content until [`TraceFile::begin`]. `identity`: its device and inode, where they are
    /// known. Refuses another file and a symbolic link.
    pub fn open(path: &Path, identity: Option<(u64, u64)>) -> io::Result<TraceFile> {
        let opened = TraceFile::of(path, open_no_link(path)?)?;
        if identity.is_none_or(|identity| identity == opened.identity) {
            Ok(TraceFile { before_begin: Some(Vec::new()), ..opened })
        } else {
            Err(io::Error::other("the file was replaced by another one before anything was recorded"))
        }
    }

    /// Takes over the descriptor that the previous program's recorder left open. Also returns the content of the file, which
    /// [`TraceFile::begin`] replaces.
    ///
    /// # Safety
    /// Nothing else uses the descriptor.
    pub unsafe fn from_descriptor(path: &Path, descriptor: RawFd) -> io::Result<(TraceFile, Vec<u8>)> {
        // SAFETY: the caller guarantees it.
        let mut file = unsafe { File::from_raw_fd(descriptor) };
        let mut content = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut content)?;
        Ok((TraceFile { before_begin: Some(Vec::new()), ..TraceFile::of(path, file)? }, content))
    }

    /// Replaces the old content of the file, if it was kept, by the data written so far.
    pub fn begin(&mut self) -> io::Result<()> {
        let Some(before_begin) = self.before_begin.take() else { return Ok(()) };
        self.file()?.set_len(0)?;
        self.write_all(&before_begin)
    }

    /// Creates a new file; an existing file of that name belongs to someone else.
    pub fn create(path: &Path) -> io::Result<TraceFile> {
        TraceFile::of(path, no_link::open(path, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)?)
    }

    fn of(path: &Path, file: File) -> io::Result<TraceFile> {
        let metadata = file.metadata()?;
        let descriptor = at_high_descriptor(file)?;
        let identity = (metadata.dev(), metadata.ino());
        Ok(TraceFile { path: path.to_owned(), descriptor, identity, position: 0, before_begin: None, rewritten: None })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns to a position. Data written from now on is put there by [`TraceFile::commit`] in one system call, because this
    /// process may be killed at any moment (another thread executes a program): the file then has either the old or the new
    /// content.
    pub fn rewrite_from(&mut self, position: u64) {
        self.position = position;
        self.rewritten = Some(Vec::new());
    }

    /// Replaces the content after the position of [`TraceFile::rewrite_from`] by the data written since. Does nothing without that
    /// call. After an error the file ends with the data that could be written.
    pub fn commit(&mut self) -> io::Result<()> {
        let Some(rewritten) = self.rewritten.take() else { return Ok(()) };
        let written = self.write_all(&rewritten);
        let end = self.position;
        self.file()?.set_len(end)?;
        written
    }

    /// The file, opened again if the program has closed it. It must not be dropped, because the descriptor stays open.
    fn file(&mut self) -> io::Result<ManuallyDrop<File>> {
        let file = borrowed(self.descriptor);
        if self.is_trace(&file) {
            return Ok(file);
        }
        // The program may have reused the number by now, so the old descriptor is not closed.
        let file = open_no_link(&self.path)?;
        if !self.is_trace(&file) {
            return Err(io::Error::other("the file was replaced by another one while it was being written"));
        }
        self.descriptor = at_high_descriptor(file)?;
        Ok(borrowed(self.descriptor))
    }

    fn is_trace(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity)
    }
}

impl Write for TraceFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(later) = self.before_begin.as_mut().or(self.rewritten.as_mut()) {
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

/// How far below the limit the descriptor is placed.
const BELOW_LIMIT: u64 = 32;

/// Moves an open file to a high descriptor, which execve closes.
fn at_high_descriptor(file: File) -> io::Result<RawFd> {
    // If the high numbers are taken, the low descriptor is kept.
    Ok(duplicate_high(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC).unwrap_or_else(|_| file.into_raw_fd()))
}

/// Duplicates a descriptor to a high one that execve leaves open.
pub fn duplicate_across_exec(descriptor: RawFd) -> io::Result<RawFd> {
    duplicate_high(descriptor, libc::F_DUPFD)
}

fn duplicate_high(descriptor: RawFd, how: libc::c_int) -> io::Result<RawFd> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls on a local variable and an owned descriptor.
    let high = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        let lowest = limit.rlim_cur.min(1 << 20).saturating_sub(BELOW_LIMIT);
        libc::fcntl(descriptor, how, lowest as libc::c_int)
    };
    if high >= 0 { Ok(high) } else { Err(io::Error::last_os_error()) }
}

/// A descriptor for error messages after the program has closed standard error.
pub struct ErrorOutput(RawFd);

impl ErrorOutput {
    /// A copy of the current standard error.
    pub fn open() -> ErrorOutput {
        let now = borrowed(libc::STDERR_FILENO);
        ErrorOutput(now.try_clone().and_then(at_high_descriptor).unwrap_or(libc::STDERR_FILENO))
    }

    /// Prints a message; errors are ignored.
    pub fn print(&self, text: &str) {
        let _ = writeln!(&mut &*borrowed(self.0), "pagelab: {text}");
    }

    /// Prints an error and its causes.
    pub fn report(&self, error: &dyn Error) {
        self.print(&error_chain(error));
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
    fn rewrites_the_file_in_one_call() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let content = || std::fs::read_to_string(&path).unwrap();
        let mut file = TraceFile::create(&path).unwrap();
        file.write_all(b"runs, and the end").unwrap();
        file.rewrite_from(6);
        file.write_all(b"more, ").unwrap();
        file.write_all(b"and the end").unwrap();
        assert_eq!(content(), "runs, and the end", "a process that is killed here leaves what it had");
        file.commit().unwrap();
        assert_eq!(content(), "runs, more, and the end");
        file.rewrite_from(6);
        file.write_all(b"more").unwrap();
        file.commit().unwrap();
        file.commit().unwrap();
        file.write_all(b", at once").unwrap();
        assert_eq!(content(), "runs, more, at once");
    }

    #[test]
    fn reports_every_cause_once() {
        let error = Outer(Inner(io::Error::other("no such device")));
        assert_eq!(error_chain(&error), "the header: the file (no such device)");
    }
}
