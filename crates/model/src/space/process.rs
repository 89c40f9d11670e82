//! A process: its tables, its VMAs, and what else is its own.

use std::collections::BTreeMap;

use ::policy::remains::Remains;
use paging::{Action, Event as Change, Format, Log, Node, Tables, Visitor};

use super::*;

/// Remembers what was dropped from the TLBs.
#[derive(Clone, Debug, Default)]
pub(super) struct Dropped(pub(super) Vec<(u64, u64)>);

impl Log for Dropped {
    fn event(&mut self, event: Change) {
        if let Change::Invalidate { va, bytes, .. } = event {
            self.0.push((va, bytes));
        }
    }
}

/// What a process has of its own.
pub(super) struct Process<F: Format> {
    pub(super) tables: Tables<F, Dropped>,
    pub(super) vmas: Vmas,
    /// Pages that were reclaimed, and their slots in swap.
    pub(super) swapped: BTreeMap<u64, u64>,
    /// The process has switched THP off for itself.
    pub(super) thp_disabled: bool,
    /// The process was forked, or has forked, since it loaded its program.
    pub(super) has_forked: bool,
    pub(super) heap: Option<Heap>,
    /// What the policy remembers of it between calls.
    pub(super) policy: ::policy::Space,
    /// What is left of large pages that went in part.
    pub(super) remains: Remains,
    /// Leaves of THP, each with a table that is kept for its split.
    pub(super) huge_leaves: u64,
    /// Its tables without the root, those kept for splits included, at most.
    pub(super) peak_table_bytes: u64,
    /// Ranges whose accesses are to be told again.
    pub(super) forgotten: Vec<(u64, u64)>,
    /// Whether its tables are in the counts.
    pub(super) is_counted: bool,
}

/// What `brk` moves the end of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heap {
    pub(super) begin: u64,
    /// Up to where there is memory.
    pub(super) end: u64,
}

impl Heap {
    /// One without memory.
    pub(super) fn beginning(begin: u64) -> Heap {
        Heap { begin, end: begin }
    }
}

/// A part of memory that one leaf maps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) va: u64,
    pub(super) pa: u64,
    pub(super) bytes: u64,
    pub(super) leaf_bytes: u64,
    pub(super) grouped: bool,
    pub(super) writable: bool,
}

/// Collects what is mapped in a range, cut to it.
struct Parts<'a, F> {
    format: &'a F,
    begin: u64,
    end: u64,
    parts: Vec<Part>,
}

impl<F: Format> Visitor for Parts<'_, F> {
    fn leaf(&mut self, node: &Node) -> Action {
        let format = self.format;
        let (va, end) = (node.va.max(self.begin), node.va.saturating_add(node.bytes).min(self.end));
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

impl<F: Format> Process<F> {
    pub(super) fn new(format: F, number: u32) -> Result<Process<F>, Error> {
        let place = TABLES_PA + u64::from(number % MOST_TABLES) * TABLES_BYTES;
        Ok(Process {
            tables: Tables::with_log(format, place, TABLES_BYTES, Dropped::default())?,
            vmas: Vmas::default(),
            swapped: BTreeMap::new(),
            thp_disabled: false,
            has_forked: false,
            heap: None,
            policy: ::policy::Space::default(),
            remains: Remains::default(),
            huge_leaves: 0,
            peak_table_bytes: 0,
            forgotten: Vec::new(),
            is_counted: number == 0,
        })
    }

    /// As `VmPTE` of `/proc/PID/status` counts: without the root, with the tables kept for splits.
    pub(super) fn table_bytes(&self) -> u64 {
        let geometry = self.tables.geometry();
        let root = geometry.table_bytes(geometry.root_level());
        self.tables.arena().used_bytes() - root + self.huge_leaves * geometry.page_bytes()
    }

    /// What is mapped in a range, leaf by leaf, cut to the range.
    pub(super) fn parts(&self, begin: u64, end: u64) -> Result<Vec<Part>, Error> {
        let mut found = Parts { format: self.tables.format(), begin, end, parts: Vec::new() };
        self.tables.walk(begin, end - begin, &mut found)?;
        Ok(found.parts)
    }

    /// All that is mapped.
    pub(super) fn all_parts(&self) -> Result<Vec<Part>, Error> {
        let mut found = Parts { format: self.tables.format(), begin: 0, end: u64::MAX, parts: Vec::new() };
        self.tables.walk_all(&mut found)?;
        Ok(found.parts)
    }
}
