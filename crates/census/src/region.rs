//! Converts page information from the kernel to rows of a census: pure functions, tested on captured processes.

use host::maps::{Vma, VmaKind};
pub use policy::census::Region;
use policy::census::{Backing, Census, Folio, Mapping};
use policy::size::PageSize;

use super::scan::{self, PageRegion};

/// A mapping and its present memory, in address order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    pub vma: Vma,
    /// The present memory; holes are left out.
    pub regions: Vec<Region>,
}

/// The facts that are needed to classify a region, in addition to the categories of its pages.
pub struct Surroundings<'a> {
    /// The mapping that contains the region.
    pub vma: &'a Vma,
    /// The page size of the mapping where it belongs to a hugetlb pool.
    pub hugetlb: Option<PageSize>,
    /// Whether the file of the mapping is in shared memory (tmpfs) and not on a disk.
    pub shmem: bool,
    /// The base page size.
    pub base: PageSize,
    /// The size of a PMD leaf; absent where the kernel has no THP.
    pub pmd: Option<PageSize>,
}

impl Area {
    /// The area in the form that the policy judge takes.
    pub fn as_seen(&self) -> policy::census::Area<'_> {
        let Vma { start, end, .. } = self.vma;
        policy::census::Area { start, end, kind: self.vma.kind(), regions: &self.regions }
    }
}

/// How pages of these categories are mapped; `None` for pages that are not memory of the process.
///
/// The folio is [`Folio::Unknown`] for base pages, because they may belong to a larger folio. The folio behind a PMD leaf has PMD
/// size: anonymous and page-cache folios are never larger (`MAX_PAGECACHE_ORDER`, include/linux/pagemap.h).
pub fn classify(categories: u64, around: &Surroundings) -> Option<Mapping> {
    let kind = around.vma.kind();
    if kind == VmaKind::Special {
        return None;
    }
    if let Some(size) = around.hugetlb {
        return Some(Mapping { backing: Backing::Hugetlb, leaf: size, folio: Folio::Whole(size) });
    }
    let huge = categories & scan::HUGE != 0;
    let leaf = if huge { around.pmd? } else { around.base };
    let backing = backing_of(categories, kind, around.shmem)?;
    let folio = if huge || backing == Backing::Zero { Folio::Whole(leaf) } else { Folio::Unknown };
    Some(Mapping { backing, leaf, folio })
}

fn backing_of(categories: u64, kind: VmaKind, shmem: bool) -> Option<Backing> {
    if categories & scan::ZERO != 0 {
        Some(Backing::Zero)
    } else if categories & scan::FILE != 0 {
        Some(if shmem { Backing::Shmem } else { Backing::File })
    } else if kind == VmaKind::Shared {
        // Shared memory is never anonymous: a page that is not a file's belongs to a device.
        None
    } else {
        Some(Backing::Anonymous)
    }
}

/// Whether a scan of the mapping must request the category of file pages.
pub fn needs_file_category(vma: &Vma) -> bool {
    !matches!(vma.kind(), VmaKind::Anonymous | VmaKind::Stack)
}

/// Whether a mapping is scanned separately: it cannot have file pages, and is large enough to be worth a call.
fn is_large_anonymous(vma: &Vma) -> bool {
    const WORTH_A_CALL_BYTES: u64 = 4 << 20;
    !needs_file_category(vma) && vma.length_bytes() >= WORTH_A_CALL_BYTES
}

/// The ranges to scan, and whether to request [`scan::FILE`] for each. There are as few ranges as possible, but large anonymous
/// mappings are scanned without that category, which they cannot have.
pub fn plan(vmas: &[Vma]) -> Vec<(u64, u64, bool)> {
    let mut ranges: Vec<(u64, u64, bool)> = Vec::new();
    for vma in vmas {
        let file = !is_large_anonymous(vma);
        match ranges.last_mut() {
            Some(last) if last.2 == file => last.1 = vma.end,
            _ => ranges.push((vma.start, vma.end, file)),
        }
    }
    ranges
}

/// The part of each scanned region that is inside the mapping. Both are in address order, and `next` is the index of the first
/// region that may overlap this or a later mapping.
pub fn within<'a>(vma: &Vma, scanned: &'a [PageRegion], next: &mut usize) -> impl Iterator<Item = PageRegion> + 'a {
    while scanned.get(*next).is_some_and(|region| region.end <= vma.start) {
        *next += 1;
    }
    let (start, end) = (vma.start, vma.end);
    scanned[*next..].iter().take_while(move |region| region.start < end).map(move |region| PageRegion {
        start: region.start.max(start),
        end: region.end.min(end),
        ..*region
    })
}

/// Appends a region, or extends the last one if the region continues it.
pub fn push(regions: &mut Vec<Region>, region: Region) {
    match regions.last_mut() {
        Some(last) if last.end == region.start && last.mapping == region.mapping => last.end = region.end,
        _ => regions.push(region),
    }
}

