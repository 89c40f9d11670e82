//! From accesses and events to a file: what every recorder and importer does in the end.

use std::io::{self, Write};

use crate::access::Access;
use crate::builder::Builder;
use crate::event::{Call, Event};
use crate::header::Header;
use crate::run::{Kind, PAGE_SHIFT};
use crate::runs::Runs;
use crate::timestamp::Timestamp;
use crate::writer::Writer;

/// Runs of a thread that are collected before they go into a chunk.
const PENDING: usize = 4096;
/// Accesses of a thread that are collected before they go into a chunk, which is fewer than a run can count.
const PENDING_ACCESSES: u64 = 1 << 30;
/// The same where addresses are kept.
const PENDING_ADDRESSES: u64 = 1 << 16;

/// A trace that is being made, thread by thread. It holds a chunk for each thread and nothing that grows with the trace.
#[derive(Debug)]
pub struct Recording<W> {
    writer: Writer<W>,
    header: Header,
    threads: Vec<Thread>,
    /// Of all threads, so far.
    events: u64,
    /// Those that are not written yet.
    timestamps: Vec<Timestamp>,
}

#[derive(Debug)]
struct Thread {
    runs: Runs,
    /// How many accesses they have.
    pending: u64,
    addresses: Vec<Access>,
    /// The chunk so far; none before the first runs are collected, so that threads that do little take little.
    builder: Option<Builder>,
    /// Runs that were taken from `runs` so far.
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
    /// Begins a trace.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn new(to: W, header: Header) -> io::Result<Recording<W>> {
        Ok(Recording {
            writer: Writer::new(to, &header)?,
            header,
            threads: Vec::new(),
            events: 0,
            timestamps: Vec::new(),
        })
    }

    /// Adds an access of `bytes` bytes; one that crosses pages is one to each of them. `kind` is one bit, or
    /// [`Kind::MODIFY`].
    ///
    /// # Errors
    /// Those of the file.
    pub fn access(&mut self, thread: u32, address: u64, bytes: u32, kind: Kind) -> io::Result<()> {
        let keeps = self.header.columns.addresses;
        let most = if keeps { PENDING_ADDRESSES } else { PENDING_ACCESSES };
        let last = address.saturating_add(u64::from(bytes.max(1)) - 1);
        for page in address >> PAGE_SHIFT..=last >> PAGE_SHIFT {
            let state = self.thread(thread);
            if state.pending >= most || !state.runs.has_room(1) {
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

    /// Counts instructions that a thread has executed.
    pub fn instructions(&mut self, thread: u32, count: u64) {
        self.thread(thread).instructions += count;
    }

    /// Adds an address-space event, after all accesses so far. No run goes on behind it.
    pub fn event(&mut self, thread: u32, call: Call, result: i64) {
        let order = self.events;
        self.events += 1;
        let state = self.thread(thread);
        state.runs.end();
        let run = state.taken + state.runs.len() as u64;
        state.events.push(Event { run, order, call, result });
    }

    /// Says when a thread came to its next run or event. It is not earlier than what was said before, of any thread.
    pub fn timestamp(&mut self, thread: u32, time_ns: u64) {
        let (_, written) = self.writer.written(thread);
        let state = self.thread(thread);
        let (run, event) = (state.taken + state.runs.len() as u64, written + state.events.len() as u64);
        self.timestamps.push(Timestamp { thread, run, event, time_ns });
    }

    /// Writes what there is, and the index; gives the file back.
    ///
    /// # Errors
    /// Those of the file.
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
        let (runs, addresses) = (state.runs.ended().to_vec(), std::mem::take(&mut state.addresses));
        state.runs.clear();
        state.pending = 0;
        state.taken += runs.len() as u64;
        let mut rest = &addresses[..];
        for run in runs {
            let kept = if rest.is_empty() { 0 } else { run.accesses as usize };
            if self.builder(index).is_full(kept) {
                self.write(thread)?;
            }
            let (own, after) = rest.split_at(kept);
            rest = after;
            self.builder(index).push(run, own);
        }
        Ok(())
    }

    fn builder(&mut self, index: usize) -> &mut Builder {
        self.threads[index].builder.get_or_insert_with(|| Builder::new(self.header.columns))
    }

    /// Writes a thread's events and its chunk: events first, so that a reader knows the memory that runs touch.
    fn write(&mut self, thread: u32) -> io::Result<()> {
        let state = &mut self.threads[thread as usize];
        let events = std::mem::take(&mut state.events);
        let chunk = state.builder.as_mut().map(Builder::take).unwrap_or_default();
        self.writer.timestamps(&std::mem::take(&mut self.timestamps))?;
        self.writer.events(thread, &events, state.instructions)?;
        self.writer.runs(thread, &chunk, state.instructions)
    }
}
