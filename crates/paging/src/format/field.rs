//! Named fields of one entry.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::bits::Bits;

/// A field of an entry, as returned by [`Format::fields`](super::Format::fields).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name in the specification.
    pub name: &'static str,
    /// The number of the highest bit.
    pub high: u8,
    /// The number of the lowest bit.
    pub low: u8,
    /// The value, shifted down to bit 0.
    pub value: u64,
    /// The meaning of this value, for display.
    pub meaning: String,
}

/// Collects the fields of one entry.
#[derive(Debug)]
pub struct Fields {
    entry: u64,
    fields: Vec<Field>,
}

impl Fields {
    /// An empty collection for `entry`.
    pub fn of(entry: u64) -> Fields {
        Fields { entry, fields: Vec::new() }
    }

    /// Adds a field with its meaning.
    pub(super) fn field(&mut self, bits: Bits, meaning: impl fmt::Display) -> &mut Fields {
        let Bits { name, high, low, .. } = bits;
        self.fields.push(Field { name, high, low, value: bits.get(self.entry), meaning: meaning.to_string() });
        self
    }

    /// Adds a field of one bit, with the meanings of clear and set.
    pub(super) fn flag(&mut self, bits: Bits, clear: &str, set: &str) -> &mut Fields {
        self.field(bits, if bits.is_set(self.entry) { set } else { clear })
    }

    /// The fields, highest bits first.
    pub fn done(&mut self) -> Vec<Field> {
        let mut fields = core::mem::take(&mut self.fields);
        fields.sort_by_key(|field| core::cmp::Reverse(field.high));
        fields
    }
}
