//! What the two stages of arm64 have in common: granules, levels, blocks, contiguous groups, addresses.
//!
//! Source: Arm Architecture Reference Manual (DDI 0487), D8.2 "Translation process" and D8.3 "Translation table
//! descriptor formats"; arch/arm64/include/asm/pgtable-hwdef.h for the arithmetic of levels.

use alloc::string::String;

use super::{BreakLevel, Change, Kind, Pattern, mask};
use crate::geometry::{Extension, Geometry};
use crate::rule::Rule;

pub(super) const VALID: u64 = 1 << 0;
/// In a valid entry above level 0: points to a table. In one of level 0: must be set.
pub(super) const TABLE: u64 = 1 << 1;
pub(super) const SH: u64 = mask(9, 8);
pub(super) const AF: u64 = 1 << 10;
/// FEAT_BBM level 1: no TLB may hold this block.
const NT: u64 = 1 << 16;
pub(super) const DBM: u64 = 1 << 51;
pub(super) const CONTIGUOUS: u64 = 1 << 52;
pub(super) const SOFTWARE: u64 = mask(58, 55);

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

/// What stage 1 and stage 2 share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Common {
    pub granule: Granule,
    pub geometry: Geometry,
    pub break_level: BreakLevel,
    pub hardware_dirty: bool,
}

impl Common {
    pub const fn new(granule: Granule, levels: u8, input_bits: u8, output_bits: u8, extension: Extension) -> Common {
        let geometry = Geometry::new(granule.shift(), levels, input_bits, output_bits, extension);
        Common { granule, geometry, break_level: BreakLevel::Zero, hardware_dirty: false }
    }

    /// 52-bit output addresses of the 4K and 16K granules (FEAT_LPA2): two address bits stand in SH's place.
    pub const fn is_lpa2(&self) -> bool {
        self.geometry.output_bits() > 48 && !matches!(self.granule, Granule::K64)
    }

    /// The manual's number of a level: 3 holds pages.
    pub const fn manual_level(level: u8) -> i8 {
        3 - level as i8
    }

    pub fn level_name(level: u8) -> String {
        alloc::format!("level {}", Common::manual_level(level))
    }

    #[inline]
    pub const fn kind(&self, level: u8, entry: u64) -> Kind {
        match (entry & VALID != 0, entry & TABLE != 0, level) {
            (false, ..) => Kind::Hole,
            (true, true, 0) => Kind::Leaf,
            (true, true, _) => Kind::Table,
            (true, false, 1..) if self.has_leaf(level) => Kind::Leaf,
            (true, false, _) => Kind::Illegal,
        }
    }

    /// Blocks: D8.3.1, "Block descriptor and Page descriptor formats", by granule and output address size.
    #[inline]
    pub const fn has_leaf(&self, level: u8) -> bool {
        let wide = self.geometry.output_bits() > 48;
        let top = match self.granule {
            Granule::K4 => 2 + wide as u8,
            Granule::K16 | Granule::K64 => 1 + wide as u8,
        };
        level <= top
    }

    /// D8.6.1, "The Contiguous bit": how many entries may be one, where a table has that many.
    #[inline]
    pub const fn group_bits_at(&self, level: u8) -> u8 {
        let bits = match (self.granule, level) {
            (Granule::K4, 0..=2) => 4,
            (Granule::K16, 0) => 7,
            (Granule::K16, 1) => 5,
            (Granule::K64, 0 | 1) => 5,
            _ => 0,
        };
        if 1 << bits <= self.geometry.entries(level) { bits } else { 0 }
    }

    #[inline]
    pub const fn group_bits(&self, level: u8, entry: u64) -> u8 {
        if entry & CONTIGUOUS == 0 { 0 } else { self.group_bits_at(level) }
    }

    /// The address bits in their places.
    const fn address_mask(&self, low: u8) -> u64 {
        let highest = if self.is_lpa2() { 49 } else { 47 };
        mask(highest, low)
    }

    #[inline]
    pub const fn address_bits(&self, pa: u64) -> u64 {
        let low = pa & self.address_mask(self.granule.shift());
        match self.granule {
            Granule::K64 => low | (pa >> 48 & 0xf) << 12,
            Granule::K4 | Granule::K16 if self.is_lpa2() => low | (pa >> 50 & 3) << 8,
            Granule::K4 | Granule::K16 => low,
        }
    }

