//! `mmap-churn`: maps memory, touches every base page and unmaps it, repeatedly, as allocators do.

use workloads::memory::{Anonymous, base_page};
use workloads::random::mix;

use super::latency::Latencies;
use super::report::Report;
use super::{WorkloadError, arguments, check};

/// Arguments of `mmap-churn`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Size of each mapping, in whole base pages
    #[arg(long, default_value = "4M", value_parser = arguments::size)]
    bytes: u64,
    /// How often memory is mapped and unmapped
    #[arg(long, default_value_t = 500)]
    rounds: u64,
    /// Seed of the written values
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the rounds.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let bytes = arguments::whole_pages("bytes", arguments.bytes)?;
    let rounds = arguments::at_least("rounds", 1, arguments.rounds)?;
    arguments::room("bytes", u128::from(arguments.bytes))?;
    let page_words = base_page().bytes() as usize / size_of::<u64>();
    let clock_ns = Latencies::clock_ns();
    let [mut map, mut touch, mut unmap] = [Latencies::new(), Latencies::new(), Latencies::new()];
    let mut checksum = 0u64;
    for round in 0..rounds {
        let value = mix(arguments.seed ^ mix(round)) | 1;
        let mut memory = map.time(|| Anonymous::map(bytes))?;
        let stale = touch.time(|| write_pages(&mut memory, page_words, value));
        check(format!("OR of the fresh pages of round {round}"), 0, stale)?;
        let sum = sum_pages(&memory, page_words);
        check(format!("sum of the pages of round {round}"), expected(bytes, page_words, value), sum)?;
        checksum = checksum.wrapping_add(mix(sum ^ round));
        unmap.time(|| memory.unmap()).map_err(WorkloadError::Unmap)?;
    }
    Ok(Report::new("mmap-churn", checksum)
        .argument("bytes", arguments.bytes)
        .argument("page_bytes", base_page().bytes())
        .argument("rounds", rounds)
        .argument("seed", arguments.seed)
        .latencies("map", &map)
        .latencies("touch", &touch)
        .latencies("unmap", &unmap)
        .figure("clock_ns", clock_ns))
}

/// Writes the first word of every page, with a different value in each page. Returns the OR over the last words of all
/// pages, which is zero in fresh memory.
fn write_pages(memory: &mut Anonymous, page_words: usize, value: u64) -> u64 {
    let words = memory.slice_mut::<u64>();
    (0..words.len()).step_by(page_words).fold(0, |stale, first| {
        words[first] = value.wrapping_mul(first as u64 + 1);
        stale | words[first + page_words - 1]
    })
}

fn sum_pages(memory: &Anonymous, page_words: usize) -> u64 {
    memory.slice::<u64>().iter().step_by(page_words).fold(0, |sum, word| sum.wrapping_add(*word))
}

/// The expected sum of `value` times (first word + 1) over the pages, computed without the memory.
fn expected(bytes: usize, page_words: usize, value: u64) -> u64 {
    let pages = (bytes / (page_words * size_of::<u64>())) as u128;
    let factors = pages + page_words as u128 * (pages * (pages - 1) / 2);
    value.wrapping_mul(factors as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_and_stale_pages_change_the_checksum() {
        let page_words = 512;
        let mut memory = Anonymous::map(5 * 4096).unwrap();
        assert_eq!(write_pages(&mut memory, page_words, 77), 0);
        assert_eq!(sum_pages(&memory, page_words), expected(5 * 4096, page_words, 77));
        memory.write_volatile(3 * page_words, 0u64);
        assert_ne!(sum_pages(&memory, page_words), expected(5 * 4096, page_words, 77));
        memory.write_volatile(4 * page_words + 511, 6u64);
        assert_eq!(write_pages(&mut memory, page_words, 77), 6);
    }
}
