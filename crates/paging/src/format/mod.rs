//! Formats: what the bits of an entry mean. One format is one file, and each cites its specification.

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

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Not valid: whatever else it holds is software's.
    Hole,
    /// Points to a table of the next lower level.
    Table,
    /// Maps memory.
    Leaf,
    /// Valid and refused by the hardware wherever it is met; [`Format::rules`] says why.
    Illegal,
}

/// How far arm64 hardware bears that the size of a live mapping changes (Arm ARM D8.16.1, FEAT_BBM).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BreakLevel {
    /// The old entry must be made invalid and the TLBs invalidated before the new one is written.
    Zero,
    /// As zero, or the entry says so with the nT bit before its size changes.
    One,
    /// Sizes and contiguity may change without a break; both translations may be used until the TLBs are
    /// invalidated.
    Two,
}

/// How tables that hardware may be walking are to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Discipline {
    /// x86-64: the new entry is written over the old one, then the TLBs are invalidated (SDM vol. 3, 5.10.4).
    WriteThenInvalidate,
    /// RISC-V: as x86-64 with SFENCE.VMA, but the entries of a NAPOT group are emptied, fenced and written
    /// anew (privileged specification, Svnapot).
    FenceGroups,
    /// arm64: break-before-make as far as the level asks for it.
    BreakBeforeMake(BreakLevel),
}

/// What a change of one live entry needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// Nothing: no TLB can hold what changed.
    Free,
    /// An invalidation afterwards; until then both the old and the new entry may be used.
    Invalidate,
    /// The old entry must be invalid, and the TLBs invalidated, before the new one is written.
    Break,
}

/// Most entries of one kind, as a few bits tell them: those whose `mask` bits are `value`.
///
/// What does not match may be of that kind all the same; [`Format::kind`] knows. What matches is of that kind, and
/// its address is `address` of its bits, shifted up by [`Format::ADDRESS_SHIFT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The bits that are looked at.
    pub mask: u64,
    /// What they must be.
    pub value: u64,
    /// The bits of the address.
    pub address: u64,
}

impl Pattern {
    /// Matches no entry.
    pub const NONE: Pattern = Pattern { mask: 0, value: 1, address: 0 };

    /// The address in `entry`, if it matches; `shift` is the format's [`Format::ADDRESS_SHIFT`].
    #[inline(always)]
    pub const fn address(self, entry: u64, shift: u32) -> Option<OutputAddress> {
        if entry & self.mask == self.value { Some(OutputAddress((entry & self.address) << shift)) } else { None }
    }
}

/// Bytes as in `64K`, `2M`, `16G`: those of groups, which are powers of two.
pub(crate) fn size(bytes: u64) -> String {
    let (letter, shift) = [("T", 40), ("G", 30), ("M", 20), ("K", 10)]
        .into_iter()
        .find(|(_, shift)| bytes >> shift != 0)
        .unwrap_or(("", 0));
    alloc::format!("{}{letter}", bytes >> shift)
}

