//! A thread of a recorded program: its blocks and events that were read but not replayed yet.

use std::collections::VecDeque;
use std::sync::Arc;

use trace::{Call, Chunk, Event, PAGE_SHIFT, Windows};

use super::batch::RunBlock;
use crate::layout::{changed, may_have_part};

/// How many runs after a call are searched for the first use of a new mapping.
const FIRST_RUNS: usize = 1 << 12;
/// The search ends after this many pages of the mapping.
const FIRST_PAGES: usize = 2;

/// A block that was read but not completely replayed yet.
#[derive(Debug)]
pub(super) struct PendingBlock {
    /// The number of its first run.
    pub(super) first: u64,
    pub(super) block: Arc<RunBlock>,
    /// Number of recorded instructions in it.
    pub(super) instructions: u64,
}

/// A thread of the program, with the blocks and events that were not replayed yet.
#[derive(Debug, Default)]
pub(super) struct Thread {
    pub(super) blocks: VecDeque<PendingBlock>,
    pub(super) windows: Windows,
    pub(super) events: VecDeque<Event>,
    /// The numbers (`Numbers`) of the first block's pages, and how many of `ThreadMerger::moved_ranges` had been applied to them.
    pub(super) numbers: Option<(Arc<Vec<u32>>, usize)>,
    /// Number of replayed runs of the first block.
    pub(super) replayed_runs: usize,
    /// The number of the run after the last replayed one.
    pub(super) next_run: u64,
    /// Number of replayed events.
    pub(super) replayed_events: u64,
    /// The positions of timestamps that have not been passed: the number of runs and of events before each.
    pub(super) timestamps: VecDeque<(u64, u64)>,
}

impl Thread {
    /// The number of the next run. It is larger than `next_run` if runs before the first block are missing.
    pub(super) fn position(&self) -> u64 {
        let first = self.blocks.front().map(|pending| pending.first.saturating_add(self.replayed_runs as u64));
        first.unwrap_or(self.next_run)
    }

    /// Whether the thread has reached its next timestamp.
    pub(super) fn is_at_timestamp(&self) -> bool {
        self.timestamps.front().is_some_and(|(run, event)| *run <= self.position() && *event <= self.replayed_events)
    }

    /// Whether its next block or event has been read.
    pub(super) fn has_next(&self) -> bool {
        !self.blocks.is_empty() || self.events.front().is_some_and(|event| event.run <= self.next_run)
    }

    /// The addresses of the pages of a new mapping that the thread touches first, in order, before another call changes the mapping.
    /// Empty if the mapping has no room for an aligned part (`layout::aligned`). Only runs that were read are searched.
    pub(super) fn first_touched(&self, event: &Event) -> Vec<u64> {
        let mut touched = Vec::new();
        let Some((begin, end)) = aligned_candidate(event) else { return touched };
        let changes_mapping = |later: &&Event| changed(later).is_some_and(|(from, to)| from < end && begin < to);
        let end_run = self.events.iter().find(changes_mapping).map_or(u64::MAX, |later| later.run);
        for address in self.next_addresses(end_run).take(FIRST_RUNS) {
            if (begin..end).contains(&address) && touched.last() != Some(&address) {
                touched.push(address);
            }
            if touched.len() == FIRST_PAGES {
                break;
            }
        }
        touched
    }

    /// The addresses of the pages of the next runs, before the run with this number.
    fn next_addresses(&self, end_run: u64) -> impl Iterator<Item = u64> + '_ {
        self.blocks.iter().enumerate().flat_map(move |(at, block)| {
            let Chunk { pages, ids, .. } = &block.block.chunk;
            let replayed = if at == 0 { self.replayed_runs } else { 0 };
            let limit = end_run.saturating_sub(block.first).min(ids.len() as u64) as usize;
            ids[replayed..limit.max(replayed)].iter().map(|id| pages[usize::from(*id)] << PAGE_SHIFT)
        })
    }
}

/// The recorded range of a new mapping that has room for an aligned part.
fn aligned_candidate(event: &Event) -> Option<(u64, u64)> {
    match event.call {
        Call::Mmap { bytes, flags, .. } if may_have_part(bytes, flags) => changed(event),
        _ => None,
    }
}
