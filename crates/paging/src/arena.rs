//! [`Arena`]: the memory of page tables, which is one contiguous range of physical memory that holds real 8-byte entries.

use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use crate::address::OutputAddress;
use crate::error::Error;
use crate::geometry::ENTRY_BYTES;
use crate::written::WrittenLines;

/// A range of physical memory that holds only page tables.
///
/// It grows as tables are allocated, up to its limit. It can be written out as an image of physical memory and read
/// back from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arena {
    base: OutputAddress,
    entries: Vec<u64>,
    written: WrittenLines,
    limit_bytes: u64,
    /// Released tables, by their size in bytes. There are only a few sizes.
    released: Vec<(u64, Vec<OutputAddress>)>,
    trees: Vec<Tree>,
    used_bytes: u64,
    /// An empty [`ReleasedTables`] that keeps the memory of the last one for reuse.
    spare: ReleasedTables,
}

/// Unlinked tables that are to be released together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReleasedTables {
    pub tables: Vec<OutputAddress>,
    pub trees: Vec<Tree>,
    /// The total number of tables.
    pub count: u64,
}

impl ReleasedTables {
    /// Adds one table.
    pub fn add(&mut self, table: OutputAddress) {
        self.tables.push(table);
        self.count += 1;
    }

    /// Adds a tree of tables.
    pub fn add_tree(&mut self, tree: Tree) {
        self.count += tree.entries + 1;
        self.trees.push(tree);
    }
}

/// A released table together with the tables of its own size that all its entries point to. Those tables are looked up only
/// when they are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Physical address of the table.
    pub pa: OutputAddress,
    /// Number of its entries.
    pub entries: u64,
    /// The address bits in each entry.
    pub address: u64,
    /// How far the address in an entry is shifted below its real position.
    pub shift: u32,
}

impl Arena {
    /// An empty arena that begins at the physical address `base` and may grow to `limit_bytes`.
    ///
    /// # Errors
    /// `base` is not aligned to an entry, or the arena would end past 64 bits.
    pub fn new(base: OutputAddress, limit_bytes: u64) -> Result<Arena, Error> {
        let aligned = base.is_aligned(ENTRY_BYTES) && base.checked_add(limit_bytes).is_some();
        if !aligned {
            return Err(Error::NotAnImage { base, bytes: limit_bytes });
        }
        let (entries, written, spare) = (Vec::new(), WrittenLines::default(), ReleasedTables::default());
        let (released, trees) = (Vec::new(), Vec::new());
        Ok(Arena { base, entries, written, limit_bytes, released, trees, used_bytes: 0, spare })
    }

    /// An arena whose memory, from `base` on, holds the little-endian entries of `image`.
    ///
    /// # Errors
    /// The image is not a whole number of entries, `base` is not aligned to an entry, or the image ends past 64 bits.
    pub fn from_image(base: OutputAddress, image: &[u8]) -> Result<Arena, Error> {
        let bytes = image.len() as u64;
        let (entries, rest) = image.as_chunks::<8>();
        let mut arena = Arena::new(base, bytes)?;
        if !rest.is_empty() {
            return Err(Error::NotAnImage { base, bytes });
        }
        arena.entries = entries.iter().map(|entry| u64::from_le_bytes(*entry)).collect();
        arena.written.grow(arena.entries.len());
        arena.written.add_all(0..arena.entries.len());
        arena.used_bytes = bytes;
        Ok(arena)
    }

    /// The memory as bytes, little-endian, from [`Arena::base`] on.
    pub fn image(&self) -> Vec<u8> {
        self.entries.iter().flat_map(|entry| entry.to_le_bytes()).collect()
    }

    /// The physical address of its first entry.
    pub fn base(&self) -> OutputAddress {
        self.base
    }

    /// Bytes from the beginning of the arena to the end of the last table.
    pub fn bytes(&self) -> u64 {
        self.entries.len() as u64 * ENTRY_BYTES
    }

