//! arm64 stage 2: what a hypervisor's guest believes to be physical.
//!
//! Source: Arm Architecture Reference Manual (DDI 0487), D8.2 (concatenated tables), D8.3 (descriptors), D8.4 (permissions);
//! arch/arm64/kvm/hyp/pgtable.c and include/asm/stage2_pgtable.h for the levels KVM chooses.

use alloc::string::String;
use alloc::vec::Vec;

use super::arm64::{AF, CONTIGUOUS, Common, DBM, Granule, SOFTWARE, TABLE, VALID};
use super::{BreakLevel, Change, Discipline, Field, Fields, Format, Kind, Pattern, bits, mask};
use crate::attributes::{Attributes, Flags};
use crate::error::Error;
use crate::geometry::{Extension, Geometry};
use crate::rule::Rule;

const S2AP_READ: u64 = 1 << 6;
const S2AP_WRITE: u64 = 1 << 7;
const MEMATTR: u64 = mask(5, 2);
const XN: u64 = mask(54, 53);
const SH_INNER: u64 = 3 << 8;
/// MemAttr of ordinary memory without FEAT_S2FWB: inner and outer write-back.
const WRITE_BACK: u8 = 0b1111;

/// Stage 2 translation of EL1&0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm64Stage2 {
    common: Common,
    /// XN has two bits, one for each exception level (FEAT_XNX).
    pub execute_by_level: bool,
}

impl Arm64Stage2 {
    /// Tables of `granule` for `input_bits` (32 to 52) bits of intermediate physical address, with the levels
    /// that KVM takes: as few as concatenating up to sixteen root tables allows, and at least two.
    pub const fn new(granule: Granule, input_bits: u8) -> Arm64Stage2 {
        let output_bits = if input_bits > 48 { 52 } else { 48 };
        // stage2_pgtable_levels(): ARM64_HW_PGTABLE_LEVELS(ipa_bits - 4).
        let levels = (input_bits - 8) / (granule.shift() - 3);
        let levels = if levels < 2 { 2 } else { levels };
        Arm64Stage2 {
            common: Common::new(granule, levels, input_bits, output_bits, Extension::Zero),
            execute_by_level: true,
        }
    }

    /// The same format on hardware with this level of FEAT_BBM.
    pub const fn with_break_level(mut self, level: BreakLevel) -> Arm64Stage2 {
        self.common.break_level = level;
        self
    }

    /// The same format with dirty state managed by hardware (VTCR_EL2.HD): DBM says writable, S2AP[1] dirty.
    pub const fn with_hardware_dirty(mut self) -> Arm64Stage2 {
        self.common.hardware_dirty = true;
        self
    }

    /// The granule.
    pub const fn granule(&self) -> Granule {
        self.common.granule
    }

    /// How many tables of a page's size are concatenated to the root; 1 also where the root is smaller.
    pub const fn concatenated(&self) -> u64 {
        let geometry = self.common.geometry;
        let tables = geometry.table_bytes(geometry.root_level()) >> geometry.page_shift();
        if tables == 0 { 1 } else { tables }
    }

    /// The leaf, which nobody may write any more.
    #[inline]
    pub(crate) const fn without_write(&self, entry: u64) -> u64 {
        let dirty = if self.common.hardware_dirty { DBM } else { 0 };
        entry & !(S2AP_WRITE | dirty)
    }

