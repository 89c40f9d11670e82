//! Where physical addresses are: memory of the program first, then tables, pages full of zeros, and pages of files.

/// Memory that a program can have at most: all that is below the tables, so that addresses have 40 bits.
pub const MAX_MEMORY_BYTES: u64 = 1 << 38;
/// Where page tables live: apart from all other memory.
const TABLES_PA: u64 = MAX_MEMORY_BYTES;
/// More tables than any trace needs.
pub(super) const TABLES_BYTES: u64 = 1 << 32;
/// Processes whose tables have places of their own; those of others are taken for the same by caches.
const MOST_TABLES: u32 = 16;
/// The shared pages full of zeros: of every size at the same place.
pub(super) const ZERO_PA: u64 = 3 << 37;
/// The page cache.
pub(super) const FILES_PA: u64 = 1 << 39;
/// Addresses of the page cache: where they end, they begin again.
pub(super) const FILES_BYTES: u64 = 1 << 39;

/// Where the tables of a process are.
pub(super) fn tables_pa(process: u32) -> u64 {
    TABLES_PA + u64::from(process % MOST_TABLES) * TABLES_BYTES
}

/// Whether it is memory that was allocated.
pub(super) fn is_memory(pa: u64) -> bool {
    pa < TABLES_PA
}

/// Whether it is a shared page full of zeros.
pub(super) fn is_zeros(pa: u64) -> bool {
    (ZERO_PA..FILES_PA).contains(&pa)
}

/// Whether it is of the page cache.
pub(super) fn is_file(pa: u64) -> bool {
    pa >= FILES_PA
}
