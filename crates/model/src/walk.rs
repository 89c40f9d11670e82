//! Page walks: the entries that a walker reads, and the caches in which it finds them.

use paging::{Attributes, ENTRY_BYTES, Error, Flags, Format, InputAddress, Mapping, Sizes, Tables, with_format};

use crate::address::Pa;
use crate::machine::{Machine, Stage2};
use crate::space::{LEVELS, Path};
use crate::tlb::Sets;

/// Maximum number of walks per call.
pub const MAX_WALKS: usize = 128;
/// Maximum number of reads that are looked up together.
const MAX_WAITING: usize = 256;
/// No cache had an entry of the walk.
const NOWHERE: u8 = u8::MAX;
/// log2 of the size of a cache line in bytes: eight entries.
const LINE_SHIFT: u32 = 6;
/// The address of the second stage's tables. The lower 38 bits of their addresses differ from those of all first-stage tables.
const STAGE2_PA: Pa = Pa((1 << 43) + (1 << 37));
const STAGE2_BYTES: u64 = 1 << 36;

/// The costs of walks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walks {
    pub walks: u64,
    /// Number of entries read.
    pub references: u64,
    /// Number of entries found in each cache, the nearest first, and finally in memory.
    pub found: Vec<u64>,
    /// Total cycles of all reads.
    pub cycles: u64,
}

/// The entry that maps a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafEntry {
    /// Its physical address, with the level in the low bits, which are 0 in the address of an entry.
    place: u64,
}

impl LeafEntry {
    /// The last entry that a walk reads.
    pub fn of(path: &Path) -> LeafEntry {
        LeafEntry { place: path.entries[usize::from(path.leaf_level)].0 | u64::from(path.leaf_level) }
    }

    /// The physical address of the entry.
    pub fn pa(self) -> Pa {
        Pa(self.place & !(ENTRY_BYTES - 1))
    }

    /// The level of the entry; 0 is the level of pages.
    pub fn level(self) -> u8 {
        (self.place & (ENTRY_BYTES - 1)) as u8
    }
}

/// A walker with its caches.
pub struct Walker {
    /// Caches of entries that point to tables, the lowest level first.
    caches: Vec<(u8, Sets<u64>)>,
    lines: Lines,
    nested: Option<Nested>,
    /// log2 of the bytes that an entry of each level spans.
    shifts: [u8; LEVELS],
    walks: u64,
}

/// A requested walk.
pub struct Walk<'a> {
    /// The address, with the tag of its process.
    pub va: u64,
    /// The entry that maps the address.
    pub leaf: LeafEntry,
    /// The entries above it.
    pub path: &'a Path,
}

/// Caches of lines of entries. A cache does not depend on the content of the next one, and nothing else changes them.
/// So reads are collected and go through one cache after the other together.
#[derive(Clone)]
struct Lines {
    caches: Vec<(Sets<u32>, u32)>,
    memory_cycles: u32,
    /// The line number plus one of each pending read, because 0 means no entry.
    waiting: Vec<u32>,
    references: u64,
    found: Vec<u64>,
    cycles: u64,
}

impl Lines {
    fn read(&mut self, pa: Pa) {
        if self.waiting.len() == MAX_WAITING {
            self.look_up();
        }
        // Four bytes distinguish all lines of tables, of both stages.
        self.waiting.push((pa.0 >> LINE_SHIFT) as u32 + 1);
    }

    /// Looks up the pending reads.
    fn look_up(&mut self) {
        self.references += self.waiting.len() as u64;
        let mut left = self.waiting.len();
        let mut count = |found: &mut u64, reads: usize, cycles: u32| {
            *found += reads as u64;
            self.cycles += reads as u64 * u64::from(cycles);
        };
        for ((cache, cycles), found) in self.caches.iter_mut().zip(&mut self.found) {
            let missed = cache.touch_all(&mut self.waiting[..left], |line| line - 1);
            count(found, left - missed, *cycles);
            left = missed;
        }
        if let Some(of_memory) = self.found.last_mut() {
            count(of_memory, left, self.memory_cycles);
        }
        self.waiting.clear();
    }
}

impl Walker {
    /// The walker of a machine, with empty caches, for tables whose entries span `1 << shifts` bytes by level.
    ///
    /// # Errors
    /// The tables of the second stage cannot be created.
    pub fn new(machine: &Machine, shifts: [u8; LEVELS]) -> Result<Walker, Error> {
        // A cache of entries above the root is never used.
        let asked =
            machine.walk_caches.iter().filter(|cache| shifts.get(usize::from(cache.level)).is_some_and(is_level));
        let caches = asked.map(|cache| (cache.level, Sets::new(cache.sets, cache.ways)));
        let lines = machine.walker.caches.iter().map(|cache| (Sets::new(cache.sets, cache.ways), cache.cycles));
        let lines: Vec<(Sets<u32>, u32)> = lines.collect();
        Ok(Walker {
            caches: caches.collect(),
            lines: Lines {
                found: vec![0; lines.len() + 1],
                caches: lines,
                waiting: Vec::with_capacity(MAX_WAITING),
                memory_cycles: machine.walker.memory_cycles,
                references: 0,
                cycles: 0,
            },
            nested: machine.stage2.as_ref().map(Nested::new).transpose()?,
            shifts,
            walks: 0,
        })
    }

