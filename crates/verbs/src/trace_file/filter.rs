//! `pagelab trace cut --most-recent`: removes runs that make no difference to any LRU TLB ([`Filtered`]).
//!
//! Runs keep their numbers. The runs between two events become a block of their own, which starts with the number of its
//! first run, so that events keep their position among the runs.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};

use trace::{Builder, Chunk, Columns, Encoder, Event, LruFilter, Writer};

/// A block with more events than this is copied unchanged: it would be divided into blocks of few runs, which need more space
/// than the removed runs save.
const MAX_EVENTS: usize = 64;

/// Where a block is in its thread and in the output.
pub struct BlockPosition {
    /// The thread of its runs.
    pub thread: u32,
    /// The number of its first run in the input.
    pub first: u64,
    /// The number of its first run in the output.
    pub number: u64,
    /// Instructions of the thread at the end of the previous block.
    pub before: u64,
    /// Instructions of the thread at the end of this block.
    pub instructions: u64,
}

/// The result of filtering a block.
#[derive(Debug, Default)]
pub struct FilteredBlock {
    /// The number of removed runs.
    pub left_out: u64,
    /// The number of written blocks.
    pub blocks: u64,
}

/// A filter, and the encoder for its output.
pub struct Filtered {
    filter: LruFilter,
    /// For each thread, the numbers of the runs that events precede. At these points memory may have been remapped.
    changes: HashMap<u32, VecDeque<u64>>,
    builder: Builder,
    encoder: Encoder,
    bytes: Vec<u8>,
}

impl Filtered {
    pub fn new(columns: Columns) -> io::Result<Filtered> {
        Ok(Filtered {
            filter: LruFilter::default(),
            changes: HashMap::new(),
            builder: Builder::new(columns),
            encoder: Encoder::new()?,
            bytes: Vec::new(),
        })
    }

    /// Records the positions of a thread's events among its runs.
    pub fn events(&mut self, thread: u32, events: &[Event]) {
        let changes = self.changes.entry(thread).or_default();
        for event in events {
            if changes.back() != Some(&event.run) {
                changes.push_back(event.run);
            }
        }
    }

    /// Filters and writes a block.
    pub fn write<W: Write>(
        &mut self,
        writer: &mut Writer<W>,
        place: &BlockPosition,
        chunk: &Chunk,
    ) -> io::Result<FilteredBlock> {
        let ends = self.ends(place, chunk.len());
        if ends.len() > MAX_EVENTS {
            self.filter.forget();
            writer.skip_to(place.thread, place.number);
            writer.runs(place.thread, chunk, place.instructions)?;
            return Ok(FilteredBlock { left_out: 0, blocks: 1 });
        }
        let (mut runs, mut addresses) = (chunk.runs().enumerate(), &chunk.addresses[..]);
        let (mut start, mut written) = (0, FilteredBlock::default());
        for end in ends {
            for (index, run) in runs.by_ref().take(end - start) {
                let run_addresses = if chunk.addresses.is_empty() { 0 } else { run.accesses as usize };
                let (run_addresses, rest) = addresses.split_at(run_addresses);
                addresses = rest;
                // The last run of a block is kept, because it carries the block's instruction count.
                if self.filter.keeps(place.thread, &run) || index + 1 == chunk.len() {
                    self.builder.push(run, run_addresses);
                } else {
                    written.left_out += 1;
                }
            }
            writer.skip_to(place.thread, place.number.saturating_add(start as u64));
            // The trace does not record how many instructions were executed at an event within a block, so the count at
            // the block's beginning is used.
            let instructions = if end == chunk.len() { place.instructions } else { place.before };
            self.bytes.clear();
            let runs = self.builder.encode(&mut self.encoder, &mut self.bytes)?;
            writer.encoded_runs(place.thread, runs as u32, &self.bytes, instructions)?;
            written.blocks += u64::from(runs > 0);
            if end < chunk.len() {
                self.filter.forget();
            }
            start = end;
        }
        Ok(written)
    }

    /// Where events divide a block of `runs` runs, and where the block ends.
    fn ends(&mut self, place: &BlockPosition, runs: usize) -> Vec<usize> {
        let end = place.first.saturating_add(runs as u64);
        let mut ends = Vec::new();
        let changes = self.changes.entry(place.thread).or_default();
        while let Some(run) = changes.front().copied().filter(|run| *run < end) {
            changes.pop_front();
            match run.checked_sub(place.first) {
                Some(index) if index > 0 => ends.push(index as usize),
                _ => self.filter.forget(),
            }
        }
        // In an untrusted file, events may be in any order.
        ends.push(runs);
        ends.sort_unstable();
        ends.dedup();
        ends
    }
}
