//! How memory compares with what a policy asks for.

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
    /// Leaves of this size or larger.
    LeafFrom(PageSize),
    /// Pages of the hugetlb pool of this size.
    Hugetlb(PageSize),
    /// A size that this kernel does not have.
    Unavailable,
}

/// How a piece of memory compares with what a policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
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
            (Granularity::Thp, Some(size)) => Aim::Leaf(size),
            (Granularity::Hugetlb(_), Some(size)) => Aim::Hugetlb(size),
        }
    }

    /// How memory mapped in this way compares with the aim.
    pub(super) fn standing(self, mapping: &Mapping) -> Standing {
        if mapping.is_concerned() { self.standing_of_any(mapping) } else { Standing::Unconcerned }
    }

    /// As `standing`, for memory of any backing. Zero pages are not counted as memory.
    pub fn standing_of_any(self, mapping: &Mapping) -> Standing {
        if mapping.backing == Backing::Zero {
            return Standing::Unconcerned;
        }
        match self {
            Aim::Nothing => Standing::Unconcerned,
            Aim::Unavailable => Standing::Missing,
            Aim::Base(base) => standing_of_base(mapping, base),
            Aim::Mthp(size) => standing_of_mthp(mapping, size),
            Aim::Leaf(size) => standing_of_leaf(mapping, size),
            Aim::LeafFrom(size) => match standing_of_leaf(mapping, size) {
                Standing::Larger => Standing::Covered,
                standing => standing,
            },
            Aim::Hugetlb(size) if mapping.backing == Backing::Hugetlb && mapping.leaf == size => Standing::Covered,
            Aim::Hugetlb(size) if mapping.leaf > size => Standing::Larger,
            Aim::Hugetlb(_) => Standing::Missing,
        }
    }
}

fn standing_of_base(mapping: &Mapping, base: PageSize) -> Standing {
    match mapping.folio {
        _ if mapping.leaf > base => Standing::Larger,
        Folio::Whole(size) | Folio::Part(size) if size > base => Standing::Larger,
        Folio::Whole(_) | Folio::Part(_) => Standing::Covered,
        Folio::Unknown => Standing::Unseen,
    }
}

fn standing_of_mthp(mapping: &Mapping, target: PageSize) -> Standing {
    match mapping.folio {
        _ if mapping.leaf > target => Standing::Larger,
        _ if mapping.backing == Backing::Hugetlb => Standing::Missing,
        Folio::Whole(size) if size == target => Standing::Covered,
        Folio::Whole(size) if size > target => Standing::Larger,
        Folio::Part(size) if size >= target => Standing::Cut,
        Folio::Whole(_) | Folio::Part(_) => Standing::Missing,
        Folio::Unknown => Standing::Unseen,
    }
}

fn standing_of_leaf(mapping: &Mapping, target: PageSize) -> Standing {
    match mapping.folio {
        _ if mapping.leaf == target => Standing::Covered,
        _ if mapping.leaf > target => Standing::Larger,
        Folio::Whole(size) if size >= target => Standing::Split,
        Folio::Part(size) if size >= target => Standing::Cut,
        Folio::Whole(_) | Folio::Part(_) | Folio::Unknown => Standing::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_from_a_size_on_are_as_asked() {
        let (k4, k64, m2) = (PageSize::K4, PageSize::K64, PageSize::M2);
        for (leaf, folio, from, exactly) in [
            (k64, Folio::Whole(k64), Standing::Covered, Standing::Covered),
            (m2, Folio::Whole(m2), Standing::Covered, Standing::Larger),
            (k4, Folio::Whole(k64), Standing::Split, Standing::Split),
            (k4, Folio::Part(m2), Standing::Cut, Standing::Cut),
            (k4, Folio::Whole(k4), Standing::Missing, Standing::Missing),
        ] {
            let mapping = Mapping { backing: Backing::Anonymous, leaf, folio };
            let found = [Aim::LeafFrom(k64), Aim::Leaf(k64)].map(|aim| aim.standing(&mapping));
            assert_eq!(found, [from, exactly], "{mapping:?}");
        }
    }
}
