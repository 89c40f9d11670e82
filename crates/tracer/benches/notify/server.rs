//! Serves a program's calls, by notification or by stops.

use std::fs::File;
use std::io;
use std::time::Instant;

use super::listener::{self, ADDED, Call, Listener, Waiting};

/// Step by which a heap grows under [`Service::Keep`].
const STEP_BYTES: u64 = 2 << 20;
const HUGE: u64 = libc::MADV_HUGEPAGE as u64;

/// The timed steps of an advised call.
pub const STEPS: [&str; 5] = ["seize", "interrupt, answer", "wait for the stop", "madvise", "detach"];

/// Times of [`STEPS`], in seconds.
pub type Steps = [f64; STEPS.len()];

/// What is done with calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Service {
    /// Make the call unchanged.
    Pass,
    /// Add a madvise.
    Advise,
    /// Grow the heap in steps.
    Keep,
    /// Inspect new images.
    Inspect,
}

/// The two ends of a heap, as the tracer tracks them.
#[derive(Clone, Copy, Default)]
struct Heap {
    start: u64,
    kernel_end: u64,
}

/// How a call of brk is handled.
enum Growth {
    Unknown,
    Answer(u64),
    Grow { wanted: u64 },
}

impl Heap {
    /// Handles growth only: the programs never shrink their heaps.
    fn growth(&self, asked: u64) -> Growth {
        match asked {
            _ if self.start == 0 => Growth::Unknown,
            _ if asked <= self.kernel_end => Growth::Answer(asked),
            _ => Growth::Grow { wanted: asked.next_multiple_of(STEP_BYTES) },
        }
    }
}

/// Serves the calls of one program.
pub struct Server<'a> {
    service: Service,
    heap: Heap,
    calls: u32,
    steps: &'a mut Vec<Steps>,
}

