//! [`FirstTouches`]: which code first touched the memory of a program, or mapped it.

use std::collections::BTreeMap;

use crate::size::PageSize;

/// Memory by the functions that first touched it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstTouches {
    /// How they were found.
    pub source: Source,
    /// The call stacks, the one with the most memory first.
    pub stacks: Vec<Stack>,
}

/// How call stacks were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Page faults, by perf.
    PageFaults(Sampling),
    /// The calls that mapped the memory. It may have been touched elsewhere.
    MappingCalls {
        /// Why page faults could not be seen.
        why: String,
    },
}

/// Which of the page faults were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// All page faults of the program; `None` where the counter could not be read.
    pub faults: Option<u64>,
    /// Those that were seen, and were on pages that were not present.
    pub seen: u64,
    /// Those whose whole stack was copied.
    pub whole_stacks: u64,
    /// Those that the kernel dropped, because its buffer was full.
    pub lost: u64,
    /// Whether faults that the kernel had on behalf of the program were seen, for example in read(2).
    pub includes_kernel: bool,
}

/// Memory with the same call stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Names: the process, then its functions, the outermost first.
    pub frames: Vec<String>,
    /// Bytes by the size of the leaves that map the memory.
    pub leaves: BTreeMap<PageSize, u64>,
}

impl Stack {
    /// All its memory, in bytes.
    pub fn bytes(&self) -> u64 {
        self.leaves.values().sum()
    }
}

impl FirstTouches {
    /// All memory, in bytes.
    pub fn bytes(&self) -> u64 {
        self.stacks.iter().map(Stack::bytes).sum()
    }
}
