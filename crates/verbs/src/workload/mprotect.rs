//! `mprotect`: makes every second strip of memory read-only and writable again, then writes to every page, repeatedly: what garbage
//! collectors and JITs do.

use workloads::memory::{Anonymous, base_page};
use workloads::random::mix;

use super::latency::Latencies;
use super::report::Report;
use super::{WorkloadError, arguments, check};

/// Arguments of `mprotect`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Memory that is touched first, in whole base pages
    #[arg(long, default_value = "64M", value_parser = arguments::size)]
    bytes: u64,
    /// Size of a strip, in whole base pages; every second one changes its protection
    #[arg(long, default_value = "64K", value_parser = arguments::size)]
    strip: u64,
    /// How often the protection changes
    #[arg(long, default_value_t = 10)]
    rounds: u64,
    /// Seed of the written values
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the rounds.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let bytes = arguments::whole_pages("bytes", arguments.bytes)?;
    let strip = arguments::whole_pages("strip", arguments.strip)?;
    let rounds = arguments::at_least("rounds", 1, arguments.rounds)?;
    if strip > bytes {
        let expected = format!("at most --bytes, {bytes}");
        return Err(WorkloadError::Argument { option: "strip", expected, found: strip.to_string() });
    }
    arguments::room("bytes", u128::from(arguments.bytes))?;
    let mut memory = Anonymous::map(bytes)?;
    let value = |round: u64| mix(arguments.seed ^ mix(round)) | 1;
    write_pages(&mut memory, value(0));
    let [mut protect, mut restore, mut write] = [Latencies::new(), Latencies::new(), Latencies::new()];
    let mut checksum = 0u64;
    for round in 1..=rounds {
        let strips = protect.time(|| memory.protect_strips(strip)).map_err(refused)?;
        restore.time(|| strips.restore()).map_err(refused)?;
        check(format!("sum of the pages before round {round}"), expected(bytes, value(round - 1)), sum(&memory))?;
        write.time(|| write_pages(&mut memory, value(round)));
        let sum = sum(&memory);
        check(format!("sum of the pages after round {round}"), expected(bytes, value(round)), sum)?;
        checksum = checksum.wrapping_add(mix(sum ^ round));
    }
    Ok(Report::new("mprotect", checksum)
        .argument("bytes", arguments.bytes)
        .argument("page_bytes", base_page().bytes())
        .argument("strip_bytes", arguments.strip)
        .argument("rounds", rounds)
        .argument("seed", arguments.seed)
        .latencies("protect", &protect)
        .latencies("restore", &restore)
        .latencies("write", &write))
}

fn refused(source: std::io::Error) -> WorkloadError {
    let remedy = "a larger --strip, or a higher vm.max_map_count: each strip is a VMA";
    WorkloadError::Refused { call: "change the protection of memory (mprotect)", source, remedy }
}

fn page_words() -> usize {
    base_page().bytes() as usize / size_of::<u64>()
}

/// Writes the first word of every page, with a different value in each.
fn write_pages(memory: &mut Anonymous, value: u64) {
    let pages = memory.slice_mut::<u64>().chunks_exact_mut(page_words());
    pages.zip(1u64..).for_each(|(words, page)| words[0] = value.wrapping_mul(page));
}

fn sum(memory: &Anonymous) -> u64 {
    memory.slice::<u64>().iter().step_by(page_words()).fold(0, |sum, word| sum.wrapping_add(*word))
}

/// The sum of `value` times the page's number, computed without the memory.
fn expected(bytes: usize, value: u64) -> u64 {
    let pages = (bytes / size_of::<u64>() / page_words()) as u64;
    value.wrapping_mul(pages * (pages + 1) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_page_changes_the_sum() {
        let bytes = 5 * page_words() * size_of::<u64>();
        let mut memory = Anonymous::map(bytes).unwrap();
        write_pages(&mut memory, 77);
        assert_eq!(sum(&memory), expected(bytes, 77));
        memory.write_volatile(3 * page_words(), 0u64);
        assert_ne!(sum(&memory), expected(bytes, 77));
    }
}
