//! Runs a program under a seccomp filter whose calls notify (SECCOMP_RET_USER_NOTIF) or stop (SECCOMP_RET_TRACE), and
//! lets a supervisor operate on one of its tasks. The benchmark `benches/notify` and the tests of `tests/notify.rs` use it; pagelab
//! itself does not. x86-64 only. Needs Linux 6.11: since then waiting for a call ends with the last task.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use libc::sock_filter;

/// A task (thread) by its kernel id.
pub type Tid = libc::pid_t;

/// Sixth argument of the calls that the supervisor adds, by which the filter recognizes them. Neither brk nor madvise reads it.
pub const ADDED: u32 = 0x7067_6c62;

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const CALL_INSTRUCTION_BYTES: u64 = 2;
const SIGSET_BYTES: usize = 8;
/// SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (include/uapi/linux/seccomp.h), since Linux 6.6.
const SYNC_WAKE_UP: u64 = 1;

/// What the running kernel lacks for these tests; `None` if it lacks nothing.
pub fn missing_requirement() -> Option<&'static str> {
    let release = nix::sys::utsname::uname().ok()?.release().to_string_lossy().into_owned();
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    (version < (6, 11)).then_some("Linux 6.11, whose listeners end with their last task")
}

/// A filter that applies `action` to calls of these numbers and allows all others, and those marked with [`ADDED`].
pub fn filter(numbers: &[i64], action: u32) -> Vec<sock_filter> {
    let load = |at: u32| sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: at };
    let equal =
        |k: u32, jt: u8, jf: u8| sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt, jf, k };
    let give = |k: u32| sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k };
    let allow = give(libc::SECCOMP_RET_ALLOW);
    // Offsets in struct seccomp_data: the number (0), the architecture (4), the low word of the sixth argument (56).
    let mut code = vec![load(4), equal(AUDIT_ARCH_X86_64, 1, 0), allow, load(56), equal(ADDED, 0, 1), allow, load(0)];
    code.extend(numbers.iter().flat_map(|number| [equal(*number as u32, 0, 1), give(action)]));
    code.push(allow);
    code
}

/// A process that waits before its exec, with its filter installed.
pub struct Waiting {
    /// PID of the process.
    pub tid: Tid,
    channel: UnixStream,
}

impl Waiting {
    /// Lets the process continue to its exec.
    pub fn release(mut self) -> io::Result<()> {
        self.channel.write_all(&[1])
    }
}

/// Runs a command under a filter, with a thread that serves it. The thread receives the waiting process, and the
/// listener if `flags` requests one. Returns the command's output and status, and the thread's result.
pub fn supervise<T: Send>(
    mut command: Command,
    filter: Vec<sock_filter>,
    flags: libc::c_ulong,
    serve: impl FnOnce(Waiting, Option<Listener>) -> io::Result<T> + Send,
) -> io::Result<(Output, T)> {
    let (ours, theirs) = UnixStream::pair()?;
    let end = theirs.as_raw_fd();
    // SAFETY: between fork and exec there are only system calls; the filter was made before.
    unsafe { command.pre_exec(move || announce(end, install(&filter, flags)?)) };
    std::thread::scope(|scope| {
        let supervisor = scope.spawn(move || {
            let (waiting, listener) = receive_announcement(ours)?;
            serve(waiting, listener)
        });
        let spawned = command.stdout(Stdio::piped()).spawn();
        drop(theirs);
        let mut printed = Vec::new();
        // Waiting for the process here would take its stops from the supervisor.
        let read = spawned.and_then(|mut child| {
            child.stdout.take().expect("it is piped").read_to_end(&mut printed)?;
            Ok(child)
        });
        let found = supervisor.join().expect("the supervisor does not panic")?;
        let status = read?.wait()?;
        Ok((Output { status, stdout: printed, stderr: Vec::new() }, found))
    })
}

/// Installs a filter. Returns the listener's descriptor, or 0.
fn install(filter: &[sock_filter], flags: libc::c_ulong) -> io::Result<RawFd> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program is live, and the kernel copies it.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    if installed == -1 { Err(io::Error::last_os_error()) } else { Ok(installed as RawFd) }
}

/// Runs in the new process: reports its PID and the descriptor of its listener, and waits for permission to continue.
fn announce(end: RawFd, listener: RawFd) -> io::Result<()> {
    let mut go = [0u8; 1];
    // SAFETY: plain system calls on live memory.
    let read = unsafe {
        let message = [libc::getpid(), listener];
        libc::write(end, message.as_ptr().cast(), size_of_val(&message));
        libc::read(end, go.as_mut_ptr().cast(), 1)
    };
    if read == 1 { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ECANCELED)) }
}

