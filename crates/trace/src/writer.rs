//! [`Writer`] writes a trace as a stream: nothing that was written is changed later.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::block::{MAX_PAYLOAD_BYTES, PayloadKind, Prefix};
use crate::chunk::Chunk;
use crate::column::Encoder;
use crate::event::Event;
use crate::header::Header;
use crate::index::{IndexEntry, MAX_PLACES};
use crate::notes::Notes;
use crate::timestamp::{self, MAX_TIMESTAMPS, Timestamp};

/// The maximum number of events in one block.
const MAX_EVENTS: usize = 1 << 14;
/// The maximum bytes of events' text in one block. Each event may be of any length, but readers accept at most
/// [`MAX_PAYLOAD_BYTES`].
const MAX_EVENT_BYTES: usize = MAX_PAYLOAD_BYTES / 4;

/// Writes blocks, and finally the index.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    offset: u64,
    places: Vec<IndexEntry>,
    /// Number of runs and events of each thread so far. Thread numbers may have gaps, because a part of a trace keeps the
    /// numbers of the whole trace.
    counts: BTreeMap<u32, (u64, u64)>,
    /// Number of timestamps so far.
    timestamps: u64,
}

/// A state to which a [`Writer`] can return.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    offset: u64,
    places: usize,
    counts: BTreeMap<u32, (u64, u64)>,
    timestamps: u64,
}

impl<W: Write> Writer<W> {
    /// Starts a trace by writing its header.
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn new(to: W, header: &Header) -> io::Result<Writer<W>> {
        let mut writer = Writer { to, offset: 0, places: Vec::new(), counts: BTreeMap::new(), timestamps: 0 };
        let json = serde_json::to_vec(header)?;
        writer.block(PayloadKind::Header, 0, 0, 1, 0, &json)?;
        Ok(writer)
    }

    /// Continues a file at `offset`, where its blocks at `places` end. Only notes and the index can follow, because the numbers
    /// of the threads' runs and events are not known.
    pub(crate) fn resumed(to: W, offset: u64, places: Vec<IndexEntry>) -> Writer<W> {
        Writer { to, offset, places, counts: BTreeMap::new(), timestamps: 0 }
    }

