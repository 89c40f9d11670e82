//! What the two stages of arm64 have in common: granules, levels, blocks, contiguous groups, addresses.
//!
//! Source: Arm Architecture Reference Manual (DDI 0487), D8.2 "Translation process" and D8.3 "Translation table
//! descriptor formats"; arch/arm64/include/asm/pgtable-hwdef.h for the arithmetic of levels; for contiguous groups the
//! A-profile pseudocode, as translated from Arm's release of 2023-03 in rems-project/sail-arm
//! (arm-v9.4-a/src/v8_base.sail).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{BreakLevel, Change, Discipline, Field, Fields, Format, Kind, Pattern, mask};
use crate::attributes::{Attributes, Flags};
use crate::error::Error;
use crate::extension::Extension;
use crate::geometry::Geometry;
use crate::rule::Rule;

const VALID: u64 = 1 << 0;
/// In a valid entry above level 0: points to a table. In one of level 0: must be set.
const TABLE: u64 = 1 << 1;
const SH: u64 = mask(9, 8);
const SH_INNER: u64 = 3 << 8;
pub(super) const AF: u64 = 1 << 10;
/// FEAT_BBM level 1: no TLB may hold this block.
const NT: u64 = 1 << 16;
pub(super) const DBM: u64 = 1 << 51;
pub(super) const CONTIGUOUS: u64 = 1 << 52;
const SOFTWARE: u64 = mask(58, 55);

/// The translation granule: the page, and with it the tables' size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Granule {
    /// 4K pages.
    K4,
    /// 16K pages.
    K16,
    /// 64K pages.
    K64,
}

impl Granule {
    /// log2 of a page's bytes.
    pub const fn shift(self) -> u8 {
        match self {
            Granule::K4 => 12,
            Granule::K16 => 14,
            Granule::K64 => 16,
        }
    }
}

/// Translation at the stage `S`, by tables of one granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm64<S> {
    pub(super) granule: Granule,
    pub(super) geometry: Geometry,
    /// Entries have room for output addresses of 52 bits, some of which stand elsewhere. With 4K and 16K that is a
    /// choice (TCR_EL1.DS, VTCR_EL2.DS), which input addresses of 52 bits need too; with 64K it is the size itself.
    pub(super) is_wide: bool,
    pub(super) break_level: BreakLevel,
    pub(super) hardware_dirty: bool,
    pub(super) stage: S,
}

/// The sizes of output addresses that a register can choose (D17.2, TCR_EL1.IPS), by its value.
const PHYSICAL_BITS: [u8; 7] = [32, 36, 40, 42, 44, 48, 52];

/// Whether a register can choose output addresses of so many bits.
pub const fn is_physical_bits(bits: u8) -> bool {
    let mut value = 0;
    while value < PHYSICAL_BITS.len() {
        if PHYSICAL_BITS[value] == bits {
            return true;
        }
        value += 1;
    }
    false
}

/// What the two stages do not share: permissions, memory types, registers.
pub trait Stage: Copy + fmt::Debug {
    /// The format's name with a granule.
    fn name(granule: Granule) -> &'static str;

    /// The flags that say "may be executed" of a page for `user` or not.
    fn execute(user: bool) -> Flags;

    /// The index of ordinary cacheable memory.
    const NORMAL_MEMORY: u8;

    /// The bits of a leaf that hold [`Attributes`], the accessed flag aside.
    fn attribute_bits(format: &Arm64<Self>) -> u64;

    /// Those of them whose change needs an invalidation and no break (D8.16.1).
    fn permission_bits(old: u64, new: u64) -> u64;

    /// The attributes as [`Stage::attribute_bits`].
    ///
    /// # Errors
    /// What it is that no entry can express.
    fn encoded(format: &Arm64<Self>, attributes: Attributes) -> Result<u64, &'static str>;

    /// The attributes that an entry has, state aside.
    fn decoded(format: &Arm64<Self>, entry: u64) -> Attributes;

    /// Whether a leaf whose writes hardware manages is dirty.
    fn is_dirty(entry: u64) -> bool;

    /// The same leaf dirty or clean.
    fn with_dirty(entry: u64, dirty: bool) -> u64;

    /// The flags that a table takes from what is below.
    fn restrictions(entry: u64) -> Flags;

    /// The rules of leaves that only this stage has.
    fn rules(format: &Arm64<Self>, entry: u64, broken: &mut dyn FnMut(Rule));

