// SPDX-License-Identifier: GPL-2.0-or-later
//! One emulated processor: what its callbacks append to, and what becomes of that.
//!
//! Callbacks write one word for an access and nothing else. Full buffers of words are made runs of in one go, runs become
//! a chunk. None of the loops over accesses has a branch that depends on what the program does.

use std::io;

use trace::{Access, Builder, Encoder, Header, Kind, PAGE_SHIFT, Run};

/// Words of a buffer: little enough to stay in the second-level cache of a core.
const WORDS: usize = 1 << 14;
/// Places behind the last: an access can have two words.
const SPARE: usize = 2;
/// Runs that are made before they go into a chunk.
const RUNS: usize = 1 << 13;
/// Instructions after which runs go into a chunk in any case, so that none has more accesses than a count holds: an
/// instruction has at most some tens.
const INSTRUCTIONS: u64 = 1 << 26;

/// A word: the address, and above it log2 of the size, and what is done. Addresses of programs have at most 57 bits.
const ADDRESS: u64 = (1 << SIZE_SHIFT) - 1;
const SIZE_SHIFT: u32 = 57;
/// The size is no power of two, or above 64 bytes.
const STRANGE_SIZE: u64 = 7;
const STORE_SHIFT: u32 = 60;
const FETCH: u64 = 1 << 61;

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

const NO_RUN: Current = Current { page: NONE, index: 0 };

/// What the words of accesses of a kind have above their addresses. Computed once for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks(u64);

impl Marks {
    /// Those of loads or stores of `1 << size_shift` bytes.
    pub const fn new(size_shift: u32, store: bool) -> Marks {
        let size = if size_shift < 7 { size_shift as u64 } else { STRANGE_SIZE };
        Marks(size << SIZE_SHIFT | (store as u64) << STORE_SHIFT)
    }

    /// Those of the part of an access that lies in the page of `address`: the rest may be anywhere in memory.
    #[inline(always)]
    pub const fn within_page(self, address: u64) -> Marks {
        if (address & 0xfff) + self.bytes() > 0x1000 { Marks(self.0 | STRANGE_SIZE << SIZE_SHIFT) } else { self }
    }

    /// As a byte, which is not zero.
    pub const fn to_byte(self) -> u8 {
        (self.0 >> SIZE_SHIFT) as u8 | 0x80
    }

    /// From that byte.
    pub const fn from_byte(byte: u8) -> Marks {
        Marks(((byte & 0x7f) as u64) << SIZE_SHIFT)
    }

