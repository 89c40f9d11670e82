//! Derives the bytes that a file or mapping of some size takes, by exact arithmetic for a layout of page tables.

use paging::format::named::Named;
use paging::{Format, with_format};
use policy::size::{PageSize, format_bytes};

/// The quantity that a series derives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The page cache of a file, in whole base pages.
    PageCache,
    /// Page tables below the root, for memory that starts at a table boundary of every level.
    TableGrowth,
}

/// The quantities that can be derived, by the name of the workload that measures them.
pub const ALL: [(&str, Quantity); 2] = [("page-cache", Quantity::PageCache), ("table-growth", Quantity::TableGrowth)];

/// A page-table format and the leaf level that maps memory.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    format: Named,
    /// The level of the leaves; 0 is the lowest.
    level: u8,
}

impl Layout {
    /// Parses `arm64-64k-48`, or `x86-64 2M` with a leaf size other than the base page.
    ///
    /// # Errors
    /// The format does not exist, or does not have these leaves.
    pub fn read(text: &str) -> Result<Layout, String> {
        let (name, leaf) = text.split_once(' ').map_or((text, None), |(name, leaf)| (name, Some(leaf)));
        let format: Named = name.parse().map_err(|error| format!("layout {text:?}: {error}"))?;
        let Some(leaf) = leaf else { return Ok(Layout { format, level: 0 }) };
        let bytes: PageSize = leaf.parse().map_err(|error| format!("layout {text:?}: {error}"))?;
        with_format!(format, format_in => {
            let span = |level: u8| format_in.geometry().span(level) << format_in.run_bits();
            let levels = (0..format_in.geometry().levels()).filter(|level| format_in.has_leaf(*level));
            let known: Vec<String> = levels.clone().map(|level| format_bytes(span(level))).collect();
            let found = levels.clone().find(|level| span(*level) == bytes.bytes());
            let level = found.ok_or_else(|| format!("layout {text:?}: {name} has leaves of {}", known.join(", ")))?;
            Ok(Layout { format, level })
        })
    }

    /// The base page size in bytes.
    pub fn base_bytes(&self) -> u64 {
        with_format!(self.format, format => format.geometry().page_bytes() << format.run_bits())
    }

    /// The bytes that the quantity takes for a size; `None` if the format cannot map that much.
    pub fn held_bytes(&self, what: Quantity, bytes: u64) -> Option<u64> {
        match what {
            Quantity::PageCache => Some(bytes.next_multiple_of(self.base_bytes())),
            Quantity::TableGrowth => with_format!(self.format, format => table_bytes(&format, self.level, bytes)),
        }
    }
}

/// Bytes of page tables below the root. If software treats several entries as one (sixteen for a 64K software page), its
/// tables and the range of each table are larger by that factor.
fn table_bytes(format: &impl Format, leaf_level: u8, bytes: u64) -> Option<u64> {
    let geometry = format.geometry();
    let run = format.run_bits();
    // If kernel and user addresses share one table, half of the addresses belong to the kernel.
    if u128::from(bytes) > geometry.input_bytes() / 2 {
        return None;
    }
    let of_level = |level: u8| {
        let span_bytes = (geometry.entries(level) * geometry.span(level)) << run;
        bytes.div_ceil(span_bytes) * (geometry.table_bytes(level) << run)
    };
    Some((leaf_level..geometry.root_level()).map(of_level).sum())
}

#[cfg(test)]
mod tests {
    use paging::{Attributes, Flags, InputAddress, Mapping, OutputAddress, Sizes, Tables};

    use super::*;

    /// The same quantity, counted on tables that are built. With 64K software pages, a table consists of sixteen hardware
    /// tables.
    fn built(text: &str, leaf_bytes: u64, bytes: u64) -> u64 {
        let layout = Layout::read(text).unwrap();
        with_format!(layout.format, format => {
            let mut tables = Tables::new(format, OutputAddress(1 << 31), 1 << 30).unwrap();
            let root_bytes = tables.arena().used_bytes();
            let flags = Flags::READ | Flags::USER | Flags::ACCESSED;
            tables
                .map(&Mapping {
                    va: InputAddress(64 << 30),
                    pa: OutputAddress(32 << 30),
                    bytes,
                    attributes: Attributes::new(flags),
                    sizes: Sizes { largest_bytes: leaf_bytes, contiguous: false },
                })
                .unwrap();
            tables.arena().used_bytes() - root_bytes
        })
    }

    #[test]
    fn derived_sizes_equal_those_of_built_tables() {
        for text in ["x86-64", "arm64-4k-48", "arm64-16k-47", "arm64-64k-48", "sv39", "sv48", "sv39-64k"] {
            let layout = Layout::read(text).unwrap();
            let base = layout.base_bytes();
            for bytes in [base, 2 << 20, (2 << 20) + base, 64 << 20, 1 << 30, (1 << 30) + base] {
                let derived = layout.held_bytes(Quantity::TableGrowth, bytes).unwrap();
                assert_eq!(derived, built(text, base, bytes), "{text}, {bytes}");
            }
        }
        let large = Layout::read("x86-64 2M").unwrap();
        assert_eq!(large.held_bytes(Quantity::TableGrowth, 1 << 30), Some(built("x86-64", 2 << 20, 1 << 30)));
        assert_eq!(large.held_bytes(Quantity::TableGrowth, 1 << 30), Some(8 << 10), "a PMD and a PUD table");
    }

    /// The numbers are those of RFC v2 of RISC-V's 64K base pages: one 64K table per 32M, and one per 16G.
    #[test]
    fn tables_of_software_pages_are_those_of_the_series() {
        let held = |bytes| Layout::read("sv39-64k").unwrap().held_bytes(Quantity::TableGrowth, bytes);
        assert_eq!(held(1), Some(128 << 10));
        assert_eq!(held(33 << 20), Some(192 << 10));
        assert_eq!(held(256 << 30), Some((8192 + 16) * (64 << 10)));
        assert_eq!(held((256 << 30) + 1), None, "Sv39 has 256G of user space");
    }

    #[test]
    fn a_file_takes_whole_base_pages() {
        let held = |text: &str, bytes| Layout::read(text).unwrap().held_bytes(Quantity::PageCache, bytes).unwrap();
        assert_eq!([1, 4096, 4097].map(|bytes| held("x86-64", bytes)), [4096, 4096, 8192]);
        assert_eq!([1, 65536, 65537].map(|bytes| held("sv39-64k", bytes)), [65536, 65536, 131_072]);
    }

    #[test]
    fn refuses_text_that_is_no_layout() {
        for (text, expected) in [("x68", "not a page-table format"), ("x86-64 3M", "3M"), ("x86-64 64K", "4K, 2M, 1G")]
        {
            let error = Layout::read(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
