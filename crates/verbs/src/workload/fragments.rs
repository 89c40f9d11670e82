//! `fragments`: keeps free memory in small blocks, as on a machine with weeks of uptime, until standard input ends.

use policy::size::PageSize;
use serde_json::json;
use workloads::memory::{Degree, Fragments, base_page};
use workloads::random::mix;

use super::WorkloadError;
use super::report::Report;

/// Arguments of `fragments`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Percentage of the free memory to leave in blocks smaller than --block. One thirty-second of the machine's
    /// memory is left untouched, as a reserve
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    percent: u32,
    /// Leave few free blocks of this size
    #[arg(long, default_value = "2M")]
    block: PageSize,
}

/// Fragments memory and returns. Memory stays fragmented as long as the returned report exists.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let fragments = Fragments::make(Degree { percent: arguments.percent, block: arguments.block })?;
    let checksum = mix(u64::from(arguments.percent) ^ arguments.block.bytes());
    Ok(Report::new("fragments", checksum)
        .argument("percent", json!(arguments.percent))
        .argument("block_bytes", arguments.block.bytes())
        .figure("before_ratio", fragments.before.fragmented_ratio())
        .figure("reached_ratio", fragments.after.fragmented_ratio())
        .figure("held_bytes", (fragments.pages * base_page().bytes()) as f64)
        .kept_alive(fragments))
}
