//! The memory that tables live in: one contiguous stretch of physical memory, of real 8-byte entries.

use alloc::vec;
use alloc::vec::Vec;

use crate::error::Error;
use crate::geometry::ENTRY_BYTES;

/// A stretch of physical memory that holds page tables and nothing else.
///
/// It grows as tables are allocated, up to its limit, and can be written out as an image of physical memory
/// and be read back from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arena {
    base: u64,
    entries: Vec<u64>,
    limit_bytes: u64,
    /// Tables that were given back, by their size in bytes. There are few sizes.
    released: Vec<(u64, Vec<u64>)>,
    trees: Vec<Tree>,
    used_bytes: u64,
}

/// A table that was given back with the tables of its own size that all its entries point to. Nobody looks for those
/// before they are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Where it is.
    pub pa: u64,
    /// Its entries.
    pub entries: u64,
    /// The bits of an address in them.
    pub address: u64,
    /// How far below its place the address stands.
    pub shift: u32,
}

impl Arena {
    /// An empty arena that begins at the physical address `base` and may grow to `limit_bytes`.
    ///
    /// # Errors
    /// `base` is not the address of an entry.
    pub fn new(base: u64, limit_bytes: u64) -> Result<Arena, Error> {
        let aligned = base.is_multiple_of(ENTRY_BYTES) && base.checked_add(limit_bytes).is_some();
        let empty =
            Arena { base, entries: Vec::new(), limit_bytes, released: Vec::new(), trees: Vec::new(), used_bytes: 0 };
        if aligned { Ok(empty) } else { Err(Error::NotAnImage { base, bytes: limit_bytes }) }
    }

    /// The arena whose memory, from `base` on, holds the little-endian entries of `image`.
    ///
    /// # Errors
    /// The image is no whole number of entries, or `base` is not the address of one.
    pub fn from_image(base: u64, image: &[u8]) -> Result<Arena, Error> {
        let bytes = image.len() as u64;
        let (entries, rest) = image.as_chunks::<8>();
        let mut arena = Arena::new(base, bytes)?;
        if !rest.is_empty() {
            return Err(Error::NotAnImage { base, bytes });
        }
        arena.entries = entries.iter().map(|entry| u64::from_le_bytes(*entry)).collect();
        arena.used_bytes = bytes;
        Ok(arena)
    }

    /// The memory as bytes, little-endian, from [`Arena::base`] on.
    pub fn image(&self) -> Vec<u8> {
        self.entries.iter().flat_map(|entry| entry.to_le_bytes()).collect()
    }

    /// Where it begins.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Bytes from the first table to the end of the last one.
    pub fn bytes(&self) -> u64 {
        self.entries.len() as u64 * ENTRY_BYTES
    }

    /// Bytes of the tables that are allocated.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Allocates a table of `bytes` (whole entries) at a multiple of `alignment`, all holes.
    ///
    /// # Errors
    /// The arena may not grow that far.
    pub fn allocate(&mut self, bytes: u64, alignment: u64) -> Result<u64, Error> {
        let (pa, is_new) = self.allocate_stale(bytes, alignment)?;
        if !is_new {
            self.table_mut(pa, bytes / ENTRY_BYTES).into_iter().for_each(|table| table.fill(0));
        }
        Ok(pa)
    }

    /// As [`Arena::allocate`], but with anything in the table unless it is new, which the second value says.
    ///
    /// # Errors
    /// The arena may not grow that far.
    pub(crate) fn allocate_stale(&mut self, bytes: u64, alignment: u64) -> Result<(u64, bool), Error> {
        let allocated = match self.reuse(bytes) {
            Some(pa) => (pa, false),
            None => (self.grow(bytes, alignment)?, true),
        };
        self.used_bytes += bytes;
        Ok(allocated)
    }

    /// A table of `bytes` that was given back.
    fn reuse(&mut self, bytes: u64) -> Option<u64> {
        let list = self.released.iter_mut().find(|(size, _)| *size == bytes);
        if let Some(pa) = list.and_then(|(_, tables)| tables.pop()) {
            return Some(pa);
        }
        let tree = self.trees.iter().rposition(|tree| tree.entries * ENTRY_BYTES == bytes)?;
        let Tree { pa, entries, address, shift } = self.trees.swap_remove(tree);
        let tables = self.table(pa, entries)?.iter().map(|entry| (entry & address) << shift).collect();
        self.keep(tables, bytes);
        Some(pa)
    }

