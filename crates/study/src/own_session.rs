//! The effect on the scheduler of giving every run its own session (`--own-session`): sched(7), "The autogroup feature".

use serde::{Deserialize, Serialize};

/// Effect on the scheduler of running the measured tree of every arm in its own session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "effect")]
pub enum OwnSession {
    /// The autogroup of the session has the top weight (nice -20).
    TopWeight,
    /// The autogroup has the default weight (nice 0), because the kernel refuses a higher one.
    UsualWeight,
    /// No effect: the kernel has no autogroups.
    NoAutogroups,
    /// No effect: `kernel.sched_autogroup_enabled` is 0.
    AutogroupsOff,
    /// No effect: the processes are in a control group of the cpu controller, where the scheduler ignores autogroups.
    CpuGroup {
        /// The directory or the name of the group.
        group: String,
    },
    /// Unknown effect: a cgroup namespace hides whether the processes are in a control group of the cpu controller.
    HiddenGroup,
}

impl OwnSession {
    /// The session and its effect, as a clause.
    pub fn describe(&self) -> String {
        let session = "every run has a session of its own";
        match self {
            OwnSession::TopWeight => format!("{session}, whose autogroup has the top weight (nice -20)"),
            OwnSession::UsualWeight => format!(
                "{session}, whose autogroup has the usual weight (nice 0): raising it needs root (CAP_SYS_NICE)"
            ),
            OwnSession::NoAutogroups => {
                format!(
                    "{session}, without effect on the scheduler: the kernel has no autogroups (CONFIG_SCHED_AUTOGROUP)"
                )
            }
            OwnSession::AutogroupsOff => format!(
                "{session}, without effect on the scheduler: autogroups are disabled (kernel.sched_autogroup_enabled = 0)"
            ),
            OwnSession::CpuGroup { group } => format!(
                "{session}, without effect on the scheduler: it ignores autogroups in a control group of the cpu \
                 controller, and pagelab is in {group}"
            ),
            OwnSession::HiddenGroup => format!(
                "{session}, whose effect on the scheduler is unknown: a cgroup namespace hides whether pagelab is in a \
                 control group of the cpu controller, where the scheduler ignores autogroups"
            ),
        }
    }

    /// How to get the top weight, as an instruction; `None` if the session has it.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            OwnSession::TopWeight => None,
            OwnSession::UsualWeight => Some("run pagelab as root (sudo), in a container with CAP_SYS_NICE"),
            OwnSession::NoAutogroups => Some("stop the other work, or decide by CPU time (--primary cpu)"),
            OwnSession::AutogroupsOff => {
                Some("as root: sysctl kernel.sched_autogroup_enabled=1, which affects all processes")
            }
            OwnSession::CpuGroup { .. } | OwnSession::HiddenGroup => Some(
                "raise the weight of that group against others (cpu.weight, cpu.shares), or, as root, move the shell to the \
                 root group first (write its PID to cgroup.procs there)",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_top_weight_needs_no_remedy() {
        let all = [
            OwnSession::TopWeight,
            OwnSession::UsualWeight,
            OwnSession::NoAutogroups,
            OwnSession::AutogroupsOff,
            OwnSession::CpuGroup { group: "/sys/fs/cgroup/a".into() },
            OwnSession::HiddenGroup,
        ];
        let texts: Vec<String> = all.iter().map(OwnSession::describe).collect();
        assert!(texts.iter().all(|text| text.starts_with("every run has a session of its own")), "{texts:?}");
        let without: Vec<&OwnSession> = all.iter().filter(|one| one.remedy().is_none()).collect();
        assert_eq!(without, [&OwnSession::TopWeight]);
    }

    #[test]
    fn a_session_survives_json() {
        let group = OwnSession::CpuGroup { group: "/sys/fs/cgroup/a".into() };
        let text = serde_json::to_string(&group).unwrap();
        assert_eq!(text, r#"{"effect":"cpu_group","group":"/sys/fs/cgroup/a"}"#);
        assert_eq!(serde_json::from_str::<OwnSession>(&text).unwrap(), group);
    }
}
