//! What a region is.

use crate::size::PageSize;

/// What a region is, as far as it was recognised.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The heap of brk.
    Heap,
    /// The stack of the main thread.
    Stack,
    /// The stack of another thread.
    ThreadStack,
    /// Memory of an allocator.
    Arena(Allocator),
    /// The heap of a Go program.
    GoHeap,
    /// The Java heap.
    JvmHeap,
    /// Generated code.
    Jit,
    /// Memory of a guest, in a process that runs virtual machines.
    GuestMemory,
    /// A mapping of a file.
    File {
        /// Its path.
        path: String,
        /// Which part.
        part: FilePart,
    },
    /// Shared memory: shared anonymous memory, memfd, System V, tmpfs.
    SharedMemory {
        /// Its name.
        name: String,
    },
    /// Pages of a hugetlb pool.
    Hugetlb {
        /// The size of its pages; `None` where it could not be read.
        size: Option<PageSize>,
    },
    /// Anonymous memory with a name (PR_SET_VMA_ANON_NAME).
    Named {
        /// The name.
        name: String,
    },
    /// Addresses without access and without memory: reserved, or guards that belong to nothing else.
    Reserved,
    /// The kernel's own pages (vdso, vvar) and memory of devices.
    Special {
        /// What the kernel calls it.
        name: String,
    },
    /// Anonymous memory, not recognised.
    Anonymous,
}

/// An allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Allocator {
    /// glibc's malloc: the arena of a thread.
    Glibc,
    /// jemalloc.
    Jemalloc,
    /// mimalloc.
    Mimalloc,
    /// tcmalloc, gperftools' or Google's.
    Tcmalloc,
}

/// The part of a file that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FilePart {
    /// Code.
    Text,
    /// Private and writable: a program's or library's data.
    Data,
    /// Anything else.
    Content,
}

impl Allocator {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Allocator::Glibc => "glibc",
            Allocator::Jemalloc => "jemalloc",
            Allocator::Mimalloc => "mimalloc",
            Allocator::Tcmalloc => "tcmalloc",
        }
    }
}

impl Kind {
    /// The kind without what names one region: kinds of the same family are one row of a folded table.
    pub fn family(&self) -> String {
        match self {
            Kind::Heap => "heap".into(),
            Kind::Stack => "stack".into(),
            Kind::ThreadStack => "thread stacks".into(),
            Kind::Arena(allocator) => format!("{} arenas", allocator.name()),
            Kind::GoHeap => "Go heap".into(),
            Kind::JvmHeap => "JVM heap".into(),
            Kind::Jit => "JIT code".into(),
            Kind::GuestMemory => "guest memory".into(),
            Kind::File { part: FilePart::Text, .. } => "text of files".into(),
            Kind::File { part: FilePart::Data, .. } => "data of files".into(),
            Kind::File { part: FilePart::Content, .. } => "files".into(),
            Kind::SharedMemory { .. } => "shared memory".into(),
            Kind::Hugetlb { .. } => "hugetlb".into(),
            Kind::Named { name } => name.clone(),
            Kind::Reserved => "reserved".into(),
            Kind::Special { .. } => "kernel and devices".into(),
            Kind::Anonymous => "anonymous".into(),
        }
    }

    /// What it is, in one clause.
    pub fn describe(&self) -> String {
        match self {
            Kind::ThreadStack => "thread stack".into(),
            Kind::Arena(allocator) => format!("{} arena", allocator.name()),
            Kind::File { path, part: FilePart::Text } => format!("text of {path}"),
            Kind::File { path, part: FilePart::Data } => format!("data of {path}"),
            Kind::File { path, part: FilePart::Content } => path.clone(),
            Kind::SharedMemory { name } => format!("shared memory {name}"),
            Kind::Hugetlb { size: Some(size) } => format!("hugetlb {size}"),
            Kind::Special { name } => name.clone(),
            other => other.family(),
        }
    }

    /// The name in documents.
    pub fn label(&self) -> &'static str {
        match self {
            Kind::Heap => "heap",
            Kind::Stack => "stack",
            Kind::ThreadStack => "thread_stack",
            Kind::Arena(Allocator::Glibc) => "glibc_arena",
            Kind::Arena(Allocator::Jemalloc) => "jemalloc_arena",
            Kind::Arena(Allocator::Mimalloc) => "mimalloc_arena",
            Kind::Arena(Allocator::Tcmalloc) => "tcmalloc_arena",
            Kind::GoHeap => "go_heap",
            Kind::JvmHeap => "jvm_heap",
            Kind::Jit => "jit",
            Kind::GuestMemory => "guest_memory",
            Kind::File { part: FilePart::Text, .. } => "text",
            Kind::File { part: FilePart::Data, .. } => "file_data",
            Kind::File { part: FilePart::Content, .. } => "file",
            Kind::SharedMemory { .. } => "shared_memory",
            Kind::Hugetlb { .. } => "hugetlb",
            Kind::Named { .. } => "named",
            Kind::Reserved => "reserved",
            Kind::Special { .. } => "special",
            Kind::Anonymous => "anonymous",
        }
    }
}
