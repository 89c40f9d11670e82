//! `tcg-boot`: QEMU boots an arm64 Linux by translating it, and powers it off.
//!
//! What is measured is the memory that holds translated code. So the guest's memory is a memfd, unless QEMU's default
//! is requested: policies do not act on a memfd, only on QEMU's own memory, most of which is code.

mod buffer;
mod emulator;
mod error;
mod guest;
mod jit;
mod qmp;

use std::path::PathBuf;
use std::time::Duration;

use crate::regions::{Layout, Rule, Version};
use clap::ValueEnum;
use policy::size::{PageSize, format_bytes};
use tracer::child::ChildrenUsage;
use workloads::memory::base_page;
use workloads::random::mix;

pub use error::BootError;

use crate::listing::parse_tb_size;
use buffer::CodeBuffer;
use emulator::Emulator;
use guest::{Guest, Until};
use verbs::lab::Report;
use verbs::lab::report;
use verbs::lab::{WorkloadError, arguments};

/// The most vCPUs of QEMU's arm64 machine (`virt` with a GICv3).
const MAX_CPUS: u32 = 512;

/// Arguments of `tcg-boot`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// QEMU's code buffer: MiB, or a size such as 1G
    #[arg(long, value_name = "SIZE", default_value = "1024", value_parser = parse_tb_size)]
    tb_size: u64,
    /// vCPUs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=MAX_CPUS as i64))]
    smp: u32,
    /// vCPUs that could be plugged in; they decide how the buffer is divided (`pagelab list tcg-regions`): with
    /// 1G, 64 gives regions of 2M and 32 of 4M. Default: as many as --smp
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=MAX_CPUS as i64))]
    max_cpus: Option<u32>,
    /// Regions of this size, by the smallest --max-cpus that gives them; the size of the buffer gives one region
    #[arg(long, value_name = "SIZE", conflicts_with = "max_cpus", value_parser = arguments::size)]
    regions: Option<u64>,
    /// Memory of the guest; default: 512M, and 1G with --until system
    #[arg(long, value_name = "SIZE", value_parser = arguments::size)]
    memory: Option<u64>,
    /// The memory in QEMU that backs the guest's memory
    #[arg(long, value_name = "KIND", default_value = "memfd")]
    memory_kind: MemoryKind,
    /// Touch this much of the code buffer, from its beginning on, before the guest starts, so that the boot time contains
    /// no first touches. On a virtual machine these may wait for the hypervisor, and longer for large pages
    #[arg(long, value_name = "SIZE", value_parser = arguments::size)]
    populate_code: Option<u64>,
    /// How far the guest boots
    #[arg(long, value_enum, default_value = "init")]
    until: Until,
    /// The directory with the guest's `linux` and `initrd` (`initrd-installer` with --until devices, `initrd-system` with
    /// --until system); default: where `cargo xtask tcg-guest` puts them
    #[arg(long, value_name = "DIR")]
    guest: Option<PathBuf>,
    /// QEMU's program
    #[arg(long, value_name = "PROGRAM", default_value = "qemu-system-aarch64")]
    qemu: PathBuf,
    /// Seconds after which a guest that has not powered off counts as hanging
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

/// The memory in QEMU that backs the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MemoryKind {
    /// A shared memfd, on which policies do not act
    Memfd,
    /// Private anonymous memory, QEMU's default; policies act on it too
    Anonymous,
}

impl MemoryKind {
    fn name(self) -> &'static str {
        match self {
            MemoryKind::Memfd => "memfd",
            MemoryKind::Anonymous => "anonymous",
        }
    }
}

/// Boots the guest, and checks that it reached its goal.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let max_cpus = max_cpus(arguments)?;
    check(arguments, max_cpus)?;
    let guest = Guest::find(arguments.guest.as_deref(), arguments.until)?;
    let before = ChildrenUsage::now().map_err(BootError::Usage)?;
    let mut emulator = Emulator::start(arguments, max_cpus, &guest)?;
    if let Some(bytes) = arguments.populate_code {
        CodeBuffer::of_process(emulator.pid())?.populate(emulator.pid(), bytes, base_page())?;
    }
    emulator.start_guest()?;
    let version = emulator.version();
    let regions = Regions::of(version, arguments.tb_size, max_cpus);
    let boot = emulator.wait_for_power_off(Duration::from_secs(arguments.limit))?;
    let jit = emulator.jit()?;
    let buffer = CodeBuffer::of_process(emulator.pid())?;
    let used = regions.as_ref().map(|regions| buffer.used_regions(emulator.pid(), &regions.layout)).transpose()?;
    emulator.quit()?;
    let usage = ChildrenUsage::now().map_err(BootError::Usage)?.since(&before);
    let report = Report::new("tcg-boot", checksum(guest::INIT_MESSAGE))
        .argument("tb_size_bytes", arguments.tb_size)
        .argument("smp", arguments.smp)
        .argument("max_cpus", max_cpus)
        .argument("qemu_version", version.to_string())
        .argument("region_rule", regions.as_ref().map_or("unknown".to_string(), |regions| regions.rule.to_string()));
    let report = match arguments.populate_code {
        Some(bytes) => report.argument("populate_code_bytes", bytes),
        None => report,
    };
    let report = match &regions {
        Some(Regions { layout, .. }) => {
            report.argument("region_count", layout.regions).argument("region_bytes", layout.stride_bytes)
        }
        None => report,
    };
    let report = report
        .argument("memory_bytes", arguments.memory_bytes())
        .argument("memory_kind", arguments.memory_kind.name())
        .argument("until", arguments.until.name())
        .argument("guest", guest.name.clone())
        .figure("boot_s", boot.wall_s)
        .figure("boot_cpu_s", boot.cpu_s)
        .figure("qemu_user_s", usage.user_s)
        .figure("qemu_system_s", usage.system_s)
        .figure("qemu_minor_faults", usage.minor_faults as f64)
        .figure("code_bytes", jit.code_bytes as f64)
        .figure("translation_count", jit.translations as f64)
        .figure("flush_count", jit.flushes as f64)
        .figure("code_area_count", buffer.areas() as f64)
        .figure("code_resident_bytes", buffer.resident_bytes() as f64)
        .figure("code_huge_bytes", buffer.huge_bytes() as f64);
    let report = match used {
        Some(used) => report
            .figure("region_used_count", used as f64)
            .figure("region_used_per_vcpu", used as f64 / f64::from(arguments.smp)),
        None => report,
    };
    Ok(match regions.and_then(|regions| expected(arguments, &regions.layout, &jit, &buffer)) {
        Some(bytes) => report.figure("code_huge_expected_bytes", bytes as f64),
        None => report,
    })
}

