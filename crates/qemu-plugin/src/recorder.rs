// SPDX-License-Identifier: GPL-2.0-or-later
//! What the threads of a process share, and how their runs and events come into the file.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trace::{Call, Event, Header, Image, Kind, Process, Writer};

use crate::call::Numbers;
use crate::file::{Complaints, TraceFile};
use crate::forgotten::Forgotten;
use crate::guest_memory::owned::Owned;
use crate::kernel_accesses::Stretch;
use crate::request::Request;
use crate::schedule::Schedule;
use crate::unwritten::{Ending, Unwritten};
use crate::vcpu::{Vcpu, Work};

/// Most runs of a chunk, over all threads: what bounds the memory.
const ALL_RUNS: usize = 1 << 20;
/// Fewest runs of a chunk of few threads; below, a dictionary is too dear.
const FEWEST_RUNS: usize = 1 << 16;
/// Threads above which each has a buffer and nothing else, of which a chunk is made at once.
const FEW_THREADS: usize = 16;
/// Most runs in the buffers of many threads together.
const ALL_BUFFERED: usize = 1 << 21;
/// Most runs in the buffer of one of them, which keeps its share of when it began until it writes a chunk.
const MOST_BUFFERED: usize = 1 << 14;
/// Most chunks that are made at a time: each takes some MiB.
const WORKS: usize = 8;
/// How long a thread waits until another has made its chunk, before it takes more memory.
const PATIENCE: Duration = Duration::from_secs(10);
/// Events that are noted before they are written.
const NOTED: usize = 1 << 12;

mod first_touches;

/// A forked process cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[error("{}: the forked process is not recorded: {error}{}", path.display(), remedy(error))]
pub struct ChildError {
    /// Its file.
    path: PathBuf,
    /// Why.
    #[source]
    pub error: io::Error,
}

fn remedy(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::AlreadyExists { "; remove that file before recording" } else { "" }
}

/// What is recorded of a process, and how: a forked one has the same.
#[derive(Clone)]
pub struct Plan {
    /// The header of its trace. The process in it, if it has one, is the parent.
    pub header: Header,
    /// The numbers of its calls.
    pub numbers: Numbers,
    /// The schedule of a new thread.
    pub schedule: Schedule,
    /// What the plugin was asked for.
    pub request: Request,
    /// How many events of all threads there were.
    pub events: &'static AtomicU64,
}

/// One process that is recorded.
pub struct Recorder {
    /// What is recorded.
    pub plan: Plan,
    /// Which memory is the program's.
    owned: Mutex<Owned>,
    /// The process.
    pub process: u32,
    /// Its file.
    path: PathBuf,
    complaints: Complaints,
    threads: AtomicUsize,
    /// The number of the next thread.
    next_thread: AtomicU32,
    /// What makes chunks, when nobody uses it, and how many more there may be.
    spare: Mutex<(Vec<Work>, usize)>,
    /// Some of it is there again.
    is_spare: Condvar,
    unwritten: Mutex<Unwritten>,
    /// There are several threads or processes: who touches what when is told.
    is_timed: AtomicBool,
    /// What was taken away from under touched pages.
    forgotten: Mutex<Forgotten>,
}

impl Recorder {
    /// Begins a trace of this process in a file.
    ///
    /// # Errors
    /// Those of the file.
    pub fn new(file: TraceFile, mut plan: Plan, owned: Owned) -> io::Result<Recorder> {
        let process = std::process::id();
        if !plan.header.system {
            let of = plan.header.process;
            // One that has executed the program says so; another one is the parent.
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
            complaints: Complaints::open(),
            threads: AtomicUsize::new(0),
            next_thread: AtomicU32::new(0),
            spare: Mutex::new((Vec::new(), WORKS)),
            is_spare: Condvar::new(),
            unwritten: Mutex::new(Unwritten::new(writer)),
            is_timed: AtomicBool::new(false),
            forgotten: Mutex::new(Forgotten::default()),
        }
    }

    /// Which memory is the program's.
    pub fn owned(&self) -> MutexGuard<'_, Owned> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many events of all threads there were.
    fn events(&self) -> u64 {
        self.plan.events.load(Ordering::Relaxed)
    }

    /// Puts the trace in the place of what was in the file: there is something to record.
    #[expect(clippy::disallowed_methods, reason = "no other user can change the path of the exchanged files")]
    pub fn begin(&self) {
        self.attempt(&mut self.lock(), |writer| {
            if self.plan.request.handed.is_none() {
                // First, because whoever finds it believes that the file is as it was.
                std::fs::remove_file(&self.plan.request.header)?;
            }
            writer.get_mut().begin()
        });
    }

