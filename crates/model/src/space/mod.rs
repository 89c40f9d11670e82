//! An address space: VMAs, demand paging by a policy into real page tables, and what it costs.
//!
//! Follows mm/memory.c and mm/huge_memory.c of Linux: `do_anonymous_page`, `do_huge_pmd_anonymous_page`,
//! `do_read_fault` with fault-around, `do_wp_page`. What is simplified: all file pages are in the page cache, one by one
//! and not contiguous; tables that become empty are freed at once; memory advised as free (MADV_FREE) stays.

mod buddy;
mod cost;
mod event;
mod fault;
mod folio;
mod vma;

use paging::{Action, Attributes, Census, ENTRY_BYTES, Error, Event as Change, Flags, Format, Log, Mapping, Node};
use paging::{Sizes, Tables, Visitor, with_format};
use thiserror::Error as ThisError;
use trace::Event;

use crate::policy::{Granule, Plan};
use buddy::Buddy;
pub use buddy::Physical;
pub use cost::Costs;
use folio::Folios;
use vma::{Advice, Backing, Vma, Vmas};

/// Memory that a program can have at most: all that is below the tables, so that addresses have 40 bits.
pub const MAX_MEMORY_BYTES: u64 = 1 << 38;
/// Where page tables live: apart from all other memory.
const TABLES_PA: u64 = MAX_MEMORY_BYTES;
/// More tables than any trace needs.
const TABLES_BYTES: u64 = 1 << 36;
/// The shared pages full of zeros: of every size at the same place.
const ZERO_PA: u64 = 3 << 37;
/// The page cache.
const FILES_PA: u64 = 1 << 39;
/// Levels that a walk can have.
pub const LEVELS: usize = 5;

/// Why a simulation cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum SpaceError {
    /// Not one base page is free any more.
    #[error(
        "out of memory at {va:#x}: the memory limit leaves no page of {base_bytes} bytes; allow more with --memory"
    )]
    OutOfMemory {
        /// The address that was touched.
        va: u64,
        /// Bytes of a base page.
        base_bytes: u64,
    },
    /// An address that the page tables cannot hold.
    #[error("{0}")]
    Tables(#[from] Error),
}

/// What maps an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Bytes that its entry maps.
    pub leaf_bytes: u64,
    /// Bytes of the contiguous group that it says it belongs to, or of the leaf.
    pub group_bytes: u64,
    /// Bytes of the aligned block around it, of up to sixteen leaves, whose memory is contiguous.
    pub run_bytes: u64,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether a fault mapped it just now.
    pub faulted: bool,
}

/// The entries that a walk reads, the root's first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Their physical addresses, by level.
    pub entries: [u64; LEVELS],
    /// The level of the root.
    pub root_level: u8,
    /// The level of the leaf.
    pub leaf_level: u8,
}

/// An address space without its format.
pub trait Space: Send {
    /// What maps `va`, after as many faults as it takes for a load or a store.
    ///
    /// # Errors
    /// Memory is used up, or no table can hold the address.
    fn access(&mut self, va: u64, store: bool) -> Result<Leaf, SpaceError>;

    /// What a walk to `va`, which is mapped, reads.
    fn path(&self, va: u64) -> Path;

    /// The physical address behind `va`, if anything maps it.
    fn physical(&self, va: u64) -> Option<u64>;

    /// log2 of the bytes that an entry of each level spans.
    fn shifts(&self) -> [u8; LEVELS];

    /// A system call of the program.
    ///
    /// # Errors
    /// As [`Space::access`]: memory can be populated.
    fn event(&mut self, event: &Event) -> Result<(), SpaceError>;

    /// Takes the ranges (first address and bytes) that were dropped from all TLBs since the last time.
    fn take_invalidations(&mut self) -> Vec<(u64, u64)>;

    /// A stretch of memory that no event tells of, as anonymous memory.
    fn assume(&mut self, begin: u64, end: u64);

