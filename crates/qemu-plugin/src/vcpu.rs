// SPDX-License-Identifier: GPL-2.0-or-later
//! One emulated processor: a buffer of runs that callbacks append to, and the chunk that full buffers go into.
//!
//! A run under way is changed in place, whether it is new or not, so that the hot path has no branch that depends on
//! what the program does.

use trace::{Access, Builder, Chunk, Header, Kind, PAGE_SHIFT, Run};

/// Runs of a buffer. It stays in the second-level cache of a core.
const RUNS: usize = 1 << 14;
/// Places behind the last: one access can begin two runs.
const SPARE: usize = 2;
/// Addresses of a buffer, where those are kept.
const ADDRESSES: usize = 1 << 17;
/// Instructions after which a buffer is emptied, so that no run has more accesses than a count holds: an instruction
/// has at most some tens.
const INSTRUCTIONS: u64 = 1 << 26;

/// Where the kind of a run begins in its word; below is the number of accesses.
const KIND_SHIFT: u32 = 60;
/// No page.
const NONE: u64 = u64::MAX;

/// A run while it is made.
#[derive(Clone, Copy)]
struct RawRun {
    page: u64,
    /// Accesses, and above [`KIND_SHIFT`] the kind. `STORE_FIRST` says that the first is a store, whatever follows.
    word: u64,
}

/// The run that a stream of accesses is in.
#[derive(Clone, Copy)]
struct Current {
    page: u64,
    index: usize,
}

/// What an access does to the word of its run.
#[derive(Clone, Copy)]
struct Change {
    accesses: u64,
    kind: u64,
    /// If it is the first.
    first: u64,
}

impl Change {
    const fn new(kind: Kind, first: Kind, accesses: u64) -> Change {
        Change { accesses, kind: (kind.bits() as u64) << KIND_SHIFT, first: (first.bits() as u64) << KIND_SHIFT }
    }
}

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
        if self.left == 0 { u64::MAX } else { instructions.saturating_add(self.skip) }
    }
}

/// What a block should do before it goes on.
pub enum Attention {
    /// A window begins: say so.
    Opened,
    /// A window has ended: write what there is.
    Closed,
    /// The buffer must be emptied.
    Empty,
}

/// The state of one vCPU, that is of one thread of the program.
pub struct Vcpu {
    begun: usize,
    data: Current,
    fetch: Current,
    runs: Box<[RawRun]>,
    recording: bool,
    addresses: Vec<Access>,
    instructions: u64,
    /// Instructions at which [`Vcpu::attend`] is asked.
    attention: u64,
    /// How many events of all threads this one has seen.
    pub seen: u64,
    /// Where the window ends or begins.
    boundary: u64,
    schedule: Schedule,
    keeps_addresses: bool,
    builder: Builder,
    /// Runs that went into chunks.
    taken: u64,
    /// Its number in the trace.
    pub thread: u32,
    /// The call that it is in.
    pub call: Option<(crate::call::Kind, [u64; 6])>,
}

impl Vcpu {
    /// A vCPU that has done nothing yet.
    pub fn new(thread: u32, header: &Header, schedule: Schedule, seen: u64) -> Vcpu {
        let keeps_addresses = header.columns.addresses;
        let mut vcpu = Vcpu {
            begun: 0,
            data: Current { page: NONE, index: 0 },
            fetch: Current { page: NONE, index: 0 },
            runs: vec![RawRun { page: 0, word: 0 }; RUNS + SPARE].into_boxed_slice(),
            recording: false,
            addresses: Vec::with_capacity(if keeps_addresses { ADDRESSES + SPARE } else { 0 }),
            instructions: 0,
            attention: 0,
            seen,
            boundary: schedule.skip,
            schedule,
            keeps_addresses,
            builder: Builder::new(header.columns),
            taken: 0,
            thread,
            call: None,
        };
        if vcpu.boundary == 0 {
            vcpu.recording = true;
            vcpu.boundary = vcpu.schedule.open(0);
        }
        vcpu.set_attention();
        vcpu
    }

    /// Whether accesses are recorded now.
    #[inline(always)]
    pub fn is_recording(&self) -> bool {
        self.recording
    }

    /// Instructions so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// The number of runs so far.
    pub fn place(&self) -> u64 {
        self.taken + self.begun as u64
    }

    /// A load or store of `1 << size_shift` bytes. The buffer has room.
    #[inline(always)]
    pub fn access<const KEEP: bool>(&mut self, address: u64, size_shift: u32, store: bool) {
        const LOAD: Change = Change::new(Kind::LOAD, Kind::LOAD, 1);
        const STORE: Change = Change::new(Kind::STORE, Kind::STORE_FIRST, 1);
        let change = if store { STORE } else { LOAD };
        let bytes = 1u64 << size_shift;
        self.append::<false, KEEP>(address >> PAGE_SHIFT, change);
        let in_page = 0x1000 - (address & 0xfff);
        if KEEP {
            self.addresses.push(Access::new((address & 0xfff) as u16, bytes.min(in_page) as u32, store));
        }
        if bytes > in_page {
            self.append::<false, KEEP>((address >> PAGE_SHIFT) + 1, change);
            if KEEP {
                self.addresses.push(Access::new(0, (bytes - in_page) as u32, store));
            }
        }
    }

