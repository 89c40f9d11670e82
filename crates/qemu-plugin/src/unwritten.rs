// SPDX-License-Identifier: GPL-2.0-or-later
//! The file of a process, and the events that are not in it yet.
//!
//! An event stands in the file before every run that came after it, of any thread: it is noted at the moment of the call,
//! and whoever writes runs writes all noted events first. Timestamps stand before both.

use std::collections::BTreeMap;
use std::io;

use trace::{Checkpoint, Event, Timestamp, Writer};

use crate::clock::now_ns;
use crate::file::TraceFile;

/// A file, until it is finished or cannot be written.
pub struct Unwritten {
    /// The file; none from its end on.
    writer: Option<Writer<TraceFile>>,
    /// Noted events by thread, and the instructions of the thread at the last.
    noted: BTreeMap<u32, (Vec<Event>, u64)>,
    /// How many are noted.
    count: usize,
    /// Noted timestamps, in the order of time; none before anybody asks for the order of several threads or processes.
    timestamps: Vec<Timestamp>,
    is_timed: bool,
    /// The time of the last.
    last_ns: u64,
    /// Threads that are in a call which may end the program.
    ending: BTreeMap<u32, Ending>,
    /// Where to go on, if the file has what ends the program.
    before_end: Option<Checkpoint>,
}

/// What a thread is about to do that may end the program.
pub struct Ending {
    /// What it does then.
    pub event: Option<Event>,
    /// Its instructions.
    pub instructions: u64,
    /// There is no other thread, so that nothing is missing in the file then: it has an end as long as this stands here.
    pub is_alone: bool,
}

impl Unwritten {
    /// A file that was begun; none for a process that is not recorded.
    pub fn new(writer: Option<Writer<TraceFile>>) -> Unwritten {
        Unwritten {
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

    /// Whether something is still written.
    pub fn is_open(&self) -> bool {
        self.writer.is_some()
    }

    /// How many events and timestamps are noted.
    pub fn count(&self) -> usize {
        self.count + self.timestamps.len()
    }

    /// Notes timestamps from now on.
    pub fn tell_times(&mut self) {
        self.is_timed = true;
    }

    /// Notes when a thread comes to its next event, or to a run: now.
    pub fn time(&mut self, thread: u32, run: u64) {
        let Some(writer) = self.writer.as_ref().filter(|_| self.is_timed) else { return };
        let noted = self.noted.get(&thread).map_or(0, |(events, _)| events.len() as u64);
        let event = writer.written(thread).1 + noted;
        self.last_ns = self.last_ns.max(now_ns());
        self.timestamps.push(Timestamp { thread, run, event, time_ns: self.last_ns });
    }

    /// Notes an event of a thread, which is back from the call that it may have ended in.
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

    /// Whether something stands at the end of the file that all which is noted must stand before.
    pub fn has_end(&self) -> bool {
        self.before_end.is_some()
    }

    /// A thread goes on.
    pub fn goes_on(&mut self, thread: u32) {
        self.ending.remove(&thread);
    }

    /// A thread is about to make a call that may end the program, in which it does this.
    pub fn may_end(&mut self, thread: u32, ending: Ending) {
        self.ending.insert(thread, ending);
    }

    /// Writes noted events and then more, and what ends the program where that may be. `order`: how many events of all threads
    /// there were.
    ///
    /// # Errors
    /// Those of the file, to which nothing is written from then on: what is in it can be read.
    pub fn write(&mut self, order: u64, more: impl FnOnce(&mut Writer<TraceFile>) -> io::Result<()>) -> io::Result<()> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let written = self.write_to(&mut writer, order, more);
        written.and(writer.get_mut().put()).inspect_err(|_| self.forget())?;
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
            // The program goes on after all.
            let offset = writer.rewind(checkpoint);
            writer.get_mut().write_anew(offset);
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
                // What ends the program is the last that it does.
                let event = ending.event.clone().map(|event| Event { order, ..event });
                if let Some(event) = event.as_ref().filter(|_| self.is_timed) {
                    // It may still be to come.
                    self.last_ns = self.last_ns.max(now_ns());
                    let (run, (_, events)) = (event.run, writer.written(*thread));
                    let timestamp = Timestamp { thread: *thread, run, event: events, time_ns: self.last_ns };
                    writer.timestamps(&[timestamp])?;
                }
                writer.events(*thread, event.as_slice(), ending.instructions)?;
            }
            if self.ending.values().all(|ending| ending.is_alone) {
                writer.index()?;
            }
        }
        Ok(())
    }

    /// Writes what is noted and the index: the process ends.
    ///
    /// # Errors
    /// Those of the file.
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
