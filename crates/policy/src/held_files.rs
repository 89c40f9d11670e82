//! [`FilesWithMemory`]: files whose pages stay in memory for as long as the files exist, even if no process uses them.

use crate::size::PageSize;

/// A file on hugetlbfs, or on a tmpfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWithMemory {
    /// Its path; bytes that are not text are escaped.
    pub path: String,
    /// The page size of its hugetlbfs; `None` where the mount table does not name one, and on a tmpfs.
    pub page_size: Option<PageSize>,
    /// Bytes of pages that it holds.
    pub bytes: u64,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// Processes that map it or have it open, by PID.
    pub holders: Vec<u32>,
}

impl FileWithMemory {
    /// Bytes of pages that it holds beyond its last base page.
    pub fn surplus_bytes(&self, base: PageSize) -> u64 {
        let length_bytes = base.align_up(self.length_bytes).unwrap_or(u64::MAX);
        self.bytes.saturating_sub(length_bytes)
    }
}

/// Files on all mounts of one kind of this mount namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilesWithMemory {
    /// The files, those that hold most first.
    pub files: Vec<FileWithMemory>,
    /// Whether there are more entries than were read.
    pub is_cut: bool,
    /// Number of processes whose files this user may not see; any of them may hold a file.
    pub unseen_processes: u64,
    /// Directories and tables that could not be read, with the reason.
    pub unread: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_last_page_of_a_file_are_surplus() {
        let of = |bytes, length_bytes| {
            let file = FileWithMemory { path: "/a".into(), page_size: None, bytes, length_bytes, holders: Vec::new() };
            file.surplus_bytes(PageSize::K4)
        };
        assert_eq!((of(2 << 20, 10_000), of(12 << 10, 10_000), of(4096, 1 << 30)), ((2 << 20) - (12 << 10), 0, 0));
        assert_eq!(of(8192, u64::MAX), 0);
    }
}
