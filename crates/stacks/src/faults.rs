//! [`FaultBuffers`]: the page faults of a process tree, from perf's software event.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use perf_event::data::endian::Native;
use perf_event::data::parse::{ParseConfig, Parser};
use perf_event::data::{Comm, Fork, Lost, Mmap2, RecordMetadata, Sample, Visitor};
use perf_event::events::Software;
use perf_event::{Builder, Clock, Record, SampleFlag, Sampler};
use policy::first_touch::Sampling;

use crate::event::{Caller, CodeFile, CodeMapping, Event, PageFault, Timed};
use crate::registers::{self, Registers};
use crate::unwinding::PATTERN_WORDS;

/// How many whole stacks their buffer has room for. When it is full the kernel drops them, which bounds their number without
/// missing those of rare faults, as a sampling period would: faults that make large pages are rare.
const BUFFERED_STACKS: usize = 16;
/// The stack that is copied for every fault, in bytes.
const NEAR_STACK_BYTES: u32 = 8 * PATTERN_WORDS as u32;
/// How many faults are read at a time, between the stacks: their buffer is small.
const READ_AT_ONCE: usize = 500;
/// `PERF_RECORD_MISC_COMM_EXEC` and the mask and value of `PERF_RECORD_MISC_KERNEL` (include/uapi/linux/perf_event.h).
const IS_EXEC: u16 = 1 << 13;
const MODE_MASK: u16 = 7;
const MODE_KERNEL: u16 = 1;

/// Page faults cannot be seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(String);

/// The buffers of a processor, in bytes.
#[derive(Clone, Copy)]
struct Sizes {
    faults: usize,
    stacks: usize,
    code: usize,
}

/// For root.
const LARGE: Sizes = Sizes { faults: 8 << 20, stacks: 256 << 10, code: 256 << 10 };
/// On machines with many processors, and for users who may lock some megabytes (`ulimit -l`).
const MIDDLE: Sizes = Sizes { faults: 1 << 20, ..LARGE };
/// What a user without privileges may have: together at most kernel.perf_event_mlock_kb, which is 516.
const SMALL: Sizes = Sizes { faults: 256 << 10, stacks: 128 << 10, code: 64 << 10 };
/// Above this number of processors the buffers are not large.
const MANY_PROCESSORS: usize = 32;

/// Buffers for each processor, which the kernel fills.
pub struct FaultBuffers {
    processors: Vec<Buffers>,
    includes_kernel: bool,
    seen: u64,
    whole_stacks: u64,
    lost: u64,
}

/// The buffers of a processor.
struct Buffers {
    /// Every fault, with what is next to its stack pointer.
    faults: Sampler,
    /// Whole stacks, of as many faults as there is room for.
    stacks: Sampler,
    /// Programs and mapped code.
    code: Sampler,
}

