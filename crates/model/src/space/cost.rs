//! What demand paging costs.

use serde::Serialize;

/// Bytes that were filled with zeros in folios of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ZeroedFolios {
    /// Bytes of such a folio.
    pub folio_bytes: u64,
    /// Bytes that were filled.
    pub bytes: u64,
}

/// Counts of one address space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Costs {
    /// Faults that gave anonymous memory, or mapped what another process has brought back from swap.
    pub anonymous_faults: u64,
    /// Faults that mapped the shared page full of zeros, because memory was read before it was written.
    pub zero_faults: u64,
    /// Faults that mapped pages of files.
    pub file_faults: u64,
    /// Faults that replaced what may not be written: copies of file pages, and memory in place of zeros.
    pub write_faults: u64,
    /// Bytes that the kernel filled with zeros.
    pub zeroed_bytes: u64,
    /// What of that was filled a whole folio at a time, by size, smallest first; the rest went page by page.
    pub zeroed_folios: Vec<ZeroedFolios>,
    /// Bytes that were copied: of file pages, and of memory that a forked process shares.
    pub copied_bytes: u64,
    /// Anonymous memory that is mapped; what two processes map counts twice, as in their RSS.
    pub anonymous_bytes: u64,
    /// Pages of files that are mapped.
    pub file_bytes: u64,
    /// The most memory that was mapped at once.
    pub resident_peak_bytes: u64,
    /// Memory of folios that are mapped in part only, and which the kernel has not split yet.
    pub unmapped_bytes: u64,
    /// Memory that was allocated and has not been given back, each page once, however many map it; without files.
    pub held_bytes: u64,
    /// The most of that after any fault or call.
    pub held_peak_bytes: u64,
    /// What of it nothing maps: `unmapped_bytes`, and under the proposal of 2016 the rest of blocks of which one page is mapped.
    pub held_unmapped_bytes: u64,
    /// The most of that after any fault or call.
    pub held_unmapped_peak_bytes: u64,
    /// Page tables.
    pub table_bytes: u64,
    /// Page tables, at most.
    pub table_peak_bytes: u64,
    /// Page tables and those that are kept for splits, together, at most.
    pub all_table_peak_bytes: u64,
    /// Tables that the kernel keeps for each leaf of THP, to be able to split it (`pgtable_trans_huge_deposit`).
    pub deposited_table_bytes: u64,
    /// Page tables as `VmPTE` of `/proc/PID/status` counts them: without the root, with those kept for splits; of each
    /// process at its largest, summed. What `pagelab compare` calls `page_table_seen_bytes`.
    pub process_table_bytes: u64,
    /// Large pages that could not be had because memory was too fragmented or too small.
    pub allocation_fallbacks: u64,
    /// Leaves that were split.
    pub splits: u64,
    /// Folios of several pages that were split into pages.
    pub folio_splits: u64,
    /// Contiguous groups that were made.
    pub folds: u64,
    /// Contiguous groups that were taken apart.
    pub unfolds: u64,
    /// Times that a range was dropped from the TLBs.
    pub invalidations: u64,
    /// Calls that no kernel would have let succeed (`EINVAL`: misaligned, empty, beyond the addresses that programs have,
    /// over itself), or that fail under the policy; they did nothing.
    pub refused_calls: u64,
    /// Bytes that were touched where no event says that there is memory; mapped as base pages.
    pub outside_bytes: u64,
    /// Pages that khugepaged has looked at.
    pub scanned_pages: u64,
    /// Huge pages, and smaller folios, that khugepaged has made.
    pub collapses: u64,
    /// Bytes that it copied into them; what it filled with zeros is in `zeroed_bytes` too.
    pub collapse_copied_bytes: u64,
    /// Bytes that it filled with zeros.
    pub collapse_zeroed_bytes: u64,
    /// Bytes that were reclaimed to swap.
    pub swapped_out_bytes: u64,
    /// Faults that brought pages back from swap: major faults.
    pub swap_faults: u64,
    /// Processes there have been whose memory is modelled.
    pub processes: u32,
    /// Processes that the program made and whose copies of memory are not modelled.
    pub forks: u64,
}

impl Costs {
    /// All faults but those that read from swap, as `/usr/bin/time` counts minor faults.
    pub fn faults(&self) -> u64 {
        self.anonymous_faults + self.zero_faults + self.file_faults + self.write_faults
    }

    /// The counts of faults.
    pub(super) fn fault_counts(&self) -> [u64; 5] {
        [self.anonymous_faults, self.zero_faults, self.file_faults, self.write_faults, self.swap_faults]
    }

    /// Sets the counts of faults to what they were.
    pub(super) fn set_fault_counts(&mut self, counts: [u64; 5]) {
        [self.anonymous_faults, self.zero_faults, self.file_faults, self.write_faults, self.swap_faults] = counts;
    }

    /// Memory that is mapped.
    pub fn resident_bytes(&self) -> u64 {
        self.anonymous_bytes + self.file_bytes
    }
    /// Counts a whole folio that a fault fills with zeros.
    pub(super) fn zero_folio(&mut self, folio_bytes: u64) {
        self.zeroed_bytes += folio_bytes;
        match self.zeroed_folios.binary_search_by_key(&folio_bytes, |known| known.folio_bytes) {
            Ok(at) => self.zeroed_folios[at].bytes += folio_bytes,
            Err(at) => self.zeroed_folios.insert(at, ZeroedFolios { folio_bytes, bytes: folio_bytes }),
        }
    }

    /// Takes a folio that was counted back: it is copied into instead.
    pub(super) fn copy_folio(&mut self, folio_bytes: u64) {
        self.zeroed_bytes -= folio_bytes;
        self.copied_bytes += folio_bytes;
        if let Some(known) = self.zeroed_folios.iter_mut().find(|known| known.folio_bytes == folio_bytes) {
            known.bytes -= folio_bytes;
        }
    }

    /// What faults filled with zeros: what is filled at once, and all bytes that were filled so.
    pub fn zeroed_at_faults(&self, base_bytes: u64) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let folios = || self.zeroed_folios.iter().map(|zeroed| (zeroed.folio_bytes, zeroed.bytes));
        let in_folios: u64 = folios().map(|(_, bytes)| bytes).sum();
        let in_pages = self.zeroed_bytes.saturating_sub(in_folios + self.collapse_zeroed_bytes);
        folios().chain([(base_bytes, in_pages)])
    }
}
