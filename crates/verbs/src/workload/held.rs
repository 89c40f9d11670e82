//! `page-cache` and `table-growth`: measure the memory that the kernel uses for files and for mappings of several sizes.

use tracer::signals;
use workloads::kernel::page_cache::{self, FILES};
use workloads::memory::{TableGrowthError, table_growth};
use workloads::random::mix;

use super::report::Report;
use super::scratch::Scratch;
use super::{WorkloadError, arguments, check};

/// Arguments of `page-cache`.
#[derive(Clone, Debug, clap::Args)]
pub struct PageCache {
    /// Sizes of files
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "1,4K,5K,64K,1M", value_parser = arguments::size)]
    sizes: Vec<u64>,
    /// Seed of their contents
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    scratch: Scratch,
}

/// Arguments of `table-growth`.
#[derive(Clone, Debug, clap::Args)]
pub struct TableGrowth {
    /// Sizes of memory, one mapped after the other
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "4K,2M,64M", value_parser = arguments::size)]
    sizes: Vec<u64>,
    /// Seed of the written values
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl PageCache {
    /// Writes the files, and reports the page cache used by one file of each size.
    pub fn run(&self) -> Result<Report, WorkloadError> {
        of_bytes(&self.sizes)?;
        arguments::room("sizes", self.sizes.iter().map(|bytes| u128::from(FILES) * u128::from(*bytes)).sum())?;
        let found = self.scratch.with(|at| page_cache::run(&self.sizes, self.seed, at, &signals::arrived))?;
        check("the sum of all values read back", found.expected, found.sum)?;
        let report = Report::new("page-cache", mix(found.sum ^ self.seed))
            .argument("sizes", listed(&self.sizes))
            .argument("files_of_each", FILES)
            .argument("seed", self.seed)
            .argument("directory", self.scratch.parent_text())
            .argument("told_by", found.source.name());
        Ok(found
            .held
            .iter()
            .fold(report, |report, held| report.figure(figure(held.bytes), held.held_bytes as f64 / FILES as f64)))
    }
}

impl TableGrowth {
    /// Maps memory of each size, and reports the increase of page tables.
    pub fn run(&self) -> Result<Report, WorkloadError> {
        of_bytes(&self.sizes)?;
        arguments::room("sizes", self.sizes.iter().copied().max().unwrap_or_default().into())?;
        let (mut figures, mut sum) = (Vec::new(), self.seed);
        for bytes in &self.sizes {
            let growth = table_growth(*bytes as usize, self.seed).map_err(workload_error)?;
            figures.push((figure(*bytes), growth.table_bytes as f64));
            sum = mix(sum ^ growth.sum);
        }
        let report =
            Report::new("table-growth", sum).argument("sizes", listed(&self.sizes)).argument("seed", self.seed);
        Ok(figures.into_iter().fold(report, |report, (name, value)| report.figure(name, value)))
    }
}

fn workload_error(error: TableGrowthError) -> WorkloadError {
    match error {
        TableGrowthError::Map(error) => error.into(),
        error @ TableGrowthError::Unreadable(_) => WorkloadError::Host(error.to_string()),
    }
}

/// The name of the figure for a size, as a study's series expects it.
fn figure(bytes: u64) -> String {
    format!("of_{bytes}_held_bytes")
}

fn listed(sizes: &[u64]) -> String {
    sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// Refuses the size zero, and sizes that a program cannot map.
fn of_bytes(sizes: &[u64]) -> Result<(), WorkloadError> {
    let is_wrong = |bytes: &&u64| **bytes == 0 || **bytes > isize::MAX as u64;
    let expected = || "sizes of at least one byte that can be mapped".to_owned();
    sizes.iter().find(is_wrong).map_or(Ok(()), |bytes| {
        Err(WorkloadError::Argument { option: "sizes", expected: expected(), found: bytes.to_string() })
    })
}
