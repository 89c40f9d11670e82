//! Reads what the memory and the hugetlb controller account for a control group, for versions 1 and 2 of control groups.

use policy::inspect::{Charges, HugetlbCharge};
use policy::size::PageSize;

use crate::absent;
use crate::control_groups::{ControlGroups, group};
use crate::hugetlb_groups::{HugetlbGroups, number};
use crate::read::HostError;
use crate::root::Root;

/// The path of the group that a process is charged to, below the root of its hierarchy, from the content of its /proc/PID/cgroup;
/// `None` where the kernel has no control groups.
pub fn memory_group(memberships: &str) -> Option<&str> {
    group(memberships, "memory").map(|(group, _)| group)
}

/// The charges of the memory control group of a process with these memberships, for hugetlb pages of these sizes. Pages of
/// hugetlb pools are left out if a group with another path is charged for them. A group that was removed has no charges.
///
/// # Errors
/// A file of the group exists and cannot be read.
pub fn charges(root: &Root, memberships: &str, sizes: &[PageSize]) -> Result<Charges, HostError> {
    let groups = ControlGroups::of(root, memberships, "memory")?;
    let mut charges = match groups.directories.first() {
        Some(directory) if groups.is_version_1 => version_1(root, directory)?,
        Some(directory) => version_2(root, directory)?,
        None => Charges::default(),
    };
    let is_same = group(memberships, "hugetlb").map(|(group, _)| group) == memory_group(memberships);
    if is_same {
        let groups = HugetlbGroups::of(root, memberships)?;
        let charge = |size: &PageSize| groups.charge(root, *size).transpose();
        charges.hugetlb = sizes.iter().filter_map(charge).collect::<Result<Vec<HugetlbCharge>, HostError>>()?;
    }
    Ok(charges)
}

fn version_2(root: &Root, directory: &str) -> Result<Charges, HostError> {
    let read = |name: &str| number(root, &format!("{directory}/{name}"));
    let statistics = absent::text(root, &format!("{directory}/memory.stat"))?.unwrap_or_default();
    Ok(Charges {
        charged_bytes: read("memory.current")?,
        limit_bytes: read("memory.max")?,
        anonymous_bytes: statistic(&statistics, "anon"),
        anonymous_large_bytes: statistic(&statistics, "anon_thp"),
        file_bytes: statistic(&statistics, "file"),
        hugetlb: Vec::new(),
    })
}

/// In version 1 the plain lines of memory.stat are of the group alone, and those with `total_` include the groups below it.
fn version_1(root: &Root, directory: &str) -> Result<Charges, HostError> {
    let read = |name: &str| number(root, &format!("{directory}/{name}"));
    let statistics = absent::text(root, &format!("{directory}/memory.stat"))?.unwrap_or_default();
    Ok(Charges {
        charged_bytes: read("memory.usage_in_bytes")?,
        limit_bytes: read("memory.limit_in_bytes")?,
        anonymous_bytes: statistic(&statistics, "total_rss"),
        anonymous_large_bytes: statistic(&statistics, "total_rss_huge"),
        file_bytes: statistic(&statistics, "total_cache"),
        hugetlb: Vec::new(),
    })
}

/// A line `name number` of memory.stat; `None` where this kernel does not have it.
fn statistic(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The charges of a process with these memberships on a host with these files.
    fn found(memberships: &str, mounts: &str, files: &[(&str, &str)]) -> Result<Charges, HostError> {
        let directory = tempfile::tempdir().unwrap();
        let controllers = ("/proc/cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\nhugetlb\t0\t1\t1\n");
        for (path, text) in files.iter().chain(&[("/proc/self/mountinfo", mounts), controllers]) {
            let file = directory.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        charges(&Root::open(directory.path()).unwrap(), memberships, &[PageSize::M2, PageSize::G1])
    }

    const UNIFIED: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn version_2_has_charges_limits_and_pool_pages_of_the_group() {
        let files = [
            ("/sys/fs/cgroup/a/memory.current", "8192\n"),
            ("/sys/fs/cgroup/a/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.stat", "anon 4096\nfile 100\nanon_thp 2048\n"),
            ("/sys/fs/cgroup/a/hugetlb.2MB.max", "4194304\n"),
            ("/sys/fs/cgroup/a/hugetlb.2MB.current", "2097152\n"),
            ("/sys/fs/cgroup/a/hugetlb.1GB.max", "max\n"),
            ("/sys/fs/cgroup/a/hugetlb.1GB.current", "0\n"),
        ];
        let charge = |size, used_bytes, limit_bytes| HugetlbCharge { size, used_bytes, limit_bytes };
        let expected = Charges {
            charged_bytes: Some(8192),
            limit_bytes: None,
            anonymous_bytes: Some(4096),
            anonymous_large_bytes: Some(2048),
            file_bytes: Some(100),
            hugetlb: vec![charge(PageSize::M2, 2 << 20, Some(4 << 20)), charge(PageSize::G1, 0, None)],
        };
        assert_eq!(found("0::/a\n", UNIFIED, &files).unwrap(), expected);
        assert_eq!(found("0::/gone\n", UNIFIED, &files).unwrap(), Charges::default());
        assert_eq!(found("0::/\n", UNIFIED, &files).unwrap(), Charges::default(), "the root group has no files");
    }

    #[test]
    fn version_1_counts_groups_below_and_no_pool_pages_of_another_group() {
        let mounts = "33 23 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      34 23 0:31 / /sys/fs/cgroup/hugetlb rw - cgroup cgroup rw,hugetlb\n";
        let files = [
            ("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "8192\n"),
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
            (
                "/sys/fs/cgroup/memory/a/memory.stat",
                "cache 1\nrss 2\ntotal_cache 100\ntotal_rss 4096\ntotal_rss_huge 0\n",
            ),
            ("/sys/fs/cgroup/hugetlb/a/hugetlb.2MB.limit_in_bytes", "9223372036852678656\n"),
            ("/sys/fs/cgroup/hugetlb/a/hugetlb.2MB.usage_in_bytes", "2097152\n"),
        ];
        let same = found("7:hugetlb:/a\n4:memory:/a\n0::/\n", mounts, &files).unwrap();
        assert_eq!((same.charged_bytes, same.limit_bytes), (Some(8192), None));
        assert_eq!(
            (same.anonymous_bytes, same.anonymous_large_bytes, same.file_bytes),
            (Some(4096), Some(0), Some(100))
        );
        assert_eq!(same.hugetlb, [HugetlbCharge { size: PageSize::M2, used_bytes: 2 << 20, limit_bytes: None }]);
        let other = found("7:hugetlb:/\n4:memory:/a\n0::/\n", mounts, &files).unwrap();
        assert_eq!((other.charged_bytes, other.hugetlb), (Some(8192), vec![]));
    }

    #[test]
    fn a_figure_that_cannot_be_read_is_an_error() {
        let error = found("0::/a\n", UNIFIED, &[("/sys/fs/cgroup/a/memory.current", "much\n")]).unwrap_err();
        assert!(error.to_string().contains("memory.current"), "{error}");
        assert_eq!(memory_group("4:memory:/x y\n0::/\n"), Some("/x y"));
        assert_eq!((memory_group("0::/b:c\n"), memory_group("")), (Some("/b:c"), None));
    }
}
