//! arm64 stage 1 of EL1&0: VMSAv8-64 descriptors.
//!
//! Source: Arm Architecture Reference Manual (DDI 0487), D8.3 (descriptors), D8.4 (permissions), D8.5 (access flag
//! and dirty state), D8.16.1 (break-before-make); arch/arm64/include/asm/pgtable-hwdef.h.

use alloc::string::String;
use alloc::vec::Vec;

use super::arm64::{AF, CONTIGUOUS, Common, DBM, Granule, SOFTWARE, TABLE, VALID};
use super::{BreakLevel, Change, Discipline, Field, Fields, Format, Kind, Pattern, bits, mask};
use crate::attributes::{Attributes, Flags};
use crate::error::Error;
use crate::geometry::{Extension, Geometry};
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
const SH_INNER: u64 = 3 << 8;

/// Stage 1 translation of EL1&0, of one of its two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm64Stage1 {
    common: Common,
    /// Bits 62:60 of a leaf are a permission overlay index (FEAT_S1POE).
    pub overlay: bool,
}

impl Arm64Stage1 {
    /// Tables of `granule` for `input_bits` (16 to 52) bits of the lower half (TTBR0). More than 48 bits
    /// come with 52-bit output addresses (FEAT_LPA2, or FEAT_LVA and FEAT_LPA with the 64K granule).
    pub const fn new(granule: Granule, input_bits: u8) -> Arm64Stage1 {
        let output_bits = if input_bits > 48 { 52 } else { 48 };
        // ARM64_HW_PGTABLE_LEVELS of pgtable-hwdef.h.
        let levels = (input_bits - 4) / (granule.shift() - 3);
        Arm64Stage1 { common: Common::new(granule, levels, input_bits, output_bits, Extension::Zero), overlay: false }
    }

    /// The same format for the half that `extension` (zeroes or ones) says.
    pub const fn with_extension(mut self, extension: Extension) -> Arm64Stage1 {
        self.common.geometry = self.common.geometry.with_extension(extension);
        self
    }

    /// The same format on hardware with this level of FEAT_BBM.
    pub const fn with_break_level(mut self, level: BreakLevel) -> Arm64Stage1 {
        self.common.break_level = level;
        self
    }

    /// The same format with dirty state managed by hardware (FEAT_HAFDBS, TCR.HD): DBM says writable, AP[2]
    /// clean.
    pub const fn with_hardware_dirty(mut self) -> Arm64Stage1 {
        self.common.hardware_dirty = true;
        self
    }

    fn encoded(&self, attributes: Attributes) -> Result<u64, Error> {
        let inexpressible = |what| Err(Error::Inexpressible { what, format: self.name() });
        let Attributes { flags, memory, key } = attributes;
        let (write, dirty) = (flags.contains(Flags::WRITE), flags.contains(Flags::DIRTY));
        match () {
            () if !flags.contains(Flags::READ) => return inexpressible("memory that is valid and cannot be read"),
            () if dirty && !self.common.hardware_dirty => return inexpressible("dirty state without FEAT_HAFDBS"),
            () if dirty && !write => return inexpressible("dirty memory that cannot be written"),
            () if memory > 7 => return inexpressible("an AttrIndx above 7"),
            () if key > 7 || key != 0 && !self.overlay => return inexpressible("this overlay index"),
            () => {}
        }
        let bit = |condition: bool, bit: u64| if condition { bit } else { 0 };
        let writable = match (write, self.common.hardware_dirty) {
            (false, _) => AP_READ_ONLY,
            (true, false) => 0,
            (true, true) => DBM | bit(!dirty, AP_READ_ONLY),
        };
        Ok(writable
            | u64::from(memory) << 2
            | bit(flags.contains(Flags::USER), AP_USER)
            | bit(flags.contains(Flags::ACCESSED), AF)
            | bit(!flags.contains(Flags::GLOBAL), NG)
            | bit(flags.contains(Flags::GUARDED), GP)
            | bit(!flags.contains(Flags::KERNEL_EXECUTE), PXN)
            | bit(!flags.contains(Flags::USER_EXECUTE), UXN)
            | u64::from(key) << 60)
    }

