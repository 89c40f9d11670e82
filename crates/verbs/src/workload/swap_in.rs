//! `swap-in`: reads memory that is in swap. Order and locality decide whether the neighbours of a page, which a large folio or readahead
//! brings along, are read too, or only take memory from others.

mod limited;
mod order;

use workloads::memory::{Anonymous, base_page};
use workloads::random::mix;

use super::latency::Latencies;
use super::report::Report;
use super::{WorkloadError, arguments, check};
use order::{Order, Reads};

/// Arguments of `swap-in`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Memory that is written and read again, in whole base pages
    #[arg(long, default_value = "64M", value_parser = arguments::size)]
    bytes: u64,
    /// Memory limit under which it is written and read (root): the kernel swaps out what does not fit. Without it, all of the memory is
    /// swapped out before it is read (MADV_PAGEOUT)
    #[arg(long, value_parser = arguments::size)]
    limit: Option<u64>,
    /// Order of the reads
    #[arg(long, value_enum, default_value = "sequential")]
    order: Order,
    /// Size of the clusters of the random order, in whole base pages: the locality of the reads. Default: the base page
    #[arg(long, value_parser = arguments::size)]
    cluster: Option<u64>,
    /// Part of the clusters that is read, evenly spread
    #[arg(long, default_value_t = 1.0)]
    share: f64,
    /// How often memory is read
    #[arg(long, default_value_t = 1)]
    rounds: u64,
    /// Seed of the written values and of the random order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The memory, with one used word in each base page, and the pages that are read.
struct Pages {
    memory: Anonymous,
    page_words: usize,
    seed: u64,
    read: Vec<usize>,
}

/// What a run took.
struct Run {
    write: Latencies,
    page_out: Latencies,
    swap_in: Latencies,
    /// In swap after the writes, or after each MADV_PAGEOUT.
    swapped_bytes: u64,
}

impl Pages {
    fn value(&self, page: usize) -> u64 {
        mix(self.seed ^ mix(page as u64))
    }

    fn write(&mut self) {
        for page in 0..self.memory.bytes() / size_of::<u64>() / self.page_words {
            self.memory.write_volatile(page * self.page_words, self.value(page));
        }
    }

    /// Reads the pages in their order.
    fn sum(&self) -> u64 {
        let read = |sum: u64, page: &usize| sum.wrapping_add(mix(self.memory.read_volatile(page * self.page_words)));
        self.read.iter().fold(0, read)
    }

    /// The sum that a read must have.
    fn expected(&self) -> u64 {
        self.read.iter().fold(0, |sum, page| sum.wrapping_add(mix(self.value(*page))))
    }
}

/// Writes and reads.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let bytes = arguments::whole_pages("bytes", arguments.bytes)?;
    let page_bytes = base_page().bytes() as usize;
    let cluster = arguments.cluster.unwrap_or(page_bytes as u64);
    let cluster_pages = arguments::whole_pages("cluster", cluster)? / page_bytes;
    let share = arguments::share("share", arguments.share)?;
    let rounds = arguments::at_least("rounds", 1, arguments.rounds)?;
    arguments::room("bytes", u128::from(arguments.bytes))?;
    let reads = Reads { pages: bytes / page_bytes, cluster_pages, share, order: arguments.order };
    let read = reads.in_order(arguments.seed);
    let page_words = page_bytes / size_of::<u64>();
    let mut pages = Pages { memory: Anonymous::map(bytes)?, page_words, seed: arguments.seed, read };
    let run = match arguments.limit {
        Some(limit_bytes) => limited::run(&mut pages, limit_bytes, rounds)?,
        None => paged_out(&mut pages, rounds)?,
    };
    let report = Report::new("swap-in", mix(pages.expected() ^ rounds))
        .argument("bytes", arguments.bytes)
        .argument("page_bytes", page_bytes)
        .argument("order", format!("{:?}", arguments.order).to_lowercase())
        .argument("cluster_bytes", cluster)
        .argument("share", share)
        .argument("rounds", rounds)
        .argument("seed", arguments.seed)
        .figure("swapped_bytes", run.swapped_bytes as f64)
        .latencies("write", &run.write);
    let report = match arguments.limit {
        Some(limit_bytes) => report.argument("limit_bytes", limit_bytes),
        None => report.latencies("page_out", &run.page_out),
    };
    Ok(report.latencies("swap_in", &run.swap_in))
}

/// Swaps all memory out before each read.
fn paged_out(pages: &mut Pages, rounds: u64) -> Result<Run, WorkloadError> {
    let [mut write, mut page_out, mut swap_in] = [Latencies::new(), Latencies::new(), Latencies::new()];
    let mut swapped_bytes = 0;
    write.time(|| pages.write());
    for round in 0..rounds {
        page_out.time(|| pages.memory.page_out()).map_err(refused)?;
        swapped_bytes += in_swap(&status()?)?;
        let sum = swap_in.time(|| pages.sum());
        check(format!("sum of the pages of round {round}"), pages.expected(), sum)?;
    }
    Ok(Run { write, page_out, swap_in, swapped_bytes })
}

fn refused(source: std::io::Error) -> WorkloadError {
    WorkloadError::Refused { call: "swap memory out (MADV_PAGEOUT)", source, remedy: "it needs Linux 5.4" }
}

fn status() -> Result<String, WorkloadError> {
    std::fs::read_to_string("/proc/self/status")
        .map_err(|error| WorkloadError::Host(format!("/proc/self/status: {error}")))
}

/// The memory of a process that is in swap, from its status.
fn in_swap(status: &str) -> Result<u64, WorkloadError> {
    match swapped_of(status) {
        Some(0) => {
            Err(WorkloadError::NoSwap { why: "turn on swap (`swapon --show`), such as zram, with room for --bytes" })
        }
        Some(bytes) => Ok(bytes),
        None => Err(WorkloadError::NoSwap { why: "this kernel has no swap (CONFIG_SWAP)" }),
    }
}

fn swapped_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmSwap:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_how_much_is_swapped_out() {
        assert_eq!(swapped_of("VmRSS:\t 10 kB\nVmSwap:\t  64 kB\n"), Some(64 << 10));
        assert_eq!(swapped_of("VmRSS:\t 10 kB\n"), None);
        assert_eq!(in_swap("VmSwap:\t 4 kB\n").unwrap(), 4096);
        let refused = in_swap("VmSwap:\t 0 kB\n").unwrap_err();
        assert!(refused.to_string().contains("turn on swap") && refused.exit_code() == 3);
    }

    #[test]
    fn a_lost_page_changes_the_sum() {
        let page_words = base_page().bytes() as usize / size_of::<u64>();
        let memory = Anonymous::map(4 * page_words * size_of::<u64>()).unwrap();
        let mut pages = Pages { memory, page_words, seed: 3, read: vec![2, 0] };
        pages.write();
        assert_eq!(pages.sum(), pages.expected());
        pages.memory.write_volatile(2 * page_words, 0u64);
        assert_ne!(pages.sum(), pages.expected());
    }
}
