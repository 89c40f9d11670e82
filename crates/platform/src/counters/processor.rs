//! [`Processor`]: the core PMUs of this machine, and the events that they count.

use std::fs;
use std::io;
use std::path::Path;

use host::if_exists;

use super::encoding::{ARM64, Encoding, Event, Quantity, amd_zen, intel};
use super::unavailable::Unavailable;

/// A core PMU in /sys/bus/event_source/devices.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pmu {
    name: String,
    pmu_type: u32,
    /// The named events that are used, with their numbers (arm64).
    named: Vec<Encoding>,
}

/// The maker of the processor, as far as it decides the events.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Maker {
    Intel {
        family: u32,
        model: u32,
    },
    Amd {
        family: u32,
        model: u32,
    },
    /// The events have names in sysfs.
    Named,
    Other {
        vendor: String,
    },
}

/// The processor of a machine and its core PMUs; more than one where cores differ.
#[derive(Debug)]
pub struct Processor {
    maker: Maker,
    pmus: Vec<Pmu>,
}

impl Processor {
    /// Reads /proc/cpuinfo and /sys/bus/event_source/devices.
    pub fn of_this_machine() -> Result<Processor, Unavailable> {
        let cpuinfo = Path::new("/proc/cpuinfo");
        let text = host::content(cpuinfo).map_err(|error| Unavailable::unreadable(cpuinfo, &error))?;
        Processor::read(&text, Path::new("/sys/bus/event_source/devices"))
    }

    fn read(cpuinfo: &str, devices: &Path) -> Result<Processor, Unavailable> {
        let pmus = core_pmus(devices)?;
        if pmus.is_empty() {
            return Err(Unavailable::no_pmu(cpuinfo));
        }
        Ok(Processor { maker: maker(cpuinfo, &pmus), pmus })
    }

    /// The events that count page walks, cycles and instructions on all PMUs.
    pub fn events(&self) -> Result<Vec<Event>, Unavailable> {
        let mut events = Vec::new();
        for pmu in &self.pmus {
            let encodings = self.encodings(pmu).ok_or_else(|| self.unknown(pmu))?;
            let event =
                |(quantity, config): &Encoding| Event { quantity: *quantity, pmu_type: pmu.pmu_type, config: *config };
            events.extend(encodings.iter().map(event));
        }
        Ok(events)
    }

    fn encodings<'a>(&self, pmu: &'a Pmu) -> Option<&'a [Encoding]> {
        match self.maker {
            Maker::Intel { family: 6, model } => intel(model, &pmu.name),
            Maker::Amd { family, model } => amd_zen(family, model),
            Maker::Named => Some(&pmu.named),
            Maker::Intel { .. } | Maker::Other { .. } => None,
        }
    }

    fn unknown(&self, pmu: &Pmu) -> Unavailable {
        let processor = match &self.maker {
            Maker::Intel { family, model } => format!("Intel family {family} model {model:#04x}"),
            Maker::Amd { family, model } => format!("AMD family {family:#x} model {model:#04x}"),
            Maker::Named => "this processor".to_string(),
            Maker::Other { vendor } => format!("a processor of {vendor}"),
        };
        Unavailable {
            reason: format!(
                "the numbers of the page-walk events of {processor} (PMU {}) are not known to pagelab",
                pmu.name
            ),
            remedy: "`perf list` may know them; add them to crates/platform/src/counters/encoding.rs with their source"
                .into(),
        }
    }
}

fn maker(cpuinfo: &str, pmus: &[Pmu]) -> Maker {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim())
        })
    };
    let number = |name: &str| field(name).and_then(|value| value.parse().ok());
    match (field("vendor_id"), number("cpu family"), number("model")) {
        (Some("GenuineIntel"), Some(family), Some(model)) => Maker::Intel { family, model },
        (Some("AuthenticAMD"), Some(family), Some(model)) => Maker::Amd { family, model },
        _ if pmus.iter().all(|pmu| !pmu.named.is_empty()) => Maker::Named,
        (vendor, ..) => Maker::Other { vendor: vendor.unwrap_or("an unknown maker").to_string() },
    }
}

/// The core PMUs: `cpu`, or `cpu_core` and `cpu_atom` on x86; on arm64 those that name a walk event. A PMU that cannot be read is
/// an error, because it would be missing from every count.
fn core_pmus(devices: &Path) -> Result<Vec<Pmu>, Unavailable> {
    let unreadable = |error: io::Error| Unavailable::unreadable(devices, &error);
    let mut pmus = Vec::new();
    for entry in if_exists(fs::read_dir(devices)).map_err(unreadable)?.into_iter().flatten() {
        pmus.extend(core_pmu(&entry.map_err(unreadable)?.path())?);
    }
    pmus.sort_by(|one: &Pmu, other| one.name.cmp(&other.name));
    Ok(pmus)
}

fn core_pmu(directory: &Path) -> Result<Option<Pmu>, Unavailable> {
    // The kernel's names of PMUs are ASCII.
    let Some(name) = directory.file_name().and_then(|name| name.to_str()).map(String::from) else { return Ok(None) };
    let mut named: Vec<Encoding> = Vec::new();
    for (quantity, event) in ARM64 {
        named.extend(named_event(directory, event)?.map(|config| (quantity, config)));
    }
    let walks = named.iter().any(|(quantity, _)| matches!(quantity, Quantity::DataWalks | Quantity::InstructionWalks));
    if matches!(name.as_str(), "cpu" | "cpu_core" | "cpu_atom") {
        named.clear();
    } else if !walks {
        return Ok(None);
    }
    let Some(pmu_type) = number(&directory.join("type"), |text| text.parse().ok())? else { return Ok(None) };
    Ok(Some(Pmu { name, pmu_type, named }))
}

