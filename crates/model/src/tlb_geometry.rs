//! Computes the misses of all LRU geometries in one pass: every combination of set count, ways and page size.
//!
//! For each set count, each set has a stack of its pages, ordered by last use (Mattson's stack algorithm). A page at depth `d`
//! hits in all TLBs with more than `d` ways, so one stack of 16 places covers 1 to 16 ways. For more ways, stacks have 32, 64 or
//! 128 places.
//!
//! With more sets (set counts are powers of two), a page is at the same depth or less, because each set has a subset of the pages.
//! So a page at the front of its stack need not be looked up with more sets, and for a page at a small depth only the first places
//! are searched. Therefore the search normally begins with the fewest sets. If many pages are in no stack, it begins with the most
//! sets: a page that is in no stack there is in no other stack either, and is pushed to the front without a search.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::Builder;

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

/// All geometries of one page size.
#[derive(Clone, Debug)]
pub struct Geometries {
    /// log2 of the page size in bytes.
    page_shift: u32,
    /// Misses are counted for 1 up to this number of ways.
    ways: u32,
    stacks: AnyDepth,
    touches: u64,
    /// Whether more than one in [`MANY_ABSENT`] runs of the last chunk were in no stack.
    has_many_absent: bool,
}

/// If more than one in this number of runs is in no stack, the search begins with the most sets. Measured on 6 million runs: for
/// random accesses alone, this takes 0.6 to 0.9 of the time of the other order, whatever the share of absent pages (4 to 50 % of
/// 2^15 to 2^16 pages). For random accesses mixed with runs of eight pages, both orders take the same time at 15 to 30 %, and this
/// one takes 0.92 of the time at 35 %.
const MANY_ABSENT: u64 = 3;

impl Geometries {
    /// Empty stacks for pages of `1 << page_shift` bytes, at least 4K, and for 1 to `ways` ways (at most
    /// [`MAX_WAYS`]).
    pub fn new(page_shift: u32, ways: u32) -> Geometries {
        let ways = ways.clamp(1, MAX_WAYS);
        Geometries { page_shift, ways, stacks: AnyDepth::new(ways as usize), touches: 0, has_many_absent: false }
    }

    /// Adds all runs of a chunk, both fetches and data. `numbers` identifies the chunk's pages at this page size: a page has the
    /// same number in every chunk, which is not 0.
    pub fn add(&mut self, chunk: &Chunk, numbers: &[u32]) {
        let shift = self.page_shift - trace::PAGE_SHIFT;
        let pages: Vec<(u32, u32)> =
            chunk.pages.iter().zip(numbers).map(|(page, number)| ((page >> shift) as u32, *number)).collect();
        let runs = chunk.ids.len() as u64;
        self.touches += runs;
        let absent = self.stacks.absent();
        self.stacks.touch(&chunk.ids, &pages, self.has_many_absent);
        self.has_many_absent = (self.stacks.absent() - absent) * MANY_ABSENT > runs;
    }

    /// Misses of a TLB with `1 << set_shift` sets and `ways` ways; `None` if they are not counted.
    pub fn misses(&self, set_shift: u32, ways: u32) -> Option<u64> {
        let is_counted = SET_SHIFTS.contains(&set_shift) && (1..=self.ways).contains(&ways);
        is_counted.then(|| self.stacks.misses(set_shift as usize, ways as usize))
    }

    /// The misses of every geometry for which a trace with this filter is exact.
    pub fn all(&self, filter: &Filter) -> Vec<GeometryMisses> {
        let is_exact = |shift: &u32| admits(filter, self.page_shift, *shift).is_ok();
        let geometries = SET_SHIFTS.filter(is_exact).flat_map(|shift| (1..=self.ways).map(move |ways| (shift, ways)));
        let misses = geometries.filter_map(|(shift, ways)| {
            let misses = self.misses(shift, ways)?;
            Some(GeometryMisses { page_bytes: 1 << self.page_shift, sets: 1 << shift, ways, misses })
        });
        misses.collect()
    }

    /// Number of runs so far.
    pub fn touches(&self) -> u64 {
        self.touches
    }
}

/// The misses of a trace in every geometry, for several page sizes.
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
    /// For page sizes from 4K to 1G, in bytes: the bytes of all pages of that size that were touched.
    pub footprints: Vec<(u64, u64)>,
    /// Descriptions of the parts of the file that could not be read.
    pub damage: Vec<String>,
    /// Whether the file was cut off.
    pub cut_off: bool,
    /// Number of forked processes. Their accesses are in other files and not included.
    pub forks: u64,
    /// The program that the process executed at the end. Its accesses are in another file or were not recorded.
    pub executed: Option<String>,
}

/// Refuses a TLB with `1 << set_shift` sets if the filter may have changed its misses.
fn admits(filter: &Filter, page_shift: u32, set_shift: u32) -> Result<(), NotExact> {
    filter.admits(&TlbGeometry { page_bytes: 1 << page_shift, sets: 1 << set_shift })
}

