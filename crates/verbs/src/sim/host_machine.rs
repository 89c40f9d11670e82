//! The machine `host` of `sim` ([`HostMachine`]): the machine file that describes this host's processor. Facts read from
//! this host fill in what the file leaves open, and notes list what is unknown.

use host::{Host, ReportedTlb};
use model::machine::{self, AccessKind, Figure, Machine, Provenance, Stage2, TableFormat};
use policy::size::{PageSize, format_bytes};

use crate::failure::Failure;

/// The machine's name on the command line.
pub const NAME: &str = "host";
/// The assumed second-stage page size of a virtual machine.
const GUEST_PAGE: PageSize = PageSize::M2;
/// Entries and ways of the assumed TLB for second-stage translations.
const NESTED_TLB: (u32, u32) = (64, 4);

/// This host as a model machine.
pub struct HostMachine {
    /// The model machine.
    pub machine: Machine,
    /// Notes on known and unknown properties, and what to do about the unknown ones.
    pub notes: Vec<String>,
}

/// Models this host as a machine. If no machine file describes its processor, the error lists candidates.
pub fn of_this_host() -> Result<HostMachine, Failure> {
    of(&Host::open("/").map_err(Failure::input)?)
}

fn of(host: &Host) -> Result<HostMachine, Failure> {
    let processor = host.processor().map_err(Failure::input)?;
    let here = host.machine().map_err(Failure::input)?;
    let (name, architecture, hypervisor) = (here.cpu_model, here.arch, here.hypervisor);
    let described = known().find(|machine| machine.is_cpu(&processor.id));
    let Some(mut machine) = described else {
        return Err(Failure::Input(no_match_message(&processor.id, &name, &architecture, hypervisor.as_deref())));
    };
    let mut notes = vec![format!("{NAME} is {name} ({}), which {} describes", processor.id, machine.name)];
    notes.extend(compare_tlbs(&machine, &processor.tlbs, hypervisor.as_deref()));
    notes.push(keep_used_format(&mut machine, processor.table_format.as_deref(), host.page_sizes().base));
    if let Some(hypervisor) = hypervisor {
        notes.push(nest(&mut machine, &hypervisor));
    }
    machine.processor = format!("{}, as this host has it", machine.processor);
    machine.name = NAME.to_owned();
    Ok(HostMachine { machine, notes })
}

/// The built-in machines.
fn known() -> impl Iterator<Item = Machine> {
    machine::BUILT_IN.iter().filter_map(|(name, _)| machine::built_in(name).ok())
}