fn receive_announcement(mut channel: UnixStream) -> io::Result<(Waiting, Option<Listener>)> {
    let mut message = [0u8; 8];
    channel.read_exact(&mut message)?;
    let word = |at: usize| i32::from_ne_bytes(message[at..at + 4].try_into().expect("4 bytes"));
    let (tid, number) = (word(0), word(4));
    if number == 0 {
        return Ok((Waiting { tid, channel }, None));
    }
    // SAFETY: the descriptors are new and have no other owner.
    let listener = unsafe {
        let process = owned(libc::syscall(libc::SYS_pidfd_open, tid, 0))?;
        owned(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0))?
    };
    Ok((Waiting { tid, channel }, Some(Listener(listener))))
}

/// # Safety
/// A descriptor other than -1 has no other owner.
unsafe fn owned(descriptor: libc::c_long) -> io::Result<OwnedFd> {
    match descriptor {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the caller guarantees it.
        descriptor => Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) }),
    }
}

/// The listener on which calls are received and answered.
pub struct Listener(OwnedFd);

/// A received call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Notification id, which the answer must contain.
    pub id: u64,
    /// The task that makes the call.
    pub tid: Tid,
    /// The number of the call.
    pub number: i64,
    /// The arguments of the call.
    pub arguments: [u64; 6],
}

impl Listener {
    /// Runs a woken task on the CPU of the waker (SYNC_WAKE_UP).
    pub fn wake_in_place(&self) -> io::Result<()> {
        // SAFETY: this request takes a number.
        unsafe { self.control(libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP as usize) }
    }

