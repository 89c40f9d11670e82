//! arm64 stage 1 of EL1&0: VMSAv8-64 descriptors.
//!
//! Source: Arm Architecture Reference Manual (DDI 0487), D8.3 (descriptors), D8.4 (permissions), D8.5 (access flag
//! and dirty state), D8.16.1 (break-before-make); arch/arm64/include/asm/pgtable-hwdef.h.

use alloc::vec::Vec;

use super::arm64::{Arm64, DBM, Granule, Stage};
use super::{Fields, Kind, bits, mask};
use crate::attributes::{Attributes, Flags};
use crate::extension::Extension;
use crate::rule::Rule;

/// AP[1]: EL0 may access it.
const AP_USER: u64 = 1 << 6;
/// AP[2]: read-only; with hardware dirty state and DBM, clean.
const AP_READ_ONLY: u64 = 1 << 7;
const NG: u64 = 1 << 11;
const GP: u64 = 1 << 50;
const PXN: u64 = 1 << 53;
const UXN: u64 = 1 << 54;
const ATTRINDX: u64 = mask(4, 2);
const KEY: u64 = mask(62, 60);
const PXN_TABLE: u64 = 1 << 59;
const UXN_TABLE: u64 = 1 << 60;
const AP_TABLE_NO_USER: u64 = 1 << 61;
const AP_TABLE_READ_ONLY: u64 = 1 << 62;

/// Stage 1 translation of EL1&0, of one of its two halves.
pub type Arm64Stage1 = Arm64<Stage1>;

/// What stage 1 has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage1 {
    /// Bits 62:60 of a leaf are a permission overlay index (FEAT_S1POE).
    overlay: bool,
}

impl Arm64Stage1 {
    /// Tables of `granule` for `input_bits` (16 to 52) bits of the lower half (TTBR0). More than 48 bits
    /// come with 52-bit output addresses (FEAT_LPA2, or FEAT_LVA and FEAT_LPA with the 64K granule).
    pub const fn new(granule: Granule, input_bits: u8) -> Arm64Stage1 {
        // ARM64_HW_PGTABLE_LEVELS of pgtable-hwdef.h.
        let levels = (input_bits - 4) / (granule.shift() - 3);
        Arm64::with_stage(granule, levels, input_bits, Stage1 { overlay: false })
    }

    /// The same format for the half that `extension` (zeroes or ones) says.
    pub const fn with_extension(mut self, extension: Extension) -> Arm64Stage1 {
        self.geometry = self.geometry.with_extension(extension);
        self
    }

    /// The same format with permission overlays (FEAT_S1POE): a leaf has an index of one.
    pub const fn with_overlay(mut self) -> Arm64Stage1 {
        self.stage.overlay = true;
        self
    }
}

