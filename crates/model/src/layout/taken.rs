//! The addresses in use, and the gaps between them. Linux uses the highest gap that is large enough.

use std::collections::BTreeMap;

use ::policy::call::map;

use super::Places;
use super::linux::{EMULATED, LOWEST, STACK_END};

/// File systems whose files `thp_get_unmapped_area` places (`file_operations::get_unmapped_area`), by their numbers in
/// include/uapi/linux/magic.h: ext2 to ext4, XFS, Btrfs, EROFS, FUSE. tmpfs aligns if its large pages are enabled,
/// which no policy does (`shmem_get_unmapped_area`, mm/shmem.c); overlayfs and network file systems have no such
/// operation.
const ALIGNING: [u64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xe0f5_e1e2, 0x6573_5546];

/// The parameters of a new mapping that determine its address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub bytes: u64,
    pub flags: u64,
    /// Offset in its file, in bytes.
    pub offset: u64,
    /// The type of the file's file system, as statfs(2) reports it; `None` if the trace does not contain it.
    pub file_system: Option<u64>,
    /// Whether the program passes an address as a hint.
    pub has_hint: bool,
}

/// An alignment with an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// The alignment, a power of two.
    pub bytes: u64,
    /// The address is congruent to this, modulo `bytes`.
    pub offset: u64,
}

impl Alignment {
    /// The alignment of a new mapping. Anonymous memory for which the program passes a hint is not aligned
    /// (`__get_unmapped_area`, mm/mmap.c). Shared memory is not aligned either (`shmem_get_unmapped_area`, mm/shmem.c,
    /// if its large pages are disabled).
    fn of_mapping(asked: &Asked, huge_bytes: u64) -> Option<Alignment> {
        let Asked { bytes, flags, offset, file_system, has_hint } = *asked;
        match flags & map::ANONYMOUS != 0 {
            true if has_hint || flags & map::TYPE != map::PRIVATE => None,
            true => Alignment::of_memory(bytes, huge_bytes),
            false if file_system.is_some_and(|found| !ALIGNING.contains(&found)) => None,
            false => Alignment::of_file(offset, bytes, huge_bytes),
        }
    }

    /// The alignment of a file mapping, if it contains a whole huge page of the file (`__thp_get_unmapped_area`,
    /// mm/huge_memory.c).
    fn of_file(offset: u64, bytes: u64, huge_bytes: u64) -> Option<Alignment> {
        let first = offset.checked_next_multiple_of(huge_bytes)?;
        let has_whole = first.checked_add(huge_bytes)? <= offset.checked_add(bytes)?;
        has_whole.then_some(Alignment { bytes: huge_bytes, offset })
    }

    /// The alignment of anonymous memory: whole huge pages are aligned.
    fn of_memory(bytes: u64, huge_bytes: u64) -> Option<Alignment> {
        (bytes >= huge_bytes && bytes.is_multiple_of(huge_bytes)).then_some(Alignment { bytes: huge_bytes, offset: 0 })
    }
}

/// The ranges of addresses in use, in whole base pages.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// The end of each range, by its beginning.
    ranges: BTreeMap<u64, u64>,
    /// The end of the highest gap.
    end: u64,
    /// Base page size in bytes.
    base_bytes: u64,
    /// The alignment for mappings of whole large pages.
    huge_bytes: Option<u64>,
}

impl Default for Taken {
    fn default() -> Taken {
        Taken::below(&Places::default())
    }
}

impl Taken {
    /// No ranges in use, below the vdso, which ends at `mmap_base`.
    pub fn below(places: &Places) -> Taken {
        let end = places.mmap_base - places.vdso_bytes;
        Taken { ranges: BTreeMap::new(), end, base_bytes: places.base_bytes, huge_bytes: places.huge_bytes }
    }

    /// The end of the last range that begins below an address.
    pub fn last_end_below(&self, address: u64) -> Option<u64> {
        self.ranges.range(..address).next_back().map(|(_, end)| *end)
    }

    pub fn is_free(&self, begin: u64, end: u64) -> bool {
        self.last_end_below(end).is_none_or(|taken| taken <= begin)
    }

    /// Whether a mapping that ends at `old_end` may end at `new_end` instead: it becomes shorter, stays in its last
    /// base page, or grows into free addresses. Linux first rounds both lengths up to whole pages (`do_mremap`,
    /// mm/mremap.c).
    pub fn may_end_at(&self, old_end: u64, new_end: u64) -> bool {
        let (old_end, new_end) = (self.whole(old_end), self.whole(new_end));
        new_end <= old_end || self.is_free(old_end, new_end)
    }

