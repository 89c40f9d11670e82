//! The parts that entries of both arm64 stages share.
//!
//! Source: Arm Architecture Reference Manual (DDI 0487), D8.3 "Translation table descriptor formats" and D8.16.1
//! (break-before-make).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::arm64_bits::{AF, CONTIGUOUS, DBM, IGNORED, SH, SH_INNER, SH_RESERVED, SOFTWARE, TABLE, VALID};
pub use super::arm64_shape::{Arm64, Granule, is_physical_bits};
use super::bits::mask;
use super::{BreakLevel, Change, Discipline, Field, Fields, Format, Kind, Pattern};
use crate::address::{InputAddress, OutputAddress};
use crate::attributes::{Attributes, Flags};
use crate::error::Error;
use crate::geometry::Geometry;
use crate::rule::Rule;

/// The parts that differ between the two stages: permissions, memory types, registers.
pub trait Stage: Copy + fmt::Debug {
    /// The format's name with this granule.
    fn name(granule: Granule) -> &'static str;

    /// The flags of a page that is executable by user code (`user`), or by the kernel only.
    fn execute(user: bool) -> Flags;

    /// The memory type index of normal cacheable memory.
    const NORMAL_MEMORY: u8;

    /// The bits of a leaf that hold [`Attributes`], except the accessed flag.
    fn attribute_bits(format: &Arm64<Self>) -> u64;

    /// The attribute bits whose change needs an invalidation but no break (D8.16.1).
    fn permission_bits(old: u64, new: u64) -> u64;

    /// Encodes the attributes in the bits of [`Stage::attribute_bits`].
    ///
    /// # Errors
    /// The name of the attribute that no entry can express.
    fn encoded(format: &Arm64<Self>, attributes: Attributes) -> Result<u64, &'static str>;

    /// Decodes the attributes of an entry, except its state.
    fn decoded(format: &Arm64<Self>, entry: u64) -> Attributes;

    /// Whether a leaf with hardware-managed dirty state is dirty.
    fn is_dirty(entry: u64) -> bool;

    /// The same leaf, marked dirty or clean.
    fn with_dirty(entry: u64, dirty: bool) -> u64;

    /// The flags that a table entry removes from the leaves below it.
    fn restrictions(entry: u64) -> Flags;

    /// Reports the broken rules that apply only to leaves of this stage.
    fn rules(format: &Arm64<Self>, entry: u64, broken: &mut dyn FnMut(Rule));

    /// Adds the fields of leaves and table entries that only this stage has.
    fn fields(format: &Arm64<Self>, kind: Kind, entry: u64, fields: &mut Fields);

    /// The registers that select the format and the root, with their values.
    fn registers(format: &Arm64<Self>, root: OutputAddress) -> Vec<(&'static str, u64)>;
}

impl<S: Stage> Format for Arm64<S> {
    fn name(&self) -> &'static str {
        S::name(self.granule)
    }

    /// The manual counts levels from the top: its level 3 holds pages.
    fn level_name(&self, level: u8) -> String {
        alloc::format!("level {}", 3 - i16::from(level))
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline]
    fn kind(&self, level: u8, entry: u64) -> Kind {
        self.kind_of(level, entry)
    }

    /// The bits of an address of more than 48 bits are not contiguous, so no pattern matches them.
    #[inline]
    fn table_pattern(&self) -> Pattern {
        let value = VALID.mask | TABLE.mask;
        if self.is_wide {
            Pattern::NONE
        } else {
            Pattern { mask: value, value, address: mask(47, self.granule.shift()) }
        }
    }

    #[inline]
    fn leaf_pattern(&self, level: u8) -> Pattern {
        if self.is_wide || !self.has_leaves_at(level) {
            return Pattern::NONE;
        }
        let address = mask(47, self.geometry.shift(level) as u8);
        Pattern { mask: VALID.mask | TABLE.mask, value: Arm64::<S>::leaf_type(level), address }
    }

    #[inline]
    fn table_address(&self, entry: u64) -> OutputAddress {
        OutputAddress(self.gathered(entry, u32::from(self.granule.shift())))
    }

    #[inline]
    fn leaf_address(&self, level: u8, entry: u64, _va: InputAddress) -> OutputAddress {
        OutputAddress(self.gathered(entry, self.geometry.shift(level)))
    }

    #[inline]
    fn group_bits(&self, level: u8, entry: u64) -> u8 {
        if CONTIGUOUS.is_set(entry) { self.group_bits_of(level) } else { 0 }
    }

    fn attributes(&self, _level: u8, entry: u64) -> Attributes {
        let attributes = S::decoded(self, entry);
        Attributes { flags: attributes.flags | self.state(entry), ..attributes }
    }

    fn restrictions(&self, entry: u64) -> Flags {
        S::restrictions(entry)
    }

    #[inline]
    fn has_leaf(&self, level: u8) -> bool {
        self.has_leaves_at(level)
    }

    #[inline]
    fn group_bits_at(&self, level: u8) -> u8 {
        self.group_bits_of(level)
    }

    fn execute(&self, user: bool) -> Flags {
        S::execute(user)
    }

    fn normal_memory(&self) -> u8 {
        S::NORMAL_MEMORY
    }

    fn leaf(&self, level: u8, attributes: Attributes, grouped: bool) -> Result<u64, Error> {
        let shareability = if self.is_lpa2() { 0 } else { SH_INNER };
        let contiguous = CONTIGUOUS.when(grouped);
        Ok(Arm64::<S>::leaf_type(level) | shareability | contiguous | self.encoded(attributes)?)
    }

