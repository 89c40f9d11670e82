//! Page-table formats: the meaning of the bits of an entry. Each format is one file and cites its specification.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::address::{InputAddress, OutputAddress};
use crate::attributes::{Attributes, Flags};
use crate::error::Error;
use crate::geometry::Geometry;
use crate::rule::Rule;

pub mod arm64;
mod arm64_bits;
mod arm64_fields;
mod arm64_shape;
pub mod arm64_stage1;
pub mod arm64_stage2;
mod bits;
mod field;
pub mod named;
pub mod riscv;
mod riscv_bits;
pub mod software_64k;
pub mod x86_64;

pub use field::{Field, Fields};

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The entry is not valid; software may use all other bits.
    Hole,
    /// The entry points to a table of the next lower level.
    Table,
    /// The entry maps memory.
    Leaf,
    /// The entry is valid, but hardware always refuses it; [`Format::rules`] reports why.
    Illegal,
}

/// How far arm64 hardware supports changing the size of a live mapping (Arm ARM D8.16.1, FEAT_BBM).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BreakLevel {
    /// The old entry must be made invalid and the TLBs invalidated before the new one is written.
    Zero,
    /// As zero, but instead of a break the nT bit may be set in the entry before its size changes.
    One,
    /// Sizes and contiguity may change without a break; both translations may be used until the TLBs are
    /// invalidated.
    Two,
}

/// The rules for changing tables that hardware may be walking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Discipline {
    /// x86-64: the new entry is written over the old one, then the TLBs are invalidated (SDM vol. 3, 5.10.4).
    WriteThenInvalidate,
    /// RISC-V: as x86-64 with SFENCE.VMA, but the entries of a NAPOT group are cleared, fenced and then written again
    /// (privileged specification, Svnapot).
    FenceGroups,
    /// arm64: break-before-make as far as the level requires it.
    BreakBeforeMake(BreakLevel),
}

/// What the change of one live entry requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// Nothing: no TLB can hold what changed.
    Free,
    /// An invalidation afterwards; until then both the old and the new entry may be used.
    Invalidate,
    /// The old entry must be invalid, and the TLBs invalidated, before the new one is written.
    Break,
}

/// A quick test that recognizes most entries of one kind: those whose `mask` bits equal `value`.
///
/// An entry that does not match may still be of that kind; [`Format::kind`] decides. An entry that matches is of that
/// kind, and its address is its `address` bits, shifted up by [`Format::ADDRESS_SHIFT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The bits to compare.
    pub mask: u64,
    /// The value that they must have.
    pub value: u64,
    /// The bits of the entry that hold the address.
    pub address: u64,
}

impl Pattern {
    /// A pattern that matches no entry.
    pub const NONE: Pattern = Pattern { mask: 0, value: 1, address: 0 };

    /// The address in `entry`, if it matches; `shift` is the format's [`Format::ADDRESS_SHIFT`].
    #[inline(always)]
    pub const fn address(self, entry: u64, shift: u32) -> Option<OutputAddress> {
        if entry & self.mask == self.value { Some(OutputAddress((entry & self.address) << shift)) } else { None }
    }
}

/// Formats a size such as `64K`, `2M`, `16G`. Sizes of groups are powers of two.
pub(crate) fn size(bytes: u64) -> String {
    let (letter, shift) = [("T", 40), ("G", 30), ("M", 20), ("K", 10)]
        .into_iter()
        .find(|(_, shift)| bytes >> shift != 0)
        .unwrap_or(("", 0));
    alloc::format!("{}{letter}", bytes >> shift)
}

/// A page-table format: a value that holds granule, address bits and features.
///
/// Levels count from the leaf table: level 0 holds pages. Entries are hardware entries, even where software writes
/// several of them as one.
///
/// ```
/// use paging::format::{Kind, x86_64::X86_64};
/// use paging::{Flags, Format, InputAddress, OutputAddress};
///
/// // An entry of a page directory, which is level 1.
/// let (format, entry) = (X86_64::new(4, 46), 0x8000_0000_0020_00e7);
/// assert_eq!((format.level_name(1).as_str(), format.kind(1, entry)), ("PD", Kind::Leaf));
/// assert_eq!(format.geometry().span(1), 2 << 20);
/// assert_eq!(format.leaf_address(1, entry, InputAddress(0)), OutputAddress(0x20_0000));
/// let flags = format.attributes(1, entry).flags;
/// assert!(flags.contains(Flags::WRITE | Flags::USER | Flags::DIRTY) && !flags.contains(Flags::USER_EXECUTE));
/// ```
pub trait Format: Copy + fmt::Debug {
    /// How far the address in an entry that a [`Pattern`] matches is shifted below its real position.
    const ADDRESS_SHIFT: u32 = 0;

    /// Its name in messages.
    fn name(&self) -> &'static str;

    /// The name of a level in the format's own specification or in Linux.
    fn level_name(&self, level: u8) -> String;

