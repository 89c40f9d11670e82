//! Page walks: the entries that a walker reads, and the caches in which it finds them.

use paging::{Attributes, ENTRY_BYTES, Error, Flags, Format, InputAddress, Mapping, Sizes, Tables, with_format};

use crate::address::Pa;
use crate::machine::{Machine, Stage2};
use crate::space::{LEVELS, Path};
use crate::tlb::LruSets;

/// Maximum number of walks per call.
pub const MAX_WALKS: usize = 128;
/// Maximum number of reads that are looked up in one batch.
const MAX_PENDING: usize = 256;
/// Used in place of a level if no walk cache has an entry for the walk.
const NO_TABLE: u8 = u8::MAX;
/// log2 of the size of a cache line in bytes: eight entries.
const LINE_SHIFT: u32 = 6;
/// The address of the second stage's tables. The addresses of these tables differ from those of first-stage tables in the lower
/// 38 bits, which determine the number of a line.
const STAGE2_PA: Pa = Pa((1 << 43) + (1 << 37));
const STAGE2_BYTES: u64 = 1 << 36;

/// The costs of walks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walks {
    pub walks: u64,
    /// Number of entries read.
    pub references: u64,
    /// Number of entries found in each cache, the nearest first, and last in memory.
    pub found: Vec<u64>,
    /// Total cycles of all reads.
    pub cycles: u64,
}

/// The entry that maps a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafEntry {
    /// The entry's physical address, with the level in the low bits, which are 0 in every entry's address.
    address_and_level: u64,
}

impl LeafEntry {
    /// The entry that ends the path.
    pub fn of(path: &Path) -> LeafEntry {
        LeafEntry { address_and_level: path.entries[usize::from(path.leaf_level)].0 | u64::from(path.leaf_level) }
    }

    /// The physical address of the entry.
    pub fn pa(self) -> Pa {
        Pa(self.address_and_level & !(ENTRY_BYTES - 1))
    }

    /// The level of the entry; 0 is the level of pages.
    pub fn level(self) -> u8 {
        (self.address_and_level & (ENTRY_BYTES - 1)) as u8
    }
}

/// A walker with its caches.
pub struct Walker {
    /// Walk caches with the level of their entries, the lowest level first.
    caches: Vec<(u8, LruSets<u64>)>,
    lines: Lines,
    nested: Option<Nested>,
    /// log2 of the bytes that an entry of each level spans.
    shifts: [u8; LEVELS],
    walks: u64,
}

/// One walk.
pub struct Walk<'a> {
    /// The address, with the tag of its process.
    pub va: u64,
    /// The entry that maps the address.
    pub leaf: LeafEntry,
    /// The entries above it.
    pub path: &'a Path,
}

/// Caches of lines of entries. No cache depends on the content of the next one, and only reads change them. So a batch of reads
/// is looked up in one cache after the other.
#[derive(Clone)]
struct Lines {
    /// The caches with their cycles, the nearest first.
    caches: Vec<(LruSets<u32>, u32)>,
    memory_cycles: u32,
    /// The line number of each pending read, plus one, because 0 means no entry.
    pending: Vec<u32>,
    references: u64,
    found: Vec<u64>,
    cycles: u64,
}

impl Lines {
    fn read(&mut self, pa: Pa) {
        if self.pending.len() == MAX_PENDING {
            self.look_up();
        }
        // 32 bits distinguish the lines of all tables of both stages.
        self.pending.push((pa.0 >> LINE_SHIFT) as u32 + 1);
    }

    /// Looks up all pending reads.
    fn look_up(&mut self) {
        self.references += self.pending.len() as u64;
        let mut left = self.pending.len();
        let mut count = |found: &mut u64, reads: usize, cycles: u32| {
            *found += reads as u64;
            self.cycles += reads as u64 * u64::from(cycles);
        };
        for ((cache, cycles), found) in self.caches.iter_mut().zip(&mut self.found) {
            let missed = cache.touch_all(&mut self.pending[..left], |line| line - 1);
            count(found, left - missed, *cycles);
            left = missed;
        }
        if let Some(of_memory) = self.found.last_mut() {
            count(of_memory, left, self.memory_cycles);
        }
        self.pending.clear();
    }
}