    /// The fields of leaves, and of entries that point to tables, that only this stage has.
    fn fields(format: &Arm64<Self>, kind: Kind, entry: u64, fields: &mut Fields);

    /// The registers that choose the format and the root.
    fn registers(format: &Arm64<Self>, root: u64) -> Vec<(&'static str, u64)>;
}

impl<S: Copy> Arm64<S> {
    pub(super) const fn with_stage(granule: Granule, levels: u8, input_bits: u8, stage: S) -> Arm64<S> {
        let is_wide = input_bits > 48;
        let output_bits = if is_wide { 52 } else { 48 };
        let geometry = Geometry::new(granule.shift(), levels, input_bits, output_bits, Extension::Zero);
        Arm64 { granule, geometry, is_wide, break_level: BreakLevel::Zero, hardware_dirty: false, stage }
    }

    /// The same format on hardware with this level of FEAT_BBM.
    pub const fn with_break_level(mut self, level: BreakLevel) -> Arm64<S> {
        self.break_level = level;
        self
    }

    /// The same format with dirty state managed by hardware (FEAT_HAFDBS; TCR_EL1.HD, VTCR_EL2.HD): DBM says writable,
    /// and AP[2] clear or S2AP[1] set says dirty.
    pub const fn with_hardware_dirty(mut self) -> Arm64<S> {
        self.hardware_dirty = true;
        self
    }

    /// The same format with output addresses of `physical_bits` (TCR_EL1.IPS, VTCR_EL2.PS), which
    /// [`is_physical_bits`] knows. More than 48 come with the entries of 52-bit addresses.
    pub const fn with_physical_bits(mut self, physical_bits: u8) -> Arm64<S> {
        assert!(is_physical_bits(physical_bits));
        self.geometry = self.geometry.with_output_bits(physical_bits);
        let wide_input = self.geometry.input_bits() > 48 && !matches!(self.granule, Granule::K64);
        self.is_wide = physical_bits > 48 || wide_input;
        self
    }

    /// The granule.
    pub const fn granule(&self) -> Granule {
        self.granule
    }

    /// 52-bit output addresses of the 4K and 16K granules (FEAT_LPA2): two address bits stand in SH's place.
    pub(super) const fn is_lpa2(&self) -> bool {
        self.is_wide && !matches!(self.granule, Granule::K64)
    }

    #[inline]
    const fn kind_of(&self, level: u8, entry: u64) -> Kind {
        match (entry & VALID != 0, entry & TABLE != 0, level) {
            (false, ..) => Kind::Hole,
            (true, true, 0) => Kind::Leaf,
            (true, true, _) => Kind::Table,
            (true, false, 1..) if self.leaf_stands_at(level) => Kind::Leaf,
            (true, false, _) => Kind::Illegal,
        }
    }

    /// Blocks: D8.3.1, "Block descriptor and Page descriptor formats", by granule and output address size.
    #[inline]
    const fn leaf_stands_at(&self, level: u8) -> bool {
        let wide = self.is_wide;
        let top = match self.granule {
            Granule::K4 => 2 + wide as u8,
            Granule::K16 | Granule::K64 => 1 + wide as u8,
        };
        level <= top
    }

    /// How many entries the Contiguous bit makes one, where a table has that many; at both stages. The architecture's
    /// pseudocode for 64-bit descriptors has groups at levels 1 to 3 with 4K, at levels 2 and 3 with 16K and 64K, and
    /// nowhere else (`ContiguousSize`). In the larger blocks of 52-bit addresses the bit is RES0: level 0 with 4K, level 1
    /// with 16K and 64K (`AArch64.ContiguousBit`). Where the group would be larger than the input addresses, hardware
    /// may fault (`AArch64.ContiguousBitFaults`).
    #[inline]
    const fn group_bits_of(&self, level: u8) -> u8 {
        let bits = match (self.granule, level) {
            (Granule::K4, 0..=2) => 4,
            (Granule::K16, 0) => 7,
            (Granule::K16, 1) => 5,
            (Granule::K64, 0 | 1) => 5,
            _ => 0,
        };
        if 1 << bits <= self.geometry.entries(level) { bits } else { 0 }
    }

    /// The address bits in their places.
    const fn address_mask(&self, low: u8) -> u64 {
        let highest = if self.is_lpa2() { 49 } else { 47 };
        mask(highest, low)
    }

    #[inline]
    const fn scattered(&self, pa: u64) -> u64 {
        // Whatever is below a larger page is zero in `pa`, which is the address of one.
        if self.is_wide { self.scattered_widely(pa) } else { pa & mask(47, 12) }
    }

