//! [`perf_refusal`]: why the kernel refuses perf_event_open, whatever the event, and the remedy.

use std::io;

/// The system's restrictions on perf.
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
        let status = crate::content("/proc/self/status").ok();
        let is_filter = |line: &str| line.split_whitespace().eq(["Seccomp:", "2"]);
        Permission {
            paranoid: paranoid.and_then(|text| text.trim().parse().ok()),
            filtered: status.is_some_and(|status| status.lines().any(is_filter)),
        }
    }
}

/// The reason and the remedy of an error of perf_event_open that does not depend on the event; `None` for other errors.
pub fn perf_refusal(error: &io::Error) -> Option<(String, &'static str)> {
    explain(error, &Permission::of_this_process())
}

fn explain(error: &io::Error, permission: &Permission) -> Option<(String, &'static str)> {
    Some(match error.raw_os_error()? {
        libc::EACCES | libc::EPERM => match permission {
            Permission { paranoid: Some(paranoid @ 3..), .. } => (
                format!("perf_event_open is not permitted (kernel.perf_event_paranoid is {paranoid})"),
                "as root: sysctl kernel.perf_event_paranoid=2",
            ),
            Permission { filtered: true, .. } => (
                "a seccomp filter (a container's) does not let perf_event_open through".to_string(),
                "allow it (docker: --cap-add PERFMON, or a seccomp profile with perf_event_open)",
            ),
            _ => (
                format!("perf_event_open is not permitted ({error})"),
                "run as root or with CAP_PERFMON; a security module may forbid it too",
            ),
        },
        libc::ENOSYS => (
            "the kernel has no perf_event_open".to_string(),
            "a kernel with CONFIG_PERF_EVENTS; in a sandbox such as gVisor, outside of it",
        ),
        libc::EMFILE | libc::ENFILE => ("too many files are open".to_string(), "raise `ulimit -n`"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(errno: i32, paranoid: i32, filtered: bool) -> String {
        let permission = Permission { paranoid: Some(paranoid), filtered };
        let explained = explain(&io::Error::from_raw_os_error(errno), &permission);
        explained.map_or(String::new(), |(reason, remedy)| format!("{reason}; {remedy}"))
    }

    #[test]
    fn each_refusal_has_its_own_remedy() {
        assert!(explained(libc::EACCES, 3, false).contains("sysctl kernel.perf_event_paranoid=2"));
        assert!(explained(libc::EPERM, 2, true).contains("seccomp"));
        assert!(explained(libc::EPERM, 2, false).contains("CAP_PERFMON"));
        assert!(explained(libc::ENOSYS, 2, false).contains("CONFIG_PERF_EVENTS"));
        assert!(explained(libc::EMFILE, 2, false).contains("ulimit -n"));
        assert_eq!(explained(libc::EINVAL, 2, false), "", "the event decides");
    }
}
