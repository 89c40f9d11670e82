//! Entries with one wrong bit: every bit of leaves and of pointers to tables, at every level.

use paging::format::Kind;
use paging::{Arena, Attributes, ENTRY_BYTES, Flags, Format, InputAddress, OutputAddress, Tables};

/// Limit for the tables, in bytes.
const LIMIT_BYTES: u64 = 8 << 20;

/// An entry with one inverted bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flip {
    /// The input address that this entry translates.
    pub va: InputAddress,
    /// The entry's level.
    pub level: u8,
    /// The number of the inverted bit.
    pub bit: u8,
    /// The entry without the inversion.
    pub from: u64,
    /// Whether the entry without the inversion is a leaf.
    pub is_leaf: bool,
}

/// Tables with a spine, one table at each level, whose other entries are the flips of that level. The first entry of
/// the root maps nothing.
pub fn flips<F: Format>(format: F, base: OutputAddress, output: OutputAddress) -> (Tables<F>, Vec<Flip>) {
    let geometry = format.geometry();
    let mut arena = Arena::new(base, LIMIT_BYTES).unwrap();
    let root_level = geometry.root_level();
    let root = arena.allocate(geometry.table_bytes(root_level), format.root_alignment()).unwrap();
    let mut flips = Vec::new();
    let (mut table, mut level, mut above) = (root, root_level, 0);
    loop {
        let good = if level > 0 { Some(good_table(&format, &mut arena, level - 1, output)) } else { None };
        let templates = templates(&format, level, good, output);
        let bits = templates.iter().flat_map(|template| (0..64).map(|bit| (*template, bit)));
        // The spine uses the last entries.
        let last = geometry.entries(level) - 1;
        for (index, (from, bit)) in (1..last).zip(bits) {
            *arena.entry_mut(table + index * ENTRY_BYTES).unwrap() = from ^ 1 << bit;
            let va = geometry.extended(above | index << geometry.shift(level));
            flips.push(Flip { va, level, bit, from, is_leaf: format.kind(level, from) == Kind::Leaf });
        }
        if level == 0 {
            return (Tables::in_arena(format, arena, root), flips);
        }
        let bytes = geometry.table_bytes(level - 1);
        let below = arena.allocate(bytes, bytes).unwrap();
        *arena.entry_mut(table + last * ENTRY_BYTES).unwrap() = format.table(below);
        above |= last << geometry.shift(level);
        (table, level) = (below, level - 1);
    }
}

/// Entries that are legal at `level`: leaves alone and in groups, of two memory types, and a pointer to `good`.
fn templates<F: Format>(format: &F, level: u8, good: Option<OutputAddress>, output: OutputAddress) -> Vec<u64> {
    let mut templates = Vec::new();
    if format.has_leaf(level) {
        let pa = output.aligned_down(format.geometry().span(level)).0;
        let other = Attributes { memory: 1, ..attributes(format) };
        let grouped = format.group_bits_at(level) > 0;
        let leaves = [(attributes(format), false), (other, false), (attributes(format), grouped)];
        let leaf = |(attributes, grouped)| {
            Some(format.leaf(level, attributes, grouped).ok()? | format.address_bits(level, pa, grouped))
        };
        templates.extend(leaves.into_iter().filter_map(leaf));
    }
    templates.extend(good.map(|table| format.table(table)));
    templates.dedup();
    templates
}

/// A table at `level` whose first entry leads to memory.
fn good_table<F: Format>(format: &F, arena: &mut Arena, level: u8, output: OutputAddress) -> OutputAddress {
    let bytes = format.geometry().table_bytes(level);
    let table = arena.allocate(bytes, bytes).unwrap();
    let pa = output.aligned_down(format.geometry().span(level)).0;
    let entry = if format.has_leaf(level) {
        format.leaf(level, attributes(format), false).unwrap() | format.address_bits(level, pa, false)
    } else {
        format.table(good_table(format, arena, level - 1, output))
    };
    *arena.entry_mut(table).unwrap() = entry;
    table
}

/// Kernel data, accessed and, if dirty is a separate bit, dirty.
fn attributes<F: Format>(format: &F) -> Attributes {
    let flags = Flags::READ | Flags::WRITE | Flags::ACCESSED;
    let attributes = Attributes { memory: format.normal_memory(), ..Attributes::new(flags) };
    let dirty = Attributes { flags: flags | Flags::DIRTY, ..attributes };
    if format.leaf(0, dirty, false).is_ok() { dirty } else { attributes }
}
