//! Privileges and settings that this process gives up permanently.

use std::fmt::Display;
use std::io;

use super::error::{LaunchError, step_failed};
use crate::{filter, thp_disable};

/// Prevents this process and its descendants from gaining privileges by exec.
pub fn set_no_new_privileges() -> Result<(), LaunchError> {
    // SAFETY: prctl with plain numbers.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        -1 => Err(step_failed(2, io::Error::last_os_error())),
        _ => Ok(()),
    }
}

/// Disables transparent huge pages for this process and its descendants permanently: a filter answers later attempts to
/// enable them. Without CAP_SYS_ADMIN this implies that the program gains no privilege by exec.
pub fn disable_thp_permanently() -> Result<(), LaunchError> {
    let filter = filter::program(&thp_disable::watches_without_tracer());
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let mode = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
    let step = |number: usize, result: libc::c_int| match result {
        -1 => Err(step_failed(number, io::Error::last_os_error())),
        _ => Ok(()),
    };
    // SAFETY: prctl with plain numbers, and with a filter that lives until the kernel has copied it.
    unsafe {
        step(1, libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0))?;
        if !may_filter_with_privileges()? {
            set_no_new_privileges()?;
        }
        step(3, libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program))
    }
}

/// Whether this process has CAP_SYS_ADMIN. With it a filter needs no PR_SET_NO_NEW_PRIVS, and setuid programs keep working.
pub(super) fn may_filter_with_privileges() -> io::Result<bool> {
    const STATUS: &str = "/proc/self/status";
    const CAP_SYS_ADMIN: u32 = 21;
    let failed = |error: &dyn Display| io::Error::other(format!("{STATUS}: {error}"));
    let status = host::content(STATUS).map_err(|error| failed(&error))?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    let capabilities = capabilities.ok_or_else(|| failed(&"expected a line CapEff"))?;
    Ok(capabilities >> CAP_SYS_ADMIN & 1 == 1)
}
