//! [`Splitter`] splits a slot in chunks: decides the range of each walk, and when the cache of tables is filled.

use super::block::{Variant, split};
use super::build::Build;
use super::cache::{BLOCK_LEVELS, TableCache, tables_for};
use super::counters::Counters;
use super::error::Error;
use super::slot::Slot;
use paging::InputAddress;
use paging::Log;
use paging::Tables;
use paging::format::arm64::Granule;
use paging::format::arm64_stage2::Arm64Stage2;

/// Number of pages in one word of the dirty bitmap.
pub(super) const WORD_PAGES: u64 = 64;

/// When a slot is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The whole slot, when logging is enabled.
    Enable,
    /// When its log is cleared, 64 pages at a time (KVM_CLEAR_DIRTY_LOG after KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE and
    /// KVM_DIRTY_LOG_INITIALLY_SET); here every page is dirty.
    Clear,
}

/// How a slot is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// The entries that are not visited.
    pub variant: Variant,
    /// How new tables are built.
    pub build: Build,
    /// The maximum bytes per walk, one of [`chunk_sizes`]; or 0 to split nothing, which is KVM's default.
    pub chunk_bytes: u64,
    /// When the slot is split.
    pub mode: Mode,
}

impl Options {
    /// Splits when logging is enabled, in chunks of `chunk_bytes`, with tables built as KVM does.
    pub const fn enable(chunk_bytes: u64, variant: Variant) -> Options {
        Options { variant, build: Build::Walk, chunk_bytes, mode: Mode::Enable }
    }

    /// As [`Options::enable`], but splits when the log is cleared.
    pub const fn clear(chunk_bytes: u64, variant: Variant) -> Options {
        Options { mode: Mode::Clear, ..Options::enable(chunk_bytes, variant) }
    }
}

/// The chunk sizes in bytes that KVM offers (KVM_CAP_ARM_SUPPORTED_BLOCK_SIZES), the smallest first: 4K, 2M and 1G; 16K
/// and 32M; 64K and 512M.
pub fn chunk_sizes(granule: Granule) -> Vec<u64> {
    let shift = u32::from(granule.shift());
    let highest = if granule == Granule::K4 { BLOCK_LEVELS.1 } else { BLOCK_LEVELS.0 };
    (0..=u32::from(highest)).map(|level| 1 << (shift + level * (shift - 3))).collect()
}

/// Splits every block of a slot to pages.
///
/// # Errors
/// As [`Splitter::new`] and [`Splitter::enable`].
pub fn split_slot<L: Log>(
    tables: &mut Tables<Arm64Stage2, L>,
    slot: Slot,
    options: Options,
) -> Result<Counters, Error> {
    let mut splitter = Splitter::new(tables, slot, options)?;
    match options.mode {
        Mode::Enable => splitter.enable()?,
        Mode::Clear => splitter.clear()?,
    }
    Ok(splitter.counters())
}

/// Splits a slot, or parts of it one after the other, and keeps its cache of tables in between. Dropping it returns the
/// tables left in the cache to the arena.
#[derive(Debug)]
pub struct Splitter<'a, L: Log> {
    tables: &'a mut Tables<Arm64Stage2, L>,
    slot: Slot,
    options: Options,
    cache: TableCache,
    counters: Counters,
}

impl<'a, L: Log> Splitter<'a, L> {
    /// Prepares to split a slot.
    ///
    /// # Errors
    /// KVM refuses the chunk size, or the slot is empty, misaligned or too large.
    pub fn new(tables: &'a mut Tables<Arm64Stage2, L>, slot: Slot, options: Options) -> Result<Splitter<'a, L>, Error> {
        let bytes = options.chunk_bytes;
        let sizes = chunk_sizes(tables.format().granule());
        if bytes != 0 && !sizes.contains(&bytes) {
            let offered: Vec<String> = sizes.iter().map(|bytes| format!("{bytes:#x}")).collect();
            return Err(Error::ChunkSize { bytes, offered: offered.join(", ") });
        }
        tables.geometry().range(slot.ipa, slot.bytes)?;
        Ok(Splitter { tables, slot, options, cache: TableCache::default(), counters: Counters::default() })
    }

    /// The counts of all work so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Splits the whole slot.
    ///
    /// # Errors
    /// Tables cannot be followed, KVM would not split a block, or there is no memory for more tables. KVM continues
    /// after such an error: a block that could not be split is split when the guest writes to it.
    pub fn enable(&mut self) -> Result<(), Error> {
        self.range(self.slot.ipa, self.slot.ipa + self.slot.bytes)
    }

    /// Splits the whole slot, word by word of its bitmap, with all bits set.
    ///
    /// # Errors
    /// As [`Splitter::enable`].
    pub fn clear(&mut self) -> Result<(), Error> {
        let pages = self.pages();
        for page in (0..pages).step_by(WORD_PAGES as usize) {
            let missing = WORD_PAGES.saturating_sub(pages - page);
            self.clear_word(page, u64::MAX >> missing)?;
        }
        Ok(())
    }

    /// Splits the range from the first to the last page that is set in one word of the bitmap, whose bit 0 is `page` of
    /// the slot (kvm_arch_mmu_enable_log_dirty_pt_masked). Bits past the slot do not count.
    ///
    /// # Errors
    /// No word begins with `page`; otherwise as [`Splitter::enable`].
    pub fn clear_word(&mut self, page: u64, mask: u64) -> Result<(), Error> {
        let pages = self.pages();
        if !page.is_multiple_of(WORD_PAGES) || page >= pages {
            return Err(Error::NoWord { page, pages });
        }
        let mask = mask & u64::MAX >> WORD_PAGES.saturating_sub(pages - page);
        if mask == 0 {
            return Ok(());
        }
        let page_bytes = self.tables.geometry().page_bytes();
        let address = |bit: u32| self.slot.ipa + (page + u64::from(bit)) * page_bytes;
        self.range(address(mask.trailing_zeros()), address(64 - mask.leading_zeros()))
    }

    /// The tables of the slot.
    pub(super) fn tables(&mut self) -> &mut Tables<Arm64Stage2, L> {
        self.tables
    }

    fn pages(&self) -> u64 {
        self.slot.bytes / self.tables.geometry().page_bytes()
    }

    /// Splits a range chunk by chunk (kvm_mmu_split_huge_pages).
    fn range(&mut self, first: InputAddress, end: InputAddress) -> Result<(), Error> {
        let Options { variant, build, chunk_bytes, .. } = self.options;
        if chunk_bytes == 0 {
            return Ok(());
        }
        let capacity = tables_for(self.tables.format(), chunk_bytes);
        let mut ipa = first;
        while ipa < end {
            if self.cache.len() < capacity {
                self.top_up(ipa, capacity)?;
            }
            let next = (ipa.aligned_down(chunk_bytes) + chunk_bytes).min(end);
            let chunk = Slot { ipa, bytes: next - ipa };
            split(self.tables, chunk, variant, build, &mut self.cache, &mut self.counters)?;
            ipa = next;
        }
        Ok(())
    }

    fn top_up(&mut self, va: InputAddress, capacity: u64) -> Result<(), Error> {
        self.counters.top_ups += 1;
        let filled = self.cache.top_up(self.tables, capacity);
        filled.map_err(|source| Error::TopUp { va, capacity, cached: self.cache.len(), source })
    }
}

impl<L: Log> Drop for Splitter<'_, L> {
    fn drop(&mut self) {
        self.cache.empty(self.tables);
    }
}
