//! [`Journal`]: the settings that the lease wrote, on disk, in case pagelab and its watchdog are both killed. Its format is
//! described in docs/reference/formats/journal.md.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::LeaseError;
use super::holder::Holder;
use super::setting::Kind;

/// The name and version of the format.
pub const SCHEMA: &str = "pagelab.lease-journal/1";

/// The first line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The schema, [`SCHEMA`].
    pub schema: String,
    /// The id of the boot during which the settings were written; a journal of another boot is void.
    pub boot_id: String,
    /// The process that wrote the journal.
    pub holder: Holder,
}

/// Every further line: a value that was about to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The setting, as an absolute path on the host.
    pub path: String,
    /// The meaning of its values.
    pub kind: RecordKind,
    /// The value before the lease.
    pub before: String,
    /// The value to be written; empty where the kernel chooses it.
    pub written: String,
}

/// [`Kind`] in the form on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// A word or a number.
    Value,
    /// The size of a hugetlb pool.
    Pages,
    /// A value that the kernel changes together with another one.
    Kept,
}

impl From<Kind> for RecordKind {
    fn from(kind: Kind) -> RecordKind {
        match kind {
            Kind::Value => RecordKind::Value,
            Kind::Pages => RecordKind::Pages,
            Kind::KernelAdjusted => RecordKind::Kept,
        }
    }
}

impl From<RecordKind> for Kind {
    fn from(kind: RecordKind) -> Kind {
        match kind {
            RecordKind::Value => Kind::Value,
            RecordKind::Pages => Kind::Pages,
            RecordKind::Kept => Kind::KernelAdjusted,
        }
    }
}

/// A journal that is being written. The file is created with its first records.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    header: Header,
    file: Option<File>,
}

/// A journal that was found.
#[derive(Debug)]
pub struct StoredJournal {
    /// The first line.
    pub header: Header,
    /// The other lines.
    pub records: Vec<Record>,
}

impl Journal {
    /// A journal with the path `path`, not yet on disk.
    pub fn new(path: PathBuf, boot_id: String) -> Result<Journal, LeaseError> {
        let holder = Holder::this_process();
        let holder = holder.map_err(|source| LeaseError::of_file("record this process in", &path, source))?;
        let header = Header { schema: SCHEMA.into(), boot_id, holder };
        Ok(Journal { path, header, file: None })
    }

    /// Writes records; when it returns they are on disk.
    pub fn append(&mut self, records: &[Record]) -> Result<(), LeaseError> {
        if records.is_empty() {
            return Ok(());
        }
        let lines: String = records.iter().map(line).collect();
        let done = match &mut self.file {
            Some(file) => append_all_or_nothing(file, lines.as_bytes()),
            None => self.begin(&lines),
        };
        done.map_err(|source| LeaseError::of_file("write the journal", &self.path, source))
    }

    /// Creates the file together with the first records, and renames it into place: a journal is never incomplete.
    #[expect(clippy::disallowed_methods, reason = "no other user can enter the directory (private_directory)")]
    fn begin(&mut self, lines: &str) -> io::Result<()> {
        let unfinished = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let mut file = options.open(&unfinished)?;
        file.write_all((line(&self.header) + lines).as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&unfinished, &self.path)?;
        sync_directory(&self.path)?;
        self.file = Some(file);
        Ok(())
    }
}

/// Appends all of `bytes` or, on a full disk, nothing: half a line would corrupt the next one.
fn append_all_or_nothing(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let length = file.metadata()?.len();
    file.write_all(bytes).and_then(|()| file.sync_data()).or_else(|error| {
        file.set_len(length)?;
        file.seek(io::SeekFrom::Start(length))?;
        Err(error)
    })
}

/// The path of the journal.
pub fn path_in(state: &Path) -> PathBuf {
    state.join("lease.jsonl")
}

/// Removes the journal permanently.
#[expect(clippy::disallowed_methods, reason = "no other user can enter the directory (private_directory)")]
pub fn remove(path: &Path) -> Result<(), LeaseError> {
    let removed = match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_directory(path),
    };
    removed.map_err(|source| LeaseError::of_file("remove the journal", path, source))
}

