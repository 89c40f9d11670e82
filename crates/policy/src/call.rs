//! The system calls that policies know, in the values of the generic ABI, which x86-64, arm64 and riscv64 share for them
//! (include/uapi/asm-generic/mman-common.h and mman.h, include/uapi/linux/mman.h and prctl.h).

/// A call that a program is about to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `mmap`; its result is the address of the mapping.
    Mmap {
        /// The address asked for.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// [`prot`].
        protection: u64,
        /// [`map`].
        flags: u64,
        /// The file's descriptor, or -1.
        file: u64,
        /// Where in the file, in bytes.
        offset: u64,
    },
    /// `munmap`.
    Munmap {
        /// The address.
        address: u64,
        /// Bytes.
        bytes: u64,
    },
    /// `mremap`; its result is the new address.
    Mremap {
        /// The address.
        address: u64,
        /// Bytes before.
        old_bytes: u64,
        /// Bytes after.
        new_bytes: u64,
        /// [`mremap`].
        flags: u64,
        /// The address asked for.
        new_address: u64,
    },
    /// `brk`; its result is the end of the heap.
    Brk {
        /// The end asked for; 0 asks for nothing.
        end: u64,
    },
    /// `mprotect`.
    Mprotect {
        /// The address.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// [`prot`].
        protection: u64,
    },
    /// `madvise`.
    Madvise {
        /// The address.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// [`madv`].
        advice: u64,
    },
    /// `process_madvise`, by which a process can advise itself since Linux 6.13.
    ProcessMadvise {
        /// Its first three arguments: the process, the vector of ranges and their number.
        ranges: [u64; 3],
        /// [`madv`].
        advice: u64,
        /// Flags.
        flags: u64,
    },
    /// `prctl`.
    Prctl {
        /// Of which the kernel takes 32 bits.
        option: u64,
        /// The other arguments.
        arguments: [u64; 4],
    },
    /// Another call about a range of memory, which matters where its pages are larger than the program thinks.
    OnRange {
        /// The address.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// What it does.
        deed: Deed,
    },
}

/// What a call does to a range, besides those that have a name of their own among [`Call`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// `mlock`, `mlock2`.
    Lock,
    /// `munlock`.
    Unlock,
    /// It asks whether memory is there: `mincore`, `msync`.
    Ask,
    /// It gives it a name (PR_SET_VMA_ANON_NAME).
    Name,
    /// It says from which nodes its pages come: `mbind`, `set_mempolicy_home_node`.
    Bind,
    /// What only base pages can have: protection keys, seals, faults that the program serves (userfaultfd).
    NeedBasePages,
}

/// `PROT_*`.
pub mod prot {
    /// No access.
    pub const NONE: u64 = 0;
    /// Pages can be read.
    pub const READ: u64 = 1;
    /// Pages can be written.
    pub const WRITE: u64 = 2;
    /// What pages hold can be executed.
    pub const EXEC: u64 = 4;
}

/// `MAP_*`.
pub mod map {
    /// Changes go to the object behind it.
    pub const SHARED: u64 = 1;
    /// Changes are the process's own.
    pub const PRIVATE: u64 = 2;
    /// The bits that say which of both.
    pub const TYPE: u64 = 0xf;
    /// Below 2 GiB, where the hugetlb allocator of addresses does not look; x86-64 alone has it.
    pub const LOW_32BIT: u64 = 0x40;
    /// At this address, whatever is there.
    pub const FIXED: u64 = 0x10;
    /// Without a file.
    pub const ANONYMOUS: u64 = 0x20;
    /// A stack.
    pub const GROWSDOWN: u64 = 0x100;
    /// Locked in memory, and so populated.
    pub const LOCKED: u64 = 0x2000;
    /// Without a promise of memory.
    pub const NORESERVE: u64 = 0x4000;
    /// Populated at once.
    pub const POPULATE: u64 = 0x8000;
    /// Undoes [`POPULATE`].
    pub const NONBLOCK: u64 = 0x1_0000;
    /// For a stack; MADV_NOHUGEPAGE since Linux 6.7 (mm/mmap.c).
    pub const STACK: u64 = 0x2_0000;
    /// From a hugetlb pool.
    pub const HUGETLB: u64 = 0x4_0000;
    /// At this address, if nothing is there.
    pub const FIXED_NOREPLACE: u64 = 0x10_0000;
    /// Where the size of pages of a pool stands in the flags, as its log2 (MAP_HUGE_SHIFT).
    pub const HUGE_SHIFT: u32 = 26;

