//! Reads and parses text of /proc and /sys. [`crate::Root`] decides which file the text comes from.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use policy::size::format_bytes;

/// A file of the host that could not be read or parsed.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("cannot read {}: {source}; {remedy}", path.display())]
    Unreadable {
        path: PathBuf,
        source: io::Error,
        /// How to remedy it.
        remedy: &'static str,
    },
    #[error("{}: expected {expected}, found {found:?}; report it with the file's content", path.display())]
    Unexpected {
        path: PathBuf,
        /// The expected content.
        expected: &'static str,
        /// The content that was found.
        found: String,
    },
}

/// Joins `path` (absolute, as on the running host) to `root`.
pub fn under(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// The whole content of a file of the running system: one `open`, as few `read` calls as the content needs, no `stat`. Bytes that
/// are not UTF-8 are [`escaped`].
pub fn content(file: impl AsRef<Path>) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(256);
    let mut file = File::open(file)?;
    let mut piece = [0u8; 4096];
    loop {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(escaped(bytes))
}

/// Converts bytes to text. Each byte that is not part of a UTF-8 character becomes `\ooo`, the kernel's escape for paths
/// (seq_path, fs/seq_file.c), so that different names stay different.
pub fn escaped(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|wrong| escaped_line(wrong.as_bytes()).into_owned())
}

/// As [`escaped`], without copying text that is already UTF-8.
pub fn escaped_line(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 3);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\{byte:03o}")));
    }
    Cow::Owned(text)
}

/// The longest line of maps, smaps or a file of pagelab: a path has at most 4096 bytes, each of which may be escaped.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// Reads the next line into `line`, without its end. Returns `false` after the last line. A line longer than [`MAX_LINE_BYTES`] is
/// an error.
pub fn next_line(text: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = text.take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if read > MAX_LINE_BYTES {
        let max = format_bytes(MAX_LINE_BYTES as u64);
        return Err(io::Error::other(format!("expected lines of at most {max}, found a longer one")));
    }
    Ok(read > 0)
}

/// The number after `key` in a file of `key value` lines, such as /proc/meminfo.
pub fn keyed_number(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// As [`keyed_number`], converted to bytes from lines that end in `kB`; also `None` where the number exceeds 64 bits.
pub fn keyed_bytes(text: &str, key: &str) -> Option<u64> {
    keyed_number(text, key)?.checked_mul(1024)
}

/// The chosen word of a file that lists its choices with the chosen one in brackets (`always [madvise] never`), otherwise the
/// whole text without surrounding space.
pub fn chosen_word(text: &str) -> &str {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text.trim(), |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_utf8_stay_different() {
        assert_eq!(escaped(b"/tmp/\xff\xfe \xc3\xa4".to_vec()), "/tmp/\\377\\376 \u{e4}");
        assert_eq!(escaped(b"cut \xe2\x82".to_vec()), "cut \\342\\202");
        assert_eq!(escaped(Vec::new()), "");
    }

    #[test]
    fn lines_end_at_their_limit() {
        let lines = |text: &[u8]| {
            let (mut text, mut line, mut lines) = (text, Vec::new(), Vec::new());
            while next_line(&mut text, &mut line)? {
                lines.push(line.len());
            }
            io::Result::Ok(lines)
        };
        assert_eq!(lines(b"").unwrap(), [0usize; 0]);
        assert_eq!(lines(b"ab\n\nc").unwrap(), [2, 0, 1]);
        let longest = vec![b'x'; MAX_LINE_BYTES];
        assert_eq!(lines(&longest).unwrap(), [MAX_LINE_BYTES]);
        assert_eq!(lines(&[&longest[..], b"\n"].concat()).unwrap(), [MAX_LINE_BYTES]);
        assert!(lines(&[&longest[..], b"x"].concat()).unwrap_err().to_string().contains("at most 64K"));
    }

    #[test]
    fn a_number_of_kilobytes_that_exceeds_64_bits_in_bytes_is_none() {
        assert_eq!(keyed_bytes("MemTotal:  8 kB\n", "MemTotal"), Some(8192));
        assert_eq!(keyed_bytes("MemTotal: 18446744073709551615 kB\n", "MemTotal"), None);
    }

    #[test]
    fn reads_the_chosen_word_in_brackets() {
        for (text, word) in [
            ("always [madvise] never\n", "madvise"),
            ("always defer [defer+madvise] madvise never\n", "defer+madvise"),
            ("4096\n", "4096"),
            ("[broken\n", "[broken"),
            ("] odd [\n", "] odd ["),
            ("", ""),
        ] {
            assert_eq!(chosen_word(text), word, "{text:?}");
        }
    }
}