    /// Tells pagelab that nothing will be recorded any more, by a file beside that of the header.
    #[expect(clippy::disallowed_methods, reason = "no other user can change the path of the exchanged files")]
    pub fn say_complete(&self) {
        let file = self.plan.request.header.with_file_name("complete");
        if let Err(error) = std::fs::write(&file, "") {
            let file = file.display();
            self.complaints.say(&format!("{file}: {error}; the machine goes on, and nothing more of it is recorded"));
        }
    }

    /// The trace of a process that was forked off, which has this memory: the first process's file with the process's
    /// number behind.
    ///
    /// # Errors
    /// Those of the file.
    pub fn of_child(&self, owned: Owned) -> Result<Recorder, ChildError> {
        let path = self.path_of(Image { process: std::process::id(), execs: 0 });
        let begun = TraceFile::create(&path).and_then(|file| Recorder::new(file, self.plan.clone(), owned));
        let child = begun.map_err(|error| ChildError { path, error })?;
        child.threads.store(1, Ordering::Relaxed);
        child.next_thread.store(1, Ordering::Relaxed);
        Ok(child)
    }

    /// The file of an image's trace, of which the first one's name is the beginning.
    pub fn path_of(&self, image: Image) -> PathBuf {
        self.plan.request.path_of(image)
    }

    /// Whether anything is still written.
    pub fn is_writing(&self) -> bool {
        self.lock().is_open()
    }

    /// Tells pagelab that something which was recorded could not be written, by removing a file beside that of the header.
    #[expect(clippy::disallowed_methods, reason = "no other user can change the path of the exchanged files")]
    pub fn say_lost(&self) {
        // It may be gone, with pagelab.
        let _ = std::fs::remove_file(self.plan.request.header.with_file_name("written"));
    }

    /// The same where a trace could not be made because there is no room for it.
    pub fn say_lost_if_full(&self, error: &io::Error) {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        if matches!(error.kind(), StorageFull | QuotaExceeded) {
            self.say_lost();
        }
    }

    /// One that records nothing: of a forked process whose trace cannot be made.
    pub fn silent(&self) -> Recorder {
        Recorder { threads: AtomicUsize::new(1), ..Recorder::of(self.plan.clone(), Owned::default(), None) }
    }

    /// A thread that has just begun.
    pub fn begin_thread(&self) -> Vcpu {
        self.threads.fetch_add(1, Ordering::Relaxed);
        let thread = self.next_thread.fetch_add(1, Ordering::Relaxed);
        // A later thread says before its first run what it comes after; the first comes after nothing.
        let seen = if thread == 0 { 0 } else { u64::MAX };
        let mut vcpu = Vcpu::new(thread, &self.plan.header, self.plan.schedule, seen);
        if self.is_timed() {
            vcpu.tell_touches();
        }
        vcpu
    }

    /// Notes what was there before anything was recorded, for the first thread, whichever asks.
    pub fn begin_with(&self, calls: Vec<Call>) {
        let mut unwritten = self.lock();
        for call in calls {
            let order = self.plan.events.fetch_add(1, Ordering::Relaxed);
            unwritten.note(0, 0, Event { run: 0, order, call, result: 0 });
        }
    }

