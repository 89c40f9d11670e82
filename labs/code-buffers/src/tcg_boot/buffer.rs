//! QEMU's code buffer as the kernel sees it ([`CodeBuffer`]): its mappings, and the leaves that map its memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use census::Observer;
use census::smaps::SmapsEntry;
use host::maps::{Presence, VmaKind};
use policy::size::PageSize;

use crate::regions::Layout;

use super::error::BootError;

/// The number of bytes that are checked at the beginning of a region. A translation begins with QEMU's metadata, which
/// is not all zero.
const FIRST_BYTES: usize = 256;

/// The buffer's mappings, in address order.
#[derive(Debug)]
pub struct CodeBuffer {
    entries: Vec<SmapsEntry>,
}

impl CodeBuffer {
    /// Finds the writable and executable anonymous mappings of a process.
    pub fn of_process(pid: u32) -> Result<CodeBuffer, BootError> {
        let mut entries = Observer::open()?.smaps(pid)?;
        entries.retain(|entry| {
            let vma = &entry.vma;
            vma.kind() == VmaKind::Anonymous && !vma.shared && vma.is_writable() && vma.is_executable()
        });
        if entries.is_empty() { Err(BootError::NoBuffer(pid)) } else { Ok(CodeBuffer { entries }) }
    }

    /// The number of mappings into which guard pages split the buffer.
    pub fn areas(&self) -> usize {
        self.entries.len()
    }

    pub fn resident_bytes(&self) -> u64 {
        self.entries.iter().map(SmapsEntry::resident_bytes).sum()
    }

    /// The bytes mapped by PMD leaves.
    pub fn huge_bytes(&self) -> u64 {
        self.entries.iter().map(SmapsEntry::pmd_mapped_bytes).sum()
    }

    /// Populates the first `bytes` of the buffer, as far as they are mapped, by writing a zero to each absent base page
    /// through /proc/PID/mem. This does not change the content. The process must be stopped.
    pub fn populate(&self, pid: u32, bytes: u64, page: PageSize) -> Result<(), BootError> {
        let populated = self.write_absent(pid, bytes, page);
        populated.map_err(|error| BootError::NotPopulated { pid, error })
    }

    #[expect(clippy::disallowed_methods, reason = "a file of /proc")]
    fn write_absent(&self, pid: u32, bytes: u64, page: PageSize) -> io::Result<()> {
        let memory = File::options().write(true).open(format!("/proc/{pid}/mem"))?;
        let presence = Presence::of(pid as i32, page)?;
        let end = self.entries[0].vma.start.saturating_add(bytes);
        for entry in &self.entries {
            for address in (entry.vma.start..entry.vma.end.min(end)).step_by(page.bytes() as usize) {
                if !presence.is_populated(address)? {
                    memory.write_all_at(&[0], address)?;
                }
            }
        }
        Ok(())
    }

    /// The number of regions that a vCPU has used so far: those whose first bytes are not all zero. [`CodeBuffer::populate`]
    /// does not count, because it writes only zeros. The process must be stopped.
    pub fn used_regions(&self, pid: u32, layout: &Layout) -> Result<u64, BootError> {
        let base = self.entries[0].vma.start;
        let used = File::open(format!("/proc/{pid}/mem")).and_then(|memory| {
            let mut used = 0;
            for region in layout.ranges() {
                let mut first = [0; FIRST_BYTES];
                memory.read_exact_at(&mut first, base + region.start)?;
                used += u64::from(first.iter().any(|byte| *byte != 0));
            }
            Ok(used)
        });
        used.map_err(|error| BootError::NotRead { pid, error })
    }

    /// The bytes that PMD leaves should map if memory is available: every aligned, touched PMD range within one mapping with
    /// MADV_HUGEPAGE. `touched` contains offsets from the buffer's start.
    pub fn expected_huge_bytes(&self, touched: &[Range<u64>], pmd: PageSize) -> u64 {
        let base = self.entries[0].vma.start;
        let advised = self.entries.iter().filter(|entry| entry.has_flag("hg"));
        let ranges = advised.map(|entry| entry.vma.start..entry.vma.end);
        ranges.map(|range| touched_windows(range, base, touched, pmd) * pmd.bytes()).sum()
    }
}

fn touched_windows(range: Range<u64>, base: u64, touched: &[Range<u64>], pmd: PageSize) -> u64 {
    let first = range.start.div_ceil(pmd.bytes());
    let is_touched = |window: &u64| {
        let (start, end) = (window * pmd.bytes(), (window + 1) * pmd.bytes());
        touched.iter().any(|touched| !touched.is_empty() && base + touched.start < end && start < base + touched.end)
    };
    (first..(range.end / pmd.bytes()).max(first)).filter(is_touched).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;

    #[test]
    fn windows_count_when_they_are_whole_and_touched() {
        let count = |range: Range<u64>, touched: &[Range<u64>]| touched_windows(range, 8 * M, touched, PageSize::M2);
        assert_eq!(count(8 * M..10 * M - 4096, &[0..0, 0..M]), 0, "the guard is in the only window");
        assert_eq!(count(8 * M..12 * M - 4096, &[0..0, 0..M]), 1);
        assert_eq!(count(8 * M..20 * M, &[0..1, 5 * M..7 * M]), 3, "windows 0, 4 to 6 and 6 to 8");
        assert_eq!(count(8 * M..20 * M, &[]), 0);
        assert_eq!(count(9 * M..11 * M, &[0..0, 0..3 * M]), 0, "no window is whole");
    }
}
