//! [`FileSystems`] of mappings, by the device number that a mapping shows.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::sync::Mutex;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{fstat, major, minor};
use policy::inspect::FileSystem;

use crate::CensusError;

/// The major and minor number of a device.
type Device = (u32, u32);

/// The file systems found so far. A device number that is reused for another file system later is not noticed.
pub struct FileSystems {
    /// The kernel's internal tmpfs, which holds memfds, shared anonymous and System V shared memory and is not mounted
    /// (`shm_mnt`, mm/shmem.c).
    own: Device,
    known: Mutex<HashMap<Device, Option<FileSystem>>>,
}

impl FileSystems {
    /// Determines the device number of the kernel's internal tmpfs with a memfd.
    pub fn new() -> Result<FileSystems, CensusError> {
        let made = || -> nix::Result<Device> {
            let file = memfd_create(c"pagelab", MFdFlags::MFD_CLOEXEC)?;
            let device = fstat(file.as_fd())?.st_dev;
            Ok((major(device) as u32, minor(device) as u32))
        };
        let failed = |errno: nix::Error| CensusError::Io { path: "a memfd".into(), error: errno.into() };
        Ok(FileSystems { own: made().map_err(failed)?, known: Mutex::default() })
    }

    /// Whether files of this device are shared memory. A disk has a non-zero major number; other devices are looked up in the
    /// process's mount table. A device that the table does not list is assumed to hold ordinary files.
    pub fn is_shmem(&self, pid: u32, device: Device) -> Result<bool, CensusError> {
        if device.0 != 0 || device == self.own {
            return Ok(device == self.own);
        }
        Ok(self.of(pid, device)?.is_some_and(|on| is_tmpfs(&on.name)))
    }

    /// The file system of a device in the mount table of a process.
    pub fn of(&self, pid: u32, device: Device) -> Result<Option<FileSystem>, CensusError> {
        if self.own == device || device == (0, 0) {
            return Ok(None);
        }
        let mut known = self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(found) = known.get(&device) {
            return Ok(found.clone());
        }
        let path = format!("/proc/{pid}/mountinfo");
        let found = mounted(fs::read(&path), device).map_err(|error| CensusError::io(pid, &path, error))?;
        known.insert(device, found.clone());
        Ok(found)
    }
}

fn is_tmpfs(name: &str) -> bool {
    matches!(name, "tmpfs" | "devtmpfs")
}

/// The file system with this device number in a mount table (`/proc/PID/mountinfo`, proc(5)). Its paths may contain any bytes; a
/// space or newline in them is an octal escape, so splitting at these is safe.
fn mounted(table: io::Result<Vec<u8>>, device: Device) -> io::Result<Option<FileSystem>> {
    let (table, wanted) = (table?, format!("{}:{}", device.0, device.1));
    let mut lines = table.split(|byte| *byte == b'\n');
    let Some(line) = lines.find(|line| words(line).nth(2) == Some(wanted.as_bytes())) else { return Ok(None) };
    let malformed = || {
        let line = String::from_utf8_lossy(line);
        io::Error::other(format!("expected a mount as in proc(5), found {line:?}"))
    };
    // Optional fields end with a dash; type, source and options follow it.
    let mut rest = words(line).skip_while(|word| *word != b"-").skip(1);
    let (name, options) = (rest.next().ok_or_else(malformed)?, rest.last().ok_or_else(malformed)?);
    let huge = options.split(|byte| *byte == b',').find_map(|option| option.strip_prefix(b"huge="));
    Ok(Some(FileSystem { name: text(name), huge: huge.map(text) }))
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ')
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_table_tells_types_and_what_a_tmpfs_gives() {
        let table = b"22 28 0:21 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=1k,huge=within_size\n\
                      23 28 0:22 / /a - b rw shared:1 - overlay tmpfs rw\n\
                      24 28 0:23 / /tmp rw - tmpfs tmpfs rw\n\
                      25 28 254:0 / / rw - ext4 /dev/root rw\n";
        let name_and_huge = |device| mounted(Ok(table.to_vec()), device).unwrap().map(|on| (on.name, on.huge));
        assert_eq!(name_and_huge((0, 21)), Some(("tmpfs".into(), Some("within_size".into()))));
        assert_eq!(name_and_huge((0, 23)), Some(("tmpfs".into(), None)));
        assert_eq!(name_and_huge((254, 0)), Some(("ext4".into(), None)));
        assert_eq!(name_and_huge((0, 2)), None);
        assert_ne!(name_and_huge((0, 22)).map(|(name, _)| is_tmpfs(&name)), Some(true));
    }

    #[test]
    fn mount_points_of_any_bytes_change_nothing() {
        for point in [&b"/plain"[..], b"/\xff\xfe", br"/a\040-\040b", br"/a\134b", b"/\xed\xa0\x80"] {
            let table =
                [&b"31 28 0:50 / "[..], point, b" rw - tmpfs tmpfs rw,huge=advise\n24 28 0:23 / /x rw - ext4 d rw\n"];
            let name_and_huge = |device| mounted(Ok(table.concat()), device).unwrap().map(|on| (on.name, on.huge));
            assert_eq!(name_and_huge((0, 50)), Some(("tmpfs".into(), Some("advise".into()))), "{point:?}");
            assert_eq!(name_and_huge((0, 23)), Some(("ext4".into(), None)), "{point:?}");
        }
    }

    #[test]
    fn a_table_that_cannot_be_read_or_understood_is_an_error() {
        for errno in [libc::EACCES, libc::EMFILE, libc::EIO] {
            let error = mounted(Err(io::Error::from_raw_os_error(errno)), (0, 23)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno));
        }
        let error = mounted(Ok(b"24 28 0:23 / /tmp rw\n".to_vec()), (0, 23)).unwrap_err().to_string();
        assert!(error.contains("0:23 / /tmp rw"), "{error}");
    }
}
