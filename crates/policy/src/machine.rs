//! The machine on which a trial ran, and the state of its memory management around the trial.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::size::PageSize;
use crate::{DirectMapLeaves, PageSizes};

/// A machine: the properties that do not change between boots of one kernel, and the id of the boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// `host`, or the name of a model machine.
    pub name: String,
    /// The kernel's instruction set: `x86_64`, `aarch64`, `riscv64`.
    pub arch: String,
    /// The kernel's release and version.
    pub kernel: String,
    /// The command line of the kernel (/proc/cmdline).
    pub kernel_command_line: String,
    /// Identifies the boot (/proc/sys/kernel/random/boot_id).
    pub boot_id: String,
    /// Identifies the host across boots: a hash of the installation's id (machine-id(5)). Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_id: Option<String>,
    /// Name of the processor.
    pub cpu_model: String,
    /// Number of online processors.
    pub cpus: u32,
    /// Bytes of memory that the kernel manages.
    pub memory_bytes: u64,
    /// The hypervisor, if it identifies itself.
    pub hypervisor: Option<String>,
    /// The page sizes that the kernel offers.
    #[serde(rename = "geometry")]
    pub page_sizes: PageSizes,
    /// The direct map when the machine was read. Absent if the kernel does not count its leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct_map: Option<DirectMap>,
}

/// The direct map: the kernel's mapping of all memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectMap {
    /// The leaf size that provably maps nine tenths of the direct map; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf: Option<PageSize>,
    /// The smallest leaf size into which pagelab itself split the direct map since boot; absent if pagelab did not split it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demoted_to: Option<PageSize>,
}

/// The kind of machine on which times were taken. Times of different kinds are never pooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    /// A processor on which no hypervisor identifies itself.
    Metal,
    /// A processor under a hypervisor: page walks have two stages.
    Guest {
        /// The leaf by which the host maps the guest's memory, as named on the guest's command line; absent if it is not named
        /// there.
        host_leaf: Option<PageSize>,
    },
    /// A processor that QEMU emulates.
    Emulated,
}

/// Prefix of the word on a guest's kernel command line that names the leaf by which the host maps its memory. Linux ignores
/// words with a dot whose prefix is not a module.
const HOST_LEAF: &str = "pagelab.host_leaf=";

impl Machine {
    /// The kind of machine. On x86-64 QEMU's emulator is recognized by the processor's name (CPUID); on other
    /// architectures it cannot be distinguished from a hypervisor.
    pub fn execution(&self) -> Execution {
        let is_emulated = |name: &str| name.contains("QEMU TCG");
        match &self.hypervisor {
            Some(name) if is_emulated(name) || is_emulated(&self.cpu_model) => Execution::Emulated,
            None if is_emulated(&self.cpu_model) => Execution::Emulated,
            None => Execution::Metal,
            Some(_) => Execution::Guest { host_leaf: self.host_leaf() },
        }
    }

    /// The leaf by which the host maps this guest's memory, as named on the guest's kernel command line.
    fn host_leaf(&self) -> Option<PageSize> {
        let mut words = self.kernel_command_line.split_whitespace();
        words.find_map(|word| word.strip_prefix(HOST_LEAF)?.parse().ok())
    }

    /// Whether both machines are the same host with the same kernel and command line, in any boot, so that trials of both can
    /// be part of one comparison. The memory that the kernel manages varies slightly between boots; a difference of more than a
    /// tenth means another size. If both report the leaf of most of their direct map, it must be the same; a few leaves that
    /// were split do not matter.
    pub fn is_alike(&self, other: &Machine) -> bool {
        let Machine { boot_id, memory_bytes, direct_map, .. } = self;
        let larger = self.memory_bytes.max(other.memory_bytes);
        let is_same_size = self.memory_bytes.abs_diff(other.memory_bytes) <= larger / 10;
        let leaves = direct_map.zip(other.direct_map);
        is_same_size
            && leaves.is_none_or(|(one, other)| one.leaf == other.leaf)
            && *self
                == Machine {
                    boot_id: boot_id.clone(),
                    memory_bytes: *memory_bytes,
                    direct_map: *direct_map,
                    ..other.clone()
                }
    }

    /// Whether both are boots of one machine, even with different memory (`mem=`), judging by the installation's id and the
    /// processor. An image that is booted on metal and in a virtual machine counts as two hosts. Without an id, the processor
    /// and the number of online processors decide.
    pub fn is_same_host(&self, other: &Machine) -> bool {
        let is_same_processor = self.cpu_model == other.cpu_model;
        match (&self.host_id, &other.host_id) {
            _ if self.execution() != other.execution() => false,
            (Some(one), Some(other)) => one == other && is_same_processor,
            (None, None) => is_same_processor && self.cpus == other.cpus,
            _ => false,
        }
    }

