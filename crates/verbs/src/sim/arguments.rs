//! Arguments of `pagelab sim` without a further verb.

use std::path::PathBuf;

use clap::Args;
use model::policy::ModelPolicy;
use model::space::MAX_MEMORY_BYTES;
use policy::PolicyError;
use policy::size::{SizeError, format_bytes, parse_bytes};

use crate::words::parse_duration;

/// Arguments of `pagelab sim FILE...`.
#[derive(Debug, Args)]
pub struct Replay {
    /// Traces, as `pagelab record` or `pagelab trace import` wrote them
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// A policy: base, mthp-SIZE, thp, hugetlb-SIZE, contig-64k, base-16k, base-64k, direct-map-SIZE (traces of whole
    /// machines), default (what the program and its libraries advise, with THP set to always, madvise and never). The first four take +no-guards, +no-huge or +prefault; contig-64k, base-16k and base-64k take +thp: THP
    /// of PMD size where it fits, and elsewhere as without it. Repeat it, or separate several by commas. Without it: base, mthp-64k, thp
    #[arg(short, long = "policy", value_name = "POLICY", value_delimiter = ',', value_parser = parse_policy)]
    pub policy: Vec<ModelPolicy>,
    /// A machine of `pagelab list machines`, `host` for this one, or a FILE.toml (list machines NAME --toml writes one to
    /// change); repeat it, or separate several by commas. Without it: one of the architecture that the trace was recorded
    /// on, which is cascade-lake, neoverse-n1 or rva23
    #[arg(short, long = "machine", value_name = "MACHINE", value_delimiter = ',')]
    pub machines: Vec<String>,
    /// A file with settings of Linux other than the policy: khugepaged, further folio sizes, the clock. `pagelab list
    /// linux` prints one with every key. Without it: Linux's own defaults
    #[arg(long, value_name = "FILE.toml", conflicts_with = "accesses_only")]
    pub linux: Option<PathBuf>,
    /// How much memory the machine has
    #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = parse_memory)]
    pub memory: u64,
    /// The share of 2M blocks of memory in which one page is allocated from the start
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = parse_share)]
    pub fragmentation: f64,
    /// The CPU time of the traced part of the program, summed over its threads, as 3s or 500ms. Without it: what `record` has
    /// measured natively, or else one cycle an instruction. `sim` reports the share of it that translation takes
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub run_time: Option<f64>,
    /// Also simulate N random address layouts, as Linux chooses them (ASLR of program, heap, mappings and stack), and
    /// show the spread of the figures. The trace is read again for every few layouts, because each has its own
    /// memory. Without it: only the layout without randomisation
    #[arg(long, value_name = "N", conflicts_with = "accesses_only", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub layouts: Option<u32>,
    /// The seed of random choices: TLB replacement, fragmented blocks of memory, and layouts
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// How many threads share the simulations; the result is the same for any number. Without it: one a processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Also show misses against TLB entries, and memory against page size, as if all memory had pages of one size.
    /// This takes several times as long
    #[arg(long)]
    pub curves: bool,
    /// Simulate only the accesses, at the recorded addresses: ignore system calls, and do not follow forked processes. The
    /// figures are comparable to those of TLB simulators without a kernel
    #[arg(long)]
    pub accesses_only: bool,
    /// Print more figures, two causes for each policy and all notes instead of one line per policy; --json has every count
    #[arg(long, conflicts_with = "json")]
    pub full: bool,
    /// Print one JSON document instead of the table
    #[arg(long)]
    pub json: bool,
    /// Write a report: one HTML file without script, with the figures of --curves, which take as long here
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// An invalid argument of `sim`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordError {
    /// The argument is not a size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The policy does not take these modifiers.
    #[error("{base} does not take +{modifiers}; expected {expected}")]
    Modified {
        /// The policy without modifiers.
        base: String,
        /// The modifiers that were given.
        modifiers: String,
        /// The accepted forms.
        expected: String,
    },
    /// The argument is not a policy.
    #[error(
        "{0}; models also have contig-64k, base-16k, base-64k, direct-map-SIZE and default+always, default+madvise, default+never"
    )]
    Policy(#[source] PolicyError),
    /// The size is out of range.
    #[error("expected {least} to {most}, found {found}")]
    Range {
        /// The smallest accepted size, as text.
        least: String,
        /// The largest accepted size, as text.
        most: String,
        /// The given size.
        found: String,
    },
    /// The argument is not a share.
    #[error("expected 0% to 100%, found {0:?}")]
    Share(String),
}

/// The number of threads: the given one, or one per processor.
pub fn threads(named: Option<u32>) -> usize {
    let all = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    named.map_or_else(all, |threads| threads as usize)
}

/// Parses a size from `least` to `most` bytes.
pub fn parse_size_within(text: &str, least: u64, most: u64) -> Result<u64, WordError> {
    let bytes = parse_bytes(text)?;
    let wrong = || WordError::Range { least: format_bytes(least), most: format_bytes(most), found: text.to_owned() };
    (least..=most).contains(&bytes).then_some(bytes).ok_or_else(wrong)
}

/// Parses a policy of a model.
pub fn parse_policy(text: &str) -> Result<ModelPolicy, WordError> {
    text.parse().map_err(|error| match text.split_once('+') {
        Some((base, modifiers)) if base.parse().is_ok_and(|of: ModelPolicy| !matches!(of, ModelPolicy::Kernel(_))) => {
            let with_thp = format!("{base}+thp");
            let has_thp = with_thp.parse::<ModelPolicy>().is_ok();
            let expected = if has_thp { format!("{base} or {with_thp}") } else { base.to_owned() };
            WordError::Modified { base: base.to_owned(), modifiers: modifiers.to_owned(), expected }
        }
        _ => WordError::Policy(error),
    })
}

fn parse_memory(text: &str) -> Result<u64, WordError> {
    parse_size_within(text, 1 << 20, MAX_MEMORY_BYTES)
}

/// Parses `0%` to `100%` as a ratio.
fn parse_share(text: &str) -> Result<f64, WordError> {
    let percent =
        text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| WordError::Share(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use model::machine::Architecture;

    use super::*;
    use crate::sim::machines;

    #[test]
    fn the_help_names_the_machine_of_each_architecture() {
        let command = Replay::augment_args(clap::Command::new("sim"));
        let argument = command.get_arguments().find(|argument| argument.get_id() == "machines").unwrap();
        let help = argument.get_help().unwrap().to_string();
        for architecture in Architecture::ALL {
            let machine = machines::for_architecture(architecture.name()).unwrap().name;
            assert!(help.contains(&machine), "{machine}: {help}");
        }
    }
}
