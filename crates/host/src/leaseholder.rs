//! [`leaseholder`] and [`changed_settings`]: which process has the host's settings leased, and which of them it has changed. The
//! crate `lease` takes and releases leases.

use std::os::unix::fs::MetadataExt;

use policy::inspect::ChangedSetting;
use serde::Deserialize;

use crate::read::chosen_word;

/// The directory of the lock file of leases; it does not survive a reboot.
pub const LEASE_DIRECTORY: &str = "/run/pagelab";

/// The journal of the lease, which only root can read (docs/reference/formats/journal.md).
const JOURNAL: &str = "/var/lib/pagelab/lease.jsonl";

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

/// The leased settings that now differ from the host's own. Empty where no lease has changed one, or where this process cannot read
/// the journal.
pub fn changed_settings() -> Vec<ChangedSetting> {
    // What it says only explains a message.
    let Ok(journal) = std::fs::read_to_string(JOURNAL) else { return Vec::new() };
    changed_in(&journal, |path| std::fs::read_to_string(path).ok().map(|text| chosen_word(&text).to_owned()))
}

/// A line of the journal after its header.
#[derive(Deserialize)]
struct Record {
    path: String,
    before: String,
}

fn changed_in(journal: &str, now: impl Fn(&str) -> Option<String>) -> Vec<ChangedSetting> {
    let mut records: Vec<Record> = Vec::new();
    for record in journal.lines().filter_map(|line| serde_json::from_str::<Record>(line).ok()) {
        // Each value that is written has a record; all those of a setting have its own value.
        if records.iter().all(|known| known.path != record.path) {
            records.push(record);
        }
    }
    let changed = records.into_iter().filter_map(|Record { path, before: own }| {
        let now = now(&path)?;
        (now != own).then_some(ChangedSetting { path, now, own })
    });
    changed.collect()
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
    fn only_settings_that_differ_now_are_changed() {
        let record = |path: &str, before: &str, written: &str| {
            format!(r#"{{"path":"{path}","kind":"value","before":"{before}","written":"{written}"}}"#)
        };
        let journal = [
            r#"{"schema":"pagelab.lease-journal/1","boot_id":"x","holder":{"pid":1}}"#.to_owned(),
            record("/a", "madvise", "always"),
            record("/b", "never", "always"),
            record("/a", "madvise", "never"),
            record("/gone", "1", "2"),
            r#"{"path":"/half"#.to_owned(),
        ];
        let now = |path: &str| ["/a", "/b"].contains(&path).then(|| "never".to_owned());
        let changed = changed_in(&journal.join("\n"), now);
        let text = ChangedSetting::describe(&changed);
        assert_eq!(text.as_deref(), Some("/a is never (own value: madvise)"), "{changed:?}");
        let many: Vec<ChangedSetting> = (0..5).flat_map(|_| changed.clone()).collect();
        assert!(ChangedSetting::describe(&many).unwrap().ends_with(", 2 other settings differ"));
        assert_eq!(ChangedSetting::describe(&[]), None);
    }

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