impl FaultBuffers {
    /// Reads the faults of `process` and of all that it forks, from its next exec on.
    pub fn open(process: i32) -> Result<FaultBuffers, Unavailable> {
        if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            return Err(Unavailable("stacks can be recorded on x86-64 and arm64 only".into()));
        }
        let root = host::Root::open("/").and_then(|root| host::online_processors(&root));
        let processors = root.map_err(|error| Unavailable(error.to_string()))?;
        let sizes = if processors.len() > MANY_PROCESSORS { MIDDLE } else { LARGE };
        let mut settings = Settings { process, includes_kernel: true, sizes };
        loop {
            let opened: io::Result<Vec<Buffers>> =
                processors.iter().map(|processor| settings.open(*processor)).collect();
            let error = match opened {
                Ok(processors) => {
                    let includes_kernel = settings.includes_kernel;
                    return Ok(FaultBuffers { processors, includes_kernel, seen: 0, whole_stacks: 0, lost: 0 });
                }
                Err(error) => error,
            };
            match error.raw_os_error().map(Errno::from_raw) {
                // kernel.perf_event_paranoid is 2: only user mode.
                Some(Errno::EACCES) if settings.includes_kernel => settings.includes_kernel = false,
                // More memory than the user may lock.
                Some(Errno::EPERM) if settings.sizes.faults > MIDDLE.faults => settings.sizes = MIDDLE,
                Some(Errno::EPERM) if settings.sizes.faults > SMALL.faults => settings.sizes = SMALL,
                _ => return Err(Unavailable::of(&error)),
            }
        }
    }

    /// Whether faults that the kernel has on behalf of the program are seen.
    pub fn includes_kernel(&self) -> bool {
        self.includes_kernel
    }

    /// Moves all events to `events`. They are not in order of time.
    pub fn drain(&mut self, events: &mut Vec<Timed<Event>>) {
        for Buffers { faults, stacks, code } in &mut self.processors {
            self.lost += drain(code, &Reader::Code, usize::MAX, events).lost;
            loop {
                // Those without room are no loss in the buffer of stacks.
                drain(stacks, &Reader::Stacks, usize::MAX, events);
                let Drained { records, lost } = drain(faults, &Reader::Faults, READ_AT_ONCE, events);
                self.lost += lost;
                if records < READ_AT_ONCE {
                    break;
                }
            }
        }
        self.seen += count(events, |event| matches!(event, Event::Fault(_)));
        self.whole_stacks += count(events, |event| matches!(event, Event::Sample(_)));
    }

    /// How many faults there were, and how many were seen. Call it after the tree has ended.
    pub fn sampling(&mut self) -> Sampling {
        let counters = self.processors.iter_mut().map(|buffers| buffers.faults.as_counter_mut());
        let faults = counters.map(|counter| counter.read().ok()).sum();
        let FaultBuffers { includes_kernel, seen, whole_stacks, lost, .. } = *self;
        Sampling { faults, seen, whole_stacks, lost, includes_kernel }
    }
}

fn count(events: &[Timed<Event>], is_counted: impl Fn(&Event) -> bool) -> u64 {
    events.iter().filter(|event| is_counted(&event.event)).count() as u64
}

/// What [`drain`] read.
struct Drained {
    records: usize,
    /// Records that the kernel dropped.
    lost: u64,
}

/// Moves the events of a buffer to `events`, of at most `most` records.
fn drain(sampler: &mut Sampler, reader: &Reader, most: usize, events: &mut Vec<Timed<Event>>) -> Drained {
    let config = sampler.as_counter().config().clone();
    let mut drained = Drained { records: 0, lost: 0 };
    while drained.records < most
        && let Some(record) = sampler.next_record()
    {
        drained.records += 1;
        match parse(&record, &config, reader) {
            Some(Found::Event(event)) => events.push(event),
            Some(Found::Lost(dropped)) => drained.lost += dropped,
            Some(Found::Other) | None => {}
        }
    }
    drained
}

/// Which faults are read, and how much.
struct Settings {
    process: i32,
    includes_kernel: bool,
    sizes: Sizes,
}

impl Settings {
    fn open(&self, processor: usize) -> io::Result<Buffers> {
        let mut faults = self.event(Software::PAGE_FAULTS, processor);
        faults.sample(SampleFlag::DATA_PAGE_SIZE).sample_stack_user(NEAR_STACK_BYTES);
        // Two events of one kind would share a `perf_sample_data`, in which Linux 6.18 counts the stack of the first for the second
        // too (`perf_prepare_sample`, kernel/events/core.c): its records would be as long. Faults that read a disk have no whole
        // stack.
        let mut stacks = self.event(Software::PAGE_FAULTS_MIN, processor);
        stacks.sample_stack_user((self.sizes.stacks / BUFFERED_STACKS) as u32);
        for builder in [&mut faults, &mut stacks] {
            builder.sample(SampleFlag::ADDR | SampleFlag::REGS_USER | SampleFlag::STACK_USER);
            builder.sample_period(1).sample_regs_user(registers::perf_mask());
        }
        let mut code = self.event(Software::DUMMY, processor);
        code.mmap(true).mmap2(true).comm(true).comm_exec(true).task(true);
        Ok(Buffers {
            faults: faults.build()?.sampled(self.sizes.faults)?,
            stacks: stacks.build()?.sampled(self.sizes.stacks)?,
            code: code.build()?.sampled(self.sizes.code)?,
        })
    }

    fn event(&self, event: Software, processor: usize) -> Builder<'static> {
        let mut builder = Builder::new(event);
        builder.observe_pid(self.process).one_cpu(processor).inherit(true).enable_on_exec(true);
        builder.exclude_hv(true).exclude_kernel(!self.includes_kernel);
        builder.sample(SampleFlag::TID | SampleFlag::TIME).sample_id_all(true).clockid(Clock::MONOTONIC);
        builder
    }
}