    /// Bytes of an access; those of a strange size count as one.
    const fn bytes(self) -> u64 {
        let size = self.0 >> SIZE_SHIFT & 7;
        if size == STRANGE_SIZE { 1 } else { 1 << size }
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
    words_len: usize,
    words: Box<[u64]>,
    recording: bool,
    instructions: u64,
    /// Instructions at which [`Vcpu::attend`] is asked.
    attention: u64,
    /// How many events of all threads this one has seen.
    pub seen: u64,
    /// The page that is fetched from.
    fetch_page: u64,
    /// Instructions of each fetch among the words, and before them those of the run that went on.
    fetches: Box<[u64]>,
    fetches_last: usize,
    runs: Box<[RawRun]>,
    begun: usize,
    data: Current,
    fetch: Current,
    addresses: Vec<Access>,
    keeps_addresses: bool,
    /// Where the window ends or begins.
    boundary: u64,
    schedule: Schedule,
    builder: Builder,
    /// Runs that went into chunks.
    taken: u64,
    /// Its number in the trace.
    pub thread: u32,
    /// Accesses and instructions that were left out because they are not of memory.
    pub outside: (u64, u64),
    /// The call that it is in.
    pub call: Option<crate::call::Pending>,
}

impl Vcpu {
    /// A vCPU that has done nothing yet.
    pub fn new(thread: u32, header: &Header, schedule: Schedule, seen: u64) -> Vcpu {
        let mut vcpu = Vcpu {
            words_len: 0,
            words: vec![0; WORDS + SPARE].into_boxed_slice(),
            recording: false,
            instructions: 0,
            attention: 0,
            seen,
            fetch_page: NONE,
            fetches: vec![0; WORDS + SPARE + 1].into_boxed_slice(),
            fetches_last: 0,
            runs: vec![RawRun { page: 0, word: 0 }; RUNS + WORDS + SPARE].into_boxed_slice(),
            begun: 0,
            data: NO_RUN,
            fetch: NO_RUN,
            addresses: Vec::new(),
            keeps_addresses: header.columns.addresses,
            boundary: schedule.skip,
            schedule,
            builder: Builder::new(header.columns),
            taken: 0,
            thread,
            outside: (0, 0),
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

    /// The number of runs so far. The buffer must have been emptied.
    pub fn place(&self) -> u64 {
        debug_assert_eq!(self.words_len, 0);
        self.taken + self.begun as u64
    }

    #[inline(always)]
    fn push(&mut self, word: u64) {
        debug_assert!(self.words_len < self.words.len());
        // SAFETY: the buffer is emptied before it is full: `is_full` is asked after every access, which has two words
        // at most.
        unsafe { *self.words.get_unchecked_mut(self.words_len) = word };
        self.words_len += 1;
    }

    /// A load or store.
    #[inline(always)]
    pub fn access(&mut self, address: u64, marks: Marks) {
        let address = address & ADDRESS;
        if (address & 0xfff) + marks.bytes() > 0x1000 {
            return self.access_over_pages(address, marks.bytes(), marks.0 & !(7 << SIZE_SHIFT));
        }
        self.push(address | marks.0);
    }

    /// An access that crosses the end of a page is one to each.
    #[cold]
    fn access_over_pages(&mut self, address: u64, bytes: u64, what: u64) {
        let in_page = 0x1000 - (address & 0xfff);
        for (address, bytes) in [(address, in_page), (address + in_page, bytes - in_page)] {
            let size = if bytes.is_power_of_two() { u64::from(bytes.trailing_zeros()) } else { STRANGE_SIZE };
            self.push((address & ADDRESS) | size << SIZE_SHIFT | what);
        }
    }

    /// Fetches `instructions` instructions of a page.
    #[inline(always)]
    pub fn fetch(&mut self, page: u64, instructions: u64) {
        let is_new = page != self.fetch_page;
        self.fetch_page = page;
        debug_assert!(self.words_len < self.words.len());
        // SAFETY: as in `push`. A word that is not counted is overwritten by the next.
        unsafe { *self.words.get_unchecked_mut(self.words_len) = page << PAGE_SHIFT & ADDRESS | FETCH };
        self.words_len += usize::from(is_new);
        self.fetches_last += usize::from(is_new);
        // SAFETY: there are never more fetches than words, and one before them.
        let count = unsafe { self.fetches.get_unchecked_mut(self.fetches_last) };
        *count = instructions + if is_new { 0 } else { *count };
    }

    /// Fetches the instruction of `bytes` bytes at an address, which is kept.
    #[inline(always)]
    pub fn fetch_at(&mut self, address: u64, bytes: u64) {
        let address = address & ADDRESS;
        if (address & 0xfff) + bytes > 0x1000 {
            return self.access_over_pages(address, bytes, FETCH);
        }
        let size = if bytes.is_power_of_two() { u64::from(bytes.trailing_zeros()) } else { STRANGE_SIZE };
        self.push(address | size << SIZE_SHIFT | FETCH);
    }

    /// Whether the buffer must be emptied before the next access.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.words_len >= WORDS
    }

    /// Whether [`Vcpu::attend`] must be asked before more instructions are counted.
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

    /// Makes runs of the words.
    fn digest(&mut self) {
        if self.keeps_addresses { self.digest_words::<true>() } else { self.digest_words::<false>() }
    }

    fn digest_words<const KEEP: bool>(&mut self) {
        let (mut data, mut fetch, mut begun) = (self.data, self.fetch, self.begun);
        if !KEEP {
            // Of the run that went on.
            self.runs[fetch.index].word += std::mem::take(&mut self.fetches[0]);
        }
        let mut counts = self.fetches[1..].iter();
        for word in &self.words[..self.words_len] {
            let is_fetch = word & FETCH != 0;
            let page = (word & ADDRESS) >> PAGE_SHIFT;
            let is_store = word >> STORE_SHIFT & 1;
            let current = if is_fetch { fetch } else { data };
            let is_new = page != current.page || (is_fetch && !KEEP);
            let now = Current { page, index: if is_new { begun } else { current.index } };
            begun += usize::from(is_new);
            if is_fetch {
                fetch = now;
                data.page = if KEEP { NONE } else { data.page };
            } else {
                data = now;
                fetch.page = if KEEP { NONE } else { fetch.page };
            }
            let count = if is_fetch && !KEEP { counts.next().copied().unwrap_or_default() } else { 1 };
            let kind = if is_fetch { u64::from(Kind::FETCH.bits()) } else { u64::from(Kind::LOAD.bits()) << is_store };
            let first = u64::from(Kind::STORE_FIRST.bits()) * (is_store & u64::from(is_new));
            let run = &mut self.runs[now.index];
            run.page = page;
            run.word = (run.word + count) | (kind | first) << KIND_SHIFT;
            if KEEP {
                let size = word >> SIZE_SHIFT & 7;
                let bytes = if size == STRANGE_SIZE { 0 } else { 1 << size };
                self.addresses.push(Access::new((word & 0xfff) as u16, bytes, is_store == 1));
            }
        }
        (self.data, self.fetch, self.begun) = (data, fetch, begun);
        (self.words_len, self.fetches_last) = (0, 0);
    }

    /// Empties the buffer. Whether the chunk must be taken: another buffer may not fit in it, or it has `most` runs.
    pub fn empty(&mut self, most: usize) -> bool {
        self.digest();
        if self.begun >= RUNS || self.addresses.len() >= RUNS {
            self.build();
        }
        self.must_be_taken(most)
    }

    /// Empties the buffer and ends the current runs, so that no run lies on both sides of this place. Whether the chunk
    /// must be taken.
    pub fn end_runs(&mut self, most: usize) -> bool {
        self.build();
        self.must_be_taken(most)
    }

    /// An access of the kernel that lies in one page, after the current runs were ended. Whether the chunk must be taken.
    pub fn kernel_access(&mut self, address: u64, bytes: u64, store: bool, most: usize) -> bool {
        let page = (address & ADDRESS) >> PAGE_SHIFT;
        let kind = if store { Kind::KERNEL_STORE } else { Kind::KERNEL_LOAD };
        let access = Access::new((address & 0xfff) as u16, bytes as u32, store);
        let kept = if self.keeps_addresses { &[access][..] } else { &[] };
        self.builder.push(Run { page, kind, accesses: 1 }, kept);
        self.taken += 1;
        self.must_be_taken(most)
    }

    fn must_be_taken(&self, most: usize) -> bool {
        !self.builder.has_room(RUNS + WORDS + SPARE, RUNS + WORDS + SPARE) || self.builder.len() + RUNS + WORDS > most
    }

    /// Moves all runs into the chunk.
    pub fn build(&mut self) {
        self.digest();
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
        (self.data, self.fetch, self.fetch_page) = (NO_RUN, NO_RUN, NONE);
        self.set_attention();
    }

    /// Takes the chunk as bytes, with everything so far in it; gives how many runs it has.
    ///
    /// # Errors
    /// The compressor has no memory.
    pub fn take(&mut self, encoder: &mut Encoder, bytes: &mut Vec<u8>) -> io::Result<usize> {
        self.build();
        self.builder.encode(encoder, bytes)
    }

    /// Records nothing any more.
    pub fn stop(&mut self) {
        self.recording = false;
        self.boundary = u64::MAX;
        self.set_attention();
    }

    /// Forgets what a forked process inherited: it begins a trace of its own.
    pub fn begin_anew(&mut self) {
        self.build();
        self.builder.clear();
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
    use trace::{Chunk, Columns, Filter, Runs, SCHEMA, Window};

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
            process: None,
        }
    }

