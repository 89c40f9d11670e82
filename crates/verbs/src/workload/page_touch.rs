//! `page-touch`: measures the latency of the first touch of every page, with one clock reading per touch.

use workloads::memory::{Anonymous, base_page};
use workloads::random::{below, mix, shuffle};

use super::latency::Latencies;
use super::report::Report;
use super::{WorkloadError, arguments, check};

/// The order of the touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Order {
    /// From the lowest address to the highest
    Sequential,
    /// Every page once, in random order
    Random,
    /// Pages a stride apart, then the pages after those, until all are touched
    Strided,
}

/// Arguments of `page-touch`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Memory that is mapped, in whole base pages
    #[arg(long, default_value = "1G", value_parser = arguments::size)]
    bytes: u64,
    /// Order of the touches
    #[arg(long, value_enum, default_value = "sequential")]
    order: Order,
    /// Distance of touches in the strided order, in whole base pages
    #[arg(long, default_value = "2M", value_parser = arguments::size)]
    stride: u64,
    /// Part of the base pages that is touched, evenly spread
    #[arg(long, default_value_t = 1.0)]
    density: f64,
    /// Read each page before writing it; the two are timed separately
    #[arg(long)]
    read_first: bool,
    /// Seed of the random order and of the offset in each page
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The pages to touch: evenly spread, in ascending order, at least one.
fn touched(pages: usize, density: f64) -> Vec<u32> {
    let below_share = |page: usize| (page as f64 * density).floor() as usize;
    let mut list: Vec<u32> =
        (0..pages).filter(|page| below_share(page + 1) > below_share(*page)).map(|page| page as u32).collect();
    if list.is_empty() {
        list.push(0);
    }
    list
}

/// Sorts pages into the order of touches.
fn arrange(pages: &mut [u32], order: Order, stride_pages: u32, seed: u64) {
    match order {
        Order::Sequential => {}
        Order::Random => shuffle(pages, seed),
        Order::Strided => pages.sort_by_key(|page| (page % stride_pages, page / stride_pages)),
    }
}

/// Which word of a page is touched, and the value written there, which is never zero.
fn place(page: u32, page_words: usize, seed: u64) -> (usize, u64) {
    let hash = mix(seed ^ mix(u64::from(page)));
    (page as usize * page_words + below(hash, page_words), mix(hash) | 1)
}

/// Runs the touches.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let bytes = arguments::whole_pages("bytes", arguments.bytes)?;
    let (page_bytes, stride_pages) = (base_page().bytes() as usize, stride_pages(arguments)?);
    let density = arguments::share("density", arguments.density)?;
    arguments::room("bytes", u128::from(arguments.bytes))?;
    let (pages, page_words) = (bytes / page_bytes, page_bytes / size_of::<u64>());
    if u32::try_from(pages).is_err() {
        let expected = format!("at most {} pages", u32::MAX);
        return Err(WorkloadError::Argument { option: "bytes", expected, found: pages.to_string() });
    }
    let mut order = touched(pages, density);
    arrange(&mut order, arguments.order, stride_pages, arguments.seed);
    let clock_ns = Latencies::clock_ns();
    let mut memory = Anonymous::map(bytes)?;
    let (mut reads, mut writes) = (Latencies::new(), Latencies::new());
    for page in &order {
        let (word, value) = place(*page, page_words, arguments.seed);
        if arguments.read_first {
            let found = reads.time(|| memory.read_volatile::<u64>(word));
            check(format!("page {page} before its first write"), 0, found)?;
        }
        writes.time(|| memory.write_volatile(word, value));
    }
    let checksum = verify(&memory, &order, page_words, arguments.seed)?;
    let report = Report::new("page-touch", checksum)
        .argument("bytes", arguments.bytes)
        .argument("page_bytes", page_bytes)
        .argument("order", format!("{:?}", arguments.order).to_lowercase())
        .argument("stride_bytes", arguments.stride)
        .argument("density", density)
        .argument("read_first", arguments.read_first)
        .argument("seed", arguments.seed);
    let report = if arguments.read_first { report.latencies("read", &reads) } else { report };
    Ok(report.latencies("write", &writes).figure("clock_ns", clock_ns))
}

fn stride_pages(arguments: &Arguments) -> Result<u32, WorkloadError> {
    if arguments.order != Order::Strided {
        return Ok(1);
    }
    let pages = arguments::whole_pages("stride", arguments.stride)? as u64 / base_page().bytes();
    u32::try_from(pages).map_err(|_| WorkloadError::Argument {
        option: "stride",
        expected: format!("at most {} pages", u32::MAX),
        found: pages.to_string(),
    })
}

fn verify(memory: &Anonymous, pages: &[u32], page_words: usize, seed: u64) -> Result<u64, WorkloadError> {
    pages.iter().try_fold(0, |sum: u64, page| {
        let (word, value) = place(*page, page_words, seed);
        let found = memory.read_volatile::<u64>(word);
        if found != value {
            check(format!("page {page} after its first write"), value, found)?;
        }
        Ok(sum.wrapping_add(mix(word as u64 ^ found)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn density_spreads_the_touches_evenly() {
        assert_eq!(touched(8, 1.0), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(touched(8, 0.5), [1, 3, 5, 7]);
        assert_eq!(touched(8, 0.25), [3, 7]);
        assert_eq!(touched(8, 0.01), [0]);
    }

    #[test]
    fn every_order_touches_the_same_pages() {
        let arranged = |order| {
            let mut pages: Vec<u32> = (0..10).collect();
            arrange(&mut pages, order, 4, 1);
            pages
        };
        assert_eq!(arranged(Order::Strided), [0, 4, 8, 1, 5, 9, 2, 6, 3, 7]);
        let mut random = arranged(Order::Random);
        assert_ne!(random, arranged(Order::Sequential));
        random.sort_unstable();
        assert_eq!(random, arranged(Order::Sequential));
    }

    #[test]
    fn a_page_that_lost_its_word_is_found() {
        let page_words = base_page().bytes() as usize / 8;
        let mut memory = Anonymous::map(4 * page_words * 8).unwrap();
        for page in 0..4 {
            let (word, value) = place(page, page_words, 9);
            assert_eq!(word / page_words, page as usize);
            memory.write_volatile(word, value);
        }
        assert!(verify(&memory, &[0, 1, 2, 3], page_words, 9).is_ok());
        memory.write_volatile(place(2, page_words, 9).0, 0u64);
        let error = verify(&memory, &[0, 1, 2, 3], page_words, 9).unwrap_err().to_string();
        assert!(error.contains("page 2 after"), "{error}");
    }
}