    /// Writes notes. They must follow all other blocks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn notes(&mut self, notes: &Notes) -> io::Result<()> {
        self.block(PayloadKind::Notes, 0, 0, 1, 0, &serde_json::to_vec(notes)?)
    }

    /// Marks the runs of a thread up to `run` as lost, if fewer runs of it were written.
    pub fn skip_to(&mut self, thread: u32, run: u64) {
        let counts = self.counts(thread);
        counts.0 = counts.0.max(run);
    }

    /// How many runs and events of a thread were written.
    pub fn written(&self, thread: u32) -> (u64, u64) {
        self.counts.get(&thread).copied().unwrap_or_default()
    }

    /// Writes runs of a thread that had executed `instructions` instructions when the last of them ended.
    ///
    /// # Errors
    /// The file cannot be written, or the compressor fails.
    pub fn runs(&mut self, thread: u32, chunk: &Chunk, instructions: u64) -> io::Result<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        self.encoded_runs(thread, chunk.len() as u32, &chunk.encode()?, instructions)
    }

    /// Writes `runs` runs of a thread that [`Chunk::encode`] has encoded. Recorders whose threads share a writer use it
    /// to compress outside the lock.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn encoded_runs(&mut self, thread: u32, runs: u32, payload: &[u8], instructions: u64) -> io::Result<()> {
        if runs == 0 {
            return Ok(());
        }
        let first = self.written(thread).0;
        self.block(PayloadKind::Runs, thread, first, runs, instructions, payload)?;
        self.counts(thread).0 += u64::from(runs);
        Ok(())
    }

    /// Writes events of a thread. They must precede the later runs in the file, so that a reader that reads once knows
    /// the memory that runs touch.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn events(&mut self, thread: u32, events: &[Event], instructions: u64) -> io::Result<()> {
        for part in events.chunks(MAX_EVENTS) {
            self.events_of_a_block(thread, part, instructions)?;
        }
        Ok(())
    }

    /// Writes events as one block, or as several if their text is long.
    fn events_of_a_block(&mut self, thread: u32, events: &[Event], instructions: u64) -> io::Result<()> {
        let json = serde_json::to_vec(events)?;
        if json.len() > MAX_EVENT_BYTES && events.len() > 1 {
            let (first, rest) = events.split_at(events.len() / 2);
            self.events_of_a_block(thread, first, instructions)?;
            return self.events_of_a_block(thread, rest, instructions);
        }
        let mut payload = Vec::new();
        Encoder::new()?.column(&json, &mut payload)?;
        let first = self.written(thread).1;
        self.block(PayloadKind::Events, thread, first, events.len() as u32, instructions, &payload)?;
        self.counts(thread).1 += events.len() as u64;
        Ok(())
    }

    /// Writes timestamps, which must be ordered by time and not earlier than those already written. They must precede
    /// the later events and runs in the file.
    ///
    /// # Errors
    /// The file cannot be written, or the compressor fails.
    pub fn timestamps(&mut self, timestamps: &[Timestamp]) -> io::Result<()> {
        for part in timestamps.chunks(MAX_TIMESTAMPS) {
            let (mut column, mut payload) = (Vec::new(), Vec::new());
            timestamp::push(&mut column, part);
            Encoder::new()?.column(&column, &mut payload)?;
            self.block(PayloadKind::Timestamps, 0, self.timestamps, part.len() as u32, 0, &payload)?;
            self.timestamps += part.len() as u64;
        }
        Ok(())
    }

    /// Writes the index and returns the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.index()?;
        Ok(self.to)
    }

    /// Writes the index, after which the file is complete. To continue writing, rewind first.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn index(&mut self) -> io::Result<()> {
        let (offset, all) = (self.offset, self.places.len());
        for first in (0..all).step_by(MAX_PLACES) {
            let part = &self.places[first..all.min(first + MAX_PLACES)];
            let payload: Vec<u8> = part.iter().flat_map(|place| place.to_bytes()).collect();
            self.block(PayloadKind::Index, 0, first as u64, part.len() as u32, 0, &payload)?;
        }
        // A reader that can seek finds the index by this offset.
        self.to.write_all(&offset.to_le_bytes())?;
        self.to.flush()
    }

    /// The state to which [`Writer::rewind`] returns, for programs that may or may not end here, as in `execve`.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            offset: self.offset,
            places: self.places.len(),
            counts: self.counts.clone(),
            timestamps: self.timestamps,
        }
    }

    /// Discards what was written since a checkpoint. Returns the offset at which the caller must truncate the file.
    pub fn rewind(&mut self, checkpoint: Checkpoint) -> u64 {
        self.places.truncate(checkpoint.places);
        (self.counts, self.timestamps) = (checkpoint.counts, checkpoint.timestamps);
        self.offset = checkpoint.offset;
        self.offset
    }

    /// The underlying file.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.to
    }

    fn counts(&mut self, thread: u32) -> &mut (u64, u64) {
        self.counts.entry(thread).or_default()
    }

    fn block(
        &mut self,
        payload_kind: PayloadKind,
        thread: u32,
        first: u64,
        count: u32,
        instructions: u64,
        payload: &[u8],
    ) -> io::Result<()> {
        let payload_bytes = u32::try_from(payload.len()).map_err(io::Error::other)?;
        let payload_crc = crc32fast::hash(payload);
        let number = self.places.len() as u64;
        let prefix = Prefix { payload_kind, thread, number, first, count, payload_bytes, instructions, payload_crc };
        let bytes = prefix.to_bytes();
        self.to.write_all(&bytes)?;
        self.to.write_all(payload)?;
        self.places.push(IndexEntry { offset: self.offset, prefix });
        self.offset += (bytes.len() + payload.len()) as u64;
        Ok(())
    }
}