    #[cold]
    const fn scattered_widely(&self, pa: u64) -> u64 {
        let low = pa & self.address_mask(self.granule.shift());
        match self.granule {
            Granule::K64 => low | (pa >> 48 & 0xf) << 12,
            Granule::K4 | Granule::K16 => low | (pa >> 50 & 3) << 8,
        }
    }

    #[inline]
    const fn gathered(&self, entry: u64, shift: u32) -> u64 {
        if !self.is_wide {
            return entry & mask(47, shift as u8);
        }
        let low = entry & self.address_mask(self.granule.shift()) & !((1 << shift) - 1);
        match self.granule {
            Granule::K64 => low | (entry >> 12 & 0xf) << 48,
            Granule::K4 | Granule::K16 => low | (entry >> 8 & 3) << 50,
        }
    }

    const fn leaf_type(level: u8) -> u64 {
        if level == 0 { VALID | TABLE } else { VALID }
    }

    /// The nT bit of a block. In a page, and in a table descriptor, it is a bit of the address.
    const fn nt(level: u8) -> u64 {
        if level == 0 { 0 } else { NT }
    }

    /// A change of size or contiguity, with the same memory behind it.
    fn resize(&self, level: u8, old: u64, new: u64) -> Change {
        let is_in_no_tlb = |entry| self.kind_of(level, entry) == Kind::Leaf && entry & Arm64::<S>::nt(level) != 0;
        match self.break_level {
            BreakLevel::Two => Change::Invalidate,
            BreakLevel::One if is_in_no_tlb(old) || is_in_no_tlb(new) => Change::Invalidate,
            BreakLevel::Zero | BreakLevel::One => Change::Break,
        }
    }
}

impl<S: Stage> Format for Arm64<S> {
    fn name(&self) -> &'static str {
        S::name(self.granule)
    }

    /// The manual counts from the top: level 3 holds pages.
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

    /// Addresses of more than 48 bits lie scattered: no pattern tells them.
    #[inline]
    fn table_pattern(&self) -> Pattern {
        let value = VALID | TABLE;
        match self.is_wide {
            true => Pattern::NONE,
            false => Pattern { mask: value, value, address: mask(47, self.granule.shift()) },
        }
    }

    #[inline]
    fn leaf_pattern(&self, level: u8) -> Pattern {
        if self.is_wide || !self.leaf_stands_at(level) {
            return Pattern::NONE;
        }
        let address = mask(47, self.geometry.shift(level) as u8);
        Pattern { mask: VALID | TABLE, value: Arm64::<S>::leaf_type(level), address }
    }

    #[inline]
    fn table_address(&self, entry: u64) -> u64 {
        self.gathered(entry, u32::from(self.granule.shift()))
    }

    #[inline]
    fn leaf_address(&self, level: u8, entry: u64, _va: u64) -> u64 {
        self.gathered(entry, self.geometry.shift(level))
    }

    #[inline]
    fn group_bits(&self, level: u8, entry: u64) -> u8 {
        if entry & CONTIGUOUS == 0 { 0 } else { self.group_bits_of(level) }
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
        self.leaf_stands_at(level)
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
        let contiguous = if grouped { CONTIGUOUS } else { 0 };
        Ok(Arm64::<S>::leaf_type(level) | shareability | contiguous | self.encoded(attributes)?)
    }

    #[inline]
    fn address_bits(&self, _level: u8, pa: u64, _grouped: bool) -> u64 {
        self.scattered(pa)
    }

    #[inline]
    fn table(&self, pa: u64) -> u64 {
        VALID | TABLE | self.scattered(pa)
    }

    fn with_attributes(&self, _level: u8, entry: u64, attributes: Attributes) -> Result<u64, Error> {
        Ok(entry & !(S::attribute_bits(self) | AF) | self.encoded(attributes)?)
    }

    fn software_bits(&self) -> u64 {
        SOFTWARE
    }

    #[inline]
    fn state(&self, entry: u64) -> Flags {
        let mut flags = Flags::empty();
        flags.set(Flags::ACCESSED, entry & AF != 0);
        flags.set(Flags::DIRTY, self.hardware_dirty && S::is_dirty(entry));
        flags
    }

    #[inline]
    fn state_bits(&self) -> Option<u64> {
        if self.hardware_dirty { None } else { Some(AF) }
    }

