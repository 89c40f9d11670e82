//! The properties of the machine that do not change while it runs.

use policy::machine::{DirectMap, Machine};
use sha2::{Digest, Sha256};

use super::absent;
use super::read::{self, HostError};
use super::{Host, Root};

const ONLINE: &str = "/sys/devices/system/cpu/online";
/// More than any kernel supports (CONFIG_NR_CPUS).
const MAX_PROCESSORS: usize = 1 << 16;

pub fn read(host: &Host) -> Result<Machine, HostError> {
    let root = &host.root;
    let line = |path: &str| Ok::<String, HostError>(root.required(path)?.trim().to_string());
    let cpuinfo = root.required("/proc/cpuinfo")?;
    let meminfo = root.required("/proc/meminfo")?;
    Ok(Machine {
        name: "host".into(),
        arch: arch(root)?,
        kernel: format!("{} {}", line("/proc/sys/kernel/osrelease")?, line("/proc/sys/kernel/version")?),
        kernel_command_line: line("/proc/cmdline")?,
        boot_id: line("/proc/sys/kernel/random/boot_id")?,
        host_id: host_id(root)?,
        cpu_model: cpu_model(&cpuinfo),
        cpus: online_processors(root)?.len() as u32,
        memory_bytes: total_memory(root, &meminfo)?,
        hypervisor: hypervisor(host, &cpuinfo),
        page_sizes: host.page_sizes.clone(),
        direct_map: direct_map(host, &meminfo)?,
    })
}

/// The direct map from the kernel's counters. The dump of page tables that other kernels have takes too long to read here.
fn direct_map(host: &Host, meminfo: &str) -> Result<Option<DirectMap>, HostError> {
    let Some(leaves) = crate::direct_map::counted_leaves(meminfo, host)? else { return Ok(None) };
    let mark = crate::direct_map::mark_of(&host.root, host.page_sizes.base);
    Ok(Some(DirectMap { leaf: leaves.dominant(), demoted_to: mark.map(|mark| mark.leaf) }))
}

/// The kernel's name of the instruction set: from a file since Linux 6.1, otherwise from uname(2), which is only valid for the
/// running kernel.
fn arch(root: &Root) -> Result<String, HostError> {
    match root.required("/proc/sys/kernel/arch") {
        Ok(arch) => Ok(arch.trim().to_string()),
        Err(missing) if !root.is_live() => Err(missing),
        Err(missing) => {
            let name = nix::sys::utsname::uname().map_err(|_| missing)?;
            Ok(name.machine().to_string_lossy().into_owned())
        }
    }
}

/// Identifies the host. The machine id must not be disclosed (machine-id(5)), so it is hashed together with pagelab's name.
fn host_id(root: &Root) -> Result<Option<String>, HostError> {
    let id = absent::text(root, "/etc/machine-id")?;
    let hashed = |id: &str| {
        let hash = Sha256::digest(format!("pagelab host {id}"));
        hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    };
    Ok(id.as_deref().map(str::trim).filter(|id| !id.is_empty() && *id != "uninitialized").map(hashed))
}

/// The processor's name in the field that the architecture uses: `model name` (x86), `uarch` (RISC-V), `cpu` (POWER), or the
/// implementer and part numbers of the MIDR register (arm64).
fn cpu_model(cpuinfo: &str) -> String {
    let field = |name: &str| {
        let value = |line: &str| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name && !value.trim().is_empty()).then(|| value.trim().to_string())
        };
        cpuinfo.lines().find_map(value)
    };
    let arm = || {
        let (implementer, part) = (field("CPU implementer")?, field("CPU part")?);
        let (variant, revision) = (field("CPU variant")?, field("CPU revision")?);
        Some(format!("implementer {implementer} part {part} variant {variant} revision {revision}"))
    };
    let named = ["model name", "uarch", "cpu model", "cpu"].iter().find_map(|name| field(name));
    let named = named.or_else(arm).or_else(|| field("isa"));
    named.unwrap_or_else(|| "unknown: /proc/cpuinfo does not say".into())
}

/// The numbers of the processors that are online.
pub fn online_processors(root: &Root) -> Result<Vec<usize>, HostError> {
    let text = root.required(ONLINE)?;
    processors(text.trim()).ok_or_else(|| HostError::Unexpected {
        path: root.under(ONLINE),
        expected: "a list of processors such as 0-3,8",
        found: text.trim().to_string(),
    })
}

