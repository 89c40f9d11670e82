//! The costs of demand paging.

use std::collections::BTreeMap;

use serde::Serialize;

/// Bytes that were zeroed in folios of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ZeroedFolios {
    /// Size of such a folio in bytes.
    pub folio_bytes: u64,
    /// Number of zeroed bytes.
    pub bytes: u64,
}

/// The counts of all processes of a simulation together.
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
    /// The part of all faults without those from swap that took no exception: calls populated the memory.
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
    /// Peak of mapped memory in bytes.
    pub resident_peak_bytes: u64,
    /// Bytes of allocated folios that nothing maps, because the kernel has not split a partly mapped folio yet.
    pub unmapped_bytes: u64,
    /// Allocated memory in bytes, without files. Each page counts once, even if several processes map it.
    pub held_bytes: u64,
    /// Peak of `held_bytes`, taken after each fault and each call.
    pub held_peak_bytes: u64,
    /// Peak of the sum of `held_bytes`, `table_bytes` and `deposited_table_bytes`, taken after each fault and each call: what a memory
    /// control group is charged, without files and other memory of the kernel.
    pub charged_peak_bytes: u64,
    /// The part of `held_bytes` that nothing maps: `unmapped_bytes` and, under the proposal of 2016, the rest of each block
    /// of which only one page is mapped.
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
    /// Large pages that could not be allocated because no large enough block was free.
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
    /// Advised bytes by the name of the advice, for advice that is not modelled, or only in part.
    pub unmodelled_advice: BTreeMap<&'static str, u64>,
    /// Bytes touched where no event describes memory; they are mapped as base pages.
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
    /// The largest number of modelled processes at one time.
    pub processes_peak: u32,
    /// Number of forked processes that are not modelled.
    pub forks: u64,
}

impl Costs {
    /// All faults except those that read from swap: the minor faults of `/usr/bin/time`.
    pub fn faults(&self) -> u64 {
        self.anonymous_faults + self.zero_faults + self.file_faults + self.write_faults
    }

    pub(super) fn fault_counts(&self) -> [u64; 5] {
        [self.anonymous_faults, self.zero_faults, self.file_faults, self.write_faults, self.swap_faults]
    }

    /// Restores the fault counts.
    pub(super) fn set_fault_counts(&mut self, counts: [u64; 5]) {
        [self.anonymous_faults, self.zero_faults, self.file_faults, self.write_faults, self.swap_faults] = counts;
    }

    /// Mapped memory in bytes.
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

    /// Counts a folio as copied that was counted as zeroed before.
    pub(super) fn copy_folio(&mut self, folio_bytes: u64) {
        self.zeroed_bytes -= folio_bytes;
        self.copied_bytes += folio_bytes;
        if let Some(known) = self.zeroed_folios.iter_mut().find(|known| known.folio_bytes == folio_bytes) {
            known.bytes -= folio_bytes;
        }
    }

    /// The memory that faults zeroed: bytes zeroed at once, and total bytes zeroed in units of that size.
    pub fn zeroed_at_faults(&self, base_bytes: u64) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let folios = || self.zeroed_folios.iter().map(|zeroed| (zeroed.folio_bytes, zeroed.bytes));
        let in_folios: u64 = folios().map(|(_, bytes)| bytes).sum();
        let in_pages = self.zeroed_bytes.saturating_sub(in_folios + self.collapse_zeroed_bytes);
        folios().chain([(base_bytes, in_pages)])
    }
}
