//! Memory attributes of a leaf, in terms that all formats share.

use bitflags::bitflags;

bitflags! {
    /// Permissions and states of a leaf.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Flags: u16 {
        /// Reads are allowed.
        const READ = 1 << 0;
        /// Writes are allowed.
        const WRITE = 1 << 1;
        /// The privileged level (kernel mode, EL1, S-mode) may fetch instructions.
        const KERNEL_EXECUTE = 1 << 2;
        /// The unprivileged level (user mode, EL0, U-mode) may fetch instructions.
        const USER_EXECUTE = 1 << 3;
        /// The unprivileged level may access the memory.
        const USER = 1 << 4;
        /// Valid in every address space: x86 G, RISC-V G, arm64 not nG.
        const GLOBAL = 1 << 5;
        /// The memory was accessed: A, AF.
        const ACCESSED = 1 << 6;
        /// The memory was written: D; arm64 with hardware dirty state: writable and AP[2] = 0.
        const DIRTY = 1 << 7;
        /// Indirect branches must land on a landing pad: arm64 GP.
        const GUARDED = 1 << 8;
    }
}

impl Flags {
    /// The flags that hardware sets on its own, in any one entry of a contiguous group.
    pub const STATE: Flags = Flags::ACCESSED.union(Flags::DIRTY);
}

/// Everything that a leaf specifies except its address and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// Permissions and states.
    pub flags: Flags,
    /// The index of the memory type in the format's own table: x86 PAT index (0 to 7), arm64 AttrIndx into MAIR (0 to
    /// 7), arm64 stage 2 MemAttr (0 to 15), RISC-V PBMT (0 to 2). For the first two a register defines what the index
    /// means, so the field holds an index and not a name.
    pub memory: u8,
    /// The protection key: x86 bits 62:59, arm64 POIndex bits 62:60; 0 elsewhere.
    pub key: u8,
}

impl Attributes {
    /// Attributes with these flags, memory type 0 and key 0.
    pub const fn new(flags: Flags) -> Attributes {
        Attributes { flags, memory: 0, key: 0 }
    }
}
