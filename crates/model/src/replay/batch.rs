//! What feeders take, and what they make of it: steps in one order.

use std::ops::Range;
use std::sync::Arc;

use trace::{Block, Chunk, Event, Timestamp};

use crate::layout::Change;

/// Runs of a block.
#[derive(Debug)]
pub(super) struct Runs {
    pub(super) chunk: Chunk,
    pub(super) instructions: u64,
}

/// A block, as each feeder takes it.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Damaged(String),
    Events {
        thread: u32,
        events: Vec<Event>,
    },
    Runs {
        thread: u32,
        /// The number of the first run.
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

/// What happens next.
#[derive(Debug)]
pub(super) enum Step {
    Change(Change),
    /// The process that runs has forked another one, which has a number; or it shares the memory.
    Fork {
        process: u32,
        shares: bool,
    },
    /// What comes next is of this process.
    Switch {
        process: u32,
    },
    /// One has ended, and what comes next is of another.
    End {
        process: u32,
        next: u32,
    },
    /// The running process executes another program, which runs.
    Exec,
    /// A process was forked of which there is no trace.
    Missing {
        shares: bool,
    },
    Runs {
        thread: usize,
        /// The numbers of the block's pages.
        numbers: Arc<Vec<u32>>,
        block: Arc<Runs>,
        range: Range<usize>,
        /// Instructions that were recorded in the whole block.
        recorded: u64,
    },
}

/// Steps in their order, and the pages that they are the first to touch.
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
