//! A process: its tables, its VMAs, and its other state. This module reads the tables; `tables` changes them.

use std::collections::BTreeMap;

use ::policy::remains::Remains;
use paging::format::Kind;
use paging::{
    Action, Attributes, Error, Event as Change, Flags, Format, InputAddress, Log, Node, Sizes, Tables, Visitor,
};

use super::leaf::{LEVELS, Leaf, Path};
use super::part::Part;
use super::physical_layout::{TABLES_BYTES, tables_pa};
use super::vma::{Locked, Vmas};
use crate::address::Pa;
use crate::call::PROT_EXEC;
use crate::policy::{MappingUnit, Plan};

/// The ranges that were invalidated in the TLBs: first address and bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Invalidations(pub(super) Vec<(u64, u64)>);

impl Invalidations {
    /// Merges the last two ranges if they overlap, because tables that are freed together with their memory need no second
    /// invalidation.
    fn merge_last(&mut self) {
        if let [.., (va, bytes), (next, next_bytes)] = self.0[..]
            && va < next.saturating_add(next_bytes)
            && next < va.saturating_add(bytes)
        {
            self.0.pop();
            let first = va.min(next);
            let last = (va + (bytes - 1)).max(next + (next_bytes - 1));
            self.0.last_mut().into_iter().for_each(|range| *range = (first, last - first + 1));
        }
    }
}

impl Log for Invalidations {
    fn event(&mut self, event: Change) {
        if let Change::Invalidate { va, bytes, tables } = event {
            self.0.push((va.0, bytes));
            if tables {
                self.merge_last();
            }
        }
    }
}

/// Properties of leaves that are the same in all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeafRules {
    /// Size of a THP leaf in bytes, if such leaves can exist: under a THP policy, or because the program requests them
    /// (MADV_COLLAPSE).
    pub(super) huge_bytes: Option<u64>,
    /// Whether the format has a dirty flag.
    pub(super) has_dirty: bool,
}

impl LeafRules {
    pub(super) fn new(format: &impl Format, plan: &Plan) -> LeafRules {
        let flags = Flags::READ | Flags::WRITE | Flags::USER | Flags::STATE;
        let dirty = Attributes { flags, memory: format.normal_memory(), key: 0 };
        let collapsed = plan.pmd_bytes.filter(|_| matches!(plan.mapping_unit, MappingUnit::Mthp(_)));
        LeafRules { huge_bytes: plan.thp_bytes.or(collapsed), has_dirty: format.leaf(0, dirty, false).is_ok() }
    }
}

/// The state of a process.
pub(super) struct Process<F: Format> {
    pub(super) tables: Tables<F, Invalidations>,
    pub(super) rules: LeafRules,
    pub(super) vmas: Vmas,
    /// Swapped pages: input addresses and swap slots.
    pub(super) swapped: BTreeMap<u64, u64>,
    /// PR_SET_THP_DISABLE.
    pub(super) thp_disabled: bool,
    /// How new memory is locked (MCL_FUTURE).
    pub(super) lock_future: Locked,
    /// Whether the process was forked or has forked since its last exec.
    pub(super) has_forked: bool,
    pub(super) heap: Option<Heap>,
    /// The policy's state between calls.
    pub(super) policy: ::policy::Space,
    /// The parts that are still mapped of large pages that were freed in part.
    pub(super) remains: Remains,
    /// Number of THP leaves. Each has a table deposited for a later split.
    pub(super) huge_leaves: u64,
    /// Bytes of its tables that `Costs::table_bytes` includes.
    pub(super) counted_table_bytes: u64,
    /// Peak of [`Process::table_bytes`].
    pub(super) peak_table_bytes: u64,
    /// Ranges in which reclaim has cleared the accessed bits.
    pub(super) cleared_accessed: Vec<(u64, u64)>,
}

/// The heap, whose end `brk` moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heap {
    pub(super) begin: u64,
    pub(super) end: u64,
}

