//! Runs both walks of a dirty log in KVM's order: write protection, then splitting.

use super::chunks::{Mode, Options, Splitter, WORD_PAGES};
use super::counters::Counters;
use super::error::Error;
use super::protect::{invalidate, protect_range, write_protect_slot};
use super::slot::Slot;
use paging::Log;
use paging::Tables;
use paging::format::arm64_stage2::Arm64Stage2;

/// The counts of both walks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProtectAndSplit {
    /// Counts of the walks that remove write permission.
    pub protect: Counters,
    /// Counts of the walks that split.
    pub split: Counters,
}

/// Write-protects a slot and splits it.
///
/// When logging is enabled, the whole slot is protected before any of it is split (kvm_mmu_wp_memory_region,
/// kvm_mmu_split_memory_region). When the log is cleared, each word of the bitmap is protected and then split
/// (kvm_arch_mmu_enable_log_dirty_pt_masked). So from the second word of a block on, the protecting walk visits the
/// pages that the first word's split created. Here every page is dirty.
///
/// # Errors
/// As [`Splitter::new`] and [`Splitter::enable`].
pub fn log_slot<L: Log>(
    tables: &mut Tables<Arm64Stage2, L>,
    slot: Slot,
    options: Options,
) -> Result<ProtectAndSplit, Error> {
    if options.mode == Mode::Enable {
        let protect = write_protect_slot(tables, slot, Mode::Enable)?;
        let mut splitter = Splitter::new(tables, slot, options)?;
        splitter.enable()?;
        return Ok(ProtectAndSplit { protect, split: splitter.counters() });
    }
    let page_bytes = tables.geometry().page_bytes();
    let mut protect = Counters::default();
    let mut splitter = Splitter::new(tables, slot, options)?;
    for page in (0..slot.bytes / page_bytes).step_by(WORD_PAGES as usize) {
        let first_bytes = page * page_bytes;
        let bytes = (WORD_PAGES * page_bytes).min(slot.bytes - first_bytes);
        protect_range(splitter.tables(), Slot { ipa: slot.ipa + first_bytes, bytes }, &mut protect)?;
        splitter.clear_word(page, u64::MAX)?;
    }
    invalidate(splitter.tables(), slot, &mut protect);
    Ok(ProtectAndSplit { protect, split: splitter.counters() })
}
