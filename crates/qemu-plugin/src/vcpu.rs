// SPDX-License-Identifier: GPL-2.0-or-later
//! [`Vcpu`]: one emulated processor, with the buffers to which its callbacks append, and how these become chunks.

use std::io;

use trace::{Access, Builder, Columns, Encoder, Header, Kind, PAGE_SHIFT, Run, Runs, pace, page_of};

use crate::call::Pending;
use crate::freed_ranges::FreedRanges;
use crate::guest_memory::owned::Owned;
use crate::schedule::Schedule;
use crate::touched::Touched;
pub use current::Current;

mod current;

/// Number of runs in a buffer: small enough for the second-level cache of a core.
const RUNS: usize = 1 << 13;
/// The minimum number of runs in a buffer.
const MIN_RUNS: usize = 1 << 8;
/// Number of accesses in a buffer where addresses are kept.
const ADDRESSES: usize = 1 << 14;
/// The maximum number of runs that an access begins: it may touch two pages.
const MAX_RUNS_PER_ACCESS: usize = 2;
/// Bits of an address; the bits above have another meaning to the kernel.
const ADDRESS: u64 = (1 << 57) - 1;

/// What must be done before a block continues.
pub enum Attention {
    /// A processor of a machine is about to execute its first instruction.
    FirstInstruction,
    /// The call that might have ended the program has returned.
    CallReturned,
    /// A window begins; record it.
    WindowStart,
    /// A window has ended; write the data.
    WindowEnd,
    /// The last window has ended, at the limit of recorded instructions; write the data.
    LastWindowEnd,
    /// A block is due.
    BlockDue,
}

/// Buffers for encoding chunks. They are reused, because most of their memory is the compressor's.
pub struct EncoderBuffers {
    encoder: Encoder,
    /// The builder for threads that have none.
    builder: Builder,
    /// The last chunk.
    pub bytes: Vec<u8>,
}

impl EncoderBuffers {
    pub fn new(columns: Columns) -> io::Result<EncoderBuffers> {
        Ok(EncoderBuffers { encoder: Encoder::new()?, builder: Builder::new(columns), bytes: Vec::new() })
    }
}

/// The state of one vCPU, that is, of one thread of the program.
pub struct Vcpu {
    current: Current,
    recording: bool,
    keeps_addresses: bool,
    /// The accesses of the runs in the buffer, where all addresses are kept.
    addresses: Vec<Access>,
    /// Instruction count at which the window ends or the next begins.
    boundary: u64,
    schedule: Schedule,
    /// Whether this is a machine's processor that has executed nothing yet.
    is_before_first_instruction: bool,
    /// Whether the vCPU is in a call that may end the program, or has executed nothing since.
    is_ending: bool,
    /// The chunk so far; `None` where there are many threads, whose runs stay in their buffers until a chunk is made.
    builder: Option<Builder>,
    /// Number of runs before those in the buffer.
    before: u64,
    /// Instruction count after which the next block is due.
    due: u64,
    /// The vCPU's number in the trace.
    pub thread: u32,
    /// Accesses and instructions that were left out because they are not in memory.
    pub outside: (u64, u64),
    /// The system call that the vCPU is in.
    pub call: Option<Pending>,
    /// The program's memory at the start of the current fork or clone.
    pub owned: Option<Owned>,
    /// Number of freed ranges that this vCPU has processed.
    freed_ranges: u64,
}

impl Vcpu {
    /// A vCPU that has done nothing yet.
    pub fn new(thread: u32, header: &Header, schedule: Schedule, seen: u64) -> Vcpu {
        let keeps_addresses = header.columns.addresses;
        let mut runs = if keeps_addresses { Runs::in_sequence(ADDRESSES) } else { Runs::new(RUNS) };
        runs.admit(false);
        let mut vcpu = Vcpu {
            current: Current { runs, instructions: 0, attention: 0, seen, touched: None },
            recording: false,
            keeps_addresses,
            addresses: Vec::new(),
            boundary: schedule.skip,
            schedule,
            is_before_first_instruction: header.system,
            is_ending: false,
            builder: Some(Builder::new(header.columns)),
            before: 0,
            due: pace::due(0),
            thread,
            outside: (0, 0),
            call: None,
            owned: None,
            freed_ranges: 0,
        };
        if vcpu.boundary == 0 {
            vcpu.record(true);
            vcpu.boundary = vcpu.schedule.open(0);
        }
        vcpu.set_attention();
        vcpu
    }

