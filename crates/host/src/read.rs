//! Reading the small text files of /proc and /sys, and saying what is wrong with them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A file of the host that could not be read or understood.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It could not be read.
    #[error("cannot read {}: {source}; {remedy}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// It says something else than expected.
    #[error("{}: expected {expected}, found {found:?}; report it with the file's content", path.display())]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// What should stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
}

/// `path` (absolute, as on the running host) under `root`.
pub fn under(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// The whole content of a file. One `open`, as few `read` as the content needs, no `stat`.
pub fn text(root: &Path, path: &str) -> io::Result<String> {
    content(under(root, path))
}

/// As [`text`], of a file whose name is put together already.
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
    Ok(String::from_utf8(bytes).unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into_owned()))
}

/// As [`text`], for a file that every host has.
pub fn required(root: &Path, path: &str) -> Result<String, HostError> {
    text(root, path).map_err(|source| HostError::Unreadable {
        path: under(root, path),
        source,
        remedy: "mount /proc and /sys, or add the file to the captured tree",
    })
}

/// The number after `key` in a file of `key value` lines, such as /proc/meminfo.
pub fn keyed_number(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The chosen word of a file that lists its choices with the chosen one in brackets
/// (`always [madvise] never`), else the whole text without the space around it.
pub fn chosen_word(text: &str) -> &str {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text.trim(), |(word, _)| word)
}

/// Names of the entries of a directory, sorted; empty where it is missing or forbidden.
pub fn entries(root: &Path, path: &str) -> Vec<String> {
    let Ok(directory) = std::fs::read_dir(under(root, path)) else { return Vec::new() };
    let mut names: Vec<String> = directory.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_stands_in_brackets() {
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