/// The processors of a list such as `0-3,8`; `None` for anything else.
fn processors(list: &str) -> Option<Vec<usize>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last && last < MAX_PROCESSORS).then_some(first..=last)
    };
    let ranges: Option<Vec<_>> = list.split(',').map(range).collect();
    Some(ranges?.into_iter().flatten().collect())
}

fn total_memory(root: &Root, meminfo: &str) -> Result<u64, HostError> {
    read::keyed_bytes(meminfo, "MemTotal").ok_or_else(|| HostError::Unexpected {
        path: root.under("/proc/meminfo"),
        expected: "a line MemTotal",
        found: "none".into(),
    })
}

/// Evidence of a hypervisor: its name in sysfs (Xen), its CPUID signature, the firmware's product name, or only the
/// processor's flag `hypervisor`.
fn hypervisor(host: &Host, cpuinfo: &str) -> Option<String> {
    let virtual_cpu = cpuinfo.lines().any(|line| {
        line.strip_prefix("flags").is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
    });
    // A file that cannot be read does not show a hypervisor; the error is reported.
    let value = |path: &str| host.value(path).unwrap_or_else(|error| Some(format!("unknown: {error}")));
    let firmware = || {
        let vendor = value("/sys/class/dmi/id/sys_vendor")?;
        // Firmware may not name the product.
        let product = value("/sys/class/dmi/id/product_name").unwrap_or_default();
        let known = ["QEMU", "VMware", "Xen", "innotek", "Amazon EC2", "Google", "Parallels", "Bochs"];
        let is_virtual = virtual_cpu
            || known.iter().any(|name| vendor.starts_with(name))
            || product.contains("Virtual")
            || product.contains("KVM")
            || vendor.starts_with("unknown: ");
        is_virtual.then(|| format!("{vendor} {product}").trim().to_string())
    };
    let tree = || value("/proc/device-tree/hypervisor/compatible").map(|name| name.replace('\0', " "));
    let flag = || virtual_cpu.then(|| "unknown: only the processor flag shows one".to_string());
    let from_cpuid = || cpuid_signature().filter(|_| virtual_cpu && host.is_live());
    value("/sys/hypervisor/type").or_else(from_cpuid).or_else(firmware).or_else(tree).or_else(flag)
}

/// The twelve letters of CPUID leaf 0x40000000, replaced by the name of the hypervisor where it is well known
/// (Documentation/virt/kvm/x86/cpuid.rst; arch/x86/kernel/cpu/hypervisor.c).
#[cfg(target_arch = "x86_64")]
fn cpuid_signature() -> Option<String> {
    let leaf = core::arch::x86_64::__cpuid(0x4000_0000);
    let bytes: Vec<u8> = [leaf.ebx, leaf.ecx, leaf.edx].iter().flat_map(|word| word.to_le_bytes()).collect();
    let text = String::from_utf8_lossy(&bytes).trim_end_matches('\0').trim().to_string();
    let known = match text.as_str() {
        "KVMKVMKVM" => "KVM",
        "Microsoft Hv" => "Hyper-V",
        "VMwareVMware" => "VMware",
        "XenVMMXenVMM" => "Xen",
        "TCGTCGTCGTCG" => "QEMU TCG",
        "bhyve bhyve" => "bhyve",
        other => other,
    };
    (!known.is_empty()).then(|| known.to_string())
}

#[cfg(not(target_arch = "x86_64"))]
fn cpuid_signature() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_lists_are_parsed() {
        assert_eq!(processors("0-3,8,10-11").unwrap(), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(processors("0").unwrap(), [0]);
        assert!(["3-1", "", "0-4294967295"].iter().all(|list| processors(list).is_none()));
    }

    #[test]
    fn the_processor_is_named_as_its_architecture_does() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: AMD EPYC\n"), "AMD EPYC");
        let arm = "CPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n";
        assert_eq!(cpu_model(arm), "implementer 0x41 part 0xd0c variant 0x3 revision 1");
        assert_eq!(cpu_model("hart\t: 0\nisa\t\t: rv64imafdc\nuarch\t\t: sifive,u74-mc\n"), "sifive,u74-mc");
        assert!(cpu_model("").starts_with("unknown"));
    }
}
