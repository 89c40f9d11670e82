//! [`FaultBuffers`]: the page faults of a process tree, from perf's software event.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use perf_event::data::endian::Native;
use perf_event::data::parse::{ParseConfig, Parser};
use perf_event::data::{Comm, Fork, Lost, Mmap2, RecordMetadata, Sample, Visitor};
use perf_event::events::Software;
use perf_event::{Builder, Clock, Record, SampleFlag, Sampler};
use policy::first_touch::Sampling;

use crate::event::{Caller, CodeFile, CodeMapping, Event, Timed};
use crate::registers::{self, Registers};

/// The most samples that a processor makes in a second. While faults are rarer, each is sampled.
const RATE_HZ: u64 = 2000;
/// The most bytes of a stack in a sample.
const MAX_STACK_BYTES: usize = 16 << 10;
/// The fewest samples for which a processor's buffer has room.
const MIN_BUFFERED: usize = 64;
/// The buffer of a processor, in bytes: all that a user without privileges may have (kernel.perf_event_mlock_kb).
const MIN_BUFFER_BYTES: usize = 512 << 10;
/// The buffer of a processor of a machine with few, if the user may lock more memory.
const MAX_BUFFER_BYTES: usize = 4 << 20;
/// The buffers of all processors, if they need not be larger.
const ALL_BUFFERS_BYTES: usize = 64 << 20;
/// `PERF_RECORD_MISC_COMM_EXEC` and the mask and value of `PERF_RECORD_MISC_KERNEL` (include/uapi/linux/perf_event.h).
const IS_EXEC: u16 = 1 << 13;
const MODE_MASK: u16 = 7;
const MODE_KERNEL: u16 = 1;

/// Page faults cannot be sampled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(String);

/// A buffer for each processor, which the kernel fills.
pub struct FaultBuffers {
    samplers: Vec<Sampler>,
    includes_kernel: bool,
    sampled: u64,
    lost: u64,
}

impl FaultBuffers {
    /// Samples the faults of `process` and of all that it forks, from its next exec on.
    pub fn open(process: i32) -> Result<FaultBuffers, Unavailable> {
        if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            return Err(Unavailable("stacks can be unwound on x86-64 and arm64 only".into()));
        }
        let processors = processors().map_err(|error| Unavailable::of(&error))?;
        let large =
            (ALL_BUFFERS_BYTES / processors.len()).next_power_of_two().clamp(MIN_BUFFER_BYTES, MAX_BUFFER_BYTES);
        let mut settings = Settings { process, includes_kernel: true, buffer_bytes: large };
        loop {
            let samplers = processors.iter().map(|processor| settings.open(*processor)).collect::<io::Result<_>>();
            let error = match samplers {
                Ok(samplers) => {
                    let includes_kernel = settings.includes_kernel;
                    return Ok(FaultBuffers { samplers, includes_kernel, sampled: 0, lost: 0 });
                }
                Err(error) => error,
            };
            match error.raw_os_error().map(Errno::from_raw) {
                // kernel.perf_event_paranoid is 2: only user mode.
                Some(Errno::EACCES) if settings.includes_kernel => settings.includes_kernel = false,
                // More memory than the user may lock.
                Some(Errno::EPERM) if settings.buffer_bytes > MIN_BUFFER_BYTES => {
                    settings.buffer_bytes = MIN_BUFFER_BYTES
                }
                _ => return Err(Unavailable::of(&error)),
            }
        }
    }

    /// Whether faults that the kernel has on behalf of the program are sampled.
    pub fn includes_kernel(&self) -> bool {
        self.includes_kernel
    }

    /// Moves all events to `events`. They are not in order of time if there are several processors.
    pub fn drain(&mut self, events: &mut Vec<Timed>) {
        for sampler in &mut self.samplers {
            let config = sampler.as_counter().config().clone();
            while let Some(record) = sampler.next_record() {
                let Some(found) = parse(&record, &config) else { continue };
                match found {
                    Found::Event(event) => {
                        self.sampled += u64::from(matches!(event.event, Event::Fault { .. }));
                        events.push(event);
                    }
                    Found::PresentPage => self.sampled += 1,
                    Found::Lost(samples) => self.lost += samples,
                    Found::Other => {}
                }
            }
        }
    }

    /// How many faults there were, and how many were sampled. Call it after the tree has ended.
    pub fn sampling(&mut self) -> Sampling {
        let counts = self.samplers.iter_mut().map(|sampler| sampler.as_counter_mut().read().unwrap_or_default());
        let faults = counts.sum();
        let FaultBuffers { includes_kernel, sampled, lost, .. } = *self;
        Sampling { faults, sampled, lost, includes_kernel }
    }
}