impl Heap {
    /// An empty heap.
    pub(super) fn beginning(begin: u64) -> Heap {
        Heap { begin, end: begin }
    }
}

/// The first addresses of the leaf and of the contiguous group that contain an address in their interior, not at an edge.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EdgeSplit {
    pub(super) leaf: Option<u64>,
    pub(super) group: Option<u64>,
}

/// Collects the mapped parts of a range, clipped to it. All entries of a software page form one part.
struct PartCollector<'a, F> {
    format: &'a F,
    begin: u64,
    end: u64,
    parts: Vec<Part>,
}

impl<F: Format> Visitor for PartCollector<'_, F> {
    fn leaf(&mut self, node: &Node) -> Action {
        let format = self.format;
        let InputAddress(begin) = node.va;
        let (va, end) = (begin.max(self.begin), begin.saturating_add(node.bytes).min(self.end));
        let leaf_bytes = node.bytes << format.run_bits();
        if let Some(before) = self.parts.last_mut()
            && (before.leaf_bytes, before.va & !(leaf_bytes - 1)) == (leaf_bytes, va & !(leaf_bytes - 1))
        {
            before.bytes += end - va;
            return Action::Continue;
        }
        self.parts.push(Part {
            va,
            pa: format.leaf_address(node.level, node.entry, node.va) + (va - begin),
            bytes: end - va,
            leaf_bytes,
            grouped: format.group_bits(node.level, node.entry) != 0,
            writable: format.attributes(node.level, node.entry).flags.contains(Flags::WRITE),
        });
        Action::Continue
    }
}

/// Collects the tables of a range, except the root: addresses and levels.
struct TableCollector {
    begin: u64,
    tables: Vec<(u64, u8)>,
}

impl Visitor for TableCollector {
    fn table(&mut self, node: &Node) -> Action {
        let level = node.level - 1;
        self.tables.push((node.va.0.max(self.begin), level));
        if level == 0 { Action::SkipChildren } else { Action::Continue }
    }
}

/// The address of the first leaf.
struct FirstLeaf(Option<u64>);

impl Visitor for FirstLeaf {
    fn leaf(&mut self, node: &Node) -> Action {
        self.0 = Some(node.va.0);
        Action::Stop
    }
}

impl<F: Format> Process<F> {
    pub(super) fn new(format: F, rules: LeafRules, number: u32) -> Result<Process<F>, Error> {
        Ok(Process {
            tables: Tables::with_log(format, tables_pa(number), TABLES_BYTES, Invalidations::default())?,
            rules,
            vmas: Vmas::default(),
            swapped: BTreeMap::new(),
            thp_disabled: false,
            lock_future: Locked::No,
            has_forked: false,
            heap: None,
            policy: ::policy::Space::default(),
            remains: Remains::default(),
            huge_leaves: 0,
            counted_table_bytes: 0,
            peak_table_bytes: 0,
            cleared_accessed: Vec::new(),
        })
    }

    /// Size of the tables in bytes as `VmPTE` of `/proc/PID/status` counts them: without the root, with deposited tables.
    pub(super) fn table_bytes(&self) -> u64 {
        let geometry = self.tables.geometry();
        let root = geometry.table_bytes(geometry.root_level());
        self.tables.arena().used_bytes() - root + self.huge_leaves * self.deposit_bytes()
    }

    /// Size in bytes of the table deposited for each THP leaf: a table of base pages.
    pub(super) fn deposit_bytes(&self) -> u64 {
        self.tables.geometry().page_bytes() << self.tables.format().run_bits()
    }