/// How QEMU divides its code buffer into regions.
struct Regions {
    rule: Rule,
    layout: Layout,
}

impl Regions {
    /// The division by the rule of this QEMU version; prints a note if the rule is unknown.
    fn of(version: Version, tb_size_bytes: u64, max_cpus: u32) -> Option<Regions> {
        let Some(rule) = Rule::of_version(version) else {
            report(format_args!(
                "pagelab: how QEMU {version} divides its code buffer is not known (known: {}, {}); the report \
                 lacks the regions and the expected large pages",
                Rule::From2_11.versions(),
                Rule::From6_1.versions()
            ));
            return None;
        };
        let layout = Layout::of(rule, tb_size_bytes, max_cpus, base_page()).ok()?;
        Some(Regions { rule, layout })
    }
}

impl Arguments {
    /// The guest's memory in bytes.
    fn memory_bytes(&self) -> u64 {
        self.memory.unwrap_or_else(|| self.until.memory_bytes())
    }
}

/// The number of vCPUs by which QEMU divides its buffer: the given number, or the smallest that results in regions of the
/// given size. This uses the rule since 6.1. The regions that are reported later follow from QEMU's actual version.
fn max_cpus(arguments: &Arguments) -> Result<u32, WorkloadError> {
    let Some(region_bytes) = arguments.regions else { return Ok(arguments.max_cpus.unwrap_or(arguments.smp)) };
    let stride =
        |cpus| Layout::of(Rule::From6_1, arguments.tb_size, cpus, base_page()).ok().map(|one| one.stride_bytes);
    let found = (arguments.smp..=MAX_CPUS).find(|cpus| stride(*cpus) == Some(region_bytes));
    found.ok_or_else(|| {
        let mut sizes: Vec<u64> = (arguments.smp..=MAX_CPUS).filter_map(stride).collect();
        sizes.dedup();
        let sizes: Vec<String> = sizes.into_iter().filter(|size| size.is_power_of_two()).map(format_bytes).collect();
        let buffer = format_bytes(arguments.tb_size);
        let expected = format!("{} for a buffer of {buffer} (--tb-size), or another buffer", sizes.join(", "));
        WorkloadError::Argument { option: "regions", expected, found: format_bytes(region_bytes) }
    })
}

fn check(arguments: &Arguments, max_cpus: u32) -> Result<(), WorkloadError> {
    let wrong = |option, expected: String, found: String| WorkloadError::Argument { option, expected, found };
    if max_cpus < arguments.smp {
        return Err(wrong("max-cpus", format!("at least --smp ({})", arguments.smp), max_cpus.to_string()));
    }
    let least = 64 << 20;
    let memory_bytes = arguments::multiple("memory", arguments.memory_bytes(), 1 << 20, "QEMU counts in MiB")?;
    if (memory_bytes as u64) < least {
        return Err(wrong(
            "memory",
            format!("at least {least} bytes, which the kernel needs"),
            memory_bytes.to_string(),
        ));
    }
    let populated = arguments.populate_code.unwrap_or(0);
    if populated > arguments.tb_size {
        let expected = format!("at most {}, which is all of the buffer (--tb-size)", format_bytes(arguments.tb_size));
        return Err(wrong("populate-code", expected, format_bytes(populated)));
    }
    // QEMU's own memory in addition to the guest's and the code: 120M as measured, without its libraries.
    arguments::room("memory", u128::from(arguments.memory_bytes()) + (256 << 20) + u128::from(populated))?;
    // If the buffer is too small for 2 MiB per vCPU, every rule gives one region to each vCPU.
    Layout::of(Rule::From6_1, arguments.tb_size, max_cpus, base_page())
        .map(drop)
        .map_err(|error| wrong("tb-size", "two base pages for each region".into(), error.to_string()))
}

/// The bytes of code that PMD leaves should map, from the shape of the buffer and the part that was touched. `None`
/// unless one vCPU translated everything and the buffer was not flushed.
fn expected(arguments: &Arguments, layout: &Layout, jit: &jit::Jit, buffer: &CodeBuffer) -> Option<u64> {
    // If the kernel's page sizes cannot be read, no expected bytes are reported.
    let pmd: PageSize = host::Host::open("/").ok()?.page_sizes().pmd?;
    let known = arguments.smp == 1 && jit.flushes == 0;
    let mut touched = layout.touched(jit.code_bytes);
    touched.extend(arguments.populate_code.map(|bytes| 0..bytes));
    known.then(|| buffer.expected_huge_bytes(&touched, pmd))
}

/// A checksum of the line that a guest prints when it has reached its goal.
fn checksum(line: &str) -> u64 {
    line.bytes().fold(0, |sum, byte| mix(sum ^ u64::from(byte)))
}
