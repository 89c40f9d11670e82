//! [`Heap`]: the heap that brk(2) grows, as the program sees it and as the kernel has it.
//!
//! malloc grows the heap by 132K at a time and touches each part at once, so a whole slot is never free for a large page. Under a
//! policy of large pages the kernel's heap therefore grows in steps of the policy's page size, ahead of the program's heap.
//! Memory between the two ends has never been touched, so it reads as zero when the program's heap reaches it, as brk promises.

use crate::size::PageSize;

/// The two ends of a heap. They are unknown until the first call of brk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heap {
    /// The first address of the heap.
    start: u64,
    /// The end that the program was given.
    program_end: u64,
    /// The end that the kernel has; at least `program_end`.
    kernel_end: u64,
}

/// How a call of brk is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Answer with this end; no call is needed.
    Answer {
        /// The end that the program receives.
        end: u64,
    },
    /// Ask the kernel for the end `wanted`; if it refuses, for `asked`.
    Grow {
        /// The end to request first.
        wanted: u64,
        /// The end that the program requested.
        asked: u64,
    },
    /// Pass the call on unchanged.
    Pass,
}

impl Heap {
    /// How to handle a brk to `asked` when the heap grows in steps of `step`.
    pub fn step(&self, asked: u64, step: PageSize) -> Step {
        match asked {
            _ if self.start == 0 => Step::Pass,
            _ if asked < self.start => Step::Answer { end: self.program_end }, // a query
            _ if asked < self.program_end => Step::Pass,                       // the heap shrinks
            _ if asked <= self.kernel_end => Step::Answer { end: asked },
            _ => Step::Grow { wanted: step.align_up(asked).unwrap_or(asked), asked },
        }
    }

    /// Records the end that the program was given.
    pub fn record_answer(&mut self, end: u64) {
        self.program_end = end;
    }

    /// Records that a call was passed on and that the kernel's heap now ends at `end`.
    pub fn record_pass(&mut self, end: u64) {
        let start = if self.start == 0 { end } else { self.start };
        *self = Heap { start, program_end: end, kernel_end: end };
    }

    /// Records that the kernel was asked for a larger heap, which now ends at `end`. Returns the end to give to the program and,
    /// where the kernel's heap grew, the new range.
    pub fn record_growth(&mut self, asked: u64, end: u64) -> (u64, Option<(u64, u64)>) {
        let old = std::mem::replace(&mut self.kernel_end, end);
        if end >= asked {
            self.program_end = asked;
        }
        (self.program_end, (end > old).then_some((old, end)))
    }

    /// Whether the ends of the heap are known.
    pub fn is_known(&self) -> bool {
        self.start != 0
    }

    /// The range that the kernel unmaps when the heap is to end at `asked`; `None` where the heap does not shrink.
    pub fn unmapped_range(&self, asked: u64) -> Option<(u64, u64)> {
        (self.start..self.program_end).contains(&asked).then_some((asked, self.kernel_end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_heap_runs_ahead_in_whole_steps() {
        let heap = Heap { start: 0x1000, program_end: 0x1000, kernel_end: 0x1000 };
        assert_eq!(Heap::default().step(0, PageSize::M2), Step::Pass);
        assert_eq!(heap.step(0, PageSize::M2), Step::Answer { end: 0x1000 });
        assert_eq!(heap.step(0x22000, PageSize::M2), Step::Grow { wanted: 0x200000, asked: 0x22000 });
        let grown = Heap { program_end: 0x22000, kernel_end: 0x200000, ..heap };
        assert_eq!(grown.step(0x44000, PageSize::M2), Step::Answer { end: 0x44000 });
        assert_eq!(grown.step(0x21000, PageSize::M2), Step::Pass);
        assert_eq!(grown.step(0, PageSize::M2), Step::Answer { end: 0x22000 });
        assert_eq!((grown.unmapped_range(0x21000), grown.unmapped_range(0x22000)), (Some((0x21000, 0x200000)), None));
        assert_eq!((grown.unmapped_range(0), Heap::default().unmapped_range(0x21000)), (None, None));
    }
}
