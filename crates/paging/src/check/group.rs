//! Checks entries that must be alike: those of a contiguous group, and the hardware entries of one software entry.

use crate::address::OutputAddress;
use crate::attributes::Flags;
use crate::format::{Change, Format, Kind};
use crate::rule::Rule;

/// The number of address bits in the entries of any format that has groups or runs; machines may use fewer.
const ADDRESS_BITS: u8 = 56;

/// The address bits of a leaf at `level`.
fn address_mask(format: &impl Format, level: u8, grouped: bool) -> u64 {
    let highest = (1u64 << ADDRESS_BITS) - 1;
    format.address_bits(level, highest & !(format.geometry().page_bytes() - 1), grouped)
}

/// A leaf without its address and without the state that hardware sets on its own.
fn without_address_and_state(format: &impl Format, level: u8, leaf: u64) -> u64 {
    let grouped = format.group_bits(level, leaf) != 0;
    format.with_state(leaf, Flags::empty()) & !address_mask(format, level, grouped)
}

/// Whether hardware cannot distinguish two leaves of one level, apart from addresses and state.
fn is_alike(format: &impl Format, level: u8, a: u64, b: u64) -> bool {
    let (a, b) = (without_address_and_state(format, level, a), without_address_and_state(format, level, b));
    format.change(level, a, b) == Change::Free && format.change(level, b, a) == Change::Free
}

/// Given `leaf`, a group's entry for `from`, computes the entry that a legal group has for `to`. Both addresses are resolved.
pub(super) fn entry_for(format: &impl Format, level: u8, leaf: u64, from: u64, to: u64) -> u64 {
    let grouped = format.group_bits(level, leaf) != 0;
    let memory = format.leaf_address(level, leaf, format.geometry().extended(from));
    let pa = memory.0.wrapping_add(to).wrapping_sub(from);
    let mask = address_mask(format, level, grouped);
    leaf & !mask | format.address_bits(level, pa, grouped) & mask
}

/// Whether an entry is marked as part of a contiguous group.
pub(super) fn is_marked(format: &impl Format, level: u8, entry: u64) -> bool {
    format.kind(level, entry) == Kind::Leaf && format.group_bits(level, entry) != 0
}

/// The value of more than half of `values`; any one of them if there is no such majority.
fn majority<T: PartialEq + Copy>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut candidate = None;
    let mut votes = 0u32;
    for value in values {
        match candidate {
            Some(other) if other == value => votes += 1,
            Some(_) if votes > 0 => votes -= 1,
            _ => (candidate, votes) = (Some(value), 1),
        }
    }
    candidate
}

/// Adjacent entries of one table, from the resolved `va` on; `None` for an entry of which nothing is known.
#[derive(Clone, Copy)]
pub(super) struct Members<'a, F> {
    pub format: &'a F,
    pub level: u8,
    pub va: u64,
    pub entries: &'a [Option<u64>],
}

impl<F: Format> Members<'_, F> {
    /// The entries that are known and that hardware does not refuse on their own, with their indexes.
    fn known(&self) -> impl Iterator<Item = (usize, u64, Kind)> {
        let entries = self.entries.iter().copied().enumerate();
        let entries = entries.filter_map(|(index, entry)| Some((index, entry?, self.format.kind(self.level, entry?))));
        entries.filter(|(_, _, kind)| *kind != Kind::Illegal)
    }

    /// The address of the first entry's memory that the entry at `index` implies.
    fn base(&self, index: usize, entry: u64, kind: Kind) -> OutputAddress {
        let geometry = self.format.geometry();
        let index = index as u64;
        let before = |pa: OutputAddress, bytes| OutputAddress(pa.0.wrapping_sub(bytes));
        match kind {
            Kind::Table => {
                let table_bytes = geometry.table_bytes(self.level.saturating_sub(1));
                before(self.format.table_address(entry), index * table_bytes)
            }
            _ => {
                let offset = index * geometry.span(self.level);
                let va = geometry.extended(self.va.wrapping_add(offset));
                before(self.format.leaf_address(self.level, entry, va), offset)
            }
        }
    }

    /// The first entry that disagrees with the majority about where the memory begins; or the first entry of all if the
    /// majority's address is not aligned to `bytes`.
    fn misplaced(&self, bytes: u64) -> Option<usize> {
        let mut bases = self.known().map(|(index, entry, kind)| (index, self.base(index, entry, kind)));
        let expected = majority(self.known().map(|(index, entry, kind)| self.base(index, entry, kind)))?;
        match bases.find(|(_, base)| *base != expected) {
            Some((index, _)) => Some(index),
            None if !expected.is_aligned(bytes) => self.known().next().map(|(index, ..)| index),
            None => None,
        }
    }

    /// The first entry whose attributes differ from those of the majority.
    fn first_unlike(&self) -> Option<usize> {
        let expected =
            majority(self.known().map(|(_, entry, _)| without_address_and_state(self.format, self.level, entry)))?;
        let differs = |entry| !is_alike(self.format, self.level, entry, expected);
        self.known().find(|(_, entry, _)| differs(*entry)).map(|(index, ..)| index)
    }

    /// Reports the rules that a contiguous group breaks, each with the index of the entry that breaks it.
    pub fn group_faults(&self, mut broken: impl FnMut(usize, Rule)) {
        let marks = || self.known().map(|(_, entry, _)| is_marked(self.format, self.level, entry));
        let Some(expected) = majority(marks()) else { return };
        if let Some((index, ..)) =
            marks().zip(self.known()).find(|(is_marked, _)| *is_marked != expected).map(|(_, known)| known)
        {
            return broken(index, Rule::GroupIncomplete);
        }
        if !expected {
            return;
        }
        let bytes = self.format.geometry().span(self.level) * self.entries.len() as u64;
        if let Some(index) = self.misplaced(bytes) {
            broken(index, Rule::GroupAddresses);
        }
        if let Some(index) = self.first_unlike() {
            broken(index, Rule::GroupAttributes);
        }
    }

    /// Reports the rules that the hardware entries of one software entry break.
    pub fn run_faults(&self, mut broken: impl FnMut(usize, Rule)) {
        let Some(expected) = majority(self.known().map(|(_, _, kind)| kind)) else { return };
        if let Some((index, ..)) = self.known().find(|(_, _, kind)| *kind != expected) {
            return broken(index, Rule::RunIncomplete);
        }
        let geometry = self.format.geometry();
        let one = match expected {
            Kind::Leaf => geometry.span(self.level),
            Kind::Table => geometry.table_bytes(self.level.saturating_sub(1)),
            Kind::Hole | Kind::Illegal => return,
        };
        if let Some(index) = self.misplaced(one * self.entries.len() as u64) {
            broken(index, Rule::RunAddresses);
        }
        if let Some(index) = self.first_unlike().filter(|_| expected == Kind::Leaf) {
            broken(index, Rule::RunIncomplete);
        }
    }
}