    fn vcpu(addresses: bool) -> Vcpu {
        let header = header(addresses, None);
        Vcpu::new(0, &header, Schedule::new(&header, None), 0)
    }

    fn chunk(vcpu: &mut Vcpu, addresses: bool) -> Chunk {
        let mut bytes = Vec::new();
        let runs = vcpu.take(&mut Encoder::new().unwrap(), &mut bytes).unwrap();
        Chunk::decode(&bytes, runs, header(addresses, None).columns).unwrap()
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

    #[test]
    fn runs_are_those_that_the_trace_crate_makes() {
        for keep in [false, true] {
            let mut expected = if keep { Runs::in_sequence() } else { Runs::default() };
            let mut vcpu = vcpu(keep);
            for (number, (address, kind)) in accesses(RUNS).enumerate() {
                expected.access(address, kind);
                match (kind, keep) {
                    (Kind::FETCH, false) => vcpu.fetch(address >> 12, 1),
                    (Kind::FETCH, true) => vcpu.fetch_at(address, 4),
                    (_, _) => vcpu.access(address, if kind == Kind::STORE { STORE } else { LOAD }),
                }
                // As an event does.
                if number % 77 == 0 {
                    assert!(!vcpu.empty(usize::MAX));
                    assert_eq!(vcpu.place(), expected.len() as u64);
                }
            }
            let chunk = chunk(&mut vcpu, keep);
            assert_eq!(chunk.runs().collect::<Vec<Run>>(), expected.take());
            assert_eq!(chunk.addresses.len(), if keep { RUNS } else { 0 });
        }
    }

    #[test]
    fn fetches_are_counted_over_full_buffers() {
        let mut vcpu = vcpu(false);
        for _ in 0..WORDS {
            vcpu.fetch(7, 3);
            vcpu.access(0x5000, LOAD);
            if vcpu.is_full() {
                assert!(!vcpu.empty(usize::MAX));
            }
        }
        let found: Vec<_> = chunk(&mut vcpu, false).runs().map(|run| (run.page, run.accesses as usize)).collect();
        assert_eq!(found, [(7, 3 * WORDS), (5, WORDS)]);
    }

    #[test]
    fn an_access_over_the_end_of_a_page_is_one_to_each() {
        let mut vcpu = vcpu(true);
        vcpu.access(0x1ffc, STORE);
        vcpu.fetch_at(0x2ffe, 6);
        let chunk = chunk(&mut vcpu, true);
        let found: Vec<_> = chunk.runs().map(|run| (run.page, run.kind.bits(), run.accesses)).collect();
        assert_eq!(found, [(1, 4, 1), (2, 4, 1), (2, 1, 1), (3, 1, 1)]);
        let kept: Vec<_> = chunk.addresses.iter().map(|access| (access.offset(), access.bytes())).collect();
        assert_eq!(kept, [(0xffc, Some(4)), (0, Some(4)), (0xffe, Some(2)), (0, Some(4))]);
    }

    #[test]
    fn marks_survive_as_a_byte() {
        for marks in [LOAD, STORE, Marks::new(0, false), Marks::new(12, true)] {
            assert_eq!(Marks::from_byte(marks.to_byte()), marks);
            assert_ne!(marks.to_byte(), 0);
        }
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
    fn a_chunk_is_taken_before_it_overflows() {
        let mut vcpu = vcpu(false);
        let mut given = 0;
        for page in 0..200_000u64 {
            vcpu.access(page << 12, LOAD);
            if vcpu.is_full() && vcpu.empty(usize::MAX) {
                given += chunk(&mut vcpu, false).len();
            }
        }
        assert_eq!(given + chunk(&mut vcpu, false).len(), 200_000);
        assert_eq!(vcpu.place(), 200_000);
    }
}
