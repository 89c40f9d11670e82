//! [`HugetlbGroups`]: limits that control groups of version 1 or 2 put on hugetlb pages.
//!
//! Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/hugetlb.rst; mm/hugetlb_cgroup.c makes the file names. A limit
//! applies to a group and all groups below it, so the limits of all ancestors count.

use policy::hugetlb::{HugetlbLimit, HugetlbLimits, Limited};
use policy::inspect::HugetlbCharge;
use policy::size::PageSize;

use crate::absent;
use crate::control_groups::ControlGroups;
use crate::read::HostError;
use crate::root::Root;

/// The control groups that account for the hugetlb pages of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HugetlbGroups(ControlGroups);

impl HugetlbGroups {
    /// The groups in the content of a /proc/PID/cgroup. No groups where the kernel has no hugetlb controller.
    pub fn of(root: &Root, memberships: &str) -> Result<HugetlbGroups, HostError> {
        let controllers = absent::text(root, "/proc/cgroups")?.unwrap_or_default();
        let has_controller = controllers.lines().any(|line| line.starts_with("hugetlb\t") && line.ends_with("\t1"));
        let groups = if has_controller { ControlGroups::of(root, memberships, "hugetlb")? } else { Default::default() };
        Ok(HugetlbGroups(groups))
    }

    /// The current limits of the groups for pages of `size`.
    pub fn limits(&self, root: &Root, size: PageSize) -> Result<HugetlbLimits, HostError> {
        let mut limits = Vec::new();
        for directory in &self.0.directories {
            for limited in [Limited::Use, Limited::Reservation] {
                limits.extend(self.limit(root, directory, size, limited)?);
            }
        }
        Ok(HugetlbLimits { limits, may_be_hidden: self.0.may_be_hidden })
    }

    fn limit(
        &self,
        root: &Root,
        directory: &str,
        size: PageSize,
        limited: Limited,
    ) -> Result<Option<HugetlbLimit>, HostError> {
        let [limit, used, unlimited] = self.file_names();
        let reservation = if limited == Limited::Reservation { "rsvd." } else { "" };
        let path = |name: &str| format!("{directory}/hugetlb.{}.{reservation}{name}", file_size(size));
        let file = path(limit);
        let Some(limit_bytes) = number(root, &file)? else { return Ok(None) };
        let used_bytes = number(root, &path(used))?.unwrap_or(0);
        Ok(Some(HugetlbLimit { size, file, limited, limit_bytes, used_bytes, unlimited }))
    }

    /// The pages of `size` that the process's own group holds; `None` where the kernel does not account for them there.
    pub(crate) fn charge(&self, root: &Root, size: PageSize) -> Result<Option<HugetlbCharge>, HostError> {
        let Some(directory) = self.0.directories.first() else { return Ok(None) };
        let [limit, used, _] = self.file_names();
        let read = |name: &str| number(root, &format!("{directory}/hugetlb.{}.{name}", file_size(size)));
        let Some(used_bytes) = read(used)? else { return Ok(None) };
        Ok(Some(HugetlbCharge { size, used_bytes, limit_bytes: read(limit)? }))
    }

    /// The ends of the names of the files with the limit and the use, and the text that means no limit.
    fn file_names(&self) -> [&'static str; 3] {
        if self.0.is_version_1 { ["limit_in_bytes", "usage_in_bytes", "-1"] } else { ["max", "current", "max"] }
    }
}

/// The number in a file; `None` where it does not exist or limits nothing. In version 1 no limit reads as the largest number of
/// bytes in whole pages.
pub(crate) fn number(root: &Root, path: &str) -> Result<Option<u64>, HostError> {
    let Some(text) = absent::text(root, path)? else { return Ok(None) };
    match text.trim() {
        "max" => Ok(None),
        number => match number.parse::<u64>() {
            Ok(bytes) => Ok(Some(bytes).filter(|bytes| *bytes < 1 << 62)),
            Err(_) => Err(absent::unexpected(root, path, "a number of bytes, or max", number)),
        },
    }
}

