//! [`Kind`] of a region.

use crate::size::PageSize;

/// The kind of a region, as far as it was recognised.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The heap of brk.
    Heap,
    /// The main thread's stack.
    Stack,
    /// The stack of a thread other than the main one.
    ThreadStack,
    /// Memory of a malloc implementation.
    Arena(Allocator),
    /// The heap of a Go program.
    GoHeap,
    /// The Java heap.
    JvmHeap,
    /// Generated code (JIT).
    Jit,
    /// Code of a program that it has copied to anonymous memory.
    MovedText {
        /// Path of the program's file.
        path: String,
    },
    /// Guest memory, in a process that runs virtual machines.
    GuestMemory,
    /// A mapping of a file.
    File {
        /// Path of the file.
        path: String,
        /// The part of the file.
        part: FilePart,
    },
    /// Shared memory: shared anonymous memory, memfd, System V, tmpfs.
    SharedMemory {
        /// Name of the shared memory.
        name: String,
    },
    /// Pages of a hugetlb pool.
    Hugetlb {
        /// Page size of the pool; `None` where it could not be read.
        size: Option<PageSize>,
    },
    /// Anonymous memory with a name (PR_SET_VMA_ANON_NAME).
    Named {
        /// The name that the program gave it.
        name: String,
    },
    /// Addresses without access and without memory: reservations, or guards that belong to no other region.
    Reserved,
    /// The kernel's own pages (vdso, vvar) and memory of devices.
    Special {
        /// The kernel's name for it.
        name: String,
    },
    /// Anonymous memory of no recognised kind.
    Anonymous,
}

/// A malloc implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Allocator {
    /// glibc's malloc: the arena of a thread.
    Glibc,
    /// jemalloc.
    Jemalloc,
    /// mimalloc.
    Mimalloc,
    /// tcmalloc, from gperftools or from Google.
    Tcmalloc,
}

/// The part of a file that a mapping contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FilePart {
    /// Code.
    Text,
    /// Private and writable: data of a program or library.
    Data,
    /// Neither code nor data.
    Content,
}

impl Allocator {
    /// The allocator's name in text.
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
    /// The kind without the parts that identify one region. Kinds of one family share a row in a table by family.
    pub fn family(&self) -> String {
        match self {
            Kind::Heap => "heap".into(),
            Kind::Stack => "stack".into(),
            Kind::ThreadStack => "thread stacks".into(),
            Kind::Arena(allocator) => format!("{} arenas", allocator.name()),
            Kind::GoHeap => "Go heap".into(),
            Kind::JvmHeap => "JVM heap".into(),
            Kind::Jit => "JIT code".into(),
            Kind::MovedText { .. } => "moved text".into(),
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

    /// The kind in one clause.
    pub fn describe(&self) -> String {
        match self {
            Kind::ThreadStack => "thread stack".into(),
            Kind::Arena(allocator) => format!("{} arena", allocator.name()),
            Kind::File { path, part: FilePart::Text } => format!("text of {path}"),
            Kind::File { path, part: FilePart::Data } => format!("data of {path}"),
            Kind::File { path, part: FilePart::Content } => path.clone(),
            Kind::MovedText { path } => format!("text of {path}, moved to anonymous memory"),
            Kind::SharedMemory { name } => format!("shared memory {name}"),
            Kind::Hugetlb { size: Some(size) } => format!("hugetlb {size}"),
            Kind::Special { name } => name.clone(),
            other => other.family(),
        }
    }

    /// The identifier in JSON documents.
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
            Kind::MovedText { .. } => "moved_text",
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
