//! The input of feeders, and their output: steps in one order.

use std::ops::Range;
use std::sync::Arc;

use trace::{Block, Chunk, Event, Timestamp};

use crate::layout::Change;

/// The runs of a block.
#[derive(Debug)]
pub(super) struct Runs {
    pub(super) chunk: Chunk,
    pub(super) instructions: u64,
}

/// A block in the form that feeders take.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Damaged(String),
    Events {
        thread: u32,
        events: Vec<Event>,
    },
    Runs {
        thread: u32,
        /// The number of the first run in its thread.
        first: u64,
        block: Arc<Runs>,
    },
    Timestamps(Arc<Vec<Timestamp>>),
}

impl From<Block> for Part {
    fn from(block: Block) -> Part {
        match block {
            Block::Damaged(damage) => {
                Part::Damaged(format!("{} bytes at offset {}: {}", damage.bytes, damage.offset, damage.why))
            }
            Block::Events { thread, events, .. } => Part::Events { thread, events },
            Block::Timestamps(timestamps) => Part::Timestamps(Arc::new(timestamps)),
            Block::Runs { thread, first, instructions, chunk } => {
                Part::Runs { thread, first, block: Arc::new(Runs { chunk, instructions }) }
            }
        }
    }
}

/// The next step of the replay.
#[derive(Debug)]
pub(super) enum Step {
    Change(Change),
    /// The running process has forked the process `process`, with a copy of its memory or sharing it.
    Fork {
        process: u32,
        shares: bool,
    },
    /// The following steps are of this process.
    Switch {
        process: u32,
    },
    /// The process `process` has ended, and the following steps are of `next`.
    End {
        process: u32,
        next: u32,
    },
    /// The running process executes another program, which continues to run.
    Exec,
    /// A process was forked whose trace does not exist.
    Missing {
        shares: bool,
    },
    Runs {
        thread: usize,
        /// The numbers of the block's pages.
        numbers: Arc<Vec<u32>>,
        block: Arc<Runs>,
        range: Range<usize>,
        /// Number of instructions that were recorded in the whole block.
        recorded: u64,
    },
}

/// Steps in their order, and the pages that they touch for the first time.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) pages: Vec<u64>,
    pub(super) steps: Vec<Step>,
}

impl Batch {
    pub(super) fn of(step: Step) -> Batch {
        Batch { pages: Vec::new(), steps: vec![step] }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.steps.is_empty()
    }
}