    const fn attribute_bits(&self) -> u64 {
        let key = if self.overlay { KEY } else { 0 };
        let dirty = if self.common.hardware_dirty { DBM } else { 0 };
        ATTRINDX | AP_USER | AP_READ_ONLY | AF | NG | GP | PXN | UXN | key | dirty
    }
}

impl Format for Arm64Stage1 {
    fn name(&self) -> &'static str {
        match self.common.granule {
            Granule::K4 => "arm64 4K",
            Granule::K16 => "arm64 16K",
            Granule::K64 => "arm64 64K",
        }
    }

    fn level_name(&self, level: u8) -> String {
        Common::level_name(level)
    }

    fn geometry(&self) -> Geometry {
        self.common.geometry
    }

    #[inline]
    fn kind(&self, level: u8, entry: u64) -> Kind {
        self.common.kind(level, entry)
    }

    #[inline]
    fn table_pattern(&self) -> Pattern {
        self.common.table_pattern()
    }

    #[inline]
    fn leaf_pattern(&self, level: u8) -> Pattern {
        self.common.leaf_pattern(level)
    }

    #[inline]
    fn table_address(&self, entry: u64) -> u64 {
        self.common.address(entry, u32::from(self.common.granule.shift()))
    }

    #[inline]
    fn leaf_address(&self, level: u8, entry: u64, _va: u64) -> u64 {
        self.common.address(entry, self.common.geometry.shift(level))
    }

    #[inline]
    fn group_bits(&self, level: u8, entry: u64) -> u8 {
        self.common.group_bits(level, entry)
    }

    fn attributes(&self, _level: u8, entry: u64) -> Attributes {
        let mut flags = Flags::READ | self.state(entry);
        flags.set(Flags::WRITE, entry & AP_READ_ONLY == 0 || self.common.hardware_dirty && entry & DBM != 0);
        flags.set(Flags::USER, entry & AP_USER != 0);
        flags.set(Flags::GLOBAL, entry & NG == 0);
        flags.set(Flags::GUARDED, entry & GP != 0);
        flags.set(Flags::KERNEL_EXECUTE, entry & PXN == 0);
        flags.set(Flags::USER_EXECUTE, entry & UXN == 0);
        let key = if self.overlay { bits(entry, 62, 60) as u8 } else { 0 };
        Attributes { flags, memory: bits(entry, 4, 2) as u8, key }
    }

    fn restrictions(&self, entry: u64) -> Flags {
        let take = |bit: u64, flags: Flags| if entry & bit != 0 { flags } else { Flags::empty() };
        take(PXN_TABLE, Flags::KERNEL_EXECUTE)
            | take(UXN_TABLE, Flags::USER_EXECUTE)
            | take(AP_TABLE_NO_USER, Flags::USER)
            | take(AP_TABLE_READ_ONLY, Flags::WRITE)
    }

    #[inline]
    fn has_leaf(&self, level: u8) -> bool {
        self.common.has_leaf(level)
    }

    #[inline]
    fn group_bits_at(&self, level: u8) -> u8 {
        self.common.group_bits_at(level)
    }

    /// What the kernel may execute, EL0 may not, and the other way round, as Linux maps.
    fn execute(&self, user: bool) -> Flags {
        if user { Flags::USER_EXECUTE } else { Flags::KERNEL_EXECUTE }
    }

    fn leaf(&self, level: u8, attributes: Attributes, grouped: bool) -> Result<u64, Error> {
        let shareability = if self.common.is_lpa2() { 0 } else { SH_INNER };
        let contiguous = if grouped { CONTIGUOUS } else { 0 };
        Ok(Common::leaf_type(level) | shareability | contiguous | self.encoded(attributes)?)
    }

    #[inline]
    fn address_bits(&self, _level: u8, pa: u64, _grouped: bool) -> u64 {
        self.common.address_bits(pa)
    }

    #[inline]
    fn table(&self, pa: u64) -> u64 {
        VALID | TABLE | self.common.address_bits(pa)
    }

    fn with_attributes(&self, _level: u8, entry: u64, attributes: Attributes) -> Result<u64, Error> {
        Ok(entry & !self.attribute_bits() | self.encoded(attributes)?)
    }

    fn software_bits(&self) -> u64 {
        SOFTWARE
    }

    #[inline]
    fn state(&self, entry: u64) -> Flags {
        let mut flags = Flags::empty();
        flags.set(Flags::ACCESSED, entry & AF != 0);
        flags.set(Flags::DIRTY, self.common.hardware_dirty && entry & AP_READ_ONLY == 0);
        flags
    }

    #[inline]
    fn state_bits(&self) -> Option<u64> {
        if self.common.hardware_dirty { None } else { Some(AF) }
    }

    /// Only a leaf with DBM has dirty state.
    #[inline]
    fn with_state(&self, entry: u64, state: Flags) -> u64 {
        let entry = if state.contains(Flags::ACCESSED) { entry | AF } else { entry & !AF };
        match (self.common.hardware_dirty && entry & DBM != 0, state.contains(Flags::DIRTY)) {
            (false, _) => entry,
            (true, true) => entry & !AP_READ_ONLY,
            (true, false) => entry | AP_READ_ONLY,
        }
    }

    fn discipline(&self) -> Discipline {
        Discipline::BreakBeforeMake(self.common.break_level)
    }

    fn change(&self, level: u8, old: u64, new: u64) -> Change {
        // From global to not global an invalidation is enough; the other way two translations of one address
        // could be hit (D8.16.1).
        let to_global = old & NG != 0 && new & NG == 0;
        let permission = AF | DBM | AP_READ_ONLY | AP_USER | PXN | UXN | GP | KEY | if to_global { 0 } else { NG };
        // An entry without AF is in no TLB.
        let never_cached = if old & AF == 0 { AF } else { 0 };
        self.common.change(level, old, new, permission, SOFTWARE | 1 << 63 | Common::nt(level) | never_cached)
    }

    fn rules(&self, level: u8, entry: u64, broken: &mut dyn FnMut(Rule)) {
        self.common.rules(level, entry, broken);
    }

    fn fields(&self, level: u8, entry: u64) -> Vec<Field> {
        let mut fields = Fields::of(entry);
        fields.flag("valid", 0, "not valid: the other bits are software's", "valid");
        if entry & VALID == 0 {
            return fields.done();
        }
        let kind = self.kind(level, entry);
        let (shift, lpa2) = (self.common.granule.shift(), self.common.is_lpa2());
        let highest = if lpa2 { 49 } else { 47 };
        if kind == Kind::Table {
            fields
                .field("type", 1, 1, "points to a table")
                .field("address", highest, shift, alloc::format!("table at {:#x}", self.table_address(entry)))
                .flag("PXNTable", 59, "takes nothing from EL1", "EL1 executes nothing below")
                .flag("UXNTable", 60, "takes nothing from EL0", "EL0 executes nothing below")
                .field(
                    "APTable",
                    62,
                    61,
                    ["takes nothing", "no EL0 access", "no writes", "no EL0 access, no writes"]
                        [bits(entry, 62, 61) as usize],
                )
                .flag("NSTable", 63, "secure", "not secure");
            return fields.done();
        }
        let group = self.common.group_bits_at(level);
        let contiguous = match (entry & CONTIGUOUS != 0, group) {
            (false, _) => String::from("alone"),
            (true, 0) => String::from("reserved: no contiguous groups at this level"),
            (true, _) => alloc::format!(
                "one of {} entries that map {:#x} bytes",
                1u64 << group,
                self.geometry().span(level) << group
            ),
        };
        let set = |condition: bool, yes: &'static str, no: &'static str| if condition { yes } else { no };
        fields
            .field("type", 1, 1, set(kind == Kind::Leaf, set(level == 0, "a page", "a block"), "reserved here: faults"))
            .field("AttrIndx", 4, 2, "memory type: byte of MAIR_EL1")
            .flag("NS", 5, "secure", "not secure")
            .flag("AP[1]", 6, "no EL0 access", "EL0 may access it")
            .field(
                "AP[2]",
                7,
                7,
                match (entry & AP_READ_ONLY != 0, entry & DBM != 0 && self.common.hardware_dirty) {
                    (false, _) => "writable",
                    (true, false) => "read-only",
                    (true, true) => "clean: a write makes it dirty",
                },
            )
            .flag("AF", 10, "not accessed: an access faults or sets it", "accessed")
            .flag("nG", 11, "global", "of this ASID")
            .field(
                "address",
                highest,
                self.geometry().shift(level) as u8,
                alloc::format!("maps {:#x}", self.leaf_address(level, entry, 0)),
            )
            .flag("GP", 50, "branches need no BTI", "guarded: branches need BTI")
            .flag("DBM", 51, "writes are not managed by hardware", "writes are managed by hardware")
            .field("Contiguous", 52, 52, contiguous)
            .flag("PXN", 53, "EL1 may execute it", "EL1 may not execute it")
            .flag("UXN", 54, "EL0 may execute it", "EL0 may not execute it")
            .field("software", 58, 55, "software's");
        if lpa2 {
            fields.field("address 51:50", 9, 8, "bits 51:50 of the address");
        } else {
            fields.field(
                "SH",
                9,
                8,
                ["not shareable", "reserved", "outer shareable", "inner shareable"][bits(entry, 9, 8) as usize],
            );
        }
        if self.common.granule == Granule::K64 && self.geometry().output_bits() > 48 {
            fields.field("address 51:48", 15, 12, "bits 51:48 of the address");
        }
        if level > 0 {
            fields.flag("nT", 16, "TLBs may hold it", "no TLB may hold it (FEAT_BBM level 1)");
        }
        if self.overlay {
            fields.field("POIndex", 62, 60, "permission overlay");
        }
        fields.done()
    }

    fn root_alignment(&self) -> u64 {
        // D17.2.144, TTBR0_EL1.BADDR: 64 bytes at least.
        self.geometry().table_bytes(self.geometry().root_level()).max(64)
    }

    /// TCR_EL1 with write-back walks, and TTBR0_EL1 or TTBR1_EL1 (D17.2).
    fn registers(&self, root: u64) -> Vec<(&'static str, u64)> {
        let geometry = self.geometry();
        let size = u64::from(64 - geometry.input_bits());
        let granule = match self.common.granule {
            Granule::K4 => (0b00, 0b10),
            Granule::K16 => (0b10, 0b01),
            Granule::K64 => (0b01, 0b11),
        };
        let walks = 1 | 1 << 2 | 3 << 4;
        let ips = if geometry.output_bits() > 48 { 6u64 } else { 5 };
        let shared = ips << 32 | if self.common.is_lpa2() { 1 << 59 } else { 0 };
        let hardware = if self.common.hardware_dirty { 3 << 39 } else { 0 };
        let upper = geometry.extension() == Extension::Ones;
        let (half, base) = if upper {
            (size << 16 | walks << 24 | granule.1 << 30 | 1 << 7, "ttbr1_el1")
        } else {
            (size | walks << 8 | granule.0 << 14 | 1 << 23, "ttbr0_el1")
        };
        // With 52-bit addresses TTBR keeps bits 51:48 in 5:2.
        let root = root & mask(47, 0) | if geometry.output_bits() > 48 { (root >> 48 & 0xf) << 2 } else { 0 };
        alloc::vec![("tcr_el1", shared | hardware | half), (base, root)]
    }
}
