//! [`RefusedBasePages`]: the base page sizes with which a program and its libraries cannot be loaded.
//!
//! The kernel maps LOAD segments of the program and of its dynamic linker page by page (`elf_load`, fs/binfmt_elf.c): address and
//! offset of a segment must agree modulo the base page, and where two segments share a page, the later one decides its protection.
//! The dynamic linker of glibc maps libraries, and refuses those whose p_align is not a multiple of the page (`_dl_map_object_from_fd`,
//! elf/dl-load.c: "ELF load command alignment not page-aligned").

use crate::size::PageSize;

/// A LOAD segment of an ELF file (elf(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSegment {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Address, before the file is placed.
    pub address: u64,
    /// Length in memory in bytes.
    pub bytes: u64,
    /// p_align, in bytes.
    pub alignment_bytes: u64,
    /// Protection bits: p_flags.
    pub protection: u32,
}

/// Who maps a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loader {
    /// The kernel: a program, or its dynamic linker.
    Kernel,
    /// The dynamic linker: a library.
    Linker,
}

/// Base page sizes with which a program cannot start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedBasePages {
    /// The smallest refused size above the kernel's base page.
    pub refused: PageSize,
    /// The largest base page size that the first of the files allows.
    pub aligned_to: PageSize,
    /// The files that do not allow `refused`, the program first.
    pub files: Vec<String>,
}

/// The base page sizes above 4K of all architectures, smallest first.
const LARGER: [PageSize; 2] = [PageSize::K16, PageSize::K64];

impl RefusedBasePages {
    /// The base page sizes, above the kernel's, with which a program cannot start; `None` where it can start with all. `files`
    /// are the program, its dynamic linker and its libraries.
    pub fn refused(base: PageSize, files: &[(String, Loader, Vec<LoadSegment>)]) -> Option<RefusedBasePages> {
        let refusing =
            |size: PageSize| files.iter().filter(move |(_, loader, segments)| !admits(segments, *loader, size));
        let refused = LARGER.into_iter().filter(|size| *size > base).find(|size| refusing(*size).next().is_some())?;
        let (_, loader, segments) = refusing(refused).next()?;
        Some(RefusedBasePages {
            refused,
            aligned_to: largest(segments, *loader).unwrap_or(base),
            files: refusing(refused).map(|(name, ..)| name.clone()).collect(),
        })
    }

    /// The refusal in one clause.
    pub fn describe(&self) -> String {
        let others = match self.files.len() {
            0 | 1 => String::new(),
            2 => " and of 1 other file".to_owned(),
            count => format!(" and of {} other files", count - 1),
        };
        let first = self.files.first().map_or("", String::as_str);
        let RefusedBasePages { refused, aligned_to, .. } = self;
        format!(
            "a kernel with base pages of {refused} could not start it: LOAD segments of {first}{others} are aligned to {aligned_to}"
        )
    }
}

/// The largest base page size with which all these files can be loaded.
pub fn largest_of_all(files: &[(String, Loader, Vec<LoadSegment>)]) -> Option<PageSize> {
    files.iter().map(|(_, loader, segments)| largest(segments, *loader)).min()?
}

fn largest(segments: &[LoadSegment], loader: Loader) -> Option<PageSize> {
    let all = std::iter::once(PageSize::K4).chain(LARGER);
    all.rev().find(|size| admits(segments, loader, *size))
}

/// Whether a file can be loaded with a base page.
fn admits(segments: &[LoadSegment], loader: Loader, base: PageSize) -> bool {
    let is_placed = |segment: &LoadSegment| {
        segment.address.wrapping_sub(segment.offset).is_multiple_of(base.bytes())
            && (loader == Loader::Kernel || segment.alignment_bytes.is_multiple_of(base.bytes()))
    };
    let loses_protection = |pair: &[LoadSegment]| {
        let is_shared = base.align_down(pair[1].address) < pair[0].address.saturating_add(pair[0].bytes);
        is_shared && pair[0].protection & !pair[1].protection != 0
    };
    segments.iter().all(is_placed) && !segments.windows(2).any(loses_protection)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u32 = 4;
    const CODE: u32 = 5;
    const DATA: u32 = 6;

    fn segment(offset: u64, address: u64, alignment_bytes: u64, protection: u32) -> LoadSegment {
        LoadSegment { offset, address, bytes: 0x800, alignment_bytes, protection }
    }

    /// The segments that binutils makes of a small program, with `-z max-page-size` of 4096 and of 65536.
    fn linked(max_page: u64) -> Vec<LoadSegment> {
        [(0, READ), (1, CODE), (2, READ), (3, DATA)]
            .map(|(at, protection)| segment(at * max_page, at * max_page, max_page, protection))
            .into()
    }

    fn files(segments: Vec<LoadSegment>, loader: Loader) -> [(String, Loader, Vec<LoadSegment>); 1] {
        [("/a".to_owned(), loader, segments)]
    }

    #[test]
    fn segments_of_different_protection_do_not_share_a_base_page() {
        for loader in [Loader::Kernel, Loader::Linker] {
            let small = RefusedBasePages::refused(PageSize::K4, &files(linked(4096), loader)).unwrap();
            let what = "a kernel with base pages of 16K could not start it: LOAD segments of /a are aligned to 4K";
            assert_eq!(small.describe(), what);
            assert_eq!(
                RefusedBasePages::refused(PageSize::K16, &files(linked(4096), loader)).unwrap().refused,
                PageSize::K64
            );
            assert_eq!(RefusedBasePages::refused(PageSize::K4, &files(linked(65536), loader)), None);
            assert_eq!(largest_of_all(&files(linked(16384), loader)), Some(PageSize::K16));
        }
    }

    #[test]
    fn offset_and_address_agree_modulo_the_base_page() {
        let segments = vec![segment(0, 0, 65536, CODE), segment(0x2e00, 0x2_3e00, 65536, DATA)];
        assert_eq!(largest_of_all(&files(segments, Loader::Kernel)), Some(PageSize::K4));
    }

    /// The second segment maps the shared page with more access than the first, so nothing loses access.
    #[test]
    fn the_kernel_maps_what_the_linker_refuses() {
        let segments = vec![segment(0, 0, 4096, READ), segment(0x1000, 0x1000, 4096, DATA)];
        assert_eq!(largest_of_all(&files(segments.clone(), Loader::Kernel)), Some(PageSize::K64));
        assert_eq!(largest_of_all(&files(segments, Loader::Linker)), Some(PageSize::K4));
    }

    #[test]
    fn the_first_file_is_named() {
        let all = [files(linked(65536), Loader::Kernel), files(linked(4096), Loader::Linker)].concat();
        assert_eq!(RefusedBasePages::refused(PageSize::K4, &all).unwrap().files, ["/a"]);
        let all = [&all[..], &files(linked(16384), Loader::Linker)].concat();
        assert!(!RefusedBasePages::refused(PageSize::K4, &all).unwrap().describe().contains("other"));
        let refused = RefusedBasePages::refused(PageSize::K16, &all).unwrap();
        assert!(refused.describe().contains("of /a and of 1 other file are"), "{}", refused.describe());
    }
}
