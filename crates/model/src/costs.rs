//! The costs of demand paging.

use std::collections::BTreeMap;

use serde::Serialize;

/// The bytes zeroed in whole folios of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ZeroedFolios {
    /// Size of each folio in bytes.
    pub folio_bytes: u64,
    /// Total zeroed bytes.
    pub bytes: u64,
}

/// The counts over all processes of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Costs {
    /// Faults that allocated anonymous memory, or mapped a page that was already in memory: a page that another process had
    /// read from swap, or a page of shared memory.
    pub anonymous_faults: u64,
    /// Faults that mapped the shared zero page: memory was read before it was written.
    pub zero_faults: u64,
    /// Faults that mapped file pages.
    pub file_faults: u64,
    /// Faults at stores to mapped but write-protected memory: they copied it, replaced the zero page, or made it writable.
    pub write_faults: u64,
    /// The part of [`Costs::faults`] that took no exception, because a call populated the memory.
    pub populated_faults: u64,
    /// Bytes that the kernel zeroed.
    pub zeroed_bytes: u64,
    /// The part of `zeroed_bytes` that was zeroed in whole folios, by size, smallest first. The rest was zeroed page by
    /// page.
    pub zeroed_folios: Vec<ZeroedFolios>,
    /// Bytes copied at faults: from file pages, and from memory shared with another process after a fork.
    pub copied_bytes: u64,
    /// Mapped anonymous memory in bytes. Memory mapped by two processes counts twice, as in their RSS.
    pub anonymous_bytes: u64,
    /// Mapped file pages, in bytes.
    pub file_bytes: u64,
    /// Peak of [`Costs::resident_bytes`].
    pub resident_peak_bytes: u64,
    /// Unmapped bytes of partly mapped folios. They stay allocated until the kernel splits the folio.
    pub unmapped_bytes: u64,
    /// Allocated memory in bytes, without files. Each page counts once, even if several processes map it.
    pub held_bytes: u64,
    /// Peak of `held_bytes`, taken after each fault and each call.
    pub held_peak_bytes: u64,
    /// Peak of the sum of `held_bytes`, `table_bytes` and `deposited_table_bytes`, taken after each fault and each
    /// call. A memory cgroup is charged for these, and for files and other kernel memory, which are not included here.
    pub charged_peak_bytes: u64,
    /// The part of `held_bytes` that nothing maps: `unmapped_bytes` and, under the proposal of 2016 (`contig-64k`), the
    /// rest of each reserved block, of which only one page is mapped.
    pub held_unmapped_bytes: u64,
    /// Peak of `held_unmapped_bytes`, taken after each fault and each call.
    pub held_unmapped_peak_bytes: u64,
    /// Size of the page tables in bytes.
    pub table_bytes: u64,
    /// Peak of `table_bytes`.
    pub table_peak_bytes: u64,
    /// Peak of the sum of `table_bytes` and `deposited_table_bytes`.
    pub all_table_peak_bytes: u64,
    /// Size in bytes of the tables that the kernel deposits, one for each THP leaf, for a later split
    /// (`pgtable_trans_huge_deposit`).
    pub deposited_table_bytes: u64,
    /// Page tables in bytes as `VmPTE` of `/proc/PID/status` counts them (without the root, with deposited tables): the sum
    /// of the peaks of all processes. `pagelab compare` calls it `page_table_seen_bytes`.
    pub process_table_bytes: u64,
    /// Number of large pages that could not be allocated because no block of their size was free.
    pub allocation_fallbacks: u64,
    /// Number of leaves that were split into smaller ones.
    pub splits: u64,
    /// Number of large folios that were split into pages.
    pub folio_splits: u64,
    /// Number of contiguous groups that were folded.
    pub folds: u64,
    /// Number of contiguous groups that were unfolded.
    pub unfolds: u64,
    /// Number of TLB invalidations, each of one range.
    pub invalidations: u64,
    /// Calls without effect: those that no kernel allows (`EINVAL`: misaligned, empty, beyond user addresses, overlapping
    /// itself), and those that fail under the policy.
    pub refused_calls: u64,
    /// For each advice that is not modelled, or only in part: its name and the advised bytes.
    pub unmodelled_advice: BTreeMap<&'static str, u64>,
    /// Bytes touched outside all memory that the trace describes. They are mapped as base pages.
    pub outside_bytes: u64,
    /// Number of pages that khugepaged has scanned.
    pub scanned_pages: u64,
    /// Number of huge pages and smaller folios that khugepaged has collapsed.
    pub collapses: u64,
    /// Bytes that khugepaged copied.
    pub collapse_copied_bytes: u64,
    /// Bytes that khugepaged zeroed; `zeroed_bytes` includes them.
    pub collapse_zeroed_bytes: u64,
    /// Bytes reclaimed to swap.
    pub swapped_out_bytes: u64,
    /// Faults that read a page from swap (major faults).
    pub swap_faults: u64,
    /// Number of modelled processes.
    pub processes: u32,
    /// The largest number of modelled processes that existed at one time.
    pub processes_peak: u32,
    /// Number of forked processes that are not modelled, because they have no trace.
    pub forks: u64,
}

impl Costs {
    /// All faults except those that read from swap: the minor faults that `/usr/bin/time` reports.
    pub fn faults(&self) -> u64 {
        self.anonymous_faults + self.zero_faults + self.file_faults + self.write_faults
    }

    pub(super) fn fault_counts(&self) -> [u64; 5] {
        [self.anonymous_faults, self.zero_faults, self.file_faults, self.write_faults, self.swap_faults]
    }

    pub(super) fn set_fault_counts(&mut self, counts: [u64; 5]) {
        [self.anonymous_faults, self.zero_faults, self.file_faults, self.write_faults, self.swap_faults] = counts;
    }

    /// Mapped memory in bytes, as in RSS.
    pub fn resident_bytes(&self) -> u64 {
        self.anonymous_bytes + self.file_bytes
    }

    /// Counts a folio that a fault zeroes.
    pub(super) fn zero_folio(&mut self, folio_bytes: u64) {
        self.zeroed_bytes += folio_bytes;
        match self.zeroed_folios.binary_search_by_key(&folio_bytes, |known| known.folio_bytes) {
            Ok(at) => self.zeroed_folios[at].bytes += folio_bytes,
            Err(at) => self.zeroed_folios.insert(at, ZeroedFolios { folio_bytes, bytes: folio_bytes }),
        }
    }

    /// Counts a folio as copied instead of zeroed. It must have been counted by [`Costs::zero_folio`].
    pub(super) fn copy_folio(&mut self, folio_bytes: u64) {
        self.zeroed_bytes -= folio_bytes;
        self.copied_bytes += folio_bytes;
        if let Some(known) = self.zeroed_folios.iter_mut().find(|known| known.folio_bytes == folio_bytes) {
            known.bytes -= folio_bytes;
        }
    }

    /// The memory that faults zeroed: pairs of a unit's size in bytes and the total bytes zeroed in such units.
    /// Khugepaged's zeroing is not included.
    pub fn zeroed_at_faults(&self, base_bytes: u64) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let folios = || self.zeroed_folios.iter().map(|zeroed| (zeroed.folio_bytes, zeroed.bytes));
        let in_folios: u64 = folios().map(|(_, bytes)| bytes).sum();
        let in_pages = self.zeroed_bytes.saturating_sub(in_folios + self.collapse_zeroed_bytes);
        folios().chain([(base_bytes, in_pages)])
    }
}
