//! `kvm-dirty-log`: measures the cost of dirty logging of a virtual machine, phase by phase, and which leaves map its memory
//! in each phase.
//!
//! The phases are those of the kernel's own `dirty_log_perf_test` and `dirty_log_page_splitting_test`
//! (tools/testing/selftests/kvm): populate, write, enable, get, clear, write again, disable, populate again.

mod backing;
mod model;
mod phases;
mod report;

use std::sync::{Mutex, Once};

use crate::guest::{ARCHITECTURE, Clearing, EagerSplit, GUEST_LEAVES, Machine, Parameters, Request, SplitChunk};
use host::Host;
use policy::size::PageSize;
use workloads::memory::base_page;

use backing::BackingName;
use phases::Phases;
use verbs::lab::Report;
use verbs::lab::parse_duration;
use verbs::lab::report;
use verbs::lab::{WorkloadError, arguments};

/// Arguments of `kvm-dirty-log`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Memory of the guest that is logged, in whole base pages
    #[arg(long, default_value = "1G", value_parser = arguments::size)]
    bytes: u64,
    /// Memory slots that the memory is divided into
    #[arg(long, default_value_t = 1)]
    slots: u32,
    /// vCPUs; each has its part of the pages
    #[arg(long, default_value_t = 1)]
    vcpus: u32,
    /// Where the memory comes from
    #[arg(long, value_enum, default_value = "policy")]
    backing: BackingName,
    /// Largest leaves of the guest's own page tables: 4K, 2M, on arm64 1G; default: the largest. Where KVM has no nested
    /// page tables, its own leaves are never larger
    #[arg(long, value_name = "SIZE")]
    guest_leaves: Option<PageSize>,
    /// When pages are write-protected, and split if KVM splits eagerly
    #[arg(long, value_enum, default_value = "clear")]
    mode: Mode,
    /// How KVM first maps the memory
    #[arg(long, value_enum, default_value = "guest")]
    populate: Populate,
    /// Pages that one KVM_CLEAR_DIRTY_LOG clears, a multiple of 64; default: a slot
    #[arg(long, value_name = "PAGES")]
    chunk: Option<u64>,
    /// The chance, in percent, that the guest writes a page while it is logged; otherwise it reads the page. Without
    /// logging it writes every page. Default: always write every page, without random numbers
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    write_percent: Option<u8>,
    /// How often the guest accesses all its pages while it is logged
    #[arg(long, default_value_t = 2)]
    rounds: u64,
    /// How often the whole cycle is repeated in one virtual machine: from enabling logging to writing every page
    /// again without it. Times are then medians
    #[arg(long, default_value_t = 1)]
    cycles: u64,
    /// Wait this long before each phase, so that work that the kernel defers (such as freeing the tables of a split)
    /// is not measured in it. Default: no wait
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pause: Option<f64>,
    /// The call that makes slots: KVM_SET_USER_MEMORY_REGION (1) or ...REGION2 (2)
    #[arg(long, value_name = "VERSION", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    memory_region: u8,
    /// arm64: bytes that KVM splits eagerly at a time (KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE), 0 for never
    #[arg(long, value_name = "SIZE", value_parser = arguments::size)]
    split_chunk: Option<u64>,
    /// Also show, in a separate table, a model of arm64's eager split of the same memory
    #[arg(long)]
    with_model: bool,
    /// Seed of the values that the guest writes, and of its random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// When pages are write-protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// All pages when logging is enabled. KVM_GET_DIRTY_LOG protects the pages that it reports again
    Enable,
    /// Pages when their log is cleared (KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE and KVM_DIRTY_LOG_INITIALLY_SET)
    Clear,
}

/// How KVM first maps the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Populate {
    /// The guest: it writes every page
    Guest,
    /// KVM_PRE_FAULT_MEMORY, after pagelab has written every page
    PreFault,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Enable => "enable",
            Mode::Clear => "clear",
        }
    }
}

impl Populate {
    fn name(self) -> &'static str {
        match self {
            Populate::Guest => "guest",
            Populate::PreFault => "pre-fault",
        }
    }
}

/// The current activity, to report if a signal ends it.
static DOING: Mutex<String> = Mutex::new(String::new());

