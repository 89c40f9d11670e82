//! `swap-in`: swaps memory out and reads it again. Order and share decide whether the neighbours of a page, which a large folio or
//! readahead brings along, are read too or only take memory.

use workloads::memory::{Anonymous, base_page};
use workloads::random::{mix, shuffle};

use super::latency::Latencies;
use super::report::Report;
use super::{WorkloadError, arguments, check};

/// The order of the reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Order {
    /// From the lowest address to the highest
    Sequential,
    /// Clusters of pages in random order, each from its lowest address to its highest
    Random,
}

/// Arguments of `swap-in`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Memory that is touched and swapped out, in whole base pages
    #[arg(long, default_value = "64M", value_parser = arguments::size)]
    bytes: u64,
    /// Order of the reads
    #[arg(long, value_enum, default_value = "sequential")]
    order: Order,
    /// Size of the clusters of the random order, in whole base pages: the locality of the reads. Default: the base page
    #[arg(long, value_parser = arguments::size)]
    cluster: Option<u64>,
    /// Part of the clusters that is read, evenly spread before they are put in order
    #[arg(long, default_value_t = 1.0)]
    share: f64,
    /// How often memory is swapped out and read
    #[arg(long, default_value_t = 1)]
    rounds: u64,
    /// Seed of the written values and of the random order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The pages in the order in which they are read.
fn pages_read(pages: usize, cluster_pages: usize, share: f64, order: Order, seed: u64) -> Vec<usize> {
    let clusters = pages.div_ceil(cluster_pages);
    let is_read = |cluster: &u32| {
        let cluster = f64::from(*cluster);
        ((cluster + 1.0) * share).floor() > (cluster * share).floor()
    };
    let mut read: Vec<u32> = (0..u32::try_from(clusters).unwrap_or(u32::MAX)).filter(is_read).collect();
    if read.is_empty() {
        read.push(0);
    }
    if order == Order::Random {
        shuffle(&mut read, seed);
    }
    let of_cluster = |cluster: u32| {
        let first = cluster as usize * cluster_pages;
        first..(first + cluster_pages).min(pages)
    };
    read.into_iter().flat_map(of_cluster).collect()
}

/// Swaps out and reads.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let bytes = arguments::whole_pages("bytes", arguments.bytes)?;
    let page_bytes = base_page().bytes() as usize;
    let cluster = arguments.cluster.unwrap_or(page_bytes as u64);
    let cluster_pages = arguments::whole_pages("cluster", cluster)? / page_bytes;
    let share = arguments::share("share", arguments.share)?;
    let rounds = arguments::at_least("rounds", 1, arguments.rounds)?;
    arguments::room("bytes", u128::from(arguments.bytes))?;
    let (pages, page_words) = (bytes / page_bytes, page_bytes / size_of::<u64>());
    let order = pages_read(pages, cluster_pages, share, arguments.order, arguments.seed);
    let value = |page: usize| mix(arguments.seed ^ mix(page as u64));
    let mut memory = Anonymous::map(bytes)?;
    for page in 0..pages {
        memory.write_volatile(page * page_words, value(page));
    }
    let [mut page_out, mut swap_in] = [Latencies::new(), Latencies::new()];
    let (mut checksum, mut swapped_bytes) = (0u64, 0);
    for round in 0..rounds {
        page_out.time(|| memory.page_out()).map_err(refused)?;
        swapped_bytes += swapped()?;
        let sum = swap_in.time(|| {
            let read = |sum: u64, page: &usize| sum.wrapping_add(mix(memory.read_volatile(page * page_words)));
            order.iter().fold(0u64, read)
        });
        let expected = order.iter().fold(0u64, |sum, page| sum.wrapping_add(mix(value(*page))));
        check(format!("sum of the pages of round {round}"), expected, sum)?;
        checksum = checksum.wrapping_add(mix(sum ^ round));
    }
    Ok(Report::new("swap-in", checksum)
        .argument("bytes", arguments.bytes)
        .argument("page_bytes", page_bytes)
        .argument("order", format!("{:?}", arguments.order).to_lowercase())
        .argument("cluster_bytes", cluster)
        .argument("share", share)
        .argument("rounds", rounds)
        .argument("seed", arguments.seed)
        .figure("swapped_bytes", swapped_bytes as f64)
        .latencies("page_out", &page_out)
        .latencies("swap_in", &swap_in))
}

fn refused(source: std::io::Error) -> WorkloadError {
    WorkloadError::Refused { call: "swap memory out (MADV_PAGEOUT)", source, remedy: "it needs Linux 5.4" }
}

/// The memory of this process that is in swap.
fn swapped() -> Result<u64, WorkloadError> {
    let status = std::fs::read_to_string("/proc/self/status")
        .map_err(|error| WorkloadError::Host(format!("/proc/self/status: {error}")))?;
    match swapped_of(&status) {
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
    fn clusters_are_read_whole_and_in_the_order_of_the_seed() {
        assert_eq!(pages_read(6, 1, 1.0, Order::Sequential, 1), [0, 1, 2, 3, 4, 5]);
        assert_eq!(pages_read(7, 2, 0.5, Order::Sequential, 1), [2, 3, 6]);
        assert_eq!(pages_read(4, 2, 0.01, Order::Sequential, 1), [0, 1]);
        let random = pages_read(64, 4, 1.0, Order::Random, 1);
        assert_eq!(random, pages_read(64, 4, 1.0, Order::Random, 1));
        assert_ne!(random, pages_read(64, 4, 1.0, Order::Random, 2));
        assert!(random.chunks(4).all(|cluster| cluster.windows(2).all(|two| two[1] == two[0] + 1)));
        let mut all = random.clone();
        all.sort_unstable();
        assert_eq!(all, (0..64).collect::<Vec<_>>());
    }

    #[test]
    fn the_kernel_says_how_much_is_swapped_out() {
        assert_eq!(swapped_of("VmRSS:\t 10 kB\nVmSwap:\t  64 kB\n"), Some(64 << 10));
        assert_eq!(swapped_of("VmRSS:\t 10 kB\n"), None);
    }
}
