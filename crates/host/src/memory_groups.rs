//! [`MemoryGroups`]: where this process can make a control group that limits memory, for versions 1 and 2 of control groups.

use std::path::PathBuf;

use crate::absent;
use crate::control_groups::ControlGroups;
use crate::read::HostError;
use crate::root::Root;

/// A group whose new children have limits of their own. The limits of this group and of those above hold for them too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryGroups {
    /// The directory of the group.
    pub directory: PathBuf,
    /// Whether it is of version 1.
    pub is_version_1: bool,
}

impl MemoryGroups {
    /// Of this process's group and its ancestors, the innermost one whose children the memory controller limits. In version 1
    /// that is the process's own group. In version 2 it is a group with `memory` in cgroup.subtree_control; except for the
    /// root group, such a group contains no process itself. `None` where there is no such group, or none is visible.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn of_this_process(root: &Root) -> Result<Option<MemoryGroups>, HostError> {
        let memberships = absent::text(root, "/proc/self/cgroup")?.unwrap_or_default();
        let ControlGroups { directories, is_version_1, .. } = ControlGroups::of(root, &memberships, "memory")?;
        for directory in directories {
            if is_version_1 || passes_memory_on(root, &directory)? {
                return Ok(Some(MemoryGroups { directory: directory.into(), is_version_1 }));
            }
        }
        Ok(None)
    }
}

fn passes_memory_on(root: &Root, directory: &str) -> Result<bool, HostError> {
    let controllers = absent::text(root, &format!("{directory}/cgroup.subtree_control"))?.unwrap_or_default();
    Ok(controllers.split_whitespace().any(|name| name == "memory"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The groups of a host whose files are these.
    fn found(memberships: &str, mounts: &str, files: &[(&str, &str)]) -> Option<MemoryGroups> {
        let directory = tempfile::tempdir().unwrap();
        let all = [("/proc/self/cgroup", memberships), ("/proc/self/mountinfo", mounts)];
        for (path, text) in all.iter().chain(files) {
            let file = directory.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        MemoryGroups::of_this_process(&Root::open(directory.path()).unwrap()).unwrap()
    }

    #[test]
    fn version_1_has_children_below_the_process_itself() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let files = [("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1")];
        let groups = found("4:memory:/a\n0::/\n", mounts, &files).unwrap();
        assert_eq!(groups, MemoryGroups { directory: "/sys/fs/cgroup/memory/a".into(), is_version_1: true });
    }

    #[test]
    fn version_2_has_children_below_the_nearest_group_that_passes_memory_on() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        let file = |group: &str| format!("/sys/fs/cgroup{group}/cgroup.subtree_control");
        let (slice, unit) = (file("/user.slice"), file("/user.slice/a.service"));
        let groups = found("0::/user.slice/a.service\n", mounts, &[(&slice, "cpu memory\n"), (&unit, "\n")]).unwrap();
        assert_eq!(groups, MemoryGroups { directory: "/sys/fs/cgroup/user.slice".into(), is_version_1: false });
        assert_eq!(found("0::/user.slice/a.service\n", mounts, &[(&slice, "cpu\n"), (&unit, "\n")]), None);
        assert_eq!(found("0::/\n", "", &[]), None);
    }
}
