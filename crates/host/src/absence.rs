//! What may legitimately be missing: a file that this kernel does not have, or a process that has ended. Any other read error
//! stays an error; it never becomes "none", "0" or "no".

use std::io;

/// The value read; `None` where the file does not exist, or its process or device is gone.
pub fn if_exists<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error means that the object does not exist. ESRCH comes from files of a process that has ended (fs/proc), ENODEV
/// from attributes of a removed device (sysfs).
pub fn is_absence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_files_count_as_absent() {
        let read = |errno| if_exists(Err::<(), _>(io::Error::from_raw_os_error(errno)));
        for errno in [libc::ENOENT, libc::ESRCH, libc::ENODEV] {
            assert!(matches!(read(errno), Ok(None)), "{errno}");
        }
        for errno in [libc::EACCES, libc::EPERM, libc::EMFILE, libc::EIO, libc::EISDIR, libc::ENOTDIR] {
            assert_eq!(read(errno).unwrap_err().raw_os_error(), Some(errno));
        }
    }
}
