//! [`Call`]: a system call that a policy may change, with the argument values of the generic ABI. x86-64, arm64 and riscv64
//! share these values (include/uapi/asm-generic/mman-common.h and mman.h, include/uapi/linux/mman.h and prctl.h).

/// A call that a program is about to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `mmap`. Its result is the address of the mapping.
    Mmap {
        /// The requested address; 0 lets the kernel choose.
        address: u64,
        /// Length in bytes.
        bytes: u64,
        /// Protection bits from [`prot`].
        protection: u64,
        /// Flags from [`map`].
        flags: u64,
        /// The file's descriptor, or -1.
        file: u64,
        /// Offset in the file, in bytes.
        offset: u64,
    },
    /// `munmap`.
    Munmap {
        /// First address of the range.
        address: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// `mremap`. Its result is the new address.
    Mremap {
        /// First address of the old mapping.
        address: u64,
        /// Old length in bytes.
        old_bytes: u64,
        /// New length in bytes.
        new_bytes: u64,
        /// Flags from [`mremap`].
        flags: u64,
        /// The requested new address; used with `MREMAP_FIXED`.
        new_address: u64,
    },
    /// `brk`. Its result is the end of the heap.
    Brk {
        /// The requested end; 0 only queries the current end.
        end: u64,
    },
    /// `mprotect`.
    Mprotect {
        /// First address of the range.
        address: u64,
        /// Length in bytes.
        bytes: u64,
        /// Protection bits from [`prot`].
        protection: u64,
    },
    /// `madvise`.
    Madvise {
        /// First address of the range.
        address: u64,
        /// Length in bytes.
        bytes: u64,
        /// Advice from [`madv`].
        advice: u64,
    },
    /// `process_madvise`. A process can use it on itself since Linux 6.13.
    ProcessMadvise {
        /// Its first three arguments: the pidfd, the vector of ranges and the number of ranges.
        ranges: [u64; 3],
        /// Advice from [`madv`].
        advice: u64,
        /// The `flags` argument, passed on unchanged.
        flags: u64,
    },
    /// `prctl`.
    Prctl {
        /// The option from [`pr`]. The kernel uses only 32 bits of it.
        option: u64,
        /// Arguments two to five.
        arguments: [u64; 4],
    },
    /// Another call on a range of memory that may behave differently when the pages are larger than the program expects.
    OnRange {
        /// First address of the range.
        address: u64,
        /// Length in bytes.
        bytes: u64,
        /// Which kind of call it is.
        operation: RangeOperation,
    },
}

/// The kind of a [`Call::OnRange`]: calls on a range that have no variant of their own in [`Call`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeOperation {
    /// `mlock`, `mlock2`.
    Lock,
    /// `munlock`.
    Unlock,
    /// Calls that query whether memory is mapped: `mincore`, `msync`.
    Query,
    /// Names the memory (PR_SET_VMA_ANON_NAME).
    Name,
    /// Sets the NUMA nodes that pages are allocated from: `mbind`, `set_mempolicy_home_node`.
    Bind,
    /// Calls that only base pages support: protection keys, seals, and faults that the program handles itself (userfaultfd).
    NeedBasePages,
}

/// Protection bits, `PROT_*`.
pub mod prot {
    /// No access.
    pub const NONE: u64 = 0;
    /// Pages can be read.
    pub const READ: u64 = 1;
    /// Pages can be written.
    pub const WRITE: u64 = 2;
    /// The content of pages can be executed.
    pub const EXEC: u64 = 4;
}

/// Flags of mmap, `MAP_*`.
pub mod map {
    /// Stores go to the mapped object (`MAP_SHARED`).
    pub const SHARED: u64 = 1;
    /// Stores stay private to the process (`MAP_PRIVATE`).
    pub const PRIVATE: u64 = 2;
    /// Mask of the bits that select shared or private.
    pub const TYPE: u64 = 0xf;
    /// Maps below 2 GiB (MAP_32BIT, x86-64 only). The kernel does not search there for hugetlb addresses.
    pub const LOW_32BIT: u64 = 0x40;
    /// Maps at exactly this address, and replaces whatever is mapped there.
    pub const FIXED: u64 = 0x10;
    /// Maps no file.
    pub const ANONYMOUS: u64 = 0x20;
    /// For a stack that grows down.
    pub const GROWSDOWN: u64 = 0x100;
    /// Locks the memory, and therefore populates it.
    pub const LOCKED: u64 = 0x2000;
    /// No swap space or commit charge is reserved.
    pub const NORESERVE: u64 = 0x4000;
    /// Populates the mapping at once.
    pub const POPULATE: u64 = 0x8000;
    /// Undoes [`POPULATE`].
    pub const NONBLOCK: u64 = 0x1_0000;
    /// For a stack; implies MADV_NOHUGEPAGE since Linux 6.7 (mm/mmap.c).
    pub const STACK: u64 = 0x2_0000;
    /// Maps pages of a hugetlb pool.
    pub const HUGETLB: u64 = 0x4_0000;
    /// Maps at exactly this address; fails if something is mapped there.
    pub const FIXED_NOREPLACE: u64 = 0x10_0000;
    /// Position of the log2 of the hugetlb page size in the flags (MAP_HUGE_SHIFT).
    pub const HUGE_SHIFT: u32 = 26;