    /// What it has cost so far.
    fn costs(&self) -> Costs;

    /// What the tables map, by walking them.
    ///
    /// # Errors
    /// Tables that are no tree, which no operation makes.
    fn census(&self) -> Result<Census, Error>;
}

/// An empty address space.
///
/// # Errors
/// The format has no root at the place of tables.
pub fn new(plan: &Plan, physical: &Physical) -> Result<Box<dyn Space>, Error> {
    Ok(with_format!(plan.format.format, format => Box::new(Paged::new(format, plan, physical)?)))
}

/// Remembers what was dropped from the TLBs.
#[derive(Clone, Debug, Default)]
struct Dropped(Vec<(u64, u64)>);

impl Log for Dropped {
    fn event(&mut self, event: Change) {
        if let Change::Invalidate { va, bytes, .. } = event {
            self.0.push((va, bytes));
        }
    }
}

/// An address space with tables of one format.
struct Paged<F: Format> {
    tables: Tables<F, Dropped>,
    vmas: Vmas,
    buddy: Buddy,
    folios: Folios,
    granule: Granule,
    base: u64,
    no_guards: bool,
    no_huge: bool,
    prefault: bool,
    /// The process has switched THP off for itself.
    thp_disabled: bool,
    heap_end: Option<u64>,
    /// The next page of the page cache.
    next_file_page: u64,
    has_dirty: bool,
    costs: Costs,
}

/// A part of memory that one leaf maps.
#[derive(Clone, Copy, Debug)]
struct Part {
    va: u64,
    pa: u64,
    bytes: u64,
    leaf_bytes: u64,
    grouped: bool,
    writable: bool,
}

impl<F: Format> Paged<F> {
    fn new(format: F, plan: &Plan, physical: &Physical) -> Result<Paged<F>, Error> {
        let tables = Tables::with_log(format, TABLES_PA, TABLES_BYTES, Dropped::default())?;
        let dirty = Attributes {
            flags: Flags::READ | Flags::WRITE | Flags::USER | Flags::STATE,
            memory: format.normal_memory(),
            key: 0,
        };
        Ok(Paged {
            has_dirty: format.leaf(0, dirty, false).is_ok(),
            tables,
            vmas: Vmas::default(),
            buddy: Buddy::new(physical, plan.base_bytes),
            folios: Folios::default(),
            granule: plan.granule,
            base: plan.base_bytes,
            no_guards: plan.no_guards,
            no_huge: plan.no_huge,
            prefault: plan.prefault,
            thp_disabled: false,
            heap_end: None,
            next_file_page: FILES_PA,
            costs: Costs::default(),
        })
    }

    fn attributes(&self, protection: u64, writable: bool) -> Attributes {
        let format = self.tables.format();
        let mut flags = Flags::READ | Flags::ACCESSED;
        flags.set(Flags::USER, protection != 0);
        if writable {
            flags |= Flags::WRITE;
            flags.set(Flags::DIRTY, self.has_dirty);
        }
        if protection & event::PROT_EXEC != 0 {
            flags |= format.execute(true);
        }
        Attributes { flags, memory: format.normal_memory(), key: 0 }
    }

    fn map(&mut self, va: u64, pa: u64, bytes: u64, sizes: Sizes, attributes: Attributes) -> Result<(), Error> {
        self.tables.map(&Mapping { va, pa, bytes, attributes, sizes })?;
        self.costs.table_bytes = self.tables.arena().used_bytes();
        self.costs.table_peak_bytes = self.costs.table_peak_bytes.max(self.costs.table_bytes);
        if is_file(pa) {
            self.costs.file_bytes += bytes;
        } else if pa < ZERO_PA {
            self.costs.anonymous_bytes += bytes;
        }
        self.costs.resident_peak_bytes = self.costs.resident_peak_bytes.max(self.costs.resident_bytes());
        Ok(())
    }

