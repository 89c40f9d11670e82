//! [`Autogroups`]: whether the scheduler weighs sessions by their autogroups (sched(7), "The autogroup feature";
//! kernel/sched/autogroup.c).

use crate::absent;
use crate::control_groups::{ControlGroups, group};
use crate::read::HostError;
use crate::root::Root;

/// The switch of autogroups; absent without CONFIG_SCHED_AUTOGROUP.
const SWITCH: &str = "/proc/sys/kernel/sched_autogroup_enabled";
/// The controller in whose groups the scheduler ignores autogroups (`task_wants_autogroup`).
const CONTROLLER: &str = "cpu";

/// Whether the scheduler weighs sessions by their autogroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Autogroups {
    /// The scheduler weighs sessions by their autogroups.
    InForce,
    /// The kernel has no autogroups.
    Absent,
    /// `kernel.sched_autogroup_enabled` is 0.
    Off,
    /// This process is in a control group of the cpu controller, which takes precedence.
    CpuGroup {
        /// The directory of the group, or its name where it is not mounted.
        group: String,
    },
    /// Not every control group of this process is visible.
    HiddenGroup,
}

pub fn read(root: &Root) -> Result<Autogroups, HostError> {
    match absent::text(root, SWITCH)?.as_deref().map(str::trim) {
        None => Ok(Autogroups::Absent),
        Some("0") => Ok(Autogroups::Off),
        Some(_) => of_groups(root),
    }
}

fn of_groups(root: &Root) -> Result<Autogroups, HostError> {
    let memberships = absent::text(root, "/proc/self/cgroup")?.unwrap_or_default();
    let Some((name, is_version_1)) = group(&memberships, CONTROLLER) else { return Ok(Autogroups::InForce) };
    let groups = ControlGroups::of(root, &memberships, CONTROLLER)?;
    let found = if is_version_1 {
        (name != "/").then(|| groups.directories.first().cloned().unwrap_or_else(|| name.to_owned()))
    } else {
        innermost_with_controller(root, &groups.directories)?
    };
    Ok(match found {
        Some(group) => Autogroups::CpuGroup { group },
        None if groups.may_be_hidden => Autogroups::HiddenGroup,
        None => Autogroups::InForce,
    })
}

/// The innermost group of version 2 for which the controller is enabled. The root group has no such file.
fn innermost_with_controller(root: &Root, directories: &[String]) -> Result<Option<String>, HostError> {
    for directory in directories {
        if absent::exists(root, &format!("{directory}/{CONTROLLER}.weight"))? {
            return Ok(Some(directory.clone()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: (&str, &str) =
        ("proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
    const ON: (&str, &str) = ("proc/sys/kernel/sched_autogroup_enabled", "1\n");

    fn found(files: &[(&str, &str)]) -> Autogroups {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        read(&Root::open(directory.path()).unwrap()).unwrap()
    }

    #[test]
    fn a_kernel_without_autogroups_differs_from_one_that_has_them_disabled() {
        assert_eq!(found(&[]), Autogroups::Absent);
        assert_eq!(found(&[("proc/sys/kernel/sched_autogroup_enabled", "0\n")]), Autogroups::Off);
        assert_eq!(found(&[ON]), Autogroups::InForce, "a kernel without control groups");
    }

    #[test]
    fn a_group_of_version_2_counts_where_it_or_an_ancestor_has_the_controller() {
        let own = ("proc/self/cgroup", "0::/user.slice/shell\n");
        let weight = ("sys/fs/cgroup/user.slice/cpu.weight", "100\n");
        let shell = ("sys/fs/cgroup/user.slice/shell/cgroup.procs", "");
        let group = Autogroups::CpuGroup { group: "/sys/fs/cgroup/user.slice".into() };
        assert_eq!(found(&[ON, UNIFIED, own, shell, weight]), group);
        assert_eq!(found(&[ON, UNIFIED, own, shell]), Autogroups::InForce, "the controller is not enabled");
        let root_group = ("sys/fs/cgroup/cgroup.procs", "");
        assert_eq!(found(&[ON, UNIFIED, root_group, ("proc/self/cgroup", "0::/\n")]), Autogroups::InForce);
        let container = [ON, UNIFIED, ("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/cpu.weight", "100\n")];
        assert_eq!(found(&container), Autogroups::CpuGroup { group: "/sys/fs/cgroup".into() });
        assert_eq!(found(&[ON, own]), Autogroups::HiddenGroup, "nothing is mounted");
    }

    #[test]
    fn every_group_of_version_1_but_the_root_counts() {
        let mounts = ("proc/self/mountinfo", "33 23 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
        let job = ("sys/fs/cgroup/cpu/job/cpu.shares", "1024\n");
        let within = |memberships| found(&[ON, mounts, job, ("proc/self/cgroup", memberships)]);
        assert_eq!(within("2:cpu,cpuacct:/\n0::/job\n"), Autogroups::InForce);
        assert_eq!(
            within("2:cpu,cpuacct:/job\n0::/\n"),
            Autogroups::CpuGroup { group: "/sys/fs/cgroup/cpu/job".into() }
        );
        let unmounted = found(&[ON, ("proc/self/cgroup", "2:cpu:/job\n")]);
        assert_eq!(unmounted, Autogroups::CpuGroup { group: "/job".into() });
    }
}
