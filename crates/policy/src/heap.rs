//! The heap that brk(2) grows, as the program sees it and as the kernel has it.
//!
//! malloc grows the heap by 132K at a time and touches each part at once, so that no large page ever
//! fits a whole slot of it. Under a policy of large pages the kernel's heap therefore grows in steps of
//! the policy's page size, ahead of the program's. What lies between the two ends has never been
//! touched, so it reads as zero when the program gets there, as brk promises.

use crate::size::PageSize;

/// The two ends of a heap. Unknown until the first call of brk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heap {
    /// Where it begins.
    start: u64,
    /// What the program was told.
    program_end: u64,
    /// What the kernel was told; at least `program_end`.
    kernel_end: u64,
}

/// What a call of brk comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Answer with this end; nothing to do.
    Answer {
        /// The end.
        end: u64,
    },
    /// Ask the kernel for the first end; if it refuses, for what the program asked.
    Grow {
        /// The end that the heap is to have.
        wanted: u64,
        /// The end that the program asked for.
        asked: u64,
    },
    /// Pass the call on as it is.
    Pass,
}

impl Heap {
    /// What a call of brk comes to, where the heap grows in steps of `step`.
    pub fn step(&self, asked: u64, step: PageSize) -> Step {
        match asked {
            _ if self.start == 0 => Step::Pass,
            _ if asked < self.start => Step::Answer { end: self.program_end }, // a query
            _ if asked < self.program_end => Step::Pass,                       // the heap shrinks
            _ if asked <= self.kernel_end => Step::Answer { end: asked },
            _ => Step::Grow { wanted: step.align_up(asked).unwrap_or(asked), asked },
        }
    }

    /// The program was told this end.
    pub fn answered(&mut self, end: u64) {
        self.program_end = end;
    }

    /// The call was passed on, and the kernel's heap ends here now.
    pub fn passed(&mut self, end: u64) {
        let start = if self.start == 0 { end } else { self.start };
        *self = Heap { start, program_end: end, kernel_end: end };
    }

    /// The kernel was asked for a larger heap, which ends here now. Returns what the program is told and, where the kernel's
    /// heap grew, the new range.
    pub fn grown(&mut self, asked: u64, end: u64) -> (u64, Option<(u64, u64)>) {
        let old = std::mem::replace(&mut self.kernel_end, end);
        if end >= asked {
            self.program_end = asked;
        }
        (self.program_end, (end > old).then_some((old, end)))
    }

    /// Whether its ends are known.
    pub fn is_known(&self) -> bool {
        self.start != 0
    }

    /// What the kernel unmaps when the heap is to end at `asked`; `None` where it does not shrink.
    pub fn cut_at(&self, asked: u64) -> Option<(u64, u64)> {
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
        assert_eq!((grown.cut_at(0x21000), grown.cut_at(0x22000)), (Some((0x21000, 0x200000)), None));
        assert_eq!((grown.cut_at(0), Heap::default().cut_at(0x21000)), (None, None));
    }
}
