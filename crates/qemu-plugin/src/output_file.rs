// SPDX-License-Identifier: GPL-2.0-or-later
//! The file of a process, and the events that have not been written to it.
//!
//! In the file, an event precedes every run of any thread that came after it. The event is noted at the moment of the call, and
//! every writer of runs first writes all noted events. Timestamps precede both.
//!
//! While a thread is in a call that may end the program, the file has a *provisional end*: the event of that call and, if there
//! is no other thread, the index. It is removed if the call returns.

use std::collections::BTreeMap;
use std::io;

use trace::{Checkpoint, Event, Timestamp, Writer};

use crate::file::TraceFile;

/// A file, until it is finished or cannot be written.
pub struct OutputFile {
    /// The file; `None` after its end.
    writer: Option<Writer<TraceFile>>,
    /// Noted events by thread, and the thread's instruction count at the last event.
    noted: BTreeMap<u32, (Vec<Event>, u64)>,
    /// Number of noted events.
    count: usize,
    /// Noted timestamps, in order of time; none until the order of several threads or processes matters.
    timestamps: Vec<Timestamp>,
    is_timed: bool,
    /// The time of the last timestamp, in nanoseconds.
    last_ns: u64,
    /// Threads that are in a call which may end the program.
    ending: BTreeMap<u32, PossibleEnd>,
    /// The state before the provisional end, if the file has one.
    before_end: Option<Checkpoint>,
}

/// What a thread is about to do that may end the program.
pub struct PossibleEnd {
    /// The event of the call, if it is recorded.
    pub event: Option<Event>,
    /// The thread's instruction count.
    pub instructions: u64,
    /// Whether there is no other thread, so that the file would be complete; it then has a provisional end while this entry
    /// exists.
    pub is_only_thread: bool,
}

impl OutputFile {
    /// The file that `writer` has begun; `None` for a process that is not recorded.
    pub fn new(writer: Option<Writer<TraceFile>>) -> OutputFile {
        OutputFile {
            writer,
            noted: BTreeMap::new(),
            count: 0,
            timestamps: Vec::new(),
            is_timed: false,
            last_ns: 0,
            ending: BTreeMap::new(),
            before_end: None,
        }
    }

    /// Whether the file is still being written.
    pub fn is_open(&self) -> bool {
        self.writer.is_some()
    }

    /// Number of noted events and timestamps.
    pub fn count(&self) -> usize {
        self.count + self.timestamps.len()
    }

    /// Records timestamps from now on.
    pub fn record_times(&mut self) {
        self.is_timed = true;
    }

    /// Records the current time for the thread's next event, or for a run.
    pub fn time(&mut self, thread: u32, run: u64) {
        let Some(writer) = self.writer.as_ref().filter(|_| self.is_timed) else { return };
        let noted = self.noted.get(&thread).map_or(0, |(events, _)| events.len() as u64);
        let event = writer.written(thread).1 + noted;
        self.last_ns = self.last_ns.max(now_ns());
        self.timestamps.push(Timestamp { thread, run, event, time_ns: self.last_ns });
    }

    /// Notes an event of a thread, which has returned from the call in which it might have ended.
    pub fn note(&mut self, thread: u32, instructions: u64, event: Event) {
        if self.is_open() {
            self.ending.remove(&thread);
            self.time(thread, event.run);
            let (noted, last) = self.noted.entry(thread).or_default();
            noted.push(event);
            *last = instructions;
            self.count += 1;
        }
    }

    /// Whether the file has a provisional end, which all noted data must precede.
    pub fn has_end(&self) -> bool {
        self.before_end.is_some()
    }

    /// A thread continues after a call that might have ended the program.
    pub fn continued(&mut self, thread: u32) {
        self.ending.remove(&thread);
    }

    /// A thread is about to make a call that may end the program, with this event.
    pub fn may_end(&mut self, thread: u32, ending: PossibleEnd) {
        self.ending.insert(thread, ending);
    }

    /// Writes noted events, then calls `more`, and writes a provisional end where the program may end. `order`: number of events of
    /// all threads. After an error nothing more is written to the file; its data stays readable.
    pub fn write(&mut self, order: u64, more: impl FnOnce(&mut Writer<TraceFile>) -> io::Result<()>) -> io::Result<()> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let written = self.write_to(&mut writer, order, more);
        written.and(writer.get_mut().commit()).inspect_err(|_| self.forget())?;
        self.writer = Some(writer);
        Ok(())
    }

    fn write_to(
        &mut self,
        writer: &mut Writer<TraceFile>,
        order: u64,
        more: impl FnOnce(&mut Writer<TraceFile>) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(checkpoint) = self.before_end.take() {
            // The program has not ended, so the provisional end is removed.
            let offset = writer.rewind(checkpoint);
            writer.get_mut().rewrite_from(offset);
        }
        self.count = 0;
        writer.timestamps(&std::mem::take(&mut self.timestamps))?;
        for (thread, (events, instructions)) in std::mem::take(&mut self.noted) {
            writer.events(thread, &events, instructions)?;
        }
        more(writer)?;
        if !self.ending.is_empty() {
            self.before_end = Some(writer.checkpoint());
            for (thread, ending) in &self.ending {
                // The event that ends the program is the last one.
                let event = ending.event.clone().map(|event| Event { order, ..event });
                if let Some(event) = event.as_ref().filter(|_| self.is_timed) {
                    // The event gets the current time, although it may still be in the future.
                    self.last_ns = self.last_ns.max(now_ns());
                    let (run, (_, events)) = (event.run, writer.written(*thread));
                    let timestamp = Timestamp { thread: *thread, run, event: events, time_ns: self.last_ns };
                    writer.timestamps(&[timestamp])?;
                }
                writer.events(*thread, event.as_slice(), ending.instructions)?;
            }
            if self.ending.values().all(|ending| ending.is_only_thread) {
                writer.index()?;
            }
        }
        Ok(())
    }

    /// Writes noted data and the index when the process ends.
    pub fn finish(&mut self, order: u64) -> io::Result<()> {
        self.ending.clear();
        let done = self.write(order, Writer::index);
        self.writer = None;
        self.forget();
        done
    }

    fn forget(&mut self) {
        self.noted.clear();
        self.ending.clear();
        self.timestamps.clear();
        self.count = 0;
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which all processes of a recording share and which never runs backwards on any processor.
fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists since Linux 2.6, and the result is written to `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
