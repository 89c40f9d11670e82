//! Reads files that the user names: only regular files, and only up to a maximum size if read as a whole.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use policy::size::format_bytes;

/// Maximum bytes of a definition: a study, a suite, a machine or a kernel. The longest that pagelab comes with has 16K.
pub const MAX_DEFINITION_BYTES: u64 = 4 << 20;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    System(#[from] io::Error),
    #[error("expected a regular file, found {kind}; write its content to a file")]
    NotRegular {
        /// The type of the file that was found.
        kind: &'static str,
    },
    #[error("expected at most {}, found more; is it the right file?", format_bytes(*max_bytes))]
    TooLarge {
        /// The maximum size of the input.
        max_bytes: u64,
    },
    #[error("expected text in UTF-8, found an invalid byte at offset {offset}")]
    NotText {
        /// Offset of the first invalid byte.
        offset: usize,
    },
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error {
            Error::System(error) => error,
            Error::NotRegular { .. } => io::Error::new(io::ErrorKind::InvalidInput, error),
            Error::TooLarge { .. } | Error::NotText { .. } => io::Error::new(io::ErrorKind::InvalidData, error),
        }
    }
}

/// Opens a regular file. Refuses anything else without blocking: opening a pipe would wait for its writer.
pub fn open(path: &Path) -> Result<File, Error> {
    match open_any(path)? {
        (file, None) => Ok(file),
        (_, Some(kind)) => Err(Error::NotRegular { kind }),
    }
}

/// Opens a regular file, or a character device such as `/dev/mem`. A device has no end, so the caller must limit how much it
/// reads.
pub fn open_memory(path: &Path) -> Result<File, Error> {
    match open_any(path)? {
        (file, None | Some(CHARACTER_DEVICE)) => Ok(file),
        (_, Some(kind)) => Err(Error::NotRegular { kind }),
    }
}

const CHARACTER_DEVICE: &str = "a character device";

/// Opens whatever exists, without blocking. Also returns what it is, if it is not a regular file.
#[expect(clippy::disallowed_methods, reason = "it only reads, the file that its user names")]
fn open_any(path: &Path) -> Result<(File, Option<&'static str>), Error> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path).map_err(|error| {
        match std::fs::metadata(path) {
            // A socket cannot be opened at all (ENXIO).
            Ok(found) if found.file_type().is_socket() => Error::NotRegular { kind: "a socket" },
            _ => Error::System(error),
        }
    })?;
    let kind = match file.metadata()?.file_type() {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_fifo() => Some("a pipe"),
        kind if kind.is_char_device() => Some(CHARACTER_DEVICE),
        kind if kind.is_block_device() => Some("a block device"),
        _ => Some("something else"),
    };
    Ok((file, kind))
}

/// Reads a regular file of at most `max_bytes`.
pub fn read(path: &Path, max_bytes: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    open(path)?.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes { Err(Error::TooLarge { max_bytes }) } else { Ok(bytes) }
}

/// Reads a definition: text of at most [`MAX_DEFINITION_BYTES`].
pub fn read_definition(path: &Path) -> Result<String, Error> {
    let bytes = read(path, MAX_DEFINITION_BYTES)?;
    String::from_utf8(bytes).map_err(|error| Error::NotText { offset: error.utf8_error().valid_up_to() })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_opening_never_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        nix::unistd::mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        std::os::unix::fs::symlink(path("fifo"), path("link")).unwrap();
        for (file, kind) in [
            (path("fifo"), "found a pipe"),
            (path("link"), "found a pipe"),
            (path("socket"), "found a socket"),
            (path("."), "found a directory"),
            ("/dev/zero".into(), "found a character device"),
            (path("nothing"), "No such file"),
        ] {
            let error = open(&file).unwrap_err().to_string();
            assert!(error.contains(kind), "{}: {error}", file.display());
            assert_eq!(open_memory(&file).is_ok(), file == Path::new("/dev/zero"), "{}", file.display());
        }
    }

    #[test]
    fn a_definition_is_text_of_a_bounded_size() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read_definition(&path).map_err(|error| error.to_string())
        };
        assert_eq!(read("name = \"é\"".as_bytes()).unwrap(), "name = \"é\"");
        assert!(read(b"name\xff").unwrap_err().contains("an invalid byte at offset 4"));
        let most = vec![b'#'; MAX_DEFINITION_BYTES as usize];
        assert_eq!(read(&most).unwrap().len(), most.len());
        assert!(read(&[&most[..], b"#"].concat()).unwrap_err().contains("at most 4M"));
        // A sparse file of 1T, which takes no space on the disk.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read_definition(&path).unwrap_err().to_string().contains("at most 4M"));
    }
}
