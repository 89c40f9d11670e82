//! [`Setting`]: a file with a setting that influences page sizes or what they cost.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::absence::if_exists;
use super::absent;
use super::pools::{NODES, nodes};
use super::read::{self, HostError};
use super::{HUGETLB, Root, THP};

/// Paths below /proc/sys.
const SYSCTLS: [&str; 19] = [
    "kernel/numa_balancing",
    "kernel/randomize_va_space",
    "vm/compact_unevictable_allowed",
    "vm/compaction_proactiveness",
    "vm/defrag_mode",
    "vm/extfrag_threshold",
    "vm/hugetlb_optimize_vmemmap",
    "vm/legacy_va_layout",
    "vm/max_map_count",
    "vm/min_free_kbytes",
    "vm/overcommit_kbytes",
    "vm/overcommit_memory",
    "vm/overcommit_ratio",
    "vm/page-cluster",
    "vm/percpu_pagelist_high_fraction",
    "vm/swappiness",
    "vm/watermark_boost_factor",
    "vm/watermark_scale_factor",
    "vm/zone_reclaim_mode",
];

const OTHER_FILES: [&str; 7] = [
    "/sys/devices/system/cpu/cpufreq/boost",
    "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/smt/control",
    "/sys/kernel/mm/ksm/run",
    "/sys/kernel/mm/lru_gen/enabled",
    "/sys/kernel/mm/numa/demotion_enabled",
];

/// The device with the longest time, in microseconds, that an idle processor may take to wake up. Only root can read
/// it. If no process has requested a limit, it reads as 2,000 seconds (PM_QOS_CPU_LATENCY_DEFAULT_VALUE,
/// include/linux/pm_qos.h).
pub const IDLE_LATENCY: &str = "/dev/cpu_dma_latency";

/// Files in the THP directories that are not settings: counters, and a constant.
const NOT_SETTINGS: [&str; 3] = ["pages_collapsed", "full_scans", "hpage_pmd_size"];

/// A file with one setting.
#[derive(Clone, Debug)]
pub struct Setting {
    path: String,
    /// If the setting is the size of a hugetlb pool: the file with the number of its surplus pages.
    surplus: Option<String>,
}

