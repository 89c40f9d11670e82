//! [`Tables`]: page tables of one format in an arena, with the operations map, unmap, protect and translate.
//!
//! Input addresses inside this module are *resolved*: without the bits above those that the tables resolve. An
//! operation either succeeds completely or, if the request is at fault, changes nothing.

use crate::address::{InputAddress, OutputAddress};
use crate::arena::{Arena, ReleasedTables};
use crate::attributes::Attributes;
use crate::error::Error;
use crate::format::{Discipline, Format, Kind, first_rule};
use crate::geometry::{ENTRY_BYTES, Geometry};
use crate::log::{Event, Log};

mod bulk;
mod empty;
mod map;
mod mapping;
mod protect;
mod resize;
mod slot;
mod state;
mod unmap;
mod walk_cache;

pub use empty::FreeRequest;
pub use mapping::{Mapping, Sizes};
pub(crate) use slot::end_of;
pub use slot::{Leaf, Slot, Translation};
use walk_cache::CachedArena;

/// Page tables of the format `F`, which report their changes to `L`.
#[derive(Clone, Debug)]
pub struct Tables<F, L = ()> {
    format: F,
    arena: CachedArena,
    root: OutputAddress,
    log: L,
}

impl<F: Format> Tables<F> {
    /// Empty tables at the beginning of an arena that begins at `base` and may grow to `limit_bytes`.
    ///
    /// # Errors
    /// As [`Tables::with_log`].
    pub fn new(format: F, base: OutputAddress, limit_bytes: u64) -> Result<Tables<F>, Error> {
        Tables::with_log(format, base, limit_bytes, ())
    }

    /// The tables whose root is at `root` in an arena that was read from an image. Nothing is checked.
    ///
    /// A root in the last 16 MiB of 64 bits, where no format has physical memory, is replaced by the start of those 16
    /// MiB, so that no address of an entry wraps around.
    pub fn in_arena(format: F, arena: Arena, root: OutputAddress) -> Tables<F> {
        let arena = CachedArena::of(&format, arena);
        Tables { format, arena, root: root.min(OutputAddress(u64::MAX << 24)), log: () }
    }
}

impl<F: Format, L: Log> Tables<F, L> {
    /// As [`Tables::new`], but reports every change to `log`.
    ///
    /// # Errors
    /// `base` is past the physical address space, or the arena cannot hold the root below its end.
    pub fn with_log(format: F, base: OutputAddress, limit_bytes: u64, log: L) -> Result<Tables<F, L>, Error> {
        let geometry = format.geometry();
        let output_bits = geometry.output_bits();
        let past_the_end = Error::OutputTooLarge { pa: base, bytes: limit_bytes, output_bits };
        let room = (1u64 << output_bits).checked_sub(base.0).filter(|room| *room > 0).ok_or(past_the_end)?;
        let mut arena = Arena::new(base, limit_bytes.min(room))?;
        let root = arena.allocate(geometry.table_bytes(geometry.root_level()), format.root_alignment())?;
        let arena = CachedArena::of(&format, arena);
        Ok(Tables { format, arena, root, log })
    }

    /// The format of the tables.
    #[inline]
    pub fn format(&self) -> &F {
        &self.format
    }

    /// The shape of the tables: levels, page size, address bits.
    #[inline]
    pub fn geometry(&self) -> Geometry {
        self.format.geometry()
    }

