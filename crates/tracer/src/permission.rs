//! Checks whether tracing is permitted.

use std::io;

/// Forks a child that requests to be traced and exits.
///
/// # Errors
/// The fork failed, or the error that the kernel gave the child.
pub fn try_tracing() -> io::Result<()> {
    // SAFETY: the child calls only ptrace and _exit, which are async-signal-safe.
    let child = match unsafe { libc::fork() } {
        // SAFETY: as above; the request takes no pointers.
        0 => unsafe {
            let asked = libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EPERM);
            libc::_exit(if asked == 0 { 0 } else { errno })
        },
        -1 => return Err(io::Error::last_os_error()),
        child => child,
    };
    let mut status = 0;
    loop {
        // SAFETY: the pointer is that of a local variable.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(()),
        (true, errno) => Err(io::Error::from_raw_os_error(errno)),
        (false, _) => Err(io::Error::other("the child that asked to be traced was killed")),
    }
}

/// Replaces a permission error by an empty value. The kernel shows nothing of a program that may be executed but not
/// read (mode 0711; ptrace(2), "Ptrace access mode checking"). The witness reports that it could not look.
///
/// # Errors
/// Any error of the reading except a missing permission.
pub fn if_shown<T: Default>(read: io::Result<T>) -> io::Result<T> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(T::default()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trying_to_trace_leaves_no_child_behind() {
        let count =
            || std::fs::read_to_string("/proc/thread-self/children").map(|text| text.split_whitespace().count());
        let before = count().ok();
        try_tracing().expect("tests trace their own children");
        assert_eq!(count().ok(), before);
    }
}
