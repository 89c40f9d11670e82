//! Counts the misses of every LRU TLB geometry (set count, ways, page size) in one pass over a trace.
//!
//! This is Mattson's LRU stack algorithm. For each set count, each set has a stack of its pages, the most recently used first. A
//! page at depth `d` hits in every TLB with this set count and more than `d` ways. So one stack of 16 places covers 1 to 16 ways.
//! For more ways, stacks have 32, 64 or 128 places.
//!
//! Set counts are powers of two, so each set of a smaller set count is divided among several sets of a larger one. Therefore the
//! depth of a page never grows with the set count. The search normally begins with the fewest sets. Once a page is found at depth
//! `d`, only places up to that depth need to be searched with more sets, and none if `d` is 0. If many pages are in no stack, the
//! search begins with the most sets: a page that is in no stack there is in no stack of fewer sets either, and is pushed to the
//! front of each without a search.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, Scope};

use serde::Serialize;
use thiserror::Error;
use trace::{Block, Chunk, Filter, Header, NotExact, ReadError, Reader, TlbGeometry, Windows};

use crate::replay::{forked, program_of};
use crate::simulation::Hashing;

mod stacks;

pub use stacks::SET_SHIFTS;
use stacks::{AnyDepth, MAX_DEPTH};

/// By default, misses are counted for 1 up to this number of ways.
pub const DEFAULT_WAYS: u32 = 15;
/// The maximum number of ways for which misses can be counted.
pub const MAX_WAYS: u32 = MAX_DEPTH as u32;

/// The miss counts of all LRU TLB geometries of one page size.
///
/// The counts change once per run: a run is consecutive accesses of one thread to one page, so all its accesses after the first
/// hit in every geometry.
#[derive(Clone, Debug)]
pub struct Geometries {
    /// log2 of the page size in bytes.
    page_shift: u32,
    /// Misses are counted for 1 up to this number of ways.
    ways: u32,
    stacks: AnyDepth,
    runs: u64,
    /// Whether more than one in [`MANY_ABSENT`] runs of the last chunk accessed a page that was in no stack.
    has_many_absent: bool,
}

/// If more than one in this number of runs accesses a page that is in no stack, the search of the next chunk begins with the
/// most sets.
///
/// Measured on 6 million runs: the time of a search that begins with the most sets, divided by the time of the normal search.
/// * Random accesses to 2^15 to 2^16 pages, with the page in no stack for 4 to 50 % of the runs: 0.6 to 0.9.
/// * Random accesses mixed with sequences of eight consecutive pages: 1 for 15 to 30 % of the runs, and 0.92 for 35 %.
const MANY_ABSENT: u64 = 3;

impl Geometries {
    /// Empty stacks for pages of `1 << page_shift` bytes, at least 4K, and for 1 to `ways` ways. `ways` is limited to
    /// [`MAX_WAYS`].
    pub fn new(page_shift: u32, ways: u32) -> Geometries {
        let ways = ways.clamp(1, MAX_WAYS);
        Geometries { page_shift, ways, stacks: AnyDepth::new(ways as usize), runs: 0, has_many_absent: false }
    }

    /// Looks up all runs of a chunk, fetches and data alike. `numbers` has, for each entry of `chunk.pages`, the number of the
    /// page of this size that contains it. A page has the same number in every chunk. No number is 0.
    pub fn add(&mut self, chunk: &Chunk, numbers: &[u32]) {
        let shift = self.page_shift - trace::PAGE_SHIFT;
        let pages: Vec<(u32, u32)> =
            chunk.pages.iter().zip(numbers).map(|(page, number)| ((page >> shift) as u32, *number)).collect();
        let runs = chunk.ids.len() as u64;
        self.runs += runs;
        let absent_before = self.stacks.absent();
        self.stacks.touch(&chunk.ids, &pages, self.has_many_absent);
        self.has_many_absent = (self.stacks.absent() - absent_before) * MANY_ABSENT > runs;
    }