    /// Mappings that no advice and no population concerns: stacks, the program's own pages of a pool, shared memory.
    pub const LEFT_ALONE: u64 = STACK | GROWSDOWN | HUGETLB | SHARED;

    /// Whether a mapping with these flags can be of pages of a pool without the program's knowledge: private anonymous memory that
    /// is no stack and does not ask for such pages itself.
    pub fn can_be_of_pool(flags: u64) -> bool {
        flags & ANONYMOUS != 0 && flags & TYPE == PRIVATE && flags & (STACK | GROWSDOWN | HUGETLB | LOW_32BIT) == 0
    }

    /// Whether a mapping with these flags is populated as it is made (`do_mmap`, mm/mmap.c).
    pub fn populates(flags: u64) -> bool {
        flags & LOCKED != 0 || flags & (POPULATE | NONBLOCK) == POPULATE
    }
}

/// `MREMAP_*`.
pub mod mremap {
    /// It may go elsewhere.
    pub const MAY_MOVE: u64 = 1;
    /// It goes to this address, whatever is there.
    pub const FIXED: u64 = 2;
}

/// `MADV_*`.
pub mod madv {
    /// What was expected of accesses is forgotten.
    pub const NORMAL: u64 = 0;
    /// Accesses come in no order.
    pub const RANDOM: u64 = 1;
    /// Accesses come in order.
    pub const SEQUENTIAL: u64 = 2;
    /// Accesses come soon.
    pub const WILLNEED: u64 = 3;
    /// Drop the content.
    pub const DONTNEED: u64 = 4;
    /// Let the kernel take the content when it needs the memory.
    pub const FREE: u64 = 8;
    /// Make a hole in the file behind it.
    pub const REMOVE: u64 = 9;
    /// A forked process does not get it.
    pub const DONTFORK: u64 = 10;
    /// Undoes [`DONTFORK`].
    pub const DOFORK: u64 = 11;
    /// Pages that are alike may become one.
    pub const MERGEABLE: u64 = 12;
    /// Undoes [`MERGEABLE`].
    pub const UNMERGEABLE: u64 = 13;
    /// Large pages wanted.
    pub const HUGEPAGE: u64 = 14;
    /// Large pages not wanted.
    pub const NOHUGEPAGE: u64 = 15;
    /// Left out of dumps.
    pub const DONTDUMP: u64 = 16;
    /// Undoes [`DONTDUMP`].
    pub const DODUMP: u64 = 17;
    /// A forked process has zeros there.
    pub const WIPEONFORK: u64 = 18;
    /// Undoes [`WIPEONFORK`].
    pub const KEEPONFORK: u64 = 19;
    /// Not needed soon.
    pub const COLD: u64 = 20;
    /// Reclaim it now.
    pub const PAGEOUT: u64 = 21;
    /// Fault in for reading, since Linux 5.14.
    pub const POPULATE_READ: u64 = 22;
    /// Fault in for writing, since Linux 5.14.
    pub const POPULATE_WRITE: u64 = 23;
    /// Drop the content, also of locked memory, since Linux 5.18.
    pub const DONTNEED_LOCKED: u64 = 24;
    /// Large pages now, since Linux 6.1.
    pub const COLLAPSE: u64 = 25;
    /// Guard pages without a mapping of their own, since Linux 6.13.
    pub const GUARD_INSTALL: u64 = 102;
    /// Takes them away.
    pub const GUARD_REMOVE: u64 = 103;
}

/// `PR_*`.
pub mod pr {
    /// Sets whether the process has no transparent huge pages.
    pub const SET_THP_DISABLE: u32 = 41;
    /// Asks for that.
    pub const GET_THP_DISABLE: u32 = 42;
    /// PR_THP_DISABLE_EXCEPT_ADVISED, since Linux 6.18: advised memory stays as it is.
    pub const THP_DISABLE_EXCEPT_ADVISED: u64 = 1 << 1;
}

/// A mapping (VMA), as far as a decision asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vma {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// [`prot`].
    pub protection: u64,
    /// Whether it is private anonymous memory, and no stack that grows.
    pub is_anonymous: bool,
    /// Whether it has a name, the program's or the kernel's.
    pub is_named: bool,
}

impl Vma {
    /// Bytes of addresses.
    pub fn length_bytes(&self) -> u64 {
        self.end - self.start
    }
}