    pub fn take(&mut self, begin: u64, end: u64) {
        let (begin, end) = (begin / self.base_bytes * self.base_bytes, self.whole(end));
        self.free(begin, end);
        self.ranges.insert(begin, end);
    }

    /// Frees the base pages that begin in a range.
    pub fn free(&mut self, begin: u64, end: u64) {
        let (begin, end) = (self.whole(begin), self.whole(end));
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

    /// Takes the address of a hint, if it is free (`arch_get_unmapped_area_topdown`, arch/x86/kernel/sys_x86_64.c). A
    /// hint that is too low is raised first (`round_hint_to_min`, mm/mmap.c).
    fn place_at(&mut self, hint: u64, bytes: u64) -> Option<u64> {
        let to = (hint / self.base_bytes * self.base_bytes).max(LOWEST);
        let end = to.checked_add(bytes).filter(|end| *end <= STACK_END)?;
        self.is_free(to, end).then(|| {
            self.ranges.insert(to, end);
            to
        })
    }

    /// Takes an address for a new mapping: that of the hint, if there is one and it is free, or the highest gap.
    pub fn place_for(&mut self, asked: &Asked, hint: u64) -> u64 {
        // Linux rounds the length up to whole pages before anything else (`do_mmap`, mm/mmap.c).
        let bytes = self.whole(asked.bytes);
        // An offset recorded in pages of 4K may be inside a larger page. Linux refuses that, so it is rounded down.
        let offset = asked.offset / self.base_bytes * self.base_bytes;
        let asked = Asked { bytes, offset, ..*asked };
        let wanted = if asked.has_hint { self.place_at(hint, bytes) } else { None };
        let aligned = self.huge_bytes.and_then(|huge_bytes| Alignment::of_mapping(&asked, huge_bytes));
        wanted.unwrap_or_else(|| self.place(bytes, aligned))
    }

    /// Takes the highest gap for `bytes` of anonymous memory, aligned if these are whole large pages.
    pub fn place_memory(&mut self, bytes: u64) -> u64 {
        let bytes = self.whole(bytes);
        let aligned = self.huge_bytes.and_then(|huge_bytes| Alignment::of_memory(bytes, huge_bytes));
        self.place(bytes, aligned)
    }

    /// Takes the highest gap for `bytes`, with an alignment if one is requested.
    pub fn place(&mut self, bytes: u64, aligned: Option<Alignment>) -> u64 {
        let bytes = self.whole(bytes);
        let to = match aligned.and_then(|aligned| Some((aligned, self.gap(bytes.checked_add(aligned.bytes)?)?.0))) {
            Some((Alignment { bytes, offset }, begin)) => match offset.wrapping_sub(begin) & (bytes - 1) {
                0 => begin + bytes,
                rest => begin + rest,
            },
            // Programs never use up all addresses.
            None => self.gap(bytes).map_or(EMULATED, |(begin, _)| begin),
        };
        self.ranges.insert(to, to + bytes);
        to
    }

    /// Takes an address for whole pages of a pool: the first page at or after the hint, if there is one (not 0) and
    /// there is room, or the highest gap (`hugetlb_get_unmapped_area`, mm/hugetlb.c).
    pub fn place_in_pages(&mut self, hint: u64, bytes: u64, page_bytes: u64) -> u64 {
        let wanted = hint.checked_next_multiple_of(page_bytes).filter(|hint| *hint != 0);
        let wanted = wanted.and_then(|hint| self.place_at(hint, bytes));
        wanted.unwrap_or_else(|| self.highest(bytes, page_bytes))
    }

    fn highest(&self, bytes: u64, page_bytes: u64) -> u64 {
        let gap = bytes.checked_add(page_bytes - self.base_bytes).and_then(|bytes| self.gap(bytes));
        // Programs never use up all addresses.
        gap.map_or(EMULATED, |(_, end)| (end - bytes) / page_bytes * page_bytes)
    }

    /// Rounds a number of bytes up to whole base pages.
    fn whole(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.base_bytes).unwrap_or(!(self.base_bytes - 1))
    }

    /// The upper end of the highest gap: the beginning and the end of `bytes` there.
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
