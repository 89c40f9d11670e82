// SPDX-License-Identifier: GPL-2.0-or-later
//! One emulated processor: when it is recorded, what its callbacks append to, and what becomes of that.

use std::io;

use trace::{Access, Builder, Columns, Encoder, Header, Kind, PAGE_SHIFT, Run};

use crate::known::Program;
use crate::guest_memory::owned::Own;
use crate::streams::{Current, Streams, page_of};
use crate::words::{ADDRESS, Marks, Words};

/// Instructions after which runs go into a chunk in any case, so that none has more accesses than a counter of `streams`
/// holds: an instruction has at most some tens.
const INSTRUCTIONS: u64 = 1 << 24;
/// Instructions after which a chunk is written in any case: what a program that is killed loses is no older.
const WRITTEN_AFTER: u64 = 1 << 28;

/// When recording is on, in instructions of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Instructions that are left out before every window.
    skip: u64,
    /// Instructions of a window.
    window: u64,
    /// Instructions that may still be recorded.
    left: u64,
}

impl Schedule {
    /// That of a header and a limit.
    pub fn new(header: &Header, max_instructions: Option<u64>) -> Schedule {
        let window = header.window.and_then(|window| window.record_instructions);
        Schedule {
            skip: header.window.map_or(0, |window| window.skip_instructions),
            window: window.unwrap_or(u64::MAX),
            left: max_instructions.unwrap_or(u64::MAX),
        }
    }

    /// Begins a window after `instructions`; where it ends.
    fn open(&mut self, instructions: u64) -> u64 {
        let length = self.window.min(self.left);
        if self.left != u64::MAX {
            self.left -= length;
        }
        instructions.saturating_add(length)
    }

    /// Ends a window after `instructions`; where the next begins.
    fn close(&self, instructions: u64) -> u64 {
        if self.is_over() { u64::MAX } else { instructions.saturating_add(self.skip) }
    }

    /// Whether as many instructions were recorded as may be.
    fn is_over(&self) -> bool {
        self.left == 0
    }
}

/// What a block should do before it goes on.
pub enum Attention {
    /// A processor of a machine is about to execute its first instruction.
    Begun,
    /// A window begins: say so.
    Opened,
    /// A window has ended: write what there is.
    Closed,
    /// The last one has, of as many instructions as may be recorded: as above.
    Complete,
    /// The buffer must be emptied.
    Empty,
}

/// What chunks are made with. It is worth keeping: most of its memory is the compressor's.
pub struct Work {
    encoder: Encoder,
    /// For threads that have none.
    builder: Builder,
    /// The last chunk.
    pub bytes: Vec<u8>,
}

impl Work {
    /// # Errors
    /// There is no memory for the compressor.
    pub fn new(columns: Columns) -> io::Result<Work> {
        Ok(Work { encoder: Encoder::new()?, builder: Builder::new(columns), bytes: Vec::new() })
    }
}

/// The state of one vCPU, that is of one thread of the program.
pub struct Vcpu {
    streams: Streams,
    recording: bool,
    keeps_addresses: bool,
    /// Where every address is kept, instead of the streams.
    words: Words,
    /// Where the window ends or begins.
    boundary: u64,
    schedule: Schedule,
    /// It is a machine's processor that has executed nothing.
    is_still: bool,
    /// The chunk so far; none where there are many threads, whose runs stay in their logs until a chunk is made of them.
    builder: Option<Builder>,
    /// Runs that went into chunks.
    taken: u64,
    /// Instructions when the last chunk was taken.
    taken_at: u64,
    /// Its number in the trace.
    pub thread: u32,
    /// Accesses and instructions that were left out because they are not of memory.
    pub outside: (u64, u64),
    /// The call that it is in.
    pub call: Option<crate::call::Pending>,
    /// The program's memory when it began to fork.
    pub own: Option<Own>,
}

/// Most runs, and most accesses, that emptying the buffers adds to a chunk.
const MOST: usize = if Streams::MOST > Words::MOST { Streams::MOST } else { Words::MOST };

