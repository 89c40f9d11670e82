//! Address spaces in tables of one format: mapping, unmapping and looking up, with the books that go with it.

use std::collections::BTreeMap;

use ::policy::Mechanism;
use ::policy::size::PageSize;
use paging::{Action, Attributes, Census, ENTRY_BYTES, Error, Flags, Format, Mapping, Node, Sizes, Visitor};
use trace::Event;

use super::khugepaged::Scan;
use super::*;

/// Address spaces with tables of one format, over the same memory.
pub(super) struct Paged<F: Format> {
    /// The process that is running.
    pub(super) own: Process<F>,
    pub(super) number: u32,
    /// All others, by their numbers.
    pub(super) others: BTreeMap<u32, Process<F>>,
    /// How many there have been.
    pub(super) processes: u32,
    /// What processes had mapped when they ended.
    pub(super) ended: Census,
    pub(super) buddy: Buddy,
    pub(super) folios: Folios,
    /// Pages in swap and of shared memory.
    pub(super) names: Names,
    pub(super) granule: Granule,
    pub(super) base: u64,
    /// Where the addresses end that programs have (`TASK_SIZE`).
    pub(super) user_end: u64,
    /// All memory of the machine.
    pub(super) memory_bytes: u64,
    /// What the policy does to calls.
    pub(super) mechanism: Mechanism,
    pub(super) kernel: Kernel,
    pub(super) khugepaged: Scan,
    /// Where reclaim goes on; `None` before memory was ever short.
    pub(super) hand: Option<u64>,
    /// The next page of the page cache.
    pub(super) next_file_page: u64,
    pub(super) has_dirty: bool,
    /// Tables of all other processes.
    pub(super) others_table_bytes: u64,
    pub(super) costs: Costs,
    /// What was looked at before it went.
    pub(super) seen: held::Seen,
}

/// Where the leaf and the group begin that an address lies inside of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cut {
    leaf: Option<u64>,
    group: Option<u64>,
}

impl<F: Format> Paged<F> {
    pub(super) fn new(format: F, plan: &Plan, physical: &Physical) -> Result<Paged<F>, Error> {
        let dirty = Attributes {
            flags: Flags::READ | Flags::WRITE | Flags::USER | Flags::STATE,
            memory: format.normal_memory(),
            key: 0,
        };
        let mut paged = Paged {
            has_dirty: format.leaf(0, dirty, false).is_ok(),
            own: Process::new(format, 0)?,
            number: 0,
            others: BTreeMap::new(),
            processes: 1,
            ended: Census::default(),
            buddy: Buddy::new(physical, plan.base_bytes),
            folios: Folios::new(plan.base_bytes),
            names: Names::default(),
            granule: plan.granule,
            base: plan.base_bytes,
            user_end: user_end(&format),
            memory_bytes: physical.bytes,
            mechanism: plan.mechanism,
            kernel: Kernel::default(),
            khugepaged: Scan::default(),
            hand: None,
            next_file_page: FILES_PA,
            others_table_bytes: 0,
            costs: Costs { processes: 1, ..Costs::default() },
            seen: held::Seen::new(plan),
        };
        paged.note_tables();
        Ok(paged)
    }