    /// What is mapped in a range, leaf by leaf, cut to the range.
    fn parts(&self, begin: u64, end: u64) -> Result<Vec<Part>, Error> {
        struct Parts<'a, F> {
            format: &'a F,
            begin: u64,
            end: u64,
            parts: Vec<Part>,
        }
        impl<F: Format> Visitor for Parts<'_, F> {
            fn leaf(&mut self, node: &Node) -> Action {
                let format = self.format;
                let (va, end) = (node.va.max(self.begin), (node.va + node.bytes).min(self.end));
                self.parts.push(Part {
                    va,
                    pa: format.leaf_address(node.level, node.entry, node.va) + (va - node.va),
                    bytes: end - va,
                    leaf_bytes: node.bytes,
                    grouped: format.group_bits(node.level, node.entry) != 0,
                    writable: format.attributes(node.level, node.entry).flags.contains(Flags::WRITE),
                });
                Action::Continue
            }
        }
        let mut found = Parts { format: self.tables.format(), begin, end, parts: Vec::new() };
        self.tables.walk(begin, end - begin, &mut found)?;
        Ok(found.parts)
    }

    /// Whether nothing is mapped in a range.
    fn is_empty(&self, begin: u64, end: u64) -> Result<bool, Error> {
        struct Any(bool);
        impl Visitor for Any {
            fn leaf(&mut self, _: &Node) -> Action {
                self.0 = true;
                Action::Stop
            }
        }
        let mut any = Any(false);
        self.tables.walk(begin, end - begin, &mut any)?;
        Ok(!any.0)
    }

    /// Counts the leaf or the group that would be split if something began at `va`.
    fn count_split(&mut self, va: u64) {
        let Ok(found) = self.tables.translate(va) else { return };
        let (geometry, format) = (self.tables.geometry(), self.tables.format());
        let leaf = geometry.span(found.level) << format.run_bits();
        let group = geometry.span(found.level) << format.group_bits(found.level, found.entry);
        if va & (leaf - 1) != 0 {
            self.costs.splits += 1;
        }
        if group > leaf && va & (group - 1) != 0 {
            self.costs.unfolds += 1;
        }
    }

    /// Unmaps a range and gives its memory back.
    fn drop_range(&mut self, begin: u64, end: u64) -> Result<(), Error> {
        let parts = self.parts(begin, end)?;
        self.unmap(begin, end, &parts)?;
        for part in &parts {
            self.give_back(part);
        }
        Ok(())
    }

    /// Makes holes of the parts, which are all that there is in a range.
    fn unmap(&mut self, begin: u64, end: u64, parts: &[Part]) -> Result<(), Error> {
        self.give_up_reservations(begin, end);
        if parts.is_empty() {
            return Ok(());
        }
        self.count_split(begin);
        self.count_split(end);
        self.tables.unmap(begin, end - begin)?;
        self.costs.table_bytes = self.tables.arena().used_bytes();
        for part in parts {
            if is_file(part.pa) {
                self.costs.file_bytes -= part.bytes;
            } else if part.pa < ZERO_PA {
                self.costs.anonymous_bytes -= part.bytes;
            }
        }
        Ok(())
    }

    fn give_back(&mut self, part: &Part) {
        if part.pa < TABLES_PA {
            self.folios.unmap(part.pa, part.bytes, &mut self.buddy, &mut self.costs);
        }
    }

    fn give_up_reservations(&mut self, begin: u64, end: u64) {
        self.folios.give_up_reservations(begin, end, &mut self.buddy);
    }

    /// The leaf that maps `va`, if any does.
    fn leaf(&self, va: u64) -> Option<Leaf> {
        let found = self.tables.translate(va).ok()?;
        let (geometry, format) = (self.tables.geometry(), self.tables.format());
        let leaf_bytes = geometry.span(found.level);
        let group_bytes = leaf_bytes << format.group_bits(found.level, found.entry);
        let writable = format.attributes(found.level, found.entry).flags.contains(Flags::WRITE);
        let run_bytes = self.run_bytes(va, leaf_bytes).max(group_bytes);
        Some(Leaf { leaf_bytes, group_bytes, run_bytes, writable, faulted: false })
    }

    /// Bytes of the largest aligned block of up to sixteen leaves around `va` whose memory is contiguous and aligned.
    fn run_bytes(&self, va: u64, leaf_bytes: u64) -> u64 {
        let format = self.tables.format();
        let mut whole = leaf_bytes;
        for pages in [2, 4, 8, 16] {
            let bytes = leaf_bytes * pages;
            let begin = va & !(bytes - 1);
            let Ok(first) = self.tables.translate(begin) else { break };
            let attributes = format.attributes(first.level, first.entry);
            let belongs = |page: u64| {
                self.tables.translate(begin + page * leaf_bytes).is_ok_and(|found| {
                    found.pa == first.pa + page * leaf_bytes
                        && found.level == first.level
                        && format.attributes(found.level, found.entry) == attributes
                })
            };
            if first.pa & (bytes - 1) != 0 || !(0..pages).all(belongs) {
                break;
            }
            whole = bytes;
        }
        whole
    }
}

