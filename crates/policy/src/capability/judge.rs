//! [`judge`]: decides whether the pages of a range have the wanted size.

use super::Outcome;
use crate::cause::Cause;
use crate::census::{Backing, Folio, Region};
use crate::size::{PageSize, format_bytes};

/// A range of memory and the size that it should have.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The wanted size.
    pub size: PageSize,
    /// Whether the pages must be mapped by leaves of this size (PMD, PUD, hugetlb). Otherwise a folio mapped by
    /// base-page leaves is enough.
    pub is_leaf: bool,
}

/// How a page is mapped, from worst to best: the derived order decides which page is the worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    Small,
    Unseen,
    FolioOnly,
    Large,
}

/// The outcome for a range, which is that of its worst page. `regions` is the memory that is present. `cause` is used
/// only if the outcome is a refusal.
pub fn judge(wanted: &Wanted, regions: &[Region], cause: Cause) -> Outcome {
    let inside = || regions.iter().filter(|region| region.end > wanted.start && region.start < wanted.end);
    let bytes = |region: &Region| region.end.min(wanted.end) - region.start.max(wanted.start);
    let whole_bytes = wanted.end - wanted.start;
    let large_bytes: u64 = inside().filter(|region| grade(wanted, region) == Grade::Large).map(bytes).sum();
    let present_bytes: u64 = inside().map(bytes).sum();
    let worst = inside().map(|region| grade(wanted, region)).min();
    let leaf = inside().map(|region| region.mapping.leaf).min();
    let folio = inside().map(|region| folio_size(region.mapping.folio)).min().flatten();
    let refused = Outcome::Refused {
        cause,
        refusal: None,
        setting: None,
        large_ratio: large_bytes as f64 / whole_bytes.max(1) as f64,
    };
    match (worst, leaf, folio) {
        // Every way of getting the pages touches the whole range. A hole therefore means that the kernel has taken
        // memory away, not that it mapped small pages.
        _ if present_bytes < whole_bytes => {
            Outcome::Unknown { reason: format!("{} of it is not mapped", format_bytes(whole_bytes - present_bytes)) }
        }
        (Some(Grade::Large), Some(leaf), folio) => Outcome::Large { leaf, folio },
        (Some(Grade::FolioOnly), Some(leaf), Some(folio)) => Outcome::FolioOnly { leaf, folio },
        (Some(Grade::Unseen), Some(leaf), _) => Outcome::Unknown {
            reason: format!("leaves of {leaf} map it; whether their folios are larger is visible only to root"),
        },
        _ => refused,
    }
}

fn grade(wanted: &Wanted, region: &Region) -> Grade {
    if region.mapping.backing == Backing::Zero {
        return Grade::Small;
    }
    if region.mapping.leaf >= wanted.size {
        return Grade::Large;
    }
    match region.mapping.folio {
        Folio::Unknown => Grade::Unseen,
        Folio::Whole(size) if size >= wanted.size && !wanted.is_leaf => Grade::Large,
        Folio::Whole(size) | Folio::Part(size) if size >= wanted.size => Grade::FolioOnly,
        Folio::Whole(_) | Folio::Part(_) => Grade::Small,
    }
}

fn folio_size(folio: Folio) -> Option<PageSize> {
    match folio {
        Folio::Unknown => None,
        Folio::Whole(size) | Folio::Part(size) => Some(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::census::Mapping;

    const PMD: PageSize = PageSize::M2;

    fn region(start: u64, end: u64, leaf: PageSize, folio: Folio) -> Region {
        Region { start, end, mapping: Mapping { backing: Backing::Anonymous, leaf, folio } }
    }

    fn judged(size: PageSize, regions: &[Region]) -> Outcome {
        let wanted = Wanted { start: 0, end: 4 << 20, size, is_leaf: size == PMD };
        judge(&wanted, regions, Cause::Unexplained)
    }

    #[test]
    fn leaves_of_the_wanted_size_or_larger_are_large() {
        let regions = [region(0, 4 << 20, PMD, Folio::Whole(PMD))];
        let large = Outcome::Large { leaf: PMD, folio: Some(PMD) };
        assert_eq!((judged(PMD, &regions), judged(PageSize::K64, &regions)), (large.clone(), large));
    }

    #[test]
    fn a_split_leaf_is_folio_only_but_a_whole_folio_of_a_wanted_smaller_size_is_large() {
        let split = [region(0, 4 << 20, PageSize::K4, Folio::Whole(PMD))];
        assert_eq!(judged(PMD, &split), Outcome::FolioOnly { leaf: PageSize::K4, folio: PMD });
        let whole = [region(0, 4 << 20, PageSize::K4, Folio::Whole(PageSize::K64))];
        assert_eq!(judged(PageSize::K64, &whole), Outcome::Large { leaf: PageSize::K4, folio: Some(PageSize::K64) });
        let part = [region(0, 4 << 20, PageSize::K4, Folio::Part(PageSize::K64))];
        assert_eq!(judged(PageSize::K64, &part), Outcome::FolioOnly { leaf: PageSize::K4, folio: PageSize::K64 });
    }

    #[test]
    fn one_small_page_means_refused_and_a_hole_means_unknown() {
        let half = [region(0, 2 << 20, PMD, Folio::Whole(PMD))];
        let with_page = [half[0], region(2 << 20, 4 << 20, PageSize::K4, Folio::Whole(PageSize::K4))];
        let Outcome::Refused { large_ratio, .. } = judged(PMD, &with_page) else { panic!("not refused") };
        assert_eq!(large_ratio, 0.5);
        assert_eq!(judged(PMD, &half), Outcome::Unknown { reason: "2M of it is not mapped".into() });
    }

    #[test]
    fn invisible_folios_are_unknown_and_the_zero_page_is_small() {
        let unseen = [region(0, 4 << 20, PageSize::K4, Folio::Unknown)];
        assert!(matches!(judged(PageSize::K64, &unseen), Outcome::Unknown { .. }));
        let mapping = Mapping { backing: Backing::Zero, leaf: PMD, folio: Folio::Whole(PMD) };
        let zero = [Region { start: 0, end: 4 << 20, mapping }];
        assert!(matches!(judged(PMD, &zero), Outcome::Refused { .. }));
    }
}
