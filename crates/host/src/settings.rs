//! Which files are settings that can influence page sizes and their cost.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::absent::{self, if_there, is_absence};
use super::read::{self, HostError};
use super::{HUGETLB, THP};

/// Files below /proc/sys that are settings of memory management.
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

/// Other files that are settings.
const SINGLE: [&str; 7] = [
    "/sys/devices/system/cpu/cpufreq/boost",
    "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/smt/control",
    "/sys/kernel/mm/ksm/run",
    "/sys/kernel/mm/lru_gen/enabled",
    "/sys/kernel/mm/numa/demotion_enabled",
];

/// The longest time in microseconds that an idle processor may take to wake up; a device, which root alone may read.
/// Beside it stand 2,000 seconds where nobody asked for less (PM_QOS_CPU_LATENCY_DEFAULT_VALUE, include/linux/pm_qos.h).
pub const IDLE_LATENCY: &str = "/dev/cpu_dma_latency";

/// Files beside the settings that count, or that never change.
const NOT_SETTINGS: [&str; 3] = ["pages_collapsed", "full_scans", "hpage_pmd_size"];

/// A file that is a setting.
#[derive(Clone, Debug)]
pub struct Setting {
    path: String,
    file: PathBuf,
    /// The file with the surplus pages of the pool, where the setting is the size of a pool.
    surplus: Option<PathBuf>,
}

impl Setting {
    /// Its path on the running host.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// Every setting that the host has.
///
/// # Errors
/// A directory of settings cannot be read.
pub fn list(root: &Path) -> Result<Vec<Setting>, HostError> {
    let mut paths = thp(root)?;
    paths.extend(pools(root)?);
    paths.extend(SYSCTLS.map(|name| format!("/proc/sys/{name}")));
    paths.extend(SINGLE.map(String::from));
    paths.extend(governors(root)?);
    let setting = |path: String| {
        let file = read::under(root, &path);
        let surplus = path.ends_with("/nr_hugepages").then(|| file.with_file_name("surplus_hugepages"));
        Setting { path, file, surplus }
    };
    // Of what cannot be looked at, the value is unknown.
    let is_there = |setting: &Setting| match setting.file.metadata() {
        Ok(found) => found.is_file(),
        Err(error) => !is_absence(&error),
    };
    let mut settings: Vec<Setting> = paths.into_iter().map(setting).filter(is_there).collect();
    // A device on the running host, a file in a captured tree; whatever else is there might never answer.
    let is_device =
        |file: &Path| root == Path::new("/") && file.metadata().is_ok_and(|it| it.file_type().is_char_device());
    let idle_latency = Some(setting(IDLE_LATENCY.to_string()));
    settings.extend(idle_latency.filter(|setting| setting.file.is_file() || is_device(&setting.file)));
    Ok(settings)
}

/// The values now. A file that vanished (a processor went off line) is absent; the value of one that cannot be read is
/// `unknown: ` and why, which is no word of any setting.
pub fn values(settings: &[Setting]) -> BTreeMap<String, String> {
    settings.iter().filter_map(|setting| Some((setting.path.clone(), value(setting)?))).collect()
}

fn value(setting: &Setting) -> Option<String> {
    if setting.path == IDLE_LATENCY {
        return idle_latency(&setting.file);
    }
    let read = || {
        let text = read::content(&setting.file)?;
        Ok(match &setting.surplus {
            None => read::chosen_word(&text).to_string(),
            Some(surplus) => persistent_pages(&text, &if_there(read::content(surplus))?.unwrap_or("0".into())),
        })
    };
    known(read())
}

fn known(read: io::Result<String>) -> Option<String> {
    if_there(read).unwrap_or_else(|error| Some(format!("unknown: {error}")))
}

/// The limit in microseconds as the device tells it, a binary number of 32 bits (kernel/power/qos.c, cpu_latency_qos_read);
/// absent for all but root.
fn idle_latency(device: &Path) -> Option<String> {
    let mut bytes = [0; 4];
    let read = std::fs::File::open(device).and_then(|mut device| device.read_exact(&mut bytes));
    match read {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
        read => known(read.map(|()| i32::from_ne_bytes(bytes).to_string())),
    }
}

/// `nr_hugepages` reads as the pages that the pool has, the surplus ones included, which come and go
/// with the programs that use them; what is set are the others (mm/hugetlb.c, `persistent_huge_pages`).
fn persistent_pages(pages: &str, surplus: &str) -> String {
    match (pages.trim().parse::<u64>(), surplus.trim().parse::<u64>()) {
        (Ok(pages), Ok(surplus)) => pages.saturating_sub(surplus).to_string(),
        _ => format!("unknown: expected two numbers, found {} and {}", pages.trim(), surplus.trim()),
    }
}

fn thp(root: &Path) -> Result<Vec<String>, HostError> {
    let folders = absent::names(root, THP)?.into_iter().filter(|name| name.starts_with("hugepages-"));
    let folders = folders.map(|name| format!("{THP}/{name}")).chain([THP.to_string(), format!("{THP}/khugepaged")]);
    let mut files = Vec::new();
    for folder in folders {
        let names = absent::names(root, &folder)?.into_iter().filter(|name| !NOT_SETTINGS.contains(&name.as_str()));
        files.extend(names.map(|name| format!("{folder}/{name}")));
    }
    Ok(files)
}

/// The pools of the system and, on a machine with several memory nodes, of each node.
/// `nr_hugepages_mempolicy` and `vm.nr_hugepages` are other names of the same numbers.
fn pools(root: &Path) -> Result<Vec<String>, HostError> {
    const NODES: &str = "/sys/devices/system/node";
    let nodes: Vec<String> = absent::names(root, NODES)?
        .into_iter()
        .filter(|name| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok()))
        .collect();
    let of_nodes = nodes.iter().filter(|_| nodes.len() > 1).map(|node| format!("{NODES}/{node}/hugepages"));
    let mut files = Vec::new();
    for folder in [HUGETLB.to_string()].into_iter().chain(of_nodes) {
        for size in absent::names(root, &folder)? {
            let names = ["nr_hugepages", "nr_overcommit_hugepages", "demote_size"];
            files.extend(names.map(|name| format!("{folder}/{size}/{name}")));
        }
    }
    Ok(files)
}

