//! [`Kind`]: what backs the memory in a row of the matrix.

use serde::{Deserialize, Serialize};

/// What backs the memory of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A private anonymous mapping.
    Anonymous,
    /// The heap that brk grows.
    Heap,
    /// The stack of the main thread, which has grown over the range before the range is used.
    Stack,
    /// A shared anonymous mapping.
    SharedAnonymous,
    /// A shared mapping of a memfd.
    Memfd,
    /// A shared mapping of a file in a tmpfs.
    Tmpfs,
    /// A private anonymous mapping of a hugetlb pool.
    Hugetlb,
    /// A shared, read-only mapping of a file's data.
    FileData,
    /// A private, executable mapping of a file.
    FileText,
}

impl Kind {
    /// All kinds, in the order of the rows.
    pub const ALL: [Kind; 9] = [
        Kind::Anonymous,
        Kind::Heap,
        Kind::Stack,
        Kind::SharedAnonymous,
        Kind::Memfd,
        Kind::Tmpfs,
        Kind::Hugetlb,
        Kind::FileData,
        Kind::FileText,
    ];

    /// The name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Anonymous => "anon",
            Kind::Heap => "heap",
            Kind::Stack => "stack",
            Kind::SharedAnonymous => "shared-anon",
            Kind::Memfd => "memfd",
            Kind::Tmpfs => "tmpfs",
            Kind::Hugetlb => "hugetlb",
            Kind::FileData => "file-data",
            Kind::FileText => "file-text",
        }
    }

    /// The short name in a row.
    fn label(self) -> &'static str {
        match self {
            Kind::SharedAnonymous => "shared",
            Kind::FileData => "data",
            Kind::FileText => "text",
            other => other.word(),
        }
    }

    /// The kind with that name on the command line or in a row.
    pub fn of_word(word: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.word() == word || kind.label() == word)
    }

    /// Whether it is a file of a file system that keeps its data on a device.
    pub fn is_file(self) -> bool {
        matches!(self, Kind::FileData | Kind::FileText)
    }

    /// Whether it is a file of some mount.
    pub fn has_mount(self) -> bool {
        self.is_file() || self == Kind::Tmpfs
    }

    /// Whether it is shared memory, to which the kernel's settings `shmem_enabled` apply.
    pub fn is_shmem(self) -> bool {
        matches!(self, Kind::SharedAnonymous | Kind::Memfd | Kind::Tmpfs)
    }
}

/// What backs the memory of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Its kind.
    pub kind: Kind,
    /// Of a file: the type of its file system, such as `ext4`; of a tmpfs its `huge=`, such as `huge=never`. Absent for memory without
    /// a file, and where no such file system is mounted.
    pub mount: Option<String>,
}

impl Memory {
    /// The name in a row: `anon`, `data ext4`, `tmpfs never`.
    pub fn label(&self) -> String {
        match &self.mount {
            Some(mount) => format!("{} {}", self.kind.label(), mount.strip_prefix("huge=").unwrap_or(mount)),
            None => self.kind.label().to_owned(),
        }
    }
}
