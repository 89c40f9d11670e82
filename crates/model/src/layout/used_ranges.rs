//! The addresses in use, and the gaps between them. Linux places a mapping in the highest gap that is large enough.

use std::collections::BTreeMap;

use ::policy::call::map;

use super::Places;
use super::linux::{MIN_ADDRESS, QEMU_BASE, STACK_END};

/// File systems whose `file_operations::get_unmapped_area` is `thp_get_unmapped_area`, by their numbers in
/// include/uapi/linux/magic.h: ext2 to ext4, XFS, Btrfs, EROFS, FUSE. tmpfs aligns mappings only if its large pages are enabled
/// (`shmem_get_unmapped_area`, mm/shmem.c), and no policy enables them. Overlayfs and network file systems have no such operation.
const ALIGNING_FILE_SYSTEMS: [u64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xe0f5_e1e2, 0x6573_5546];

/// What determines the address of a new mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct MappingRequest {
    pub bytes: u64,
    pub flags: u64,
    /// Offset in its file, in bytes.
    pub offset: u64,
    /// The type of the file's file system, as statfs(2) reports it; `None` if the trace does not contain it.
    pub file_system: Option<u64>,
    /// Whether the program passes an address without MAP_FIXED.
    pub has_hint: bool,
}

/// The alignment of a mapping's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// The alignment, a power of two.
    pub bytes: u64,
    /// The address and this offset are congruent modulo `bytes`.
    pub offset: u64,
}

impl Alignment {
    /// The alignment of a new mapping. The kernel aligns neither anonymous memory for which the program passes a hint
    /// (`__get_unmapped_area`, mm/mmap.c) nor shared anonymous memory without large pages (`shmem_get_unmapped_area`, mm/shmem.c).
    fn of_mapping(request: &MappingRequest, huge_bytes: u64) -> Option<Alignment> {
        let MappingRequest { bytes, flags, offset, file_system, has_hint } = *request;
        match flags & map::ANONYMOUS != 0 {
            true if has_hint || flags & map::TYPE != map::PRIVATE => None,
            true => Alignment::of_memory(bytes, huge_bytes),
            false if file_system.is_some_and(|found| !ALIGNING_FILE_SYSTEMS.contains(&found)) => None,
            false => Alignment::of_file(offset, bytes, huge_bytes),
        }
    }

    /// The alignment of a file mapping. The kernel aligns it if it contains a whole huge page of the file
    /// (`__thp_get_unmapped_area`, mm/huge_memory.c).
    fn of_file(offset: u64, bytes: u64, huge_bytes: u64) -> Option<Alignment> {
        let first = offset.checked_next_multiple_of(huge_bytes)?;
        let has_whole = first.checked_add(huge_bytes)? <= offset.checked_add(bytes)?;
        has_whole.then_some(Alignment { bytes: huge_bytes, offset })
    }

    /// The alignment of anonymous memory. The kernel aligns it if it consists of whole huge pages.
    fn of_memory(bytes: u64, huge_bytes: u64) -> Option<Alignment> {
        (bytes >= huge_bytes && bytes.is_multiple_of(huge_bytes)).then_some(Alignment { bytes: huge_bytes, offset: 0 })
    }
}

/// The ranges of addresses in use, in whole base pages.
#[derive(Clone, Debug)]
pub(super) struct UsedRanges {
    /// The end of each range, by its start.
    ranges: BTreeMap<u64, u64>,
    /// The end of the highest gap.
    end: u64,
    /// Base page size in bytes.
    base_bytes: u64,
    /// The alignment of large mappings.
    huge_bytes: Option<u64>,
}

impl Default for UsedRanges {
    fn default() -> UsedRanges {
        UsedRanges::below(&Places::default())
    }
}

impl UsedRanges {
    /// No ranges in use. The highest gap is below the vDSO, which ends at `mmap_base`.
    pub fn below(places: &Places) -> UsedRanges {
        let end = places.mmap_base - places.vdso_bytes;
        UsedRanges { ranges: BTreeMap::new(), end, base_bytes: places.base_bytes, huge_bytes: places.huge_bytes }
    }

    /// The end of the last range that begins below an address.
    pub fn last_end_below(&self, address: u64) -> Option<u64> {
        self.ranges.range(..address).next_back().map(|(_, end)| *end)
    }

    pub fn is_free(&self, begin: u64, end: u64) -> bool {
        self.last_end_below(end).is_none_or(|taken| taken <= begin)
    }

    /// Whether a mapping that ends at `old_end` can end at `new_end` instead: it shrinks, grows within its last base page, or grows
    /// into free addresses. Linux first rounds both lengths up to whole pages (`do_mremap`, mm/mremap.c).
    pub fn may_end_at(&self, old_end: u64, new_end: u64) -> bool {
        let (old_end, new_end) = (self.round_up(old_end), self.round_up(new_end));
        new_end <= old_end || self.is_free(old_end, new_end)
    }

    /// Marks all base pages of a range as used.
    pub fn take(&mut self, begin: u64, end: u64) {
        let (begin, end) = (begin / self.base_bytes * self.base_bytes, self.round_up(end));
        self.free(begin, end);
        self.ranges.insert(begin, end);
    }