/// The message if no machine file describes this processor, with the nearest ones.
fn no_match_message(id: &str, name: &str, architecture: &str, hypervisor: Option<&str>) -> String {
    let shown = match hypervisor {
        Some(hypervisor) => format!(", or what {hypervisor} shows of it: a hypervisor may hide which one it is"),
        None => String::new(),
    };
    let vendor = |id: &str| id.split(['/', ',']).next().unwrap_or_default().to_owned();
    let is_near = |machine: &Machine| machine.cpus.iter().any(|cpu| !id.is_empty() && vendor(cpu) == vendor(id));
    let is_of_this_set = |machine: &Machine| machine.architecture.name() == architecture;
    let listed = |machines: Vec<Machine>| {
        let one = |machine: &Machine| format!("{} ({})", machine.name, machine.processor);
        machines.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let near: Vec<Machine> = known().filter(is_near).collect();
    let candidates = if !near.is_empty() {
        format!("those of its maker: {}", listed(near))
    } else {
        format!("those of its instruction set: {}", listed(known().filter(is_of_this_set).collect()))
    };
    format!(
        "machine \"{NAME}\": no machine file describes this processor ({}, {name}{shown}); {candidates}; name one of them with -m, \
         or give a FILE.toml of your own (`pagelab list machines NAME` shows what such a file says)",
        if id.is_empty() { "unknown: /proc/cpuinfo does not say" } else { id }
    )
}

/// Of the page-table formats with the kernel's base page, keeps only the one in use, and puts it first. Returns a note
/// about that.
fn keep_used_format(machine: &mut Machine, used: Option<&str>, base: PageSize) -> String {
    let is_of_base = |format: &TableFormat| base_bytes(format) == base.bytes();
    let is_used = |format: &TableFormat| used.is_none_or(|used| format.name.split('+').next() == Some(used));
    let Some(at) = machine.formats.iter().position(|format| is_of_base(format) && is_used(format)) else {
        return format!(
            "its kernel uses {} with base pages of {base}, which {} does not have: {} is taken",
            used.unwrap_or("a format that is not shown"),
            machine.name,
            machine.formats[0].name
        );
    };
    let format = machine.formats.remove(at);
    machine.formats.retain(|other| !is_of_base(other));
    machine.formats.insert(0, format.clone());
    let (source, provenance) = match used {
        Some(_) => ("as /proc/cpuinfo reports", Provenance::Source("/proc/cpuinfo of this host".to_owned())),
        None => {
            let why = "the base page is this kernel's; no file shows how many bits of address it was built with";
            (why, Provenance::Assumed(why.to_owned()))
        }
    };
    machine.figures.retain(|figure| figure.key != "formats");
    machine.figures.insert(0, Figure { key: "formats".to_owned(), value: format.name.clone(), provenance });
    format!("its page tables are {}: {source}", format.name)
}

fn base_bytes(format: &TableFormat) -> u64 {
    paging::with_format!(&format.format, format => paging::Format::geometry(format).page_bytes())
}

/// Makes page walks two-dimensional, for a virtual machine. A guest cannot see the properties of the second stage, so the
/// note says what is assumed.
fn nest(machine: &mut Machine, hypervisor: &str) -> String {
    let name = match machine.architecture {
        machine::Architecture::X86_64 => "x86-64",
        machine::Architecture::Arm64 => "arm64-s2-4k-48",
        machine::Architecture::RiscV64 => "sv48x4",
    };
    let Ok(format) = name.parse() else {
        return format!("it is a virtual machine ({hypervisor}): walks are not modelled as nested");
    };
    let (entries, ways) = NESTED_TLB;
    let format = TableFormat { name: name.to_owned(), format };
    machine.stage2 = Some(Stage2 { format, page: GUEST_PAGE, sets: entries / ways, ways });
    let why = "a guest cannot see it";
    let values = [
        ("format", name.to_owned()),
        ("page", GUEST_PAGE.to_string()),
        ("tlb_entries", entries.to_string()),
        ("tlb_ways", ways.to_string()),
    ];
    machine.figures.extend(values.map(|(key, value)| Figure {
        key: format!("stage2.{key}"),
        value,
        provenance: Provenance::Assumed(why.to_owned()),
    }));
    format!(
        "it is a virtual machine ({hypervisor}): walks are nested. A guest cannot see how the hypervisor maps its memory: leaves \
         of {} are assumed, and no TLB entry covers more. If the hypervisor uses 4K, no policy saves entries. `pagelab sim \
         chase` shows whether large pages reach further here",
        GUEST_PAGE
    )
}

/// Notes on differences between CPUID and the machine file, or a note that CPUID reports no TLBs.
fn compare_tlbs(machine: &Machine, reported: &[ReportedTlb], hypervisor: Option<&str>) -> Vec<String> {
    if reported.is_empty() {
        let why = hypervisor.map_or(String::new(), |hypervisor| format!(" under {hypervisor}"));
        return vec![format!("CPUID does not report the TLBs{why}: those of {} are used", machine.name)];
    }
    let mut kinds: Vec<(u8, AccessKind, u64)> = Vec::new();
    for tlb in reported {
        let serves = [(tlb.fetch, AccessKind::Fetch), (tlb.load, AccessKind::Load)];
        kinds.extend(serves.into_iter().filter(|(is, _)| *is).map(|(_, serves)| (tlb.level, serves, tlb.page_bytes)));
    }
    kinds.sort_by_key(|(level, serves, bytes)| (*level, *serves == AccessKind::Load, *bytes));
    kinds.dedup();
    let other = |(level, serves, bytes): (u8, AccessKind, u64)| {
        let is_of = |tlb: &&ReportedTlb| {
            (tlb.level, tlb.page_bytes) == (level, bytes)
                && if serves == AccessKind::Fetch { tlb.fetch } else { tlb.load }
        };
        let reported: u32 = reported.iter().filter(is_of).map(|tlb| tlb.entries).sum();
        let holds = machine.tlbs.iter().filter(|tlb| {
            tlb.level == level && tlb.serves.contains(&serves) && tlb.holds.iter().any(|size| size.bytes() == bytes)
        });
        let modelled: u32 = holds.map(|tlb| tlb.entries()).sum();
        (reported != modelled).then(|| {
            format!(
                "CPUID reports {reported} entries of {} at level {level} for {}; those of {}, {modelled}, are modelled",
                format_bytes(bytes),
                if serves == AccessKind::Fetch { "fetches" } else { "loads" },
                machine.name
            )
        })
    };
    let differ: Vec<String> = kinds.into_iter().filter_map(other).collect();
    if differ.is_empty() {
        return vec![format!("CPUID reports the TLBs that {} has", machine.name)];
    }
    differ
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(name: &str) -> Host {
        Host::open(format!("{}/../../fixtures/host/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn a_virtual_machine_has_nested_walks_whose_second_stage_is_assumed() {
        let HostMachine { machine, notes } = of(&captured("x86_64-6.18")).unwrap();
        assert_eq!((machine.name.as_str(), machine.formats[0].name.as_str()), ("host", "x86-64"));
        assert_eq!(machine.stage2.as_ref().map(|stage2| stage2.page), Some(PageSize::M2));
        let assumed = |key: &str| {
            let figure = machine.figures.iter().find(|figure| figure.key == key).unwrap();
            matches!(figure.provenance, Provenance::Assumed(_))
        };
        assert!(assumed("stage2.page") && assumed("stage2.tlb_entries") && !assumed("formats"));
        let text = notes.join("\n");
        for part in [
            "host is AMD EPYC (AuthenticAMD/25/1), which zen-3 describes",
            "CPUID does not report",
            "leaves of 2M are assumed",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn the_base_page_of_the_kernel_chooses_the_page_tables() {
        let HostMachine { machine, notes } = of(&captured("aarch64-64k-6.12")).unwrap();
        assert_eq!(machine.formats[0].name, "arm64-64k-48");
        assert!(machine.formats[1..].iter().all(|format| base_bytes(format) != 65536));
        assert!(notes.iter().any(|note| note.contains("how many bits of address")), "{notes:?}");
        let mut known = machine::built_in("zen-3").unwrap();
        let note = keep_used_format(&mut known, Some("x86-64-la57"), PageSize::K4);
        assert!(
            note.contains("x86-64-la57 with base pages of 4K, which zen-3 does not have: x86-64 is taken"),
            "{note}"
        );
        let mut known = machine::built_in("ice-lake").unwrap();
        keep_used_format(&mut known, Some("x86-64-la57"), PageSize::K4);
        assert_eq!(known.formats.iter().map(|format| format.name.as_str()).collect::<Vec<_>>(), ["x86-64-la57"]);
    }

    #[test]
    fn a_processor_that_no_file_describes_is_refused_with_candidates() {
        let message = of(&captured("riscv64-6.12")).err().unwrap().to_string();
        assert!(message.contains("no machine file describes this processor (sifive,p670"), "{message}");
        assert!(
            message.contains("those of its instruction set: sifive-u74 (") && !message.contains("zen"),
            "{message}"
        );
        let message = no_match_message("GenuineIntel/6/167", "Intel(R) Xeon(R) Processor", "x86_64", Some("KVM"));
        for part in
            ["GenuineIntel/6/167, Intel(R) Xeon(R) Processor, or what KVM shows", "those of its maker: cascade-lake"]
        {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(message.contains("sapphire-rapids (") && !message.contains("zen-"), "{message}");
        assert!(no_match_message("", "?", "x86_64", None).contains("/proc/cpuinfo does not say"));
    }

    #[test]
    fn compares_cpuid_with_the_file() {
        let zen = machine::built_in("zen-3").unwrap();
        let tlb = |entries| ReportedTlb { level: 2, fetch: false, load: true, page_bytes: 4096, entries };
        assert_eq!(compare_tlbs(&zen, &[tlb(2048)], None), ["CPUID reports the TLBs that zen-3 has"]);
        let notes = compare_tlbs(&zen, &[tlb(1024), tlb(512)], None);
        assert_eq!(
            notes,
            ["CPUID reports 1536 entries of 4K at level 2 for loads; those of zen-3, 2048, are modelled"]
        );
        assert!(compare_tlbs(&zen, &[], Some("KVM"))[0].contains("does not report the TLBs under KVM"));
    }
}
