//! [`open_regular`]: opens files by paths that other users control.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

/// Opens a regular file; `None` for anything else, and for a file with another inode number if `inode` is given. The path may
/// belong to another user, who can replace the file at any time: the file that was checked is opened through its descriptor,
/// and never a device or pipe.
#[expect(clippy::disallowed_methods, reason = "O_PATH opens nothing, and the second open only reads")]
pub fn open_regular(path: &Path, inode: Option<u64>) -> io::Result<Option<File>> {
    let found = File::from(nix::fcntl::open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?);
    let about = found.metadata()?;
    if !about.is_file() || inode.is_some_and(|inode| about.ino() != inode) {
        return Ok(None);
    }
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).map(Some)
}
