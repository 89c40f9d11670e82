//! The memory of a process by size ([`Sizes`]), and the size classes that tables show.

use std::collections::BTreeMap;

use policy::PageSizes;
use policy::census::{Backing, Census, Folio, Mapping};
use policy::size::PageSize;

/// The present memory of a process, by the leaves that map it and the folios that hold it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The census without zero pages, which use no memory.
    census: Census,
}

/// The classes of leaves in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Base pages.
    Base,
    /// Pages of a hugetlb pool between a base page and a PMD leaf: contiguous entries.
    Contiguous,
    /// PMD leaves: THP and hugetlb.
    Pmd,
    /// Larger leaves: PUD leaves.
    Larger,
}

impl Sizes {
    /// The sizes of the memory in a census.
    pub fn of(census: &Census) -> Sizes {
        let mut sizes = Sizes::default();
        for (mapping, bytes) in census.rows().filter(|(mapping, _)| mapping.backing != Backing::Zero) {
            sizes.census.add(*mapping, bytes);
        }
        sizes
    }

    /// The total in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.census.total_bytes()
    }

    /// Whether the folios behind base-page PTEs were inspected.
    pub fn folios_are_known(&self) -> bool {
        self.census.bytes_where(|mapping| mapping.folio == Folio::Unknown) == 0
    }

    /// Bytes by leaf size and, if the folio behind it is larger and mapped completely, by folio size; smallest first.
    pub fn rows(&self) -> BTreeMap<(PageSize, Option<PageSize>), u64> {
        let mut rows = BTreeMap::new();
        for (mapping, bytes) in self.census.rows() {
            *rows.entry((mapping.leaf, mapping.larger_folio())).or_default() += bytes;
        }
        rows
    }

    /// The sizes in one line.
    pub fn describe(&self) -> String {
        results::inspection::sizes(&self.census)
    }

    /// Bytes mapped by leaves of a class.
    pub fn class_bytes(&self, class: Class, kernel: &PageSizes) -> u64 {
        self.census.bytes_where(|mapping| class_of(mapping.leaf, kernel) == class)
    }

    /// The share of a class; `None` if there is no memory.
    pub fn share(&self, class: Class, kernel: &PageSizes) -> Option<f64> {
        self.share_of(self.class_bytes(class, kernel))
    }

    /// The share of memory in folios that are larger than the leaves that map them; `None` if there is no memory, or if folios
    /// were not inspected.
    pub fn folio_share(&self) -> Option<f64> {
        let held = |mapping: &Mapping| mapping.larger_folio().is_some();
        self.folios_are_known().then(|| self.share_of(self.census.bytes_where(held))).flatten()
    }

    fn share_of(&self, bytes: u64) -> Option<f64> {
        let total = self.total_bytes();
        (total > 0).then(|| bytes as f64 / total as f64)
    }
}

/// The class of a leaf on this kernel.
fn class_of(leaf: PageSize, kernel: &PageSizes) -> Class {
    match kernel.pmd {
        _ if leaf <= kernel.base => Class::Base,
        Some(pmd) if leaf == pmd => Class::Pmd,
        Some(pmd) if leaf > pmd => Class::Larger,
        Some(_) => Class::Contiguous,
        // On a kernel without THP, leaves larger than the base page are hugetlb.
        None => Class::Larger,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_go_by_leaf_size_and_unknown_folios_give_no_share() {
        let kernel = PageSizes {
            base: PageSize::K4,
            pmd: Some(PageSize::M2),
            mthp: vec![PageSize::K64],
            hugetlb: vec![PageSize::K64, PageSize::M2, PageSize::G1],
        };
        let mut census = Census::default();
        let mapping = |backing, leaf, folio| Mapping { backing, leaf, folio };
        let (k4, k64, m2) = (PageSize::K4, PageSize::K64, PageSize::M2);
        census.add(mapping(Backing::Anonymous, k4, Folio::Whole(m2)), 4 << 20);
        census.add(mapping(Backing::Hugetlb, k64, Folio::Whole(k64)), 1 << 20);
        census.add(mapping(Backing::Anonymous, m2, Folio::Whole(m2)), 2 << 20);
        census.add(mapping(Backing::Anonymous, k4, Folio::Part(m2)), 1 << 20);
        census.add(mapping(Backing::Zero, k4, Folio::Whole(k4)), 1 << 20);
        let sizes = Sizes::of(&census);
        let classes = [Class::Base, Class::Contiguous, Class::Pmd, Class::Larger];
        assert_eq!(classes.map(|class| sizes.class_bytes(class, &kernel) >> 20), [5, 1, 2, 0]);
        assert_eq!((sizes.folio_share(), sizes.total_bytes()), (Some(0.5), 8 << 20));
        assert_eq!(sizes.rows()[&(k4, Some(m2))], 4 << 20);
        assert_eq!(sizes.describe(), "2M by 2M, 1M by 64K pool, 5M by 4K (folios: 4M of 2M)");
        census.add(mapping(Backing::File, k4, Folio::Unknown), 4096);
        assert_eq!(Sizes::of(&census).folio_share(), None);
        assert_eq!(Sizes::default().share(Class::Base, &kernel), None, "zero pages are no memory");
    }
}
