//! Finishing a trace whose recorder was killed, with what its logs still have.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, Write};

use crate::builder::Builder;
use crate::event::Event;
use crate::header::Columns;
use crate::log::{LoggedEvent, RunLog};
use crate::reader::{ReadError, Reader};
use crate::writer::{Place, Writer};

/// What came into a trace from logs, or did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rescued {
    /// Runs and events that were added.
    pub added: u64,
    /// Runs that were begun and are not whole.
    pub torn: u64,
    /// Runs that neither the file nor a log has.
    pub missing: u64,
}

/// A trace that may be finished.
#[derive(Clone, Debug)]
pub struct Rescue {
    places: Vec<Place>,
    columns: Columns,
    is_whole: bool,
}

impl Rescue {
    /// Looks at what is there of a trace.
    ///
    /// # Errors
    /// A file that is no trace, or cannot be read.
    pub fn of<R: Read + Seek>(from: R) -> Result<Rescue, ReadError> {
        let mut reader = Reader::new(from)?;
        let columns = reader.header().columns;
        let indexed = reader.places()?;
        let is_whole = indexed.is_some();
        let places = indexed.map_or_else(|| reader.sound_places(), Ok)?;
        Ok(Rescue { places, columns, is_whole })
    }

    /// Whether it has no index, or logs have what it has not.
    pub fn is_needed(&self, events: &[LoggedEvent], runs: &[RunLog]) -> bool {
        let written = Writer::after(self.places.clone(), io::sink());
        !self.is_whole
            || events.iter().any(|logged| logged.number >= written.written(logged.thread).1)
            || runs.iter().any(|log| log.first.saturating_add(log.runs.len() as u64) > written.written(log.thread).0)
    }

    /// Where what is there ends: the file must be cut off here.
    pub fn end(&self) -> u64 {
        Writer::<io::Sink>::end_of(&self.places)
    }

    /// Writes what logs have and the trace has not, and an index. `to` stands at [`Rescue::end`].
    ///
    /// # Errors
    /// Those of the file.
    pub fn write<W: Write>(self, to: W, events: Vec<LoggedEvent>, runs: &[RunLog]) -> io::Result<Rescued> {
        let mut writer = Writer::after(self.places, to);
        let (done, attempts) = settled(events);
        let mut rescued = Rescued { added: add_events(&mut writer, done)?, ..Rescued::default() };
        for log in runs {
            let written = writer.written(log.thread).0;
            rescued.torn += log.torn;
            rescued.missing += log.first.saturating_sub(written);
            writer.skip_to(log.thread, log.first);
            let known = usize::try_from(written.saturating_sub(log.first)).unwrap_or(usize::MAX);
            rescued.added += add_runs(&mut writer, log, known, self.columns)?;
        }
        // What ended the program is the last that it did.
        rescued.added += add_events(&mut writer, attempts)?;
        writer.finish()?;
        Ok(rescued)
    }
}

/// What was done, and what was attempted and not come back from: after all that was done.
fn settled(events: Vec<LoggedEvent>) -> (Vec<LoggedEvent>, Vec<LoggedEvent>) {
    let last: BTreeMap<u32, usize> = events.iter().enumerate().map(|(place, logged)| (logged.thread, place)).collect();
    let next =
        events.iter().filter(|logged| !logged.is_attempt).map(|logged| logged.event.order.saturating_add(1)).max();
    let (mut done, mut attempts) = (Vec::new(), Vec::new());
    for (place, mut logged) in events.into_iter().enumerate() {
        if !logged.is_attempt {
            done.push(logged);
        } else if last.get(&logged.thread) == Some(&place) {
            logged.event.order = logged.event.order.max(next.unwrap_or(0));
            attempts.push(logged);
        }
    }
    (done, attempts)
}

fn add_events<W: Write>(writer: &mut Writer<W>, events: Vec<LoggedEvent>) -> io::Result<u64> {
    let mut threads: BTreeMap<u32, (Vec<Event>, u64)> = BTreeMap::new();
    for logged in events {
        if logged.number >= writer.written(logged.thread).1 {
            let (events, instructions) = threads.entry(logged.thread).or_default();
            events.push(logged.event);
            *instructions = logged.instructions;
        }
    }
    let mut added = 0;
    for (thread, (events, instructions)) in threads {
        writer.events(thread, &events, instructions)?;
        added += events.len() as u64;
    }
    Ok(added)
}

fn add_runs<W: Write>(writer: &mut Writer<W>, log: &RunLog, known: usize, columns: Columns) -> io::Result<u64> {
    let runs = log.runs.get(known..).unwrap_or_default();
    let mut builder = Builder::new(columns);
    for run in runs {
        if builder.is_full(0) {
            writer.runs(log.thread, &builder.take(), log.instructions)?;
        }
        builder.push(*run, &[]);
    }
    writer.runs(log.thread, &builder.take(), log.instructions)?;
    Ok(runs.len() as u64)
}
