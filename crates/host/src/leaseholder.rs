//! [`leaseholder`]: which process has the host's settings leased. The crate `lease` takes and releases leases.

use std::os::unix::fs::MetadataExt;

/// The directory of the lock file of leases; it does not survive a reboot.
pub const LEASE_DIRECTORY: &str = "/run/pagelab";

/// The most characters of a command line that are shown.
const COMMAND: usize = 200;

/// The process that currently has the host's settings leased, as any user can see it: `process 7 (COMMAND)`. The lock file
/// itself is in a directory that only root can enter, but the kernel lists locks with their devices and processes
/// (/proc/locks, proc_locks(5)). `None` where no process has the lease, or where this is not visible, as in a container; the
/// result only explains a refusal.
pub fn leaseholder() -> Option<String> {
    let directory = std::fs::metadata(LEASE_DIRECTORY).ok()?;
    let device = (libc::major(directory.dev()), libc::minor(directory.dev()));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let is_leaseholder = |pid: &i32| {
        let is_pagelab =
            std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_ascii_end() == b"pagelab");
        let owner = std::fs::metadata(format!("/proc/{pid}")).map(|process| process.uid());
        is_pagelab && owner.is_ok_and(|owner| owner == directory.uid())
    };
    let pid = locks.lines().filter_map(|line| locker_on(line, device)).find(is_leaseholder)?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<String> =
        command.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let command: String = words.join(" ").trim_end().chars().take(COMMAND).collect();
    Some(format!("process {pid} (`{command}`)"))
}

/// The PID in a line of /proc/locks, if the line is an exclusive flock on a file of the device.
fn locker_on(line: &str, device: (u32, u32)) -> Option<i32> {
    let [_, "FLOCK", _, "WRITE", pid, place, ..] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
    let [major, minor, _] = place.split(':').collect::<Vec<_>>()[..] else { return None };
    let hex = |digits| u32::from_str_radix(digits, 16).ok();
    if (hex(major)?, hex(minor)?) == device { pid.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_a_lock_by_its_kind_and_device() {
        let line = "3: FLOCK  ADVISORY  WRITE 4711 00:1a:1234 0 EOF";
        assert_eq!(locker_on(line, (0, 0x1a)), Some(4711));
        assert_eq!(locker_on(line, (0, 0x1b)), None);
        for other in [
            "",
            "3: POSIX  ADVISORY  WRITE 4711 00:1a:1234 0 EOF",
            "3: -> FLOCK  ADVISORY  WRITE 4711 00:1a:1234 0 EOF",
        ] {
            assert_eq!(locker_on(other, (0, 0x1a)), None, "{other}");
        }
        assert_eq!(locker_on(&line.replace("WRITE", "READ"), (0, 0x1a)), None);
    }
}
