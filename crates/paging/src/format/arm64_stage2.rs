//! The format of arm64 stage 2, which translates a guest's physical addresses.
//!
//! Source: Arm Architecture Reference Manual (DDI 0487), D8.2 (concatenated tables), D8.3 (descriptors), D8.4
//! (permissions); arch/arm64/kvm/hyp/pgtable.c and arch/arm64/include/asm/stage2_pgtable.h for the number of levels
//! that KVM chooses.

use alloc::vec::Vec;

use super::arm64::Stage;
use super::arm64_bits::{DBM, MEMATTR, PBHA, S2AP, S2AP_READ, S2AP_WRITE, XN, XN_LOWER, XN_UPPER};
use super::arm64_shape::{Arm64, Granule};
use super::{Fields, Kind};
use crate::address::OutputAddress;
use crate::attributes::{Attributes, Flags};
use crate::rule::Rule;

/// MemAttr of normal memory without FEAT_S2FWB: inner and outer write-back.
const WRITE_BACK: u8 = 0b1111;

/// Stage 2 translation of EL1&0.
pub type Arm64Stage2 = Arm64<Stage2>;

/// The properties that only stage 2 has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage2 {
    /// XN is a code of two bits that separates EL1 from EL0 (FEAT_XNX).
    has_xnx: bool,
}

impl Arm64Stage2 {
    /// Tables of `granule` for `input_bits` (32 to 52) bits of intermediate physical address, with the levels that KVM
    /// chooses: as few as concatenating up to sixteen root tables allows, and at least two.
    pub const fn new(granule: Granule, input_bits: u8) -> Arm64Stage2 {
        // stage2_pgtable_levels(): ARM64_HW_PGTABLE_LEVELS(ipa_bits - 4).
        let levels = (input_bits - 8) / (granule.shift() - 3);
        let levels = if levels < 2 { 2 } else { levels };
        Arm64::with_stage(granule, levels, input_bits, Stage2 { has_xnx: true })
    }

    /// The same format on hardware without FEAT_XNX: XN is one bit.
    pub const fn without_xnx(mut self) -> Arm64Stage2 {
        self.stage.has_xnx = false;
        self
    }

    /// How many page-sized tables are concatenated to form the root; 1 also if the root is smaller.
    pub const fn concatenated(&self) -> u64 {
        let tables = self.geometry.table_bytes(self.geometry.root_level()) >> self.geometry.page_shift();
        if tables == 0 { 1 } else { tables }
    }

    /// The leaf without write permission.
    #[inline]
    pub const fn without_write(&self, entry: u64) -> u64 {
        entry & !(S2AP_WRITE | DBM.when(self.hardware_dirty))
    }
}

