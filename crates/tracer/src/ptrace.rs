//! The requests of ptrace(2) and wait4(2) that the tracer uses, each as a safe function.
//!
//! `nix` lacks the register sets, the signal mask and the system call information, so all requests are made here in a
//! uniform way.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileExt;

use policy::pool::RseqArea;

use super::registers::{Layout, NATIVE, Registers};

/// Kernel id of a task (thread).
pub type Tid = libc::pid_t;

const NT_PRSTATUS: usize = 1;
const NT_ARM_SYSTEM_CALL: usize = 0x404;
/// Size of the kernel's sigset, the same on every supported architecture.
const SIGSET_BYTES: usize = 8;

/// An event that wait4(2) reported for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The task exited with this status.
    Exited(i32),
    /// The task was killed by this signal.
    Killed(i32),
    /// A watched call is about to be made.
    Seccomp,
    /// A task was created with an exit signal other than SIGCHLD, as by pthread_create; the event message is its id. The event does
    /// not show whether the new task shares the memory (`kernel_clone` in kernel/fork.c).
    Clone,
    /// As `Clone`, with the exit signal SIGCHLD.
    Fork,
    /// As `Clone`, with CLONE_VFORK.
    Vfork,
    /// A new program was loaded; the event message is the id that the task had before.
    Exec,
    /// The task is about to end and still has its memory.
    Exit,
    /// A new task starts under the tracer, or the tracer interrupted the task.
    Trap,
    /// The task takes part in a group stop of its process (SIGSTOP and the like).
    Group,
    /// The task is before or after a system call.
    Syscall,
    /// A signal is about to be delivered.
    Signal(i32),
}

thread_local! {
    /// Events that the kernel has reported and that no caller has taken yet.
    static PENDING_EVENTS: RefCell<VecDeque<(Tid, Stop)>> = const { RefCell::new(VecDeque::new()) };
    static STOPS: Cell<u64> = const { Cell::new(0) };
}

/// Number of stops that this thread has waited for in total.
pub fn stops() -> u64 {
    STOPS.get()
}

/// Counts a stop and returns it. The end of a task does not count.
fn count(stop: Stop) -> Stop {
    if !matches!(stop, Stop::Exited(_) | Stop::Killed(_)) {
        STOPS.set(STOPS.get() + 1);
    }
    stop
}

/// Decodes a wait status.
pub fn decode(status: i32) -> Stop {
    if libc::WIFEXITED(status) {
        return Stop::Exited(libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return Stop::Killed(libc::WTERMSIG(status));
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        libc::PTRACE_EVENT_SECCOMP => Stop::Seccomp,
        libc::PTRACE_EVENT_CLONE => Stop::Clone,
        libc::PTRACE_EVENT_FORK => Stop::Fork,
        libc::PTRACE_EVENT_VFORK => Stop::Vfork,
        libc::PTRACE_EVENT_EXEC => Stop::Exec,
        libc::PTRACE_EVENT_EXIT => Stop::Exit,
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Stop::Trap,
        libc::PTRACE_EVENT_STOP => Stop::Group,
        _ if signal == libc::SIGTRAP | 0x80 => Stop::Syscall,
        _ => Stop::Signal(signal),
    }
}

fn request(kind: libc::c_uint, tid: Tid, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: every caller passes either plain numbers or pointers to live memory of the size that
    // the request needs.
    let result = unsafe { libc::ptrace(kind, tid, address, data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Attaches to a task without stopping it, and sets the tracer's options.
pub fn seize(tid: Tid) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEEXIT
        | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SEIZE, tid, 0, options as usize)
}

/// Resumes a task without a tracer.
pub fn detach(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, 0)
}

/// Resumes a task, with a signal or with none (0).
pub fn resume(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize)
}

/// Resumes a task until its next system call stop, with a signal or with none (0).
pub fn resume_to_syscall(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0, signal as usize)
}

/// Makes a task stop as soon as it runs: in the group stop of its process if one is in force, otherwise in [`Stop::Trap`].
pub fn interrupt(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Leaves a task in its group stop until a SIGCONT.
pub fn listen(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0, 0)
}

/// Message of the ptrace event at which a task is stopped.
pub fn event_message(tid: Tid) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, tid, 0, (&raw mut message) as usize)?;
    Ok(message)
}

/// The rseq(2) area of a stopped task; `None` if it has none, or if the kernel does not report it (before Linux 5.13).
pub fn rseq_area(tid: Tid) -> Option<RseqArea> {
    /// `struct ptrace_rseq_configuration` (include/uapi/linux/ptrace.h).
    #[repr(C)]
    #[derive(Default)]
    struct Configuration {
        address: u64,
        bytes: u32,
        signature: u32,
        flags: u32,
        pad: u32,
    }
    /// Also from include/uapi/linux/ptrace.h.
    const PTRACE_GET_RSEQ_CONFIGURATION: u32 = 0x420f;
    let mut found = Configuration::default();
    request(PTRACE_GET_RSEQ_CONFIGURATION, tid, size_of::<Configuration>(), (&raw mut found) as usize).ok()?;
    (found.address != 0).then_some(RseqArea {
        address: found.address,
        bytes: found.bytes.into(),
        signature: found.signature.into(),
    })
}

