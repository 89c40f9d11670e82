//! The queue for the lock, first come, first served. A waiting process has a [`Ticket`].
//!
//! flock(2) guarantees no order among waiting processes, and a newcomer can overtake them. So a process takes a ticket before it
//! tries the lock, and tries only while no ticket is before its own. The lock alone decides which process has the lease; the
//! queue decides which process tries next. A process that ignores the queue is still kept out by the lock.
//!
//! A ticket is a range of bytes of the queue file under an open file description lock (F_OFD_SETLK, fcntl(2)), which the kernel
//! drops when its process ends. So no dead process is in the queue, nothing is written, and nothing needs to be cleaned up.
//! Ticket N starts at byte N * 2^32. The kernel does not report the owner of such a lock, so the length of the range is the PID,
//! as the process itself sees it.
//!
//! A stopped process (SIGSTOP, Ctrl-Z, a debugger) keeps its ticket, and others pass it until it continues. The stop is detected
//! in /proc, so a waiting process that is frozen with its control group, or stopped in another PID namespace, still delays the
//! others. They report how many processes are before them, and give up when their patience ends.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use super::error::LeaseError;
use super::holder;
use super::private::open;

/// Bytes from the start of one ticket to the next. A PID is below 2^22 (PID_MAX_LIMIT, proc_sys_kernel(5)).
const STRIDE: i64 = 1 << 32;

/// A place in the queue, kept until it is dropped.
#[derive(Debug)]
pub struct Ticket {
    path: PathBuf,
    file: File,
    number: i64,
}

impl Ticket {
    /// Takes the place after every other ticket of the directory `run`. Fails if the file system does not support such locks (Linux
    /// 3.15).
    pub fn take(run: &Path) -> Result<Ticket, LeaseError> {
        let path = run.join("lease.queue");
        let file = open(&path).map_err(|source| LeaseError::of_file("open", &path, source))?;
        let number = draw(&file).map_err(|source| LeaseError::of_file("queue at", &path, source))?;
        Ok(Ticket { path, file, number })
    }

    /// Number of processes that may try before this one.
    pub fn in_front(&self) -> Result<usize, LeaseError> {
        self.count_in_front().map_err(|source| LeaseError::of_file("queue at", &self.path, source))
    }

    fn count_in_front(&self) -> io::Result<usize> {
        let mut count = 0;
        for process in self.processes_below(0, self.number)? {
            count += usize::from(!holder::is_stopped(process)?);
        }
        Ok(count)
    }

    /// The processes with tickets from `first` up to but not including `end`. The kernel returns one lock in a range, not always
    /// the lowest, so the parts on both sides of it are queried again.
    fn processes_below(&self, first: i64, end: i64) -> io::Result<Vec<i32>> {
        if first == end {
            return Ok(Vec::new());
        }
        let Some(other) = conflict(&self.file, first * STRIDE, (end - first) * STRIDE)? else { return Ok(Vec::new()) };
        let mut processes = self.processes_below(first, other.number)?;
        processes.push(other.process);
        processes.extend(self.processes_below(other.number + 1, end)?);
        Ok(processes)
    }
}

impl Drop for Ticket {
    /// Closing the file is not enough: a child that has not executed a program yet has it open too.
    fn drop(&mut self) {
        let _ = lock(&self.file, libc::F_UNLCK, 0, 0);
    }
}

/// Locks the first number after all others, and returns it.
fn draw(file: &File) -> io::Result<i64> {
    let process = i64::from(std::process::id());
    let mut number = 0;
    loop {
        while let Some(other) = conflict(file, number * STRIDE, 0)? {
            number = other.number + 1;
        }
        match lock(file, libc::F_WRLCK, number * STRIDE, process) {
            // Another process took the number in the meantime.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => number += 1,
            drawn => return drawn.map(|()| number),
        }
    }
}

/// The ticket of another process.
struct Other {
    number: i64,
    process: i32,
}

/// A ticket that another open file holds within `bytes` bytes from `start`; 0 bytes mean up to the end of the file.
fn conflict(file: &File, start: i64, bytes: i64) -> io::Result<Option<Other>> {
    let mut range = range(libc::F_WRLCK, start, bytes);
    control(file, libc::F_OFD_GETLK, &mut range)?;
    let is_free = range.l_type == libc::F_UNLCK as libc::c_short;
    // Only tickets are locked in this file, and each is as long as a PID.
    let process = i32::try_from(range.l_len).unwrap_or_default();
    Ok((!is_free).then_some(Other { number: range.l_start / STRIDE, process }))
}

fn lock(file: &File, kind: libc::c_int, start: i64, bytes: i64) -> io::Result<()> {
    control(file, libc::F_OFD_SETLK, &mut range(kind, start, bytes))
}

fn range(kind: libc::c_int, start: i64, bytes: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: bytes,
        // An OFD lock has no PID (fcntl(2)).
        l_pid: 0,
    }
}

fn control(file: &File, operation: libc::c_int, range: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the structure is valid during the call, and the descriptor is open.
    match unsafe { libc::fcntl(file.as_raw_fd(), operation, std::ptr::from_mut(range)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
