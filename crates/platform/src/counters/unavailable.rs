//! [`Unavailable`]: why the hardware counters cannot be used, and the remedy.

use std::io;
use std::path::Path;

use nix::errno::Errno;

use super::encoding::Event;

/// Hardware counters are not available here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no hardware counters: {reason}; {remedy}")]
pub struct Unavailable {
    /// What is missing or forbidden.
    pub reason: String,
    /// How to get it.
    pub remedy: String,
}

/// Whether an error of perf_event_open concerns only this event (perf_event_open(2), ERRORS).
pub fn concerns_one_event(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP | Errno::EINVAL))
}

impl Unavailable {
    /// No core PMU is shown in sysfs.
    pub(super) fn no_pmu(cpuinfo: &str) -> Unavailable {
        let flag = |line: &str| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor");
        let (place, remedy) = if cpuinfo.lines().any(flag) {
            (
                "a virtual machine to which its hypervisor gives no PMU",
                "give the guest one (QEMU: -cpu host,pmu=on; libvirt: <pmu state='on'/>; clouds: a metal \
                 instance) or measure on the machine itself",
            )
        } else {
            (
                "a machine whose kernel found no core PMU that it can use for page walks",
                "see `dmesg | grep -i 'pmu\\|performance events'`; the firmware may disable it",
            )
        };
        Unavailable { reason: format!("{place} (none in /sys/bus/event_source/devices)"), remedy: remedy.into() }
    }

    /// The files that list the PMUs cannot be read.
    pub(super) fn unreadable(file: &Path, error: &io::Error) -> Unavailable {
        let reason = format!("{}: {error}", file.display());
        Unavailable { reason, remedy: "make it readable; if it is, report a bug with its content".into() }
    }

    /// perf_event_open refused an event.
    pub(super) fn opening(event: &Event, error: &io::Error) -> Unavailable {
        if let Some((reason, remedy)) = host::perf_refusal(error) {
            return Unavailable { reason, remedy: remedy.into() };
        }
        let (reason, remedy) = match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP | Errno::EINVAL) => (
                format!("the PMU refuses all events, the last one {:?} ({:#x}: {error})", event.quantity, event.config),
                "a virtual PMU may offer a part of the events only: measure on the machine itself",
            ),
            Some(Errno::ESRCH) => {
                ("the process to count ended before it could be counted".to_string(), "see why it ended")
            }
            _ => (format!("perf_event_open failed for {:?}: {error}", event.quantity), "see `dmesg`"),
        };
        Unavailable { reason, remedy: remedy.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::encoding::Quantity;
    use super::*;

    #[test]
    fn each_refusal_has_its_own_remedy() {
        let event = Event { quantity: Quantity::LoadWalks, pmu_type: 4, config: 0x0e08 };
        let explained = |errno: Errno| Unavailable::opening(&event, &io::Error::from(errno)).to_string();
        assert!(explained(Errno::ENOSYS).contains("CONFIG_PERF_EVENTS"));
        assert!(explained(Errno::ENOENT).contains("LoadWalks (0xe08"));
        assert!(explained(Errno::ESRCH).contains("ended"));
        assert!(explained(Errno::EIO).contains("dmesg"));
    }

    #[test]
    fn distinguishes_a_missing_event_from_a_ban() {
        assert!(concerns_one_event(&io::Error::from(Errno::ENOENT)));
        assert!(!concerns_one_event(&io::Error::from(Errno::EACCES)));
        assert!(!concerns_one_event(&io::Error::other("no number")));
    }
}