impl Server<'_> {
    /// Creates a server for `service`. It appends the times of the calls that it advises to `steps`.
    pub fn new(service: Service, steps: &mut Vec<Steps>) -> Server<'_> {
        Server { service, heap: Heap::default(), calls: 0, steps }
    }

    /// How many calls were served.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// Serves a program by notification until all its tasks have ended.
    pub fn serve_notifications(&mut self, waiting: Waiting, listener: &Listener, sync: bool) -> io::Result<()> {
        if sync {
            listener.wake_in_place()?;
        }
        waiting.release()?;
        while let Some(call) = listener.receive()? {
            self.calls += 1;
            match self.service {
                Service::Pass => listener.pass(call)?,
                Service::Advise => self.advise(listener, call)?,
                Service::Keep => self.keep(listener, call)?,
                Service::Inspect if call.number == libc::SYS_execve => inspect(listener, call)?,
                Service::Inspect => listener.pass(call)?,
            }
        }
        Ok(())
    }

    fn advise(&mut self, listener: &Listener, call: Call) -> io::Result<()> {
        let received = Instant::now();
        listener::seize(call.tid, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL)?;
        let seized = Instant::now();
        listener::interrupt(call.tid)?;
        listener.pass(call)?;
        let answered = Instant::now();
        let held = listener::wait_until_held(call.tid)?;
        let stopped = Instant::now();
        held.call(libc::SYS_madvise, advice(held.result()? as u64, call))?;
        let advised = Instant::now();
        held.detach()?;
        let times = [received, seized, answered, stopped, advised, Instant::now()];
        self.steps.push(std::array::from_fn(|at| (times[at + 1] - times[at]).as_secs_f64()));
        Ok(())
    }

    fn keep(&mut self, listener: &Listener, call: Call) -> io::Result<()> {
        match self.heap.growth(call.arguments[0]) {
            Growth::Answer(end) => listener.answer(call, end as i64),
            Growth::Unknown => {
                let held = listener::hold(call, |call| listener.pass(call))?;
                self.begin(held.result()?);
                held.detach()
            }
            Growth::Grow { wanted } => {
                let asked = call.arguments[0];
                let held = listener::hold(call, |call| listener.answer(call, asked as i64))?;
                let end = held.call(libc::SYS_brk, [wanted, 0, 0, 0, 0, ADDED.into()])?;
                let from = self.heap.kernel_end;
                held.call(libc::SYS_madvise, [from, wanted - from, HUGE, 0, 0, ADDED.into()])?;
                self.grown(end, wanted)?;
                held.detach()
            }
        }
    }

    fn begin(&mut self, end: i64) {
        self.heap = Heap { start: end as u64, kernel_end: end as u64 };
    }

    fn grown(&mut self, end: i64, wanted: u64) -> io::Result<()> {
        if end as u64 != wanted {
            return Err(io::Error::other(format!("the heap ends at {end:#x} and not at {wanted:#x}")));
        }
        self.heap.kernel_end = wanted;
        Ok(())
    }

    /// Serves a program by stops until all its tasks have ended.
    pub fn serve_stops(&mut self, waiting: Waiting) -> io::Result<()> {
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACESECCOMP | libc::PTRACE_O_EXITKILL;
        listener::seize(waiting.tid, options)?;
        waiting.release()?;
        loop {
            match listener::wait(-1) {
                Ok((tid, status)) if libc::WIFSTOPPED(status) => self.stop(tid, status)?,
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn stop(&mut self, tid: i32, status: i32) -> io::Result<()> {
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            libc::PTRACE_EVENT_SECCOMP => {
                if listener::registers(tid)?.orig_rax == libc::SYS_exit_group as u64 {
                    return listener::detach(tid);
                }
                self.calls += 1;
                self.stopped_call(tid)?;
            }
            0 => return listener::resume(libc::PTRACE_CONT, tid, signal),
            _ => {}
        }
        listener::resume(libc::PTRACE_CONT, tid, 0)
    }

    fn stopped_call(&mut self, tid: i32) -> io::Result<()> {
        if self.service == Service::Pass {
            return Ok(());
        }
        let mut registers = listener::registers(tid)?;
        let arguments = [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9];
        let call = Call { id: 0, tid, number: registers.orig_rax as i64, arguments };
        let growth = match self.service {
            Service::Keep => self.heap.growth(arguments[0]),
            _ => Growth::Unknown,
        };
        match growth {
            Growth::Answer(end) => {
                (registers.rax, registers.orig_rax) = (end, u64::MAX);
                return listener::set_registers(tid, &registers);
            }
            Growth::Grow { wanted } => {
                listener::set_registers(tid, &libc::user_regs_struct { rdi: wanted, ..registers })?;
            }
            Growth::Unknown => {}
        }
        listener::to_call_stop(tid)?;
        let result = listener::registers(tid)?.rax;
        match (self.service, growth) {
            (Service::Keep, Growth::Grow { wanted }) => {
                let from = self.heap.kernel_end;
                self.grown(result as i64, wanted)?;
                let added = [from, wanted - from, HUGE, 0, 0, ADDED.into()];
                listener::inject(tid, libc::SYS_madvise, added, || Ok(()))?;
                let own = libc::user_regs_struct { rax: arguments[0], ..registers };
                listener::set_registers(tid, &own)
            }
            (Service::Keep, _) => {
                self.begin(result as i64);
                Ok(())
            }
            _ => listener::inject(tid, libc::SYS_madvise, advice(result, call), || Ok(())).map(|_| ()),
        }
    }
}

/// Follows a task through its execve and inspects the new image, if the execve succeeds.
fn inspect(listener: &Listener, call: Call) -> io::Result<()> {
    listener::seize(call.tid, libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL)?;
    listener::interrupt(call.tid)?;
    listener.pass(call)?;
    let (tid, status) = listener::wait(call.tid)?;
    if status >> 16 == libc::PTRACE_EVENT_EXEC {
        std::hint::black_box(std::fs::read(format!("/proc/{tid}/maps"))?);
        std::hint::black_box(File::open(format!("/proc/{tid}/exe"))?.metadata()?);
    }
    listener::detach(tid)
}

/// Arguments of the madvise that is added to a call: for the new mapping, or for the page by which a heap has grown.
fn advice(result: u64, call: Call) -> [u64; 6] {
    const PAGE: u64 = 4096;
    let (start, bytes) = match call.number {
        libc::SYS_brk => (result.saturating_sub(PAGE) & !(PAGE - 1), PAGE),
        _ => (result, call.arguments[1]),
    };
    [start, bytes, HUGE, 0, 0, ADDED.into()]
}