    /// Total size of the allocated tables, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Allocates a table of `bytes` (whole entries) at a multiple of `alignment`, with only holes.
    ///
    /// # Errors
    /// The arena would exceed its limit.
    pub fn allocate(&mut self, bytes: u64, alignment: u64) -> Result<OutputAddress, Error> {
        let (pa, is_new) = self.allocate_stale(bytes, alignment)?;
        if !is_new {
            self.clear(pa, bytes / ENTRY_BYTES);
        }
        Ok(pa)
    }

    /// As [`Arena::allocate`], but a reused table keeps its old content. The second value says whether the table is new
    /// and so empty.
    ///
    /// # Errors
    /// The arena would exceed its limit.
    pub(crate) fn allocate_stale(&mut self, bytes: u64, alignment: u64) -> Result<(OutputAddress, bool), Error> {
        let allocated = match self.reuse(bytes) {
            Some(pa) => (pa, false),
            None => (self.grow(bytes, alignment)?, true),
        };
        self.used_bytes += bytes;
        Ok(allocated)
    }

    /// A released table of `bytes`, if there is one.
    fn reuse(&mut self, bytes: u64) -> Option<OutputAddress> {
        let list = self.released.iter_mut().find(|(size, _)| *size == bytes);
        if let Some(pa) = list.and_then(|(_, tables)| tables.pop()) {
            return Some(pa);
        }
        let tree = self.trees.iter().rposition(|tree| tree.entries * ENTRY_BYTES == bytes)?;
        let Tree { pa, entries, address, shift } = self.trees.swap_remove(tree);
        let table = |entry: &u64| OutputAddress((entry & address) << shift);
        let tables: Vec<OutputAddress> = self.table(pa, entries)?.iter().map(table).collect();
        self.recycle(&tables, bytes);
        Some(pa)
    }

    fn grow(&mut self, bytes: u64, alignment: u64) -> Result<OutputAddress, Error> {
        let full = Error::ArenaFull { bytes, limit_bytes: self.limit_bytes };
        let free = self.base + self.bytes();
        let Some(pa) = free.0.checked_next_multiple_of(alignment).map(OutputAddress) else { return Err(full) };
        let end = (pa - self.base).checked_add(bytes).filter(|end| *end <= self.limit_bytes).ok_or(full)?;
        self.entries.resize((end / ENTRY_BYTES) as usize, 0);
        self.written.grow(self.entries.len());
        Ok(pa)
    }

    /// Releases a table of `bytes` that was allocated at `pa`.
    pub fn release(&mut self, pa: OutputAddress, bytes: u64) {
        self.release_tables(&[pa], bytes);
    }

    fn release_tables(&mut self, tables: &[OutputAddress], bytes: u64) {
        self.used_bytes = self.used_bytes.saturating_sub(bytes * tables.len() as u64);
        self.recycle(tables, bytes);
    }

    /// An empty collection of tables to release.
    pub(crate) fn collection(&mut self) -> ReleasedTables {
        mem::take(&mut self.spare)
    }

    /// Releases tables of `bytes` each, and trees of tables.
    pub(crate) fn release_all(&mut self, mut released: ReleasedTables, bytes: u64) {
        self.release_tables(&released.tables, bytes);
        for tree in &released.trees {
            self.used_bytes = self.used_bytes.saturating_sub(tree.entries * ENTRY_BYTES * (tree.entries + 1));
        }
        self.trees.append(&mut released.trees);
        released.tables.clear();
        self.spare = ReleasedTables { count: 0, ..released };
    }

    fn recycle(&mut self, tables: &[OutputAddress], bytes: u64) {
        match self.released.iter_mut().find(|(size, _)| *size == bytes) {
            Some((_, released)) => released.extend_from_slice(tables),
            None => self.released.push((bytes, tables.to_vec())),
        }
    }

    /// The entry at `pa`, if that is inside the arena.
    #[inline]
    pub fn read(&self, pa: OutputAddress) -> Option<u64> {
        self.entries.get(self.place(pa) as usize).copied()
    }

    /// The index of the entry at `pa`, counted from the arena's first.
    #[inline]
    pub(crate) fn place(&self, pa: OutputAddress) -> u64 {
        pa.0.wrapping_sub(self.base.0) / ENTRY_BYTES
    }

    /// All entries, in order.
    #[inline]
    pub(crate) fn entries(&self) -> &[u64] {
        &self.entries
    }