    /// Waits for a call; `None` if no task is left that could make one.
    pub fn receive(&self) -> io::Result<Option<Call>> {
        loop {
            // SAFETY: the structure is plain data, zero as the kernel wants it, and live.
            let (notice, received) = unsafe {
                let mut notice: libc::seccomp_notif = std::mem::zeroed();
                let received = self.control(libc::SECCOMP_IOCTL_NOTIF_RECV, (&raw mut notice) as usize);
                (notice, received)
            };
            let (id, tid) = (notice.id, notice.pid as Tid);
            match received {
                Ok(()) => {
                    let (number, arguments) = (i64::from(notice.data.nr), notice.data.args);
                    return Ok(Some(Call { id, tid, number, arguments }));
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) && self.is_over() => return Ok(None),
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until there is a call, without receiving it.
    pub fn wait_for_call(&self) -> io::Result<()> {
        self.poll(libc::POLLIN, -1).map(|_| ())
    }

    /// Waits until no task is left that could make a call.
    pub fn wait_for_end(&self) -> io::Result<()> {
        self.poll(0, -1).map(|_| ())
    }

    /// Lets a task make its call.
    pub fn pass(&self, call: Call) -> io::Result<()> {
        self.send(call.id, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32)
    }

    /// Answers a call without making it.
    pub fn answer(&self, call: Call, value: i64) -> io::Result<()> {
        self.send(call.id, value, 0)
    }

    fn send(&self, id: u64, val: i64, flags: u32) -> io::Result<()> {
        let mut response = libc::seccomp_notif_resp { id, val, error: 0, flags };
        // SAFETY: the structure is live.
        unsafe { self.control(libc::SECCOMP_IOCTL_NOTIF_SEND, (&raw mut response) as usize) }
    }

    fn is_over(&self) -> bool {
        self.poll(0, 0).is_ok_and(|found| found & libc::POLLHUP != 0)
    }

    fn poll(&self, events: libc::c_short, patience_ms: libc::c_int) -> io::Result<libc::c_short> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events, revents: 0 };
        // SAFETY: one live structure.
        match unsafe { libc::poll(&raw mut poll, 1, patience_ms) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(poll.revents),
        }
    }

    /// # Safety
    /// `argument` is what the request takes: a number, or the address of a live structure.
    unsafe fn control(&self, request: libc::Ioctl, argument: usize) -> io::Result<()> {
        // SAFETY: the caller guarantees it.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

/// A task that is seized and stopped after a received call.
pub struct HeldTask(Tid);

/// Seizes the task of a call, answers with `answer`, and waits until the task is stopped on its way to user mode: after
/// its call, if the answer lets the call happen. Under WAIT_KILLABLE_RECV signals do not end the wait; without it the
/// interruption would cancel the call.
pub fn hold(call: Call, answer: impl FnOnce(Call) -> io::Result<()>) -> io::Result<HeldTask> {
    seize(call.tid, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL)?;
    interrupt(call.tid)?;
    answer(call)?;
    wait_until_held(call.tid)
}

/// Waits until an interrupted task is stopped on its way to user mode.
pub fn wait_until_held(tid: Tid) -> io::Result<HeldTask> {
    match wait(tid)? {
        (_, status) if status >> 16 == libc::PTRACE_EVENT_STOP => Ok(HeldTask(tid)),
        (_, status) => Err(io::Error::other(format!("not before user mode: {status:#x}"))),
    }
}

impl HeldTask {
    /// Result of the task's call.
    pub fn result(&self) -> io::Result<i64> {
        Ok(registers(self.0)?.rax as i64)
    }

    /// Makes the task issue a call. The filter sees it.
    pub fn call(&self, number: i64, arguments: [u64; 6]) -> io::Result<i64> {
        inject(self.0, number, arguments, || Ok(()))
    }

    /// Makes the task issue a call, and runs a function while the call is in progress.
    pub fn call_with(
        &self,
        number: i64,
        arguments: [u64; 6],
        meanwhile: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<i64> {
        inject(self.0, number, arguments, meanwhile)
    }

    /// Resumes the task without a tracer.
    pub fn detach(self) -> io::Result<()> {
        detach(self.0)
    }
}

/// Makes a task that is stopped after a call issue another one, and restores its registers.
pub fn inject(
    tid: Tid,
    number: i64,
    arguments: [u64; 6],
    meanwhile: impl FnOnce() -> io::Result<()>,
) -> io::Result<i64> {
    let own = registers(tid)?;
    let [rdi, rsi, rdx, r10, r8, r9] = arguments;
    let (rip, rax) = (own.rip - CALL_INSTRUCTION_BYTES, number as u64);
    let blocked = signal_mask(tid)?;
    set_signal_mask(tid, u64::MAX)?;
    set_registers(tid, &libc::user_regs_struct { rip, rax, orig_rax: u64::MAX, rdi, rsi, rdx, r10, r8, r9, ..own })?;
    to_call_stop(tid)?;
    resume(libc::PTRACE_SYSCALL, tid, 0)?;
    meanwhile()?;
    call_stop(tid)?;
    let result = registers(tid)?.rax as i64;
    set_registers(tid, &own)?;
    set_signal_mask(tid, blocked)?;
    Ok(result)
}

/// Resumes a stopped task until the next system call stop.
pub fn to_call_stop(tid: Tid) -> io::Result<()> {
    resume(libc::PTRACE_SYSCALL, tid, 0)?;
    call_stop(tid)
}

fn call_stop(tid: Tid) -> io::Result<()> {
    match wait(tid)? {
        (_, status) if libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80 => Ok(()),
        (_, status) => Err(io::Error::other(format!("not at a call: {status:#x}"))),
    }
}

/// Attaches to a task without stopping it.
pub fn seize(tid: Tid, options: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, options as usize)
}

/// Makes a seized task stop before it next enters user mode.
pub fn interrupt(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Resumes a stopped task without a tracer.
pub fn detach(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, 0)
}

/// Resumes a stopped task with the given ptrace(2) request.
pub fn resume(how: libc::c_uint, tid: Tid, signal: i32) -> io::Result<()> {
    request(how, tid, 0, signal as usize)
}

/// Waits for a task, or for any tracee of this thread (-1).
pub fn wait(tid: Tid) -> io::Result<(Tid, i32)> {
    let mut status = 0;
    // SAFETY: the status is live; no usage is requested.
    match unsafe { libc::wait4(tid, &raw mut status, libc::__WALL | libc::__WNOTHREAD, std::ptr::null_mut()) } {
        -1 => Err(io::Error::last_os_error()),
        waited => Ok((waited, status)),
    }
}

/// The registers of a stopped task.
pub fn registers(tid: Tid) -> io::Result<libc::user_regs_struct> {
    // SAFETY: plain data, which the kernel fills.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETREGS, tid, 0, (&raw mut registers) as usize)?;
    Ok(registers)
}

/// Sets the registers of a stopped task.
pub fn set_registers(tid: Tid, registers: &libc::user_regs_struct) -> io::Result<()> {
    request(libc::PTRACE_SETREGS, tid, 0, std::ptr::from_ref(registers) as usize)
}

fn signal_mask(tid: Tid) -> io::Result<u64> {
    let mut mask = 0u64;
    request(libc::PTRACE_GETSIGMASK, tid, SIGSET_BYTES, (&raw mut mask) as usize)?;
    Ok(mask)
}

fn set_signal_mask(tid: Tid, mask: u64) -> io::Result<()> {
    request(libc::PTRACE_SETSIGMASK, tid, SIGSET_BYTES, (&raw const mask) as usize)
}

fn request(kind: libc::c_uint, tid: Tid, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: every caller passes plain numbers, or the address of live memory of the size that the request needs.
    match unsafe { libc::ptrace(kind, tid, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
