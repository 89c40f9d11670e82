//! The shape of arm64 tables at either stage: granules, levels, blocks, contiguous groups, and the positions of address bits.
//!
//! Source: Arm Architecture Reference Manual (DDI 0487), D8.2 "Translation process" and D8.3 "Translation table
//! descriptor formats"; arch/arm64/include/asm/pgtable-hwdef.h for the number of levels; for contiguous groups the
//! A-profile pseudocode, as translated from Arm's release of 2023-03 in rems-project/sail-arm
//! (arm-v9.4-a/src/v8_base.sail).

use super::arm64_bits::{ADDRESS_51_48, ADDRESS_51_50, NT, TABLE, VALID};
use super::bits::mask;
use super::{BreakLevel, Change, Kind};
use crate::address::OutputAddress;
use crate::extension::Extension;
use crate::geometry::Geometry;

/// The translation granule: the size of pages and of tables.
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

/// Translation at the stage `S` with tables of one granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm64<S> {
    pub(super) granule: Granule,
    pub(super) geometry: Geometry,
    /// Entries hold 52-bit output addresses, some of whose bits are relocated. With 4K and 16K this is a choice
    /// (TCR_EL1.DS, VTCR_EL2.DS), which input addresses of 52 bits also need. With 64K the output size alone decides.
    pub(super) is_wide: bool,
    pub(super) break_level: BreakLevel,
    pub(super) hardware_dirty: bool,
    pub(super) stage: S,
}

/// The sizes of output addresses that a register can select (D17.2, TCR_EL1.IPS), indexed by its value.
const PHYSICAL_BITS: [u8; 7] = [32, 36, 40, 42, 44, 48, 52];

