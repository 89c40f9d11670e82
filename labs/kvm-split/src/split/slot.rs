//! Memory slots and their backing.

use super::cache::{BLOCK_LEVELS, tables_for};
use super::error::Error;
use paging::Log;
use paging::format::Format;
use paging::format::arm64::Granule;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::{Attributes, Flags};
use paging::{InputAddress, OutputAddress};
use paging::{Mapping, Sizes, Tables};

/// A range of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its first intermediate physical address.
    pub ipa: InputAddress,
    /// Its length in bytes, whole pages.
    pub bytes: u64,
}

/// The host memory behind a slot, which determines how KVM can map it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backing {
    /// Only base pages.
    Pages,
    /// PMD-size huge pages, THP or hugetlb: 2M, 32M or 512M with granules of 4K, 16K or 64K.
    Blocks,
    /// 1G hugetlb pages: 1G blocks with the 4K granule. KVM has no contiguous groups at stage 2, so with the other
    /// granules they are blocks of 32M or 512M.
    Gigabyte,
}

impl Backing {
    /// All backings, the smallest first.
    pub const ALL: [Backing; 3] = [Backing::Pages, Backing::Blocks, Backing::Gigabyte];

    /// Size in bytes of the leaves with which KVM maps it.
    pub const fn leaf_bytes(self, granule: Granule) -> u64 {
        let shift = granule.shift() as u32;
        let block = shift + (shift - 3) * BLOCK_LEVELS.0 as u32;
        match (self, granule) {
            (Backing::Pages, _) => 1 << shift,
            (Backing::Gigabyte, Granule::K4) => 1 << 30,
            (Backing::Blocks | Backing::Gigabyte, _) => 1 << block,
        }
    }
}

/// The output addresses of a slot's memory are its input addresses with this bit set.
const MEMORY: u64 = 1 << 45;
/// The address of the tables.
const ARENA: OutputAddress = OutputAddress(1 << 46);

/// Tables that map a slot as `backing` allows, as memory that a guest reads, writes and executes. Their arena has room
/// for the slot split to pages, and for a cache of tables.
///
/// # Errors
/// The slot is empty, misaligned, or too large for the format.
pub fn build_slot(format: Arm64Stage2, slot: Slot, backing: Backing) -> Result<Tables<Arm64Stage2>, Error> {
    build_slot_with_log(format, slot, backing, ())
}

/// As [`build_slot`], but reports every change to `log`, including the first mapping.
///
/// # Errors
/// As [`build_slot`].
pub fn build_slot_with_log<L: Log>(
    format: Arm64Stage2,
    slot: Slot,
    backing: Backing,
    log: L,
) -> Result<Tables<Arm64Stage2, L>, Error> {
    let geometry = format.geometry();
    geometry.range(slot.ipa, slot.bytes)?;
    let limit_bytes = geometry.table_bytes(geometry.root_level()) + room_bytes(&format, slot.bytes);
    let mut tables = Tables::with_log(format, ARENA, limit_bytes, log)?;
    let execute = Flags::KERNEL_EXECUTE | Flags::USER_EXECUTE;
    let flags = Flags::READ | Flags::WRITE | Flags::ACCESSED | execute;
    let attributes = Attributes { memory: format.normal_memory(), ..Attributes::new(flags) };
    let sizes = Sizes::up_to(backing.leaf_bytes(format.granule()));
    let memory = OutputAddress(slot.ipa.0 | MEMORY);
    tables.map(&Mapping { va: slot.ipa, pa: memory, bytes: slot.bytes, attributes, sizes })?;
    Ok(tables)
}

/// Size in bytes of the tables that map `bytes` by pages at any address (up to one more table at each end of each level), and
/// of a cache of tables for splitting 1G.
fn room_bytes(format: &Arm64Stage2, bytes: u64) -> u64 {
    let geometry = format.geometry();
    let tables: u64 = (1..geometry.levels()).map(|level| bytes / geometry.span(level) + 2).sum();
    (tables + tables_for(format, 1 << 30)) * geometry.page_bytes()
}