/// A page-table format: a value that holds granule, address bits and features.
///
/// Levels count from the leaf table: 0 holds pages. Entries are hardware entries, also where software
/// writes several of them as one.
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
    /// How far below its place an address stands in an entry that a [`Pattern`] tells.
    const ADDRESS_SHIFT: u32 = 0;

    /// What messages call it.
    fn name(&self) -> &'static str;

    /// The name of a level, as the format's own specification or Linux calls it.
    fn level_name(&self, level: u8) -> String;

    /// The shape of its tables.
    fn geometry(&self) -> Geometry;

    /// What `entry` at `level` is; never a table at level 0.
    fn kind(&self, level: u8, entry: u64) -> Kind;

    /// Entries above level 0 that are [`Kind::Table`], and what [`Format::table_address`] is.
    fn table_pattern(&self) -> Pattern {
        Pattern::NONE
    }

    /// Entries of `level` that are [`Kind::Leaf`], and what [`Format::leaf_address`] is at any address.
    fn leaf_pattern(&self, level: u8) -> Pattern {
        let _ = level;
        Pattern::NONE
    }

    /// Where the table is that a [`Kind::Table`] entry points to.
    fn table_address(&self, entry: u64) -> OutputAddress;

    /// Where the memory begins that a [`Kind::Leaf`] entry maps at `va`, which matters only to formats
    /// whose entry stands for a whole group.
    fn leaf_address(&self, level: u8, entry: u64, va: InputAddress) -> OutputAddress;

    /// log2 of the entries of the contiguous group that a leaf says it belongs to; 0 if to none.
    fn group_bits(&self, level: u8, entry: u64) -> u8;

    /// What a leaf says besides its address.
    fn attributes(&self, level: u8, entry: u64) -> Attributes;

    /// The flags that a table entry takes from every leaf below it.
    fn restrictions(&self, entry: u64) -> Flags {
        let _ = entry;
        Flags::empty()
    }

    /// Whether leaves may stand at `level`.
    fn has_leaf(&self, level: u8) -> bool;

    /// log2 of the entries of a contiguous group at `level`; 0 where there are none.
    fn group_bits_at(&self, level: u8) -> u8;

    /// log2 of the hardware entries that software always writes together, at every level.
    fn run_bits(&self) -> u8 {
        0
    }

    /// The flags that say "may be executed" of a page for `user` or not, as its users expect.
    fn execute(&self, user: bool) -> Flags;

    /// The index of ordinary cacheable memory in [`Attributes::memory`].
    fn normal_memory(&self) -> u8 {
        0
    }

    /// A leaf at `level` without its address; `grouped` if it belongs to a contiguous group.
    ///
    /// # Errors
    /// Attributes that an entry cannot express.
    fn leaf(&self, level: u8, attributes: Attributes, grouped: bool) -> Result<u64, Error>;

    /// The bits that a leaf at `level` has for the address `pa`, or for a part of one: each bit of it has a place.
    fn address_bits(&self, level: u8, pa: u64, grouped: bool) -> u64;

    /// An entry that points to the table at `pa`.
    fn table(&self, pa: OutputAddress) -> u64;

    /// The leaf with other attributes; software's bits and its place in a group stay.
    ///
    /// # Errors
    /// Attributes that an entry cannot express.
    fn with_attributes(&self, level: u8, entry: u64, attributes: Attributes) -> Result<u64, Error>;

    /// The bits of an entry that hardware leaves to software, whether it is valid or not.
    fn software_bits(&self) -> u64;

    /// The accessed and dirty flags of a leaf.
    fn state(&self, entry: u64) -> Flags;

    /// The bits that are the accessed and dirty flags, if each is a bit that says so in every leaf.
    fn state_bits(&self) -> Option<u64> {
        None
    }

    /// The leaf with the accessed and dirty flags of `state`, which is a part of [`Flags::STATE`].
    fn with_state(&self, entry: u64, state: Flags) -> u64;

    /// How live tables are changed.
    fn discipline(&self) -> Discipline;

    /// What the change of a live entry from `old` to `new` needs, by the architecture alone.
    fn change(&self, level: u8, old: u64, new: u64) -> Change;

    /// Tells `broken` of each rule that `entry` breaks on its own, without its neighbours.
    fn rules(&self, level: u8, entry: u64, broken: &mut dyn FnMut(Rule));

    /// Whether hardware faults on every access through an entry that breaks `rule`, besides those that are
    /// [`Kind::Illegal`]. Walks of software go on all the same.
    fn faults(&self, rule: Rule) -> bool {
        let _ = rule;
        false
    }

    /// Every field of `entry`, by name, highest bits first.
    fn fields(&self, level: u8, entry: u64) -> Vec<Field>;

    /// What the address of the root table must be a multiple of.
    fn root_alignment(&self) -> u64 {
        self.geometry().table_bytes(self.geometry().root_level())
    }

    /// What the hardware is told so that it uses the tables at `root`: registers by name, and values.
    fn registers(&self, root: OutputAddress) -> Vec<(&'static str, u64)>;
}

/// The rule that `entry` breaks first; for an entry that is [`Kind::Illegal`].
pub(crate) fn first_rule(format: &impl Format, level: u8, entry: u64) -> Rule {
    let mut first = None;
    format.rules(level, entry, &mut |rule| {
        first.get_or_insert(rule);
    });
    first.unwrap_or(Rule::LeafLevel)
}