impl Stage for Stage1 {
    fn name(granule: Granule) -> &'static str {
        match granule {
            Granule::K4 => "arm64 4K",
            Granule::K16 => "arm64 16K",
            Granule::K64 => "arm64 64K",
        }
    }

    /// What the kernel may execute, EL0 may not, and the other way round, as Linux maps.
    fn execute(user: bool) -> Flags {
        if user { Flags::USER_EXECUTE } else { Flags::KERNEL_EXECUTE }
    }

    const NORMAL_MEMORY: u8 = 0;

    fn attribute_bits(format: &Arm64Stage1) -> u64 {
        let key = if format.stage.overlay { KEY } else { 0 };
        let dirty = if format.hardware_dirty { DBM } else { 0 };
        ATTRINDX | AP_USER | AP_READ_ONLY | NG | GP | PXN | UXN | key | dirty
    }

    /// From global to not global an invalidation is enough; the other way two translations of one address could be hit.
    fn permission_bits(old: u64, new: u64) -> u64 {
        let to_global = old & NG != 0 && new & NG == 0;
        AP_READ_ONLY | AP_USER | PXN | UXN | GP | KEY | if to_global { 0 } else { NG }
    }

    fn encoded(format: &Arm64Stage1, attributes: Attributes) -> Result<u64, &'static str> {
        let Attributes { flags, memory, key } = attributes;
        match () {
            () if !flags.contains(Flags::READ) => return Err("memory that is valid and cannot be read"),
            () if memory > 7 => return Err("an AttrIndx above 7"),
            () if key > 7 || key != 0 && !format.stage.overlay => return Err("this overlay index"),
            () => {}
        }
        let bit = |condition: bool, bit: u64| if condition { bit } else { 0 };
        let writable = match (flags.contains(Flags::WRITE), format.hardware_dirty) {
            (false, _) => AP_READ_ONLY,
            (true, false) => 0,
            (true, true) => DBM | bit(!flags.contains(Flags::DIRTY), AP_READ_ONLY),
        };
        Ok(writable
            | u64::from(memory) << 2
            | bit(flags.contains(Flags::USER), AP_USER)
            | bit(!flags.contains(Flags::GLOBAL), NG)
            | bit(flags.contains(Flags::GUARDED), GP)
            | bit(!flags.contains(Flags::KERNEL_EXECUTE), PXN)
            | bit(!flags.contains(Flags::USER_EXECUTE), UXN)
            | u64::from(key) << 60)
    }

    fn decoded(format: &Arm64Stage1, entry: u64) -> Attributes {
        let mut flags = Flags::READ;
        flags.set(Flags::WRITE, entry & AP_READ_ONLY == 0 || format.hardware_dirty && entry & DBM != 0);
        flags.set(Flags::USER, entry & AP_USER != 0);
        flags.set(Flags::GLOBAL, entry & NG == 0);
        flags.set(Flags::GUARDED, entry & GP != 0);
        flags.set(Flags::KERNEL_EXECUTE, entry & PXN == 0);
        flags.set(Flags::USER_EXECUTE, entry & UXN == 0);
        let key = if format.stage.overlay { bits(entry, 62, 60) as u8 } else { 0 };
        Attributes { flags, memory: bits(entry, 4, 2) as u8, key }
    }

    #[inline]
    fn is_dirty(entry: u64) -> bool {
        entry & AP_READ_ONLY == 0
    }

    #[inline]
    fn with_dirty(entry: u64, dirty: bool) -> u64 {
        if dirty { entry & !AP_READ_ONLY } else { entry | AP_READ_ONLY }
    }

    fn restrictions(entry: u64) -> Flags {
        let take = |bit: u64, flags: Flags| if entry & bit != 0 { flags } else { Flags::empty() };
        take(PXN_TABLE, Flags::KERNEL_EXECUTE)
            | take(UXN_TABLE, Flags::USER_EXECUTE)
            | take(AP_TABLE_NO_USER, Flags::USER)
            | take(AP_TABLE_READ_ONLY, Flags::WRITE)
    }

    fn rules(_format: &Arm64Stage1, _entry: u64, _broken: &mut dyn FnMut(Rule)) {}

    fn fields(format: &Arm64Stage1, kind: Kind, entry: u64, fields: &mut Fields) {
        if kind == Kind::Table {
            let taken = ["takes nothing", "no EL0 access", "no writes", "no EL0 access, no writes"];
            fields
                .flag("PXNTable", 59, "takes nothing from EL1", "EL1 executes nothing below")
                .flag("UXNTable", 60, "takes nothing from EL0", "EL0 executes nothing below")
                .field("APTable", 62, 61, taken[bits(entry, 62, 61) as usize])
                .flag("NSTable", 63, "takes nothing", "no secure memory below");
            return;
        }
        let writable = match (entry & AP_READ_ONLY != 0, entry & DBM != 0 && format.hardware_dirty) {
            (false, _) => "writable",
            (true, false) => "read-only",
            (true, true) => "clean: a write makes it dirty",
        };
        fields
            .field("AttrIndx", 4, 2, alloc::format!("memory type: byte {} of MAIR_EL1", bits(entry, 4, 2)))
            .flag("NS", 5, "secure memory, if EL1 is in the secure state", "not secure memory")
            .flag("AP[1]", 6, "no EL0 access", "EL0 may access it")
            .field("AP[2]", 7, 7, writable)
            .flag("nG", 11, "global", "of this ASID")
            .flag("GP", 50, "branches need no BTI", "guarded: branches need BTI")
            .flag("PXN", 53, "EL1 may execute it", "EL1 may not execute it")
            .flag("UXN", 54, "EL0 may execute it", "EL0 may not execute it");
        if format.stage.overlay {
            fields.field("POIndex", 62, 60, "permission overlay");
        } else {
            fields.field("PBHA", 62, 59, "ignored, or implementation defined (FEAT_HPDS2)");
        }
    }

    /// TCR_EL1 with write-back walks, and TTBR0_EL1 or TTBR1_EL1 (D17.2).
    fn registers(format: &Arm64Stage1, root: u64) -> Vec<(&'static str, u64)> {
        let geometry = format.geometry;
        let size = u64::from(64 - geometry.input_bits());
        let granule = match format.granule {
            Granule::K4 => (0b00, 0b10),
            Granule::K16 => (0b10, 0b01),
            Granule::K64 => (0b01, 0b11),
        };
        let walks = 1 | 1 << 2 | 3 << 4;
        let shared = format.physical_size() << 32 | if format.is_lpa2() { 1 << 59 } else { 0 };
        let hardware = if format.hardware_dirty { 3 << 39 } else { 0 };
        let upper = geometry.extension() == Extension::Ones;
        let (half, base) = if upper {
            (size << 16 | walks << 24 | granule.1 << 30 | 1 << 7, "ttbr1_el1")
        } else {
            (size | walks << 8 | granule.0 << 14 | 1 << 23, "ttbr0_el1")
        };
        alloc::vec![("tcr_el1", shared | hardware | half), (base, format.base_register(root))]
    }
}