    /// Identifies the host across boots: by its id, or without an id by its processor and the number of online processors.
    pub fn host_name(&self) -> String {
        self.host_id.clone().unwrap_or_else(|| format!("{}, {} on line", self.cpu_model, self.cpus))
    }

    /// Installed memory in bytes, estimated: the kernel manages slightly less, and the amount varies between boots, by
    /// more than a hundredth between base pages of 4K and 64K. So it is rounded up, to eighths of the next lower power
    /// of two.
    pub fn rounded_memory_bytes(&self) -> u64 {
        let step = self.memory_bytes.checked_ilog2().map_or(1, |log| ((1u64 << log) / 8).max(1));
        self.memory_bytes.checked_next_multiple_of(step).unwrap_or(self.memory_bytes)
    }
}

impl DirectMap {
    /// The leaf size that maps nine tenths of the direct map, or `Mixed`.
    pub fn leaves(self) -> DirectMapLeaves {
        self.leaf.map_or(DirectMapLeaves::Mixed, DirectMapLeaves::Of)
    }
}

/// Everything that can influence page sizes and their cost, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// All THP, mTHP, hugetlb, khugepaged and compaction settings and the CPU frequency governor: path to value. If a file lists
    /// choices, the value is only the chosen one, which is in brackets. There are some hundred settings, and most trials
    /// have the same ones, so trials share them.
    #[serde(with = "shared")]
    pub settings: Arc<BTreeMap<String, String>>,
    /// Number of free blocks of memory by buddy order, summed over zones.
    pub free_blocks_by_order: Vec<u64>,
    /// Bytes of the direct map by leaf size (`4K`, `2M`, `1G`).
    pub direct_map_bytes: BTreeMap<String, u64>,
    /// The smallest leaf that pagelab itself demoted the direct map to since boot, as far as this is recorded; absent if
    /// pagelab did not demote it. A demotion lasts until reboot and affects every measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demoted_to: Option<PageSize>,
    /// The smallest free block that the kernel reports to the hypervisor, which takes back its memory (free page reporting): the
    /// next user of the block pays for its page faults. `None` if nothing is reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_block: Option<PageSize>,
    /// Bytes of memory available to new programs.
    pub available_bytes: u64,
    /// Load average over one minute.
    pub load_1min: f64,
}

/// Serializes a map behind an `Arc` as a map.
mod shared {
    use super::{Arc, BTreeMap, Deserialize, Serialize};

    pub fn serialize<S: serde::Serializer>(map: &Arc<BTreeMap<String, String>>, to: S) -> Result<S::Ok, S::Error> {
        map.as_ref().serialize(to)
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Arc<BTreeMap<String, String>>, D::Error> {
        BTreeMap::deserialize(from).map(Arc::new)
    }
}

/// A setting whose value changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// Path of the file.
    pub path: String,
    /// Value before; `None` if the file did not exist.
    pub before: Option<String>,
    /// Value afterwards; `None` if the file no longer exists.
    pub after: Option<String>,
}

impl State {
    /// The share of the direct map in leaves of at most this size, as the kernel counts them; `None` if it does not count them.
    pub fn direct_map_ratio(&self, leaf: PageSize) -> Option<f64> {
        let bytes = self.direct_map_bytes.iter();
        share_up_to(leaf, bytes.map(|(size, bytes)| (size.as_str(), *bytes as f64)))
    }

    /// The settings in which `self` and a `later` state differ. The sizes of pools, which a program uses up, are not
    /// settings and are not compared.
    pub fn changes(&self, later: &State) -> Vec<SettingChange> {
        let paths: std::collections::BTreeSet<&String> = self.settings.keys().chain(later.settings.keys()).collect();
        paths
            .into_iter()
            .filter(|path| self.settings.get(*path) != later.settings.get(*path))
            .map(|path| SettingChange {
                path: path.clone(),
                before: self.settings.get(path).cloned(),
                after: later.settings.get(path).cloned(),
            })
            .collect()
    }
}

