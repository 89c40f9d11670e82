//! [`Recorder`]: the thread that reads events while the program runs.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use host::maps::Vma;
use nix::time::{ClockId, clock_gettime};
use policy::first_touch::{FirstTouches, Sampling, Source};
use policy::size::PageSize;

use crate::event::{Caller, CodeFile, CodeMapping, Event, InspectedMemory, MappedRange, Step, Timed};
use crate::faults::{FaultBuffers, Unavailable};
use crate::memory::Memory;
use crate::registers::Registers;
use crate::unwinding::Unwinding;

/// The interval at which the buffers are read.
const INTERVAL: Duration = Duration::from_millis(2);
/// How long an event waits for earlier ones, and a step for samples. The thread may be late by some intervals.
const LAG_NS: u64 = 20_000_000;
/// The interval at which old samples are forgotten.
const FORGET_INTERVAL: Duration = Duration::from_secs(1);

/// Records who touches the memory of a process tree.
pub struct Recorder {
    events: Sender<Timed<Event>>,
    thread: JoinHandle<Recorded>,
    method: Method,
}

/// Which stacks are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// Those of page faults, by perf.
    PageFaults {
        /// Whether those that the kernel has on behalf of the program are among them.
        includes_kernel: bool,
    },
    /// Those of the calls that map memory, because page faults cannot be seen.
    MappingCalls(Unavailable),
}

/// The recording cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Faults(#[from] Unavailable),
    #[error("no thread can be started: {0}; raise the limit of threads (ulimit -u)")]
    Thread(#[from] std::io::Error),
}

impl Method {
    /// Page faults where perf permits it, tried on this process; else mapping calls.
    pub fn of_this_system() -> Method {
        match FaultBuffers::open(std::process::id() as i32) {
            Ok(buffers) => Method::PageFaults { includes_kernel: buffers.includes_kernel() },
            Err(unavailable) => Method::MappingCalls(unavailable),
        }
    }
}

impl Recorder {
    /// Begins to record `process`, which is stopped before its exec. The kernel's page sizes are `base`, and `pmd` for PMD leaves.
    /// `prepare_thread` is called by the thread that reads perf's buffers, before it begins.
    ///
    /// # Errors
    /// If page faults cannot be seen although they are the method, or if no thread can be started.
    pub fn start(
        method: Method,
        process: i32,
        (base, pmd): (PageSize, Option<PageSize>),
        prepare_thread: fn(),
    ) -> Result<Recorder, StartError> {
        let buffers = match method {
            Method::PageFaults { .. } => Some(FaultBuffers::open(process)?),
            Method::MappingCalls(_) => None,
        };
        let (events, received) = channel();
        let memory = Memory::new(base, pmd);
        let thread = std::thread::Builder::new().name("stacks".into());
        let thread = thread.spawn(move || {
            prepare_thread();
            read(memory, buffers, &received)
        })?;
        Ok(Recorder { events, thread, method })
    }

    /// Whether perf reports nothing, so that what it would report is needed from the tracer.
    pub fn is_without_perf(&self) -> bool {
        matches!(self.method, Method::MappingCalls(_))
    }

    /// A call mapped, moved or populated memory of a process.
    pub fn mapped(&self, process: u32, mapped: MappedRange, registers: Registers, stack: Vec<u8>) {
        let caller = Caller { registers, stack };
        match mapped {
            MappedRange::Mapped(range) => self.send(process, Event::Mapped(range, caller)),
            MappedRange::Populated(range) => self.send(process, Event::Populated(range, caller)),
            MappedRange::Moved { from, bytes, to, to_bytes } => {
                if from != to {
                    self.send(process, Event::Moved { from, to, bytes: bytes.min(to_bytes) });
                }
                if to_bytes > bytes {
                    self.send(process, Event::Mapped(to + bytes..to + to_bytes, caller));
                }
            }
        }
    }

    /// A process has a new program. Needed only without perf.
    pub fn executed(&self, process: u32, name: String) {
        if self.is_without_perf() {
            self.send(process, Event::Exec(name));
        }
    }

    /// A process was created with a copy of another's memory.
    pub fn forked(&self, parent: u32, child: u32) {
        if self.is_without_perf() {
            self.send(child, Event::ForkedFrom(parent));
        }
        self.send(child, Event::CopyOf(parent));
    }