    #[inline]
    fn address_bits(&self, _level: u8, pa: u64, _grouped: bool) -> u64 {
        self.scattered(pa)
    }

    #[inline]
    fn table(&self, pa: OutputAddress) -> u64 {
        VALID.mask | TABLE.mask | self.scattered(pa.0)
    }

    fn with_attributes(&self, _level: u8, entry: u64, attributes: Attributes) -> Result<u64, Error> {
        Ok(entry & !(S::attribute_bits(self) | AF.mask) | self.encoded(attributes)?)
    }

    fn software_bits(&self) -> u64 {
        SOFTWARE.mask
    }

    #[inline]
    fn state(&self, entry: u64) -> Flags {
        let mut flags = Flags::empty();
        flags.set(Flags::ACCESSED, AF.is_set(entry));
        flags.set(Flags::DIRTY, self.hardware_dirty && S::is_dirty(entry));
        flags
    }

    #[inline]
    fn state_bits(&self) -> Option<u64> {
        if self.hardware_dirty { None } else { Some(AF.mask) }
    }

    /// Only a leaf with DBM has dirty state.
    #[inline]
    fn with_state(&self, entry: u64, state: Flags) -> u64 {
        let entry = entry & !AF.mask | AF.when(state.contains(Flags::ACCESSED));
        let managed = self.hardware_dirty && DBM.is_set(entry);
        if managed { S::with_dirty(entry, state.contains(Flags::DIRTY)) } else { entry }
    }

    fn discipline(&self) -> Discipline {
        Discipline::BreakBeforeMake(self.break_level)
    }

    /// Applies break-before-make (D8.16.1).
    fn change(&self, level: u8, old: u64, new: u64) -> Change {
        match (self.kind_of(level, old), self.kind_of(level, new)) {
            (Kind::Hole | Kind::Illegal, _) => return Change::Free,
            (_, Kind::Hole | Kind::Illegal) => return Change::Invalidate,
            (Kind::Table, Kind::Table) if old == new => return Change::Free,
            (Kind::Table, Kind::Table) => return Change::Break,
            (Kind::Leaf, Kind::Leaf) => {}
            (Kind::Leaf, Kind::Table) | (Kind::Table, Kind::Leaf) => return self.resize(level, old, new),
        }
        // An entry without AF is never cached in a TLB.
        let never_cached = AF.when(!AF.is_set(old));
        let changed = (old ^ new) & !(SOFTWARE.mask | IGNORED.mask | Arm64::<S>::nt(level) | never_cached);
        match changed & !(AF.mask | DBM.mask | S::permission_bits(old, new)) {
            _ if changed == 0 => Change::Free,
            0 => Change::Invalidate,
            rest if rest == CONTIGUOUS.mask => self.resize(level, old, new),
            _ => Change::Break,
        }
    }

    fn rules(&self, level: u8, entry: u64, broken: &mut dyn FnMut(Rule)) {
        let kind = self.kind_of(level, entry);
        match kind {
            Kind::Hole => return,
            Kind::Illegal if level == 0 => broken(Rule::PageType),
            Kind::Illegal => broken(Rule::LeafLevel),
            Kind::Table | Kind::Leaf => {}
        }
        let pa = self.gathered(entry, u32::from(self.granule.shift()));
        if pa >> self.geometry.output_bits() != 0 {
            broken(Rule::AddressTooLarge { pa: OutputAddress(pa) });
        }
        if kind != Kind::Leaf {
            return;
        }
        let nt = if self.break_level == BreakLevel::Zero { 0 } else { Arm64::<S>::nt(level) };
        let low = if level == 0 { 0 } else { pa & (self.geometry.span(level) - 1) & !nt };
        if low != 0 {
            broken(Rule::MisalignedLeaf { bits: low });
        }
        let unused = self.unused_address_bits() & entry;
        if level == 0 && unused != 0 {
            broken(Rule::Ignored { bits: unused });
        }
        if !self.is_lpa2() && entry & SH.mask == SH_RESERVED {
            broken(Rule::Shareability);
        }
        if CONTIGUOUS.is_set(entry) && self.group_bits_of(level) == 0 {
            broken(Rule::GroupLevel);
        }
        S::rules(self, entry, broken);
    }

    /// An Address size fault (D8.1.6). The bits of a block below its address are RES0, and hardware may ignore them.
    fn faults(&self, rule: Rule) -> bool {
        matches!(rule, Rule::AddressTooLarge { .. })
    }

    fn fields(&self, level: u8, entry: u64) -> Vec<Field> {
        self.entry_fields(level, entry)
    }

    /// D17.2, TTBR0_EL1.BADDR and VTTBR_EL2.BADDR: at least 64 bytes.
    fn root_alignment(&self) -> u64 {
        self.geometry.table_bytes(self.geometry.root_level()).max(64)
    }

    fn registers(&self, root: OutputAddress) -> Vec<(&'static str, u64)> {
        S::registers(self, root)
    }
}

impl<S: Stage> Arm64<S> {
    #[inline]
    fn encoded(&self, attributes: Attributes) -> Result<u64, Error> {
        let inexpressible = |what| Err(Error::Inexpressible { what, format: self.name() });
        let (write, dirty) = (attributes.flags.contains(Flags::WRITE), attributes.flags.contains(Flags::DIRTY));
        if dirty && !self.hardware_dirty {
            return inexpressible("dirty state without FEAT_HAFDBS");
        } else if dirty && !write {
            return inexpressible("dirty memory that cannot be written");
        }
        let accessed = AF.when(attributes.flags.contains(Flags::ACCESSED));
        S::encoded(self, attributes).map(|bits| bits | accessed).or_else(inexpressible)
    }
}
