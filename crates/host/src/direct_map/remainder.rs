//! [`Remainder`]: what uses the memory that a demotion did not reach, page by page, from /proc/kpageflags.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use policy::size::format_bytes;

use crate::Root;

/// One word for each page frame (Documentation/admin-guide/mm/pagemap.rst; bits in include/uapi/linux/kernel-page-flags.h).
const FLAGS: &str = "/proc/kpageflags";
/// Number of pages in one read.
const READ_PAGES: u64 = 512;
/// Flags of pages of programs: KPF_LRU, KPF_MMAP, KPF_ANON, KPF_SWAPBACKED, KPF_HUGE.
const PROGRAMS: u64 = 1 << 5 | 1 << 11 | 1 << 12 | 1 << 14 | 1 << 17;
/// KPF_BUDDY: set for every page of a free block (fs/proc/page.c).
const FREE: u64 = 1 << 10;
/// Memory allocated before the page allocator existed: KPF_RESERVED (fs/proc/page.c exports it in addition to the documented
/// bits) and KPF_NOPAGE.
const BOOT: u64 = 1 << 32 | 1 << 20;

/// Memory in large frames in which no secret page was, by use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remainder {
    /// Allocated by the kernel at boot: its image, the array of all pages, bounce buffers.
    pub boot_bytes: u64,
    /// Free when the demotion ended.
    pub free_bytes: u64,
    /// Mapped by programs, in the page cache, or files in memory.
    pub program_bytes: u64,
    /// Slab, page tables, stacks, device buffers, pages on per-CPU lists; and memory held by the demotion.
    pub kernel_bytes: u64,
}

impl Remainder {
    /// The use of parts of the memory of the host below `root`, whose base pages have `page_bytes` bytes.
    pub fn of(root: &Root, page_bytes: u64, memory: impl Iterator<Item = Range<u64>>) -> io::Result<Remainder> {
        let file = root.file(FLAGS)?;
        let mut remainder = Remainder::default();
        for range in memory {
            let pages = range.start / page_bytes..range.end / page_bytes;
            for first in pages.clone().step_by(READ_PAGES as usize) {
                let count = READ_PAGES.min(pages.end - first);
                let mut flags = vec![0; count as usize * 8];
                file.read_exact_at(&mut flags, first * 8)?;
                flags.as_chunks().0.iter().for_each(|word| remainder.add(u64::from_ne_bytes(*word), page_bytes));
            }
        }
        Ok(remainder)
    }

    fn add(&mut self, flags: u64, bytes: u64) {
        *match flags {
            flags if flags & BOOT != 0 => &mut self.boot_bytes,
            flags if flags & FREE != 0 => &mut self.free_bytes,
            flags if flags & PROGRAMS != 0 => &mut self.program_bytes,
            _ => &mut self.kernel_bytes,
        } += bytes;
    }

    /// The sum of all bytes.
    pub fn bytes(&self) -> u64 {
        self.boot_bytes + self.free_bytes + self.program_bytes + self.kernel_bytes
    }

    /// The use in a sentence.
    pub fn describe(&self) -> String {
        let parts = [
            (self.boot_bytes, "the kernel took at boot"),
            (self.kernel_bytes, "it has taken since or this demotion held"),
            (self.program_bytes, "belong to programs, files and caches"),
            (self.free_bytes, "were left free"),
        ];
        let parts = parts.into_iter().filter(|(bytes, _)| *bytes > 0);
        let parts: Vec<String> = parts.map(|(bytes, what)| format!("{} {what}", format_bytes(bytes))).collect();
        format!("no secret page was allocated in the frames of {}: {}", format_bytes(self.bytes()), parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn pages_are_counted_by_their_flags() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        // Reserved and mapped; free; slab; anonymous and on an LRU list; no flags.
        let flags: [u64; 5] = [1 << 32 | 1 << 11, 1 << 10, 1 << 7, 1 << 5 | 1 << 12, 0];
        let words = (0..2048).flat_map(|frame| flags[frame % 5].to_ne_bytes());
        fs::write(root.path().join("proc/kpageflags"), words.collect::<Vec<u8>>()).unwrap();
        let page = 4096;
        let of = |pages: Range<u64>| {
            let bytes = pages.start * page..pages.end * page;
            Remainder::of(&Root::open(root.path()).unwrap(), page, [bytes].into_iter())
        };
        let found = of(5..10).unwrap();
        let counts = [found.boot_bytes, found.free_bytes, found.program_bytes, found.kernel_bytes];
        assert_eq!(counts, [page, page, page, 2 * page]);
        let described = Remainder { free_bytes: 0, ..found }.describe();
        assert!(
            described.contains("16K: 4K the kernel took at boot, 8K it") && !described.contains("free"),
            "{described}"
        );
        assert_eq!(of(0..1030).unwrap().bytes(), 1030 * page, "more than one read");
        assert!(of(2000..2049).is_err(), "the file ends");
    }
}