/// Reads the journal; `None` where there is none. A last line without a newline is a record whose write did not complete; its
/// setting was not written, so the record is left out.
pub fn read(path: &Path) -> Result<Option<StoredJournal>, LeaseError> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|source| LeaseError::of_file("read the journal", path, source))?,
    };
    let corrupt = |line: usize, what: String| LeaseError::JournalCorrupt { path: path.to_path_buf(), line, what };
    let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let text = std::str::from_utf8(&bytes[..complete]).map_err(|error| corrupt(1, error.to_string()))?;
    let mut lines = text.lines();
    let first = lines.next().ok_or_else(|| corrupt(1, "expected a header, found no complete line".into()))?;
    let header = header(first, path)?;
    let records = lines
        .enumerate()
        .map(|(index, line)| serde_json::from_str(line).map_err(|error| corrupt(index + 2, error.to_string())));
    Ok(Some(StoredJournal { header, records: records.collect::<Result<Vec<Record>, LeaseError>>()? }))
}

fn header(line: &str, path: &Path) -> Result<Header, LeaseError> {
    let corrupt = |error: serde_json::Error| LeaseError::JournalCorrupt {
        path: path.to_path_buf(),
        line: 1,
        what: error.to_string(),
    };
    // The version is checked first, because other versions may have another format.
    let value: serde_json::Value = serde_json::from_str(line).map_err(corrupt)?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(SCHEMA) | None => serde_json::from_value(value).map_err(corrupt),
        Some(other) => {
            Err(LeaseError::JournalVersion { path: path.to_path_buf(), found: other.to_string(), expected: SCHEMA })
        }
    }
}

fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings and numbers always become JSON") + "\n"
}

fn sync_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(path: &str) -> Record {
        let (before, written) = ("never".to_string(), "madvise".to_string());
        Record { path: path.into(), kind: RecordKind::Value, before, written }
    }

    #[test]
    fn a_journal_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = path_in(directory.path());
        assert!(read(&path).unwrap().is_none());
        let mut journal = Journal::new(path.clone(), "boot".into()).unwrap();
        journal.append(&[]).unwrap();
        assert!(!path.exists(), "no journal without a record");
        journal.append(&[record("/a"), record("/b")]).unwrap();
        journal.append(&[record("/c")]).unwrap();
        let found = read(&path).unwrap().unwrap();
        assert_eq!((found.header.boot_id.as_str(), found.header.holder.is_running()), ("boot", true));
        assert_eq!(found.records, [record("/a"), record("/b"), record("/c")]);
        remove(&path).unwrap();
        remove(&path).unwrap();
    }

    #[test]
    fn a_truncated_record_is_left_out_wherever_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = path_in(directory.path());
        Journal::new(path.clone(), "boot".into()).unwrap().append(&[record("/a"), record("/b")]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let second = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        for cut in second..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(read(&path).unwrap().unwrap().records, [record("/a")], "cut at {cut}");
        }
    }

    #[test]
    fn names_the_line_of_a_malformed_journal() {
        let directory = tempfile::tempdir().unwrap();
        let path = path_in(directory.path());
        let header = line(&Journal::new(path.clone(), "boot".into()).unwrap().header);
        let good = line(&record("/a"));
        for (text, number) in [
            (String::new(), 1),
            ("no json\n".into(), 1),
            ("{}\n".into(), 1),
            (format!("{header}{good}{{\"path\":1}}\n"), 3),
            (format!("{header}{}", good.replace("\"kind\"", "\"sort\"")), 2),
        ] {
            std::fs::write(&path, &text).unwrap();
            let error = read(&path).unwrap_err();
            let is_expected = matches!(&error, LeaseError::JournalCorrupt { line, .. } if *line == number);
            assert!(is_expected && error.to_string().contains("by hand"), "{text:?}: {error}");
        }
        std::fs::write(&path, b"\xff\xfe\n").unwrap();
        assert!(matches!(read(&path), Err(LeaseError::JournalCorrupt { .. })));
        std::fs::write(&path, header.replace("/1", "/9")).unwrap();
        assert!(matches!(read(&path), Err(LeaseError::JournalVersion { .. })));
    }
}
