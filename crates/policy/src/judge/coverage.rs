//! How memory stands to what a policy asks for.

use crate::census::{Backing, Folio, Mapping};
use crate::intent::{Granularity, Modifier, PageSizes, Policy};
use crate::size::PageSize;

/// What a policy asks for, as far as a census can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Nothing in particular.
    Nothing,
    /// Base pages, of this size.
    Base(PageSize),
    /// Folios of this size, mapped by PTEs.
    Mthp(PageSize),
    /// Leaves of this size, whatever stands behind them: the PMD leaf of THP, or a contiguous group that counts as one.
    Leaf(PageSize),
    /// The same, or larger ones.
    LeafFrom(PageSize),
    /// Pages of the pool of this size.
    Hugetlb(PageSize),
    /// A size that this kernel does not have.
    Unavailable,
}

/// How a piece of memory stands to what a policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not concerned: files, shared memory, zero pages.
    Unconcerned,
    /// Mapped as asked.
    Covered,
    /// Larger pages than asked for.
    Larger,
    /// A folio at least as large as asked for stands behind it, but is mapped in part.
    Cut,
    /// The folio is as asked and whole, but its leaf was split.
    Split,
    /// Mapped smaller than asked, or otherwise not as asked.
    Missing,
    /// The folio that decides cannot be seen.
    Unseen,
}

impl Aim {
    /// That of a policy on a kernel with these sizes.
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

    /// How memory that is mapped in this way stands to the aim.
    pub(super) fn standing(self, mapping: &Mapping) -> Standing {
        if mapping.is_concerned() { self.standing_of_any(mapping) } else { Standing::Unconcerned }
    }

    /// The same of memory of any backing; zero pages are no memory.
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
