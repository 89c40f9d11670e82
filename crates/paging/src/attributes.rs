//! What a leaf says about the memory behind it, in words that all formats share.

use bitflags::bitflags;

bitflags! {
    /// Permissions and states of a leaf.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Flags: u16 {
        /// May be read.
        const READ = 1 << 0;
        /// May be written.
        const WRITE = 1 << 1;
        /// Instructions may be fetched by the privileged level: kernel mode, EL1, S-mode.
        const KERNEL_EXECUTE = 1 << 2;
        /// Instructions may be fetched by the unprivileged level: user mode, EL0, U-mode.
        const USER_EXECUTE = 1 << 3;
        /// The unprivileged level may access it.
        const USER = 1 << 4;
        /// Belongs to every address space: x86 G, RISC-V G, arm64 not nG.
        const GLOBAL = 1 << 5;
        /// Was accessed: A, AF.
        const ACCESSED = 1 << 6;
        /// Was written: D; arm64 with hardware dirty state: writable and AP[2] = 0.
        const DIRTY = 1 << 7;
        /// Indirect branches must land on a landing pad: arm64 GP.
        const GUARDED = 1 << 8;
    }
}

impl Flags {
    /// What hardware sets on its own, in any one entry of a contiguous group.
    pub const STATE: Flags = Flags::ACCESSED.union(Flags::DIRTY);
}

/// What a leaf says besides its address and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// Permissions and states.
    pub flags: Flags,
    /// The index of the memory type in the format's own table: x86 PAT index (0 to 7), arm64 AttrIndx into
    /// MAIR (0 to 7), arm64 stage 2 MemAttr (0 to 15), RISC-V PBMT (0 to 2). What the index means stands in
    /// a register for the first two, which is why it is not a name here.
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