/// The general registers of a stopped task.
pub fn registers(tid: Tid) -> io::Result<Registers> {
    let mut registers = Registers::ZERO;
    let mut vector = libc::iovec { iov_base: registers.words.as_mut_ptr().cast(), iov_len: NATIVE.words * 8 };
    request(libc::PTRACE_GETREGSET, tid, NT_PRSTATUS, (&raw mut vector) as usize)?;
    Ok(registers)
}

/// Whether a stopped task has registers of the tracer's own ABI: a 32-bit program has fewer.
pub fn has_native_registers(tid: Tid) -> io::Result<bool> {
    let mut registers = Registers::ZERO;
    let mut vector = libc::iovec { iov_base: registers.words.as_mut_ptr().cast(), iov_len: NATIVE.words * 8 };
    request(libc::PTRACE_GETREGSET, tid, NT_PRSTATUS, (&raw mut vector) as usize)?;
    Ok(vector.iov_len == NATIVE.words * 8)
}

/// Sets the general registers of a stopped task.
pub fn set_registers(tid: Tid, registers: &Registers) -> io::Result<()> {
    let mut words = registers.words;
    let mut vector = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: NATIVE.words * 8 };
    request(libc::PTRACE_SETREGSET, tid, NT_PRSTATUS, (&raw mut vector) as usize)
}

/// Changes the call of a task at a system call entry stop.
pub fn set_call(tid: Tid, layout: &Layout, registers: &Registers, number: i64, arguments: [u64; 6]) -> io::Result<()> {
    set_registers(tid, &registers.entering(layout, number, arguments))?;
    if layout.number_at_entry.is_some() {
        return Ok(());
    }
    let mut number = number as i32;
    let mut vector = libc::iovec { iov_base: (&raw mut number).cast(), iov_len: 4 };
    request(libc::PTRACE_SETREGSET, tid, NT_ARM_SYSTEM_CALL, (&raw mut vector) as usize)
}

/// Number of the call at which a task is stopped.
pub fn call_number(tid: Tid, layout: &Layout, registers: &Registers) -> io::Result<i64> {
    if let Some(at) = layout.number_at_entry {
        return Ok(registers.words[at] as i64);
    }
    let mut number: i32 = 0;
    let mut vector = libc::iovec { iov_base: (&raw mut number).cast(), iov_len: 4 };
    request(libc::PTRACE_GETREGSET, tid, NT_ARM_SYSTEM_CALL, (&raw mut vector) as usize)?;
    Ok(i64::from(number))
}

/// Arguments of the call at which a task is stopped: by a seccomp filter, or at the entry by PTRACE_SYSCALL.
pub fn call_arguments(tid: Tid) -> io::Result<[u64; 6]> {
    /// `struct ptrace_syscall_info` at such stops (include/uapi/linux/ptrace.h), since Linux 5.3.
    #[repr(C)]
    #[derive(Default)]
    struct Information {
        operation: u8,
        reserved: u8,
        flags: u16,
        audit_arch: u32,
        instruction_pointer: u64,
        stack_pointer: u64,
        number: u64,
        arguments: [u64; 6],
        data: u32,
        reserved_more: u32,
    }
    /// Also from include/uapi/linux/ptrace.h.
    const PTRACE_GET_SYSCALL_INFO: u32 = 0x420e;
    const ENTRY: u8 = 1;
    const FILTER: u8 = 3;
    let mut found = Information::default();
    request(PTRACE_GET_SYSCALL_INFO, tid, size_of::<Information>(), (&raw mut found) as usize)?;
    match found.operation {
        ENTRY | FILTER => Ok(found.arguments),
        // The task was killed there meanwhile, and is now stopped at its exit.
        _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// The blocked signals of a stopped task.
pub fn signal_mask(tid: Tid) -> io::Result<u64> {
    let mut mask: u64 = 0;
    request(libc::PTRACE_GETSIGMASK, tid, SIGSET_BYTES, (&raw mut mask) as usize)?;
    Ok(mask)
}

/// Sets the blocked signals of a stopped task.
pub fn set_signal_mask(tid: Tid, mask: u64) -> io::Result<()> {
    request(libc::PTRACE_SETSIGMASK, tid, SIGSET_BYTES, (&raw const mask) as usize)
}

/// Waits for a task, or for any child or tracee of this thread if `tid` is -1. `EINTR` is returned as an error, so that
/// the caller can check the cause of the interruption.
///
/// With -1 this first collects every task that has stopped, and then returns one of them: the kernel reports tasks in a
/// fixed order, so tasks that stop often would starve the others.
pub fn wait(tid: Tid) -> io::Result<(Tid, Stop)> {
    if let Some(ready) = take_collected(tid) {
        return Ok(ready);
    }
    let mut status = 0;
    // SAFETY: the status is a live integer; no resource usage is requested.
    let waited = unsafe { libc::wait4(tid, &mut status, libc::__WALL | libc::__WNOTHREAD, std::ptr::null_mut()) };
    if waited == -1 {
        return Err(io::Error::last_os_error());
    }
    if tid == -1 {
        while let Ok(Some(next)) = try_wait_kernel(-1) {
            PENDING_EVENTS.with_borrow_mut(|collected| collected.push_back(next));
        }
    }
    Ok((waited, count(decode(status))))
}

/// Takes the first collected event of a task, or of any task if `tid` is -1.
fn take_collected(tid: Tid) -> Option<(Tid, Stop)> {
    PENDING_EVENTS.with_borrow_mut(|ready| {
        let at = ready.iter().position(|(of, _)| tid == -1 || *of == tid)?;
        ready.remove(at)
    })
}

/// Discards events that were collected for an earlier tree.
pub fn discard_collected() {
    PENDING_EVENTS.with_borrow_mut(VecDeque::clear);
}

/// Like [`wait`], but does not block: `None` if there is no event yet.
pub fn try_wait(tid: Tid) -> io::Result<Option<(Tid, Stop)>> {
    take_collected(tid).map_or_else(|| try_wait_kernel(tid), |ready| Ok(Some(ready)))
}

fn try_wait_kernel(tid: Tid) -> io::Result<Option<(Tid, Stop)>> {
    let mut status = 0;
    let flags = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
    // SAFETY: the status is a live integer; no resource usage is requested.
    match unsafe { libc::wait4(tid, &mut status, flags, std::ptr::null_mut()) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        tid => Ok(Some((tid, count(decode(status))))),
    }
}

/// Blocks until there is an event, and leaves it pending. A signal also ends the wait.
pub fn wait_for_any_event() -> io::Result<()> {
    let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: siginfo is plain data, and the pointer is live.
    let result = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_ALL, 0, &raw mut info, flags)
    };
    match io::Error::last_os_error() {
        error if result == -1 && error.raw_os_error() != Some(libc::EINTR) => Err(error),
        _ => Ok(()),
    }
}

