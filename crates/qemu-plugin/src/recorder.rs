// SPDX-License-Identifier: GPL-2.0-or-later
//! [`Recorder`]: the state that the threads of a process share, and how their runs and events are written to the file.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trace::{Call, Event, Header, Image, Kind, Process, Writer};

use crate::call::Numbers;
use crate::file::{ErrorOutput, TraceFile};
use crate::freed_ranges::FreedRanges;
use crate::guest_memory::owned::Owned;
use crate::kernel_accesses::AccessedRange;
use crate::output_file::{OutputFile, PossibleEnd};
use crate::request::Request;
use crate::schedule::Schedule;
use crate::vcpu::{EncoderBuffers, Vcpu};

/// The maximum number of runs in the chunks of all threads; it limits the memory used.
const MAX_RUNS_TOTAL: usize = 1 << 20;
/// The minimum chunk size, in runs, when there are few threads; a dictionary is too expensive for fewer runs.
const MIN_RUNS: usize = 1 << 16;
/// With more threads than this, each has only a buffer, which becomes a chunk directly.
const FEW_THREADS: usize = 16;
/// The maximum number of runs in the buffers of many threads together.
const MAX_BUFFERED_TOTAL: usize = 1 << 21;
/// The maximum number of runs in one such buffer. A thread keeps its initial share until it writes a chunk.
const MAX_BUFFERED: usize = 1 << 14;
/// The maximum number of chunks that are encoded at the same time; each takes some MiB.
const MAX_ENCODERS: usize = 8;
/// How long a thread waits for another to finish its chunk before it allocates more memory.
const ENCODER_TIMEOUT: Duration = Duration::from_secs(10);
/// Noted events are written to the file when there are this many.
const MAX_NOTED: usize = 1 << 12;

mod first_touches;

/// Why a forked process cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[error("{}: the forked process is not recorded: {error}{}", path.display(), remedy(error))]
pub struct ChildError {
    /// The trace file of the child.
    path: PathBuf,
    #[source]
    pub error: io::Error,
}

fn remedy(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::AlreadyExists { "; remove that file before recording" } else { "" }
}

/// What to record of a process, and how; a forked process has the same plan.
#[derive(Clone)]
pub struct Plan {
    /// The header of the process's trace. The process in it, if there is one, is the parent, or after an execve the process
    /// itself.
    pub header: Header,
    /// The system call numbers.
    pub numbers: Numbers,
    /// The schedule of a new thread.
    pub schedule: Schedule,
    /// The plugin's arguments.
    pub request: Request,
    /// Number of events of all threads.
    pub events: &'static AtomicU64,
}

/// The recorder of one process.
pub struct Recorder {
    /// What is recorded.
    pub plan: Plan,
    /// Which memory is the program's.
    owned: Mutex<Owned>,
    /// PID of the process.
    pub process: u32,
    /// Path of the trace file.
    path: PathBuf,
    errors: ErrorOutput,
    threads: AtomicUsize,
    next_thread: AtomicU32,
    /// Idle memory for encoding chunks, and how many more such buffers may be allocated.
    spare: Mutex<(Vec<EncoderBuffers>, usize)>,
    /// Signalled when memory for chunks becomes available.
    is_spare: Condvar,
    unwritten: Mutex<OutputFile>,
    /// Whether there are several threads or processes, so that the times of first touches are recorded.
    is_timed: AtomicBool,
    /// Address ranges whose touched pages were freed.
    freed_ranges: Mutex<FreedRanges>,
}

impl Recorder {
    /// Begins a trace of this process in a file.
    pub fn new(file: TraceFile, mut plan: Plan, owned: Owned) -> io::Result<Recorder> {
        let process = std::process::id();
        if !plan.header.system {
            let of = plan.header.process;
            // After execve the header's process is this one; after a fork it is the parent.
            let own = of.filter(|of| of.process == process);
            let forked = Process { process, parent: of.map(|parent| parent.process), execs: 0 };
            plan.header.process = Some(own.unwrap_or(forked));
        }
        let path = file.path().to_owned();
        let writer = Writer::new(file, &plan.header)?;
        plan.events.store(0, Ordering::Relaxed);
        Ok(Recorder { path, ..Recorder::of(plan, owned, Some(writer)) })
    }