    /// Memory was mapped executable. Needed only without perf.
    pub fn mapped_code(&self, process: u32, vma: &Vma) {
        if self.is_without_perf() {
            let file = CodeFile { path: vma.name.clone().into(), inode: vma.inode, offset: vma.offset };
            let file = (vma.inode != 0).then_some(file);
            self.send(process, Event::Code(CodeMapping { addresses: vma.start..vma.end, file }));
        }
    }

    /// Memory is about to be unmapped or dropped.
    pub fn freed(&self, process: u32, range: Range<u64>) {
        self.send(process, Event::Freed(range));
    }

    /// Memory was inspected.
    pub fn look(&self, process: u32, look: InspectedMemory) {
        self.send(process, Event::Inspected(look));
    }

    /// Ends the recording. Of the process `running`, the memory is that of the last look while it ran, and otherwise that of its end.
    pub fn finish(self, running: Option<u32>) -> FirstTouches {
        self.send(0, Event::End);
        let Recorded { unwinding, memory, sampling } =
            self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let source = match self.method {
            Method::PageFaults { .. } => Source::PageFaults(sampling.unwrap_or_default()),
            Method::MappingCalls(unavailable) => Source::MappingCalls { why: unavailable.to_string() },
        };
        let has_touches = matches!(source, Source::PageFaults(_));
        FirstTouches { source, stacks: memory.stacks(&unwinding, running, has_touches) }
    }

    fn send(&self, process: u32, event: Event) {
        // The thread ends only after it has received the end, unless it panicked; `finish` resumes that panic.
        drop(self.events.send(Timed { time_ns: now_ns(), process, event }));
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    now.as_nanos() as u64
}

/// What the thread found.
struct Recorded {
    unwinding: Unwinding,
    memory: Memory,
    /// `None` without perf.
    sampling: Option<Sampling>,
}

/// Applies the events in order of time. An event of one processor can be read before an earlier one of another, so events wait for
/// [`LAG_NS`]. Steps wait once more, because the stack of a fault can be sampled after it. Unwinding is interrupted to read the buffers
/// before they are full.
fn read(mut memory: Memory, mut buffers: Option<FaultBuffers>, received: &Receiver<Timed<Event>>) -> Recorded {
    let mut unwinding = Unwinding::default();
    // By time, and in the order in which they were read.
    let mut events: BTreeMap<(u64, u64), Timed<Event>> = BTreeMap::new();
    let mut steps: VecDeque<Timed<Step>> = VecDeque::new();
    let (mut number, mut has_ended, mut forgotten) = (0, false, Instant::now());
    while !has_ended || !events.is_empty() || !steps.is_empty() {
        let (began, began_ns) = (Instant::now(), now_ns());
        let mut new: Vec<Timed<Event>> = received.try_iter().collect();
        has_ended |= new.iter().any(|event| matches!(event.event, Event::End));
        if let Some(buffers) = &mut buffers {
            buffers.drain(&mut new);
        }
        for event in new {
            events.insert((event.time_ns, number), event);
            number += 1;
        }
        let until_ns = if has_ended { u64::MAX } else { began_ns.saturating_sub(LAG_NS) };
        while began.elapsed() < INTERVAL
            && let Some(first) = events.first_entry().filter(|first| first.key().0 < until_ns)
        {
            steps.extend(unwinding.step(first.remove()));
        }
        // All samples before this time are unwound.
        let unwound_ns = events.first_key_value().map_or(until_ns, |((first_ns, _), _)| until_ns.min(*first_ns));
        let apply_ns = if unwound_ns == u64::MAX { unwound_ns } else { unwound_ns.saturating_sub(LAG_NS) };
        let is_old = |steps: &VecDeque<Timed<Step>>| steps.front().is_some_and(|step| step.time_ns < apply_ns);
        while began.elapsed() < 2 * INTERVAL && is_old(&steps) {
            steps.pop_front().into_iter().for_each(|step| memory.apply(step, &unwinding));
        }
        if forgotten.elapsed() > FORGET_INTERVAL {
            unwinding.forget_samples_before(steps.front().map_or(apply_ns, |step| step.time_ns));
            forgotten = Instant::now();
        }
        if !has_ended {
            std::thread::sleep(INTERVAL.saturating_sub(began.elapsed()));
        }
    }
    Recorded { unwinding, memory, sampling: buffers.map(|mut buffers| buffers.sampling()) }
}
