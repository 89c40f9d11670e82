//! Which files are settings that can influence page sizes and their cost.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::read;
use super::{HUGETLB, Root, THP};

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
    /// The file with the surplus pages of the pool, where the setting is the size of a pool.
    surplus: Option<String>,
}

impl Setting {
    /// Its path on the running host.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// Every setting that the host has.
pub fn list(root: &Root) -> Vec<Setting> {
    let mut paths = thp(root);
    paths.extend(pools(root));
    paths.extend(SYSCTLS.map(|name| format!("/proc/sys/{name}")));
    paths.extend(SINGLE.map(String::from));
    paths.extend(governors(root));
    let setting = |path: String| {
        let surplus = path.strip_suffix("/nr_hugepages").map(|pool| format!("{pool}/surplus_hugepages"));
        Setting { path, surplus }
    };
    let is_file = |setting: &Setting| root.has_file(&setting.path);
    let mut settings: Vec<Setting> = paths.into_iter().map(setting).filter(is_file).collect();
    // A device on the running host, a file in a captured tree; whatever else is there might never answer.
    let is_device = || Path::new(IDLE_LATENCY).metadata().is_ok_and(|it| it.file_type().is_char_device());
    let idle_latency = Some(setting(IDLE_LATENCY.to_string()));
    settings.extend(idle_latency.filter(|setting| is_file(setting) || root.is_live() && is_device()));
    settings
}

/// The values now. A file that vanished (a processor went off line) is absent.
pub fn values(root: &Root, settings: &[Setting]) -> BTreeMap<String, String> {
    settings.iter().filter_map(|setting| Some((setting.path.clone(), value(root, setting)?))).collect()
}

fn value(root: &Root, setting: &Setting) -> Option<String> {
    if setting.path == IDLE_LATENCY {
        return idle_latency_us(root).map(|limit_us| limit_us.to_string());
    }
    let text = root.text(&setting.path).ok()?;
    match &setting.surplus {
        None => Some(read::chosen_word(&text).to_string()),
        Some(surplus) => Some(persistent_pages(&text, &root.text(surplus).unwrap_or_default())),
    }
}

/// The limit as the device tells it, a binary number of 32 bits (kernel/power/qos.c, cpu_latency_qos_read).
fn idle_latency_us(root: &Root) -> Option<i32> {
    let mut bytes = [0; 4];
    root.file(IDLE_LATENCY).ok()?.read_exact(&mut bytes).ok()?;
    Some(i32::from_ne_bytes(bytes))
}

/// `nr_hugepages` reads as the pages that the pool has, the surplus ones included, which come and go
/// with the programs that use them; what is set are the others (mm/hugetlb.c, `persistent_huge_pages`).
fn persistent_pages(pages: &str, surplus: &str) -> String {
    match (pages.trim().parse::<u64>(), surplus.trim().parse::<u64>()) {
        (Ok(pages), Ok(surplus)) => pages.saturating_sub(surplus).to_string(),
        _ => pages.trim().to_string(),
    }
}

fn thp(root: &Root) -> Vec<String> {
    let folders = root.entries(THP).into_iter().filter(|name| name.starts_with("hugepages-"));
    let folders = folders.map(|name| format!("{THP}/{name}")).chain([THP.to_string(), format!("{THP}/khugepaged")]);
    let files = |folder: String| {
        let names = root.entries(&folder).into_iter().filter(|name| !NOT_SETTINGS.contains(&name.as_str()));
        names.map(|name| format!("{folder}/{name}")).collect::<Vec<String>>()
    };
    folders.flat_map(files).collect()
}

/// The pools of the system and, on a machine with several memory nodes, of each node.
/// `nr_hugepages_mempolicy` and `vm.nr_hugepages` are other names of the same numbers.
fn pools(root: &Root) -> Vec<String> {
    const NODES: &str = "/sys/devices/system/node";
    let nodes: Vec<String> = root
        .entries(NODES)
        .into_iter()
        .filter(|name| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok()))
        .collect();
    let of_nodes = nodes.iter().filter(|_| nodes.len() > 1).map(|node| format!("{NODES}/{node}/hugepages"));
    let folders: Vec<String> = [HUGETLB.to_string()].into_iter().chain(of_nodes).collect();
    let pools =
        folders.iter().flat_map(|folder| root.entries(folder).into_iter().map(move |size| format!("{folder}/{size}")));
    pools
        .flat_map(|pool| {
            ["nr_hugepages", "nr_overcommit_hugepages", "demote_size"].map(|name| format!("{pool}/{name}"))
        })
        .collect()
}

fn governors(root: &Root) -> Vec<String> {
    const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";
    let policies = root.entries(CPUFREQ).into_iter().filter(|name| name.starts_with("policy"));
    policies
        .flat_map(|policy| {
            ["scaling_governor", "energy_performance_preference", "scaling_min_freq", "scaling_max_freq"]
                .map(|name| format!("{CPUFREQ}/{policy}/{name}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_latency_is_a_number_in_binary() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::open(tree.path()).unwrap();
        assert_eq!(idle_latency_us(&root), None);
        std::fs::create_dir(tree.path().join("dev")).unwrap();
        std::fs::write(root.under(IDLE_LATENCY), 20i32.to_ne_bytes()).unwrap();
        assert_eq!(idle_latency_us(&root), Some(20));
        std::fs::write(root.under(IDLE_LATENCY), "20").unwrap();
        assert_eq!(idle_latency_us(&root), None);
    }

    #[test]
    fn a_captured_tree_has_the_idle_latency_as_a_file_or_not_at_all() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::open(tree.path()).unwrap();
        let has = || list(&root).iter().any(|setting| setting.path == IDLE_LATENCY);
        assert!(!has());
        std::fs::create_dir(tree.path().join("dev")).unwrap();
        let device = root.under(IDLE_LATENCY);
        nix::unistd::mkfifo(&device, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(!has(), "nobody writes to this pipe, so opening it would not return");
        let refused = root.verify().unwrap_err().to_string();
        assert!(refused.contains("cpu_dma_latency") && refused.contains("found a FIFO"), "{refused}");
        std::fs::remove_file(&device).unwrap();
        std::fs::write(&device, 20i32.to_ne_bytes()).unwrap();
        assert!(has());
    }

    #[test]
    fn surplus_pages_are_not_set_by_anybody() {
        assert_eq!(persistent_pages("12\n", "4\n"), "8");
        assert_eq!(persistent_pages("12\n", ""), "12");
        assert_eq!(persistent_pages("3\n", "4\n"), "0");
    }
}