enum Found {
    Event(Timed<Event>),
    /// The kernel dropped records.
    Lost(u64),
    Other,
}

/// Parses a record; `None` if it is not as the kernel documents it.
fn parse(record: &Record<'_>, config: &ParseConfig<Native>, reader: &Reader) -> Option<Found> {
    let body = record.to_contiguous();
    let mut bytes = Vec::with_capacity(body.len() + 8);
    bytes.extend(record.ty().to_ne_bytes());
    bytes.extend(record.misc().to_ne_bytes());
    bytes.extend((body.len() as u16 + 8).to_ne_bytes());
    bytes.extend_from_slice(&body);
    Parser::new(&bytes[..], config.clone()).parse_record(*reader).ok()
}

/// Converts the records of a buffer to events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Faults,
    Stacks,
    Code,
}

impl Reader {
    fn event(process: u32, metadata: &RecordMetadata, event: Event) -> Found {
        let Some(time_ns) = metadata.sample_id().time() else { return Found::Other };
        Found::Event(Timed { time_ns, process, event })
    }
}

impl<'a> Visitor<'a> for Reader {
    type Output = Found;

    fn visit_unimplemented(self, _: RecordMetadata) -> Found {
        Found::Other
    }

    fn visit_lost(self, lost: Lost, _: RecordMetadata) -> Found {
        Found::Lost(lost.lost)
    }

    fn visit_comm(self, comm: Comm<'a>, metadata: RecordMetadata) -> Found {
        if metadata.misc() & IS_EXEC != 0 {
            return Reader::event(comm.pid, &metadata, Event::Exec(text(&comm.comm)));
        }
        if comm.pid != comm.tid {
            return Found::Other;
        }
        Reader::event(comm.pid, &metadata, Event::Named(text(&comm.comm)))
    }

    fn visit_fork(self, fork: Fork, metadata: RecordMetadata) -> Found {
        if fork.pid == fork.ppid {
            return Found::Other;
        }
        Reader::event(fork.pid, &metadata, Event::ForkedFrom(fork.ppid))
    }

    fn visit_mmap2(self, mapping: Mmap2<'a>, metadata: RecordMetadata) -> Found {
        let inode = mapping.ino().unwrap_or_default();
        let file = CodeFile { path: PathBuf::from(mapping.filename_os()), inode, offset: mapping.pgoff };
        let code = CodeMapping {
            addresses: mapping.addr..mapping.addr.saturating_add(mapping.len),
            file: (inode != 0).then_some(file),
        };
        Reader::event(mapping.pid, &metadata, Event::Code(code))
    }

    fn visit_sample(self, sample: Sample<'a>, metadata: RecordMetadata) -> Found {
        let (Some(process), Some(task), Some(time_ns)) = (sample.pid(), sample.tid(), sample.time()) else {
            return Found::Other;
        };
        let Some(registers) = sample.regs_user().and_then(Registers::of_sample) else { return Found::Other };
        let Some(address) = sample.addr() else { return Found::Other };
        let is_in_kernel = metadata.misc() & MODE_MASK == MODE_KERNEL;
        let stack = sample.stack_user().unwrap_or_default().to_vec();
        let fault = PageFault { task, address, is_in_kernel, caller: Caller { registers, stack } };
        let event = match self {
            // A page that was present is not touched for the first time.
            Reader::Faults if sample.data_page_size() == Some(0) => Event::Fault(fault),
            Reader::Stacks => Event::Sample(fault),
            _ => return Found::Other,
        };
        Found::Event(Timed { time_ns, process, event })
    }
}

/// The text before the first NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl Unavailable {
    fn of(error: &io::Error) -> Unavailable {
        Unavailable(match (host::perf_refusal(error), error.raw_os_error().map(Errno::from_raw)) {
            (Some((reason, remedy)), _) => format!("{reason}; {remedy}"),
            (None, Some(Errno::EINVAL)) => {
                format!("perf_event_open: {error} (it needs Linux 5.11, which reports the size of a page at a fault)")
            }
            (None, _) => format!("perf_event_open: {error}"),
        })
    }
}
