//! Reads files of this host: only regular ones, of a bounded size, without blocking on a FIFO.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

/// The largest size of a kernel, a module or a program, in bytes. The largest of Debian's have some tens of MiB.
const MAX_BYTES: u64 = 1 << 30;

/// Reads a regular file of at most 1 GiB.
#[expect(clippy::disallowed_methods, reason = "it only reads")]
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "expected a regular file, found a directory; name a file in it",
        ));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "expected a regular file, found a pipe or device"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        Err(io::Error::new(ErrorKind::InvalidData, "expected at most 1 GiB, found more"))
    } else {
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_non_regular_file_without_blocking() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [&pipe, Path::new("/dev/zero"), directory.path()] {
            let error = read(path).unwrap_err().to_string();
            assert!(error.contains("expected a regular file"), "{}: {error}", path.display());
        }
        let plain = directory.path().join("plain");
        std::fs::write(&plain, "text").unwrap();
        assert_eq!(read(&plain).unwrap(), b"text");
    }
}