impl Vcpu {
    /// A vCPU that has done nothing yet.
    pub fn new(thread: u32, streams: Streams, header: &Header, schedule: Schedule, seen: u64) -> Vcpu {
        let mut vcpu = Vcpu {
            streams,
            recording: false,
            keeps_addresses: header.columns.addresses,
            words: Words::default(),
            boundary: schedule.skip,
            schedule,
            is_still: header.system,
            builder: Some(Builder::new(header.columns)),
            taken: 0,
            taken_at: 0,
            thread,
            outside: (0, 0),
            call: None,
            own: None,
        };
        vcpu.set_seen(seen);
        if vcpu.boundary == 0 {
            vcpu.record(true);
            vcpu.boundary = vcpu.schedule.open(0);
        }
        vcpu.set_attention();
        vcpu
    }

    /// What callbacks use of it.
    #[inline(always)]
    pub fn current(&mut self) -> &mut Current {
        self.streams.current()
    }

    /// How many events of all threads this one has seen.
    pub fn seen(&self) -> u64 {
        self.streams.seen()
    }

    /// Sets that number.
    pub fn set_seen(&mut self, events: u64) {
        self.streams.set_seen(events);
    }

    /// Whether accesses are recorded now.
    #[inline(always)]
    pub fn is_recording(&self) -> bool {
        self.recording
    }

    /// Whether every address is kept.
    pub fn keeps_addresses(&self) -> bool {
        self.keeps_addresses
    }

    fn record(&mut self, on: bool) {
        self.build();
        self.recording = on;
        self.streams.record(on && !self.keeps_addresses);
    }

    /// Instructions so far.
    #[inline(always)]
    pub fn instructions(&self) -> u64 {
        self.streams.instructions()
    }

    /// The number of runs so far. The buffers must have been emptied.
    pub fn place(&self) -> u64 {
        debug_assert!(self.streams.is_empty() && self.words.is_empty());
        self.taken
    }

    /// A load or store; one that crosses the end of a page is one to each. `false`: nothing was done, because there is no
    /// room.
    pub fn access_anywhere(&mut self, address: u64, marks: Marks) -> bool {
        let (first, last) = (page_of(address), page_of(address.wrapping_add(marks.bytes() - 1)));
        self.streams.current().has_room_for_two()
            && self.streams.current().data(first, marks.transfer())
            && (last == first || self.streams.current().data(last, marks.transfer()))
    }

    /// An access and those that are derived from it. `false`: nothing was done, because there may be no room.
    #[inline(always)]
    pub fn follow(&mut self, address: u64, program: &Program) -> bool {
        self.current().follow(address, program)
    }

    /// Fetches in a page, which is given by its address. `false`: nothing was done, because there is no room.
    #[inline(always)]
    pub fn fetch(&mut self, page: u64, fetches: u64) -> bool {
        self.current().fetch(page, fetches)
    }

    /// An access that is kept as it is. Whether the buffer must be emptied now.
    #[inline]
    pub fn keep(&mut self, address: u64, bytes: u64, marks: Marks) -> bool {
        self.words.push(address, bytes, marks);
        self.words.is_full()
    }

    /// Whether [`Vcpu::attend`] must be asked before more instructions are counted.
    #[inline(always)]
    pub fn needs_attention(&self) -> bool {
        self.instructions() >= self.streams.attention()
    }

    /// Counts instructions that are about to be executed.
    #[inline(always)]
    pub fn count(&mut self, instructions: u64) {
        self.current().count(instructions);
    }

    /// What is to be done after so many instructions.
    pub fn attend(&mut self) -> Attention {
        let attention = match (self.instructions() >= self.boundary, self.recording) {
            _ if std::mem::take(&mut self.is_still) => Attention::Begun,
            (false, _) => Attention::Empty,
            (true, false) => {
                self.boundary = self.schedule.open(self.instructions());
                self.record(true);
                Attention::Opened
            }
            (true, true) => {
                self.boundary = self.schedule.close(self.instructions());
                self.record(false);
                if self.schedule.is_over() { Attention::Complete } else { Attention::Closed }
            }
        };
        self.set_attention();
        attention
    }

