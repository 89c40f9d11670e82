//! `table-growth`: touches memory that shares no page table with other memory, and reads how much the process's page tables
//! grew.

use std::io;

use super::{Anonymous, MapError, base_page};

/// The address of the memory: a multiple of the range that one entry covers above the last two levels in every 64-bit format that
/// Linux has (1G, and 16G with 64K software pages), below the end of the smallest user space (Sv39: 256G), where nothing else is
/// mapped.
const ADDRESS: usize = 64 << 30;

/// Why page tables could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum TableGrowthError {
    /// Memory could not be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The kernel does not report the size of the tables.
    #[error("/proc/self/status: expected a line VmPTE with kilobytes: {0}")]
    Unreadable(io::Error),
}

/// The growth of the page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableGrowth {
    /// Bytes of page tables that were added for the memory.
    pub table_bytes: u64,
    /// The sum of the values read back.
    pub sum: u64,
}

/// Maps `bytes` bytes where no table is shared with other memory, writes to every base page, and returns how much the page tables
/// of this process grew: all levels below the root, by VmPTE of proc_pid_status(5). The memory is unmapped again.
pub fn table_growth(bytes: usize, seed: u64) -> Result<TableGrowth, TableGrowthError> {
    let page_words = base_page().bytes() as usize / size_of::<u64>();
    let before = table_bytes().map_err(TableGrowthError::Unreadable)?;
    let mut memory = Anonymous::map_at(ADDRESS, bytes)?;
    let pages = bytes.div_ceil(base_page().bytes() as usize);
    (0..pages).for_each(|page| memory.write_volatile(page * page_words, seed ^ page as u64));
    let after = table_bytes().map_err(TableGrowthError::Unreadable)?;
    let read = |page: usize| memory.read_volatile::<u64>(page * page_words);
    let sum = (0..pages).fold(0u64, |sum, page| sum.wrapping_add(read(page)));
    Ok(TableGrowth { table_bytes: after.saturating_sub(before), sum })
}

/// Bytes of page tables of this process, without the root.
fn table_bytes() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.map(|kilobytes| kilobytes << 10).ok_or_else(|| io::Error::other("found none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_grow_as_geometry_says() {
        let page = base_page().bytes() as usize;
        // A table has as many entries as words fit in a page. One or two tables above it refer to it.
        let span = page * (page / 8);
        let one = table_growth(page, 1).unwrap();
        let two = table_growth(span + page, 1).unwrap();
        assert_eq!(two.table_bytes - one.table_bytes, page as u64, "one table more");
        assert!(one.table_bytes >= page as u64 && one.table_bytes <= 4 * page as u64, "{one:?}");
        assert_eq!(table_growth(page, 1).unwrap(), one, "nothing stays");
    }
}
