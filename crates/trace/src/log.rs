//! What a recorder keeps in shared memory of a trace that it has not written yet: when it is killed, whoever survives it
//! reads this and finishes the trace.
//!
//! A thread has a log of runs since its last block, in words of 8 bytes: those of [`LogHead`], then [`RawRun`]s. The one
//! at place 0 is nobody's. A process has a log of events: how many bytes there are, then lines of JSON.
//!
//! The recorder may end between any two of its stores. It stores a run before its number, and the number before it counts
//! accesses in it, so that only the newest run can be half there.

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::run::{Kind, Run};

/// No page.
pub const NO_PAGE: u64 = u64::MAX;
/// Set in the page of a run of fetches.
pub const FETCH: u64 = 1 << 63;
/// Set in the page of a run that the kernel made.
const KERNEL: u64 = 1 << 62;
const KERNEL_STORE: u64 = 1 << 61;
/// The bits of a page that count: addresses of programs have at most 57.
const PAGE: u64 = (1 << 45) - 1;

/// A counter has three parts: accesses, stores among them, and runs whose first access is a store. Parts overflow into
/// each other, which differences undo; those of one run do not, if it has fewer accesses than a part can hold.
pub const STORES_SHIFT: u32 = 31;
/// Where the part of runs whose first access is a store begins.
pub const STORES_FIRST_SHIFT: u32 = 62;
const COUNT: u64 = (1 << STORES_SHIFT) - 1;

/// A run while it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RawRun {
    /// Its page, with marks above it.
    pub page: u64,
    /// The counter of its stream at its end.
    pub end: u64,
}

/// Data or fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Stream {
    /// The page of its current run.
    pub page: u64,
    /// What it counts.
    pub counter: u64,
    /// The place of its current run; 0 where it has none.
    pub place: u64,
}

impl Stream {
    /// One that has done nothing.
    pub const NEW: Stream = Stream { page: NO_PAGE, counter: 0, place: 0 };
}

/// Where a log of runs begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct LogHead {
    /// Loads and stores.
    pub data: Stream,
    /// Instruction fetches.
    pub fetch: Stream,
    /// The place of the next run.
    pub next: u64,
    /// Runs below this place have ended.
    pub start: u64,
    /// The place that the next run must be below; 0 where nothing is recorded.
    pub limit: u64,
    /// Instructions that the thread has executed.
    pub instructions: u64,
    /// The number of the run at place 1 in its thread.
    pub first: u64,
    /// The counters of data and fetches where the log begins.
    pub before: [u64; 2],
    /// The thread.
    pub thread: u64,
    /// [`LOG`] once the log can be read.
    pub magic: u64,
}

/// Says that a log can be read, and of which version it is.
pub const LOG: u64 = u64::from_le_bytes(*b"PLLOG\x01\r\n");
/// Bytes of [`LogHead`].
pub const LOG_HEAD_BYTES: usize = size_of::<LogHead>();

/// Kinds of data by: there are loads, there are stores, the first is a store.
const KINDS: [Kind; 8] = {
    let both = Kind::LOAD.then(Kind::STORE);
    let store_first = Kind::STORE.then(Kind::LOAD);
    [Kind::FETCH, Kind::LOAD, Kind::STORE, both, Kind::FETCH, Kind::LOAD, Kind::STORE, store_first]
};

impl RawRun {
    /// An access of the kernel to a page.
    pub fn of_kernel(page: u64, store: bool) -> RawRun {
        RawRun { page: page | KERNEL | if store { KERNEL_STORE } else { 0 }, end: 0 }
    }