impl Stage for Stage2 {
    fn name(granule: Granule) -> &'static str {
        match granule {
            Granule::K4 => "arm64 stage 2 4K",
            Granule::K16 => "arm64 stage 2 16K",
            Granule::K64 => "arm64 stage 2 64K",
        }
    }

    fn execute(_user: bool) -> Flags {
        Flags::KERNEL_EXECUTE | Flags::USER_EXECUTE
    }

    const NORMAL_MEMORY: u8 = WRITE_BACK;

    fn attribute_bits(format: &Arm64Stage2) -> u64 {
        S2AP.mask | MEMATTR.mask | XN.mask | DBM.when(format.hardware_dirty)
    }

    fn permission_bits(_old: u64, _new: u64) -> u64 {
        S2AP.mask | XN.mask
    }

    fn encoded(format: &Arm64Stage2, attributes: Attributes) -> Result<u64, &'static str> {
        let Attributes { flags, memory, key } = attributes;
        let by_level = format.stage.has_xnx;
        let xn = match (flags.contains(Flags::KERNEL_EXECUTE), flags.contains(Flags::USER_EXECUTE)) {
            (true, true) => 0b00,
            (false, true) if by_level => 0b01,
            (false, false) => 0b10,
            (true, false) if by_level => 0b11,
            _ => return Err("execution by one exception level alone without FEAT_XNX"),
        };
        if flags.intersects(Flags::USER | Flags::GLOBAL | Flags::GUARDED) {
            return Err("user, global or guarded memory at stage 2");
        } else if memory > 15 {
            return Err("a MemAttr above 15");
        } else if key != 0 {
            return Err("a protection key");
        }
        let bit = |condition: bool, bit: u64| if condition { bit } else { 0 };
        let writable = match (flags.contains(Flags::WRITE), format.hardware_dirty) {
            (false, _) => 0,
            (true, false) => S2AP_WRITE,
            (true, true) => DBM.mask | bit(flags.contains(Flags::DIRTY), S2AP_WRITE),
        };
        Ok(writable | MEMATTR.put(u64::from(memory)) | bit(flags.contains(Flags::READ), S2AP_READ) | XN.put(xn))
    }

    fn decoded(format: &Arm64Stage2, entry: u64) -> Attributes {
        let xn = if format.stage.has_xnx { XN.get(entry) } else { XN_UPPER.get(entry) << 1 };
        let mut flags = Flags::empty();
        flags.set(Flags::READ, entry & S2AP_READ != 0);
        flags.set(Flags::WRITE, entry & S2AP_WRITE != 0 || format.hardware_dirty && DBM.is_set(entry));
        flags.set(Flags::KERNEL_EXECUTE, matches!(xn, 0b00 | 0b11));
        flags.set(Flags::USER_EXECUTE, matches!(xn, 0b00 | 0b01));
        Attributes { flags, memory: MEMATTR.get(entry) as u8, key: 0 }
    }

    #[inline]
    fn is_dirty(entry: u64) -> bool {
        entry & S2AP_WRITE != 0
    }

    #[inline]
    fn with_dirty(entry: u64, dirty: bool) -> u64 {
        if dirty { entry | S2AP_WRITE } else { entry & !S2AP_WRITE }
    }

    /// Table entries of stage 2 carry no attributes.
    fn restrictions(_entry: u64) -> Flags {
        Flags::empty()
    }

    fn rules(format: &Arm64Stage2, entry: u64, broken: &mut dyn FnMut(Rule)) {
        // Without FEAT_S2FWB, MemAttr[3:2] = 00 is Device; with 01 to 11 (Normal), MemAttr[1:0] = 00 is reserved (D8.6.5).
        let memory = MEMATTR.get(entry);
        if memory >> 2 != 0 && memory & 3 == 0 {
            broken(Rule::MemoryType);
        }
        if !format.stage.has_xnx && XN_LOWER.is_set(entry) {
            broken(Rule::Reserved { bits: XN_LOWER.mask });
        }
    }

    fn fields(format: &Arm64Stage2, kind: Kind, entry: u64, fields: &mut Fields) {
        if kind == Kind::Table {
            return;
        }
        let access = ["no access", "read-only", "write-only", "read and write"];
        let execute = ["EL1 and EL0 may execute it", "EL0 may execute it", "not executable", "EL1 may execute it"];
        let memory = match MEMATTR.get(entry) {
            0b1111 => "write-back",
            0b1010 => "write-through",
            0b0101 => "not cacheable",
            0b0000 => "Device-nGnRnE",
            0b0001 => "Device-nGnRE",
            0b0010 => "Device-nGRE",
            0b0011 => "Device-GRE",
            _ => "outer in 3:2 and inner in 1:0: 1 not cacheable, 2 write-through, 3 write-back",
        };
        fields.field(PBHA, "ignored, or implementation defined (FEAT_HPDS2)");
        let is_clean = format.hardware_dirty && DBM.is_set(entry) && entry & S2AP_WRITE == 0;
        let access = if is_clean { "clean: a write makes it dirty" } else { access[S2AP.get(entry) as usize] };
        fields.field(MEMATTR, memory).field(S2AP, access);
        if format.stage.has_xnx {
            fields.field(XN, execute[XN.get(entry) as usize]);
        } else {
            fields.flag(XN_UPPER, "executable", "not executable");
        }
    }

    /// VTCR_EL2 with write-back walks, and VTTBR_EL2 (D17.2).
    fn registers(format: &Arm64Stage2, root: OutputAddress) -> Vec<(&'static str, u64)> {
        let geometry = format.geometry;
        let granule = match format.granule {
            Granule::K4 => 0b00,
            Granule::K16 => 0b10,
            Granule::K64 => 0b01,
        };
        // The manual counts levels from the root. SL0: for 4K the start level is 2 - SL0; for 16K and 64K it is 3 - SL0.
        let start = 4 - geometry.levels();
        let sl0 = u64::from(if format.granule == Granule::K4 { 2 - start } else { 3 - start });
        let hardware = if format.hardware_dirty { 3 << 21 } else { 0 };
        let irgn_orgn_sh = 1 << 8 | 1 << 10 | 3 << 12;
        let t0sz = u64::from(64 - geometry.input_bits());
        let lpa2 = if format.is_lpa2() { 1 << 32 } else { 0 };
        let vtcr =
            1 << 31 | lpa2 | hardware | format.physical_size() << 16 | granule << 14 | irgn_orgn_sh | sl0 << 6 | t0sz;
        alloc::vec![("vtcr_el2", vtcr), ("vttbr_el2", format.base_register(root))]
    }
}
