//! [`Aim`]: what a policy asks for. [`Coverage`]: how memory compares with it.

use crate::census::{Backing, Folio, Mapping};
use crate::intent::{Granularity, Modifier, PageSizes, Policy};
use crate::size::PageSize;

/// What a policy asks for, in terms that a census can check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// No particular size.
    Nothing,
    /// Base pages, of this size.
    Base(PageSize),
    /// Folios of this size, mapped by PTEs.
    Mthp(PageSize),
    /// Leaves of this size, whatever backs them: the PMD leaf of THP, or a contiguous group that counts as one.
    Leaf(PageSize),
    /// Folios of this size, mapped by base-page entries although one leaf could map each.
    PteMapped(PageSize),
    /// Leaves of this size or larger.
    LeafFrom(PageSize),
    /// Pages of the hugetlb pool of this size.
    Hugetlb(PageSize),
    /// A size that this kernel does not have.
    Unavailable,
}

/// How a piece of memory compares with what a policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// The policy does not apply: files, shared memory, zero pages.
    Unconcerned,
    /// Mapped as asked.
    Covered,
    /// Larger pages than asked for.
    Larger,
    /// A folio of at least the requested size backs it, but is mapped in part.
    Cut,
    /// The folio is complete and as asked, but its leaf was split.
    Split,
    /// Mapped smaller than asked, or in another way not as asked.
    Missing,
    /// The folio that decides is not visible.
    Unseen,
}

impl Aim {
    /// The aim of a policy on a kernel with these page sizes.
    pub fn of(policy: &Policy, page_sizes: &PageSizes) -> Aim {
        if policy.has(Modifier::NoHuge) {
            return Aim::Base(page_sizes.base);
        }
        match (policy.granularity, policy.target(page_sizes)) {
            (Granularity::Default | Granularity::DirectMap(_), _) => Aim::Nothing,
            (_, None) => Aim::Unavailable,
            (Granularity::Base, Some(size)) => Aim::Base(size),
            (Granularity::Mthp(_), Some(size)) => Aim::Mthp(size),
            (Granularity::Thp, Some(size)) if policy.has(Modifier::PteMapped) => Aim::PteMapped(size),
            (Granularity::Thp, Some(size)) => Aim::Leaf(size),
            (Granularity::Hugetlb(_), Some(size)) => Aim::Hugetlb(size),
        }
    }

    /// How memory mapped in this way compares with the aim.
    pub(super) fn coverage(self, mapping: &Mapping) -> Coverage {
        if mapping.is_concerned() { self.coverage_of_any(mapping) } else { Coverage::Unconcerned }
    }

    /// As `coverage`, for memory of any backing. Zero pages are not counted as memory.
    pub fn coverage_of_any(self, mapping: &Mapping) -> Coverage {
        if mapping.backing == Backing::Zero {
            return Coverage::Unconcerned;
        }
        match self {
            Aim::Nothing => Coverage::Unconcerned,
            Aim::Unavailable => Coverage::Missing,
            Aim::Base(base) => coverage_of_base(mapping, base),
            Aim::Mthp(size) => coverage_of_mthp(mapping, size),
            Aim::PteMapped(size) if mapping.leaf == size => Coverage::Larger,
            Aim::PteMapped(size) => coverage_of_mthp(mapping, size),
            Aim::Leaf(size) => coverage_of_leaf(mapping, size),
            Aim::LeafFrom(size) => match coverage_of_leaf(mapping, size) {
                Coverage::Larger => Coverage::Covered,
                coverage => coverage,
            },
            Aim::Hugetlb(size) if mapping.backing == Backing::Hugetlb && mapping.leaf == size => Coverage::Covered,
            Aim::Hugetlb(size) if mapping.leaf > size => Coverage::Larger,
            Aim::Hugetlb(_) => Coverage::Missing,
        }
    }
}

fn coverage_of_base(mapping: &Mapping, base: PageSize) -> Coverage {
    match mapping.folio {
        _ if mapping.leaf > base => Coverage::Larger,
        Folio::Whole(size) | Folio::Part(size) if size > base => Coverage::Larger,
        Folio::Whole(_) | Folio::Part(_) => Coverage::Covered,
        Folio::Unknown => Coverage::Unseen,
    }
}

fn coverage_of_mthp(mapping: &Mapping, target: PageSize) -> Coverage {
    match mapping.folio {
        _ if mapping.leaf > target => Coverage::Larger,
        _ if mapping.backing == Backing::Hugetlb => Coverage::Missing,
        Folio::Whole(size) if size == target => Coverage::Covered,
        Folio::Whole(size) if size > target => Coverage::Larger,
        Folio::Part(size) if size >= target => Coverage::Cut,
        Folio::Whole(_) | Folio::Part(_) => Coverage::Missing,
        Folio::Unknown => Coverage::Unseen,
    }
}

fn coverage_of_leaf(mapping: &Mapping, target: PageSize) -> Coverage {
    match mapping.folio {
        _ if mapping.leaf == target => Coverage::Covered,
        _ if mapping.leaf > target => Coverage::Larger,
        Folio::Whole(size) if size >= target => Coverage::Split,
        Folio::Part(size) if size >= target => Coverage::Cut,
        Folio::Whole(_) | Folio::Part(_) | Folio::Unknown => Coverage::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pte_mapped_folio_is_whole_and_has_no_leaf_of_its_own() {
        let (k4, k64, m2) = (PageSize::K4, PageSize::K64, PageSize::M2);
        for (leaf, folio, expected) in [
            (k4, Folio::Whole(m2), Coverage::Covered),
            (m2, Folio::Whole(m2), Coverage::Larger),
            (k4, Folio::Part(m2), Coverage::Cut),
            (k4, Folio::Whole(k64), Coverage::Missing),
            (k4, Folio::Whole(k4), Coverage::Missing),
            (k4, Folio::Unknown, Coverage::Unseen),
        ] {
            let mapping = Mapping { backing: Backing::Anonymous, leaf, folio };
            assert_eq!(Aim::PteMapped(m2).coverage(&mapping), expected, "{mapping:?}");
        }
    }

    #[test]
    fn leaves_from_a_size_on_are_as_asked() {
        let (k4, k64, m2) = (PageSize::K4, PageSize::K64, PageSize::M2);
        for (leaf, folio, from, exactly) in [
            (k64, Folio::Whole(k64), Coverage::Covered, Coverage::Covered),
            (m2, Folio::Whole(m2), Coverage::Covered, Coverage::Larger),
            (k4, Folio::Whole(k64), Coverage::Split, Coverage::Split),
            (k4, Folio::Part(m2), Coverage::Cut, Coverage::Cut),
            (k4, Folio::Whole(k4), Coverage::Missing, Coverage::Missing),
        ] {
            let mapping = Mapping { backing: Backing::Anonymous, leaf, folio };
            let found = [Aim::LeafFrom(k64), Aim::Leaf(k64)].map(|aim| aim.coverage(&mapping));
            assert_eq!(found, [from, exactly], "{mapping:?}");
        }
    }
}
