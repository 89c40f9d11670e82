// SPDX-License-Identifier: GPL-2.0-or-later
//! What the threads of a process share: the file, and the events that are not in it yet.
//!
//! An event stands in the file before every run that came after it, of any thread: it is noted under the lock at the
//! moment of the call, and whoever writes runs writes all noted events first.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trace::log::LoggedEvent;
use trace::{Call, Checkpoint, Event, Header, Process, Writer};

use crate::call::Numbers;
use crate::file::{Complaints, TraceFile};
use crate::guest_memory::owned::Own;
use crate::shared::EventLog;
use crate::streams::Streams;
use crate::kernel_accesses::Touched;
use crate::vcpu::{Schedule, Vcpu, Work};

/// How many events of all threads there were. Threads compare it with what they have seen.
pub static EVENTS: AtomicU64 = AtomicU64::new(0);

/// Most runs of a chunk, over all threads: what bounds the memory.
const ALL_RUNS: usize = 1 << 20;
/// Fewest runs of a chunk of few threads; below, a dictionary is too dear.
const FEWEST_RUNS: usize = 1 << 16;
/// Threads above which each has a log and nothing else, of which a chunk is made at once.
const FEW_THREADS: usize = 16;
/// Most runs in the logs of many threads together.
const ALL_LOGGED: usize = 1 << 21;
/// Most runs in the log of one of them, which keeps its share of when it began until it writes a chunk.
const MOST_LOGGED: usize = 1 << 14;
/// Most chunks that are made at a time: each takes some MiB.
const WORKS: usize = 8;
/// How long a thread waits until another has made its chunk, before it takes more memory.
const PATIENCE: Duration = Duration::from_secs(10);
/// Events that are noted before they are written.
const NOTED: usize = 1 << 12;

/// One process that is recorded.
pub struct Recorder {
    /// Its header.
    pub header: Header,
    /// The numbers of its calls.
    pub numbers: Numbers,
    /// The schedule of a new thread.
    pub schedule: Schedule,
    /// Which memory is the program's.
    own: Mutex<Own>,
    /// Where its header lies until recording begins.
    pub header_file: PathBuf,
    /// Where it will stand what memory a whole machine has.
    pub memory: PathBuf,
    /// The process.
    pub process: u32,
    /// Where the first process's trace goes.
    output: PathBuf,
    complaints: Complaints,
    /// Where logs are, if any.
    logs: Option<PathBuf>,
    threads: AtomicUsize,
    /// What makes chunks, when nobody uses it, and how many more there may be.
    spare: Mutex<(Vec<Work>, usize)>,
    /// Some of it is there again.
    is_spare: Condvar,
    shared: Mutex<Shared>,
}

struct Shared {
    writer: Writer<TraceFile>,
    /// Noted events by thread, and the instructions of the thread at the last.
    noted: BTreeMap<u32, (Vec<Event>, u64)>,
    /// What is noted, for whoever survives this process.
    log: Option<EventLog>,
    count: usize,
    next_thread: u32,
    /// Where to go on, if the file was closed for the case that the program ends.
    closed: Option<Checkpoint>,
    /// What threads are about to do that may end the program: it stands in the log until they come back.
    attempts: Vec<LoggedEvent>,
    /// Nothing is written any more: it is finished, or could not be written.
    is_over: bool,
}

impl Recorder {
    /// Begins a trace of this process in a file. The process of the header, if it has one, is the parent.
    ///
    /// # Errors
    /// Those of the file.
    pub fn new(
        file: TraceFile,
        mut header: Header,
        numbers: Numbers,
        schedule: Schedule,
        own: Own,
        complaints: Complaints,
        logs: Option<PathBuf>,
    ) -> io::Result<Recorder> {
        let process = std::process::id();
        if !header.system {
            header.process = Some(Process { process, parent: header.process.map(|parent| parent.process) });
        }
        let output = file.path().to_owned();
        let writer = Writer::new(file, &header)?;
        // Without runs, events alone would look like a whole trace.
        let logs = logs.filter(|_| !header.columns.addresses);
        let log = logs.as_ref().map(|logs| EventLog::new(&logs.join(format!("{process}.events"))));
        let shared = Shared { log, ..Shared::new(writer) };
        EVENTS.store(0, Ordering::Relaxed);
        Ok(Recorder {
            header,
            numbers,
            schedule,
            own: Mutex::new(own),
            header_file: PathBuf::new(),
            memory: PathBuf::new(),
            process,
            output,
            complaints,
            logs,
            threads: AtomicUsize::new(0),
            spare: Mutex::new((Vec::new(), WORKS)),
            is_spare: Condvar::new(),
            shared: Mutex::new(shared),
        })
    }