    /// The misses of a TLB with `1 << set_shift` sets and `ways` ways. `None` if this geometry is not counted.
    pub fn misses(&self, set_shift: u32, ways: u32) -> Option<u64> {
        let is_counted = SET_SHIFTS.contains(&set_shift) && (1..=self.ways).contains(&ways);
        is_counted.then(|| self.stacks.misses(set_shift as usize, ways as usize))
    }

    /// The misses of every geometry for which a trace with this filter gives the exact number.
    pub fn all(&self, filter: &Filter) -> Vec<GeometryMisses> {
        let is_exact = |shift: &u32| admits(filter, self.page_shift, *shift).is_ok();
        let geometries = SET_SHIFTS.filter(is_exact).flat_map(|shift| (1..=self.ways).map(move |ways| (shift, ways)));
        let misses = geometries.filter_map(|(shift, ways)| {
            let misses = self.misses(shift, ways)?;
            Some(GeometryMisses { page_bytes: 1 << self.page_shift, sets: 1 << shift, ways, misses })
        });
        misses.collect()
    }

    /// Number of runs so far, each of which was one lookup.
    pub fn runs(&self) -> u64 {
        self.runs
    }
}

/// The misses of a trace in every geometry, for several page sizes, and totals of the trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SweepResult {
    /// The header of the trace.
    pub header: Header,
    /// Number of accesses in the trace.
    pub accesses: u64,
    /// Number of runs, each of which is one lookup.
    pub runs: u64,
    /// Number of recorded instructions, if the trace counts them.
    pub instructions: Option<u64>,
    /// The misses of every geometry of every page size.
    pub geometries: Vec<GeometryMisses>,
    /// For each page size of [`trace::SHIFTS`]: the size in bytes, and the total bytes of the touched pages of that size.
    pub footprints: Vec<(u64, u64)>,
    /// Descriptions of the parts of the file that could not be read.
    pub damage: Vec<String>,
    /// Whether the file was cut off.
    pub cut_off: bool,
    /// Number of processes that the traced process forked. Their accesses are in other files and not included.
    pub forks: u64,
    /// The program that the last execve of the traced process started, if any. Its accesses are in another file or were not
    /// recorded.
    pub executed: Option<String>,
}

/// Returns an error if the filter may have changed the number of misses of a TLB with `1 << set_shift` sets.
fn admits(filter: &Filter, page_shift: u32, set_shift: u32) -> Result<(), NotExact> {
    filter.admits(&TlbGeometry { page_bytes: 1 << page_shift, sets: 1 << set_shift })
}

/// Reads a trace once and counts the misses for pages of `1 << shift` bytes, for each of `page_shifts`, and for 1 to `ways` ways.
///
/// All threads of the trace share one TLB, in the order of the file. Up to `threads` worker threads divide the page sizes among
/// themselves. For a filtered trace, the result has only the geometries for which the trace is exact. If there are none, the
/// sweep fails.
pub fn sweep(from: impl Read, page_shifts: &[u32], ways: u32, threads: usize) -> Result<SweepResult, SweepError> {
    let mut reader = Reader::new(from)?;
    let filter = reader.header().filter;
    let shifts = exact_page_shifts(&filter, page_shifts)?;
    let mut all: Vec<NumberedGeometries> =
        shifts.into_iter().map(|shift| NumberedGeometries::new(shift, ways)).collect();
    let share = all.len().div_ceil(threads.max(1)).max(1);
    let mut totals = TraceTotals::new(reader.header().clone());
    std::thread::scope(|scope| {
        let workers: std::io::Result<Vec<SyncSender<Arc<Chunk>>>> =
            all.chunks_mut(share).map(|part| start_worker(scope, part)).collect();
        let workers = workers.map_err(SweepError::NoThread)?;
        while let Some(block) = reader.next_block()? {
            if let Some(chunk) = totals.add(block) {
                let chunk = Arc::new(chunk);
                // A send fails only after a panic of the worker, which the thread scope propagates.
                workers.iter().for_each(|worker| drop(worker.send(Arc::clone(&chunk))));
            }
        }
        Ok::<(), SweepError>(())
    })?;
    let TraceTotals { mut result, instructions, pages, .. } = totals;
    if result.runs == 0 {
        return Err(SweepError::NoAccesses);
    }
    result.cut_off = !reader.is_whole();
    result.instructions = Some(instructions).filter(|count| *count != 0);
    result.geometries = all.iter().flat_map(|numbered| numbered.geometries.all(&filter)).collect();
    result.footprints = footprints(&pages);
    Ok(result)
}

