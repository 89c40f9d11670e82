//! [`Census`]: counts mapped bytes by leaf size and contiguity, and the size of the tables.

use alloc::collections::BTreeMap;

use crate::error::Error;
use crate::format::Format;
use crate::log::Log;
use crate::tables::Tables;
use crate::walk::{Action, Node, Visitor};

/// The size of a leaf and of the contiguous group that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafSize {
    /// Bytes that one entry maps.
    pub leaf_bytes: u64,
    /// Bytes of the contiguous group that the entry belongs to; those of the leaf if it is in none.
    pub group_bytes: u64,
}

/// Mapped bytes by size, and the tables that map them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Mapped bytes by leaf and group size.
    pub mapped_bytes: BTreeMap<LeafSize, u64>,
    /// Number of tables by level. Concatenated root tables count as one, and each hardware table of a software table
    /// counts as one.
    pub tables: BTreeMap<u8, u64>,
    /// Total size of these tables, in bytes.
    pub table_bytes: u64,
    /// Number of entries that hardware refuses.
    pub illegal: u64,
}

impl Census {
    /// Total number of mapped bytes.
    pub fn total_bytes(&self) -> u64 {
        self.mapped_bytes.values().sum()
    }

    /// Adds the counts of other tables.
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
    /// Counts mapped memory and tables.
    ///
    /// # Errors
    /// A table is outside the arena, or the tables are not a tree.
    pub fn census(&self) -> Result<Census, Error> {
        let mut counter = Counter { format: self.format(), census: Census::default() };
        counter.count_table(self.geometry().root_level());
        self.walk_all(&mut counter)?;
        Ok(counter.census)
    }
}