/// Whether a register can select output addresses of `bits` bits.
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

    /// The same format with dirty state managed by hardware (FEAT_HAFDBS; TCR_EL1.HD, VTCR_EL2.HD): DBM marks a leaf
    /// writable, and `AP[2]` clear or `S2AP[1]` set marks it dirty.
    pub const fn with_hardware_dirty(mut self) -> Arm64<S> {
        self.hardware_dirty = true;
        self
    }

    /// The same format with output addresses of `physical_bits` bits (TCR_EL1.IPS, VTCR_EL2.PS), one of the sizes that
    /// [`is_physical_bits`] accepts. More than 48 bits require the entries of 52-bit addresses.
    pub const fn with_physical_bits(mut self, physical_bits: u8) -> Arm64<S> {
        assert!(is_physical_bits(physical_bits));
        self.geometry = self.geometry.with_output_bits(physical_bits);
        let wide_input = self.geometry.input_bits() > 48 && !matches!(self.granule, Granule::K64);
        self.is_wide = physical_bits > 48 || wide_input;
        self
    }

    /// The translation granule.
    pub const fn granule(&self) -> Granule {
        self.granule
    }

    /// Whether output addresses have 52 bits with the 4K or 16K granule (FEAT_LPA2): two address bits replace SH.
    pub(super) const fn is_lpa2(&self) -> bool {
        self.is_wide && !matches!(self.granule, Granule::K64)
    }

    #[inline]
    pub(super) const fn kind_of(&self, level: u8, entry: u64) -> Kind {
        match (VALID.is_set(entry), TABLE.is_set(entry), level) {
            (false, ..) => Kind::Hole,
            (true, true, 0) => Kind::Leaf,
            (true, true, _) => Kind::Table,
            (true, false, 1..) if self.has_leaves_at(level) => Kind::Leaf,
            (true, false, _) => Kind::Illegal,
        }
    }

    /// Whether leaves are possible at `level`. Blocks: D8.3.1, "Block descriptor and Page descriptor formats", by
    /// granule and output address size.
    #[inline]
    pub(super) const fn has_leaves_at(&self, level: u8) -> bool {
        let wide = self.is_wide;
        let top = match self.granule {
            Granule::K4 => 2 + wide as u8,
            Granule::K16 | Granule::K64 => 1 + wide as u8,
        };
        level <= top
    }

    /// log2 of the entries that the Contiguous bit combines, where a table has that many; the same at both stages. The
    /// architecture's pseudocode for 64-bit descriptors has groups only at levels 1 to 3 with 4K, and at levels 2 and 3
    /// with 16K and 64K (`ContiguousSize`). In the larger blocks of 52-bit addresses the bit is RES0: level 0 with 4K,
    /// level 1 with 16K and 64K (`AArch64.ContiguousBit`). Where the group would be larger than the input address
    /// space, hardware may fault (`AArch64.ContiguousBitFaults`).
    #[inline]
    pub(super) const fn group_bits_of(&self, level: u8) -> u8 {
        let bits = match (self.granule, level) {
            (Granule::K4, 0..=2) => 4,
            (Granule::K16, 0) => 7,
            (Granule::K16, 1) => 5,
            (Granule::K64, 0 | 1) => 5,
            _ => 0,
        };
        if 1 << bits <= self.geometry.entries(level) { bits } else { 0 }
    }

    /// The highest address bit at its regular position.
    pub(super) const fn highest_address_bit(&self) -> u8 {
        if self.is_lpa2() { 49 } else { 47 }
    }

    /// The mask of the address bits at their regular positions.
    const fn address_mask(&self, low: u8) -> u64 {
        mask(self.highest_address_bit(), low)
    }

    #[inline]
    pub(super) const fn scattered(&self, pa: u64) -> u64 {
        // `pa` is the address of a page, so its bits below a larger page's size are zero.
        if self.is_wide { self.scattered_widely(pa) } else { pa & mask(47, 12) }
    }

    #[cold]
    const fn scattered_widely(&self, pa: u64) -> u64 {
        let low = pa & self.address_mask(self.granule.shift());
        match self.granule {
            Granule::K64 => low | ADDRESS_51_48.put(pa >> 48 & 0xf),
            Granule::K4 | Granule::K16 => low | ADDRESS_51_50.put(pa >> 50 & 3),
        }
    }

    #[inline]
    pub(super) const fn gathered(&self, entry: u64, shift: u32) -> u64 {
        if !self.is_wide {
            return entry & mask(47, shift as u8);
        }
        let low = entry & self.address_mask(self.granule.shift()) & !((1 << shift) - 1);
        match self.granule {
            Granule::K64 => low | ADDRESS_51_48.get(entry) << 48,
            Granule::K4 | Granule::K16 => low | ADDRESS_51_50.get(entry) << 50,
        }
    }

    pub(super) const fn leaf_type(level: u8) -> u64 {
        VALID.mask | TABLE.when(level == 0)
    }

    /// The nT bit of a block. In a page and in a table descriptor this bit belongs to the address.
    pub(super) const fn nt(level: u8) -> u64 {
        NT.when(level > 0)
    }

    /// What a change of size or contiguity needs, for the same memory.
    pub(super) fn resize(&self, level: u8, old: u64, new: u64) -> Change {
        let is_in_no_tlb = |entry| self.kind_of(level, entry) == Kind::Leaf && entry & Arm64::<S>::nt(level) != 0;
        match self.break_level {
            BreakLevel::Two => Change::Invalidate,
            BreakLevel::One if is_in_no_tlb(old) || is_in_no_tlb(new) => Change::Invalidate,
            BreakLevel::Zero | BreakLevel::One => Change::Break,
        }
    }

    /// The bits of a page descriptor between bit 12 and its address, which larger granules do not use: RES0 without
    /// 52-bit addresses (D8.3.1).
    pub(super) const fn unused_address_bits(&self) -> u64 {
        let in_use = matches!(self.granule, Granule::K64) && self.is_wide;
        if matches!(self.granule, Granule::K4) || in_use { 0 } else { mask(self.granule.shift() - 1, 12) }
    }

    /// The value of TCR_EL1.IPS or VTCR_EL2.PS that selects the size of output addresses.
    pub(super) fn physical_size(&self) -> u64 {
        PHYSICAL_BITS.iter().position(|bits| *bits == self.geometry.output_bits()).unwrap_or_default() as u64
    }

    /// The root in the format of a TTBR or VTTBR, which with 52-bit addresses holds bits 51:48 in 5:2.
    pub(super) fn base_register(&self, root: OutputAddress) -> u64 {
        let upper = if self.geometry.output_bits() > 48 { root.0 >> 48 & 0xf } else { 0 };
        root.0 & mask(47, 0) | upper << 2
    }
}