    pub(super) fn attributes(&self, protection: u64, writable: bool) -> Attributes {
        let format = self.own.tables.format();
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

    pub(super) fn map(
        &mut self,
        va: u64,
        pa: u64,
        bytes: u64,
        sizes: Sizes,
        attributes: Attributes,
    ) -> Result<(), Error> {
        self.own.tables.map(&Mapping { va, pa, bytes, attributes, sizes })?;
        if is_file(pa) {
            self.costs.file_bytes += bytes;
        } else if pa < ZERO_PA {
            self.costs.anonymous_bytes += bytes;
        }
        self.costs.resident_peak_bytes = self.costs.resident_peak_bytes.max(self.costs.resident_bytes());
        if Some(sizes.largest_bytes) == self.huge_bytes() {
            let leaves = self.whole_huge_leaves(&self.parts(va, va + bytes)?);
            self.own.huge_leaves += leaves;
            self.costs.deposited_table_bytes += leaves * self.own.tables.geometry().page_bytes();
        }
        self.note_tables();
        Ok(())
    }

    /// How many of the parts are whole leaves of THP.
    fn whole_huge_leaves(&self, parts: &[Part]) -> u64 {
        let huge = self.huge_bytes();
        parts.iter().filter(|part| Some(part.leaf_bytes) == huge && part.bytes == part.leaf_bytes).count() as u64
    }

    /// Where the base page ends that an address is the end of; before the last one of all.
    pub(super) fn base_end(&self, end: u64) -> u64 {
        end.min(self.base.wrapping_neg()).next_multiple_of(self.base)
    }

    /// Bytes of a leaf of THP, if that is the policy.
    pub(super) fn huge_bytes(&self) -> Option<u64> {
        match self.granule {
            Granule::Thp(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// So many leaves of THP are no more: the tables that were kept for their splits are used or given back.
    fn lose_huge_leaves(&mut self, leaves: u64) {
        self.own.huge_leaves -= leaves;
        self.costs.deposited_table_bytes -= leaves * self.own.tables.geometry().page_bytes();
    }

    pub(super) fn note_tables(&mut self) {
        self.costs.table_bytes = self.others_table_bytes + self.own.tables.arena().used_bytes();
        self.costs.table_peak_bytes = self.costs.table_peak_bytes.max(self.costs.table_bytes);
        let all_bytes = self.costs.table_bytes + self.costs.deposited_table_bytes;
        self.costs.all_table_peak_bytes = self.costs.all_table_peak_bytes.max(all_bytes);
        let own_bytes = self.own.table_bytes();
        if own_bytes > self.own.peak_table_bytes {
            self.costs.process_table_bytes += own_bytes - self.own.peak_table_bytes;
            self.own.peak_table_bytes = own_bytes;
        }
    }

    /// What the running process maps in a range, leaf by leaf, cut to the range.
    pub(super) fn parts(&self, begin: u64, end: u64) -> Result<Vec<Part>, Error> {
        self.own.parts(begin, end)
    }

    /// Whether nothing is mapped in a range.
    pub(super) fn is_empty(&self, begin: u64, end: u64) -> Result<bool, Error> {
        Ok(self.first_mapped(begin, end)?.is_none())
    }

    /// Where the first leaf of a range begins.
    pub(super) fn first_mapped(&self, begin: u64, end: u64) -> Result<Option<u64>, Error> {
        struct First(Option<u64>);
        impl Visitor for First {
            fn leaf(&mut self, node: &Node) -> Action {
                self.0 = Some(node.va);
                Action::Stop
            }
        }
        let mut first = First(None);
        self.own.tables.walk(begin, end - begin, &mut first)?;
        Ok(first.0.map(|first| first.max(begin)))
    }

    /// Gives what is mapped in a range other attributes. Leaves and groups that reach over its ends are split.
    pub(super) fn protect(&mut self, begin: u64, end: u64, attributes: Attributes) -> Result<(), Error> {
        self.count_splits(begin, end);
        self.own.tables.protect(begin, end - begin, attributes)?;
        self.note_tables();
        Ok(())
    }

    /// Splits the leaf of THP that goes on where a VMA now begins or ends (`vma_adjust_trans_huge`, mm/huge_memory.c).
    pub(super) fn split_at_edge(&mut self, va: u64) -> Result<(), Error> {
        let at = va & !(self.base - 1);
        if self.huge_bytes().is_some() && self.own.vmas.has_edge(va) && self.cut_at(at).leaf.is_some() {
            self.count_splits(at, at);
            self.own.tables.split(at)?;
            self.note_tables();
        }
        Ok(())
    }

    /// Counts the leaves and the groups that are split when something begins at `begin` and ends at `end`; leaves of THP
    /// are lost by it.
    fn count_splits(&mut self, begin: u64, end: u64) {
        let (first, last) = (self.cut_at(begin), self.cut_at(end));
        let again = |cut: fn(&Cut) -> Option<u64>| cut(&first).is_some() && cut(&first) == cut(&last);
        let count = |cut: fn(&Cut) -> Option<u64>| {
            u64::from(cut(&first).is_some()) + u64::from(cut(&last).is_some()) - u64::from(again(cut))
        };
        let (leaves, groups) = (count(|cut| cut.leaf), count(|cut| cut.group));
        self.costs.splits += leaves;
        self.costs.unfolds += groups;
        if self.huge_bytes().is_some() {
            self.lose_huge_leaves(leaves);
        }
    }

    /// The leaf and the group that an address lies inside of.
    fn cut_at(&self, va: u64) -> Cut {
        let Ok(found) = self.own.tables.leaf(va) else { return Cut::default() };
        let (geometry, format) = (self.own.tables.geometry(), self.own.tables.format());
        let leaf_bytes = geometry.span(found.level) << format.run_bits();
        let group_bytes = geometry.span(found.level) << format.group_bits(found.level, found.entry);
        let inside = |bytes: u64| (va & (bytes - 1) != 0).then_some(va & !(bytes - 1));
        Cut { leaf: inside(leaf_bytes), group: inside(group_bytes).filter(|_| group_bytes > leaf_bytes) }
    }

    /// Unmaps a range and gives its memory back, what was reclaimed of it too.
    pub(super) fn drop_range(&mut self, begin: u64, end: u64) -> Result<(), Error> {
        self.forget_swapped(begin, end);
        let parts = self.parts(begin, end)?;
        self.unmap(begin, end, &parts)?;
        for part in &parts {
            self.give_back(part);
        }
        Ok(())
    }

    /// Makes holes of the parts, which are all that there is in a range.
    pub(super) fn unmap(&mut self, begin: u64, end: u64, parts: &[Part]) -> Result<(), Error> {
        self.give_up_reservations(begin, end);
        if parts.is_empty() {
            return Ok(());
        }
        self.count_splits(begin, end);
        self.own.tables.unmap(begin, end - begin)?;
        self.lose_huge_leaves(self.whole_huge_leaves(parts));
        self.note_tables();
        for part in parts {
            if is_file(part.pa) {
                self.costs.file_bytes -= part.bytes;
            } else if part.pa < ZERO_PA {
                self.costs.anonymous_bytes -= part.bytes;
            }
        }
        Ok(())
    }

    pub(super) fn give_back(&mut self, part: &Part) {
        if part.pa < TABLES_PA {
            self.folios.unmap(part.pa, part.bytes, self.number, &mut self.buddy, &mut self.costs);
        }
    }

    pub(super) fn give_up_reservations(&mut self, begin: u64, end: u64) {
        self.folios.give_up_reservations(self.number, begin, end, &mut self.buddy);
    }

    /// The leaf that maps `va`, if any does.
    pub(super) fn leaf(&self, va: u64) -> Option<Leaf> {
        let found = self.own.tables.leaf(va).ok()?;
        let (geometry, format) = (self.own.tables.geometry(), self.own.tables.format());
        let leaf_bytes = geometry.span(found.level);
        let group_bytes = leaf_bytes << format.group_bits(found.level, found.entry);
        let writable = format.attributes(found.level, found.entry).flags.contains(Flags::WRITE);
        Some(Leaf { leaf_bytes, group_bytes, writable, faulted: false })
    }
}

impl<F: Format + Send> Space for Paged<F> {
    fn access(&mut self, va: u64, store: bool) -> Result<Leaf, SpaceError> {
        let mut faulted = false;
        // A read can map the zero page, a write replaces it: never more than one fault for each.
        for _ in 0..2 {
            if let Some(leaf) = self.leaf(va).filter(|leaf| leaf.writable || !store) {
                // The fault itself is no second touch.
                if !faulted {
                    self.touch(va);
                }
                return Ok(Leaf { faulted, ..leaf });
            }
            self.fault(va, store)?;
            faulted = true;
        }
        let leaf = self.leaf(va);
        leaf.map(|leaf| Leaf { faulted, ..leaf }).ok_or(SpaceError::OutOfMemory { va, base_bytes: self.base })
    }

    fn run_bytes(&self, va: u64, leaf: &Leaf) -> u64 {
        let format = self.own.tables.format();
        let (leaf_bytes, mut whole) = (leaf.leaf_bytes, leaf.leaf_bytes);
        for pages in [2, 4, 8, 16] {
            let bytes = leaf_bytes * pages;
            let begin = va & !(bytes - 1);
            let Ok(first) = self.own.tables.leaf(begin) else { break };
            let attributes = format.attributes(first.level, first.entry);
            let belongs = |page: u64| {
                self.own.tables.leaf(begin + page * leaf_bytes).is_ok_and(|found| {
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
        whole.max(leaf.group_bytes)
    }

    fn path(&self, va: u64) -> Path {
        let (geometry, format, arena) = (self.own.tables.geometry(), self.own.tables.format(), self.own.tables.arena());
        let mut path = Path { root_level: geometry.root_level(), ..Path::default() };
        let mut table = self.own.tables.root();
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
        self.own.tables.translate(va).ok().map(|found| found.pa)
    }

    fn shifts(&self) -> [u8; LEVELS] {
        let geometry = self.own.tables.geometry();
        // Levels that there are not span nothing that could be asked for.
        std::array::from_fn(
            |level| if level < usize::from(geometry.levels()) { geometry.shift(level as u8) as u8 } else { 63 },
        )
    }

    fn event(&mut self, event: &Event) -> Result<(), SpaceError> {
        self.hear(event)
    }

    fn take_invalidations(&mut self) -> Vec<(u64, u64)> {
        let dropped = std::mem::take(&mut self.own.tables.log_mut().0);
        self.costs.invalidations += dropped.len() as u64;
        dropped
    }

    fn assume(&mut self, begin: u64, end: u64) -> Result<(), SpaceError> {
        if let Granule::Direct(bytes) = self.granule {
            return self.map_directly(begin, end, bytes);
        }
        let protection = event::PROT_READ | event::PROT_WRITE | event::PROT_EXEC;
        let end = self.base_end(end);
        self.own.vmas.insert(begin, Vma { end, protection, backing: Backing::Inferred, advice: Advice::None });
        Ok(())
    }

    fn take_forgotten(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.own.forgotten)
    }

    fn set_kernel(&mut self, kernel: Kernel) {
        let large = kernel.smaller_folios.iter().filter_map(|bytes| PageSize::new(*bytes).ok()).min();
        if let (Granule::Mthp(_), Some(large)) = (self.granule, large) {
            // The smallest mapping that can hold a folio is smaller.
            self.mechanism.large = self.mechanism.large.min(large);
        }
        self.kernel = kernel;
    }

    fn advance(&mut self, instructions: u64) -> Result<(), SpaceError> {
        self.scan_until(instructions)
    }

    fn fork(&mut self) -> Result<u32, SpaceError> {
        self.fork_process()
    }

    fn enter(&mut self, process: u32) -> bool {
        self.enter_process(process)
    }

    fn end(&mut self, process: u32) -> Result<(), SpaceError> {
        self.end_process(process)
    }

    fn costs(&self) -> Costs {
        self.costs.clone()
    }

    fn census(&self) -> Result<Census, Error> {
        let mut all = self.own.tables.census()?;
        for process in self.others.values() {
            merge(&mut all, &process.tables.census()?);
        }
        Ok(all)
    }

    fn census_at_ends(&self) -> Result<Census, Error> {
        let mut all = self.census()?;
        merge(&mut all, &self.ended);
        Ok(all)
    }

    fn verdict(&self) -> Result<Verdict, Error> {
        self.judge()
    }

    fn left_out(&self) -> LeftOut {
        self.unwitnessed()
    }
}

/// Adds what another process has.
pub(super) fn merge(to: &mut Census, other: &Census) {
    for (size, bytes) in &other.mapped_bytes {
        *to.mapped_bytes.entry(*size).or_default() += bytes;
    }
    for (level, tables) in &other.tables {
        *to.tables.entry(*level).or_default() += tables;
    }
    to.table_bytes += other.table_bytes;
    to.illegal += other.illegal;
}

/// Where the addresses of programs end: the lower half, where a format has two.
fn user_end(format: &impl Format) -> u64 {
    let geometry = format.geometry();
    let fits = |bits: &u32| geometry.is_canonical((1 << bits) - 1);
    1 << (30..=63).rev().find(fits).unwrap_or(30)
}

/// Whether memory is of the page cache.
pub(super) fn is_file(pa: u64) -> bool {
    pa >= FILES_PA
}
