//! The layout of physical addresses: allocatable memory, then page tables, zero pages, and the page cache.

use crate::address::Pa;

/// Maximum allocatable memory: everything below the page tables. With this limit all addresses have 40 bits.
pub const MAX_MEMORY_BYTES: u64 = 1 << 38;
/// The address of the page tables, which are separate from allocatable memory.
const TABLES_PA: Pa = Pa(MAX_MEMORY_BYTES);
/// Physical addresses for the tables of one process: more than any trace needs.
pub(super) const TABLES_BYTES: u64 = 1 << 32;
/// Number of processes whose tables have different addresses. Further processes reuse them, and caches then confuse their
/// tables.
const MAX_TABLES: u32 = 16;
/// The address of the shared zero page of every size.
pub(super) const ZERO_PA: Pa = Pa(3 << 37);
/// The address of the page cache.
pub(super) const FILES_PA: Pa = Pa(1 << 39);
/// Size of the page cache's range; allocation wraps around at its end.
pub(super) const FILES_BYTES: u64 = 1 << 39;

/// The address of the tables of a process.
pub(super) fn tables_pa(process: u32) -> Pa {
    TABLES_PA + u64::from(process % MAX_TABLES) * TABLES_BYTES
}

/// Whether an address is in allocatable memory.
pub(super) fn is_memory(pa: Pa) -> bool {
    pa < TABLES_PA
}

/// Whether an address is in a shared zero page.
pub(super) fn is_zeros(pa: Pa) -> bool {
    (ZERO_PA..FILES_PA).contains(&pa)
}

/// Whether an address is in the page cache.
pub(super) fn is_file(pa: Pa) -> bool {
    pa >= FILES_PA
}