    /// Does `count` walks, at most [`MAX_WALKS`], each given by `walk`. `memory` returns the physical address at the
    /// end of a walk; it is called only if that is translated too.
    ///
    /// # Errors
    /// The second stage has no room for an address.
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
            let from = if *table == NOWHERE { path.root_level } else { *table };
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

    /// For each walk the level of the lowest table that the caches know, or [`NOWHERE`]. The caches are looked up one
    /// after the other, each for all walks that missed in the previous ones.
    fn nearest_tables<'a>(&mut self, count: usize, walk: &impl Fn(usize) -> Walk<'a>) -> [u8; MAX_WALKS] {
        let mut tables = [NOWHERE; MAX_WALKS];
        let mut open: [u8; MAX_WALKS] = std::array::from_fn(|at| at as u8);
        let mut left = count.min(MAX_WALKS);
        for (level, cache) in &mut self.caches {
            let mut missed = 0;
            for place in 0..left {
                let at = open[place];
                let Walk { va, leaf, .. } = walk(usize::from(at));
                // Plus one, because 0 means no entry.
                let table = (va >> self.shifts[usize::from(*level)]) + 1;
                let found = *level > leaf.level() && cache.touch(table as u32, table);
                tables[usize::from(at)] = if found { *level - 1 } else { NOWHERE };
                open[missed] = at;
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

    /// Drops the entries for a range from the walk caches.
    pub fn forget(&mut self, va: u64, bytes: u64) {
        let end = va.saturating_add(bytes - 1);
        for (level, cache) in &mut self.caches {
            let shift = self.shifts[usize::from(*level).min(LEVELS - 1)];
            let (first, last) = ((va >> shift) + 1, (end >> shift) + 1);
            cache.forget(&|table| (first..=last).contains(&table));
        }
    }

    /// The counts so far.
    pub fn counted(&self) -> Walks {
        let mut lines = self.lines.clone();
        lines.look_up();
        Walks { walks: self.walks, references: lines.references, found: lines.found, cycles: lines.cycles }
    }
}

/// Whether this is the span of an existing level: there are no entries above the root.
fn is_level(shift: &u8) -> bool {
    *shift < u64::BITS as u8 - 1
}

/// The second stage: every address that the guest's walker reads is itself translated.
struct Nested {
    tables: Box<dyn HostTables>,
    /// The TLB of second-stage translations, by page.
    tlb: Sets<u64>,
    page_shift: u32,
}

/// The tables of the second stage, independent of their format.
trait HostTables: Send {
    /// Reads the entries for a guest physical address, which is first mapped to itself if necessary.
    fn walk(&mut self, ipa: InputAddress, page_bytes: u64, lines: &mut Lines) -> Result<(), Error>;
}

impl Nested {
    fn new(stage2: &Stage2) -> Result<Nested, Error> {
        let tables: Box<dyn HostTables> = with_format!(stage2.format.format, format => {
            Box::new(Tables::new(format, STAGE2_PA, STAGE2_BYTES)?)
        });
        let page_shift = stage2.page.bytes().trailing_zeros();
        Ok(Nested { tables, tlb: Sets::new(stage2.sets, stage2.ways), page_shift })
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

    /// Sets, ways and cycles, the nearest cache first.
    const CACHES: [(u32, u32, u32); 4] = [(2, 4, 5), (4, 8, 14), (8, 16, 40), (16, 9, 50)];
    const MEMORY_CYCLES: u32 = 200;

    /// A line is inserted into every cache in which the lookup missed; the caches after the hit are not looked up.
    #[test]
    fn a_line_is_found_in_the_nearest_cache_that_has_it() {
        let caches = CACHES.map(|(sets, ways, cycles)| (Sets::new(sets, ways), cycles));
        let mut lines = Lines {
            caches: caches.into(),
            memory_cycles: MEMORY_CYCLES,
            waiting: Vec::new(),
            references: 0,
            found: vec![0; CACHES.len() + 1],
            cycles: 0,
        };
        let mut slow = CACHES.map(|(sets, ..)| vec![Vec::<u32>::new(); sets as usize]);
        let (mut found, mut state) = (vec![0; CACHES.len() + 1], 1u32);
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Low lines are more frequent than high ones.
            let line = (state >> 8) % 500 * ((state >> 20) % 500) / 500;
            lines.read(Pa(u64::from(line) << LINE_SHIFT | 8));
            let had = slow.iter_mut().zip(CACHES).position(|(cache, (sets, ways, _))| {
                let set = &mut cache[(line % sets) as usize];
                let at = set.iter().position(|there| *there == line);
                at.map(|at| set.remove(at));
                set.insert(0, line);
                set.truncate(ways as usize);
                at.is_some()
            });
            found[had.unwrap_or(CACHES.len())] += 1;
        }
        lines.look_up();
        let costs = CACHES.iter().map(|(.., cycles)| *cycles).chain([MEMORY_CYCLES]);
        let cycles: u64 = found.iter().zip(costs).map(|(found, cycles)| found * u64::from(cycles)).sum();
        assert!(found.iter().all(|found| *found > 100), "{found:?}");
        assert_eq!((lines.references, lines.found, lines.cycles), (20_000, found, cycles));
    }
}