impl Walker {
    /// The walker of a machine, with empty caches. An entry of level `n` of the tables spans `1 << shifts[n]` bytes.
    pub fn new(machine: &Machine, shifts: [u8; LEVELS]) -> Result<Walker, Error> {
        // A cache of entries above the root is never used.
        let existing =
            machine.walk_caches.iter().filter(|cache| shifts.get(usize::from(cache.level)).is_some_and(is_level));
        let caches = existing.map(|cache| (cache.level, LruSets::new(cache.sets, cache.ways)));
        let lines = machine.walker.caches.iter().map(|cache| (LruSets::new(cache.sets, cache.ways), cache.cycles));
        let lines: Vec<(LruSets<u32>, u32)> = lines.collect();
        Ok(Walker {
            caches: caches.collect(),
            lines: Lines {
                found: vec![0; lines.len() + 1],
                caches: lines,
                pending: Vec::with_capacity(MAX_PENDING),
                memory_cycles: machine.walker.memory_cycles,
                references: 0,
                cycles: 0,
            },
            nested: machine.stage2.as_ref().map(Nested::new).transpose()?,
            shifts,
            walks: 0,
        })
    }

    /// Does `count` walks, at most [`MAX_WALKS`], which `walk` returns by index. `memory` returns the physical address to which a
    /// walk translates; it is called only if a second stage translates that address, too.
    pub fn walk<'a>(
        &mut self,
        count: usize,
        walk: impl Fn(usize) -> Walk<'a>,
        memory: impl Fn(usize) -> Option<Pa>,
    ) -> Result<(), Error> {
        self.walks += count as u64;
        let tables = self.nearest_tables(count, &walk);
        for (at, table) in tables.iter().enumerate().take(count) {
            let Walk { leaf, path, .. } = walk(at);
            let from = if *table == NO_TABLE { path.root_level } else { *table };
            for level in (leaf.level() + 1..=from).rev() {
                self.read(path.entries[usize::from(level)])?;
            }
            self.read(leaf.pa())?;
            if let Some(nested) = &mut self.nested {
                nested.translate(memory(at).unwrap_or_default().intermediate(), &mut self.lines)?;
            }
        }
        Ok(())
    }

    /// For each walk the level of the lowest table that a walk cache points to, or [`NO_TABLE`]. Each cache is looked up for all
    /// walks that missed in the previous ones.
    fn nearest_tables<'a>(&mut self, count: usize, walk: &impl Fn(usize) -> Walk<'a>) -> [u8; MAX_WALKS] {
        let mut tables = [NO_TABLE; MAX_WALKS];
        let mut pending: [u8; MAX_WALKS] = std::array::from_fn(|at| at as u8);
        let mut left = count.min(MAX_WALKS);
        for (level, cache) in &mut self.caches {
            let mut missed = 0;
            for place in 0..left {
                let at = pending[place];
                let Walk { va, leaf, .. } = walk(usize::from(at));
                // Plus one, because 0 means no entry.
                let table = (va >> self.shifts[usize::from(*level)]) + 1;
                let found = *level > leaf.level() && cache.touch(table as u32, table);
                tables[usize::from(at)] = if found { *level - 1 } else { NO_TABLE };
                pending[missed] = at;
                missed += usize::from(!found);
            }
            left = missed;
        }
        tables
    }

    /// Reads an entry, through the second stage if there is one.
    #[inline]
    fn read(&mut self, pa: Pa) -> Result<(), Error> {
        if let Some(nested) = &mut self.nested {
            nested.translate(pa.intermediate(), &mut self.lines)?;
        }
        self.lines.read(pa);
        Ok(())
    }

    /// Drops the entries of a range from the walk caches.
    pub fn invalidate(&mut self, va: u64, bytes: u64) {
        let end = va.saturating_add(bytes - 1);
        for (level, cache) in &mut self.caches {
            let shift = self.shifts[usize::from(*level).min(LEVELS - 1)];
            let (first, last) = ((va >> shift) + 1, (end >> shift) + 1);
            cache.invalidate(&|table| (first..=last).contains(&table));
        }
    }

    /// The counts so far.
    pub fn counted(&self) -> Walks {
        let mut lines = self.lines.clone();
        lines.look_up();
        Walks { walks: self.walks, references: lines.references, found: lines.found, cycles: lines.cycles }
    }
}

/// Whether `1 << shift` bytes is the span of an existing level; levels above the root have no entries.
fn is_level(shift: &u8) -> bool {
    *shift < u64::BITS as u8 - 1
}