/// The page sizes for which the filter leaves an exact geometry. Fails if there are none.
fn exact_page_shifts(filter: &Filter, page_shifts: &[u32]) -> Result<Vec<u32>, NotExact> {
    let mut exact = Vec::new();
    let mut refusal = None;
    for shift in page_shifts {
        // A filter that is exact for any number of sets is exact for the largest number.
        match admits(filter, *shift, SET_SHIFTS.end - 1) {
            Ok(()) => exact.push(*shift),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    match refusal {
        Some(error) if exact.is_empty() => Err(error),
        _ => Ok(exact),
    }
}

/// Starts a thread that adds chunks to these geometries until the returned sender is dropped.
fn start_worker<'scope>(
    scope: &'scope Scope<'scope, '_>,
    geometries: &'scope mut [NumberedGeometries],
) -> std::io::Result<SyncSender<Arc<Chunk>>> {
    let (sender, receiver) = sync_channel::<Arc<Chunk>>(2);
    let work = move || {
        for chunk in receiver {
            geometries.iter_mut().for_each(|numbered| numbered.add(&chunk));
        }
    };
    Builder::new().spawn_scoped(scope, work)?;
    Ok(sender)
}

/// The totals of a trace, collected block by block.
struct TraceTotals {
    /// The result of the sweep, in which the misses and a few totals are still missing.
    result: SweepResult,
    /// Number of recorded instructions.
    instructions: u64,
    /// All touched 4K pages.
    pages: HashSet<u64, Hashing>,
    /// For each thread, the instruction windows that were recorded.
    windows: BTreeMap<u32, Windows>,
}

impl TraceTotals {
    fn new(header: Header) -> TraceTotals {
        let result = SweepResult {
            header,
            accesses: 0,
            runs: 0,
            instructions: None,
            geometries: Vec::new(),
            footprints: Vec::new(),
            damage: Vec::new(),
            cut_off: false,
            forks: 0,
            executed: None,
        };
        TraceTotals { result, instructions: 0, pages: HashSet::default(), windows: BTreeMap::new() }
    }

    /// Adds a block, and returns its runs, if it has any.
    fn add(&mut self, block: Block) -> Option<Chunk> {
        match block {
            Block::Runs { thread, first, instructions, chunk } => {
                let runs = chunk.len() as u64;
                self.result.runs += runs;
                let counts = chunk.accesses.iter().map(|count| u64::from(*count)).sum::<u64>();
                self.result.accesses += if chunk.accesses.is_empty() { runs } else { counts };
                let windows = self.windows.entry(thread).or_default();
                let recorded = windows.block(first.saturating_add(runs), instructions);
                self.instructions = self.instructions.saturating_add(recorded);
                self.pages.extend(&chunk.pages);
                return Some(chunk);
            }
            Block::Timestamps(_) => {}
            Block::Damaged(damage) => self.result.damage.push(format!("offset {}: {}", damage.offset, damage.why)),
            Block::Events { thread, events, .. } => {
                self.windows.entry(thread).or_default().events(&events);
                self.result.forks += events.iter().filter_map(forked).count() as u64;
                let executed = events.into_iter().filter_map(program_of).next_back();
                self.result.executed = executed.or(self.result.executed.take());
            }
        }
        None
    }
}

/// For each page size: the size in bytes, and the total bytes of the pages of that size that contain any of these 4K pages.
fn footprints(pages: &HashSet<u64, Hashing>) -> Vec<(u64, u64)> {
    let bytes = |shift: u32| {
        let touched: HashSet<u64, Hashing> = pages.iter().map(|page| page >> (shift - trace::PAGE_SHIFT)).collect();
        (1 << shift, (touched.len() as u64) << shift)
    };
    trace::SHIFTS.map(bytes).to_vec()
}

/// Why a sweep of a trace failed.
#[derive(Debug, Error)]
pub enum SweepError {
    /// The trace cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The trace was filtered and is not exact for any geometry.
    #[error(transparent)]
    NotExact(#[from] NotExact),
    #[error("the trace has no accesses; expected some: see `pagelab trace info`")]
    NoAccesses,
    #[error("no thread can be started: {0}; raise the limit of processes and threads (ulimit -u)")]
    NoThread(#[source] std::io::Error),
}

/// The geometries of one page size, and the numbers of the pages of that size.
struct NumberedGeometries {
    geometries: Geometries,
    /// For each touched page, its number in the order of first accesses, from 1 on.
    numbers: HashMap<u64, u32, Hashing>,
}

impl NumberedGeometries {
    fn new(shift: u32, ways: u32) -> NumberedGeometries {
        NumberedGeometries { geometries: Geometries::new(shift, ways), numbers: HashMap::default() }
    }

    fn add(&mut self, chunk: &Chunk) {
        let shift = self.geometries.page_shift - trace::PAGE_SHIFT;
        let mut numbers = Vec::with_capacity(chunk.pages.len());
        for page in &chunk.pages {
            // 0 is an empty place in a stack.
            let next = self.numbers.len() as u32 + 1;
            numbers.push(*self.numbers.entry(page >> shift).or_insert(next));
        }
        self.geometries.add(chunk, &numbers);
    }
}

/// The misses of one geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GeometryMisses {
    /// Page size in bytes.
    pub page_bytes: u64,
    pub sets: u32,
    pub ways: u32,
    pub misses: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Replacement;
    use crate::tlb::Tlb;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(testing::properties(8))]

        #[test]
        fn counts_the_misses_of_every_single_tlb(
            pages in prop::sample::select(vec![20u64, 300, 9000]),
            stream in proptest::collection::vec(any::<u32>(), 1..2000),
            shift in prop::sample::select(vec![12u32, 14, 21]),
            max_ways in prop::sample::select(vec![15u32, 16, 20, 64, 128]),
        ) {
            let stream: Vec<u64> = stream.iter().map(|number| u64::from(*number) * 7 % pages).collect();
            let number = |page: u64| (page >> (shift - 12)) as u32 + 1;
            let numbers: Vec<u32> = stream.iter().map(|page| number(*page)).collect();
            let mut geometries = Geometries::new(shift, max_ways);
            // Whether each of the two search orders was used. The second one follows a chunk with many pages in no stack.
            let mut used_orders = [false; 2];
            for part in stream.chunks(100) {
                used_orders[usize::from(geometries.has_many_absent)] = true;
                let chunk = Chunk { pages: part.to_vec(), ids: (0..part.len() as u16).collect(), ..Chunk::default() };
                geometries.add(&chunk, &part.iter().map(|page| number(*page)).collect::<Vec<_>>());
            }
            prop_assert!(used_orders[0] && (used_orders[1] || stream.len() <= 100 || pages < 300 || shift == 21));
            for set_shift in [0, 1, 4, 7, 11] {
                for ways in [1, 2, 4, 7, 12, 15, 16, 17, 20, 33, 64, 100, 128] {
                    if ways > max_ways {
                        prop_assert_eq!(geometries.misses(set_shift, ways), None);
                        continue;
                    }
                    let mut tlb = Tlb::new(1 << set_shift, ways, Replacement::Lru, 0);
                    let misses = stream.iter().zip(&numbers).filter(|(page, number)| {
                        !tlb.touch((**page >> (shift - 12)) as u32, **number)
                    });
                    prop_assert_eq!(geometries.misses(set_shift, ways), Some(misses.count() as u64), "{} {}", set_shift, ways);
                }
            }
        }
    }

    #[test]
    fn counts_the_requested_geometries_and_no_others() {
        let geometries = Geometries::new(12, DEFAULT_WAYS);
        assert_eq!(geometries.all(&Filter::None).len(), 180);
        assert_eq!((geometries.misses(12, 1), geometries.misses(0, 16), geometries.misses(0, 0)), (None, None, None));
        assert_eq!(Geometries::new(12, u32::MAX).all(&Filter::None).len(), 12 * 128);
    }
}
