//! Checks whether tracing is permitted.

use std::io;

use crate::child;

/// Forks a child that requests to be traced and exits.
pub fn try_tracing() -> io::Result<()> {
    let request = || {
        // SAFETY: the request takes no pointers.
        let result = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure makes one system call.
    unsafe { child::call_in_child(request) }
}

/// Replaces a permission error by an empty value. The kernel shows nothing of a program that may be executed but not
/// read (mode 0711; ptrace(2), "Ptrace access mode checking"). The witness reports that it could not inspect it.
pub fn if_permitted<T: Default>(read: io::Result<T>) -> io::Result<T> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(T::default()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn try_tracing_leaves_no_child() {
        let count =
            || std::fs::read_to_string("/proc/thread-self/children").map(|text| text.split_whitespace().count());
        let before = count().ok();
        try_tracing().expect("tests trace their own children");
        assert_eq!(count().ok(), before);
    }
}
