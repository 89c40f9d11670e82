//! `pagelab trace cut --most-recent`: blocks without the runs that no TLB notices.
//!
//! Runs keep their numbers: what stands between two events is a block of its own, that begins with the number which its
//! first run had, so that events stay where they are among the runs.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};

use trace::{Builder, Chunk, Columns, Encoder, Event, LruFilter, Writer};

/// Events within a block up to which it is divided; beyond, it is kept as it is. Blocks of few runs take more than the runs
/// that are left out of them.
const MOST_EVENTS: usize = 64;

/// Where a block stands.
pub struct Place {
    /// The thread that its runs are of.
    pub thread: u32,
    /// The number of its first run in what is read.
    pub first: u64,
    /// That in what is written.
    pub number: u64,
    /// Instructions of the thread when the block before ended.
    pub before: u64,
    /// Instructions of the thread when it ended.
    pub instructions: u64,
}

/// What became of a block.
#[derive(Debug, Default)]
pub struct Written {
    /// Runs that were left out.
    pub left_out: u64,
    /// Blocks that were written.
    pub blocks: u64,
}

/// A filter, and what it needs to write what it leaves.
pub struct Filtered {
    filter: LruFilter,
    /// Runs of each thread before which events stand: memory may be another one.
    changes: HashMap<u32, VecDeque<u64>>,
    builder: Builder,
    encoder: Encoder,
    bytes: Vec<u8>,
}

impl Filtered {
    /// # Errors
    /// The compressor has no memory.
    pub fn new(columns: Columns) -> io::Result<Filtered> {
        Ok(Filtered {
            filter: LruFilter::default(),
            changes: HashMap::new(),
            builder: Builder::new(columns),
            encoder: Encoder::new()?,
            bytes: Vec::new(),
        })
    }

    /// Notes where events of a thread stand among its runs.
    pub fn events(&mut self, thread: u32, events: &[Event]) {
        let changes = self.changes.entry(thread).or_default();
        for event in events {
            if changes.back() != Some(&event.run) {
                changes.push_back(event.run);
            }
        }
    }

    /// Writes what is left of a block.
    ///
    /// # Errors
    /// Those of the file and of the compressor.
    pub fn write<W: Write>(&mut self, writer: &mut Writer<W>, place: &Place, chunk: &Chunk) -> io::Result<Written> {
        let ends = self.ends(place, chunk.len());
        if ends.len() > MOST_EVENTS {
            self.filter.forget();
            writer.skip_to(place.thread, place.number);
            writer.runs(place.thread, chunk, place.instructions)?;
            return Ok(Written { left_out: 0, blocks: 1 });
        }
        let (mut runs, mut addresses) = (chunk.runs().enumerate(), &chunk.addresses[..]);
        let (mut start, mut written) = (0, Written::default());
        for end in ends {
            for (index, run) in runs.by_ref().take(end - start) {
                let own = if chunk.addresses.is_empty() { 0 } else { run.accesses as usize };
                let (own, rest) = addresses.split_at(own);
                addresses = rest;
                // The last run of a block tells its instructions.
                if self.filter.keeps(place.thread, &run) || index + 1 == chunk.len() {
                    self.builder.push(run, own);
                } else {
                    written.left_out += 1;
                }
            }
            writer.skip_to(place.thread, place.number.saturating_add(start as u64));
            // Where the thread was at an event within the block the trace does not say.
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

    /// Where the stretches of a block of `runs` runs end, at events and at last its own end.
    fn ends(&mut self, place: &Place, runs: usize) -> Vec<usize> {
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
        // In a file from anywhere they stand in any order.
        ends.push(runs);
        ends.sort_unstable();
        ends.dedup();
        ends
    }
}