    /// The shape of its tables.
    fn geometry(&self) -> Geometry;

    /// The kind of `entry` at `level`; never a table at level 0.
    fn kind(&self, level: u8, entry: u64) -> Kind;

    /// The pattern of entries above level 0 that are [`Kind::Table`]; its address is that of [`Format::table_address`].
    fn table_pattern(&self) -> Pattern {
        Pattern::NONE
    }

    /// The pattern of entries at `level` that are [`Kind::Leaf`]; its address is that of [`Format::leaf_address`] for any `va`.
    fn leaf_pattern(&self, level: u8) -> Pattern {
        let _ = level;
        Pattern::NONE
    }

    /// The address of the table that a [`Kind::Table`] entry points to.
    fn table_address(&self, entry: u64) -> OutputAddress;

    /// The first address of the memory that a [`Kind::Leaf`] entry maps at `va`. `va` matters only to formats in which
    /// one entry represents a whole group.
    fn leaf_address(&self, level: u8, entry: u64, va: InputAddress) -> OutputAddress;

    /// log2 of the entries in the contiguous group that a leaf belongs to; 0 if it belongs to none.
    fn group_bits(&self, level: u8, entry: u64) -> u8;

    /// The attributes of a leaf.
    fn attributes(&self, level: u8, entry: u64) -> Attributes;

    /// The flags that a table entry removes from every leaf below it.
    fn restrictions(&self, entry: u64) -> Flags {
        let _ = entry;
        Flags::empty()
    }

    /// Whether leaves are possible at `level`.
    fn has_leaf(&self, level: u8) -> bool;

    /// log2 of the entries of a contiguous group at `level`; 0 where there are none.
    fn group_bits_at(&self, level: u8) -> u8;

    /// log2 of the hardware entries that software always writes together, at every level.
    fn run_bits(&self) -> u8 {
        0
    }

    /// The flags of a page that is executable by user code (`user`), or by the kernel only, as operating systems expect.
    fn execute(&self, user: bool) -> Flags;

    /// The index of normal cacheable memory in [`Attributes::memory`].
    fn normal_memory(&self) -> u8 {
        0
    }

    /// A leaf at `level` without its address; `grouped` if it belongs to a contiguous group.
    ///
    /// # Errors
    /// An entry cannot express the attributes.
    fn leaf(&self, level: u8, attributes: Attributes, grouped: bool) -> Result<u64, Error>;

    /// The bits of a leaf at `level` for the address `pa` or for a part of one: each bit of the address has a fixed position.
    fn address_bits(&self, level: u8, pa: u64, grouped: bool) -> u64;

    /// An entry that points to the table at `pa`.
    fn table(&self, pa: OutputAddress) -> u64;

    /// The leaf with other attributes; software bits and its membership in a group stay.
    ///
    /// # Errors
    /// An entry cannot express the attributes.
    fn with_attributes(&self, level: u8, entry: u64, attributes: Attributes) -> Result<u64, Error>;

    /// The bits of an entry that hardware leaves to software, in valid entries and in others.
    fn software_bits(&self) -> u64;

    /// The accessed and dirty flags of a leaf.
    fn state(&self, entry: u64) -> Flags;

    /// The bits of the accessed and dirty flags, if every leaf has one bit for each.
    fn state_bits(&self) -> Option<u64> {
        None
    }

    /// The leaf with the accessed and dirty flags of `state`, which is a subset of [`Flags::STATE`].
    fn with_state(&self, entry: u64, state: Flags) -> u64;

    /// The rules for changing live tables.
    fn discipline(&self) -> Discipline;

    /// What the change of a live entry from `old` to `new` requires, according to the architecture alone.
    fn change(&self, level: u8, old: u64, new: u64) -> Change;

    /// Calls `broken` for each rule that `entry` breaks on its own, without its neighbours.
    fn rules(&self, level: u8, entry: u64, broken: &mut dyn FnMut(Rule));

    /// Whether hardware faults on every access through an entry that breaks `rule`, in addition to entries that are
    /// [`Kind::Illegal`]. Software walks continue regardless.
    fn faults(&self, rule: Rule) -> bool {
        let _ = rule;
        false
    }

    /// Every field of `entry`, with its name, highest bits first.
    fn fields(&self, level: u8, entry: u64) -> Vec<Field>;

    /// The required alignment of the root table, in bytes.
    fn root_alignment(&self) -> u64 {
        self.geometry().table_bytes(self.geometry().root_level())
    }

    /// The registers, by name with values, that make hardware use the tables at `root`.
    fn registers(&self, root: OutputAddress) -> Vec<(&'static str, u64)>;
}

/// The first rule that `entry` breaks. `entry` must be [`Kind::Illegal`].
pub(crate) fn first_rule(format: &impl Format, level: u8, entry: u64) -> Rule {
    let mut first = None;
    format.rules(level, entry, &mut |rule| {
        first.get_or_insert(rule);
    });
    first.unwrap_or(Rule::LeafLevel)
}
