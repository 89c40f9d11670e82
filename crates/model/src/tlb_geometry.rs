//! Computes the misses of every LRU geometry in one pass: set counts times ways times page sizes.
//!
//! For each set count there is a stack of the pages of each set, ordered by last use. A page at depth `d` hits in all
//! TLBs with more than `d` ways, so one stack of sixteen answers for sixteen numbers of ways. For more ways the stack
//! has 32, 64 or 128 places. With any larger power of two of sets a page is at the same depth or less, because its set
//! there is a subset of this one. So a page at the front of its set needs no lookup in the larger set counts, and one
//! at a small depth needs only a lookup at their fronts. Therefore normal programs are looked up from the fewest sets
//! on. If many pages are in no stack the order is reversed: a page that is in no stack of the most sets is in no other
//! stack either, and is pushed to the front without a search.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::Builder;

use serde::Serialize;
use thiserror::Error;
use trace::{Block, Chunk, Filter, NotExact, ReadError, Reader, TlbGeometry, Windows};

use crate::replay::{forked, program_of};
use crate::simulation::Hashing;

mod stacks;

pub use stacks::SET_SHIFTS;
use stacks::{MAX_DEPTH, OfDepth};

/// The default number of ways that are counted.
pub const USUAL_WAYS: u32 = 15;
/// The maximum number of ways that can be counted.
pub const MAX_WAYS: u32 = MAX_DEPTH as u32;

/// All geometries of one page size.
#[derive(Clone, Debug)]
pub struct Geometries {
    /// log2 of the page size in bytes.
    page_shift: u32,
    /// Ways from 1 to this number are counted.
    ways: u32,
    stacks: OfDepth,
    touches: u64,
    /// Whether more than one in [`MANY_ABSENT`] runs of the last chunk were in no stack.
    has_many_absent: bool,
}

/// If more than one in this number of runs is in no stack, the search begins with the most sets. Measured on 6 million
/// runs: random accesses alone then take 0.6 to 0.9 of the time, whatever their share (4 to 50 % of 2^15 to 2^16
/// pages); mixed with runs of eight pages both orders take the same time at 15 to 30 %, and this one takes 0.92 at 35
/// %.
const MANY_ABSENT: u64 = 3;

impl Geometries {
    /// Empty stacks for pages of `1 << page_shift` bytes, at least 4K, and for up to `ways` ways, at most [`MAX_WAYS`].
    pub fn new(page_shift: u32, ways: u32) -> Geometries {
        let ways = ways.clamp(1, MAX_WAYS);
        Geometries { page_shift, ways, stacks: OfDepth::new(ways as usize), touches: 0, has_many_absent: false }
    }

    /// Adds all runs of a chunk, fetches and data alike. `numbers` are the numbers of the chunk's pages at this page
    /// size; a page has the same number in every chunk, which is not 0.
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

    /// Misses of a TLB with `1 << set_shift` sets and `ways` ways; `None` outside [`SET_SHIFTS`] and the counted ways.
    pub fn misses(&self, set_shift: u32, ways: u32) -> Option<u64> {
        let is_counted = SET_SHIFTS.contains(&set_shift) && (1..=self.ways).contains(&ways);
        is_counted.then(|| self.stacks.misses(set_shift as usize, ways as usize))
    }

