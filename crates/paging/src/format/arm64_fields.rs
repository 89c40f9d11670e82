//! Lists the fields of arm64 entries that both stages have, by their names in the manual.
//!
//! Source: Arm Architecture Reference Manual (DDI 0487), D8.3 "Translation table descriptor formats".

use alloc::string::String;
use alloc::vec::Vec;

use super::arm64::Stage;
use super::arm64_bits::{
    ADDRESS_51_48, ADDRESS_51_50, AF, CONTIGUOUS, DBM, IGNORED, NT, SH, SOFTWARE, TABLE, TABLE_IGNORED_HIGH,
    TABLE_IGNORED_LOW, TABLE_IGNORED_WIDE, VALID,
};
use super::arm64_shape::{Arm64, Granule};
use super::bits::Bits;
use super::{Field, Fields, Format, Kind, size};
use crate::address::InputAddress;

impl<S: Stage> Arm64<S> {
    /// Every field of an entry.
    pub(super) fn entry_fields(&self, level: u8, entry: u64) -> Vec<Field> {
        let mut fields = Fields::of(entry);
        fields.flag(VALID, "not valid: the other bits are software's", "valid");
        let kind = self.kind(level, entry);
        match kind {
            Kind::Hole => {}
            Kind::Table => {
                let table = alloc::format!("table at {:#x}", self.table_address(entry));
                fields.field(TABLE, "points to a table");
                fields.field(self.address(self.granule.shift()), table);
                self.upper_address_fields(fields.field(TABLE_IGNORED_HIGH, "software's"));
                let low = if self.is_lpa2() { &TABLE_IGNORED_WIDE[..] } else { &[TABLE_IGNORED_LOW] };
                for bits in low {
                    fields.field(*bits, "software's");
                }
            }
            Kind::Leaf | Kind::Illegal => self.leaf_fields(level, entry, &mut fields),
        }
        if kind != Kind::Hole {
            S::fields(self, kind, entry, &mut fields);
        }
        fields.done()
    }

    /// The address bits from `low` on that are at their regular positions.
    const fn address(&self, low: u8) -> Bits {
        Bits::new("address", self.highest_address_bit(), low)
    }

    /// The fields of a leaf that both stages have.
    fn leaf_fields(&self, level: u8, entry: u64, fields: &mut Fields) {
        let group_bits = self.group_bits_at(level);
        let contiguous = match (CONTIGUOUS.is_set(entry), group_bits) {
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
        let managed = match (DBM.is_set(entry), self.hardware_dirty) {
            (false, _) => "hardware does not manage writes",
            (true, false) => "ignored: hardware manages no dirty state",
            (true, true) => "hardware manages writes: what may be written, and what was",
        };
        let address = alloc::format!("maps {:#x}", self.leaf_address(level, entry, InputAddress(0)));
        fields
            .field(TABLE, kind)
            .flag(AF, "not accessed: an access faults or sets it", "accessed")
            .field(self.address(self.geometry.shift(level) as u8), address)
            .field(DBM, managed)
            .field(IGNORED, "software's")
            .field(CONTIGUOUS, contiguous)
            .field(SOFTWARE, "software's");
        self.upper_address_fields(fields);
        if !self.is_lpa2() {
            let names = ["not shareable", "reserved", "outer shareable", "inner shareable"];
            fields.field(SH, names[SH.get(entry) as usize]);
        }
        if level > 0 {
            fields.flag(NT, "TLBs may hold it", "no TLB may hold it (FEAT_BBM level 1)");
        }
    }

    /// The relocated high bits of an address of more than 48 bits, in leaves and in table descriptors.
    fn upper_address_fields(&self, fields: &mut Fields) {
        match self.granule {
            _ if !self.is_wide => {}
            Granule::K64 => _ = fields.field(ADDRESS_51_48, "bits 51:48 of the address"),
            Granule::K4 | Granule::K16 => _ = fields.field(ADDRESS_51_50, "bits 51:50 of the address"),
        }
    }
}