    /// The memory that holds the tables.
    #[inline]
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The memory that holds the tables, for changes that are not logged: to tables that nothing walks yet.
    #[inline]
    pub fn arena_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }

    /// The physical address of the root table.
    pub fn root(&self) -> OutputAddress {
        self.root
    }

    /// The log, with all changes so far.
    pub fn log(&self) -> &L {
        &self.log
    }

    /// The log, so that it can be taken or emptied.
    pub fn log_mut(&mut self) -> &mut L {
        &mut self.log
    }

    /// Follows the tables as hardware does, except for permissions and reserved bits: [`crate::check`] checks those.
    ///
    /// The results of walks are cached until the tables change, so translating many nearby addresses is cheap.
    ///
    /// # Errors
    /// The address is not canonical or not mapped, or the walk meets an entry that hardware refuses or a table outside
    /// the arena.
    #[inline]
    pub fn translate(&self, va: InputAddress) -> Result<Translation, Error> {
        match self.cached(va) {
            Some((translation, _)) => Ok(translation),
            None => self.walked(va).map(|Leaf { pa, level, .. }| Translation { pa, level }),
        }
    }

    /// The leaf that [`Tables::translate`] finds.
    ///
    /// # Errors
    /// As [`Tables::translate`].
    pub fn leaf(&self, va: InputAddress) -> Result<Leaf, Error> {
        match self.cached(va) {
            Some((Translation { pa, level: 0 }, entry)) => Ok(Leaf { pa, level: 0, entry }),
            _ => self.walked(va),
        }
    }

    /// Looks up the walk cache. With a constant page shift, each shift takes one instruction less.
    #[inline(always)]
    fn cached(&self, va: InputAddress) -> Option<(Translation, u64)> {
        match self.geometry().page_shift() {
            12 => self.arena.look_up::<F>(va, 12),
            page_shift => self.arena.look_up::<F>(va, u32::from(page_shift)),
        }
    }

    /// Walks from the root and caches the result.
    #[cold]
    #[inline(never)]
    fn walked(&self, va: InputAddress) -> Result<Leaf, Error> {
        let geometry = self.geometry();
        if !geometry.is_canonical(va) {
            let (input_bits, extension) = (geometry.input_bits(), geometry.extension());
            return Err(Error::NotCanonical { va, input_bits, extension });
        }
        let resolved = geometry.resolved(va);
        let plain = match geometry.page_shift() {
            12 => self.plain_slot(resolved, 12),
            page_shift => self.plain_slot(resolved, u32::from(page_shift)),
        };
        let slot = match plain {
            Some(slot) => slot,
            None => self.slot(resolved)?,
        };
        let Slot { level, entry, .. } = slot;
        let memory = match self.format.leaf_pattern(level).address(entry, F::ADDRESS_SHIFT) {
            Some(address) => address,
            None if self.format.kind(level, entry) == Kind::Leaf => self.format.leaf_address(level, entry, va),
            None => return Err(self.unmapped(va, level, entry)),
        };
        let pa = OutputAddress(memory.0 | va.0 & (geometry.span(level) - 1));
        self.arena.fill(geometry, va, pa, slot);
        Ok(Leaf { pa, level, entry })
    }

    /// As [`Tables::slot`], if all tables on the path match the format's pattern. The result is a leaf, a hole or an
    /// illegal entry.
    #[inline(always)]
    fn plain_slot(&self, va: u64, page_shift: u32) -> Option<Slot> {
        let (entries, pattern) = (self.arena.entries(), self.format.table_pattern());
        let index_bits = page_shift - 3;
        let mut level = self.geometry().root_level();
        let mut shift = page_shift + u32::from(level) * index_bits;
        let mut pa = self.root + (va >> shift) * ENTRY_BYTES;
        loop {
            let entry = *entries.get(self.arena.place(pa) as usize)?;
            let Some(table) = pattern.address(entry, F::ADDRESS_SHIFT).filter(|_| level > 0) else {
                let is_table = level > 0 && self.format.kind(level, entry) == Kind::Table;
                return (!is_table).then_some(Slot { pa, va: va >> shift << shift, level, entry });
            };
            (level, shift) = (level - 1, shift - index_bits);
            pa = table + (va >> shift & ((1 << index_bits) - 1)) * ENTRY_BYTES;
        }
    }

    /// The effective attributes of the memory at `va`: those of its leaf, less the flags that the tables on the path remove.
    ///
    /// # Errors
    /// As [`Tables::translate`].
    pub fn attributes(&self, va: InputAddress) -> Result<Attributes, Error> {
        let leaf = self.leaf(va)?;
        let mut attributes = self.format.attributes(leaf.level, leaf.entry);
        let geometry = self.geometry();
        let mut table = self.root;
        for level in (leaf.level + 1..geometry.levels()).rev() {
            let pa = geometry.entry_address(table, level, va);
            let entry = self.arena.read(pa).ok_or_else(|| self.outside(table, va, level))?;
            attributes.flags -= self.format.restrictions(entry);
            table = self.format.table_address(entry);
        }
        Ok(attributes)
    }

    /// The error of a walk to a table that is outside the arena.
    #[cold]
    pub fn outside(&self, table: OutputAddress, va: InputAddress, level: u8) -> Error {
        Error::OutsideArena { pa: table, va, level, base: self.arena.base(), bytes: self.arena.bytes() }
    }

    /// The error of a walk that ends at a hole or an illegal entry.
    #[cold]
    pub fn unmapped(&self, va: InputAddress, level: u8, entry: u64) -> Error {
        match self.format.kind(level, entry) {
            Kind::Hole => Error::NotMapped { va, level, entry },
            _ => Error::Illegal { va, level, entry, rule: first_rule(&self.format, level, entry) },
        }
    }

    /// The last entry of the walk to the resolved address: a leaf, a hole or an illegal entry.
    pub(crate) fn slot(&self, va: u64) -> Result<Slot, Error> {
        self.slot_below(self.root, self.geometry().root_level(), va)
    }

    /// As [`Tables::slot`], for a walk that begins at a table.
    fn slot_below(&self, table: OutputAddress, level: u8, va: u64) -> Result<Slot, Error> {
        let geometry = self.geometry();
        let (mut table, mut level) = (table, level);
        loop {
            let pa = table + geometry.index(level, va) * ENTRY_BYTES;
            let entry = self.arena.read(pa).ok_or_else(|| self.outside(table, geometry.extended(va), level))?;
            if level == 0 || self.format.kind(level, entry) != Kind::Table {
                return Ok(Slot { pa, va: va & !(geometry.span(level) - 1), level, entry });
            }
            (table, level) = (self.format.table_address(entry), level - 1);
        }
    }

    /// Writes one entry and logs the change, for walks that this crate does not have.
    ///
    /// # Errors
    /// The entry is outside the arena.
    pub fn write(&mut self, slot: Slot, new: u64) -> Result<(), Error> {
        let geometry = self.geometry();
        let Some(entry) = self.arena.entry_mut(slot.pa) else {
            return Err(self.outside(slot.pa, geometry.extended(slot.va), slot.level));
        };
        let old = core::mem::replace(entry, new);
        if L::ENABLED {
            let va = geometry.extended(slot.va);
            self.log.event(Event::Write { pa: slot.pa, va, level: slot.level, old, new });
        }
        Ok(())
    }

    /// Drops the translations of a range of resolved addresses from the TLBs, which only the log sees; `tables`: also those of pointers
    /// to tables.
    pub fn invalidate(&mut self, va: u64, bytes: u64, tables: bool) {
        if L::ENABLED {
            let va = self.geometry().extended(va);
            self.log.event(Event::Invalidate { va, bytes, tables });
        }
    }

    /// Releases blocks of tables, none of them the root, when nothing can walk them any more.
    pub(crate) fn release(&mut self, released: ReleasedTables) {
        let bytes = self.geometry().page_bytes() << self.format.run_bits();
        if L::ENABLED {
            released.tables.iter().for_each(|pa| self.log.event(Event::Release { pa: *pa, bytes }));
        }
        self.arena.release_all(released, bytes);
    }

    /// The size in bytes of the allocation for one entry that points to a table at `level`: the table, or the tables of
    /// a whole run of entries.
    pub(crate) fn block_bytes(&self, level: u8) -> u64 {
        self.geometry().table_bytes(level) << self.format.run_bits()
    }

    pub(crate) fn needs_break(&self) -> bool {
        use crate::format::BreakLevel;
        !matches!(
            self.format.discipline(),
            Discipline::WriteThenInvalidate | Discipline::BreakBeforeMake(BreakLevel::Two)
        )
    }
}
