//! The page sizes of a page-table format.

use ::policy::PageSizes;
use ::policy::size::PageSize;
use paging::Format;

/// Number of base pages in the smallest large anonymous folio: order 2 (`THP_ORDERS_ALL_ANON`, include/linux/huge_mm.h).
pub(crate) const MIN_FOLIO_PAGES: u64 = 4;

/// The page sizes of a format.
pub(super) struct Shape {
    pub base_bytes: u64,
    pub pmd_bytes: Option<u64>,
    /// Size of a contiguous group of pages in bytes.
    pub group_bytes: Option<u64>,
    /// The sizes of all leaves, base pages first.
    pub leaves: Vec<u64>,
    /// The sizes of leaves and contiguous groups that hugetlb supports.
    pub hugetlb: Vec<u64>,
}

impl Shape {
    pub fn of(format: &impl Format) -> Shape {
        let (geometry, run_bits) = (format.geometry(), format.run_bits());
        let unit = |level| geometry.span(level) << run_bits;
        let group = |level| {
            let bits = if run_bits == 0 { format.group_bits_at(level) } else { 0 };
            (bits != 0).then(|| geometry.span(level) << bits)
        };
        let leaves: Vec<u64> = (1..geometry.levels())
            .filter(|level| format.has_leaf(*level) && unit(*level) <= 16 << 30)
            .map(unit)
            .collect();
        // Linux supports contiguous groups of pages and of PMD leaves (arch/arm64/mm/hugetlbpage.c, arch/riscv/mm/hugetlbpage.c).
        let mut hugetlb: Vec<u64> = leaves.iter().copied().chain((0..2).filter_map(group)).collect();
        hugetlb.sort_unstable();
        let pmd_bytes = format.has_leaf(1).then(|| unit(1));
        let leaves = std::iter::once(unit(0)).chain(leaves).collect();
        Shape { base_bytes: unit(0), pmd_bytes, group_bytes: group(0), leaves, hugetlb }
    }
}

impl Shape {
    /// The sizes that a kernel with these tables offers.
    pub fn page_sizes(&self) -> PageSizes {
        let size = |bytes: u64| PageSize::new(bytes).expect("pages are powers of two");
        let smallest = self.base_bytes * MIN_FOLIO_PAGES;
        let folios = std::iter::successors(Some(smallest), |bytes| Some(bytes * 2));
        PageSizes {
            base: size(self.base_bytes),
            pmd: self.pmd_bytes.map(size),
            mthp: folios.take_while(|bytes| self.pmd_bytes.is_some_and(|pmd| *bytes < pmd)).map(size).collect(),
            hugetlb: self.hugetlb.iter().copied().map(size).collect(),
        }
    }
}