    /// Fetches `accesses` instructions of a page.
    #[inline(always)]
    pub fn fetch(&mut self, page: u64, accesses: u64) {
        self.append::<true, false>(page, Change { accesses, ..Change::new(Kind::FETCH, Kind::FETCH, 0) });
    }

    /// Fetches the instruction of `bytes` bytes at an address, which is kept.
    #[inline(always)]
    pub fn fetch_at(&mut self, address: u64, bytes: u64) {
        const FETCH: Change = Change::new(Kind::FETCH, Kind::FETCH, 1);
        let in_page = 0x1000 - (address & 0xfff);
        self.append::<true, true>(address >> PAGE_SHIFT, FETCH);
        self.addresses.push(Access::new((address & 0xfff) as u16, bytes.min(in_page) as u32, false));
        if bytes > in_page {
            self.append::<true, true>((address >> PAGE_SHIFT) + 1, FETCH);
            self.addresses.push(Access::new(0, (bytes - in_page) as u32, false));
        }
    }

    #[inline(always)]
    fn append<const FETCH: bool, const IN_SEQUENCE: bool>(&mut self, page: u64, change: Change) {
        let (current, other) =
            if FETCH { (&mut self.fetch, &mut self.data) } else { (&mut self.data, &mut self.fetch) };
        let is_new = current.page != page;
        let index = if is_new { self.begun } else { current.index };
        *current = Current { page, index };
        if IN_SEQUENCE {
            other.page = NONE;
        }
        self.begun += usize::from(is_new);
        // The buffer is emptied before it is full, and the index of a run that is not new was one before.
        debug_assert!(index < self.runs.len());
        // SAFETY: see above; `is_full` is asked after every access.
        let run = unsafe { self.runs.get_unchecked_mut(index) };
        run.page = page;
        let first = if is_new { change.first } else { 0 };
        run.word = (run.word + change.accesses) | change.kind | first;
    }

    /// Whether the buffer must be emptied before the next access.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.begun >= RUNS || self.addresses.len() >= ADDRESSES && self.keeps_addresses
    }

    /// Counts instructions that are about to be executed. `true` if [`Vcpu::attend`] must be asked before.
    #[inline(always)]
    pub fn needs_attention(&self) -> bool {
        self.instructions >= self.attention
    }

    /// Counts instructions that are about to be executed.
    #[inline(always)]
    pub fn count(&mut self, instructions: u64) {
        self.instructions += instructions;
    }

    /// What is to be done after so many instructions.
    pub fn attend(&mut self) -> Attention {
        let attention = match (self.instructions >= self.boundary, self.recording) {
            (false, _) => Attention::Empty,
            (true, false) => {
                self.boundary = self.schedule.open(self.instructions);
                self.recording = true;
                Attention::Opened
            }
            (true, true) => {
                self.boundary = self.schedule.close(self.instructions);
                self.recording = false;
                Attention::Closed
            }
        };
        self.set_attention();
        attention
    }

    fn set_attention(&mut self) {
        self.attention = self.boundary.min(self.instructions.saturating_add(INSTRUCTIONS));
    }

    /// Empties the buffer; gives the chunk if another buffer may not fit in it, or has more than `most` runs.
    pub fn empty(&mut self, most: usize) -> Option<Chunk> {
        let mut rest = &self.addresses[..];
        for raw in &mut self.runs[..self.begun] {
            let run = raw.take();
            let kept = if self.keeps_addresses { run.accesses as usize } else { 0 };
            let (own, after) = rest.split_at(kept);
            rest = after;
            self.builder.push(run, own);
        }
        self.addresses.clear();
        self.taken += self.begun as u64;
        self.begun = 0;
        (self.data.page, self.fetch.page) = (NONE, NONE);
        self.set_attention();
        let fits = self.builder.has_room(RUNS + SPARE, ADDRESSES + SPARE) && self.builder.len() + RUNS <= most;
        if fits { None } else { Some(self.builder.take()) }
    }

    /// Empties the buffer and gives the chunk, whatever is in it.
    pub fn take(&mut self) -> Chunk {
        self.empty(usize::MAX).unwrap_or_else(|| self.builder.take())
    }

    /// Records nothing any more.
    pub fn stop(&mut self) {
        self.recording = false;
        self.boundary = u64::MAX;
        self.set_attention();
    }

    /// Forgets what a forked process inherited: it begins a trace of its own.
    pub fn begin_anew(&mut self) {
        self.take();
        (self.taken, self.instructions, self.seen, self.thread) = (0, 0, 0, 0);
        self.boundary = if self.recording { self.schedule.open(0) } else { self.schedule.skip };
        self.set_attention();
    }
}