    fn encoded(&self, attributes: Attributes) -> Result<u64, Error> {
        let inexpressible = |what| Err(Error::Inexpressible { what, format: self.name() });
        let Attributes { flags, memory, key } = attributes;
        let (write, dirty) = (flags.contains(Flags::WRITE), flags.contains(Flags::DIRTY));
        let xn = match (flags.contains(Flags::KERNEL_EXECUTE), flags.contains(Flags::USER_EXECUTE)) {
            (true, true) => 0b00,
            (false, true) if self.execute_by_level => 0b01,
            (false, false) => 0b10,
            (true, false) if self.execute_by_level => 0b11,
            _ => return inexpressible("execution by one exception level alone without FEAT_XNX"),
        };
        match () {
            () if flags.intersects(Flags::USER | Flags::GLOBAL | Flags::GUARDED) => {
                return inexpressible("user, global or guarded memory at stage 2");
            }
            () if dirty && !self.common.hardware_dirty => return inexpressible("dirty state without FEAT_HAFDBS"),
            () if dirty && !write => return inexpressible("dirty memory that cannot be written"),
            () if memory > 15 => return inexpressible("a MemAttr above 15"),
            () if key != 0 => return inexpressible("a protection key"),
            () => {}
        }
        let bit = |condition: bool, bit: u64| if condition { bit } else { 0 };
        let writable = match (write, self.common.hardware_dirty) {
            (false, _) => 0,
            (true, false) => S2AP_WRITE,
            (true, true) => DBM | bit(dirty, S2AP_WRITE),
        };
        Ok(writable
            | u64::from(memory) << 2
            | bit(flags.contains(Flags::READ), S2AP_READ)
            | bit(flags.contains(Flags::ACCESSED), AF)
            | xn << 53)
    }
}

impl Format for Arm64Stage2 {
    fn name(&self) -> &'static str {
        match self.common.granule {
            Granule::K4 => "arm64 stage 2 4K",
            Granule::K16 => "arm64 stage 2 16K",
            Granule::K64 => "arm64 stage 2 64K",
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
        let mut flags = self.state(entry);
        flags.set(Flags::READ, entry & S2AP_READ != 0);
        flags.set(Flags::WRITE, entry & S2AP_WRITE != 0 || self.common.hardware_dirty && entry & DBM != 0);
        let xn = if self.execute_by_level { bits(entry, 54, 53) } else { bits(entry, 54, 54) << 1 };
        flags.set(Flags::KERNEL_EXECUTE, matches!(xn, 0b00 | 0b11));
        flags.set(Flags::USER_EXECUTE, matches!(xn, 0b00 | 0b01));
        Attributes { flags, memory: bits(entry, 5, 2) as u8, key: 0 }
    }

    #[inline]
    fn has_leaf(&self, level: u8) -> bool {
        self.common.has_leaf(level)
    }

    #[inline]
    fn group_bits_at(&self, level: u8) -> u8 {
        self.common.group_bits_at(level)
    }

    fn execute(&self, _user: bool) -> Flags {
        Flags::KERNEL_EXECUTE | Flags::USER_EXECUTE
    }

    fn normal_memory(&self) -> u8 {
        WRITE_BACK
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
        let dirty = if self.common.hardware_dirty { DBM } else { 0 };
        Ok(entry & !(S2AP_READ | S2AP_WRITE | MEMATTR | AF | XN | dirty) | self.encoded(attributes)?)
    }

    fn software_bits(&self) -> u64 {
        SOFTWARE
    }