    /// The part of the state that callbacks use.
    #[inline(always)]
    pub fn current(&mut self) -> &mut Current {
        &mut self.current
    }

    /// How many events of all threads this vCPU has seen.
    pub fn seen(&self) -> u64 {
        self.current.seen
    }

    /// Sets the number of events that this vCPU has seen.
    pub fn set_seen(&mut self, events: u64) {
        self.current.seen = events;
    }

    /// Detects first touches of all pages from now on.
    pub fn detect_first_touches(&mut self) {
        self.current.touched.get_or_insert_with(|| Box::new(Touched::new()));
        // Where all addresses are kept, every access is checked separately.
        self.current.runs.guard(!self.keeps_addresses);
    }

    /// Whether this vCPU detects first touches.
    pub fn detects_first_touches(&self) -> bool {
        self.current.touched.is_some()
    }

    /// Records that this vCPU touches the page at this address. Returns whether this is a first touch whose time must be
    /// recorded.
    pub fn touch(&mut self, page: u64, kind: Kind) -> bool {
        let Some(touched) = &mut self.current.touched else { return false };
        let is_first = !touched.has(page, kind);
        if is_first {
            touched.insert(page, kind);
        }
        is_first
    }

    /// Forgets touched pages whose memory was removed.
    pub fn forget(&mut self, freed: &FreedRanges) {
        if let Some(touched) = &mut self.current.touched {
            self.freed_ranges = freed.apply_to(self.freed_ranges, touched);
        }
    }

    /// Whether everything recorded has been taken.
    pub fn is_empty(&self) -> bool {
        self.current.runs.is_empty() && self.builder.as_ref().is_none_or(Builder::is_empty)
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
        self.current.runs.admit(on);
    }

    /// Instructions executed so far.
    #[inline(always)]
    pub fn instructions(&self) -> u64 {
        self.current.instructions
    }

    /// Number of runs so far, which is the index of the next run.
    pub fn place(&self) -> u64 {
        self.before + self.current.runs.len() as u64
    }

    /// A load or store of `bytes` bytes; one that crosses the end of a page counts as one for each page. Returns `false` if
    /// nothing was done because there is no room.
    pub fn access_anywhere(&mut self, address: u64, bytes: u64, kind: Kind) -> bool {
        let (first, last) = (page_of(address), page_of(address.wrapping_add(bytes.max(1) - 1)));
        let runs = &mut self.current.runs;
        runs.has_room(MAX_RUNS_PER_ACCESS)
            && runs.add_data_anyway(first, kind)
            && (last == first || runs.add_data_anyway(last, kind))
    }

    /// An access of `bytes` bytes (0: unknown) whose address is kept. Returns whether the buffer must be emptied now.
    pub fn keep(&mut self, address: u64, bytes: u64, kind: Kind) -> bool {
        let in_page = (1 << PAGE_SHIFT) - (address & 0xfff);
        self.keep_part(address, bytes.min(in_page), kind);
        if bytes > in_page {
            self.keep_part(address.wrapping_add(in_page), bytes - in_page, kind);
        }
        self.addresses.len() + MAX_RUNS_PER_ACCESS > ADDRESSES
    }

    fn keep_part(&mut self, address: u64, bytes: u64, kind: Kind) {
        self.current.runs.access(address, kind);
        self.addresses.push(Access::new((address & 0xfff) as u16, bytes as u32, kind == Kind::STORE));
    }

    /// Whether [`Vcpu::attend`] must be called before more instructions are counted.
    #[inline(always)]
    pub fn needs_attention(&self) -> bool {
        self.instructions() >= self.current.attention
    }

    /// What must be done at this instruction count.
    pub fn attend(&mut self) -> Attention {
        let attention = match (self.instructions() >= self.boundary, self.recording) {
            _ if std::mem::take(&mut self.is_before_first_instruction) => Attention::FirstInstruction,
            _ if std::mem::take(&mut self.is_ending) => Attention::CallReturned,
            (false, _) => Attention::BlockDue,
            (true, false) => {
                self.boundary = self.schedule.open(self.instructions());
                self.record(true);
                self.due = pace::due(self.instructions());
                Attention::WindowStart
            }
            (true, true) => {
                self.boundary = self.schedule.close(self.instructions());
                self.record(false);
                if self.schedule.is_over() { Attention::LastWindowEnd } else { Attention::WindowEnd }
            }
        };
        self.set_attention();
        attention
    }

