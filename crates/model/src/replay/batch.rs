//! The input of mergers (pieces of traces) and their output (batches of steps). A *run* is a range of pages that a thread accessed one
//! after the other.

use std::ops::Range;
use std::sync::Arc;

use trace::{Block, Chunk, Event, Timestamp};

use crate::layout::Change;

/// The runs of a block of the trace.
#[derive(Debug)]
pub(super) struct RunBlock {
    pub(super) chunk: Chunk,
    /// Instructions that the thread had executed at the end of the block, recorded or not.
    pub(super) instructions: u64,
}

/// A block in the form that mergers take.
#[derive(Clone, Debug)]
pub(super) enum TracePiece {
    Damaged(String),
    Events {
        thread: u32,
        events: Vec<Event>,
    },
    Runs {
        thread: u32,
        /// Index, within the thread, of the block's first run.
        first: u64,
        block: Arc<RunBlock>,
    },
    Timestamps(Arc<Vec<Timestamp>>),
}

impl From<Block> for TracePiece {
    fn from(block: Block) -> TracePiece {
        match block {
            Block::Damaged(damage) => {
                TracePiece::Damaged(format!("{} bytes at offset {}: {}", damage.bytes, damage.offset, damage.why))
            }
            Block::Events { thread, events, .. } => TracePiece::Events { thread, events },
            Block::Timestamps(timestamps) => TracePiece::Timestamps(Arc::new(timestamps)),
            Block::Runs { thread, first, instructions, chunk } => {
                TracePiece::Runs { thread, first, block: Arc::new(RunBlock { chunk, instructions }) }
            }
        }
    }
}

/// A step of the replay.
#[derive(Debug)]
pub(super) enum Step {
    Change(Change),
    /// The running process has forked `process`, which shares its memory or has a copy of it.
    Fork {
        process: u32,
        shares: bool,
    },
    /// The following steps belong to this process.
    Switch {
        process: u32,
    },
    /// A process has ended. The following steps belong to `next`.
    End {
        process: u32,
        next: u32,
    },
    /// The running process has executed a program that has a trace; the following steps belong to that program.
    Exec,
    /// The running process has forked a process without a trace.
    UnrecordedFork {
        shares: bool,
    },
    Runs {
        /// The merger's index of the thread.
        thread: usize,
        /// For each of the chunk's pages, its number in the order of first use.
        numbers: Arc<Vec<u32>>,
        block: Arc<RunBlock>,
        /// The runs of the block that this step replays.
        range: Range<usize>,
        /// Number of recorded instructions in the whole block.
        recorded: u64,
    },
}

/// Steps in order, and the pages that were numbered for the first time in this batch, in the order of their numbers.
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