impl Setting {
    /// Its absolute path on the host, without the root of a captured tree.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// All settings of the host.
pub fn list(root: &Root) -> Result<Vec<Setting>, HostError> {
    let mut paths = thp(root)?;
    paths.extend(pools(root)?);
    paths.extend(SYSCTLS.map(|name| format!("/proc/sys/{name}")));
    paths.extend(OTHER_FILES.map(String::from));
    paths.extend(cpufreq_policies(root)?);
    let setting = |path: String| {
        let surplus = path.strip_suffix("/nr_hugepages").map(|pool| format!("{pool}/surplus_hugepages"));
        Setting { path, surplus }
    };
    // If this check fails, the setting stays in the list, and its value will be unknown.
    let exists = |setting: &Setting| root.has_file(&setting.path).unwrap_or(true);
    let mut settings: Vec<Setting> = paths.into_iter().map(setting).filter(exists).collect();
    // On the running host this is a device, in a captured tree a regular file. Opening anything else might block.
    let is_device = || Path::new(IDLE_LATENCY).metadata().is_ok_and(|it| it.file_type().is_char_device());
    let idle_latency = Some(setting(IDLE_LATENCY.to_string()));
    settings.extend(idle_latency.filter(|setting| exists(setting) || root.is_live() && is_device()));
    Ok(settings)
}

/// The current values by path. A file that has vanished is absent (a processor was taken offline). If a file cannot be
/// read, its value is `unknown: ` and the reason, which cannot be the value of any setting.
pub fn values(root: &Root, settings: &[Setting]) -> BTreeMap<String, String> {
    settings.iter().filter_map(|setting| Some((setting.path.clone(), value(root, setting)?))).collect()
}

fn value(root: &Root, setting: &Setting) -> Option<String> {
    if setting.path == IDLE_LATENCY {
        return idle_latency(root);
    }
    let read = || {
        let text = root.text(&setting.path)?;
        Ok(match &setting.surplus {
            None => read::chosen_word(&text).to_string(),
            Some(surplus) => persistent_pages(&text, &if_exists(root.text(surplus))?.unwrap_or("0".into())),
        })
    };
    value_or_error(read())
}

fn value_or_error(read: io::Result<String>) -> Option<String> {
    if_exists(read).unwrap_or_else(|error| Some(format!("unknown: {error}")))
}

/// The value of [`IDLE_LATENCY`]: the device contains a binary number of 32 bits (kernel/power/qos.c,
/// cpu_latency_qos_read). `None` without the permission to read it.
fn idle_latency(root: &Root) -> Option<String> {
    let mut bytes = [0; 4];
    let read = root.file(IDLE_LATENCY).and_then(|mut device| device.read_exact(&mut bytes));
    match read {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
        read => value_or_error(read.map(|()| i32::from_ne_bytes(bytes).to_string())),
    }
}

/// The number of persistent pages of a pool, which is the setting (`persistent_huge_pages`, mm/hugetlb.c).
/// `nr_hugepages` reads as the number of all pages, including surplus pages, which come and go with the programs that
/// use them.
fn persistent_pages(pages: &str, surplus: &str) -> String {
    match (pages.trim().parse::<u64>(), surplus.trim().parse::<u64>()) {
        (Ok(pages), Ok(surplus)) => pages.saturating_sub(surplus).to_string(),
        _ => format!("unknown: expected two numbers, found {} and {}", pages.trim(), surplus.trim()),
    }
}

fn thp(root: &Root) -> Result<Vec<String>, HostError> {
    let folders = absent::names(root, THP)?.into_iter().filter(|name| name.starts_with("hugepages-"));
    let folders = folders.map(|name| format!("{THP}/{name}")).chain([THP.to_string(), format!("{THP}/khugepaged")]);
    let mut files = Vec::new();
    for folder in folders {
        let names = absent::names(root, &folder)?.into_iter().filter(|name| !NOT_SETTINGS.contains(&name.as_str()));
        files.extend(names.map(|name| format!("{folder}/{name}")));
    }
    Ok(files)
}

/// Files of the hugetlb pools: of the whole system and, on a machine with several NUMA nodes, of each node.
/// `nr_hugepages_mempolicy` and `vm.nr_hugepages` are left out because they duplicate `nr_hugepages`.
fn pools(root: &Root) -> Result<Vec<String>, HostError> {
    let nodes = nodes(root)?;
    let of_nodes = nodes.iter().filter(|_| nodes.len() > 1).map(|node| format!("{NODES}/node{node}/hugepages"));
    let mut files = Vec::new();
    for folder in [HUGETLB.to_string()].into_iter().chain(of_nodes) {
        for size in absent::names(root, &folder)? {
            let names = ["nr_hugepages", "nr_overcommit_hugepages", "demote_size"];
            files.extend(names.map(|name| format!("{folder}/{size}/{name}")));
        }
    }
    Ok(files)
}

fn cpufreq_policies(root: &Root) -> Result<Vec<String>, HostError> {
    const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";
    let policies = absent::names(root, CPUFREQ)?.into_iter().filter(|name| name.starts_with("policy"));
    let files = policies
        .flat_map(|policy| {
            ["scaling_governor", "energy_performance_preference", "scaling_min_freq", "scaling_max_freq"]
                .map(|name| format!("{CPUFREQ}/{policy}/{name}"))
        })
        .collect();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(tree: &tempfile::TempDir) -> Root {
        Root::open(tree.path()).unwrap()
    }

    #[test]
    fn the_idle_latency_is_a_binary_number() {
        let tree = tempfile::tempdir().unwrap();
        let root = root(&tree);
        assert_eq!(idle_latency(&root), None);
        std::fs::create_dir(tree.path().join("dev")).unwrap();
        std::fs::write(root.under(IDLE_LATENCY), 20i32.to_ne_bytes()).unwrap();
        assert_eq!(idle_latency(&root).as_deref(), Some("20"));
        std::fs::write(root.under(IDLE_LATENCY), "20").unwrap();
        assert!(idle_latency(&root).is_some_and(|value| value.starts_with("unknown: ")), "two bytes are not a number");
    }

    #[test]
    fn in_a_captured_tree_the_idle_latency_is_absent_or_a_regular_file() {
        let tree = tempfile::tempdir().unwrap();
        let root = root(&tree);
        let has = || list(&root).unwrap().iter().any(|setting| setting.path == IDLE_LATENCY);
        assert!(!has());
        std::fs::create_dir(tree.path().join("dev")).unwrap();
        let device = root.under(IDLE_LATENCY);
        nix::unistd::mkfifo(&device, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // No process writes to this FIFO, so opening it would block.
        let value = values(&root, &list(&root).unwrap()).remove(IDLE_LATENCY).unwrap();
        assert!(value.starts_with("unknown: ") && value.contains("found a FIFO"), "{value}");
        std::fs::remove_file(&device).unwrap();
        std::fs::write(&device, 20i32.to_ne_bytes()).unwrap();
        assert!(has());
    }

    #[test]
    fn a_setting_that_cannot_be_read_is_unknown_and_not_absent() {
        let tree = tempfile::tempdir().unwrap();
        let root = root(&tree);
        let pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
        let (vanished, file) = ("/proc/sys/vm/swappiness", root.under(pool));
        std::fs::create_dir_all(file.with_file_name("surplus_hugepages")).unwrap();
        std::fs::write(&file, "12\n").unwrap();
        std::fs::create_dir_all(tree.path().join("proc/sys/vm")).unwrap();
        std::fs::write(root.under(vanished), "60\n").unwrap();
        let settings = list(&root).unwrap();
        std::fs::remove_file(root.under(vanished)).unwrap();
        let values = values(&root, &settings);
        assert!(values[pool].starts_with("unknown: "), "the surplus is a directory: {values:?}");
        assert_eq!(values.get(vanished), None);
    }

    #[test]
    fn a_directory_of_settings_that_cannot_be_read_is_an_error() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("sys/kernel/mm")).unwrap();
        std::fs::write(tree.path().join(THP.trim_start_matches('/')), "").unwrap();
        assert!(list(&root(&tree)).unwrap_err().to_string().contains("transparent_hugepage"));
    }

    #[test]
    fn surplus_pages_are_not_part_of_the_setting() {
        assert_eq!(persistent_pages("12\n", "4\n"), "8");
        assert_eq!(persistent_pages("12\n", "0\n"), "12");
        assert_eq!(persistent_pages("12\n", "?\n"), "unknown: expected two numbers, found 12 and ?");
        assert_eq!(persistent_pages("3\n", "4\n"), "0");
    }
}
