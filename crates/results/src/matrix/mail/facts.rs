//! What a reader needs to judge the figures of a mail: the machines, their kernels and settings.

use std::collections::BTreeMap;

use policy::Granularity;
use policy::machine::{Execution, Machine};
use policy::size::format_bytes;
use study::comparison::Comparison;
use study::guest::{kernel_of, processor_of};
use study_files::definition::Boot;

use super::super::HostOf;
use super::layout::fact;
use crate::figure;

/// Directory of the settings of transparent huge pages.
const THP: &str = "/sys/kernel/mm/transparent_hugepage/";
/// The settings that are always shown, in this order.
const SHOWN: [&str; 3] = ["enabled", "defrag", "shmem_enabled"];

/// The hosts: each machine once, with the kernels that it ran.
pub fn of_hosts(hosts: &[HostOf], boots: &[Boot]) -> String {
    let is_one_of_several = hosts.len() > 1;
    let mut machines: Vec<(String, Vec<&HostOf>)> = Vec::new();
    for host in hosts {
        let machine = machine(&host.machine);
        match machines.iter_mut().find(|(known, _)| *known == machine) {
            Some((_, all)) => all.push(host),
            None => machines.push((machine, vec![host])),
        }
    }
    let mut text = String::new();
    for (machine, hosts) in &machines {
        text.push_str(&fact("Machine", machine));
        hosts.iter().for_each(|host| text.push_str(&fact("Kernel", &kernel(host, boots, is_one_of_several))));
        hosts.iter().for_each(|host| {
            let whose = if is_one_of_several { format!("{}: ", name(host)) } else { String::new() };
            let settings = host.settings.as_ref();
            settings.into_iter().for_each(|settings| text.push_str(&fact("THP", &format!("{whose}{settings}"))));
        });
    }
    text
}

/// The name of the kernel that pagelab booted, or else of the host.
fn name(host: &HostOf) -> &str {
    kernel_of(&host.machine).unwrap_or(&host.label)
}

/// `AMD EPYC (x86_64), 2 processors, 24G of memory, guest of KVM; base pages of 4K`
fn machine(machine: &Machine) -> String {
    let processors = if machine.cpus == 1 { "1 processor".to_owned() } else { format!("{} processors", machine.cpus) };
    let by = match (machine.execution(), &machine.hypervisor) {
        (Execution::Emulated, _) => "emulated".to_owned(),
        (_, Some(name)) => format!("guest of {name}"),
        (_, None) => "no hypervisor detected".to_owned(),
    };
    format!(
        "{} ({}), {processors}, {} of memory, {by}; base pages of {}",
        processor_of(machine),
        machine.arch,
        format_bytes(machine.rounded_memory_bytes()),
        machine.page_sizes.base
    )
}

/// The release and the build of a kernel. If pagelab booted the kernel, also its image.
fn kernel(host: &HostOf, boots: &[Boot], is_one_of_several: bool) -> String {
    let label = if is_one_of_several { format!("{}: ", name(host)) } else { String::new() };
    let kernel = kernel_of(&host.machine);
    let guest = boots.iter().find(|boot| Some(boot.name.as_str()) == kernel).and_then(|boot| boot.guest.as_ref());
    let hash = study::guest::image_hash(&host.machine).map(|hash| format!(", SHA-256 {hash}...")).unwrap_or_default();
    let image = guest.map(|guest| format!("; image {}{hash}", guest.image)).unwrap_or_default();
    let words = guest.map(|guest| guest.cmdline.as_str()).filter(|words| !words.is_empty());
    let words = words.map(|words| format!("; booted with {words}")).unwrap_or_default();
    format!("{label}{}{image}{words}", host.machine.kernel)
}

/// The settings of transparent huge pages in the baseline's first run: `enabled madvise, defrag madvise`.
pub fn settings(comparison: &Comparison) -> Option<String> {
    let of_baseline = |record: &&study::trial::TrialRecord| record.trial.arm == comparison.design.baseline;
    let settings: &BTreeMap<String, String> = &comparison.trials.iter().find(of_baseline)?.state_before.settings;
    let value = |name: &str| Some(format!("{name} {}", settings.get(&format!("{THP}{name}"))?));
    let of_size = |(path, value): (&String, &String)| {
        let size = path.strip_prefix(THP)?.strip_prefix("hugepages-")?.strip_suffix("kB/enabled")?;
        let bytes = size.parse::<u64>().ok()? << 10;
        (value != "never" && value != "inherit").then(|| format!("mTHP {} {value}", format_bytes(bytes)))
    };
    let shown: Vec<String> = SHOWN.into_iter().filter_map(value).chain(settings.iter().filter_map(of_size)).collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// The number of runs, and their order.
pub fn design(comparison: &Comparison) -> String {
    let design = &comparison.design;
    let khugepaged = figure::khugepaged(design);
    format!(
        "in blocks: each block runs every policy once, in random order (seed {}); the first block does not count. khugepaged: {khugepaged}",
        design.seed
    )
}

/// How a policy is applied to the program.
pub fn of_policy(granularity: Granularity) -> String {
    let advised =
        |size: &str| format!("MADV_HUGEPAGE after each mmap and brk of the program, with {size} as the only size");
    match granularity {
        Granularity::Default => "as the kernel's settings are".to_owned(),
        Granularity::Base => "base pages only: prctl(PR_SET_THP_DISABLE) before the program starts".to_owned(),
        Granularity::Thp => advised("the leaf of a PMD"),
        Granularity::Mthp(size) => advised(&format!("folios of {size}")),
        Granularity::Hugetlb(size) => format!("pages of a hugetlb pool of {size} (MAP_HUGETLB)"),
        Granularity::DirectMap(_) => "the kernel's own mapping of memory, without a change to the program".to_owned(),
    }
}
