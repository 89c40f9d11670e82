//! What a split did, counted.

use core::ops::AddAssign;

use crate::address::OutputAddress;

/// Bytes of a line as cache lines are counted.
const LINE_BYTES: u64 = 64;

/// What walks, visitors and builds did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Entries of live tables that walks read. An entry that is read again after its callback counts once.
    pub entries_read: u64,
    /// Calls of the visitor.
    pub callbacks: u64,
    /// Entries written into tables that were not live yet, each once.
    pub entries_built: u64,
    /// Live leaves that lost their write permission.
    pub entries_protected: u64,
    /// Tables taken from the cache and linked.
    pub tables: u64,
    /// TLB invalidations: one for each live block that was broken, one for a range that was write-protected.
    pub tlb_invalidations: u64,
    /// Lines of 64 bytes with entries that were read or written. A scan of one table counts each of its lines
    /// once, whatever it does there; another scan, of the next walk say, counts them again. The zeroing of
    /// new tables is not in it.
    pub cache_lines: u64,
    /// Walks from the root; those that build unlinked tables are not in it.
    pub walks: u64,
    /// How often the cache of tables was filled up.
    pub top_ups: u64,
}

impl Counters {
    /// Entries read and entries built: the visits that the published figures are about.
    pub const fn visits(&self) -> u64 {
        self.entries_read + self.entries_built
    }

    /// Adds the lines from the entry at `first` up to before `end`.
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