    /// Every geometry for which a trace with this filter is exact.
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
pub struct Swept {
    /// Number of accesses in the trace.
    pub accesses: u64,
    /// Number of runs, each of which is one lookup.
    pub runs: u64,
    /// Number of recorded instructions, if the trace counts them.
    pub instructions: Option<u64>,
    /// Every geometry of every page size.
    pub geometries: Vec<GeometryMisses>,
    /// Descriptions of parts of the file that could not be used.
    pub damage: Vec<String>,
    /// Whether the file was cut off.
    pub cut_off: bool,
    /// Number of forked processes. Their accesses are in other files and not included.
    pub forks: u64,
    /// The program that the process executed at the end. Its accesses are in another file, or not recorded.
    pub executed: Option<String>,
}

/// Refuses TLBs of `1 << set_shift` sets whose misses a filter may have changed.
fn admits(filter: &Filter, page_shift: u32, set_shift: u32) -> Result<(), NotExact> {
    filter.admits(&TlbGeometry { page_bytes: 1 << page_shift, sets: 1 << set_shift })
}

/// Reads a trace once for pages of `1 << shift` bytes each and for up to `ways` ways. All threads, in the order of the
/// file, share one TLB. Up to `threads` threads share the page sizes. For a filtered trace the result has only the
/// geometries for which it is exact.
///
/// # Errors
/// The trace cannot be read, or is exact for none of the geometries.
pub fn sweep(from: impl Read, page_shifts: &[u32], ways: u32, threads: usize) -> Result<Swept, SweepError> {
    let mut reader = Reader::new(from)?;
    let filter = reader.header().filter;
    // If a filter is exact for any number of sets, it is for the largest.
    let asked = page_shifts.iter().map(|shift| (*shift, admits(&filter, *shift, SET_SHIFTS.end - 1)));
    let (exact, refused): (Vec<_>, Vec<_>) = asked.partition(|(_, admitted)| admitted.is_ok());
    if let ([], Some((_, Err(error)))) = (&exact[..], refused.into_iter().next()) {
        return Err(error.into());
    }
    let mut all: Vec<Numbered> = exact.iter().map(|(shift, _)| Numbered::new(*shift, ways)).collect();
    let share = all.len().div_ceil(threads.max(1)).max(1);
    let (geometries, damage) = (Vec::new(), Vec::new());
    let (cut_off, forks, executed) = (false, 0, None);
    let mut swept = Swept { accesses: 0, runs: 0, instructions: None, geometries, damage, cut_off, forks, executed };
    let mut instructions = 0u64;
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
        return Err(SweepError::Nothing);
    }
    swept.cut_off = !reader.is_whole();
    swept.instructions = Some(instructions).filter(|count| *count != 0);
    swept.geometries = all.iter().flat_map(|numbered| numbered.geometries.all(&filter)).collect();
    Ok(swept)
}

/// Why a trace has no result.
#[derive(Debug, Error)]
pub enum SweepError {
    /// The trace cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The trace was filtered and lacks the necessary runs.
    #[error(transparent)]
    NotExact(#[from] NotExact),
    #[error("the trace has no accesses; expected some: see `pagelab trace info`")]
    Nothing,
    #[error("no thread can be started: {0}; raise the limit of processes and threads (ulimit -u)")]
    NoThread(#[source] std::io::Error),
}

/// The geometries of a page size, with the numbers of its pages.
struct Numbered {
    geometries: Geometries,
    numbers: HashMap<u64, u32, Hashing>,
}

impl Numbered {
    fn new(shift: u32, ways: u32) -> Numbered {
        Numbered { geometries: Geometries::new(shift, ways), numbers: HashMap::default() }
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
        fn every_geometry_is_that_of_a_tlb_alone(
            pages in prop::sample::select(vec![20u64, 300, 9000]),
            stream in proptest::collection::vec(any::<u32>(), 1..2000),
            shift in prop::sample::select(vec![12u32, 14, 21]),
            most in prop::sample::select(vec![15u32, 16, 20, 64, 128]),
        ) {
            let stream: Vec<u64> = stream.iter().map(|number| u64::from(*number) * 7 % pages).collect();
            let number = |page: u64| (page >> (shift - 12)) as u32 + 1;
            let numbers: Vec<u32> = stream.iter().map(|page| number(*page)).collect();
            let mut geometries = Geometries::new(shift, most);
            // The search order is reversed after a chunk in which many pages were in no stack.
            let mut orders = [false; 2];
            for part in stream.chunks(100) {
                orders[usize::from(geometries.has_many_absent)] = true;
                let chunk = Chunk { pages: part.to_vec(), ids: (0..part.len() as u16).collect(), ..Chunk::default() };
                geometries.add(&chunk, &part.iter().map(|page| number(*page)).collect::<Vec<_>>());
            }
            prop_assert!(orders[0] && (orders[1] || stream.len() <= 100 || pages < 300 || shift == 21));
            for set_shift in [0, 1, 4, 7, 11] {
                for ways in [1, 2, 4, 7, 12, 15, 16, 17, 20, 33, 64, 100, 128] {
                    if ways > most {
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
    fn all_are_there_and_no_others() {
        let geometries = Geometries::new(12, USUAL_WAYS);
        assert_eq!(geometries.all(&Filter::None).len(), 180);
        assert_eq!((geometries.misses(12, 1), geometries.misses(0, 16), geometries.misses(0, 0)), (None, None, None));
        assert_eq!(Geometries::new(12, u32::MAX).all(&Filter::None).len(), 12 * 128);
    }
}