/// The census of all regions in the areas.
pub fn count(areas: &[Area]) -> Census {
    let mut census = Census::default();
    for region in areas.iter().flat_map(|area| &area.regions) {
        census.add(region.mapping, region.length_bytes());
    }
    census
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vma(name: &str, inode: u64, shared: bool) -> Vma {
        Vma { start: 0, end: 1 << 30, protection: 3, shared, device: (0, 1), inode, offset: 0, name: name.into() }
    }

    fn classified(categories: u64, vma: &Vma, hugetlb: Option<PageSize>) -> Option<(Backing, PageSize, Folio)> {
        let around = Surroundings { vma, hugetlb, shmem: false, base: PageSize::K4, pmd: Some(PageSize::M2) };
        classify(categories, &around).map(|mapping| (mapping.backing, mapping.leaf, mapping.folio))
    }

    #[test]
    fn every_kind_of_page_has_its_row() {
        let (anonymous, private, shared) = (vma("", 0, false), vma("/a", 9, false), vma("/a", 9, true));
        let (k4, m2, g1) = (PageSize::K4, PageSize::M2, PageSize::G1);
        for (categories, vma, hugetlb, expected) in [
            (scan::PRESENT, &anonymous, None, Some((Backing::Anonymous, k4, Folio::Unknown))),
            (scan::HUGE, &anonymous, None, Some((Backing::Anonymous, m2, Folio::Whole(m2)))),
            (scan::ZERO, &anonymous, None, Some((Backing::Zero, k4, Folio::Whole(k4)))),
            (scan::ZERO | scan::HUGE, &anonymous, None, Some((Backing::Zero, m2, Folio::Whole(m2)))),
            (scan::FILE, &private, None, Some((Backing::File, k4, Folio::Unknown))),
            (scan::FILE | scan::HUGE, &private, None, Some((Backing::File, m2, Folio::Whole(m2)))),
            (scan::PRESENT, &private, None, Some((Backing::Anonymous, k4, Folio::Unknown))),
            (scan::PRESENT, &shared, None, None),
            (scan::FILE, &shared, None, Some((Backing::File, k4, Folio::Unknown))),
            (scan::HUGE, &private, Some(g1), Some((Backing::Hugetlb, g1, Folio::Whole(g1)))),
            (scan::HUGE | scan::FILE, &shared, Some(m2), Some((Backing::Hugetlb, m2, Folio::Whole(m2)))),
            (scan::FILE, &vma_special(), None, None),
        ] {
            assert_eq!(classified(categories, vma, hugetlb), expected, "{categories:#x} in {vma:?}");
        }
    }

    fn vma_special() -> Vma {
        vma("[vdso]", 0, false)
    }

    #[test]
    fn only_large_anonymous_mappings_are_scanned_on_their_own() {
        let at =
            |start: u64, end: u64, inode: u64| Vma { start: start << 20, end: end << 20, inode, ..vma("", 0, false) };
        let vmas = [at(0, 1, 7), at(1, 2, 0), at(8, 72, 0), at(72, 99, 0), at(100, 164, 7)];
        let ranges = plan(&vmas);
        assert_eq!(ranges, [(0, 2 << 20, true), (8 << 20, 99 << 20, false), (100 << 20, 164 << 20, true)]);
    }

    /// Processes the captured regions with all code between the ioctl and the census.
    #[test]
    fn a_captured_process_has_its_census() {
        let vmas = host::maps::parse(include_str!("../../../fixtures/census/maps"), "maps").unwrap();
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let scanned: Vec<PageRegion> = include_str!("../../../fixtures/census/scan")
            .lines()
            .map(|line| {
                let (range, categories) = line.split_once(' ').unwrap();
                let (start, end) = range.split_once('-').unwrap();
                PageRegion { start: hexadecimal(start), end: hexadecimal(end), categories: hexadecimal(categories) }
            })
            .collect();
        let mut next = 0;
        let areas = vmas.into_iter().map(|vma| {
            let around = Surroundings {
                vma: &vma,
                hugetlb: vma.name.starts_with("/anon_hugepage").then_some(PageSize::M2),
                shmem: vma.device == (0, 1),
                base: PageSize::K4,
                pmd: Some(PageSize::M2),
            };
            let mut regions = Vec::new();
            for part in within(&vma, &scanned, &mut next) {
                if let Some(mapping) = classify(part.categories, &around) {
                    push(&mut regions, Region { start: part.start, end: part.end, mapping });
                }
            }
            Area { vma, regions }
        });
        let census = count(&areas.collect::<Vec<Area>>());
        let rows: Vec<(Backing, PageSize, u64)> =
            census.rows().map(|(mapping, bytes)| (mapping.backing, mapping.leaf, bytes >> 10)).collect();
        let golden = [
            // 3 MiB with MADV_NOHUGEPAGE, 16 KiB of /dev/zero, heap, stack, and the program's own data.
            (Backing::Anonymous, PageSize::K4, 3072 + 16 + 76 + 12 + 28),
            (Backing::Anonymous, PageSize::M2, 4096),
            (Backing::Hugetlb, PageSize::M2, 2048),
            (Backing::Shmem, PageSize::K4, 64 + 64),
            (Backing::File, PageSize::K4, 648),
            (Backing::Zero, PageSize::K4, 1024),
        ];
        assert_eq!(rows, golden);
    }
}