    /// Which memory is the program's.
    pub fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the trace in the place of what was in the file: there is something to record.
    pub fn begin(&self) {
        self.attempt(&mut self.lock(), |writer| {
            // First, because whoever finds it believes that the file is as it was.
            std::fs::remove_file(&self.header_file)?;
            writer.get_mut().begin()
        });
    }

    /// Tells pagelab that nothing will be recorded any more, by a file beside that of the header.
    pub fn say_complete(&self) {
        let file = self.header_file.with_file_name("complete");
        if let Err(error) = std::fs::write(&file, "") {
            let file = file.display();
            self.complaints.say(&format!("{file}: {error}; the machine goes on, and nothing more of it is recorded"));
        }
    }

    /// The trace of a process that was forked off, which has this memory: the first process's file with the process's
    /// number behind.
    ///
    /// # Errors
    /// Those of the file, with its name.
    pub fn of_child(&self, own: Own) -> Result<Recorder, String> {
        let mut path = self.output.clone().into_os_string();
        path.push(format!(".{}", std::process::id()));
        let path = PathBuf::from(path);
        let wrong = |error: io::Error| {
            let is_there = error.kind() == io::ErrorKind::AlreadyExists;
            let remedy = if is_there { "; remove that file before recording" } else { "" };
            format!("{}: the forked process is not recorded: {error}{remedy}", path.display())
        };
        let file = TraceFile::create(&path).map_err(wrong)?;
        let complaints = Complaints::open();
        let mut child =
            Recorder::new(file, self.header.clone(), self.numbers, self.schedule, own, complaints, self.logs.clone())
                .map_err(wrong)?;
        child.output = self.output.clone();
        child.threads = AtomicUsize::new(1);
        child.lock().next_thread = 1;
        Ok(child)
    }

    /// One that records nothing: of a forked process whose trace cannot be made.
    pub fn silent(&self) -> Recorder {
        let writer = Writer::after(Vec::new(), TraceFile::nowhere());
        Recorder {
            header: self.header.clone(),
            numbers: self.numbers,
            schedule: self.schedule,
            own: Mutex::default(),
            header_file: PathBuf::new(),
            memory: PathBuf::new(),
            process: std::process::id(),
            output: self.output.clone(),
            complaints: Complaints::open(),
            logs: None,
            threads: AtomicUsize::new(1),
            spare: Mutex::new((Vec::new(), WORKS)),
            is_spare: Condvar::new(),
            shared: Mutex::new(Shared { is_over: true, ..Shared::new(writer) }),
        }
    }

    /// A thread that has just begun.
    pub fn begin_thread(&self) -> Vcpu {
        self.threads.fetch_add(1, Ordering::Relaxed);
        let thread = {
            let mut shared = self.lock();
            shared.next_thread += 1;
            shared.next_thread - 1
        };
        // A later thread says before its first run what it comes after; the first comes after nothing.
        let seen = if thread == 0 { 0 } else { u64::MAX };
        Vcpu::new(thread, self.streams(thread), &self.header, self.schedule, seen)
    }

    /// Streams for a thread that has begun, with a log for as many runs as it may have in a chunk.
    pub fn streams(&self, thread: u32) -> Streams {
        if self.header.columns.addresses {
            return Streams::new(thread, 0, None);
        }
        let log = self.logs.as_ref().map(|logs| logs.join(format!("{}.{thread}", self.process)));
        let streams = Streams::new(thread, self.most_runs(), log.as_deref());
        if log.is_some() && !streams.survives() {
            // Nobody finishes a trace without events: it would look whole, and lack these runs.
            self.lock().log = None;
        }
        streams
    }