impl RawRun {
    /// The run, after which its place is ready for another.
    #[inline(always)]
    fn take(&mut self) -> Run {
        let mut bits = (self.word >> KIND_SHIFT) as u8;
        if bits & Kind::LOAD.bits() == 0 {
            bits &= !Kind::STORE_FIRST.bits();
        }
        let accesses = (self.word & ((1 << KIND_SHIFT) - 1)) as u32;
        self.word = 0;
        Run { page: self.page, kind: Kind::from_bits(bits).unwrap_or_default(), accesses }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{Columns, Filter, Runs, SCHEMA, Window};

    fn header(addresses: bool, window: Option<Window>) -> Header {
        Header {
            schema: SCHEMA.to_owned(),
            recorder: String::new(),
            command: Vec::new(),
            architecture: String::new(),
            system: false,
            columns: Columns { kinds: true, accesses: true, addresses },
            filter: Filter::None,
            window,
        }
    }

    fn vcpu(addresses: bool) -> Vcpu {
        let header = header(addresses, None);
        Vcpu::new(0, &header, Schedule::new(&header, None), 0)
    }

    /// Accesses that look like a program's, the same every time.
    fn accesses() -> impl Iterator<Item = (u64, Kind)> {
        let mut state = 1u64;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let kind = [Kind::FETCH, Kind::LOAD, Kind::LOAD, Kind::STORE][(state >> 40) as usize % 4];
            ((state >> 60) << 12 | (state >> 50 & 0x3f) << 3, kind)
        })
        .take(RUNS / 2)
    }

    #[test]
    fn runs_are_those_that_the_trace_crate_makes() {
        for keep in [false, true] {
            let mut expected = if keep { Runs::in_sequence() } else { Runs::default() };
            let mut vcpu = vcpu(keep);
            for (address, kind) in accesses() {
                expected.access(address, kind);
                match (kind, keep) {
                    (Kind::FETCH, false) => vcpu.fetch(address >> 12, 1),
                    (Kind::FETCH, true) => vcpu.fetch_at(address, 4),
                    (_, false) => vcpu.access::<false>(address, 3, kind == Kind::STORE),
                    (_, true) => vcpu.access::<true>(address, 3, kind == Kind::STORE),
                }
            }
            let chunk = vcpu.take();
            assert_eq!(chunk.runs().collect::<Vec<Run>>(), expected.take());
            assert_eq!(chunk.addresses.len(), if keep { RUNS / 2 } else { 0 });
        }
    }

    #[test]
    fn an_access_over_the_end_of_a_page_is_one_to_each() {
        let mut vcpu = vcpu(true);
        vcpu.access::<true>(0x1ffc, 3, true);
        vcpu.fetch_at(0x2ffe, 6);
        let chunk = vcpu.take();
        let found: Vec<_> = chunk.runs().map(|run| (run.page, run.kind.bits(), run.accesses)).collect();
        assert_eq!(found, [(1, 4, 1), (2, 4, 1), (2, 1, 1), (3, 1, 1)]);
        let kept: Vec<_> = chunk.addresses.iter().map(|access| (access.offset(), access.bytes())).collect();
        assert_eq!(kept, [(0xffc, Some(4)), (0, Some(4)), (0xffe, Some(2)), (0, Some(4))]);
    }

    #[test]
    fn windows_open_and_close_at_their_instructions() {
        let header = header(false, Some(Window { skip_instructions: 100, record_instructions: Some(10) }));
        let mut vcpu = Vcpu::new(0, &header, Schedule::new(&header, Some(15)), 0);
        let mut changes = Vec::new();
        for _ in 0..400 {
            while vcpu.needs_attention() {
                match vcpu.attend() {
                    Attention::Opened => changes.push((true, vcpu.instructions())),
                    Attention::Closed => changes.push((false, vcpu.instructions())),
                    Attention::Empty => unreachable!(),
                }
            }
            vcpu.count(1);
        }
        assert_eq!(changes, [(true, 100), (false, 110), (true, 210), (false, 215)]);
    }

    #[test]
    fn a_chunk_is_given_before_it_overflows() {
        let mut vcpu = vcpu(false);
        let mut given = 0;
        for page in 0..200_000u64 {
            vcpu.access::<false>(page << 12, 0, false);
            if vcpu.is_full() {
                given += vcpu.empty(usize::MAX).map_or(0, |chunk| chunk.len());
            }
        }
        assert_eq!(given + vcpu.take().len(), 200_000);
        assert_eq!(vcpu.place(), 200_000);
    }
}
