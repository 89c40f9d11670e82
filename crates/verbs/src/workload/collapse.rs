//! `collapse`: touches memory in base pages and collapses it into pages of PMD size, once.

use policy::size::PageSize;
use workloads::memory::{Anonymous, base_page};
use workloads::random::mix;

use super::latency::Latencies;
use super::report::Report;
use super::{WorkloadError, arguments, check};

/// Arguments of `collapse`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Memory that is touched and collapsed, in whole base pages; what is left over of a PMD-sized page stays in base pages
    #[arg(long, default_value = "64M", value_parser = arguments::size)]
    bytes: u64,
    /// Part of the base pages that is touched before the collapse, evenly spread; the others are zero
    #[arg(long, default_value_t = 1.0)]
    density: f64,
    /// Seed of the written values
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Touches the memory and collapses it.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let bytes = arguments::whole_pages("bytes", arguments.bytes)?;
    let density = arguments::share("density", arguments.density)?;
    // The kernel copies a large page at a time, and frees the base pages that it has copied.
    arguments::room("bytes", u128::from(arguments.bytes) + u128::from(alignment().bytes()))?;
    let page_words = base_page().bytes() as usize / size_of::<u64>();
    let pages = bytes / size_of::<u64>() / page_words;
    let is_touched = |page: usize| ((page + 1) as f64 * density).floor() > (page as f64 * density).floor();
    let value = |page: usize| if is_touched(page) { mix(arguments.seed ^ mix(page as u64)) | 1 } else { 0 };
    let mut memory = Anonymous::map_in_base_pages(bytes, alignment())?;
    for page in (0..pages).filter(|page| is_touched(*page)) {
        memory.write_volatile(page * page_words, value(page));
    }
    let mut collapse = Latencies::new();
    collapse.time(|| memory.collapse()).map_err(refused)?;
    let mut checksum = 0u64;
    for page in 0..pages {
        let found = memory.read_volatile::<u64>(page * page_words);
        check(format!("page {page} after the collapse"), value(page), found)?;
        checksum = checksum.wrapping_add(mix(found ^ page as u64));
    }
    Ok(Report::new("collapse", checksum)
        .argument("bytes", arguments.bytes)
        .argument("page_bytes", base_page().bytes())
        .argument("density", density)
        .argument("seed", arguments.seed)
        .latencies("collapse", &collapse))
}

/// The size of what a PMD maps: as many pages as a page of 8-byte entries has entries.
fn alignment() -> PageSize {
    let base = base_page();
    PageSize::new(base.bytes() * (base.bytes() / size_of::<u64>() as u64)).unwrap_or(base)
}

fn refused(source: std::io::Error) -> WorkloadError {
    let remedy = match source.kind() {
        std::io::ErrorKind::InvalidInput => {
            "it needs Linux 6.1 with transparent huge pages (CONFIG_TRANSPARENT_HUGEPAGE)"
        }
        _ => "free memory may be short or fragmented: fewer --bytes",
    };
    WorkloadError::Refused { call: "collapse memory (MADV_COLLAPSE)", source, remedy }
}