/// How faults are sampled.
struct Settings {
    process: i32,
    includes_kernel: bool,
    buffer_bytes: usize,
}

impl Settings {
    fn open(&self, processor: usize) -> io::Result<Sampler> {
        let mut builder = Builder::new(Software::PAGE_FAULTS);
        builder.observe_pid(self.process).one_cpu(processor).inherit(true).enable_on_exec(true);
        builder.exclude_hv(true).exclude_kernel(!self.includes_kernel);
        builder.sample_frequency(RATE_HZ).sample(
            SampleFlag::TID
                | SampleFlag::TIME
                | SampleFlag::ADDR
                | SampleFlag::REGS_USER
                | SampleFlag::STACK_USER
                | SampleFlag::DATA_PAGE_SIZE,
        );
        let stack_bytes = MAX_STACK_BYTES.min(self.buffer_bytes / MIN_BUFFERED);
        builder.sample_regs_user(registers::perf_mask()).sample_stack_user(stack_bytes as u32);
        builder.mmap(true).mmap2(true).comm(true).comm_exec(true).task(true).sample_id_all(true);
        builder.clockid(Clock::MONOTONIC);
        builder.build()?.sampled(self.buffer_bytes)
    }
}

/// The processors that are online.
fn processors() -> io::Result<Vec<usize>> {
    let text = host::content("/sys/devices/system/cpu/online")?;
    let numbers = |part: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    let ranges = text.trim().split(',').map(numbers).collect::<Option<Vec<_>>>();
    let unexpected = || io::Error::other(format!("/sys/devices/system/cpu/online: expected ranges, found {text:?}"));
    Ok(ranges.ok_or_else(unexpected)?.into_iter().flatten().collect())
}

enum Found {
    Event(Timed),
    /// A fault on a page that was present already.
    PresentPage,
    Lost(u64),
    Other,
}

/// Parses a record; `None` if it is not as the kernel documents it.
fn parse(record: &Record<'_>, config: &ParseConfig<Native>) -> Option<Found> {
    let body = record.to_contiguous();
    let mut bytes = Vec::with_capacity(body.len() + 8);
    bytes.extend(record.ty().to_ne_bytes());
    bytes.extend(record.misc().to_ne_bytes());
    bytes.extend((body.len() as u16 + 8).to_ne_bytes());
    bytes.extend_from_slice(&body);
    Parser::new(&bytes[..], config.clone()).parse_record(Reader).ok()
}

/// Converts records to events.
struct Reader;

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
        if sample.data_page_size().is_some_and(|bytes| bytes > 0) {
            return Found::PresentPage;
        }
        let (Some(process), Some(time_ns), Some(address)) = (sample.pid(), sample.time(), sample.addr()) else {
            return Found::Other;
        };
        let registers = sample.regs_user().and_then(Registers::of_sample).unwrap_or_default();
        let stack = sample.stack_user().unwrap_or_default().to_vec();
        let is_in_kernel = metadata.misc() & MODE_MASK == MODE_KERNEL;
        let event = Event::Fault { address, is_in_kernel, caller: Caller { registers, stack } };
        Found::Event(Timed { time_ns, process, event })
    }
}

/// The text before the first NUL.
fn text(bytes: &Cow<'_, [u8]>) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl Unavailable {
    fn of(error: &io::Error) -> Unavailable {
        let paranoid = host::content("/proc/sys/kernel/perf_event_paranoid").ok();
        let paranoid = paranoid.and_then(|text| text.trim().parse::<i32>().ok());
        Unavailable(match (error.raw_os_error().map(Errno::from_raw), paranoid) {
            (Some(Errno::EACCES | Errno::EPERM), Some(paranoid @ 3..)) => format!(
                "perf_event_open is not permitted (kernel.perf_event_paranoid is {paranoid}; as root: sysctl \
                 kernel.perf_event_paranoid=2)"
            ),
            (Some(Errno::EACCES | Errno::EPERM), _) => format!(
                "perf_event_open is not permitted ({error}; in a container, allow it with --cap-add PERFMON or a seccomp \
                 profile)"
            ),
            (Some(Errno::EINVAL), _) => {
                format!("perf_event_open: {error} (it needs Linux 5.11, which reports the size of a page at a fault)")
            }
            (Some(Errno::ENOSYS), _) => "the kernel has no perf_event_open (CONFIG_PERF_EVENTS)".into(),
            (Some(Errno::EMFILE | Errno::ENFILE), _) => format!("perf_event_open: {error} (raise `ulimit -n`)"),
            _ => format!("perf_event_open: {error}"),
        })
    }
}
