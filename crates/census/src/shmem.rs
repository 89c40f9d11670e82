//! Telling shared memory (tmpfs) from files on a disk, by the device number that a mapping shows.

use std::collections::HashMap;
use std::fs;
use std::os::fd::AsFd;
use std::sync::Mutex;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{fstat, major, minor};

/// Knows the file systems that were seen. A device number that is given to another file system while
/// this lives is not noticed.
pub struct ShmemDevices {
    known: Mutex<HashMap<(u32, u32), bool>>,
}

impl ShmemDevices {
    /// Knows the kernel's own tmpfs, which holds memfds, shared anonymous and System V shared memory and
    /// is mounted nowhere (`shm_mnt`, mm/shmem.c): a memfd of its own tells its device number.
    pub fn new() -> ShmemDevices {
        let own = memfd_create(c"pagelab", MFdFlags::MFD_CLOEXEC).ok();
        let device = own.and_then(|file| fstat(file.as_fd()).ok()).map(|status| status.st_dev);
        let known = device.map(|device| ((major(device) as u32, minor(device) as u32), true));
        ShmemDevices { known: Mutex::new(known.into_iter().collect()) }
    }

    /// Whether files of this device are shared memory. A disk has a major number of its own; the rest
    /// stands in the process's mount table, and what does not stand there is taken for files.
    pub fn contain(&self, pid: u32, device: (u32, u32)) -> bool {
        if device.0 != 0 {
            return false;
        }
        let mut known = self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *known.entry(device).or_insert_with(|| {
            let table = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
            mounted_as_tmpfs(&table, device)
        })
    }
}

/// Whether a mount table (`/proc/PID/mountinfo`, proc(5)) names a tmpfs with this device number.
fn mounted_as_tmpfs(table: &str, device: (u32, u32)) -> bool {
    let wanted = format!("{}:{}", device.0, device.1);
    table.lines().any(|line| {
        let kind = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').next());
        line.split(' ').nth(2) == Some(&wanted) && matches!(kind, Some("tmpfs" | "devtmpfs"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_table_tells_tmpfs_from_the_rest() {
        let table = "22 28 0:21 / /dev/shm rw,nosuid - tmpfs tmpfs rw\n\
                     23 28 0:22 / /a - b rw shared:1 - overlay tmpfs rw\n\
                     24 28 0:23 / /proc rw - proc proc rw\n";
        assert!(mounted_as_tmpfs(table, (0, 21)));
        for device in [(0, 22), (0, 23), (0, 2), (0, 24)] {
            assert!(!mounted_as_tmpfs(table, device), "{device:?}");
        }
    }
}
