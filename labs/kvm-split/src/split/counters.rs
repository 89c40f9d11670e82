//! Counts the work of a split.

use core::ops::AddAssign;

use paging::OutputAddress;

/// Size of a cache line for the count of cache lines, in bytes.
const LINE_BYTES: u64 = 64;

/// Counts of the work of walks, visitors and builds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Entries of live tables that walks read. An entry that is read again after its callback counts once.
    pub entries_read: u64,
    /// Number of calls of the visitor.
    pub callbacks: u64,
    /// Entries written into tables that were not live yet, each counted once.
    pub entries_built: u64,
    /// Live leaves whose write permission was removed.
    pub entries_protected: u64,
    /// Tables taken from the cache and linked.
    pub tables: u64,
    /// Number of TLB invalidations: one for each live block that was broken, one for a range that was write-protected.
    pub tlb_invalidations: u64,
    /// Lines of 64 bytes with entries that were read or written. A scan of one table counts each of its lines once,
    /// however often it uses them; another scan, such as that of the next walk, counts them again. Zeroing new tables
    /// does not count.
    pub cache_lines: u64,
    /// Number of walks from the root. Walks that build unlinked tables do not count.
    pub walks: u64,
    /// How often the cache of tables was filled.
    pub top_ups: u64,
}

impl Counters {
    /// Entries read plus entries built: the visits that the published figures count.
    pub const fn visits(&self) -> u64 {
        self.entries_read + self.entries_built
    }

    /// Adds the cache lines from the entry at `first` up to `end`, exclusive.
    pub(super) fn scanned(&mut self, OutputAddress(first): OutputAddress, OutputAddress(end): OutputAddress) {
        if end > first {
            self.cache_lines += (end - 1) / LINE_BYTES - first / LINE_BYTES + 1;
        }
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.entries_read += other.entries_read;
        self.callbacks += other.callbacks;
        self.entries_built += other.entries_built;
        self.entries_protected += other.entries_protected;
        self.tables += other.tables;
        self.tlb_invalidations += other.tlb_invalidations;
        self.cache_lines += other.cache_lines;
        self.walks += other.walks;
        self.top_ups += other.top_ups;
    }
}