/// A size as the names of files contain it (`hugetlb_cgroup_file_init`).
fn file_size(size: PageSize) -> String {
    match size.bytes() {
        bytes if bytes >= 1 << 30 => format!("{}GB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{}MB", bytes >> 20),
        bytes => format!("{}KB", bytes >> 10),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A captured tree with a hugetlb controller and these files.
    fn captured(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let controllers = ("proc/cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\nhugetlb\t0\t1\t1\n");
        for (path, text) in std::iter::once(&controllers).chain(files) {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::open(directory.path()).unwrap();
        (directory, root)
    }

    const UNIFIED: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn limits_of_the_own_group_and_of_ancestors_are_found_in_version_2() {
        let (_tree, root) = captured(&[
            ("proc/self/mountinfo", UNIFIED),
            ("sys/fs/cgroup/a/b/hugetlb.2MB.max", "max\n"),
            ("sys/fs/cgroup/a/b/hugetlb.2MB.rsvd.max", "4194304\n"),
            ("sys/fs/cgroup/a/b/hugetlb.2MB.rsvd.current", "2097152\n"),
            ("sys/fs/cgroup/a/hugetlb.2MB.max", "0\n"),
            ("sys/fs/cgroup/a/hugetlb.2MB.current", "0\n"),
            ("sys/fs/cgroup/a/hugetlb.1GB.max", "2147483648\n"),
        ]);
        let groups = HugetlbGroups::of(&root, "9:name=systemd:/\n0::/a/b\n").unwrap();
        let limits = groups.limits(&root, PageSize::M2).unwrap();
        let seen: Vec<_> = limits.limits.iter().map(|one| (one.file.as_str(), one.limited, one.room_bytes())).collect();
        assert_eq!(
            seen,
            [
                ("/sys/fs/cgroup/a/b/hugetlb.2MB.rsvd.max", Limited::Reservation, 2 << 20),
                ("/sys/fs/cgroup/a/hugetlb.2MB.max", Limited::Use, 0)
            ]
        );
        assert!(!limits.may_be_hidden && limits.may_refuse_faults());
        assert_eq!(groups.limits(&root, PageSize::G1).unwrap().room_pages(), 2);
        let other = HugetlbGroups::of(&root, "0::/\n").unwrap();
        assert_eq!(other.limits(&root, PageSize::M2).unwrap(), HugetlbLimits::default());
    }

    #[test]
    fn limits_are_found_in_version_1() {
        let mounts = "33 23 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      34 23 0:31 / /sys/fs/cgroup/hugetlb rw - cgroup cgroup rw,hugetlb\n";
        let (_tree, root) = captured(&[
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/hugetlb/hugetlb.64KB.limit_in_bytes", "9223372036854710272\n"),
            ("sys/fs/cgroup/hugetlb/job/hugetlb.64KB.limit_in_bytes", "131072\n"),
            ("sys/fs/cgroup/hugetlb/job/hugetlb.64KB.usage_in_bytes", "65536\n"),
            ("sys/fs/cgroup/hugetlb/job/hugetlb.64KB.rsvd.limit_in_bytes", "9223372036854710272\n"),
        ]);
        let groups = HugetlbGroups::of(&root, "7:hugetlb:/job\n4:memory:/other\n0::/\n").unwrap();
        let limits = groups.limits(&root, PageSize::K64).unwrap();
        let [limit] = &limits.limits[..] else { panic!("{limits:?}") };
        assert_eq!(
            (limit.file.as_str(), limit.unlimited),
            ("/sys/fs/cgroup/hugetlb/job/hugetlb.64KB.limit_in_bytes", "-1")
        );
        assert_eq!((limit.room_bytes(), limits.room_pages(), limits.may_be_hidden), (1 << 16, 1, false));
    }

    #[test]
    fn groups_that_are_not_visible_may_limit() {
        let (_tree, root) = captured(&[
            ("proc/self/mountinfo", "29 23 0:26 /pod/x /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/hugetlb.2MB.max", "6291456\n"),
        ]);
        let limits =
            |memberships: &str| HugetlbGroups::of(&root, memberships).unwrap().limits(&root, PageSize::M2).unwrap();
        assert_eq!((limits("0::/pod/x\n").room_pages(), limits("0::/pod/x\n").may_be_hidden), (3, true));
        for outside in ["0::/pod\n", "0::/pod/xy\n", "0::/pod/x/../../y\n", "0::/pod/x/gone\n"] {
            assert_eq!(limits(outside), HugetlbLimits { limits: vec![], may_be_hidden: true }, "{outside}");
        }
        let (_tree, unmounted) = captured(&[]);
        assert!(HugetlbGroups::of(&unmounted, "0::/job\n").unwrap().0.may_be_hidden);
        assert_eq!(HugetlbGroups::of(&unmounted, "0::/\n").unwrap(), HugetlbGroups::default());
        assert_eq!(HugetlbGroups::of(&unmounted, "").unwrap(), HugetlbGroups::default());
    }

    #[test]
    fn a_limit_that_cannot_be_read_is_not_none() {
        for (broken, text) in [("sys/fs/cgroup/a/hugetlb.2MB.max/x", ""), ("sys/fs/cgroup/a/hugetlb.2MB.max", "much\n")]
        {
            let (_tree, root) = captured(&[("proc/self/mountinfo", UNIFIED), (broken, text)]);
            let error = HugetlbGroups::of(&root, "0::/a\n").unwrap().limits(&root, PageSize::M2).unwrap_err();
            assert!(error.to_string().contains("hugetlb.2MB.max"), "{error}");
        }
    }
}