    /// The entry at `pa`, for changing it. It counts as written.
    #[inline]
    pub fn entry_mut(&mut self, pa: OutputAddress) -> Option<&mut u64> {
        let place = self.place(pa) as usize;
        self.written.add(place);
        self.entries.get_mut(place)
    }

    /// The `entries` entries from `pa` on, if all of them are inside the arena.
    #[inline]
    pub fn table(&self, pa: OutputAddress, entries: u64) -> Option<&[u64]> {
        self.entries.get(self.places(pa, entries)?)
    }

    /// The `entries` entries from `pa` on, for changing them. They count as written.
    #[inline]
    pub fn table_mut(&mut self, pa: OutputAddress, entries: u64) -> Option<&mut [u64]> {
        let places = self.places(pa, entries)?;
        self.written.add_all(places.clone());
        self.entries.get_mut(places)
    }

    /// Whether the `entries` entries from `pa` on are all zero or accepted by `accepts`; `None` if they are not inside.
    /// Stretches that were never written are not read.
    #[inline]
    pub(crate) fn all(&self, pa: OutputAddress, entries: u64, accepts: impl Fn(&[u64]) -> bool) -> Option<bool> {
        let places = self.places(pa, entries)?;
        Some(self.written.all(places, |places| self.entries.get(places).is_none_or(&accepts)))
    }

    /// Sets the `entries` entries from `pa` on to zero and returns whether all of them are inside the arena.
    #[inline]
    pub(crate) fn clear(&mut self, pa: OutputAddress, entries: u64) -> bool {
        let Some(places) = self.places(pa, entries) else { return false };
        self.written.remove_all(places, |places| {
            if let Some(entries) = self.entries.get_mut(places) {
                entries.fill(0);
            }
        });
        true
    }

    /// The indexes of the `entries` entries from `pa` on, if all of them are inside the arena.
    #[inline]
    fn places(&self, pa: OutputAddress, entries: u64) -> Option<Range<usize>> {
        let first = self.place(pa) as usize;
        let end = first.checked_add(entries as usize)?;
        (end <= self.entries.len()).then_some(first..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_reused_and_empty() {
        let mut arena = Arena::new(OutputAddress(0x1000), 0x10000).unwrap();
        let small = arena.allocate(64, 64).unwrap();
        let large = arena.allocate(0x4000, 0x4000).unwrap();
        assert_eq!((small.0, large.0, arena.used_bytes()), (0x1000, 0x4000, 0x4040));
        *arena.entry_mut(large).unwrap() = 7;
        arena.release(large, 0x4000);
        assert_eq!(arena.allocate(0x4000, 0x4000), Ok(large));
        assert_eq!(arena.read(large), Some(0));
        assert_eq!(arena.allocate(0x10000, 0x1000), Err(Error::ArenaFull { bytes: 0x10000, limit_bytes: 0x10000 }));
        let mut last = Arena::new(OutputAddress(u64::MAX << 3), 7).unwrap();
        for (bytes, alignment) in [(8, 4096), (u64::MAX, 8), (8, 0)] {
            assert_eq!(last.allocate(bytes, alignment), Err(Error::ArenaFull { bytes, limit_bytes: 7 }));
        }
    }

    #[test]
    fn an_image_is_read_back() {
        let mut arena = Arena::new(OutputAddress(0x8000), 0x1000).unwrap();
        let table = arena.allocate(32, 8).unwrap();
        arena.table_mut(table, 4).unwrap().copy_from_slice(&[1, 2, u64::MAX, 4]);
        let read = Arena::from_image(OutputAddress(0x8000), &arena.image()).unwrap();
        assert_eq!(read.table(table, 4), arena.table(table, 4));
        let outside = [0x7ff8, 0x8020].map(|pa| read.read(OutputAddress(pa)));
        assert_eq!((outside, read.table(OutputAddress(0x8018), 2)), ([None; 2], None));
        for (base, image) in [(0, &[0; 9][..]), (4, &[0; 8])] {
            let (base, bytes) = (OutputAddress(base), image.len() as u64);
            assert_eq!(Arena::from_image(base, image), Err(Error::NotAnImage { base, bytes }));
        }
    }
}