    /// Frees the base pages that start in a range.
    pub fn free(&mut self, begin: u64, end: u64) {
        let (begin, end) = (self.round_up(begin), self.round_up(end));
        let first = self.ranges.range(..=begin).next_back().map_or(begin, |(at, _)| *at);
        let touched: Vec<(u64, u64)> = self.ranges.range(first..end).map(|(at, end)| (*at, *end)).collect();
        for (at, until) in touched.into_iter().filter(|(_, until)| *until > begin) {
            self.ranges.remove(&at);
            if at < begin {
                self.ranges.insert(at, begin);
            }
            if until > end {
                self.ranges.insert(end, until);
            }
        }
    }

    /// Takes the range at a hint if it is free (`arch_get_unmapped_area_topdown`, arch/x86/kernel/sys_x86_64.c). Raises a hint that
    /// is too low first (`round_hint_to_min`, mm/mmap.c).
    fn place_at(&mut self, hint: u64, bytes: u64) -> Option<u64> {
        let to = (hint / self.base_bytes * self.base_bytes).max(MIN_ADDRESS);
        let end = to.checked_add(bytes).filter(|end| *end <= STACK_END)?;
        self.is_free(to, end).then(|| {
            self.ranges.insert(to, end);
            to
        })
    }

    /// Takes a range for a new mapping: at the hint, if there is one and the range is free, or in the highest gap. Returns its
    /// address.
    pub fn place_mapping(&mut self, request: &MappingRequest, hint: u64) -> u64 {
        // Linux rounds the length up to whole pages before anything else (`do_mmap`, mm/mmap.c).
        let bytes = self.round_up(request.bytes);
        // Linux refuses an offset inside a page. A recorded offset is a multiple of 4K, so it is rounded down to a base page.
        let offset = request.offset / self.base_bytes * self.base_bytes;
        let request = MappingRequest { bytes, offset, ..*request };
        let at_hint = if request.has_hint { self.place_at(hint, bytes) } else { None };
        let aligned = self.huge_bytes.and_then(|huge_bytes| Alignment::of_mapping(&request, huge_bytes));
        at_hint.unwrap_or_else(|| self.place(bytes, aligned))
    }

    /// Takes a range for anonymous memory in the highest gap, aligned if the memory consists of whole huge pages.
    pub fn place_anonymous(&mut self, bytes: u64) -> u64 {
        let bytes = self.round_up(bytes);
        let aligned = self.huge_bytes.and_then(|huge_bytes| Alignment::of_memory(bytes, huge_bytes));
        self.place(bytes, aligned)
    }

    /// Takes a range in the highest gap that is large enough, with an alignment if one is given.
    pub fn place(&mut self, bytes: u64, aligned: Option<Alignment>) -> u64 {
        let bytes = self.round_up(bytes);
        let to = match aligned.and_then(|aligned| Some((aligned, self.gap(bytes.checked_add(aligned.bytes)?)?.0))) {
            Some((Alignment { bytes, offset }, begin)) => match offset.wrapping_sub(begin) & (bytes - 1) {
                0 => begin + bytes,
                rest => begin + rest,
            },
            // Programs never use up all addresses.
            None => self.gap(bytes).map_or(QEMU_BASE, |(begin, _)| begin),
        };
        self.ranges.insert(to, to + bytes);
        to
    }

    /// Finds a range for hugetlb pages: from the first page at or after the hint, if the hint is not 0 and the range is free, or in
    /// the highest gap (`hugetlb_get_unmapped_area`, mm/hugetlb.c).
    pub fn place_hugetlb(&mut self, hint: u64, bytes: u64, page_bytes: u64) -> u64 {
        let at_hint = hint.checked_next_multiple_of(page_bytes).filter(|hint| *hint != 0);
        let at_hint = at_hint.and_then(|hint| self.place_at(hint, bytes));
        at_hint.unwrap_or_else(|| self.highest_aligned(bytes, page_bytes))
    }

    /// The address of `bytes` at the end of the highest gap in which they fit aligned to a page.
    fn highest_aligned(&self, bytes: u64, page_bytes: u64) -> u64 {
        let gap = bytes.checked_add(page_bytes - self.base_bytes).and_then(|bytes| self.gap(bytes));
        // Programs never use up all addresses.
        gap.map_or(QEMU_BASE, |(_, end)| (end - bytes) / page_bytes * page_bytes)
    }

    /// Rounds a number of bytes up to whole base pages.
    fn round_up(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.base_bytes).unwrap_or(!(self.base_bytes - 1))
    }

    /// The start and end of `bytes` at the end of the highest gap in which they fit.
    pub fn gap(&self, bytes: u64) -> Option<(u64, u64)> {
        let mut end = self.end;
        for (at, until) in self.ranges.range(..end).rev() {
            if *until < end && end - until >= bytes {
                return Some((end - bytes, end));
            }
            end = end.min(*at);
        }
        Some((end.checked_sub(bytes)?, end))
    }
}