    /// Notes what was there before anything was recorded, for the first thread, whichever asks.
    pub fn begin_with(&self, calls: Vec<Call>) {
        let mut shared = self.lock();
        self.reopen(&mut shared);
        for call in calls {
            let order = EVENTS.fetch_add(1, Ordering::Relaxed);
            shared.note(0, 0, Event { run: 0, order, call, result: 0 });
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
        let mut shared = self.lock();
        self.reopen(&mut shared);
        let order = EVENTS.load(Ordering::Relaxed);
        // What others did meanwhile is seen with the next block.
        if vcpu.seen() == order {
            vcpu.set_seen(order + 1);
        }
        EVENTS.store(order + 1, Ordering::Relaxed);
        let run = vcpu.place();
        shared.note(vcpu.thread, vcpu.instructions(), Event { run, order, call, result });
        self.write_noted_if_many(shared);
    }

    /// Notes that a thread goes on after events of others.
    pub fn note_seen(&self, vcpu: &mut Vcpu) {
        self.empty(vcpu);
        let shared = &mut self.lock();
        self.reopen(shared);
        let order = EVENTS.load(Ordering::Relaxed);
        vcpu.set_seen(order);
        let event = Event { run: vcpu.place(), order, call: Call::Seen, result: 0 };
        shared.note(vcpu.thread, vcpu.instructions(), event);
    }

    /// Takes back the end that the file has for the case that the program ends: it goes on.
    fn reopen(&self, shared: &mut Shared) {
        if shared.closed.is_some() {
            self.attempt(shared, |_| Ok(()));
        }
    }

    fn write_noted_if_many(&self, mut shared: MutexGuard<'_, Shared>) {
        if shared.count >= NOTED || shared.log.as_ref().is_some_and(EventLog::is_full) {
            self.attempt(&mut shared, |_| Ok(()));
        }
    }

    /// Records what the kernel has just read and written for a thread: an access for each page.
    pub fn kernel_touched(&self, vcpu: &mut Vcpu, touched: &[Touched]) {
        if touched.is_empty() || !vcpu.is_recording() {
            return;
        }
        self.empty(vcpu);
        for part in touched.iter().flat_map(|touched| touched.pages()) {
            if vcpu.kernel_access(part.address, part.bytes, part.store, self.most_runs()) {
                self.write(vcpu);
            }
        }
    }

    /// Empties a thread's buffers and ends its runs: what it does next is not part of them. Writes its chunk if that is
    /// full or old.
    pub fn empty(&self, vcpu: &mut Vcpu) {
        if vcpu.empty(self.most_runs()) {
            self.write(vcpu);
        }
    }

    fn most_runs(&self) -> usize {
        let threads = self.threads.load(Ordering::Relaxed).max(1);
        if self.has_many_threads() {
            return (ALL_LOGGED / threads).min(MOST_LOGGED);
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
                Work::new(self.header.columns)
            },
            Ok,
        )
    }

    /// Writes everything that a thread has, and all noted events.
    pub fn write(&self, vcpu: &mut Vcpu) {
        // Compressed before the lock is taken.
        let mut work = self.work();
        let runs = work.as_mut().map_err(|error| io::Error::other(error.to_string())).and_then(|work| vcpu.take(work));
        let mut shared = self.lock();
        self.attempt(&mut shared, |writer| {
            let (runs, work) = (runs?, work.as_ref().map_err(|error| io::Error::other(error.to_string()))?);
            writer.encoded_runs(vcpu.thread, runs as u32, &work.bytes, vcpu.instructions())
        });
        drop(shared);
        vcpu.written(&self.header, self.most_runs(), self.has_many_threads());
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        match work {
            Ok(work) => spare.0.push(work),
            Err(_) => spare.1 += 1,
        }
        self.is_spare.notify_one();
    }

