//! [`Census`]: how memory is really mapped, in bytes by backing, leaf size and folio.

use serde::{Deserialize, Serialize};

use crate::size::PageSize;

/// The kind of memory that backs a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backing {
    /// Private anonymous memory, including copies of private file pages.
    Anonymous,
    /// Pages of a hugetlb pool.
    Hugetlb,
    /// Shared anonymous memory, tmpfs and memfd.
    Shmem,
    /// The page cache of a file.
    File,
    /// The shared zero page (read before write). It uses no memory of the process.
    Zero,
}

/// The folio behind a mapping, as far as it is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "view", content = "bytes")]
pub enum Folio {
    /// Not visible: frame numbers in pagemap and kpageflags need root.
    Unknown,
    /// Mapped completely, naturally aligned and physically contiguous, so that the hardware can use the contiguity.
    Whole(PageSize),
    /// Part of a folio of this size, or a complete one at a misaligned address.
    Part(PageSize),
}

/// One row of a census.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mapping {
    /// The memory that backs it.
    pub backing: Backing,
    /// The size of the page-table entry that maps it.
    pub leaf: PageSize,
    /// The folio behind it.
    pub folio: Folio,
}

/// A run of present memory that is mapped in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// How the memory is mapped.
    pub mapping: Mapping,
}

/// The kind of memory that a mapping (VMA) can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmaKind {
    /// Private memory without a file: heap, malloc arenas, thread stacks.
    Anonymous,
    /// The main thread's stack.
    Stack,
    /// A private mapping of a file; pages that were written to are private copies.
    PrivateFile,
    /// A shared mapping: a file, shared anonymous memory, memfd, System V shared memory.
    Shared,
    /// Memory that does not belong to the process: vdso, vvar, uprobes, device DAX.
    Special,
}

/// Advice about large pages on a mapping: the flags `hg` and `nh` in smaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// No advice.
    #[default]
    None,
    /// MADV_HUGEPAGE.
    Huge,
    /// MADV_NOHUGEPAGE, or MAP_STACK.
    NoHuge,
}

/// A mapping and the memory present in it, in address order; holes are left out.
#[derive(Clone, Copy, Debug)]
pub struct Area<'a> {
    /// The first address of the mapping.
    pub start: u64,
    /// The address after its last.
    pub end: u64,
    /// The kind of memory that the mapping can hold.
    pub kind: VmaKind,
    /// The present memory that was examined.
    pub regions: &'a [Region],
}

/// Present memory of one or more processes. Memory that is mapped but not present is not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Census {
    /// Sorted by mapping; each mapping occurs at most once.
    rows: Vec<(Mapping, u64)>,
}

impl Region {
    /// Length in bytes.
    pub fn length_bytes(&self) -> u64 {
        self.end - self.start
    }
}

impl Area<'_> {
    /// Length of the address range in bytes.
    pub fn length_bytes(&self) -> u64 {
        self.end - self.start
    }
}

impl Mapping {
    /// Whether policies apply to it: anonymous memory and hugetlb pages.
    pub fn is_concerned(&self) -> bool {
        matches!(self.backing, Backing::Anonymous | Backing::Hugetlb)
    }

    /// The size at which the kernel can treat this memory as one unit: the leaf, or a larger folio behind it that is mapped
    /// completely. The TLB sees the leaf.
    pub fn effective(&self) -> PageSize {
        self.larger_folio().unwrap_or(self.leaf)
    }

    /// The size of the folio, where it is larger than the leaf and mapped completely.
    pub fn larger_folio(&self) -> Option<PageSize> {
        match self.folio {
            Folio::Whole(size) if size > self.leaf => Some(size),
            Folio::Whole(_) | Folio::Part(_) | Folio::Unknown => None,
        }
    }
}

impl Census {
    /// Anonymous and hugetlb bytes: the memory that policies apply to.
    pub fn concerned_bytes(&self) -> u64 {
        self.bytes_where(Mapping::is_concerned)
    }

    /// Adds `bytes` of a mapping.
    pub fn add(&mut self, mapping: Mapping, bytes: u64) {
        if bytes == 0 {
            return;
        }
        match self.rows.binary_search_by_key(&mapping, |row| row.0) {
            Ok(at) => self.rows[at].1 += bytes,
            Err(at) => self.rows.insert(at, (mapping, bytes)),
        }
    }

    /// Adds all of another census.
    pub fn merge(&mut self, other: &Census) {
        for (mapping, bytes) in &other.rows {
            self.add(*mapping, *bytes);
        }
    }

    /// The rows, sorted by mapping.
    pub fn rows(&self) -> impl Iterator<Item = (&Mapping, u64)> {
        self.rows.iter().map(|(mapping, bytes)| (mapping, *bytes))
    }

    /// Bytes of the rows that satisfy the condition.
    pub fn bytes_where(&self, condition: impl Fn(&Mapping) -> bool) -> u64 {
        self.rows().filter(|(mapping, _)| condition(mapping)).map(|(_, bytes)| bytes).sum()
    }

    /// All present bytes, of every backing.
    pub fn total_bytes(&self) -> u64 {
        self.bytes_where(|_| true)
    }

    /// Bytes by leaf size, smallest first.
    pub fn bytes_by_leaf(&self) -> Vec<(PageSize, u64)> {
        let mut by_leaf = std::collections::BTreeMap::new();
        for (mapping, bytes) in self.rows() {
            *by_leaf.entry(mapping.leaf).or_insert(0) += bytes;
        }
        by_leaf.into_iter().collect()
    }

    /// Whether the folios behind some of the memory are not visible.
    pub fn folios_unknown(&self) -> bool {
        self.rows().any(|(mapping, _)| mapping.folio == Folio::Unknown)
    }

    /// Whether no memory at all is present.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_merged_by_mapping() {
        let small = Mapping { backing: Backing::Anonymous, leaf: PageSize::K4, folio: Folio::Whole(PageSize::K64) };
        let large = Mapping { backing: Backing::Anonymous, leaf: PageSize::M2, folio: Folio::Whole(PageSize::M2) };
        let mut one = Census::default();
        one.add(large, 4 << 20);
        one.add(small, 65536);
        let mut two = one.clone();
        two.merge(&one);
        assert_eq!(two.total_bytes(), 2 * one.total_bytes());
        assert_eq!(two.bytes_by_leaf(), vec![(PageSize::K4, 131072), (PageSize::M2, 8 << 20)]);
        assert_eq!(small.effective(), PageSize::K64);
    }
}