    fn of(plan: Plan, owned: Owned, writer: Option<Writer<TraceFile>>) -> Recorder {
        Recorder {
            path: PathBuf::new(),
            plan,
            owned: Mutex::new(owned),
            process: std::process::id(),
            errors: ErrorOutput::open(),
            threads: AtomicUsize::new(0),
            next_thread: AtomicU32::new(0),
            spare: Mutex::new((Vec::new(), MAX_ENCODERS)),
            is_spare: Condvar::new(),
            unwritten: Mutex::new(OutputFile::new(writer)),
            is_timed: AtomicBool::new(false),
            freed_ranges: Mutex::new(FreedRanges::default()),
        }
    }

    /// Which memory is the program's.
    pub fn owned(&self) -> MutexGuard<'_, Owned> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of events of all threads.
    fn events(&self) -> u64 {
        self.plan.events.load(Ordering::Relaxed)
    }

    /// Replaces the old content of the file by the trace, because there is something to record.
    #[expect(clippy::disallowed_methods, reason = "no other user can change the path of the exchanged files")]
    pub fn begin(&self) {
        self.attempt(&mut self.lock(), |writer| {
            if self.plan.request.handover.is_none() {
                // The header is removed first, because a reader that finds it assumes that the trace file is unchanged.
                std::fs::remove_file(&self.plan.request.header)?;
            }
            writer.get_mut().begin()
        });
    }

    /// Signals to pagelab that recording is complete, by creating a file in the directory of the header.
    #[expect(clippy::disallowed_methods, reason = "no other user can change the path of the exchanged files")]
    pub fn signal_complete(&self) {
        let file = self.plan.request.header.with_file_name("complete");
        if let Err(error) = std::fs::write(&file, "") {
            let file = file.display();
            self.errors.print(&format!("{file}: {error}; the machine continues, and nothing more of it is recorded"));
        }
    }

    /// The recorder of a forked process with this memory. Its file name is that of the first process with the PID appended.
    pub fn of_child(&self, owned: Owned) -> Result<Recorder, ChildError> {
        let path = self.path_of(Image { process: std::process::id(), execs: 0 });
        let begun = TraceFile::create(&path).and_then(|file| Recorder::new(file, self.plan.clone(), owned));
        let child = begun.map_err(|error| ChildError { path, error })?;
        child.threads.store(1, Ordering::Relaxed);
        child.next_thread.store(1, Ordering::Relaxed);
        Ok(child)
    }

    /// The trace file of an image; the first image's name is its prefix.
    pub fn path_of(&self, image: Image) -> PathBuf {
        self.plan.request.path_of(image)
    }

    /// Whether the file is still being written.
    pub fn is_writing(&self) -> bool {
        self.lock().is_open()
    }

    /// Signals to pagelab that recorded data could not be written, by removing a file in the directory of the header.
    #[expect(clippy::disallowed_methods, reason = "no other user can change the path of the exchanged files")]
    pub fn signal_loss(&self) {
        // The file may not exist any more if pagelab has ended.
        let _ = std::fs::remove_file(self.plan.request.header.with_file_name("written"));
    }

    /// Like [`Recorder::signal_loss`], if a trace could not be made because the disk or quota is full.
    pub fn signal_loss_if_full(&self, error: &io::Error) {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        if matches!(error.kind(), StorageFull | QuotaExceeded) {
            self.signal_loss();
        }
    }

    /// A recorder that records nothing, for a forked process whose trace cannot be made.
    pub fn without_output(&self) -> Recorder {
        Recorder { threads: AtomicUsize::new(1), ..Recorder::of(self.plan.clone(), Owned::default(), None) }
    }