/// Given amounts by leaf size (`2M`), the share in leaves of at most this size; `None` if there are no amounts.
pub fn share_up_to<'a>(leaf: PageSize, amounts: impl Iterator<Item = (&'a str, f64)>) -> Option<f64> {
    let (mut small, mut all) = (0.0, 0.0);
    for (size, amount) in amounts {
        all += amount;
        small += if size.parse::<PageSize>().is_ok_and(|size| size <= leaf) { amount } else { 0.0 };
    }
    (all > 0.0).then_some(small / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_metal_a_guest_or_emulated() {
        let execution = |hypervisor: Option<&str>, cpu: &str, line: &str| {
            let base = PageSize::K4;
            Machine {
                name: "host".into(),
                arch: "x86_64".into(),
                kernel: "6.1".into(),
                kernel_command_line: line.into(),
                boot_id: "x".into(),
                host_id: None,
                cpu_model: cpu.into(),
                cpus: 1,
                memory_bytes: 1 << 30,
                hypervisor: hypervisor.map(str::to_owned),
                page_sizes: PageSizes { base, pmd: None, mthp: vec![], hugetlb: vec![] },
                direct_map: None,
            }
            .execution()
        };
        assert_eq!(execution(None, "a processor", "quiet"), Execution::Metal);
        assert_eq!(execution(Some("KVM"), "a processor", "quiet"), Execution::Guest { host_leaf: None });
        let execution_with_leaf = execution(Some("KVM"), "a processor", "quiet pagelab.host_leaf=2M");
        assert_eq!(execution_with_leaf, Execution::Guest { host_leaf: Some(PageSize::M2) });
        assert_eq!(execution(Some("KVM"), "", "pagelab.host_leaf=many"), Execution::Guest { host_leaf: None });
        assert_eq!(execution(Some("QEMU TCG"), "a processor", "pagelab.host_leaf=2M"), Execution::Emulated);
        assert_eq!(execution(Some("QEMU Standard PC"), "QEMU TCG CPU version 2.5+", ""), Execution::Emulated);
    }

    fn host() -> Machine {
        Machine {
            name: "host".into(),
            arch: "x86_64".into(),
            kernel: "6.1".into(),
            kernel_command_line: "quiet".into(),
            boot_id: "x".into(),
            host_id: Some("1f".into()),
            cpu_model: "a processor".into(),
            cpus: 2,
            memory_bytes: 512 << 30,
            hypervisor: None,
            page_sizes: PageSizes { base: PageSize::K4, pmd: None, mthp: vec![], hugetlb: vec![] },
            direct_map: Some(DirectMap { leaf: Some(PageSize::G1), demoted_to: None }),
        }
    }

    #[test]
    fn a_host_with_less_memory_is_the_same_host_but_not_alike() {
        let host = host();
        let less = Machine { memory_bytes: 250 << 30, boot_id: "y".into(), ..host.clone() };
        assert!(host.is_same_host(&less) && !host.is_alike(&less));
        let little_less = Machine { memory_bytes: 511 << 30, direct_map: None, ..host.clone() };
        assert!(host.is_same_host(&little_less) && host.is_alike(&little_less));
        let split = Some(DirectMap { leaf: None, demoted_to: Some(PageSize::M2) });
        assert!(!host.is_alike(&Machine { direct_map: split, ..host.clone() }));
        let few_split = Some(DirectMap { leaf: Some(PageSize::G1), demoted_to: Some(PageSize::M2) });
        assert!(host.is_alike(&Machine { direct_map: few_split, ..host.clone() }));
        let clone = Machine { cpu_model: "another".into(), ..host.clone() };
        let virtual_one = Machine { hypervisor: Some("KVM".into()), ..host.clone() };
        let nameless = Machine { host_id: None, ..host.clone() };
        assert!([&clone, &virtual_one, &nameless].iter().all(|other| !host.is_same_host(other)));
        assert!(nameless.is_same_host(&nameless) && !nameless.is_same_host(&Machine { cpus: 4, ..nameless.clone() }));
    }

    #[test]
    fn memory_is_rounded_up_to_installed_sizes() {
        let rounded = |mebibytes: u64| Machine { memory_bytes: mebibytes << 20, ..host() }.rounded_memory_bytes() >> 20;
        // Machines with 256G under base pages of 4K and of 64K, a virtual machine with 24G, and small machines.
        assert_eq!([251 << 10, 255 << 10, 256 << 10].map(rounded), [256 << 10; 3]);
        assert_eq!([23_500, 24 << 10, 8 << 10, 3_900, 0].map(rounded), [24 << 10, 24 << 10, 8 << 10, 4 << 10, 0]);
        assert_ne!(rounded(250 << 10), rounded(500 << 10));
    }

    #[test]
    fn a_changed_added_or_removed_setting_is_a_change() {
        let state = |pairs: &[(&str, &str)]| State {
            settings: Arc::new(pairs.iter().map(|(path, value)| (path.to_string(), value.to_string())).collect()),
            ..State::default()
        };
        let before = state(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let after = state(&[("a", "1"), ("b", "2"), ("d", "1")]);
        let changed: Vec<String> = before.changes(&after).into_iter().map(|change| change.path).collect();
        assert_eq!(changed, ["b", "c", "d"]);
    }
}
