//! [`Heat`]: how much of each window of its memory a program accesses, measured without a trace by repeated passes.
//!
//! Each window is a VMA of its own, mapped by base pages. A pass reads from smaps how many bytes of each window were accessed
//! since the last pass (`Referenced`, fs/proc/task_mmu.c), and clears the accessed bits (`clear_refs`). A window in which
//! many distinct pages are accessed between two passes is hot: these are the pages that a TLB has to hold.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Instant;

use policy::windows::Windows;
use tracer::{WindowRange, Witness};

/// Minimum number of passes: fewer rank windows wrongly.
pub const MIN_PASSES: u32 = 50;

/// How much of each window was accessed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heat {
    /// Number of passes.
    pub passes: u32,
    /// Bytes that were accessed between two passes, summed over passes, by window.
    pub accessed_bytes: [u64; Windows::COUNT as usize],
}

/// The witness that makes the passes.
#[derive(Default)]
pub struct HeatWitness {
    heat: Heat,
    /// No pass is made before this time, so that half of the time is the program's own.
    not_before: Option<Instant>,
    /// Whether the accessed bits were cleared before.
    has_begun: bool,
}

impl HeatWitness {
    /// The result of all passes.
    pub fn heat(self) -> Heat {
        self.heat
    }
}

impl Witness for HeatWitness {
    fn begins(&mut self, _process: libc::pid_t) {}

    fn ends(&mut self, _task: libc::pid_t) {}

    fn unmaps(&mut self, _task: libc::pid_t, _start: u64, _end: u64) {}

    fn ticks(&mut self, window_ranges: &[WindowRange]) {
        let now = Instant::now();
        if window_ranges.is_empty() || self.not_before.is_some_and(|not_before| now < not_before) {
            return;
        }
        let mut processes: Vec<libc::pid_t> = window_ranges.iter().map(|window_range| window_range.process).collect();
        processes.sort_unstable();
        processes.dedup();
        for process in processes {
            // A process that ended meanwhile accesses nothing more.
            if self.has_begun
                && let Ok(vmas) = census::accessed(process as u32)
            {
                let own = window_ranges.iter().filter(|window_range| window_range.process == process);
                vmas.iter().for_each(|vma| add(&mut self.heat.accessed_bytes, *vma, own.clone()));
            }
            let _ = clear(process);
        }
        self.heat.passes += u32::from(self.has_begun);
        self.has_begun = true;
        self.not_before = Some(now + 2 * now.elapsed());
    }
}

/// Adds what was accessed of a mapping `(first, end, accessed bytes)` to the windows that it has parts of.
fn add<'a>(
    windows: &mut [u64; Windows::COUNT as usize],
    (start, end, accessed): (u64, u64, u64),
    window_ranges: impl Iterator<Item = &'a WindowRange> + Clone,
) {
    let common = |window_range: &WindowRange| {
        let (from, bytes) = window_range.range;
        (from + bytes).min(end).saturating_sub(from.max(start))
    };
    let all: u64 = window_ranges.clone().map(common).sum();
    if accessed == 0 || all == 0 {
        return;
    }
    for window_range in window_ranges {
        let share = u128::from(accessed) * u128::from(common(window_range)) / u128::from(all);
        windows[window_range.window as usize] += share as u64;
    }
}

/// Clears the accessed bits of a process: 1 is for all of its pages (Documentation/filesystems/proc.rst).
#[expect(clippy::disallowed_methods, reason = "a file of /proc")]
fn clear(process: libc::pid_t) -> std::io::Result<()> {
    OpenOptions::new().write(true).open(format!("/proc/{process}/clear_refs"))?.write_all(b"1")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Private memory that no other mapping is merged with: pages without access are around it.
    fn mapped(bytes: usize) -> &'static mut [u8] {
        const AROUND: usize = 2 << 20;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping that lives as long as the process; the part in the middle is made accessible.
        unsafe {
            let start = libc::mmap(std::ptr::null_mut(), bytes + 2 * AROUND, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            let middle = start.byte_add(AROUND);
            assert_eq!(libc::mprotect(middle, bytes, libc::PROT_READ | libc::PROT_WRITE), 0);
            assert_eq!(libc::madvise(middle, bytes, libc::MADV_NOHUGEPAGE), 0);
            std::slice::from_raw_parts_mut(middle.cast(), bytes)
        }
    }

    #[test]
    fn a_window_that_is_not_accessed_is_cold() {
        // More pages than a TLB holds: the bit of a page whose entry stays in the TLB is not set again.
        const BYTES: usize = 64 << 20;
        let (hot, cold) = (mapped(BYTES), mapped(BYTES));
        let process = std::process::id() as libc::pid_t;
        let window_range =
            |memory: &[u8], window| WindowRange { process, range: (memory.as_ptr() as u64, BYTES as u64), window };
        let window_ranges = [window_range(hot, 3), window_range(cold, 5)];
        cold.fill(1);
        let mut witness = HeatWitness::default();
        while witness.heat.passes < 20 {
            hot.fill(1);
            witness.ticks(&window_ranges);
        }
        let heat = witness.heat();
        // A pass can come before the memory was written again.
        assert!(heat.accessed_bytes[3] >= 20 * BYTES as u64 / 2, "{heat:?}");
        assert_eq!(heat.accessed_bytes.iter().sum::<u64>(), heat.accessed_bytes[3], "{heat:?}");
    }

    #[test]
    fn accesses_to_a_mapping_are_divided_between_its_windows() {
        let window_range = |start, bytes, window| WindowRange { process: 1, range: (start, bytes), window };
        let window_ranges = [window_range(0, 100, 0), window_range(100, 300, 1), window_range(1000, 50, 2)];
        let mut windows = [0; 32];
        add(&mut windows, (0, 400, 40), window_ranges.iter());
        assert_eq!(windows[..3], [10, 30, 0]);
        add(&mut windows, (990, 1100, 7), window_ranges.iter());
        add(&mut windows, (5000, 6000, 7), window_ranges.iter());
        assert_eq!(windows[..3], [10, 30, 7]);
    }
}
