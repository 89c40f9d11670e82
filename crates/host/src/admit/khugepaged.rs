//! Holding khugepaged still: the settings under which it sleeps.
//!
//! khugepaged scans when it starts, which is when a THP size is enabled; when its sleep is over; and when one of its sleep
//! times is written (`scan_sleep_millisecs_store`, mm/khugepaged.c), after which the new time applies. It cannot be set to
//! scan nothing: the kernel refuses 0 for `pages_to_scan`.

use policy::Unsupported;

use super::{Privilege, Setting, Terms};
use crate::{Host, KHUGEPAGED};

/// Longer than any comparison: a week, in milliseconds.
const LONG_MS: u64 = 7 * 24 * 3600 * 1000;

/// The settings that keep khugepaged asleep. Each stage must be leased while the previous one is in force and khugepaged sleeps;
/// the last stage stays. Empty where the kernel has none.
///
/// There are two stages, because a time that is written while khugepaged begins to sleep for the old time has no effect on that
/// sleep, and khugepaged then wakes up once more. Its other wait, for memory after a failed allocation, does not last. Needs root,
/// a writable sysfs, and visible kernel threads.
pub fn khugepaged_settings(host: &Host, terms: &Terms) -> Result<Vec<Vec<Setting>>, Unsupported> {
    let [scans, allocations] =
        ["scan_sleep_millisecs", "alloc_sleep_millisecs"].map(|name| format!("{KHUGEPAGED}/{name}"));
    if !host.has(&scans)? {
        return Ok(Vec::new());
    }
    let stage = |sleep_ms| vec![Setting::new(&allocations, 0), Setting::new(&scans, sleep_ms)];
    let stages = vec![stage(LONG_MS - 1), stage(LONG_MS)];
    if host.is_read_only(&scans)? {
        return Err(Unsupported {
            reason: format!("{scans} must change, and is on a file system mounted read-only"),
            remedy: "run pagelab outside the container, as root".into(),
        });
    }
    if terms.privilege != Privilege::Root {
        return Err(Unsupported {
            reason: format!("needs root, to change {scans}"),
            remedy: "run pagelab as root, which puts it back afterwards".into(),
        });
    }
    if host.is_live() && host.value("/proc/2/comm")?.as_deref() != Some("kthreadd") {
        return Err(Unsupported {
            reason: "kernel threads cannot be seen here, so it is not known when khugepaged sleeps".into(),
            remedy: "run pagelab in the initial PID namespace (docker run --pid=host), or leave the option out".into(),
        });
    }
    Ok(stages)
}
