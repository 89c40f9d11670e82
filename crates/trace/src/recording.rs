//! [`Recording`] writes accesses and events to a file. Every recorder and importer ends here.

use std::io::{self, Write};

use crate::access::Access;
use crate::builder::Builder;
use crate::event::{Call, Event};
use crate::header::Header;
use crate::run::{Kind, PAGE_SHIFT};
use crate::runs::Runs;
use crate::timestamp::Timestamp;
use crate::writer::Writer;

/// Number of runs of a thread that are collected before they are added to a chunk.
const PENDING: usize = 4096;
/// Number of accesses of a thread that are collected before they are added to a chunk. It is less than the number that a run
/// can count.
const PENDING_ACCESSES: u64 = 1 << 30;
/// As [`PENDING_ACCESSES`], if addresses are kept.
const PENDING_ADDRESSES: u64 = 1 << 16;

/// A trace that is being written, thread by thread. It holds one chunk per thread and nothing that grows with the trace.
#[derive(Debug)]
pub struct Recording<W> {
    writer: Writer<W>,
    header: Header,
    threads: Vec<Thread>,
    /// Number of events of all threads so far.
    events: u64,
    /// Timestamps that are not written yet.
    timestamps: Vec<Timestamp>,
}

#[derive(Debug)]
struct Thread {
    runs: Runs,
    /// Number of accesses in `runs`.
    pending: u64,
    addresses: Vec<Access>,
    /// The chunk so far; `None` until the first runs are collected, so that threads with few runs need little memory.
    builder: Option<Builder>,
    /// Number of runs taken from `runs` so far.
    taken: u64,
    instructions: u64,
    events: Vec<Event>,
}

impl Thread {
    fn new(header: &Header) -> Thread {
        let runs = if header.columns.addresses { Runs::in_sequence(PENDING) } else { Runs::new(PENDING) };
        Thread { runs, pending: 0, addresses: Vec::new(), builder: None, taken: 0, instructions: 0, events: Vec::new() }
    }
}

impl<W: Write> Recording<W> {
    /// Starts a trace.
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn new(to: W, header: Header) -> io::Result<Recording<W>> {
        Ok(Recording {
            writer: Writer::new(to, &header)?,
            header,
            threads: Vec::new(),
            events: 0,
            timestamps: Vec::new(),
        })
    }

    /// Adds an access of `bytes` bytes. An access that crosses pages counts as one to each page. `kind` is one bit, or
    /// [`Kind::MODIFY`].
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn access(&mut self, thread: u32, address: u64, bytes: u32, kind: Kind) -> io::Result<()> {
        let keeps = self.header.columns.addresses;
        let max_pending = if keeps { PENDING_ADDRESSES } else { PENDING_ACCESSES };
        let last = address.saturating_add(u64::from(bytes.max(1)) - 1);
        for page in address >> PAGE_SHIFT..=last >> PAGE_SHIFT {
            let state = self.thread(thread);
            if state.pending >= max_pending || !state.runs.has_room(1) {
                self.collect(thread)?;
            }
            let state = self.thread(thread);
            let begin = address.max(page << PAGE_SHIFT);
            state.runs.access(begin, kind);
            state.pending += 1;
            if keeps {
                let end = last.min(page << PAGE_SHIFT | 0xfff);
                let bytes = (end - begin + 1) as u32;
                state.addresses.push(Access::new((begin & 0xfff) as u16, bytes, kind == Kind::STORE));
            }
        }
        Ok(())
    }

    /// Adds to the number of instructions that a thread has executed.
    pub fn instructions(&mut self, thread: u32, count: u64) {
        self.thread(thread).instructions += count;
    }

    /// Adds an address-space event after all accesses so far. The current runs end before it.
    pub fn event(&mut self, thread: u32, call: Call, result: i64) {
        let order = self.events;
        self.events += 1;
        let state = self.thread(thread);
        state.runs.end();
        let run = state.taken + state.runs.len() as u64;
        state.events.push(Event { run, order, call, result });
    }

    /// Records when a thread reached its next run or event. Times must not decrease, across all threads.
    pub fn timestamp(&mut self, thread: u32, time_ns: u64) {
        let (_, written) = self.writer.written(thread);
        let state = self.thread(thread);
        let (run, event) = (state.taken + state.runs.len() as u64, written + state.events.len() as u64);
        self.timestamps.push(Timestamp { thread, run, event, time_ns });
    }

    /// Writes all pending data and the index, and returns the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        for thread in 0..self.threads.len() as u32 {
            self.collect(thread)?;
            self.write(thread)?;
            self.threads[thread as usize].builder = None;
        }
        self.writer.finish()
    }

    fn thread(&mut self, thread: u32) -> &mut Thread {
        let index = thread as usize;
        while self.threads.len() <= index {
            self.threads.push(Thread::new(&self.header));
        }
        &mut self.threads[index]
    }

    /// Moves the pending runs of a thread to its chunk.
    fn collect(&mut self, thread: u32) -> io::Result<()> {
        let index = thread as usize;
        let state = &mut self.threads[index];
        let (runs, addresses) = (state.runs.finished().to_vec(), std::mem::take(&mut state.addresses));
        state.runs.clear();
        state.pending = 0;
        state.taken += runs.len() as u64;
        let mut rest = &addresses[..];
        for run in runs {
            let kept = if rest.is_empty() { 0 } else { run.accesses as usize };
            if self.builder(index).is_full(kept) {
                self.write(thread)?;
            }
            let (of_run, after) = rest.split_at(kept);
            rest = after;
            self.builder(index).push(run, of_run);
        }
        Ok(())
    }

    fn builder(&mut self, index: usize) -> &mut Builder {
        self.threads[index].builder.get_or_insert_with(|| Builder::new(self.header.columns))
    }

    /// Writes a thread's events and then its chunk, so that a reader knows the memory that the runs touch.
    fn write(&mut self, thread: u32) -> io::Result<()> {
        let state = &mut self.threads[thread as usize];
        let events = std::mem::take(&mut state.events);
        let chunk = state.builder.as_mut().map(Builder::take).unwrap_or_default();
        self.writer.timestamps(&std::mem::take(&mut self.timestamps))?;
        self.writer.events(thread, &events, state.instructions)?;
        self.writer.runs(thread, &chunk, state.instructions)
    }
}
