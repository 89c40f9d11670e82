//! The rules that an entry, or a group of entries, must comply with, by name.

use core::fmt;

use crate::address::OutputAddress;

/// A rule of the architecture. Its message says what is expected. The format that checks it cites the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Bits that must be zero are set.
    Reserved {
        /// The bits that are set.
        bits: u64,
    },
    /// A leaf at a level that has no leaves, or a leaf that needs a disabled feature.
    LeafLevel,
    /// arm64: the reserved descriptor type 0b01 at the level of pages.
    PageType,
    /// Bits are set that hardware ignores and software should leave clear. A warning.
    Ignored {
        /// The bits that are set.
        bits: u64,
    },
    /// A pointer to a table at a level that only has leaves.
    TableAtLeafLevel,
    /// The output address of a leaf is not a multiple of the leaf's size.
    MisalignedLeaf {
        /// The address bits that should be zero.
        bits: u64,
    },
    /// The address of memory or of a table is past the physical address space.
    AddressTooLarge {
        /// The output address.
        pa: OutputAddress,
    },
    /// RISC-V: the entry is writable but not readable.
    WriteWithoutRead,
    /// RISC-V: a pointer to a table has a memory type or the NAPOT bit.
    LeafBitInTable {
        /// The bits that are set.
        bits: u64,
    },
    /// RISC-V: a NAPOT pattern that is not a defined size, or N above level 0.
    NapotPattern,
    /// RISC-V: a leaf of the G-stage without U; every access of a guest counts as a U-mode access.
    GuestWithoutUser,
    /// The memory type is reserved.
    MemoryType,
    /// arm64: the shareability is reserved.
    Shareability,
    /// x86: D without R/W means a shadow-stack page if shadow stacks are enabled. A warning.
    ShadowStack,
    /// Only some entries of a contiguous group are valid leaves that are marked as part of it.
    GroupIncomplete,
    /// The entries of a contiguous group do not map consecutive memory from an aligned address on.
    GroupAddresses,
    /// The entries of a contiguous group differ in more than accessed and dirty.
    GroupAttributes,
    /// The contiguous bit at a level that has no groups.
    GroupLevel,
    /// The hardware entries of one software entry are not all of the same kind.
    RunIncomplete,
    /// The hardware entries of one software entry do not map, or do not point to, consecutive memory.
    RunAddresses,
    /// A table is outside the arena.
    TableOutside {
        /// The address of the table.
        pa: OutputAddress,
    },
    /// A table is its own ancestor.
    Loop {
        /// The address of the table.
        pa: OutputAddress,
    },
    /// Two entries point to the same table.
    SharedTable {
        /// The address of the table.
        pa: OutputAddress,
    },
    /// The root is not aligned to its size.
    RootAlignment {
        /// The required alignment in bytes.
        to: u64,
    },
}

/// The severity of a broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Legal, but worth checking.
    Warning,
    /// Hardware faults, or its behaviour is unpredictable.
    Error,
}

impl Rule {
    /// The severity of breaking the rule.
    pub const fn severity(self) -> Severity {
        match self {
            Rule::ShadowStack | Rule::Ignored { .. } | Rule::SharedTable { .. } => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// The rule's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::Reserved { .. } => "reserved-bits",
            Rule::LeafLevel => "leaf-level",
            Rule::PageType => "page-type",
            Rule::Ignored { .. } => "ignored-bits",
            Rule::TableAtLeafLevel => "table-at-leaf-level",
            Rule::MisalignedLeaf { .. } => "misaligned-leaf",
            Rule::AddressTooLarge { .. } => "address-too-large",
            Rule::WriteWithoutRead => "write-without-read",
            Rule::LeafBitInTable { .. } => "leaf-bit-in-table",
            Rule::NapotPattern => "napot-pattern",
            Rule::GuestWithoutUser => "guest-without-user",
            Rule::MemoryType => "memory-type",
            Rule::Shareability => "shareability",
            Rule::ShadowStack => "shadow-stack",
            Rule::GroupIncomplete => "group-incomplete",
            Rule::GroupAddresses => "group-addresses",
            Rule::GroupAttributes => "group-attributes",
            Rule::GroupLevel => "group-level",
            Rule::RunIncomplete => "run-incomplete",
            Rule::RunAddresses => "run-addresses",
            Rule::TableOutside { .. } => "table-outside",
            Rule::Loop { .. } => "loop",
            Rule::SharedTable { .. } => "shared-table",
            Rule::RootAlignment { .. } => "root-alignment",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Reserved { bits } => write!(f, "the reserved bits {bits:#x} are set; expected zero"),
            Rule::LeafLevel => f.write_str("a leaf at a level where this format has none"),
            Rule::PageType => {
                f.write_str("the descriptor type 0b01, which is reserved at the level of pages: it faults")
            }
            Rule::Ignored { bits } => {
                write!(f, "the bits {bits:#x} are set, which hardware ignores; software should leave them clear")
            }
            Rule::TableAtLeafLevel => f.write_str("a pointer to a table at the level of pages"),
            Rule::MisalignedLeaf { bits } => {
                write!(f, "the address bits {bits:#x} are set; expected an address aligned to the leaf")
            }
            Rule::AddressTooLarge { pa } => write!(f, "the address {pa:#x} is past the physical address space"),
            Rule::WriteWithoutRead => f.write_str("writable but not readable, which is reserved"),
            Rule::LeafBitInTable { bits } => {
                write!(f, "the bits {bits:#x} are set in a pointer to a table; only a leaf may have them")
            }
            Rule::NapotPattern => f.write_str("N is set and the address has no NAPOT pattern of 64K at level 0"),
            Rule::GuestWithoutUser => {
                f.write_str("U is clear in a leaf of the G-stage, so that no guest may access it")
            }
            Rule::MemoryType => f.write_str("a reserved memory type"),
            Rule::Shareability => f.write_str("the shareability 0b01 is reserved"),
            Rule::ShadowStack => f.write_str("D without R/W: with shadow stacks on, a shadow-stack page"),
            Rule::GroupIncomplete => f.write_str("some entries of the contiguous group are missing or not marked"),
            Rule::GroupAddresses => {
                f.write_str("the contiguous group does not map consecutive memory from an aligned address on")
            }
            Rule::GroupAttributes => {
                f.write_str("entries of the contiguous group differ in more than accessed and dirty")
            }
            Rule::GroupLevel => f.write_str("marked contiguous at a level that has no contiguous groups"),
            Rule::RunIncomplete => {
                f.write_str("some hardware entries of the software entry are missing or of another kind")
            }
            Rule::RunAddresses => {
                f.write_str("the hardware entries of the software entry do not map, or point to, consecutive memory")
            }
            Rule::TableOutside { pa } => write!(f, "the table at {pa:#x} is outside the image"),
            Rule::Loop { pa } => write!(f, "the table at {pa:#x} is its own ancestor"),
            Rule::SharedTable { pa } => write!(f, "the table at {pa:#x} has more than one parent"),
            Rule::RootAlignment { to } => write!(
                f,
                "the root table is not at a multiple of {to:#x}; expected its address, without the other fields of a register"
            ),
        }
    }
}