fn governors(root: &Path) -> Result<Vec<String>, HostError> {
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

    #[test]
    fn the_idle_latency_is_a_number_in_binary() {
        let directory = tempfile::tempdir().unwrap();
        let device = directory.path().join("cpu_dma_latency");
        assert_eq!(idle_latency(&device), None);
        std::fs::write(&device, 20i32.to_ne_bytes()).unwrap();
        assert_eq!(idle_latency(&device).as_deref(), Some("20"));
        std::fs::write(&device, "20").unwrap();
        assert!(idle_latency(&device).is_some_and(|value| value.starts_with("unknown: ")), "two bytes are no number");
    }

    #[test]
    fn a_captured_tree_has_the_idle_latency_as_a_file_or_not_at_all() {
        let tree = tempfile::tempdir().unwrap();
        let has = || list(tree.path()).unwrap().iter().any(|setting| setting.path == IDLE_LATENCY);
        assert!(!has());
        std::fs::create_dir(tree.path().join("dev")).unwrap();
        let device = read::under(tree.path(), IDLE_LATENCY);
        nix::unistd::mkfifo(&device, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(!has(), "nobody writes to this pipe, so opening it would not return");
        std::fs::remove_file(&device).unwrap();
        std::fs::write(&device, 20i32.to_ne_bytes()).unwrap();
        assert!(has());
    }

    #[test]
    fn a_setting_that_cannot_be_read_is_unknown_and_not_absent() {
        let tree = tempfile::tempdir().unwrap();
        let pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
        let (vanished, file) = ("/proc/sys/vm/swappiness", read::under(tree.path(), pool));
        std::fs::create_dir_all(file.with_file_name("surplus_hugepages")).unwrap();
        std::fs::write(&file, "12\n").unwrap();
        std::fs::create_dir_all(tree.path().join("proc/sys/vm")).unwrap();
        std::fs::write(read::under(tree.path(), vanished), "60\n").unwrap();
        let settings = list(tree.path()).unwrap();
        std::fs::remove_file(read::under(tree.path(), vanished)).unwrap();
        let values = values(&settings);
        assert!(values[pool].starts_with("unknown: "), "the surplus is a directory: {values:?}");
        assert_eq!(values.get(vanished), None);
    }

    #[test]
    fn a_directory_of_settings_that_cannot_be_read_is_an_error() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("sys/kernel/mm")).unwrap();
        std::fs::write(read::under(tree.path(), THP), "").unwrap();
        assert!(list(tree.path()).unwrap_err().to_string().contains("transparent_hugepage"));
    }

    #[test]
    fn surplus_pages_are_not_set_by_anybody() {
        assert_eq!(persistent_pages("12\n", "4\n"), "8");
        assert_eq!(persistent_pages("12\n", "0\n"), "12");
        assert_eq!(persistent_pages("12\n", "?\n"), "unknown: expected two numbers, found 12 and ?");
        assert_eq!(persistent_pages("3\n", "4\n"), "0");
    }
}