    /// Mappings that the policy neither advises nor populates: stacks, hugetlb mappings that the program requested, shared
    /// memory.
    pub const LEFT_ALONE: u64 = STACK | GROWSDOWN | HUGETLB | SHARED;

    /// Whether a mapping with these flags can be backed by hugetlb pages without the program's knowledge: private anonymous
    /// memory that is not a stack and does not itself request hugetlb pages.
    pub fn can_be_of_pool(flags: u64) -> bool {
        flags & ANONYMOUS != 0 && flags & TYPE == PRIVATE && flags & (STACK | GROWSDOWN | HUGETLB | LOW_32BIT) == 0
    }

    /// Whether mmap with these flags reserves pages of a hugetlb pool, and therefore fails if the pool has too few.
    pub fn asks_for_pool(flags: u64) -> bool {
        flags & (ANONYMOUS | HUGETLB) == ANONYMOUS | HUGETLB && flags & NORESERVE == 0
    }

    /// Whether mmap populates a mapping with these flags (`do_mmap`, mm/mmap.c).
    pub fn populates(flags: u64) -> bool {
        flags & LOCKED != 0 || flags & (POPULATE | NONBLOCK) == POPULATE
    }
}

/// Flags of mremap, `MREMAP_*`.
pub mod mremap {
    /// The mapping may move to another address.
    pub const MAY_MOVE: u64 = 1;
    /// The mapping moves to exactly this address and replaces whatever is mapped there.
    pub const FIXED: u64 = 2;
}

/// Advice values of madvise, `MADV_*`.
pub mod madv {
    /// Resets the expected access pattern.
    pub const NORMAL: u64 = 0;
    /// Accesses are expected in no particular order.
    pub const RANDOM: u64 = 1;
    /// Accesses are expected in ascending order.
    pub const SEQUENTIAL: u64 = 2;
    /// Accesses are expected soon.
    pub const WILLNEED: u64 = 3;
    /// Drop the content.
    pub const DONTNEED: u64 = 4;
    /// The kernel may reclaim the content when memory is short.
    pub const FREE: u64 = 8;
    /// Punches a hole in the mapped file.
    pub const REMOVE: u64 = 9;
    /// fork does not copy the range to the child.
    pub const DONTFORK: u64 = 10;
    /// Undoes [`DONTFORK`].
    pub const DOFORK: u64 = 11;
    /// KSM may merge pages with identical content.
    pub const MERGEABLE: u64 = 12;
    /// Undoes [`MERGEABLE`].
    pub const UNMERGEABLE: u64 = 13;
    /// Enables transparent huge pages for the range.
    pub const HUGEPAGE: u64 = 14;
    /// Disables transparent huge pages for the range.
    pub const NOHUGEPAGE: u64 = 15;
    /// Excludes the range from core dumps.
    pub const DONTDUMP: u64 = 16;
    /// Undoes [`DONTDUMP`].
    pub const DODUMP: u64 = 17;
    /// A forked child sees zeros in the range.
    pub const WIPEONFORK: u64 = 18;
    /// Undoes [`WIPEONFORK`].
    pub const KEEPONFORK: u64 = 19;
    /// The range is not expected to be used soon.
    pub const COLD: u64 = 20;
    /// Reclaims the range now.
    pub const PAGEOUT: u64 = 21;
    /// Faults pages in for reading, since Linux 5.14.
    pub const POPULATE_READ: u64 = 22;
    /// Faults pages in for writing, since Linux 5.14.
    pub const POPULATE_WRITE: u64 = 23;
    /// Drops the content, also of locked memory, since Linux 5.18.
    pub const DONTNEED_LOCKED: u64 = 24;
    /// Collapses the range into large pages now, since Linux 6.1.
    pub const COLLAPSE: u64 = 25;
    /// Installs guard pages that need no mapping of their own, since Linux 6.13.
    pub const GUARD_INSTALL: u64 = 102;
    /// Removes guard pages that [`GUARD_INSTALL`] installed.
    pub const GUARD_REMOVE: u64 = 103;
}

/// Options of prctl, `PR_*`.
pub mod pr {
    /// Disables or enables transparent huge pages for the process.
    pub const SET_THP_DISABLE: u32 = 41;
    /// Queries the state that [`SET_THP_DISABLE`] set.
    pub const GET_THP_DISABLE: u32 = 42;
    /// PR_THP_DISABLE_EXCEPT_ADVISED, since Linux 6.18: memory with MADV_HUGEPAGE keeps transparent huge pages.
    pub const THP_DISABLE_EXCEPT_ADVISED: u64 = 1 << 1;
}

/// What a decision needs to know about a mapping (VMA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vma {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Protection bits from [`prot`].
    pub protection: u64,
    /// Whether it is private anonymous memory and not a stack that grows.
    pub is_anonymous: bool,
    /// Whether it has a name, given by the program or by the kernel.
    pub is_named: bool,
}

impl Vma {
    /// Length of the address range in bytes.
    pub fn length_bytes(&self) -> u64 {
        self.end - self.start
    }
}
