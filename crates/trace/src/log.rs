//! What a recorder keeps in shared memory of a trace that it has not written yet: when it is killed, whoever survives it
//! reads this and finishes the trace.
//!
//! A thread has a log of runs since its last block, in words of 8 bytes: those of [`LogHead`], then [`RawRun`]s. The one
//! at place 0 is nobody's. A process has a log of events: how many bytes there are, then lines of JSON.
//!
//! The recorder may end between any two of its stores. It stores a run before its number, and the number before it counts
//! accesses in it, so that only the newest run can be half there.

use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::run::{Kind, PAGE_SHIFT, Run};

/// The address of a page in which nothing is.
pub const NO_PAGE: u64 = !0xfff;
/// Set in the page of a run of fetches.
pub const FETCH: u64 = 1;
/// Set in the page of a run that the kernel made.
const KERNEL: u64 = 2;
const KERNEL_STORE: u64 = 4;

/// A counter has three parts: accesses, stores among them, and runs that begin as a store does. Parts overflow into
/// each other, which differences undo; those of one run do not, if it has fewer accesses than a part can hold.
pub const STORES_SHIFT: u32 = 31;
/// Where the part of runs begins whose first access is a store, or the load of an instruction that stores there too.
pub const STORES_FIRST_SHIFT: u32 = 62;
const COUNT: u64 = (1 << STORES_SHIFT) - 1;

/// A run while it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RawRun {
    /// The address of its page, with marks below it.
    pub page: u64,
    /// The counter of its stream at its beginning.
    pub begin: u64,
}

/// Data or fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Stream {
    /// The address of the page of its current run.
    pub page: u64,
    /// What it counts.
    pub counter: u64,
}

impl Stream {
    /// One that has done nothing.
    pub const NEW: Stream = Stream { page: NO_PAGE, counter: 0 };
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
    /// The place that the next run must be below; 0 where nothing is recorded.
    pub limit: u64,
    /// Instructions that the thread has executed.
    pub instructions: u64,
    /// Instructions at which the recorder has something else to do.
    pub attention: u64,
    /// How many events of all threads this one has seen.
    pub seen: u64,
    /// The number of the run at place 1 in its thread.
    pub first: u64,
    /// The thread.
    pub thread: u64,
    /// [`LOG`] once the log can be read.
    pub magic: u64,
    /// Addresses that the recorder derives others from.
    pub bases: [u64; BASES],
}

/// How many such addresses there are.
pub const BASES: usize = 8;

/// Says that a log can be read, and of which version it is.
pub const LOG: u64 = u64::from_le_bytes(*b"PLLOG\x04\r\n");
/// Bytes of [`LogHead`].
pub const LOG_HEAD_BYTES: usize = size_of::<LogHead>();

/// Kinds by: there are loads, there are stores, it begins as a store does, these are fetches.
const KINDS: [Kind; 16] = {
    let both = Kind::LOAD.then(Kind::STORE);
    let store_first = Kind::STORE.then(Kind::LOAD);
    let mut kinds = [Kind::FETCH; 16];
    (kinds[1], kinds[2], kinds[3]) = (Kind::LOAD, Kind::STORE, both);
    // A fault may have prevented the store of what modifies.
    (kinds[5], kinds[6], kinds[7]) = (Kind::MODIFY, Kind::STORE, store_first);
    kinds
};

impl RawRun {
    /// An access of the kernel to a page, which is given by its number.
    pub fn of_kernel(page: u64, store: bool) -> RawRun {
        RawRun { page: page << PAGE_SHIFT | KERNEL | if store { KERNEL_STORE } else { 0 }, begin: 0 }
    }