    /// The run, after counters of data and fetches stood at `before`, which go on to its end.
    #[inline(always)]
    pub fn run(self, before: &mut [u64; 2]) -> Run {
        if self.page & KERNEL != 0 {
            return self.kernel_run();
        }
        let is_fetch = self.page & FETCH != 0;
        let difference = self.end.wrapping_sub(before[usize::from(is_fetch)]);
        before[usize::from(is_fetch)] = self.end;
        let (accesses, stores) = (difference & COUNT, difference >> STORES_SHIFT & COUNT);
        let data = usize::from(stores < accesses) | usize::from(stores > 0) << 1;
        let first = (difference >> STORES_FIRST_SHIFT & 1) as usize;
        let kind = if is_fetch { Kind::FETCH } else { KINDS[data | first << 2] };
        Run { page: self.page & PAGE, kind, accesses: accesses as u32 }
    }

    #[cold]
    fn kernel_run(self) -> Run {
        let kind = if self.page & KERNEL_STORE != 0 { Kind::KERNEL_STORE } else { Kind::KERNEL_LOAD };
        Run { page: self.page & PAGE, kind, accesses: 1 }
    }
}

/// What the log of a thread tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLog {
    /// The thread.
    pub thread: u32,
    /// Instructions that it has executed.
    pub instructions: u64,
    /// The number of the first run in its thread.
    pub first: u64,
    /// The runs.
    pub runs: Vec<Run>,
    /// Runs that were begun and are not whole: none or one where the log is sound.
    pub torn: u64,
}

impl RunLog {
    /// Reads a log; none where the bytes are not one, or its recorder had not begun it.
    pub fn read(bytes: &[u8]) -> Option<RunLog> {
        let (head, entries) = bytes.split_at_checked(LOG_HEAD_BYTES)?;
        let head = LogHead::read(head).filter(|head| head.magic == LOG)?;
        let entries = entries.as_chunks::<16>().0;
        let end = (head.next as usize).clamp(1, entries.len().max(1));
        let mut before = head.before;
        let mut runs = Vec::new();
        for (place, entry) in (1..end).zip(entries.get(1..end)?) {
            let [page, stored] = words(entry);
            let current = [head.data, head.fetch].into_iter().find(|stream| stream.place == place as u64);
            let raw = RawRun { page, end: current.map_or(stored, |stream| stream.counter) };
            let has_ended = (place as u64) < head.start || place + 1 < end || page & KERNEL != 0;
            let is_torn = current.is_none() && !has_ended;
            let run = raw.run(&mut before);
            if is_torn || run.accesses == 0 {
                break;
            }
            runs.push(run);
        }
        let torn = (end - 1 - runs.len()) as u64;
        let thread = head.thread as u32;
        Some(RunLog { thread, instructions: head.instructions, first: head.first, runs, torn })
    }
}

impl LogHead {
    fn read(bytes: &[u8]) -> Option<LogHead> {
        let words: &[[u8; 8]] = bytes.as_chunks().0;
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let mut next = || words.next();
        let mut stream = || Some(Stream { page: next()?, counter: next()?, place: next()? });
        let (data, fetch) = (stream()?, stream()?);
        Some(LogHead {
            data,
            fetch,
            next: next()?,
            start: next()?,
            limit: next()?,
            instructions: next()?,
            first: next()?,
            before: [next()?, next()?],
            thread: next()?,
            magic: next()?,
        })
    }
}

fn words(bytes: &[u8; 16]) -> [u64; 2] {
    let words = bytes.as_chunks::<8>().0;
    [0, 1].map(|index| u64::from_le_bytes(words[index]))
}

/// A line of the log of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoggedEvent {
    /// The thread.
    pub thread: u32,
    /// The event's number in its thread.
    pub number: u64,
    /// Instructions that the thread had executed.
    pub instructions: u64,
    /// The event.
    pub event: Event,
}

impl LoggedEvent {
    /// Reads a log: the events, up to the first that cannot be read.
    pub fn read(bytes: &[u8]) -> Vec<LoggedEvent> {
        let Some((length, lines)) = bytes.split_first_chunk::<8>() else { return Vec::new() };
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX).min(lines.len());
        serde_json::Deserializer::from_slice(&lines[..length]).into_iter().map_while(Result::ok).collect()
    }
}
