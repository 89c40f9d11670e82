//! The format of arm64 stage 1 of EL1&0: VMSAv8-64 descriptors.
//!
//! Source: Arm Architecture Reference Manual (DDI 0487), D8.3 (descriptors), D8.4 (permissions), D8.5 (access flag
//! and dirty state), D8.16.1 (break-before-make); arch/arm64/include/asm/pgtable-hwdef.h.

use alloc::vec::Vec;

use super::arm64::Stage;
use super::arm64_bits::{
    AP_READ_ONLY, AP_TABLE, AP_TABLE_NO_USER, AP_TABLE_READ_ONLY, AP_USER, ATTRINDX, DBM, FLAGS_1, GP, NG, NS,
    NS_TABLE, PBHA, POINDEX, PXN, PXN_TABLE, UXN, UXN_TABLE,
};
use super::arm64_shape::{Arm64, Granule};
use super::{Fields, Kind};
use crate::address::OutputAddress;
use crate::attributes::{Attributes, Flags};
use crate::extension::Extension;
use crate::rule::Rule;

/// Stage 1 of the EL1&0 regime, for one half of the address space (TTBR0 or TTBR1).
pub type Arm64Stage1 = Arm64<Stage1>;

/// The properties that only stage 1 has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage1 {
    /// Bits 62:60 of a leaf are a permission overlay index (FEAT_S1POE).
    overlay: bool,
}

impl Arm64Stage1 {
    /// Tables with this granule for addresses of `input_bits` (16 to 52) bits in the lower half (TTBR0). More than 48 bits imply 52-bit
    /// output addresses (FEAT_LPA2, or FEAT_LVA and FEAT_LPA with the 64K granule).
    pub const fn new(granule: Granule, input_bits: u8) -> Arm64Stage1 {
        // ARM64_HW_PGTABLE_LEVELS of pgtable-hwdef.h.
        let levels = (input_bits - 4) / (granule.shift() - 3);
        Arm64::with_stage(granule, levels, input_bits, Stage1 { overlay: false })
    }

    /// The same format for the half that `extension` (zeros or ones) selects.
    pub const fn with_extension(mut self, extension: Extension) -> Arm64Stage1 {
        self.geometry = self.geometry.with_extension(extension);
        self
    }

    /// The same format with permission overlays (FEAT_S1POE): a leaf has an overlay index.
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

    /// As in Linux, a page is executable at EL0 or at EL1, never at both.
    fn execute(user: bool) -> Flags {
        if user { Flags::USER_EXECUTE } else { Flags::KERNEL_EXECUTE }
    }

    const NORMAL_MEMORY: u8 = 0;

    fn attribute_bits(format: &Arm64Stage1) -> u64 {
        let (key, dirty) = (POINDEX.when(format.stage.overlay), DBM.when(format.hardware_dirty));
        FLAGS_1.mask() | ATTRINDX.mask | AP_READ_ONLY.mask | key | dirty
    }

    /// A change from global to not global needs only an invalidation. The other direction needs break-before-make: a
    /// TLB entry with an ASID could remain next to the new global one.
    fn permission_bits(old: u64, new: u64) -> u64 {
        let to_global = NG.is_set(old) && !NG.is_set(new);
        (FLAGS_1.mask() | AP_READ_ONLY.mask | POINDEX.mask) & !NG.when(to_global)
    }

    fn encoded(format: &Arm64Stage1, attributes: Attributes) -> Result<u64, &'static str> {
        let Attributes { flags, memory, key } = attributes;
        if !flags.contains(Flags::READ) {
            return Err("memory that is valid and cannot be read");
        } else if memory > 7 {
            return Err("an AttrIndx above 7");
        } else if key > 7 || key != 0 && !format.stage.overlay {
            return Err("this overlay index");
        }
        let writable = match (flags.contains(Flags::WRITE), format.hardware_dirty) {
            (false, _) => AP_READ_ONLY.mask,
            (true, false) => 0,
            (true, true) => DBM.mask | AP_READ_ONLY.when(!flags.contains(Flags::DIRTY)),
        };
        Ok(writable | FLAGS_1.encode(flags) | ATTRINDX.put(u64::from(memory)) | POINDEX.put(u64::from(key)))
    }

    fn decoded(format: &Arm64Stage1, entry: u64) -> Attributes {
        let mut flags = Flags::READ | FLAGS_1.decode(entry);
        flags.set(Flags::WRITE, !AP_READ_ONLY.is_set(entry) || format.hardware_dirty && DBM.is_set(entry));
        let key = if format.stage.overlay { POINDEX.get(entry) as u8 } else { 0 };
        Attributes { flags, memory: ATTRINDX.get(entry) as u8, key }
    }

    #[inline]
    fn is_dirty(entry: u64) -> bool {
        !AP_READ_ONLY.is_set(entry)
    }

    #[inline]
    fn with_dirty(entry: u64, dirty: bool) -> u64 {
        entry & !AP_READ_ONLY.mask | AP_READ_ONLY.when(!dirty)
    }

    fn restrictions(entry: u64) -> Flags {
        let take = |bit: u64, flags: Flags| if entry & bit != 0 { flags } else { Flags::empty() };
        take(PXN_TABLE.mask, Flags::KERNEL_EXECUTE)
            | take(UXN_TABLE.mask, Flags::USER_EXECUTE)
            | take(AP_TABLE_NO_USER, Flags::USER)
            | take(AP_TABLE_READ_ONLY, Flags::WRITE)
    }

    fn rules(_format: &Arm64Stage1, _entry: u64, _broken: &mut dyn FnMut(Rule)) {}

    fn fields(format: &Arm64Stage1, kind: Kind, entry: u64, fields: &mut Fields) {
        if kind == Kind::Table {
            let taken = ["takes nothing", "no EL0 access", "no writes", "no EL0 access, no writes"];
            fields
                .flag(PXN_TABLE, "takes nothing from EL1", "EL1 executes nothing below")
                .flag(UXN_TABLE, "takes nothing from EL0", "EL0 executes nothing below")
                .field(AP_TABLE, taken[AP_TABLE.get(entry) as usize])
                .flag(NS_TABLE, "takes nothing", "no secure memory below");
            return;
        }
        let writable = match (AP_READ_ONLY.is_set(entry), DBM.is_set(entry) && format.hardware_dirty) {
            (false, _) => "writable",
            (true, false) => "read-only",
            (true, true) => "clean: a write makes it dirty",
        };
        fields
            .field(ATTRINDX, alloc::format!("memory type: byte {} of MAIR_EL1", ATTRINDX.get(entry)))
            .flag(NS, "secure memory, if EL1 is in the secure state", "not secure memory")
            .flag(AP_USER, "no EL0 access", "EL0 may access it")
            .field(AP_READ_ONLY, writable)
            .flag(NG, "global", "of this ASID")
            .flag(GP, "branches need no BTI", "guarded: branches need BTI")
            .flag(PXN, "EL1 may execute it", "EL1 may not execute it")
            .flag(UXN, "EL0 may execute it", "EL0 may not execute it");
        if format.stage.overlay {
            fields.field(POINDEX, "permission overlay");
        } else {
            fields.field(PBHA, "ignored, or implementation defined (FEAT_HPDS2)");
        }
    }

    /// TCR_EL1 and TTBR0_EL1 or TTBR1_EL1 (D17.2). Walks are write-back cacheable; those of the other half are disabled.
    fn registers(format: &Arm64Stage1, root: OutputAddress) -> Vec<(&'static str, u64)> {
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
