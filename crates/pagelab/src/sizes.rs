//! The memory of a process by size, and the size classes of tables.

use std::collections::BTreeMap;

use policy::PageSizes;
use policy::census::{Backing, Census, Folio};
use policy::size::PageSize;

/// Bytes by the size at which the kernel or the processor can handle them: the leaf size, or that of a larger folio that is
/// mapped completely by smaller entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    bytes: BTreeMap<PageSize, u64>,
    /// Bytes mapped by base-page PTEs whose folios were not inspected.
    unseen_bytes: u64,
}

/// The size classes of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Base pages.
    Base,
    /// Folios larger than a base page and smaller than a PMD leaf, mapped by base-page PTEs.
    Mthp,
    /// PMD leaves: THP and hugetlb.
    Pmd,
    /// Larger leaves: PUD leaves.
    Larger,
}

impl Sizes {
    /// The sizes in a census. Zero pages do not count, because they use no memory.
    pub fn of(census: &Census) -> Sizes {
        let mut sizes = Sizes::default();
        for (mapping, bytes) in census.rows() {
            if mapping.backing == Backing::Zero {
                continue;
            }
            *sizes.bytes.entry(mapping.effective()).or_insert(0) += bytes;
            sizes.unseen_bytes += if mapping.folio == Folio::Unknown { bytes } else { 0 };
        }
        sizes
    }

    /// The total in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.bytes.values().sum()
    }

    /// Whether the folios behind base-page PTEs were inspected.
    pub fn folios_seen(&self) -> bool {
        self.unseen_bytes == 0
    }

    /// Bytes by exact size, smallest first.
    pub fn iter(&self) -> impl Iterator<Item = (PageSize, u64)> {
        self.bytes.iter().map(|(size, bytes)| (*size, *bytes))
    }

    /// Bytes of a class; `None` if unknown because folios behind base pages were not inspected.
    pub fn class_bytes(&self, class: Class, kernel: &PageSizes) -> Option<u64> {
        if class == Class::Mthp && self.unseen_bytes > 0 {
            return None;
        }
        Some(self.iter().filter(|(size, _)| class_of(*size, kernel) == class).map(|(_, bytes)| bytes).sum())
    }

    /// The share of a class; `None` if unknown or if there is no memory.
    pub fn share(&self, class: Class, kernel: &PageSizes) -> Option<f64> {
        let total = self.total_bytes();
        let bytes = self.class_bytes(class, kernel)?;
        (total > 0).then(|| bytes as f64 / total as f64)
    }
}

/// The class of a size on this kernel.
fn class_of(size: PageSize, kernel: &PageSizes) -> Class {
    match kernel.pmd {
        _ if size <= kernel.base => Class::Base,
        Some(pmd) if size == pmd => Class::Pmd,
        Some(pmd) if size > pmd => Class::Larger,
        Some(_) => Class::Mthp,
        // Without THP, larger leaves are hugetlb.
        None => Class::Larger,
    }
}

#[cfg(test)]
mod tests {
    use policy::census::Mapping;

    use super::*;

    const CLASSES: [Class; 4] = [Class::Base, Class::Mthp, Class::Pmd, Class::Larger];

    fn kernel() -> PageSizes {
        PageSizes {
            base: PageSize::K4,
            pmd: Some(PageSize::M2),
            mthp: vec![PageSize::K64],
            hugetlb: vec![PageSize::M2, PageSize::G1],
        }
    }

    #[test]
    fn folios_that_were_not_seen_are_no_base_pages_and_no_zero() {
        let mut census = Census::default();
        let mapping = |leaf, folio| Mapping { backing: Backing::Anonymous, leaf, folio };
        census.add(mapping(PageSize::K4, Folio::Whole(PageSize::K64)), 64 << 10);
        census.add(mapping(PageSize::M2, Folio::Whole(PageSize::M2)), 2 << 20);
        let sizes = Sizes::of(&census);
        let bytes = |sizes: &Sizes| CLASSES.map(|class| sizes.class_bytes(class, &kernel()));
        assert_eq!(bytes(&sizes), [Some(0), Some(64 << 10), Some(2 << 20), Some(0)]);
        census.add(mapping(PageSize::K4, Folio::Unknown), 4096);
        assert_eq!(bytes(&Sizes::of(&census)), [Some(4096), None, Some(2 << 20), Some(0)]);
        let zero = Mapping { backing: Backing::Zero, leaf: PageSize::K4, folio: Folio::Whole(PageSize::K4) };
        let mut census = Census::default();
        census.add(zero, 4096);
        assert_eq!(Sizes::of(&census).share(Class::Base, &kernel()), None, "zero pages are no memory");
    }
}