    fn grow(&mut self, bytes: u64, alignment: u64) -> Result<u64, Error> {
        let pa = (self.base + self.bytes()).next_multiple_of(alignment);
        let end = pa - self.base + bytes;
        if end > self.limit_bytes {
            return Err(Error::ArenaFull { bytes, limit_bytes: self.limit_bytes });
        }
        self.entries.resize((end / ENTRY_BYTES) as usize, 0);
        Ok(pa)
    }

    /// Takes back a table of `bytes` that was allocated at `pa`.
    pub fn release(&mut self, pa: u64, bytes: u64) {
        self.release_all(vec![pa], bytes);
    }

    /// Takes back tables of `bytes` each.
    pub(crate) fn release_all(&mut self, tables: Vec<u64>, bytes: u64) {
        self.used_bytes = self.used_bytes.saturating_sub(bytes * tables.len() as u64);
        self.keep(tables, bytes);
    }

    /// Takes back a table and those that it points to.
    pub(crate) fn release_tree(&mut self, tree: Tree) {
        self.used_bytes = self.used_bytes.saturating_sub(tree.entries * ENTRY_BYTES * (tree.entries + 1));
        self.trees.push(tree);
    }

    fn keep(&mut self, tables: Vec<u64>, bytes: u64) {
        match self.released.iter_mut().find(|(size, _)| *size == bytes) {
            Some((_, released)) if released.is_empty() => *released = tables,
            Some((_, released)) => released.extend_from_slice(&tables),
            None => self.released.push((bytes, tables)),
        }
    }

    /// The entry at `pa`, if that is inside.
    #[inline]
    pub fn read(&self, pa: u64) -> Option<u64> {
        self.entries.get((pa.wrapping_sub(self.base) / ENTRY_BYTES) as usize).copied()
    }

    /// The number of the entry at `pa`, counted from the arena's first.
    #[inline]
    pub(crate) fn place(&self, pa: u64) -> u64 {
        pa.wrapping_sub(self.base) / ENTRY_BYTES
    }

    /// All entries, in their order.
    #[inline]
    pub(crate) fn entries(&self) -> &[u64] {
        &self.entries
    }

    /// The entry at `pa`, to be changed.
    #[inline]
    pub fn entry_mut(&mut self, pa: u64) -> Option<&mut u64> {
        self.entries.get_mut((pa.wrapping_sub(self.base) / ENTRY_BYTES) as usize)
    }

    /// The `entries` entries from `pa` on, if all of them are inside.
    #[inline]
    pub fn table(&self, pa: u64, entries: u64) -> Option<&[u64]> {
        let first = (pa.wrapping_sub(self.base) / ENTRY_BYTES) as usize;
        self.entries.get(first..first.checked_add(entries as usize)?)
    }

    /// The `entries` entries from `pa` on, to be changed.
    #[inline]
    pub fn table_mut(&mut self, pa: u64, entries: u64) -> Option<&mut [u64]> {
        let first = (pa.wrapping_sub(self.base) / ENTRY_BYTES) as usize;
        self.entries.get_mut(first..first.checked_add(entries as usize)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_reused_and_empty() {
        let mut arena = Arena::new(0x1000, 0x10000).unwrap();
        let small = arena.allocate(64, 64).unwrap();
        let large = arena.allocate(0x4000, 0x4000).unwrap();
        assert_eq!((small, large, arena.used_bytes()), (0x1000, 0x4000, 0x4040));
        *arena.entry_mut(large).unwrap() = 7;
        arena.release(large, 0x4000);
        assert_eq!(arena.allocate(0x4000, 0x4000), Ok(large));
        assert_eq!(arena.read(large), Some(0));
        assert_eq!(arena.allocate(0x10000, 0x1000), Err(Error::ArenaFull { bytes: 0x10000, limit_bytes: 0x10000 }));
    }

    #[test]
    fn an_image_is_read_back() {
        let mut arena = Arena::new(0x8000, 0x1000).unwrap();
        let table = arena.allocate(32, 8).unwrap();
        arena.table_mut(table, 4).unwrap().copy_from_slice(&[1, 2, u64::MAX, 4]);
        let read = Arena::from_image(0x8000, &arena.image()).unwrap();
        assert_eq!(read.table(table, 4), arena.table(table, 4));
        assert_eq!((read.read(0x7ff8), read.read(0x8020), read.table(0x8018, 2)), (None, None, None));
        assert_eq!(Arena::from_image(0, &[0; 9]), Err(Error::NotAnImage { base: 0, bytes: 9 }));
        assert_eq!(Arena::from_image(4, &[0; 8]), Err(Error::NotAnImage { base: 4, bytes: 8 }));
    }
}