    #[inline]
    pub const fn address(&self, entry: u64, shift: u32) -> u64 {
        let low = entry & self.address_mask(self.granule.shift()) & !((1 << shift) - 1);
        match self.granule {
            Granule::K64 if self.geometry.output_bits() > 48 => low | (entry >> 12 & 0xf) << 48,
            Granule::K4 | Granule::K16 if self.is_lpa2() => low | (entry >> 8 & 3) << 50,
            _ => low,
        }
    }

    /// Addresses of more than 48 bits lie scattered: no pattern tells them.
    #[inline]
    pub const fn table_pattern(&self) -> Pattern {
        let value = VALID | TABLE;
        match self.geometry.output_bits() {
            49.. => Pattern::NONE,
            _ => Pattern { mask: value, value, address: mask(47, self.granule.shift()), shift: 0 },
        }
    }

    #[inline]
    pub const fn leaf_pattern(&self, level: u8) -> Pattern {
        if self.geometry.output_bits() > 48 || !self.has_leaf(level) {
            return Pattern::NONE;
        }
        let address = mask(47, self.geometry.shift(level) as u8);
        Pattern { mask: VALID | TABLE, value: Common::leaf_type(level), address, shift: 0 }
    }

    pub const fn leaf_type(level: u8) -> u64 {
        if level == 0 { VALID | TABLE } else { VALID }
    }

    /// The rules that both stages have.
    pub fn rules(&self, level: u8, entry: u64, broken: &mut dyn FnMut(Rule)) {
        let kind = self.kind(level, entry);
        match kind {
            Kind::Hole => return,
            Kind::Illegal if level == 0 => broken(Rule::Reserved { bits: VALID }),
            Kind::Illegal => broken(Rule::LeafLevel),
            Kind::Table | Kind::Leaf => {}
        }
        let output_bits = self.geometry.output_bits();
        let pa = self.address(entry, u32::from(self.granule.shift()));
        if output_bits < 64 && pa >> output_bits != 0 {
            broken(Rule::AddressTooLarge { pa });
        }
        if kind != Kind::Leaf {
            return;
        }
        let low = if level == 0 { 0 } else { pa & (self.geometry.span(level) - 1) };
        if low != 0 {
            broken(Rule::MisalignedLeaf { bits: low });
        }
        if !self.is_lpa2() && entry & SH == 1 << 8 {
            broken(Rule::Shareability);
        }
        if entry & CONTIGUOUS != 0 && self.group_bits_at(level) == 0 {
            broken(Rule::GroupLevel);
        }
    }

    /// The nT bit of a block. In a page, and in a table descriptor, it is a bit of the address.
    pub const fn nt(level: u8) -> u64 {
        if level == 0 { 0 } else { NT }
    }

    /// Break-before-make (D8.16.1): `permission` are the bits whose change needs an invalidation only,
    /// `attributes` those whose change needs a break.
    pub fn change(&self, level: u8, old: u64, new: u64, permission: u64, free: u64) -> Change {
        let (was, is) = (self.kind(level, old), self.kind(level, new));
        match (was, is) {
            (Kind::Hole | Kind::Illegal, _) => return Change::Free,
            (_, Kind::Hole | Kind::Illegal) => return Change::Invalidate,
            (Kind::Table, Kind::Table) if old == new => return Change::Free,
            (Kind::Table, Kind::Table) => return Change::Break,
            (Kind::Leaf, Kind::Leaf) => {}
            (Kind::Leaf, Kind::Table) | (Kind::Table, Kind::Leaf) => return self.resize(level, old, new),
        }
        let changed = (old ^ new) & !free;
        if changed == 0 {
            return Change::Free;
        }
        let break_needed = changed & !permission;
        match break_needed {
            0 => Change::Invalidate,
            CONTIGUOUS => self.resize(level, old, new),
            _ => Change::Break,
        }
    }

    /// A change of size or contiguity, with the same memory behind it.
    fn resize(&self, level: u8, old: u64, new: u64) -> Change {
        let is_in_no_tlb = |entry| self.kind(level, entry) == Kind::Leaf && entry & Common::nt(level) != 0;
        match self.break_level {
            BreakLevel::Two => Change::Invalidate,
            BreakLevel::One if is_in_no_tlb(old) || is_in_no_tlb(new) => Change::Invalidate,
            BreakLevel::Zero | BreakLevel::One => Change::Break,
        }
    }
}
