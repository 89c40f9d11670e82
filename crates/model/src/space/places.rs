//! Where physical addresses are: memory of the program first, then tables, pages full of zeros, and pages of files.

use crate::address::Pa;

/// Memory that a program can have at most: all that is below the tables, so that addresses have 40 bits.
pub const MAX_MEMORY_BYTES: u64 = 1 << 38;
/// Where page tables live: apart from all other memory.
const TABLES_PA: Pa = Pa(MAX_MEMORY_BYTES);
/// More tables than any trace needs.
pub(super) const TABLES_BYTES: u64 = 1 << 32;
/// Processes whose tables have places of their own; those of others are taken for the same by caches.
const MOST_TABLES: u32 = 16;
/// The shared pages full of zeros: of every size at the same place.
pub(super) const ZERO_PA: Pa = Pa(3 << 37);
/// The page cache.
pub(super) const FILES_PA: Pa = Pa(1 << 39);
/// Addresses of the page cache: where they end, they begin again.
pub(super) const FILES_BYTES: u64 = 1 << 39;

/// Where the tables of a process are.
pub(super) fn tables_pa(process: u32) -> Pa {
    TABLES_PA + u64::from(process % MOST_TABLES) * TABLES_BYTES
}

/// Whether it is memory that was allocated.
pub(super) fn is_memory(pa: Pa) -> bool {
    pa < TABLES_PA
}

/// Whether it is a shared page full of zeros.
pub(super) fn is_zeros(pa: Pa) -> bool {
    (ZERO_PA..FILES_PA).contains(&pa)
}

/// Whether it is of the page cache.
pub(super) fn is_file(pa: Pa) -> bool {
    pa >= FILES_PA
}