    /// The state of a thread that has just begun.
    pub fn begin_thread(&self) -> Vcpu {
        self.threads.fetch_add(1, Ordering::Relaxed);
        let thread = self.next_thread.fetch_add(1, Ordering::Relaxed);
        // A later thread first records which events precede its first run; the first thread has none before it.
        let seen = if thread == 0 { 0 } else { u64::MAX };
        let mut vcpu = Vcpu::new(thread, &self.plan.header, self.plan.schedule, seen);
        if self.is_timed() {
            vcpu.detect_first_touches();
        }
        vcpu
    }

    /// Records the memory that existed before recording began, as events of the first thread, whichever thread calls.
    pub fn begin_with(&self, calls: Vec<Call>) {
        let mut unwritten = self.lock();
        for call in calls {
            let order = self.plan.events.fetch_add(1, Ordering::Relaxed);
            unwritten.note(0, 0, Event { run: 0, order, call, result: 0 });
        }
    }

    /// Writes the remaining data of a thread that has ended.
    pub fn end_thread(&self, vcpu: &mut Vcpu) {
        if vcpu.outside != (0, 0) {
            let (accesses, instructions) = std::mem::take(&mut vcpu.outside);
            self.note(vcpu, Call::Outside { accesses, instructions }, 0);
        }
        self.write(vcpu);
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records a call that a thread has just made.
    pub fn note(&self, vcpu: &mut Vcpu, call: Call, result: i64) {
        self.empty(vcpu);
        let mut unwritten = self.lock();
        let order = self.events();
        // If other threads have noted events in the meantime, this thread sees them at its next block.
        if vcpu.seen() == order {
            vcpu.set_seen(order + 1);
        }
        self.plan.events.store(order + 1, Ordering::Relaxed);
        let run = vcpu.place();
        unwritten.note(vcpu.thread, vcpu.instructions(), Event { run, order, call, result });
        self.write_if_needed(unwritten);
    }

    /// Records that a thread continues after events of other threads.
    pub fn note_seen(&self, vcpu: &mut Vcpu) {
        self.empty(vcpu);
        if vcpu.detects_first_touches() {
            vcpu.forget(&self.freed_ranges.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let mut unwritten = self.lock();
        let order = self.events();
        vcpu.set_seen(order);
        let event = Event { run: vcpu.place(), order, call: Call::Seen, result: 0 };
        unwritten.note(vcpu.thread, vcpu.instructions(), event);
        self.write_if_needed(unwritten);
    }

    /// Writes noted events if there are many, or if the file has a provisional end that they must precede.
    fn write_if_needed(&self, mut unwritten: MutexGuard<'_, OutputFile>) {
        if unwritten.count() >= MAX_NOTED || unwritten.has_end() {
            self.attempt(&mut unwritten, |_| Ok(()));
        }
    }

    /// Records what the kernel has just read and written for a thread: one access for each page.
    pub fn kernel_accessed(&self, vcpu: &mut Vcpu, ranges: &[AccessedRange]) {
        if ranges.is_empty() || !vcpu.is_recording() {
            return;
        }
        self.empty(vcpu);
        for part in ranges.iter().flat_map(|range| range.pages()) {
            self.touch(vcpu, part.address, part.bytes, if part.store { Kind::KERNEL_STORE } else { Kind::KERNEL_LOAD });
            if vcpu.kernel_access(part.address, part.bytes, part.store, self.max_runs()) {
                self.write(vcpu);
            }
        }
    }

    /// Empties a thread's buffers and ends its runs, so that its next accesses begin new runs. Writes its chunk if it is full or
    /// old, and returns whether it did.
    pub fn empty(&self, vcpu: &mut Vcpu) -> bool {
        let is_taken = vcpu.empty(self.max_runs());
        if is_taken {
            self.write(vcpu);
        }
        is_taken
    }

    fn max_runs(&self) -> usize {
        let threads = self.threads.load(Ordering::Relaxed).max(1);
        if self.has_many_threads() {
            return (MAX_BUFFERED_TOTAL / threads).min(MAX_BUFFERED);
        }
        (MAX_RUNS_TOTAL / threads).max(MIN_RUNS)
    }

    fn has_many_threads(&self) -> bool {
        self.threads.load(Ordering::Relaxed) > FEW_THREADS
    }

    /// Memory for encoding a chunk.
    fn buffers(&self) -> io::Result<EncoderBuffers> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let wait =
            self.is_spare.wait_timeout_while(spare, ENCODER_TIMEOUT, |(works, more)| works.is_empty() && *more == 0);
        let (mut spare, _) = wait.unwrap_or_else(PoisonError::into_inner);
        spare.0.pop().map_or_else(
            || {
                spare.1 = spare.1.saturating_sub(1);
                EncoderBuffers::new(self.plan.header.columns)
            },
            Ok,
        )
    }

    /// Writes all data of a thread, and all noted events.
    pub fn write(&self, vcpu: &mut Vcpu) {
        // The data is compressed before the lock is taken.
        let mut buffers = self.buffers();
        let runs = buffers
            .as_mut()
            .map_err(|error| io::Error::other(error.to_string()))
            .and_then(|buffers| vcpu.take(buffers));
        let mut unwritten = self.lock();
        unwritten.continued(vcpu.thread);
        self.attempt(&mut unwritten, |writer| {
            let (runs, buffers) = (runs?, buffers.as_ref().map_err(|error| io::Error::other(error.to_string()))?);
            writer.encoded_runs(vcpu.thread, runs as u32, &buffers.bytes, vcpu.instructions())
        });
        drop(unwritten);
        vcpu.written(&self.plan.header, self.max_runs(), self.has_many_threads());
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        match buffers {
            Ok(buffers) => spare.0.push(buffers),
            Err(_) => spare.1 += 1,
        }
        self.is_spare.notify_one();
    }

    /// Writes all data of a thread, and, because the program may end in its next call, a provisional end of the file: `last`,
    /// which is that call, and the index if there is no other thread.
    pub fn close(&self, vcpu: &mut Vcpu, last: Option<Call>) {
        self.write(vcpu);
        let mut unwritten = self.lock();
        let event = last.map(|call| Event { run: vcpu.place(), order: 0, call, result: 0 });
        let is_only_thread = self.threads.load(Ordering::Relaxed) == 1;
        unwritten.may_end(vcpu.thread, PossibleEnd { event, instructions: vcpu.instructions(), is_only_thread });
        self.attempt(&mut unwritten, |_| Ok(()));
        vcpu.may_end();
    }

    /// Handles the return of a call that might have ended the program: removes the provisional end of the file.
    pub fn continued(&self, vcpu: &Vcpu) {
        let mut unwritten = self.lock();
        unwritten.continued(vcpu.thread);
        self.write_if_needed(unwritten);
    }

    /// Writes the index when the process ends. `left_out` threads could not write their last accesses.
    pub fn finish(&self, left_out: usize) {
        let mut unwritten = self.lock();
        if left_out > 0 && unwritten.is_open() {
            let path = self.path.display();
            let threads = if left_out == 1 { "a thread".to_owned() } else { format!("{left_out} threads") };
            self.errors.print(&format!("{path}: the last accesses of {threads} that would not stop are missing"));
        }
        let done = unwritten.finish(self.events());
        self.report_failure(done);
    }

    fn lock(&self) -> MutexGuard<'_, OutputFile> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes noted events and then calls `more`. After the first failure nothing more is written; the data in the file stays
    /// readable.
    fn attempt(&self, unwritten: &mut OutputFile, more: impl FnOnce(&mut Writer<TraceFile>) -> io::Result<()>) {
        let done = unwritten.write(self.events(), more);
        self.report_failure(done);
    }

    fn report_failure(&self, done: io::Result<()>) {
        if let Err(error) = done {
            self.signal_loss();
            let path = self.path.display();
            self.errors.print(&format!("{path}: cannot write the trace any further: {error}; the program continues"));
        }
    }
}

#[cfg(test)]
mod tests;
