//! [`Processor`] of a host by the name that machine files use, and what it reports about address translation.

use crate::Root;
use crate::read::HostError;
use crate::tlbs::{self, ReportedTlb};

/// A host's processor, and what is known about its address translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processor {
    /// The name that machine files use: `VENDOR/FAMILY/MODEL` in decimal (x86), `IMPLEMENTER/PART` (arm64), the `uarch` (RISC-V);
    /// empty where /proc/cpuinfo has none of these.
    pub id: String,
    /// The name of the page-table format that the kernel uses, without options, where /proc/cpuinfo shows it: `x86-64`,
    /// `x86-64-la57`, `sv48`.
    pub table_format: Option<String>,
    /// Its TLBs from CPUID; empty where CPUID does not report them: another instruction set, a captured host, a hypervisor that
    /// leaves these leaves empty.
    pub tlbs: Vec<ReportedTlb>,
}

/// Reads the processor of a host; CPUID is used only on the running host.
pub(crate) fn read(root: &Root) -> Result<Processor, HostError> {
    let cpuinfo = root.required("/proc/cpuinfo")?;
    let id = id(&cpuinfo);
    let tlbs = if root.is_live() { tlbs::of_cpuid(&id) } else { Vec::new() };
    Ok(Processor { table_format: table_format(&cpuinfo), id, tlbs })
}

/// The value of a field for the first processor that has it.
fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

fn id(cpuinfo: &str) -> String {
    let joined = |names: &[&str]| {
        let all: Option<Vec<&str>> = names.iter().map(|name| field(cpuinfo, name)).collect();
        all.map(|all| all.join("/"))
    };
    let x86 = joined(&["vendor_id", "cpu family", "model"]);
    let known = x86.or_else(|| joined(&["CPU implementer", "CPU part"]));
    known.or_else(|| joined(&["uarch"])).unwrap_or_default()
}

/// Linux leaves out the flag `la57` where it does not use five levels (`no5lvl`, or its configuration); RISC-V's `mmu` is the
/// mode that the kernel was started with.
fn table_format(cpuinfo: &str) -> Option<String> {
    match (field(cpuinfo, "mmu"), field(cpuinfo, "flags")) {
        (Some(mmu), _) if mmu.starts_with("sv") => Some(mmu.to_owned()),
        (_, Some(flags)) => {
            let mut flags = flags.split_whitespace();
            Some(if flags.any(|flag| flag == "la57") { "x86-64-la57" } else { "x86-64" }.to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_read_from_cpuinfo() {
        let amd = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n";
        assert_eq!(id(amd), "AuthenticAMD/25/1");
        assert_eq!(id("CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n"), "0x41/0xd0c");
        assert_eq!(id("hart\t: 0\nuarch\t: sifive,u74-mc\n"), "sifive,u74-mc");
        assert_eq!(id(""), "");
    }

    #[test]
    fn the_levels_of_page_tables_are_those_that_the_kernel_uses() {
        assert_eq!(table_format("flags\t: fpu lm la57\n").as_deref(), Some("x86-64-la57"));
        assert_eq!(table_format("flags\t: fpu lm\n").as_deref(), Some("x86-64"));
        assert_eq!(table_format("hart\t: 0\nmmu\t\t: sv48\n").as_deref(), Some("sv48"));
        assert_eq!(table_format("mmu\t: none\n"), None);
        assert_eq!(table_format("CPU implementer\t: 0x41\n"), None);
    }

    #[test]
    fn captured_hosts_have_their_processors() {
        let fixture = |name: &str| format!("{}/../../fixtures/host/{name}", env!("CARGO_MANIFEST_DIR"));
        let of = |name: &str| read(&Root::open(fixture(name)).unwrap()).unwrap();
        let zen = of("x86_64-6.18");
        assert_eq!((zen.id.as_str(), zen.table_format.as_deref()), ("AuthenticAMD/25/1", Some("x86-64")));
        assert!(zen.tlbs.is_empty(), "CPUID describes another processor");
        assert_eq!((of("aarch64-64k-6.12").id.as_str(), of("aarch64-64k-6.12").table_format), ("0x41/0xd0c", None));
        let p670 = of("riscv64-6.12");
        assert_eq!((p670.id.as_str(), p670.table_format.as_deref()), ("sifive,p670", Some("sv48")));
    }
}