    /// Writes what a thread that has ended still has.
    pub fn end_thread(&self, vcpu: &mut Vcpu) {
        if vcpu.outside != (0, 0) {
            let (accesses, instructions) = std::mem::take(&mut vcpu.outside);
            self.note(vcpu, Call::Outside { accesses, instructions }, 0);
        }
        self.write(vcpu);
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes what a thread has just done.
    pub fn note(&self, vcpu: &mut Vcpu, call: Call, result: i64) {
        self.empty(vcpu);
        let mut unwritten = self.lock();
        let order = self.events();
        // What others did meanwhile is seen with the next block.
        if vcpu.seen() == order {
            vcpu.set_seen(order + 1);
        }
        self.plan.events.store(order + 1, Ordering::Relaxed);
        let run = vcpu.place();
        unwritten.note(vcpu.thread, vcpu.instructions(), Event { run, order, call, result });
        self.write_if_needed(unwritten);
    }

    /// Notes that a thread goes on after events of others.
    pub fn note_seen(&self, vcpu: &mut Vcpu) {
        self.empty(vcpu);
        if vcpu.tells_touches() {
            vcpu.forget(&self.forgotten.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let mut unwritten = self.lock();
        let order = self.events();
        vcpu.set_seen(order);
        let event = Event { run: vcpu.place(), order, call: Call::Seen, result: 0 };
        unwritten.note(vcpu.thread, vcpu.instructions(), event);
        self.write_if_needed(unwritten);
    }

    /// Writes noted events where they are many, or the file has an end that they come before.
    fn write_if_needed(&self, mut unwritten: MutexGuard<'_, Unwritten>) {
        if unwritten.count() >= NOTED || unwritten.has_end() {
            self.attempt(&mut unwritten, |_| Ok(()));
        }
    }

    /// Records what the kernel has just read and written for a thread: an access for each page.
    pub fn kernel_accessed(&self, vcpu: &mut Vcpu, stretches: &[Stretch]) {
        if stretches.is_empty() || !vcpu.is_recording() {
            return;
        }
        self.empty(vcpu);
        for part in stretches.iter().flat_map(|stretch| stretch.pages()) {
            self.touch(vcpu, part.address, part.bytes, if part.store { Kind::KERNEL_STORE } else { Kind::KERNEL_LOAD });
            if vcpu.kernel_access(part.address, part.bytes, part.store, self.most_runs()) {
                self.write(vcpu);
            }
        }
    }

    /// Empties a thread's buffers and ends its runs: what it does next is not part of them. Writes its chunk if that is
    /// full or old, and says so.
    pub fn empty(&self, vcpu: &mut Vcpu) -> bool {
        let is_taken = vcpu.empty(self.most_runs());
        if is_taken {
            self.write(vcpu);
        }
        is_taken
    }

    fn most_runs(&self) -> usize {
        let threads = self.threads.load(Ordering::Relaxed).max(1);
        if self.has_many_threads() {
            return (ALL_BUFFERED / threads).min(MOST_BUFFERED);
        }
        (ALL_RUNS / threads).max(FEWEST_RUNS)
    }

    fn has_many_threads(&self) -> bool {
        self.threads.load(Ordering::Relaxed) > FEW_THREADS
    }

    /// Something to make a chunk with.
    fn work(&self) -> io::Result<Work> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = self.is_spare.wait_timeout_while(spare, PATIENCE, |(works, more)| works.is_empty() && *more == 0);
        let (mut spare, _) = wait.unwrap_or_else(PoisonError::into_inner);
        spare.0.pop().map_or_else(
            || {
                spare.1 = spare.1.saturating_sub(1);
                Work::new(self.plan.header.columns)
            },
            Ok,
        )
    }

    /// Writes everything that a thread has, and all noted events.
    pub fn write(&self, vcpu: &mut Vcpu) {
        // Compressed before the lock is taken.
        let mut work = self.work();
        let runs = work.as_mut().map_err(|error| io::Error::other(error.to_string())).and_then(|work| vcpu.take(work));
        let mut unwritten = self.lock();
        unwritten.goes_on(vcpu.thread);
        self.attempt(&mut unwritten, |writer| {
            let (runs, work) = (runs?, work.as_ref().map_err(|error| io::Error::other(error.to_string()))?);
            writer.encoded_runs(vcpu.thread, runs as u32, &work.bytes, vcpu.instructions())
        });
        drop(unwritten);
        vcpu.written(&self.plan.header, self.most_runs(), self.has_many_threads());
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        match work {
            Ok(work) => spare.0.push(work),
            Err(_) => spare.1 += 1,
        }
        self.is_spare.notify_one();
    }

    /// Writes all that a thread has, and the index if there is no other, because the program may end in the call that it is
    /// about to make; `last` is what it does then.
    pub fn close(&self, vcpu: &mut Vcpu, last: Option<Call>) {
        self.write(vcpu);
        let mut unwritten = self.lock();
        let event = last.map(|call| Event { run: vcpu.place(), order: 0, call, result: 0 });
        let is_alone = self.threads.load(Ordering::Relaxed) == 1;
        unwritten.may_end(vcpu.thread, Ending { event, instructions: vcpu.instructions(), is_alone });
        self.attempt(&mut unwritten, |_| Ok(()));
        vcpu.may_end();
    }

    /// Takes back the end that the file has for the case that the program ended in a call: a thread is back from it.
    pub fn goes_on(&self, vcpu: &Vcpu) {
        let mut unwritten = self.lock();
        unwritten.goes_on(vcpu.thread);
        self.write_if_needed(unwritten);
    }

    /// Writes the index: the process ends. So many threads could not be asked for their last accesses.
    pub fn finish(&self, left_out: usize) {
        let mut unwritten = self.lock();
        if left_out > 0 && unwritten.is_open() {
            let path = self.path.display();
            let threads = if left_out == 1 { "a thread".to_owned() } else { format!("{left_out} threads") };
            self.complaints.say(&format!("{path}: the last accesses of {threads} that would not stop are missing"));
        }
        let done = unwritten.finish(self.events());
        self.complain(done);
    }

    fn lock(&self) -> MutexGuard<'_, Unwritten> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes noted events and then more. After a first failure nothing is written any more: what is in the file can be
    /// read.
    fn attempt(&self, unwritten: &mut Unwritten, more: impl FnOnce(&mut Writer<TraceFile>) -> io::Result<()>) {
        let done = unwritten.write(self.events(), more);
        self.complain(done);
    }

    fn complain(&self, done: io::Result<()>) {
        if let Err(error) = done {
            self.say_lost();
            let path = self.path.display();
            self.complaints.say(&format!("{path}: cannot write the trace any further: {error}; the program goes on"));
        }
    }
}

#[cfg(test)]
mod tests;