    fn set_attention(&mut self) {
        let full = self.instructions().saturating_add(INSTRUCTIONS);
        self.streams.set_attention(if self.is_still { 0 } else { self.boundary.min(full) });
    }

    /// Empties the buffers and ends the current runs, so that no run lies on both sides of this place. Whether the chunk
    /// must be taken: more may not fit in it, it has `most` runs, or it is old.
    pub fn empty(&mut self, most: usize) -> bool {
        self.build();
        self.must_be_taken(most)
    }

    /// An access of the kernel that lies in one page, after the buffers were emptied. Whether the chunk must be taken.
    pub fn kernel_access(&mut self, address: u64, bytes: u64, store: bool, most: usize) -> bool {
        let page = (address & ADDRESS) >> PAGE_SHIFT;
        let kind = if store { Kind::KERNEL_STORE } else { Kind::KERNEL_LOAD };
        let access = Access::new((address & 0xfff) as u16, bytes as u32, store);
        let kept = if self.keeps_addresses { &[access][..] } else { &[] };
        if let Some(builder) = &mut self.builder {
            builder.push(Run { page, kind, accesses: 1 }, kept);
        }
        if !self.keeps_addresses {
            self.streams.kernel(page, store);
        }
        self.taken += 1;
        self.must_be_taken(most)
    }

    fn must_be_taken(&self, most: usize) -> bool {
        let is_full = match &self.builder {
            Some(builder) => !builder.has_room(MOST, MOST) || builder.len() + MOST > most,
            None => self.streams.logged() + self.streams.buffer() > most.min(self.streams.most()),
        };
        is_full || !self.streams.has_room() || self.instructions() - self.taken_at >= WRITTEN_AFTER
    }

    /// Moves all runs into the chunk.
    fn build(&mut self) {
        let runs = match &mut self.builder {
            Some(builder) if self.keeps_addresses => {
                let before = builder.len();
                self.words.empty(|run, accesses| builder.push(run, accesses));
                builder.len() - before
            }
            Some(builder) => self.streams.empty(|raws, ends| builder.extend_raw(raws, ends)),
            None => self.streams.end(),
        };
        self.taken += runs as u64;
        self.set_attention();
    }

    /// Takes the chunk as bytes, with everything so far in it; gives how many runs it has.
    ///
    /// # Errors
    /// The compressor has no memory.
    pub fn take(&mut self, work: &mut Work) -> io::Result<usize> {
        self.build();
        self.taken_at = self.instructions();
        work.bytes.clear();
        if let Some(builder) = &mut self.builder {
            return builder.encode(&mut work.encoder, &mut work.bytes);
        }
        work.builder.extend(&self.streams.all());
        work.builder.encode(&mut work.encoder, &mut work.bytes)
    }

    /// What was taken is in the file, or will never be. The next chunk may have `most` runs, made of the log at once where
    /// this is one of `many` threads.
    pub fn written(&mut self, header: &Header, most: usize, many: bool) {
        self.streams.rewind(self.taken);
        if self.keeps_addresses {
            return;
        }
        self.streams.limit(most);
        match (&self.builder, many) {
            (Some(_), true) => self.builder = None,
            (None, false) => self.builder = Some(Builder::new(header.columns)),
            _ => {}
        }
    }

    /// Records nothing any more.
    pub fn stop(&mut self) {
        self.record(false);
        self.boundary = u64::MAX;
        self.set_attention();
    }

