//! [`explain`]: why pages of a file are not larger, first by geometry, then by facts about the file system and the page
//! cache.

use super::vma::VmaFacts;
use crate::cause::Cause;
use crate::census::{Backing, Census, Mapping};
use crate::size::{PageSize, format_bytes};

/// The cause for file pages that are smaller than a PMD leaf, their bytes, and the evidence. `vmas` are adjacent mappings of
/// consecutive parts of one file.
pub fn explain(vmas: &[VmaFacts], census: &Census, pmd: PageSize) -> Option<(Cause, u64, Vec<String>)> {
    let (first, last) = (vmas.first()?, vmas.last()?);
    let is_smaller = |mapping: &Mapping| mapping.backing == Backing::File && mapping.effective() < pmd;
    let bytes = census.bytes_where(is_smaller);
    if bytes == 0 {
        return None;
    }
    let has_slot = last.end - first.start >= pmd.bytes();
    Some(match (has_slot, first.is_congruent(pmd), first.is_executable()) {
        (false, ..) => (Cause::FilePages, bytes, Vec::new()),
        (true, false, _) => (Cause::FileMisaligned, bytes, vec![misaligned(first, pmd)]),
        (true, true, is_code) => {
            (if is_code { Cause::CodePages } else { Cause::FilePages }, bytes, of_page_cache(first, census))
        }
    })
}

/// Evidence that the address and the file offset are not congruent.
pub fn misaligned(vma: &VmaFacts, size: PageSize) -> String {
    // The text is exact: rounded to three digits, 2044K would be shown as a multiple of 2M.
    let remainder = |at: u64| match at % size.bytes() {
        0 => "0".to_string(),
        bytes if bytes.is_multiple_of(1024) => format!("{}K", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    };
    format!(
        "address {:#x} is {} after a multiple of {size}, its file offset {}",
        vma.start,
        remainder(vma.start),
        remainder(vma.offset)
    )
}

fn of_page_cache(vma: &VmaFacts, census: &Census) -> Vec<String> {
    let file = |mapping: &Mapping| mapping.backing == Backing::File;
    let mut sizes: Vec<PageSize> =
        census.rows().map(|(mapping, _)| mapping).filter(|mapping| file(mapping)).map(Mapping::effective).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let by_size = |size: &PageSize| {
        let bytes = census.bytes_where(|mapping| file(mapping) && mapping.effective() == *size);
        format!("{} of {size}", format_bytes(bytes))
    };
    let sizes = sizes.iter().map(by_size).collect::<Vec<_>>().join(", ");
    let on = vma.file_system.as_ref().map_or(String::new(), |on| format!(" ({})", on.name));
    let eligible = vma.smaps_info.and_then(|info| info.thp_eligible).filter(|_| vma.is_executable());
    let eligible = eligible.map_or(String::new(), |yes| format!("; THPeligible: {}", u8::from(yes)));
    vec![format!("{}{on}: folios: {sizes}{eligible}", vma.name)]
}
