//! `fork-cow`: measures the cost of fork for a large process, and the cost of each page that its child writes.

use std::time::{Duration, Instant};

use workloads::memory::{Anonymous, base_page, fork};
use workloads::random::mix;

use super::latency::Latencies;
use super::report::Report;
use super::{WorkloadError, arguments, check};

/// Arguments of `fork-cow`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Memory that the parent touches before it forks, in whole base pages
    #[arg(long, default_value = "256M", value_parser = arguments::size)]
    bytes: u64,
    /// Part of the base pages that each child writes, from the start of the memory on
    #[arg(long, default_value_t = 0.25)]
    share: f64,
    /// How often the parent forks
    #[arg(long, default_value_t = 10)]
    rounds: u64,
    /// Seed of the written values
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The memory, with one used word in each base page, and the number of pages that a child writes.
struct Pages {
    memory: Anonymous,
    page_words: usize,
    written: usize,
    seed: u64,
}

impl Pages {
    fn count(&self) -> usize {
        self.memory.bytes() / size_of::<u64>() / self.page_words
    }

    /// The value that the parent writes to a page.
    fn original(&self, page: usize) -> u64 {
        mix(self.seed ^ mix(page as u64))
    }

    /// The checksum over the used words of some pages.
    fn sum(&self, pages: std::ops::Range<usize>) -> u64 {
        let words = self.memory.slice::<u64>();
        pages.fold(0, |sum, page| sum.wrapping_add(mix(words[page * self.page_words])))
    }

    /// The checksum of memory with the parent's values.
    fn original_sum(&self) -> u64 {
        (0..self.count()).fold(0, |sum, page| sum.wrapping_add(mix(self.original(page))))
    }

    fn write_originals(&mut self) {
        for page in 0..self.count() {
            let value = self.original(page);
            self.memory.slice_mut::<u64>()[page * self.page_words] = value;
        }
    }

    /// The work of a child: writes its share of the pages and records the time of each write in `results`, followed by the
    /// checksum over all of its memory.
    fn change(&mut self, results: &mut [u64]) {
        for (page, result) in results.iter_mut().enumerate().take(self.written) {
            let (word, value) = (page * self.page_words, !self.original(page));
            let start = Instant::now();
            self.memory.write_volatile(word, value);
            *result = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        results[self.written] = self.sum(0..self.count());
    }

    /// The checksum that a child must return.
    fn changed_sum(&self) -> u64 {
        (0..self.count()).fold(0, |sum, page| {
            let value = if page < self.written { !self.original(page) } else { self.original(page) };
            sum.wrapping_add(mix(value))
        })
    }
}

/// Runs the forks.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let mut pages = pages(arguments)?;
    let rounds = arguments::at_least("rounds", 1, arguments.rounds)?;
    let clock_ns = Latencies::clock_ns();
    pages.write_originals();
    let [mut forks, mut writes, mut children] = [Latencies::new(), Latencies::new(), Latencies::new()];
    for round in 0..rounds {
        let forked = fork(pages.written + 1, |results| pages.change(results))?;
        let (sum, latencies_ns) = forked.results.split_last().expect("one more than the pages written");
        check(format!("the child's memory in round {round}"), pages.changed_sum(), *sum)?;
        check(format!("the parent's memory after round {round}"), pages.original_sum(), pages.sum(0..pages.count()))?;
        forks.record(forked.fork_time);
        children.record(forked.child_time);
        latencies_ns.iter().for_each(|ns| writes.record(Duration::from_nanos(*ns)));
    }
    let checksum = mix(pages.original_sum() ^ pages.changed_sum().rotate_left(1));
    Ok(Report::new("fork-cow", checksum)
        .argument("bytes", arguments.bytes)
        .argument("page_bytes", base_page().bytes())
        .argument("share", arguments.share)
        .argument("rounds", rounds)
        .argument("seed", arguments.seed)
        .latencies("fork", &forks)
        .latencies("cow_write", &writes)
        .latencies("child", &children)
        .figure("clock_ns", clock_ns))
}

fn pages(arguments: &Arguments) -> Result<Pages, WorkloadError> {
    let bytes = arguments::whole_pages("bytes", arguments.bytes)?;
    let share = arguments::share("share", arguments.share)?;
    // The child gets its own copy of each page that it writes. The memory for results is shared with the parent.
    let copied = (bytes as f64 * share).ceil() as u128;
    arguments::room("bytes", u128::from(arguments.bytes) + copied)?;
    let page_words = base_page().bytes() as usize / size_of::<u64>();
    let count = bytes / size_of::<u64>() / page_words;
    let written = ((count as f64 * share).round() as usize).clamp(1, count);
    Ok(Pages { memory: Anonymous::map(bytes)?, page_words, written, seed: arguments.seed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(share: f64) -> Pages {
        let bytes = 16 * base_page().bytes();
        let mut pages = pages(&Arguments { bytes, share, rounds: 1, seed: 4 }).unwrap();
        pages.write_originals();
        pages
    }

    #[test]
    fn a_child_changes_its_share_and_says_so() {
        let mut pages = small(0.25);
        assert_eq!((pages.written, pages.sum(0..16)), (4, pages.original_sum()));
        let mut results = [0; 5];
        pages.change(&mut results);
        assert_eq!(results[4], pages.changed_sum());
        assert_ne!(pages.sum(0..16), pages.original_sum(), "a write that reaches the parent must show");
        assert_eq!(pages.sum(4..16), small(0.25).sum(4..16));
    }

    #[test]
    fn the_smallest_share_is_one_page() {
        assert_eq!(small(0.001).written, 1);
        assert_eq!(small(1.0).written, 16);
    }
}