/// Reads a trace once and counts misses for pages of `1 << shift` bytes, for each of `page_shifts`, and for 1 to `ways` ways. All
/// threads of the trace share one TLB, in the order of the file. Up to `threads` threads divide the page sizes among them. For a
/// filtered trace, the result has only the geometries for which it is exact; if there are none, the trace is refused.
pub fn sweep(from: impl Read, page_shifts: &[u32], ways: u32, threads: usize) -> Result<SweepResult, SweepError> {
    let mut reader = Reader::new(from)?;
    let header = reader.header().clone();
    let filter = header.filter;
    // A filter that is exact for any number of sets is exact for the largest number.
    let requested = page_shifts.iter().map(|shift| (*shift, admits(&filter, *shift, SET_SHIFTS.end - 1)));
    let (exact, refused): (Vec<_>, Vec<_>) = requested.partition(|(_, admitted)| admitted.is_ok());
    if let ([], Some((_, Err(error)))) = (&exact[..], refused.into_iter().next()) {
        return Err(error.into());
    }
    let mut all: Vec<NumberedGeometries> =
        exact.iter().map(|(shift, _)| NumberedGeometries::new(*shift, ways)).collect();
    let share = all.len().div_ceil(threads.max(1)).max(1);
    let mut swept = SweepResult {
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
    let mut instructions = 0u64;
    let mut pages: HashSet<u64, Hashing> = HashSet::default();
    let mut recorded: BTreeMap<u32, Windows> = BTreeMap::new();
    std::thread::scope(|scope| {
        let mut workers: Vec<SyncSender<Arc<Chunk>>> = Vec::new();
        for part in all.chunks_mut(share) {
            let (sender, receiver) = sync_channel::<Arc<Chunk>>(2);
            let work = move || {
                for chunk in receiver {
                    part.iter_mut().for_each(|numbered| numbered.add(&chunk));
                }
            };
            Builder::new().spawn_scoped(scope, work).map_err(SweepError::NoThread)?;
            workers.push(sender);
        }
        while let Some(block) = reader.next_block()? {
            match block {
                Block::Runs { thread, first, instructions: count, chunk } => {
                    swept.runs += chunk.len() as u64;
                    let counts = chunk.accesses.iter().map(|count| u64::from(*count)).sum::<u64>();
                    swept.accesses += if chunk.accesses.is_empty() { chunk.len() as u64 } else { counts };
                    let end = first.saturating_add(chunk.len() as u64);
                    let more = recorded.entry(thread).or_default().block(end, count);
                    instructions = instructions.saturating_add(more);
                    pages.extend(&chunk.pages);
                    let chunk = Arc::new(chunk);
                    // A worker ends only when its sender is dropped, or with a panic, which the thread scope propagates.
                    workers.iter().for_each(|worker| drop(worker.send(Arc::clone(&chunk))));
                }
                Block::Timestamps(_) => {}
                Block::Damaged(damage) => swept.damage.push(format!("offset {}: {}", damage.offset, damage.why)),
                Block::Events { thread, events, .. } => {
                    recorded.entry(thread).or_default().events(&events);
                    swept.forks += events.iter().filter_map(forked).count() as u64;
                    swept.executed = events.into_iter().filter_map(program_of).next_back().or(swept.executed.take());
                }
            }
        }
        Ok::<(), SweepError>(())
    })?;
    if swept.runs == 0 {
        return Err(SweepError::NoAccesses);
    }
    swept.cut_off = !reader.is_whole();
    swept.instructions = Some(instructions).filter(|count| *count != 0);
    swept.geometries = all.iter().flat_map(|numbered| numbered.geometries.all(&filter)).collect();
    swept.footprints = footprints(&pages);
    Ok(swept)
}

/// For each page size, in bytes: the bytes of all pages of that size that contain any of these 4K pages.
fn footprints(pages: &HashSet<u64, Hashing>) -> Vec<(u64, u64)> {
    let bytes = |shift: u32| {
        let whole: HashSet<u64, Hashing> = pages.iter().map(|page| page >> (shift - trace::PAGE_SHIFT)).collect();
        (1 << shift, (whole.len() as u64) << shift)
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

/// The geometries of one page size, and the numbers of its pages.
struct NumberedGeometries {
    geometries: Geometries,
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
            // 0 means no entry.
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
            // The search order is reversed after a chunk with many pages that were in no stack.
            let mut orders = [false; 2];
            for part in stream.chunks(100) {
                orders[usize::from(geometries.has_many_absent)] = true;
                let chunk = Chunk { pages: part.to_vec(), ids: (0..part.len() as u16).collect(), ..Chunk::default() };
                geometries.add(&chunk, &part.iter().map(|page| number(*page)).collect::<Vec<_>>());
            }
            prop_assert!(orders[0] && (orders[1] || stream.len() <= 100 || pages < 300 || shift == 21));
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