    /// The attributes of a leaf for memory with this protection (`PROT_*`).
    pub(super) fn attributes(&self, protection: u64, writable: bool) -> Attributes {
        let format = self.tables.format();
        let mut flags = Flags::READ | Flags::ACCESSED;
        flags.set(Flags::USER, protection != 0);
        if writable {
            flags |= Flags::WRITE;
            flags.set(Flags::DIRTY, self.rules.has_dirty);
        }
        if protection & PROT_EXEC != 0 {
            flags |= format.execute(true);
        }
        Attributes { flags, memory: format.normal_memory(), key: 0 }
    }

    /// The memory mapped in a range, leaf by leaf, clipped to the range.
    pub(super) fn parts(&self, begin: u64, end: u64) -> Result<Vec<Part>, Error> {
        let mut found = PartCollector { format: self.tables.format(), begin, end, parts: Vec::new() };
        self.tables.walk(InputAddress(begin), end - begin, &mut found)?;
        Ok(found.parts)
    }

    /// All mapped memory.
    pub(super) fn all_parts(&self) -> Result<Vec<Part>, Error> {
        let mut found = PartCollector { format: self.tables.format(), begin: 0, end: u64::MAX, parts: Vec::new() };
        self.tables.walk_all(&mut found)?;
        Ok(found.parts)
    }

    /// The tables of a range, except the root: an address in each, and its level.
    pub(super) fn tables_in(&self, begin: u64, end: u64) -> Result<Vec<(u64, u8)>, Error> {
        let mut found = TableCollector { begin, tables: Vec::new() };
        self.tables.walk(InputAddress(begin), end - begin, &mut found)?;
        Ok(found.tables)
    }

    /// The first mapped address of a range.
    pub(super) fn first_mapped(&self, begin: u64, end: u64) -> Result<Option<u64>, Error> {
        let mut first = FirstLeaf(None);
        self.tables.walk(InputAddress(begin), end - begin, &mut first)?;
        Ok(first.0.map(|first| first.max(begin)))
    }

    /// Whether nothing is mapped in a range.
    pub(super) fn is_empty(&self, begin: u64, end: u64) -> Result<bool, Error> {
        Ok(self.first_mapped(begin, end)?.is_none())
    }

    /// Whether one leaf can map the `bytes` around `va`: nothing is mapped there, and no table exists, not even an empty
    /// one (`pmd_none`).
    pub(super) fn has_no_table(&self, va: u64, bytes: u64) -> bool {
        let unit = |level| self.tables.geometry().span(level) << self.tables.format().run_bits();
        matches!(self.tables.leaf(InputAddress(va)), Err(Error::NotMapped { level, .. }) if unit(level) >= bytes)
    }

    /// Whether any page of a range is in swap.
    pub(super) fn is_swapped(&self, begin: u64, end: u64) -> bool {
        self.swapped.range(begin..end).next().is_some()
    }

    /// Removes and returns the swapped pages of a range: addresses and slots.
    pub(super) fn take_swapped(&mut self, begin: u64, end: u64) -> Vec<(u64, u64)> {
        let taken: Vec<(u64, u64)> = self.swapped.range(begin..end).map(|(page, slot)| (*page, *slot)).collect();
        taken.iter().for_each(|(page, _)| {
            self.swapped.remove(page);
        });
        taken
    }

    /// The physical address of `va`, if it is mapped.
    pub(super) fn physical(&self, va: u64) -> Option<Pa> {
        self.tables.translate(InputAddress(va)).ok().map(|found| found.pa)
    }

    /// The leaf that maps `va`, if it is mapped.
    pub(super) fn leaf(&self, va: u64) -> Option<Leaf> {
        let found = self.tables.leaf(InputAddress(va)).ok()?;
        let (geometry, format) = (self.tables.geometry(), self.tables.format());
        let leaf_bytes = geometry.span(found.level);
        let group_bytes = leaf_bytes << format.group_bits(found.level, found.entry);
        let writable = format.attributes(found.level, found.entry).flags.contains(Flags::WRITE);
        Some(Leaf { leaf_bytes, group_bytes, writable, faulted: false })
    }