    /// Forgets what a forked process inherited: it begins a trace of its own.
    pub fn begin_anew(&mut self, streams: Streams, columns: Columns) {
        std::mem::replace(&mut self.streams, streams).leave();
        self.streams.record(self.recording && !self.keeps_addresses);
        self.words.empty(|_, _| {});
        self.builder = Some(Builder::new(columns));
        (self.taken, self.taken_at, self.thread) = (0, 0, 0);
        self.set_seen(0);
        self.boundary = if self.recording { self.schedule.open(0) } else { self.schedule.skip };
        self.set_attention();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::Transfer;
    use trace::{Chunk, Runs, Window};

    fn header(addresses: bool, window: Option<Window>) -> Header {
        Header { columns: Columns { kinds: true, accesses: true, addresses }, window, ..Header::of("") }
    }

    fn vcpu(addresses: bool) -> Vcpu {
        let header = header(addresses, None);
        begun(&header, None)
    }

    fn begun(header: &Header, max: Option<u64>) -> Vcpu {
        Vcpu::new(0, Streams::new(0, 1 << 20, None), header, Schedule::new(header, max), 0)
    }

    fn chunk(vcpu: &mut Vcpu, addresses: bool) -> Chunk {
        chunk_of(vcpu, addresses, 1 << 20, false)
    }

    fn chunk_of(vcpu: &mut Vcpu, addresses: bool, most: usize, many: bool) -> Chunk {
        let header = header(addresses, None);
        let mut work = Work::new(header.columns).unwrap();
        let runs = vcpu.take(&mut work).unwrap();
        vcpu.written(&header, most, many);
        Chunk::decode(&work.bytes, runs, header.columns).unwrap()
    }

    const LOAD: Marks = Marks::new(3, false);
    const STORE: Marks = Marks::new(3, true);

    /// Accesses that look like a program's, the same every time.
    fn accesses(count: usize) -> impl Iterator<Item = (u64, Kind)> {
        let mut state = 1u64;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let kind = [Kind::FETCH, Kind::LOAD, Kind::LOAD, Kind::STORE][(state >> 40) as usize % 4];
            ((state >> 61) << 12 | (state >> 50 & 0x3f) << 3, kind)
        })
        .take(count)
    }

    /// Does what a callback does: again, after the buffer was emptied.
    fn access(vcpu: &mut Vcpu, address: u64, marks: Marks) {
        if !vcpu.current().access(address, marks.transfer()) && !vcpu.access_anywhere(address, marks) {
            assert!(!vcpu.empty(usize::MAX));
            assert!(vcpu.access_anywhere(address, marks));
        }
    }

    fn fetch(vcpu: &mut Vcpu, page: u64, fetches: u64) {
        let page = page << PAGE_SHIFT;
        if !vcpu.fetch(page, fetches) {
            assert!(!vcpu.empty(usize::MAX));
            assert!(vcpu.fetch(page, fetches));
        }
    }

    #[test]
    fn runs_are_those_that_the_trace_crate_makes() {
        // Often, and after more runs than are handed on together.
        for (keep, often) in [(false, 77), (true, 77), (false, 3001)] {
            let mut reference = if keep { Runs::in_sequence() } else { Runs::default() };
            let (mut vcpu, mut expected) = (vcpu(keep), Vec::new());
            for (number, (address, kind)) in accesses(Streams::MOST).enumerate() {
                reference.access(address, kind);
                let marks = if kind == Kind::STORE { STORE } else { LOAD };
                match (kind, keep) {
                    (Kind::FETCH, false) => fetch(&mut vcpu, address >> 12, 1),
                    (_, false) => access(&mut vcpu, address, marks),
                    (Kind::FETCH, true) => assert!(!vcpu.keep(address, 4, Marks::fetch(4))),
                    (_, true) => assert!(!vcpu.keep(address, 8, marks)),
                }
                // As an event does.
                if number % often == 0 {
                    assert!(!vcpu.empty(usize::MAX));
                    expected.extend(reference.take());
                    assert_eq!(vcpu.place(), expected.len() as u64);
                }
            }
            expected.extend(reference.take());
            let chunk = chunk(&mut vcpu, keep);
            assert_eq!(chunk.runs().collect::<Vec<Run>>(), expected);
            assert_eq!(chunk.addresses.len(), if keep { Streams::MOST } else { 0 });
        }
    }

    #[test]
    fn one_of_many_threads_has_the_runs_of_one_of_few() {
        // Logs of 2000 and of 300 runs: the buffer is full often, and so is the log.
        for most in [2000, 300] {
            let [few, many] = [false, true].map(|many| {
                let (mut vcpu, mut runs) = (vcpu(false), Vec::new());
                chunk_of(&mut vcpu, false, if many { most } else { 1 << 20 }, many);
                let most = if many { most } else { usize::MAX };
                let mut take = |vcpu: &mut Vcpu, is_full: bool| {
                    if is_full {
                        runs.extend(chunk_of(vcpu, false, if many { most } else { 1 << 20 }, many).runs());
                    }
                };
                for (number, (address, kind)) in accesses(20_000).enumerate() {
                    let marks = if kind == Kind::STORE { STORE } else { LOAD };
                    let go = |vcpu: &mut Vcpu| match kind {
                        Kind::FETCH => vcpu.fetch(address >> PAGE_SHIFT << PAGE_SHIFT, 3),
                        _ => vcpu.access_anywhere(address, marks),
                    };
                    if !go(&mut vcpu) {
                        let is_full = vcpu.empty(most);
                        take(&mut vcpu, is_full);
                        assert!(go(&mut vcpu));
                    }
                    // As a call does that the kernel touches memory for.
                    if number % 50 == 0 {
                        let is_full = vcpu.empty(most);
                        take(&mut vcpu, is_full);
                        let is_full = vcpu.kernel_access(address, 8, number % 100 == 0, most);
                        take(&mut vcpu, is_full);
                    }
                }
                take(&mut vcpu, true);
                runs
            });
            // Runs end where a buffer does; what they sum up to is the same.
            let sums = |runs: &[Run]| {
                let mut sums = std::collections::BTreeMap::<(u64, bool, bool), u64>::new();
                for run in runs {
                    let key = (run.page, run.kind == Kind::FETCH, run.kind.has(Kind::KERNEL));
                    *sums.entry(key).or_default() += u64::from(run.accesses);
                }
                sums
            };
            assert_eq!(sums(&many), sums(&few));
            let kernel =
                |runs: &[Run]| runs.iter().filter(|run| run.kind.has(Kind::KERNEL)).copied().collect::<Vec<_>>();
            assert_eq!(kernel(&many), kernel(&few));
        }
    }

    #[test]
    fn full_buffers_lose_nothing() {
        let mut vcpu = vcpu(false);
        let mut pages = std::collections::BTreeMap::<(u64, bool), u32>::new();
        for (address, kind) in accesses(Streams::MOST * 3) {
            let is_fetch = kind == Kind::FETCH;
            *pages.entry((address >> 12, is_fetch)).or_default() += if is_fetch { 3 } else { 1 };
            if is_fetch { fetch(&mut vcpu, address >> 12, 3) } else { access(&mut vcpu, address, STORE) }
        }
        for run in chunk(&mut vcpu, false).runs() {
            *pages.get_mut(&(run.page, run.kind == Kind::FETCH)).unwrap() -= run.accesses;
        }
        assert!(pages.values().all(|left| *left == 0), "{pages:?}");
    }

    #[test]
    fn long_runs_are_counted() {
        let mut vcpu = vcpu(false);
        for number in 0..3_000_000 {
            fetch(&mut vcpu, 7, 3);
            access(&mut vcpu, 0x5000, if number == 0 { STORE } else { LOAD });
        }
        access(&mut vcpu, 0x6000, LOAD);
        let found: Vec<_> =
            chunk(&mut vcpu, false).runs().map(|run| (run.page, run.kind.bits(), run.accesses)).collect();
        assert_eq!(found, [(7, 1, 9_000_000), (5, 14, 3_000_000), (6, 2, 1)]);
    }

    #[test]
    fn nothing_is_recorded_outside_a_window() {
        let header = header(false, Some(Window { skip_instructions: 100, record_instructions: None }));
        let mut vcpu = begun(&header, None);
        assert!(
            !vcpu.fetch(1, 1) && !vcpu.current().access(0x1000, Transfer::Load) && !vcpu.access_anywhere(0x1000, LOAD)
        );
        vcpu.count(100);
        assert!(matches!(vcpu.attend(), Attention::Opened));
        assert!(vcpu.fetch(1, 1) && vcpu.current().access(0x1000, Transfer::Load));
        assert_eq!(chunk(&mut vcpu, false).len(), 2);
    }

    #[test]
    fn an_old_chunk_is_taken() {
        let mut vcpu = vcpu(false);
        access(&mut vcpu, 0x1000, LOAD);
        vcpu.count(WRITTEN_AFTER);
        assert!(vcpu.empty(usize::MAX));
        assert_eq!(chunk(&mut vcpu, false).len(), 1);
        assert!(!vcpu.empty(usize::MAX));
    }

    #[test]
    fn an_access_over_the_end_of_a_page_is_one_to_each() {
        let mut runs = vcpu(false);
        access(&mut runs, 0x1ffc, STORE);
        let found: Vec<_> = chunk(&mut runs, false).runs().map(|run| (run.page, run.kind.bits())).collect();
        assert_eq!(found, [(1, 4), (2, 4)]);
        let mut vcpu = vcpu(true);
        vcpu.keep(0x1ffc, 8, STORE);
        vcpu.keep(0x2ffe, 6, Marks::fetch(6));
        let chunk = chunk(&mut vcpu, true);
        let found: Vec<_> = chunk.runs().map(|run| (run.page, run.kind.bits(), run.accesses)).collect();
        assert_eq!(found, [(1, 4, 1), (2, 4, 1), (2, 1, 1), (3, 1, 1)]);
        let kept: Vec<_> = chunk.addresses.iter().map(|access| (access.offset(), access.bytes())).collect();
        assert_eq!(kept, [(0xffc, Some(4)), (0, Some(4)), (0xffe, Some(2)), (0, Some(4))]);
    }

    #[test]
    fn windows_open_and_close_at_their_instructions() {
        let header = header(false, Some(Window { skip_instructions: 100, record_instructions: Some(10) }));
        let mut vcpu = begun(&header, Some(15));
        let mut changes = Vec::new();
        for _ in 0..400 {
            while vcpu.needs_attention() {
                match vcpu.attend() {
                    Attention::Opened => changes.push((true, vcpu.instructions())),
                    Attention::Closed | Attention::Complete => changes.push((false, vcpu.instructions())),
                    Attention::Empty | Attention::Begun => unreachable!(),
                }
            }
            vcpu.count(1);
        }
        assert_eq!(changes, [(true, 100), (false, 110), (true, 210), (false, 215)]);
    }

    #[test]
    fn a_processor_says_when_it_begins_and_when_it_has_all() {
        for (window, expected) in [
            (None, &["begun 0", "complete 15"][..]),
            (
                Some(Window { skip_instructions: 100, record_instructions: Some(10) }),
                &["begun 0", "opened 100", "closed 110", "opened 210", "complete 215"],
            ),
        ] {
            let header = Header { system: true, ..header(false, window) };
            let mut vcpu = begun(&header, Some(15));
            let mut said = Vec::new();
            for _ in 0..400 {
                while vcpu.needs_attention() {
                    let what = match vcpu.attend() {
                        Attention::Begun => "begun",
                        Attention::Opened => "opened",
                        Attention::Closed => "closed",
                        Attention::Complete => "complete",
                        Attention::Empty => unreachable!(),
                    };
                    said.push(format!("{what} {}", vcpu.instructions()));
                }
                vcpu.count(1);
            }
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn a_chunk_is_taken_before_it_overflows() {
        let mut vcpu = vcpu(false);
        let mut given = 0;
        for page in 0..200_000u64 {
            if !vcpu.current().access(page << 12, Transfer::Load) {
                if vcpu.empty(usize::MAX) {
                    given += chunk(&mut vcpu, false).len();
                }
                assert!(vcpu.current().access(page << 12, Transfer::Load));
            }
        }
        assert!(given > 0);
        assert_eq!(given + chunk(&mut vcpu, false).len(), 200_000);
        assert_eq!(vcpu.place(), 200_000);
    }
}