impl<F: Format + Send> Space for Paged<F> {
    fn access(&mut self, va: u64, store: bool) -> Result<Leaf, SpaceError> {
        let mut faulted = false;
        // A read can map the zero page, a write replaces it: never more than one fault for each.
        for _ in 0..2 {
            if let Some(leaf) = self.leaf(va).filter(|leaf| leaf.writable || !store) {
                return Ok(Leaf { faulted, ..leaf });
            }
            self.fault(va, store)?;
            faulted = true;
        }
        let leaf = self.leaf(va);
        leaf.map(|leaf| Leaf { faulted, ..leaf }).ok_or(SpaceError::OutOfMemory { va, base_bytes: self.base })
    }

    fn path(&self, va: u64) -> Path {
        let (geometry, format, arena) = (self.tables.geometry(), self.tables.format(), self.tables.arena());
        let mut path = Path { root_level: geometry.root_level(), ..Path::default() };
        let mut table = self.tables.root();
        for level in (0..geometry.levels()).rev() {
            let pa = table + geometry.index(level, va) * ENTRY_BYTES;
            path.entries[usize::from(level)] = pa;
            path.leaf_level = level;
            match arena.read(pa) {
                Some(entry) if level > 0 && format.kind(level, entry) == paging::format::Kind::Table => {
                    table = format.table_address(entry);
                }
                _ => break,
            }
        }
        path
    }

    fn physical(&self, va: u64) -> Option<u64> {
        self.tables.translate(va).ok().map(|found| found.pa)
    }

    fn shifts(&self) -> [u8; LEVELS] {
        let geometry = self.tables.geometry();
        // Levels that there are not span nothing that could be asked for.
        std::array::from_fn(
            |level| if level < usize::from(geometry.levels()) { geometry.shift(level as u8) as u8 } else { 63 },
        )
    }

    fn event(&mut self, event: &Event) -> Result<(), SpaceError> {
        self.hear(event)
    }

    fn take_invalidations(&mut self) -> Vec<(u64, u64)> {
        let dropped = std::mem::take(&mut self.tables.log_mut().0);
        self.costs.invalidations += dropped.len() as u64;
        dropped
    }

    fn assume(&mut self, begin: u64, end: u64) {
        let protection = event::PROT_READ | event::PROT_WRITE | event::PROT_EXEC;
        self.vmas.insert(begin, Vma { end, protection, backing: Backing::Inferred, advice: Advice::None });
    }

    fn costs(&self) -> Costs {
        self.costs.clone()
    }

    fn census(&self) -> Result<Census, Error> {
        self.tables.census()
    }
}

fn is_file(pa: u64) -> bool {
    pa >= FILES_PA
}

#[cfg(test)]
mod tests;
