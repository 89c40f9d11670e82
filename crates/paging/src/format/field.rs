//! The fields of one entry, read and named.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::bits::Bits;

/// A field of an entry, as [`Format::fields`](super::Format::fields) reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in the specification.
    pub name: &'static str,
    /// Its highest bit.
    pub high: u8,
    /// Its lowest bit.
    pub low: u8,
    /// Its value, shifted down.
    pub value: u64,
    /// What this value means.
    pub meaning: String,
}

/// Reads the fields of one entry.
#[derive(Debug)]
pub struct Fields {
    entry: u64,
    fields: Vec<Field>,
}

impl Fields {
    /// None yet, of `entry`.
    pub fn of(entry: u64) -> Fields {
        Fields { entry, fields: Vec::new() }
    }

    /// Adds a field.
    pub(super) fn field(&mut self, bits: Bits, meaning: impl fmt::Display) -> &mut Fields {
        let Bits { name, high, low, .. } = bits;
        self.fields.push(Field { name, high, low, value: bits.get(self.entry), meaning: meaning.to_string() });
        self
    }

    /// Adds a field of one bit and what it means clear and set.
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