    /// What the counter of its stream has counted in the run, which ends where that stands in `ends` (of data, of fetches);
    /// then that is where it begins, for the run before. Not for a run of the kernel.
    #[inline(always)]
    pub(crate) fn difference(self, ends: &mut [u64; 2]) -> u64 {
        // No branches: which stream is next cannot be foretold.
        let is_fetch = self.page & FETCH != 0;
        let [data_end, fetch_end] = *ends;
        let end = if is_fetch { fetch_end } else { data_end };
        *ends = if is_fetch { [data_end, self.begin] } else { [self.begin, fetch_end] };
        end.wrapping_sub(self.begin)
    }

    /// The run in which its stream has counted `difference`.
    pub(crate) fn run(self, difference: u64) -> Run {
        let fetch = self.page & FETCH;
        let (accesses, stores) = (difference & COUNT, difference >> STORES_SHIFT & COUNT);
        let data = usize::from(stores < accesses) | usize::from(stores > 0) << 1;
        let first = (difference >> STORES_FIRST_SHIFT & 1) as usize;
        let kind = KINDS[data | first << 2 | (fetch as usize) << 3];
        Run { page: self.page >> PAGE_SHIFT, kind, accesses: accesses as u32 }
    }

    /// The run, which ends where the counter of its stream stands in `ends` (of data, of fetches); then that is where it
    /// begins, for the run before. A run of the kernel has no counters.
    pub fn of_any(self, ends: &mut [u64; 2]) -> Run {
        self.kernel_run().unwrap_or_else(|| self.run(self.difference(ends)))
    }

    fn kernel_run(self) -> Option<Run> {
        let kind = if self.page & KERNEL_STORE != 0 { Kind::KERNEL_STORE } else { Kind::KERNEL_LOAD };
        (self.page & KERNEL != 0).then_some(Run { page: self.page >> PAGE_SHIFT, kind, accesses: 1 })
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
    /// Reads a log, and of a file no more than is used of it; none where it is not one, or its recorder had not begun it.
    ///
    /// # Errors
    /// Those of the file.
    pub fn read(mut from: impl Read) -> io::Result<Option<RunLog>> {
        let mut head = Vec::new();
        from.by_ref().take(LOG_HEAD_BYTES as u64).read_to_end(&mut head)?;
        let Some(head) = LogHead::read(&head).filter(|head| head.magic == LOG) else { return Ok(None) };
        let mut entries = Vec::new();
        from.take(head.next.saturating_mul(size_of::<RawRun>() as u64)).read_to_end(&mut entries)?;
        Ok(RunLog::of(&head, &entries))
    }

    fn of(head: &LogHead, entries: &[u8]) -> Option<RunLog> {
        // Where a part is missing, it is not known where the runs before it end.
        let entries = entries.as_chunks::<16>().0.get(1..usize::try_from(head.next).ok()?)?;
        let raws = entries.iter().map(|entry| {
            let [page, begin] = words(entry);
            RawRun { page, begin }
        });
        let mut ends = [head.data.counter, head.fetch.counter];
        let mut runs: Vec<Run> = raws.rev().map(|raw| raw.of_any(&mut ends)).collect();
        runs.reverse();
        // Its place was stored, and its first access not counted.
        let torn = u64::from(runs.pop_if(|run| run.accesses == 0).is_some());
        let thread = head.thread as u32;
        Some(RunLog { thread, instructions: head.instructions, first: head.first, runs, torn })
    }
}

impl LogHead {
    fn read(bytes: &[u8]) -> Option<LogHead> {
        let words: &[[u8; 8]] = bytes.as_chunks().0;
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let mut next = || words.next();
        let mut stream = || Some(Stream { page: next()?, counter: next()? });
        let (data, fetch) = (stream()?, stream()?);
        Some(LogHead {
            data,
            fetch,
            next: next()?,
            limit: next()?,
            instructions: next()?,
            attention: next()?,
            seen: next()?,
            first: next()?,
            thread: next()?,
            magic: next()?,
            bases: [0; BASES],
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
    /// The thread is about to do it, and has not come back from it where no later event of it is logged. It may be in the
    /// trace already, as if it had succeeded.
    pub is_attempt: bool,
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