    fn set_attention(&mut self) {
        self.current.attention = match (self.is_before_first_instruction || self.is_ending, self.recording) {
            (true, _) => 0,
            (false, true) => self.boundary.min(self.due),
            (false, false) => self.boundary,
        };
    }

    /// Empties the buffers and ends the current runs, so that no run crosses this point. Returns whether the chunk must be taken:
    /// it may be full, it has `max_runs` runs, or it is due.
    pub fn empty(&mut self, max_runs: usize) -> bool {
        self.build();
        self.must_be_taken(max_runs)
    }

    /// An access by the kernel inside one page, after the buffers were emptied. Returns whether the chunk must be taken.
    pub fn kernel_access(&mut self, address: u64, bytes: u64, store: bool, max_runs: usize) -> bool {
        let kind = if store { Kind::KERNEL_STORE } else { Kind::KERNEL_LOAD };
        self.current.runs.push(Run { page: (address & ADDRESS) >> PAGE_SHIFT, kind, accesses: 1 });
        if self.keeps_addresses {
            self.addresses.push(Access::new((address & 0xfff) as u16, bytes as u32, store));
        }
        self.empty(max_runs)
    }

    fn must_be_taken(&self, max_runs: usize) -> bool {
        let is_full = match &self.builder {
            Some(builder) => {
                let buffer = self.current.runs.max_runs();
                !builder.has_room(buffer, buffer) || builder.len() + buffer > max_runs
            }
            None => self.current.runs.len() + MAX_RUNS_PER_ACCESS > self.current.runs.max_runs(),
        };
        is_full || self.recording && self.instructions() >= self.due
    }

    /// Ends the current runs and moves all runs into the chunk, if there is one.
    fn build(&mut self) {
        let runs = self.current.runs.finished();
        if let Some(builder) = &mut self.builder {
            builder.extend(runs);
            builder.keep(&self.addresses);
            self.before += runs.len() as u64;
            self.current.runs.clear();
            self.addresses.clear();
        }
    }

    /// Takes the chunk as bytes, with everything so far in it; returns its number of runs.
    pub fn take(&mut self, buffers: &mut EncoderBuffers) -> io::Result<usize> {
        self.build();
        self.due = pace::due(self.instructions());
        self.set_attention();
        buffers.bytes.clear();
        if let Some(builder) = &mut self.builder {
            return builder.encode(&mut buffers.encoder, &mut buffers.bytes);
        }
        let runs = self.current.runs.finished();
        self.before += runs.len() as u64;
        buffers.builder.extend(runs);
        self.current.runs.clear();
        buffers.builder.encode(&mut buffers.encoder, &mut buffers.bytes)
    }

    /// Prepares for the next chunk, of at most `max_runs` runs, after the last one was written or lost. With `many` threads, the
    /// buffer becomes the chunk directly.
    pub fn written(&mut self, header: &Header, max_runs: usize, many: bool) {
        if self.keeps_addresses {
            return;
        }
        match (&self.builder, many) {
            (Some(_), true) => self.builder = None,
            (None, false) => self.builder = Some(Builder::new(header.columns)),
            _ => {}
        }
        // The size is a power of two, so that it seldom changes.
        let runs = if many { 1 << max_runs.max(MIN_RUNS).ilog2() } else { RUNS };
        if self.current.runs.max_runs() != runs {
            self.current.runs = Runs::new(runs);
            self.current.runs.admit(self.recording);
            self.current.runs.guard(self.detects_first_touches());
        }
    }

    /// The next call may end the program; if the call returns, [`Vcpu::attend`] reports that first.
    pub fn may_end(&mut self) {
        self.is_ending = true;
        self.set_attention();
    }

    /// Stops recording for good.
    pub fn stop(&mut self) {
        self.record(false);
        self.boundary = u64::MAX;
        self.set_attention();
    }

    /// Resets the state that a forked process inherited: the process begins a separate trace.
    pub fn reset_after_fork(&mut self, columns: Columns) {
        self.current.runs.clear();
        self.addresses.clear();
        self.builder = Some(Builder::new(columns));
        (self.current.instructions, self.current.seen, self.before, self.thread) = (0, 0, 0, 0);
        self.due = pace::due(0);
        self.is_ending = false;
        (self.current.touched, self.freed_ranges) = (None, 0);
        self.current.runs.guard(false);
        self.boundary = if self.recording { self.schedule.open(0) } else { self.schedule.skip };
        self.set_attention();
    }
}

#[cfg(test)]
mod tests;
