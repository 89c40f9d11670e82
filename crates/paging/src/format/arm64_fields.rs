//! The fields of arm64 entries that both stages have, by the names of the manual.
//!
//! Source: Arm Architecture Reference Manual (DDI 0487), D8.3 "Translation table descriptor formats".

use alloc::string::String;
use alloc::vec::Vec;

use super::arm64::{Arm64, CONTIGUOUS, DBM, Granule, Stage};
use super::{Field, Fields, Format, Kind, bits, size};

impl<S: Stage> Arm64<S> {
    /// Every field of an entry.
    pub(super) fn entry_fields(&self, level: u8, entry: u64) -> Vec<Field> {
        let mut fields = Fields::of(entry);
        fields.flag("valid", 0, "not valid: the other bits are software's", "valid");
        let kind = self.kind(level, entry);
        match kind {
            Kind::Hole => {}
            Kind::Table => {
                let table = alloc::format!("table at {:#x}", self.table_address(entry));
                fields.field("type", 1, 1, "points to a table");
                fields.field("address", self.highest_address_bit(), self.granule.shift(), table);
                self.upper_address_fields(fields.field("ignored", 58, 51, "software's"));
                match self.is_lpa2() {
                    true => fields.field("ignored", 11, 10, "software's").field("ignored", 7, 2, "software's"),
                    false => fields.field("ignored", 11, 2, "software's"),
                };
            }
            Kind::Leaf | Kind::Illegal => self.leaf_fields(level, entry, &mut fields),
        }
        if kind != Kind::Hole {
            S::fields(self, kind, entry, &mut fields);
        }
        fields.done()
    }

    const fn highest_address_bit(&self) -> u8 {
        if self.is_lpa2() { 49 } else { 47 }
    }

    /// The fields of a leaf that both stages have.
    fn leaf_fields(&self, level: u8, entry: u64, fields: &mut Fields) {
        let group_bits = self.group_bits_at(level);
        let contiguous = match (entry & CONTIGUOUS != 0, group_bits) {
            (false, _) => String::from("alone"),
            (true, 0) => String::from("reserved: no contiguous groups at this level"),
            (true, _) => {
                let (entries, bytes) = (1u64 << group_bits, self.geometry.span(level) << group_bits);
                alloc::format!("one of {entries} entries that map {}", size(bytes))
            }
        };
        let kind = match (self.kind(level, entry), level) {
            (Kind::Illegal, _) => "reserved here: faults",
            (_, 0) => "a page",
            _ => "a block",
        };
        let managed = match (entry & DBM != 0, self.hardware_dirty) {
            (false, _) => "hardware does not manage writes",
            (true, false) => "ignored: hardware manages no dirty state",
            (true, true) => "hardware manages writes: what may be written, and what was",
        };
        let address = alloc::format!("maps {:#x}", self.leaf_address(level, entry, 0));
        fields
            .field("type", 1, 1, kind)
            .flag("AF", 10, "not accessed: an access faults or sets it", "accessed")
            .field("address", self.highest_address_bit(), self.geometry.shift(level) as u8, address)
            .field("DBM", 51, 51, managed)
            .field("ignored", 63, 63, "software's")
            .field("Contiguous", 52, 52, contiguous)
            .field("software", 58, 55, "software's");
        self.upper_address_fields(fields);
        if !self.is_lpa2() {
            let names = ["not shareable", "reserved", "outer shareable", "inner shareable"];
            fields.field("SH", 9, 8, names[bits(entry, 9, 8) as usize]);
        }
        if level > 0 {
            fields.flag("nT", 16, "TLBs may hold it", "no TLB may hold it (FEAT_BBM level 1)");
        }
    }

    /// The bits of an address of more than 48 that stand elsewhere, in leaves and in table descriptors.
    fn upper_address_fields(&self, fields: &mut Fields) {
        match self.granule {
            _ if !self.is_wide => {}
            Granule::K64 => _ = fields.field("address 51:48", 15, 12, "bits 51:48 of the address"),
            Granule::K4 | Granule::K16 => _ = fields.field("address 51:50", 9, 8, "bits 51:50 of the address"),
        }
    }
}