    /// Writes the index, because the program may end in the call that it is about to make; `last` is what it does then.
    pub fn close(&self, vcpu: &mut Vcpu, last: Option<Call>) {
        self.write(vcpu);
        let mut shared = self.lock();
        let order = EVENTS.load(Ordering::Relaxed);
        let event = last.map(|call| Event { run: vcpu.place(), order, call, result: 0 });
        let mut checkpoint = None;
        self.attempt(&mut shared, |writer| {
            // Behind what others have noted since.
            checkpoint = Some(writer.checkpoint());
            writer.events(vcpu.thread, event.as_slice(), vcpu.instructions())?;
            writer.index()
        });
        if shared.is_over {
            return;
        }
        if let Some(event) = event {
            let number = shared.writer.written(vcpu.thread).1 - 1;
            let instructions = vcpu.instructions();
            shared.attempted(LoggedEvent { thread: vcpu.thread, number, instructions, is_attempt: true, event });
        }
        shared.closed = checkpoint;
    }

    /// Writes the index: the process ends. So many threads could not be asked for their last accesses.
    pub fn finish(&self, left_out: usize) {
        let mut shared = self.lock();
        if left_out > 0 && !shared.is_over {
            let path = shared.writer.get_mut().path().display().to_string();
            let threads = if left_out == 1 { "a thread".to_owned() } else { format!("{left_out} threads") };
            self.complaints.say(&format!("{path}: the last accesses of {threads} that would not stop are missing"));
        }
        self.attempt(&mut shared, Writer::index);
        shared.end();
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes noted events and then more. After a first failure nothing is written any more: what is in the file can be
    /// read.
    fn attempt(&self, shared: &mut Shared, more: impl FnOnce(&mut Writer<TraceFile>) -> io::Result<()>) {
        if shared.is_over {
            return;
        }
        let done = shared.write_noted().and_then(|()| more(&mut shared.writer));
        if let Err(error) = done {
            // Nor will whoever survives this: it would lack what is not written now.
            shared.end();
            let path = shared.writer.get_mut().path().display().to_string();
            self.complaints.say(&format!("{path}: cannot write the trace any further: {error}; the program goes on"));
        }
    }
}

impl Shared {
    fn new(writer: Writer<TraceFile>) -> Shared {
        Shared {
            writer,
            noted: BTreeMap::new(),
            log: None,
            count: 0,
            next_thread: 0,
            closed: None,
            attempts: Vec::new(),
            is_over: false,
        }
    }

    /// Notes nothing and writes nothing from now on.
    fn end(&mut self) {
        self.is_over = true;
        self.noted.clear();
        self.attempts.clear();
        (self.log, self.count) = (None, 0);
    }

    fn note(&mut self, thread: u32, instructions: u64, event: Event) {
        if self.is_over {
            return;
        }
        // It is back from what it attempted.
        self.attempts.retain(|attempt| attempt.thread != thread);
        let (noted, last) = self.noted.entry(thread).or_default();
        if let Some(log) = &mut self.log {
            let number = self.writer.written(thread).1 + noted.len() as u64;
            log.append(&LoggedEvent { thread, number, instructions, is_attempt: false, event: event.clone() });
        }
        noted.push(event);
        *last = instructions;
        self.count += 1;
    }

    /// Logs what a thread is about to do.
    fn attempted(&mut self, attempt: LoggedEvent) {
        if let Some(log) = &mut self.log {
            log.append(&attempt);
            self.attempts.push(attempt);
        }
    }

    fn write_noted(&mut self) -> io::Result<()> {
        if let Some(checkpoint) = self.closed.take() {
            // The program goes on after all.
            let offset = self.writer.rewind(checkpoint);
            self.writer.get_mut().cut(offset)?;
        }
        if self.count == 0 {
            return Ok(());
        }
        self.count = 0;
        for (thread, (events, instructions)) in std::mem::take(&mut self.noted) {
            self.writer.events(thread, &events, instructions)?;
        }
        if let Some(log) = &mut self.log {
            log.clear();
            let order = EVENTS.load(Ordering::Relaxed);
            for attempt in &mut self.attempts {
                attempt.number = self.writer.written(attempt.thread).1;
                attempt.event.order = order;
                log.append(attempt);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