    #[inline]
    fn state(&self, entry: u64) -> Flags {
        let mut flags = Flags::empty();
        flags.set(Flags::ACCESSED, entry & AF != 0);
        flags.set(Flags::DIRTY, self.common.hardware_dirty && entry & S2AP_WRITE != 0);
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
            (true, true) => entry | S2AP_WRITE,
            (true, false) => entry & !S2AP_WRITE,
        }
    }

    fn discipline(&self) -> Discipline {
        Discipline::BreakBeforeMake(self.common.break_level)
    }

    fn change(&self, level: u8, old: u64, new: u64) -> Change {
        let never_cached = if old & AF == 0 { AF } else { 0 };
        let permission = AF | DBM | S2AP_READ | S2AP_WRITE | XN;
        self.common.change(level, old, new, permission, SOFTWARE | 1 << 63 | Common::nt(level) | never_cached)
    }

    fn rules(&self, level: u8, entry: u64, broken: &mut dyn FnMut(Rule)) {
        self.common.rules(level, entry, broken);
        let is_leaf = self.kind(level, entry) == Kind::Leaf;
        // Without FEAT_S2FWB, MemAttr[3:2] = 00 is Device and 01 to 11 take MemAttr[1:0] = 01 to 11 (D8.6.5).
        let memory = bits(entry, 5, 2);
        if is_leaf && memory >> 2 != 0 && memory & 3 == 0 {
            broken(Rule::MemoryType);
        }
        if is_leaf && !self.execute_by_level && entry & 1 << 53 != 0 {
            broken(Rule::Reserved { bits: 1 << 53 });
        }
    }

    fn fields(&self, level: u8, entry: u64) -> Vec<Field> {
        let mut fields = Fields::of(entry);
        fields.flag("valid", 0, "not valid: the other bits are the hypervisor's", "valid");
        if entry & VALID == 0 {
            return fields.done();
        }
        let kind = self.kind(level, entry);
        let lpa2 = self.common.is_lpa2();
        let highest = if lpa2 { 49 } else { 47 };
        if kind == Kind::Table {
            let table = alloc::format!("table at {:#x}", self.table_address(entry));
            fields.field("type", 1, 1, "points to a table").field(
                "address",
                highest,
                self.common.granule.shift(),
                table,
            );
            return fields.done();
        }
        let group = self.common.group_bits_at(level);
        let contiguous = match (entry & CONTIGUOUS != 0, group) {
            (false, _) => String::from("alone"),
            (true, 0) => String::from("reserved: no contiguous groups at this level"),
            (true, _) => {
                alloc::format!(
                    "one of {} entries that map {:#x} bytes",
                    1u64 << group,
                    self.geometry().span(level) << group
                )
            }
        };
        let leaf = if level == 0 { "a page" } else { "a block" };
        let access = ["no access", "read-only", "write-only", "read and write"];
        let execute = ["EL1 and EL0 may execute it", "EL0 may execute it", "not executable", "EL1 may execute it"];
        let memory = match bits(entry, 5, 2) {
            0b1111 => "write-back",
            0b1010 => "write-through",
            0b0101 => "not cacheable",
            0b0000 => "Device-nGnRnE",
            0b0001 => "Device-nGnRE",
            0b0010 => "Device-nGRE",
            0b0011 => "Device-GRE",
            _ => "outer in 3:2 and inner in 1:0: 1 not cacheable, 2 write-through, 3 write-back",
        };
        fields
            .field("type", 1, 1, if kind == Kind::Leaf { leaf } else { "reserved here: faults" })
            .field("MemAttr", 5, 2, memory)
            .field("S2AP", 7, 6, access[bits(entry, 7, 6) as usize])
            .flag("AF", 10, "not accessed: an access faults or sets it", "accessed")
            .field(
                "address",
                highest,
                self.geometry().shift(level) as u8,
                alloc::format!("maps {:#x}", self.leaf_address(level, entry, 0)),
            )
            .flag("DBM", 51, "writes are not managed by hardware", "writes are managed by hardware")
            .field("Contiguous", 52, 52, contiguous)
            .field("software", 58, 55, "software's");
        if self.execute_by_level {
            fields.field("XN", 54, 53, execute[bits(entry, 54, 53) as usize]);
        } else {
            fields.flag("XN", 54, "executable", "not executable");
        }
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
        fields.done()
    }

    fn root_alignment(&self) -> u64 {
        self.geometry().table_bytes(self.geometry().root_level()).max(64)
    }

    /// VTCR_EL2 with write-back walks, and VTTBR_EL2 (D17.2).
    fn registers(&self, root: u64) -> Vec<(&'static str, u64)> {
        let geometry = self.geometry();
        let granule = match self.common.granule {
            Granule::K4 => 0b00,
            Granule::K16 => 0b10,
            Granule::K64 => 0b01,
        };
        // SL0: for 4K the start level is 2 - SL0; for 16K and 64K it is 3 - SL0.
        let start = 4 - geometry.levels();
        let sl0 = u64::from(if self.common.granule == Granule::K4 { 2 - start } else { 3 - start });
        let ps = if geometry.output_bits() > 48 { 6 } else { 5 };
        let hardware = if self.common.hardware_dirty { 3 << 21 } else { 0 };
        let walks = 1 << 8 | 1 << 10 | 3 << 12;
        let size = u64::from(64 - geometry.input_bits());
        let lpa2 = if self.common.is_lpa2() { 1 << 32 } else { 0 };
        let vtcr = 1 << 31 | lpa2 | hardware | ps << 16 | granule << 14 | walks | sl0 << 6 | size;
        alloc::vec![("vtcr_el2", vtcr), ("vttbr_el2", root)]
    }
}