/// Whether a task is a zombie or no longer exists.
pub fn is_zombie(tid: Tid) -> io::Result<bool> {
    Ok(matches!(host::task_state(tid)?, None | Some(b'Z' | b'X')))
}

/// Whether a task exists and is traced by this thread. A task whose end was not reported yet still exists.
pub fn is_traced_here(tid: Tid) -> io::Result<bool> {
    // SAFETY: gettid has no arguments and no effects.
    let here = unsafe { libc::gettid() };
    Ok(host::tracer_of(&format!("/proc/{tid}/status"))? == Some(here))
}

/// Kills a process with SIGKILL.
pub fn kill(process: Tid) {
    // SAFETY: kill has no memory effects; the callers name tracees that were not waited for yet.
    unsafe { libc::kill(process, libc::SIGKILL) };
}

/// Whether two tasks share their memory; `None` on a kernel without kcmp(2).
pub fn share_memory(one: Tid, other: Tid) -> Option<bool> {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: kcmp with plain numbers.
    match unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) } {
        -1 => None,
        order => Some(order == 0),
    }
}

/// Address of a stopped task's memory fault; `None` if its signal is not a fault.
pub fn fault_address(tid: Tid) -> Option<u64> {
    let info = signal_information(tid)?;
    // SAFETY: a positive code of SIGSEGV is the kernel's own, which fills in the address.
    (info.si_signo == libc::SIGSEGV && info.si_code > 0).then(|| unsafe { info.si_addr() } as u64)
}

fn signal_information(tid: Tid) -> Option<libc::siginfo_t> {
    // SAFETY: siginfo is plain data.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETSIGINFO, tid, 0, (&raw mut info) as usize).ok()?;
    Some(info)
}

/// Copies bytes from a task's memory; an error if not all of them are mapped and readable.
pub fn read_memory(tid: Tid, address: u64, into: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: the local vector is the live slice; the remote one is checked by the kernel.
    let read = unsafe { libc::process_vm_readv(tid, &raw const local, 1, &raw const remote, 1, 0) };
    if read == into.len() as isize {
        return Ok(());
    }
    // Fallback: process_vm_readv cannot read memory that the program itself may not read, and needs
    // CONFIG_CROSS_MEMORY_ATTACH.
    std::fs::File::open(format!("/proc/{tid}/mem"))?.read_exact_at(into, address)
}

/// Copies bytes into a task's memory, even where the program itself may not write. The kernel refuses such forced writes to
/// hugetlb pages (`check_vma_flags` in mm/gup.c), and to all memory if it is configured with CONFIG_PROC_MEM_NO_FORCE.
#[expect(clippy::disallowed_methods, reason = "a file of /proc")]
pub fn write_memory(tid: Tid, address: u64, bytes: &[u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: the local vector is the live slice and only read; the remote one is checked by the kernel.
    let written = unsafe { libc::process_vm_writev(tid, &raw const local, 1, &raw const remote, 1, 0) };
    if written == bytes.len() as isize {
        return Ok(());
    }
    std::fs::OpenOptions::new().write(true).open(format!("/proc/{tid}/mem"))?.write_all_at(bytes, address)
}
