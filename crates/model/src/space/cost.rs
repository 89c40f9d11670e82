//! The costs of demand paging.

use serde::Serialize;

/// Bytes that were zeroed in folios of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ZeroedFolios {
    /// Size of such a folio in bytes.
    pub folio_bytes: u64,
    /// Number of zeroed bytes.
    pub bytes: u64,
}

/// The counts of one address space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Costs {
    /// Faults that allocated anonymous memory, or mapped a page that another process had brought back from swap.
    pub anonymous_faults: u64,
    /// Faults that mapped the shared zero page, because memory was read before it was written.
    pub zero_faults: u64,
    /// Faults that mapped pages of files.
    pub file_faults: u64,
    /// Faults that replaced memory that must not be written: copies of file pages, and memory in place of zeros.
    pub write_faults: u64,
    /// Bytes that the kernel zeroed.
    pub zeroed_bytes: u64,
    /// The part of `zeroed_bytes` that was zeroed a whole folio at a time, by size, smallest first; the rest was zeroed
    /// page by page.
    pub zeroed_folios: Vec<ZeroedFolios>,
    /// Bytes that were copied: from file pages, and from memory that a forked process shares.
    pub copied_bytes: u64,
    /// Mapped anonymous memory in bytes. Memory that two processes map counts twice, as in their RSS.
    pub anonymous_bytes: u64,
    /// Mapped pages of files, in bytes.
    pub file_bytes: u64,
    /// Peak of mapped memory in bytes.
    pub resident_peak_bytes: u64,
    /// Unmapped memory, in bytes, of folios that are only partly mapped and that the kernel has not split yet.
    pub unmapped_bytes: u64,
    /// Memory that is allocated, in bytes. Each page counts once, however often it is mapped; without files.
    pub held_bytes: u64,
    /// Peak of `held_bytes`, after any fault or call.
    pub held_peak_bytes: u64,
    /// The part of `held_bytes` that nothing maps: `unmapped_bytes`, and under the proposal of 2016 the rest of blocks
    /// of which one page is mapped.
    pub held_unmapped_bytes: u64,
    /// Peak of `held_unmapped_bytes`, after any fault or call.
    pub held_unmapped_peak_bytes: u64,
    /// Size of the page tables in bytes.
    pub table_bytes: u64,
    /// Peak of `table_bytes`.
    pub table_peak_bytes: u64,
    /// Peak of page tables and tables that are deposited for splits, together, in bytes.
    pub all_table_peak_bytes: u64,
    /// Tables that the kernel deposits for each leaf of THP so that it can split the leaf
    /// (`pgtable_trans_huge_deposit`), in bytes.
    pub deposited_table_bytes: u64,
    /// Page tables in bytes as `VmPTE` of `/proc/PID/status` counts them: without the root, with deposited tables; the
    /// peak of each process, summed. `pagelab compare` calls it `page_table_seen_bytes`.
    pub process_table_bytes: u64,
    /// Large pages that could not be allocated because memory was too fragmented or too small.
    pub allocation_fallbacks: u64,
    /// Number of leaves that were split.
    pub splits: u64,
    /// Number of folios of several pages that were split into pages.
    pub folio_splits: u64,
    /// Number of contiguous groups that were made.
    pub folds: u64,
    /// Number of contiguous groups that were dissolved.
    pub unfolds: u64,
    /// Number of times that a range was dropped from the TLBs.
    pub invalidations: u64,
    /// Calls that no kernel would have allowed (`EINVAL`: misaligned, empty, beyond user addresses, overlapping
    /// itself), or that fail under the policy. They had no effect.
    pub refused_calls: u64,
    /// Bytes that were touched although no event describes memory there; they are mapped as base pages.
    pub outside_bytes: u64,
    /// Number of pages that khugepaged has scanned.
    pub scanned_pages: u64,
    /// Number of huge pages and smaller folios that khugepaged has made.
    pub collapses: u64,
    /// Bytes that khugepaged copied into them; `zeroed_bytes` includes those that it zeroed.
    pub collapse_copied_bytes: u64,
    /// Bytes that khugepaged zeroed.
    pub collapse_zeroed_bytes: u64,
    /// Bytes that were reclaimed to swap.
    pub swapped_out_bytes: u64,
    /// Faults that brought pages back from swap: major faults.
    pub swap_faults: u64,
    /// Number of processes whose memory was modelled.
    pub processes: u32,
    /// Number of forked processes whose copies of memory are not modelled.
    pub forks: u64,
}

impl Costs {
    /// All faults except those that read from swap, as `/usr/bin/time` counts minor faults.
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
    /// Counts a whole folio that a fault zeroes.
    pub(super) fn zero_folio(&mut self, folio_bytes: u64) {
        self.zeroed_bytes += folio_bytes;
        match self.zeroed_folios.binary_search_by_key(&folio_bytes, |known| known.folio_bytes) {
            Ok(at) => self.zeroed_folios[at].bytes += folio_bytes,
            Err(at) => self.zeroed_folios.insert(at, ZeroedFolios { folio_bytes, bytes: folio_bytes }),
        }
    }

    /// Uncounts a folio that was counted as zeroed: it is copied into instead.
    pub(super) fn copy_folio(&mut self, folio_bytes: u64) {
        self.zeroed_bytes -= folio_bytes;
        self.copied_bytes += folio_bytes;
        if let Some(known) = self.zeroed_folios.iter_mut().find(|known| known.folio_bytes == folio_bytes) {
            known.bytes -= folio_bytes;
        }
    }

    /// The memory that faults zeroed: the size that is zeroed at once, and the total bytes zeroed in this size.
    pub fn zeroed_at_faults(&self, base_bytes: u64) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let folios = || self.zeroed_folios.iter().map(|zeroed| (zeroed.folio_bytes, zeroed.bytes));
        let in_folios: u64 = folios().map(|(_, bytes)| bytes).sum();
        let in_pages = self.zeroed_bytes.saturating_sub(in_folios + self.collapse_zeroed_bytes);
        folios().chain([(base_bytes, in_pages)])
    }
}