/// The number in a file such as `events/dtlb_walk`, whose content is `event=0x0034`.
fn named_event(directory: &Path, event: &str) -> Result<Option<u64>, Unavailable> {
    let parse = |text: &str| u64::from_str_radix(text.strip_prefix("event=0x")?, 16).ok();
    number(&directory.join("events").join(event), parse)
}

/// The number in a file; `None` where the file does not exist.
fn number<T>(file: &Path, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Unavailable> {
    let text = if_exists(host::content(file)).map_err(|error| Unavailable::unreadable(file, &error))?;
    let parsed = |text: String| {
        let wrong = || io::Error::other(format!("expected a number, found {:?}", text.trim()));
        parse(text.trim()).ok_or_else(|| Unavailable::unreadable(file, &wrong()))
    };
    text.map(parsed).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        root
    }

    const SKYLAKE: &str =
        "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Xeon\nflags\t\t: fpu\n";
    const ALDER_LAKE: &str = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 151\n";
    const MILAN_GUEST: &str =
        "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nflags\t\t: fpu hypervisor rep_good\n";

    #[test]
    fn an_intel_server_has_eight_events_on_one_pmu() {
        let root = devices(&[("cpu/type", "4\n"), ("software/type", "1\n"), ("uncore_imc/type", "20\n")]);
        let events = Processor::read(SKYLAKE, root.path()).unwrap().events().unwrap();
        assert_eq!(events.len(), 8);
        assert!(events.contains(&Event { quantity: Quantity::LoadWalks, pmu_type: 4, config: 0x0e08 }));
    }

    #[test]
    fn a_hybrid_processor_is_counted_on_both_kinds_of_cores() {
        let root = devices(&[("cpu_core/type", "4\n"), ("cpu_atom/type", "10\n")]);
        let events = Processor::read(ALDER_LAKE, root.path()).unwrap().events().unwrap();
        let loads: Vec<_> = events.iter().filter(|event| event.quantity == Quantity::LoadWalks).collect();
        assert_eq!(
            loads.iter().map(|event| (event.pmu_type, event.config)).collect::<Vec<_>>(),
            [(10, 0x0e08), (4, 0x0e12)]
        );
    }

    #[test]
    fn arm64_events_come_from_sysfs_and_only_those_that_the_core_has() {
        let root = devices(&[
            ("armv8_cortex_a76/type", "8\n"),
            ("armv8_cortex_a76/events/dtlb_walk", "event=0x0034\n"),
            ("armv8_cortex_a76/events/cpu_cycles", "event=0x0011\n"),
            ("arm_cmn_0/type", "9\n"),
        ]);
        let events = Processor::read("CPU implementer\t: 0x41\n", root.path()).unwrap().events().unwrap();
        let expected = [(Quantity::DataWalks, 0x34), (Quantity::Cycles, 0x11)];
        assert_eq!(events, expected.map(|(quantity, config)| Event { quantity, pmu_type: 8, config }));
    }

    #[test]
    fn a_guest_without_pmu_says_that_its_hypervisor_gives_none() {
        let root = devices(&[("software/type", "1\n"), ("msr/type", "6\n")]);
        let unavailable = Processor::read(MILAN_GUEST, root.path()).unwrap_err();
        assert!(unavailable.reason.contains("virtual machine"), "{unavailable}");
        assert!(unavailable.remedy.contains("pmu=on"), "{unavailable}");
        let bare = Processor::read(SKYLAKE, Path::new("/nonexistent")).unwrap_err();
        assert!(!bare.reason.contains("virtual machine"), "{bare}");
    }

    #[test]
    fn a_pmu_that_cannot_be_read_is_not_left_out() {
        let root = devices(&[("cpu_core/type", "4\n"), ("cpu_atom/type", "ten\n")]);
        let garbled = Processor::read(ALDER_LAKE, root.path()).unwrap_err();
        assert!(garbled.reason.contains("cpu_atom/type") && garbled.reason.contains("\"ten\""), "{garbled}");
        std::fs::remove_file(root.path().join("cpu_atom/type")).unwrap();
        std::fs::create_dir(root.path().join("cpu_atom/type")).unwrap();
        let unreadable = Processor::read(ALDER_LAKE, root.path()).unwrap_err();
        assert!(unreadable.reason.contains("cpu_atom/type: Is a directory"), "{unreadable}");
        assert!(Processor::read(ALDER_LAKE, &root.path().join("cpu_core/type")).is_err(), "no directory of devices");
    }

    #[test]
    fn an_unknown_model_is_named() {
        let root = devices(&[("cpu/type", "4\n")]);
        let sandy_bridge = SKYLAKE.replace("85", "42");
        let unavailable = Processor::read(&sandy_bridge, root.path()).unwrap().events().unwrap_err();
        assert!(unavailable.reason.contains("Intel family 6 model 0x2a"), "{unavailable}");
        let other = Processor::read("vendor_id : CentaurHauls\n", root.path()).unwrap().events().unwrap_err();
        assert!(other.reason.contains("CentaurHauls"), "{other}");
    }
}