/// The second stage: it translates every address that the walker reads.
struct Nested {
    tables: Box<dyn HostTables>,
    /// The TLB of second-stage translations, by page.
    tlb: LruSets<u64>,
    page_shift: u32,
}

/// The tables of the second stage, whatever their format.
trait HostTables: Send {
    /// Reads the entries for a guest physical address. Maps the address to itself first if it is not mapped.
    fn walk(&mut self, ipa: InputAddress, page_bytes: u64, lines: &mut Lines) -> Result<(), Error>;
}

impl Nested {
    fn new(stage2: &Stage2) -> Result<Nested, Error> {
        let tables: Box<dyn HostTables> = with_format!(stage2.format.format, format => {
            Box::new(Tables::new(format, STAGE2_PA, STAGE2_BYTES)?)
        });
        let page_shift = stage2.page.bytes().trailing_zeros();
        Ok(Nested { tables, tlb: LruSets::new(stage2.sets, stage2.ways), page_shift })
    }

    fn translate(&mut self, ipa: InputAddress, lines: &mut Lines) -> Result<(), Error> {
        let page = (ipa.0 >> self.page_shift) + 1;
        if self.tlb.touch(page as u32, page) { Ok(()) } else { self.tables.walk(ipa, 1 << self.page_shift, lines) }
    }
}

impl<F: Format + Send> HostTables for Tables<F> {
    fn walk(&mut self, ipa: InputAddress, page_bytes: u64, lines: &mut Lines) -> Result<(), Error> {
        let (geometry, format) = (self.geometry(), *self.format());
        if self.translate(ipa).is_err() {
            let page = ipa.aligned_down(page_bytes);
            let flags = Flags::READ | Flags::WRITE | Flags::ACCESSED;
            let attributes = Attributes { flags, memory: format.normal_memory(), key: 0 };
            let (pa, sizes) = (Pa(page.0), Sizes::up_to(page_bytes));
            self.map(&Mapping { va: page, pa, bytes: page_bytes, attributes, sizes })?;
        }
        let mut table = self.root();
        for level in (0..geometry.levels()).rev() {
            let pa = geometry.entry_address(table, level, ipa);
            lines.read(pa);
            match self.arena().read(pa) {
                Some(entry) if level > 0 && format.kind(level, entry) == paging::format::Kind::Table => {
                    table = format.table_address(entry);
                }
                _ => break,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets, ways and cycles of each cache, the nearest first.
    const CACHES: [(u32, u32, u32); 4] = [(2, 4, 5), (4, 8, 14), (8, 16, 40), (16, 9, 50)];
    const MEMORY_CYCLES: u32 = 200;

    /// A miss inserts the line into the cache; the caches after a hit are not looked up.
    #[test]
    fn finds_a_line_in_the_nearest_cache_that_has_it() {
        let caches = CACHES.map(|(sets, ways, cycles)| (LruSets::new(sets, ways), cycles));
        let mut lines = Lines {
            caches: caches.into(),
            memory_cycles: MEMORY_CYCLES,
            pending: Vec::new(),
            references: 0,
            found: vec![0; CACHES.len() + 1],
            cycles: 0,
        };
        let mut naive = CACHES.map(|(sets, ..)| vec![Vec::<u32>::new(); sets as usize]);
        let (mut found, mut state) = (vec![0; CACHES.len() + 1], 1u32);
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Lines with low numbers are more frequent.
            let line = (state >> 8) % 500 * ((state >> 20) % 500) / 500;
            lines.read(Pa(u64::from(line) << LINE_SHIFT | 8));
            let hit = naive.iter_mut().zip(CACHES).position(|(cache, (sets, ways, _))| {
                let set = &mut cache[(line % sets) as usize];
                let at = set.iter().position(|other| *other == line);
                at.map(|at| set.remove(at));
                set.insert(0, line);
                set.truncate(ways as usize);
                at.is_some()
            });
            found[hit.unwrap_or(CACHES.len())] += 1;
        }
        lines.look_up();
        let costs = CACHES.iter().map(|(.., cycles)| *cycles).chain([MEMORY_CYCLES]);
        let cycles: u64 = found.iter().zip(costs).map(|(found, cycles)| found * u64::from(cycles)).sum();
        assert!(found.iter().all(|found| *found > 100), "{found:?}");
        assert_eq!((lines.references, lines.found, lines.cycles), (20_000, found, cycles));
    }
}