    /// Only a leaf with DBM has dirty state.
    #[inline]
    fn with_state(&self, entry: u64, state: Flags) -> u64 {
        let entry = if state.contains(Flags::ACCESSED) { entry | AF } else { entry & !AF };
        let managed = self.hardware_dirty && entry & DBM != 0;
        if managed { S::with_dirty(entry, state.contains(Flags::DIRTY)) } else { entry }
    }

    fn discipline(&self) -> Discipline {
        Discipline::BreakBeforeMake(self.break_level)
    }

    /// Break-before-make (D8.16.1).
    fn change(&self, level: u8, old: u64, new: u64) -> Change {
        match (self.kind_of(level, old), self.kind_of(level, new)) {
            (Kind::Hole | Kind::Illegal, _) => return Change::Free,
            (_, Kind::Hole | Kind::Illegal) => return Change::Invalidate,
            (Kind::Table, Kind::Table) if old == new => return Change::Free,
            (Kind::Table, Kind::Table) => return Change::Break,
            (Kind::Leaf, Kind::Leaf) => {}
            (Kind::Leaf, Kind::Table) | (Kind::Table, Kind::Leaf) => return self.resize(level, old, new),
        }
        // An entry without AF is in no TLB.
        let never_cached = if old & AF == 0 { AF } else { 0 };
        let changed = (old ^ new) & !(SOFTWARE | 1 << 63 | Arm64::<S>::nt(level) | never_cached);
        match changed & !(AF | DBM | S::permission_bits(old, new)) {
            _ if changed == 0 => Change::Free,
            0 => Change::Invalidate,
            CONTIGUOUS => self.resize(level, old, new),
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
            broken(Rule::AddressTooLarge { pa });
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
        if !self.is_lpa2() && entry & SH == 1 << 8 {
            broken(Rule::Shareability);
        }
        if entry & CONTIGUOUS != 0 && self.group_bits_of(level) == 0 {
            broken(Rule::GroupLevel);
        }
        S::rules(self, entry, broken);
    }

    /// An Address size fault (D8.1.6). Bits of a block below its address are RES0, and hardware may ignore them.
    fn faults(&self, rule: Rule) -> bool {
        matches!(rule, Rule::AddressTooLarge { .. })
    }

    fn fields(&self, level: u8, entry: u64) -> Vec<Field> {
        self.entry_fields(level, entry)
    }

    /// D17.2, TTBR0_EL1.BADDR and VTTBR_EL2.BADDR: 64 bytes at least.
    fn root_alignment(&self) -> u64 {
        self.geometry.table_bytes(self.geometry.root_level()).max(64)
    }

    fn registers(&self, root: u64) -> Vec<(&'static str, u64)> {
        S::registers(self, root)
    }
}

impl<S: Stage> Arm64<S> {
    #[inline]
    fn encoded(&self, attributes: Attributes) -> Result<u64, Error> {
        let inexpressible = |what| Err(Error::Inexpressible { what, format: self.name() });
        let (write, dirty) = (attributes.flags.contains(Flags::WRITE), attributes.flags.contains(Flags::DIRTY));
        match () {
            () if dirty && !self.hardware_dirty => return inexpressible("dirty state without FEAT_HAFDBS"),
            () if dirty && !write => return inexpressible("dirty memory that cannot be written"),
            () => {}
        }
        let accessed = if attributes.flags.contains(Flags::ACCESSED) { AF } else { 0 };
        S::encoded(self, attributes).map(|bits| bits | accessed).or_else(inexpressible)
    }

    /// The bits of a page below its address and above 11, which larger granules leave over: RES0 without 52-bit
    /// addresses (D8.3.1).
    const fn unused_address_bits(&self) -> u64 {
        let in_use = matches!(self.granule, Granule::K64) && self.is_wide;
        if matches!(self.granule, Granule::K4) || in_use { 0 } else { mask(self.granule.shift() - 1, 12) }
    }

    /// TCR_EL1.IPS or VTCR_EL2.PS: the value that chooses the size of output addresses.
    pub(super) fn physical_size(&self) -> u64 {
        PHYSICAL_BITS.iter().position(|bits| *bits == self.geometry.output_bits()).unwrap_or_default() as u64
    }

    /// The root as a TTBR or VTTBR holds it, which with 52-bit addresses keeps bits 51:48 in 5:2.
    pub(super) fn base_register(&self, root: u64) -> u64 {
        let upper = if self.geometry.output_bits() > 48 { root >> 48 & 0xf } else { 0 };
        root & mask(47, 0) | upper << 2
    }
}
