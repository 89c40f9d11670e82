//! Child processes: makes them end with pagelab, ends them, and reads the resources that they used ([`ChildrenUsage`]).

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;

/// Resources of all children that were waited for (getrusage(2), RUSAGE_CHILDREN).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChildrenUsage {
    /// Time in user mode, in seconds.
    pub user_s: f64,
    /// Time in the kernel, in seconds.
    pub system_s: f64,
    /// Page faults served without I/O.
    pub minor_faults: u64,
}

impl ChildrenUsage {
    /// The usage up to now.
    pub fn now() -> io::Result<ChildrenUsage> {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let seconds = |time: nix::sys::time::TimeVal| time.num_microseconds() as f64 * 1e-6;
        Ok(ChildrenUsage {
            user_s: seconds(usage.user_time()),
            system_s: seconds(usage.system_time()),
            minor_faults: u64::try_from(usage.minor_page_faults()).unwrap_or(0),
        })
    }

    /// The difference from an earlier usage.
    pub fn since(&self, earlier: &ChildrenUsage) -> ChildrenUsage {
        ChildrenUsage {
            user_s: self.user_s - earlier.user_s,
            system_s: self.system_s - earlier.system_s,
            minor_faults: self.minor_faults - earlier.minor_faults,
        }
    }
}

/// CPU time of all threads of a running process so far, including threads that have ended (its CPU-time clock,
/// clock_getcpuclockid(3)), in seconds.
pub fn cpu_s(pid: u32) -> io::Result<f64> {
    let pid = i32::try_from(pid).map_err(|_| io::Error::from(nix::errno::Errno::ESRCH))?;
    let time = nix::time::clock_getcpuclockid(Pid::from_raw(pid))?.now()?;
    Ok(time.num_nanoseconds() as f64 * 1e-9)
}

/// Makes the kernel kill the child when the thread that spawns it ends for any reason (PR_SET_PDEATHSIG).
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    let set_signal = move || {
        // SAFETY: plain system calls without memory.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == -1 {
                return Err(io::Error::last_os_error());
            }
            if u32::try_from(libc::getppid()) != Ok(parent) {
                libc::_exit(libc::EXIT_FAILURE); // the parent died before the line above
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only and allocates nothing, as is required between fork and exec.
    unsafe { command.pre_exec(set_signal) }
}

/// Calls `body` in a new child, and returns its result.
///
/// # Safety
/// `body` makes only system calls: this process may have other threads.
pub(crate) unsafe fn call_in_child(body: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: the child makes only system calls, as the caller promises.
    let child = match unsafe { libc::fork() } {
        0 => {
            let errno = body().err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EPERM));
            // SAFETY: a plain system call.
            unsafe { libc::_exit(errno) }
        }
        -1 => return Err(io::Error::last_os_error()),
        child => child,
    };
    let mut status = 0;
    // SAFETY: the pointer is that of a local variable.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(()),
        (true, errno) => Err(io::Error::from_raw_os_error(errno)),
        (false, _) => Err(io::Error::other("the child was killed")),
    }
}

/// Ends this process with the given wait status (wait(2)), without dumping core itself.
///
/// # Safety
/// Only in a process that fork has just created and that has one thread.
pub(crate) unsafe fn exit_as(status: libc::c_int) -> ! {
    // SAFETY: plain system calls on memory of this function.
    unsafe {
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            libc::signal(signal, libc::SIG_DFL);
            let mut one: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut one);
            libc::sigaddset(&raw mut one, signal);
            libc::kill(libc::getpid(), signal);
            libc::sigprocmask(libc::SIG_UNBLOCK, &raw const one, std::ptr::null_mut());
        }
        libc::_exit(libc::WEXITSTATUS(status))
    }
}

/// Closes every descriptor from `first` on; one by one on kernels before 5.9, which lack close_range(2).
///
/// # Safety
/// Only in a process that fork has created, and that uses none of them any more.
pub(crate) unsafe fn close_from(first: libc::c_uint) {
    // SAFETY: the process uses none of them any more; the structure is live.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) == 0 {
            return;
        }
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        for descriptor in first as libc::c_int..libc::c_int::try_from(limit.rlim_cur).unwrap_or(libc::c_int::MAX) {
            libc::close(descriptor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_ends_with_the_thread_that_made_it() {
        let made = std::thread::spawn(|| die_with_parent(Command::new("sleep").arg("60")).spawn().unwrap());
        let mut child = made.join().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL), "{status}");
    }

    #[test]
    fn cpu_time_of_a_running_process_grows() {
        let before = cpu_s(std::process::id()).unwrap();
        let start = std::time::Instant::now();
        while start.elapsed().as_millis() < 20 {}
        let used = cpu_s(std::process::id()).unwrap() - before;
        assert!(used > 0.0 && used < 60.0, "{used} s");
        assert!(cpu_s(u32::MAX).is_err());
    }

    #[test]
    fn usage_counts_the_children_that_were_waited_for() {
        let before = ChildrenUsage::now().unwrap();
        assert!(Command::new("true").status().unwrap().success());
        let cost = ChildrenUsage::now().unwrap().since(&before);
        assert!(cost.minor_faults > 0 && cost.user_s >= 0.0 && cost.system_s >= 0.0, "{cost:?}");
    }
}
