//! What maps memory: bytes by leaf size and by contiguity, and what the tables cost.

use alloc::collections::BTreeMap;

use crate::error::Error;
use crate::format::Format;
use crate::log::Log;
use crate::tables::Tables;
use crate::walk::{Action, Node, Visitor};

/// The size of a leaf and of what it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafSize {
    /// Bytes that one entry maps.
    pub leaf_bytes: u64,
    /// Bytes of the contiguous group that the entry says it belongs to; those of the leaf if it is alone.
    pub group_bytes: u64,
}

/// What the tables map, and what they take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Bytes mapped, by size.
    pub mapped_bytes: BTreeMap<LeafSize, u64>,
    /// Tables by level; concatenated root tables are one, and so is each hardware table of a software table.
    pub tables: BTreeMap<u8, u64>,
    /// Bytes of these tables.
    pub table_bytes: u64,
    /// Entries that hardware refuses.
    pub illegal: u64,
}

impl Census {
    /// All bytes that are mapped.
    pub fn total_bytes(&self) -> u64 {
        self.mapped_bytes.values().sum()
    }

    /// Adds what other tables map.
    pub fn merge(&mut self, other: &Census) {
        for (size, bytes) in &other.mapped_bytes {
            *self.mapped_bytes.entry(*size).or_default() += bytes;
        }
        for (level, tables) in &other.tables {
            *self.tables.entry(*level).or_default() += tables;
        }
        self.table_bytes += other.table_bytes;
        self.illegal += other.illegal;
    }
}

struct Counter<'a, F> {
    format: &'a F,
    census: Census,
}

impl<F: Format> Counter<'_, F> {
    fn count_table(&mut self, level: u8) {
        *self.census.tables.entry(level).or_default() += 1;
        self.census.table_bytes += self.format.geometry().table_bytes(level);
    }
}

impl<F: Format> Visitor for Counter<'_, F> {
    fn table(&mut self, node: &Node) -> Action {
        self.count_table(node.level - 1);
        Action::Continue
    }

    fn leaf(&mut self, node: &Node) -> Action {
        let group_bytes = node.bytes << self.format.group_bits(node.level, node.entry);
        *self.census.mapped_bytes.entry(LeafSize { leaf_bytes: node.bytes, group_bytes }).or_default() += node.bytes;
        Action::Continue
    }

    fn illegal(&mut self, _node: &Node) -> Action {
        self.census.illegal += 1;
        Action::Continue
    }
}

impl<F: Format, L: Log> Tables<F, L> {
    /// Counts what is mapped and what the tables take.
    ///
    /// # Errors
    /// A table outside the arena, or tables that are no tree.
    pub fn census(&self) -> Result<Census, Error> {
        let mut counter = Counter { format: self.format(), census: Census::default() };
        counter.count_table(self.geometry().root_level());
        self.walk_all(&mut counter)?;
        Ok(counter.census)
    }
}
