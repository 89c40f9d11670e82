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

/// The system's restrictions on counting.
struct Permission {
    /// /proc/sys/kernel/perf_event_paranoid.
    paranoid: Option<i32>,
    /// Whether a seccomp filter is in force for this process (`Seccomp: 2` in /proc/self/status).
    filtered: bool,
}

impl Permission {
    fn of_this_process() -> Permission {
        // A file that cannot be read does not explain the refusal, which is reported as the kernel gave it.
        let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
        let status = host::content("/proc/self/status").ok();
        let is_filter = |line: &str| line.split_whitespace().eq(["Seccomp:", "2"]);
        Permission {
            paranoid: paranoid.and_then(|text| text.trim().parse().ok()),
            filtered: status.is_some_and(|status| status.lines().any(is_filter)),
        }
    }
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
        explain(event, error, &Permission::of_this_process())
    }
}

fn explain(event: &Event, error: &io::Error, permission: &Permission) -> Unavailable {
    let (reason, remedy) = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EACCES | Errno::EPERM) => match permission {
            Permission { paranoid: Some(paranoid @ 3..), .. } => (
                format!("perf_event_open is not permitted (kernel.perf_event_paranoid is {paranoid})"),
                "as root: sysctl kernel.perf_event_paranoid=2".to_string(),
            ),
            Permission { filtered: true, .. } => (
                "a seccomp filter (a container's) does not let perf_event_open through".to_string(),
                "allow it (docker: --cap-add PERFMON, or a seccomp profile with perf_event_open)".to_string(),
            ),
            _ => (
                format!("perf_event_open is not permitted ({error})"),
                "run as root or with CAP_PERFMON; a security module may forbid it too".to_string(),
            ),
        },
        Some(Errno::ENOSYS) => (
            "the kernel has no perf_event_open".to_string(),
            "a kernel with CONFIG_PERF_EVENTS; in a sandbox such as gVisor, outside of it".to_string(),
        ),
        Some(Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP | Errno::EINVAL) => (
            format!("the PMU refuses all events, the last one {:?} ({:#x}: {error})", event.quantity, event.config),
            "a virtual PMU may offer a part of the events only: measure on the machine itself".to_string(),
        ),
        Some(Errno::ESRCH) => {
            ("the process to count ended before it could be counted".to_string(), "see why it ended".to_string())
        }
        Some(Errno::EMFILE | Errno::ENFILE) => ("too many files are open".to_string(), "raise `ulimit -n`".to_string()),
        _ => (format!("perf_event_open failed for {:?}: {error}", event.quantity), "see `dmesg`".to_string()),
    };
    Unavailable { reason, remedy }
}

#[cfg(test)]
mod tests {
    use super::super::encoding::Quantity;
    use super::*;

    fn explained(errno: Errno, paranoid: i32, filtered: bool) -> String {
        let event = Event { quantity: Quantity::LoadWalks, pmu_type: 4, config: 0x0e08 };
        let permission = Permission { paranoid: Some(paranoid), filtered };
        explain(&event, &io::Error::from(errno), &permission).to_string()
    }

    #[test]
    fn each_refusal_has_its_own_remedy() {
        assert!(explained(Errno::EACCES, 3, false).contains("sysctl kernel.perf_event_paranoid=2"));
        assert!(explained(Errno::EPERM, 2, true).contains("seccomp"));
        assert!(explained(Errno::EPERM, 2, false).contains("CAP_PERFMON"));
        assert!(explained(Errno::ENOSYS, 2, false).contains("CONFIG_PERF_EVENTS"));
        assert!(explained(Errno::ENOENT, 2, false).contains("LoadWalks (0xe08"));
        assert!(explained(Errno::ESRCH, 2, false).contains("ended"));
        assert!(explained(Errno::EMFILE, 2, false).contains("ulimit -n"));
        assert!(explained(Errno::EIO, 2, false).contains("dmesg"));
    }

    #[test]
    fn distinguishes_a_missing_event_from_a_ban() {
        assert!(concerns_one_event(&io::Error::from(Errno::ENOENT)));
        assert!(!concerns_one_event(&io::Error::from(Errno::EACCES)));
        assert!(!concerns_one_event(&io::Error::other("no number")));
    }
}