    /// Bytes around `va` that the kernel maps as one leaf; for a software page, several entries. `None` if nothing is
    /// mapped.
    pub(super) fn unit_bytes(&self, va: u64) -> Option<u64> {
        let found = self.tables.leaf(InputAddress(va)).ok()?;
        Some(self.tables.geometry().span(found.level) << self.tables.format().run_bits())
    }

    /// The leaf and the group that would be cut if a VMA began or ended at `va`.
    pub(super) fn edge_split_at(&self, va: u64) -> EdgeSplit {
        let Ok(found) = self.tables.leaf(InputAddress(va)) else { return EdgeSplit::default() };
        let (geometry, format) = (self.tables.geometry(), self.tables.format());
        let leaf_bytes = geometry.span(found.level) << format.run_bits();
        let group_bytes = geometry.span(found.level) << format.group_bits(found.level, found.entry);
        let inside = |bytes: u64| (va & (bytes - 1) != 0).then_some(va & !(bytes - 1));
        EdgeSplit { leaf: inside(leaf_bytes), group: inside(group_bytes).filter(|_| group_bytes > leaf_bytes) }
    }

    /// Size in bytes of the largest naturally aligned block around `va` that maps contiguous, equally aligned memory with the
    /// same attributes: at most sixteen leaves, or the contiguous group. `leaf` must map `va`.
    pub(super) fn run_bytes(&self, va: u64, leaf: &Leaf) -> u64 {
        let format = self.tables.format();
        let (leaf_bytes, mut whole) = (leaf.leaf_bytes, leaf.leaf_bytes);
        for pages in [2, 4, 8, 16] {
            let bytes = leaf_bytes * pages;
            let begin = InputAddress(va).aligned_down(bytes);
            let Ok(first) = self.tables.leaf(begin) else { break };
            let attributes = format.attributes(first.level, first.entry);
            let belongs = |page: u64| {
                self.tables.leaf(begin + page * leaf_bytes).is_ok_and(|found| {
                    found.pa == first.pa + page * leaf_bytes
                        && found.level == first.level
                        && format.attributes(found.level, found.entry) == attributes
                })
            };
            if !first.pa.is_aligned(bytes) || !(0..pages).all(belongs) {
                break;
            }
            whole = bytes;
        }
        whole.max(leaf.group_bytes)
    }

    /// The entries that a walk to `va` reads; `va` must be mapped.
    pub(super) fn path(&self, va: u64) -> Path {
        let (geometry, format, arena) = (self.tables.geometry(), self.tables.format(), self.tables.arena());
        let mut path = Path { root_level: geometry.root_level(), ..Path::default() };
        let mut table = self.tables.root();
        for level in (0..geometry.levels()).rev() {
            let pa = geometry.entry_address(table, level, InputAddress(va));
            path.entries[usize::from(level)] = pa;
            path.leaf_level = level;
            match arena.read(pa) {
                Some(entry) if level > 0 && format.kind(level, entry) == Kind::Table => {
                    table = format.table_address(entry);
                }
                _ => break,
            }
        }
        path
    }

    /// log2 of the bytes that an entry of each level spans.
    pub(super) fn shifts(&self) -> [u8; LEVELS] {
        let geometry = self.tables.geometry();
        // Levels that do not exist get a span that no lookup matches.
        std::array::from_fn(
            |level| if level < usize::from(geometry.levels()) { geometry.shift(level as u8) as u8 } else { 63 },
        )
    }

    /// The leaf sizes with which a hugetlb page is mapped: one leaf, or a group of smaller leaves.
    pub(super) fn hugetlb_sizes(&self, bytes: u64) -> Sizes {
        let (geometry, format) = (self.tables.geometry(), self.tables.format());
        let is_leaf = (1..geometry.levels())
            .any(|level| format.has_leaf(level) && geometry.span(level) << format.run_bits() == bytes);
        Sizes { largest_bytes: bytes, contiguous: !is_leaf }
    }
}
