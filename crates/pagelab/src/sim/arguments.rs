//! Arguments of `pagelab sim`.

use std::path::PathBuf;

use clap::Args;
use model::policy::ModelPolicy;
use model::space::{Kernel, Khugepaged, MAX_MEMORY_BYTES};
use study::policy::Granularity;
use study::size::{format_bytes, parse_bytes};

use super::usual_policies;
use crate::failure::Failure;

/// What is about memory and the kernel: it means nothing where neither is modelled, or where it is the host's.
const OF_THE_KERNEL: [&str; 7] =
    ["memory", "fragmentation", "also_folios", "pages_to_scan", "scan_sleep", "max_ptes_none", "instruction_rate"];

/// Arguments of `pagelab sim`.
#[derive(Debug, Args)]
pub struct SimArguments {
    /// Traces, as `pagelab record` or `pagelab trace import` wrote them
    #[arg(required_unless_present = "chase", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// A policy: base, mthp-SIZE, thp, hugetlb-SIZE, contig-64k, base-16k, base-64k, direct-map-SIZE (traces of whole machines); the first four with +no-guards, +no-huge or
    /// +prefault; repeat it, or separate several by commas. Without it: base, mthp-64k, thp
    #[arg(short, long = "policy", value_name = "POLICY", value_delimiter = ',', value_parser = parse_policy)]
    pub policy: Vec<ModelPolicy>,
    /// A machine of `pagelab list machines`, or a FILE.toml; repeat it, or separate several by commas. Without it: one
    /// of the architecture that the trace was recorded on
    #[arg(short, long = "machine", value_name = "MACHINE", value_delimiter = ',')]
    pub machines: Vec<String>,
    /// Misses for every LRU geometry instead, in one pass: 1 to 2048 sets, 1 to 15 ways, pages of 4K, 16K, 64K, 2M and
    /// 32M. Fetches and data share it
    #[arg(long, conflicts_with_all = ["policy", "machines", "curves"], conflicts_with_all = OF_THE_KERNEL)]
    pub geometry: bool,
    /// No trace: a pointer chase over buffers of growing size, measured on this processor with base pages and THP, beside
    /// the model of it. Without -m: the model machine that describes this processor
    #[arg(long, conflicts_with_all = ["files", "policy", "geometry", "curves"], conflicts_with_all = OF_THE_KERNEL)]
    pub chase: bool,
    /// The largest buffer of --chase; the smallest has 64K, and each next one twice as much
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_chase, conflicts_with = "files")]
    pub chase_largest: u64,
    /// How much memory the machine has
    #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = parse_memory)]
    pub memory: u64,
    /// The share of 2M blocks of memory in which one page belongs to somebody else
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = parse_share)]
    pub fragmentation: f64,
    /// Further folio sizes that are enabled, taken where one of mthp-SIZE does not fit or cannot be had
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_folio)]
    pub also_folios: Vec<u64>,
    /// Pages that khugepaged looks at before it sleeps, under thp; 0 stops it. Without it: eight PMDs
    #[arg(long, value_name = "PAGES")]
    pub pages_to_scan: Option<u64>,
    /// How long khugepaged sleeps, in seconds: a thousandth at least
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_sleep)]
    pub scan_sleep: f64,
    /// How many pages of a window may be missing when khugepaged makes a huge page of it: 0 to all but one, which are 511
    /// with 4K pages, 2047 with 16K, 8191 with arm64's 64K. Without it: all but one
    #[arg(long, value_name = "PAGES")]
    pub max_ptes_none: Option<u64>,
    /// Instructions that a thread executes in a second: the clock of khugepaged
    #[arg(long, value_name = "N", default_value = "2.5e9", value_parser = parse_positive)]
    pub instruction_rate: f64,
    /// Chooses what is random: replacement, and where memory is fragmented
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// How many threads share the simulations; the result is the same for any number. Without it: one a processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Also misses against entries of a TLB and memory against page size, as if all memory had pages of one size; takes
    /// several times as long
    #[arg(long)]
    pub curves: bool,
    /// The accesses alone, at the addresses that were recorded: no system call is heard and no forked process followed.
    /// What simulators of TLBs see that know no kernel, to compare with them
    #[arg(long, conflicts_with_all = ["geometry", "chase"])]
    pub accesses_only: bool,
    /// Print one JSON document instead of the table
    #[arg(long)]
    pub json: bool,
    /// Write a report: one HTML file without script, with curves
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl SimArguments {
    /// The policies that were asked for, each once, or the usual ones.
    pub fn policies(&self) -> Vec<ModelPolicy> {
        if self.policy.is_empty() {
            return usual_policies();
        }
        let mut seen = std::collections::HashSet::new();
        self.policy.iter().filter(|policy| seen.insert(*policy)).cloned().collect()
    }

    /// Refuses what would change nothing.
    pub fn check(&self) -> Result<(), Failure> {
        let has_folios = |policy: &ModelPolicy| matches!(policy, ModelPolicy::Kernel(policy) if matches!(policy.granularity, Granularity::Mthp(_)));
        if self.also_folios.is_empty() || self.policies().iter().any(has_folios) {
            return Ok(());
        }
        let why =
            "--also-folios: they stand in for folios of a policy mthp-SIZE, and none is simulated; add one with -p";
        Err(Failure::Input(why.to_owned()))
    }

    /// Whether every geometry is needed.
    pub fn sweeps(&self) -> bool {
        self.geometry || self.curves || self.html.is_some()
    }

    /// What the kernel does besides the policy.
    pub fn kernel(&self) -> Kernel {
        let (pages_to_scan, max_ptes_none) = (self.pages_to_scan, self.max_ptes_none);
        let khugepaged = Khugepaged { pages_to_scan, scan_sleep_s: self.scan_sleep, max_ptes_none };
        Kernel { khugepaged, instructions_per_s: self.instruction_rate, smaller_folios: self.also_folios.clone() }
    }

    /// How many threads there shall be.
    pub fn threads(&self) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.threads.map_or_else(all, |threads| threads as usize)
    }
}

fn parse_policy(text: &str) -> Result<ModelPolicy, String> {
    if let Some((base, modifiers)) = text.split_once('+')
        && base.parse().is_ok_and(|policy: ModelPolicy| !matches!(policy, ModelPolicy::Kernel(_)))
    {
        return Err(format!("{base} takes no modifiers, found +{modifiers}; expected {base}"));
    }
    text.parse::<ModelPolicy>()
        .map_err(|error| format!("{error}; models also have contig-64k, base-16k, base-64k and direct-map-SIZE"))
}

fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    if (1 << 20..=MAX_MEMORY_BYTES).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("expected 1M to {}, found {text}", format_bytes(MAX_MEMORY_BYTES)))
    }
}

fn parse_chase(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    let fits = (64 << 10..=model::chase::MAX_BYTES).contains(&bytes);
    if fits {
        Ok(bytes)
    } else {
        Err(format!("expected 64K to {}, found {text}", format_bytes(model::chase::MAX_BYTES)))
    }
}

fn parse_folio(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    let fits = bytes.is_power_of_two() && (16 << 10..=1 << 30).contains(&bytes);
    if fits { Ok(bytes) } else { Err(format!("expected a power of two from 16K to 1G, found {text}")) }
}

fn parse_sleep(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| seconds.is_finite() && *seconds >= 0.001);
    seconds.ok_or_else(|| format!("expected 0.001 seconds or more, found {text:?}"))
}

fn parse_positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("expected a number above 0, found {text:?}"))
}

/// `0%` to `100%`, as a ratio.
fn parse_share(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| format!("expected 0% to 100%, found {text:?}"))
}