/// Runs the phases.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let request = request(arguments)?;
    // The arguments in the report contain the guest leaf that was chosen.
    let arguments = &Arguments { guest_leaves: Some(request.guest_leaf), ..arguments.clone() };
    announce_on_signal()?;
    let host = Parameters::read(&host::Root::live()).map_err(|error| WorkloadError::Host(error.to_string()))?;
    let eager = eager_split(&host, arguments.split_chunk.unwrap_or(0));
    let machine = Machine::new(&request)?;
    let phases = Phases::run(machine, arguments, request.bytes / request.page.bytes())?;
    let model = arguments.with_model.then(|| model::run(arguments, &phases));
    Ok(report::report(arguments, &host, &eager, &phases, model.as_ref()))
}

fn eager_split(host: &Parameters, chunk_bytes: u64) -> EagerSplit {
    match ARCHITECTURE {
        "arm64" => Parameters::eager_split_arm64(chunk_bytes),
        _ => host.eager_split_x86(),
    }
}

fn request(arguments: &Arguments) -> Result<Request, WorkloadError> {
    arguments::whole_pages("bytes", arguments.bytes)?;
    let page = base_page();
    let pages = arguments.bytes / page.bytes();
    for (option, count) in [("slots", arguments.slots), ("vcpus", arguments.vcpus)] {
        arguments::at_least(option, 1, count.into())?;
        if u64::from(count) > pages {
            let expected = format!("at most the {pages} pages of --bytes");
            return Err(WorkloadError::Argument { option, expected, found: count.to_string() });
        }
    }
    arguments::at_least("rounds", 1, arguments.rounds)?;
    arguments::at_least("cycles", 1, arguments.cycles)?;
    check_chunk(arguments)?;
    let host = Host::open("/").map_err(|error| WorkloadError::Host(error.to_string()))?;
    let backing = arguments.backing.lower(&host, arguments.bytes)?;
    let clearing = match arguments.mode {
        Mode::Enable => Clearing::ByGet,
        Mode::Clear => Clearing::ByClear,
    };
    Ok(Request {
        backing,
        alignment: host.page_sizes().pmd.unwrap_or(page),
        bytes: arguments.bytes,
        slots: arguments.slots,
        vcpus: arguments.vcpus,
        page,
        guest_leaf: guest_leaf(arguments.guest_leaves)?,
        clearing,
        split_chunk: arguments.split_chunk.map(SplitChunk),
        region2: arguments.memory_region == 2,
    })
}

fn guest_leaf(asked: Option<PageSize>) -> Result<PageSize, WorkloadError> {
    match (asked, GUEST_LEAVES.last()) {
        (Some(leaf), Some(_)) if !GUEST_LEAVES.contains(&leaf) => {
            let sizes = GUEST_LEAVES.iter().map(PageSize::to_string).collect::<Vec<_>>().join(" or ");
            let expected = format!("{sizes}, which the guest of {ARCHITECTURE} can have");
            Err(WorkloadError::Argument { option: "guest-leaves", expected, found: leaf.to_string() })
        }
        (asked, largest) => Ok(asked.or(largest.copied()).unwrap_or(base_page())),
    }
}

fn check_chunk(arguments: &Arguments) -> Result<(), WorkloadError> {
    /// KVM_CLEAR_DIRTY_LOG accepts whole words of the log (Documentation/virt/kvm/api.rst), and its page count has 32 bits.
    const WORD_PAGES: u64 = 64;
    let wrong = |expected: &str, found: u64| {
        Err(WorkloadError::Argument { option: "chunk", expected: expected.into(), found: found.to_string() })
    };
    match arguments.chunk {
        Some(pages) if pages == 0 || !pages.is_multiple_of(WORD_PAGES) || pages > u32::MAX.into() => {
            wrong("a positive multiple of 64 below 2^32", pages)
        }
        Some(pages) if arguments.mode == Mode::Enable => {
            wrong("no chunk with --mode enable, which clears nothing", pages)
        }
        _ => Ok(()),
    }
}

/// If a signal arrives, reports the current activity and ends. The kernel cleans up after the process.
fn announce_on_signal() -> Result<(), WorkloadError> {
    static ONCE: Once = Once::new();
    let mut announced = Ok(());
    ONCE.call_once(|| {
        announced = tracer::signals::call_on_signal(|signal| {
            let doing = DOING.lock().map_or_else(|_| String::new(), |doing| doing.clone());
            let doing = if doing.is_empty() { "before the first phase" } else { &doing };
            report(format_args!(
                "pagelab: {signal} {doing}: no result. The virtual machine and its memory end with this process, \
                 and nothing else was changed"
            ));
        });
    });
    announced.map_err(|error| WorkloadError::Host(format!("cannot wait for signals: {error}")))
}
