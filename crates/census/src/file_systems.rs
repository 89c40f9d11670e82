//! The file systems behind mappings, by the device number that a mapping shows.

use std::collections::HashMap;
use std::fs;
use std::os::fd::AsFd;
use std::sync::Mutex;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{fstat, major, minor};
use policy::inspect::FileSystem;

/// Knows the file systems that were seen. A device number that is given to another file system while
/// this lives is not noticed.
pub struct FileSystems {
    /// The kernel's own tmpfs, which holds memfds, shared anonymous and System V shared memory and is mounted nowhere (`shm_mnt`,
    /// mm/shmem.c).
    own: Option<(u32, u32)>,
    known: Mutex<HashMap<(u32, u32), Option<FileSystem>>>,
}

impl FileSystems {
    /// Knows the kernel's own tmpfs: a memfd tells its device number.
    pub fn new() -> FileSystems {
        let own = memfd_create(c"pagelab", MFdFlags::MFD_CLOEXEC).ok();
        let device = own.and_then(|file| fstat(file.as_fd()).ok()).map(|status| status.st_dev);
        let own = device.map(|device| (major(device) as u32, minor(device) as u32));
        FileSystems { own, known: Mutex::default() }
    }

    /// Whether files of this device are shared memory. A disk has a major number of its own; the rest
    /// stands in the process's mount table, and what does not stand there is taken for files.
    pub fn is_shmem(&self, pid: u32, device: (u32, u32)) -> bool {
        device.0 == 0 && (self.own == Some(device) || self.of(pid, device).is_some_and(|on| is_tmpfs(&on.name)))
    }

    /// The file system of a device, as the mount table of a process has it.
    pub fn of(&self, pid: u32, device: (u32, u32)) -> Option<FileSystem> {
        if self.own == Some(device) || device == (0, 0) {
            return None;
        }
        let mut known = self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let read = || {
            let table = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
            mounted(&table, device)
        };
        known.entry(device).or_insert_with(read).clone()
    }
}

fn is_tmpfs(name: &str) -> bool {
    matches!(name, "tmpfs" | "devtmpfs")
}

/// The file system with this device number, in a mount table (`/proc/PID/mountinfo`, proc(5)).
fn mounted(table: &str, device: (u32, u32)) -> Option<FileSystem> {
    let wanted = format!("{}:{}", device.0, device.1);
    let line = table.lines().find(|line| line.split(' ').nth(2) == Some(&wanted))?;
    let (_, rest) = line.split_once(" - ")?;
    let mut words = rest.split(' ');
    let name = words.next()?.to_string();
    let options = words.next_back().unwrap_or_default();
    let huge = options.split(',').find_map(|option| option.strip_prefix("huge=")).map(String::from);
    Some(FileSystem { name, huge })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_table_tells_types_and_what_a_tmpfs_gives() {
        let table = "22 28 0:21 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=1k,huge=within_size\n\
                     23 28 0:22 / /a - b rw shared:1 - overlay tmpfs rw\n\
                     24 28 0:23 / /tmp rw - tmpfs tmpfs rw\n\
                     25 28 254:0 / / rw - ext4 /dev/root rw\n";
        let told = |device| mounted(table, device).map(|on| (on.name, on.huge));
        assert_eq!(told((0, 21)), Some(("tmpfs".into(), Some("within_size".into()))));
        assert_eq!(told((0, 23)), Some(("tmpfs".into(), None)));
        assert_eq!(told((254, 0)), Some(("ext4".into(), None)));
        assert_eq!(told((0, 2)), None);
        assert_ne!(told((0, 22)).map(|(name, _)| is_tmpfs(&name)), Some(true));
    }
}
