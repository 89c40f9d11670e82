//! Replays a trace in simulations. One pass over the file feeds all of them, and threads divide the simulations among them.

mod batch;
mod error;
mod family;
mod instructions;
mod numbers;
mod order;
mod replayed;
mod thread;

use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

use trace::{Block, Call, Event, Image, Reader};

use crate::layout::{Layout, LayoutParameters};
use crate::simulation::{Hashing, Simulation};
use batch::{Batch, Step};
pub use error::ReplayError;
pub use family::Child;
use family::ProcessTree;
use order::ThreadMerger;
pub(crate) use order::{forked, program_of};
pub use replayed::{Replayed, Unrecorded};

/// Maximum number of batches in the queue of a simulation thread.
const MAX_AHEAD: usize = 2;
/// Used if no event describes memory: touched pages at most this far apart (64K) belong to one range.
const GAP_PAGES: u64 = 16;

/// Infers the memory of a trace whose events describe none: ranges of touched pages, as start and end address. `None` if events
/// describe memory.
pub fn infer(from: impl Read) -> Result<Option<Vec<(u64, u64)>>, ReplayError> {
    touched_ranges(from, |events| events.iter().any(|event| describes_memory(&event.call)))
}

/// The memory that a trace touches, as ranges like those of [`infer`], whatever its events describe.
pub fn touched(from: impl Read) -> Result<Vec<(u64, u64)>, ReplayError> {
    Ok(touched_ranges(from, |_| false)?.unwrap_or_default())
}

/// Ranges of touched pages; `None` if `stops_at` is true for a block of events.
fn touched_ranges(
    from: impl Read,
    stops_at: impl Fn(&[Event]) -> bool,
) -> Result<Option<Vec<(u64, u64)>>, ReplayError> {
    let mut reader = Reader::new(from)?;
    let mut pages: HashSet<u64, Hashing> = HashSet::default();
    while let Some(block) = reader.next_block()? {
        match block {
            Block::Events { events, .. } if stops_at(&events) => return Ok(None),
            Block::Runs { chunk, .. } => pages.extend(&chunk.pages),
            Block::Events { .. } | Block::Timestamps(_) | Block::Damaged(_) => {}
        }
    }
    if pages.is_empty() {
        return Err(ReplayError::NoAccesses);
    }
    let mut pages: Vec<u64> = pages.into_iter().collect();
    pages.sort_unstable();
    let touched_ranges = pages.chunk_by(|page, next| next - page <= GAP_PAGES);
    let addresses = touched_ranges
        .filter_map(|range| Some((first_byte(*range.first()?), first_byte(range.last()?.saturating_add(1)))));
    Ok(Some(addresses.collect()))
}

/// The first address of a page, at most that of the last page of the address space.
fn first_byte(page: u64) -> u64 {
    page.min(u64::MAX >> trace::PAGE_SHIFT) << trace::PAGE_SHIFT
}

fn describes_memory(call: &Call) -> bool {
    matches!(call, Call::Mmap { .. } | Call::Region { .. } | Call::Brk { .. })
}

/// Replays a trace in all simulations, on up to `threads` threads. `inferred` is the result of [`infer`]. Ignores processes that
/// the program forks.
pub fn replay(
    from: impl Read,
    inferred: Option<&[(u64, u64)]>,
    simulations: &mut [Simulation],
    threads: usize,
) -> Result<Replayed, ReplayError> {
    replay_processes(from, &mut |_| Ok(None), inferred, simulations, threads)
}

/// As [`replay`], but includes the traces of forked processes and of executed programs, which `child` opens. Timestamps determine
/// the order between processes. Without timestamps, or if a child shares its parent's memory, the child runs to its end before its
/// parent continues, as if the parent waited for it.
pub fn replay_processes(
    from: impl Read,
    child: &mut dyn FnMut(Image) -> std::io::Result<Option<Child>>,
    inferred: Option<&[(u64, u64)]>,
    simulations: &mut [Simulation],
    threads: usize,
) -> Result<Replayed, ReplayError> {
    let reader = Reader::new(from)?;
    // The emulator has chosen the addresses of an emulated program.
    let is_emulated = !reader.header().system && reader.header().emulator.is_some();
    if !is_emulated && simulations.iter().any(Simulation::has_random_layout) {
        return Err(ReplayError::NoLayout);
    }
    let first = reader.header().process.map_or_else(Image::default, |process| process.image());
    // Under a hugetlb policy, a program's addresses always change.
    let is_translated = |parameters: &LayoutParameters| is_emulated || parameters.pool.is_some();
    let merger = |parameters| ThreadMerger::new(is_translated(&parameters).then(|| Layout::new(parameters, first)));
    let memory = inferred.unwrap_or_default();
    let architecture = reader.header().architecture.clone();
    let parameters = |simulation: &Simulation| simulation.parameters(&architecture);
    let replayed = feed(reader, child, memory, simulations, threads, parameters, merger)?;
    Ok(Replayed { inferred: inferred.is_some(), ..replayed })
}

/// As [`replay`], but replays only accesses, like a simulator that models no kernel: at the recorded addresses, with the memory
/// that is [`touched`]. Ignores all calls.
pub fn replay_accesses(
    from: impl Read,
    touched: &[(u64, u64)],
    simulations: &mut [Simulation],
    threads: usize,
) -> Result<Replayed, ReplayError> {
    let merger = |_| ThreadMerger::accesses_only();
    let reader = Reader::new(from)?;
    let replayed =
        feed(reader, &mut |_| Ok(None), touched, simulations, threads, |_| LayoutParameters::default(), merger)?;
    Ok(Replayed { accesses_only: true, ..replayed })
}

/// Feeds a trace to simulations. Simulations with the same layout parameters share a merger.
fn feed<R: Read>(
    reader: Reader<R>,
    child: &mut dyn FnMut(Image) -> std::io::Result<Option<Child>>,
    memory: &[(u64, u64)],
    simulations: &mut [Simulation],
    threads: usize,
    parameters: impl Fn(&Simulation) -> LayoutParameters,
    merger: impl Fn(LayoutParameters) -> ThreadMerger,
) -> Result<Replayed, ReplayError> {
    for simulation in &*simulations {
        match (reader.header().system, simulation.is_direct()) {
            (true, false) => return Err(ReplayError::System),
            (false, true) => return Err(ReplayError::Program),
            _ => {}
        }
    }
    for (begin, end) in memory {
        simulations.iter_mut().for_each(|simulation| simulation.assume(*begin, *end));
    }
    let share = simulations.len().div_ceil(threads.max(1)).max(1);
    let mut by_parameters: BTreeMap<LayoutParameters, Vec<&mut Simulation>> = BTreeMap::new();
    for simulation in simulations {
        by_parameters.entry(parameters(simulation)).or_default().push(simulation);
    }
    if by_parameters.is_empty() {
        // Without simulations, reads the trace only to report its errors.
        by_parameters.insert(LayoutParameters::default(), Vec::new());
    }
    let mergers = by_parameters.keys().map(|parameters| merger(*parameters)).collect();
    let mut replayed = Replayed::default();
    std::thread::scope(|scope| {
        let mut workers: Vec<Vec<SyncSender<Arc<Batch>>>> = Vec::new();
        for simulations in by_parameters.values_mut() {
            let begin = |simulations| {
                let (sender, receiver) = sync_channel(MAX_AHEAD);
                Builder::new().spawn_scoped(scope, move || work(simulations, &receiver))?;
                Ok(sender)
            };
            let begun: std::io::Result<_> = simulations.chunks_mut(share).map(begin).collect();
            workers.push(begun.map_err(ReplayError::NoThread)?);
        }
        let tree = ProcessTree::new(reader, mergers, child, &workers, &mut replayed);
        if tree.feed()? { Ok(()) } else { Err(ReplayError::NoAccesses) }
    })?;
    Ok(replayed)
}

/// Runs batches in simulations until the queue is closed.
fn work(simulations: &mut [&mut Simulation], batches: &Receiver<Arc<Batch>>) {
    for batch in batches {
        for simulation in &mut *simulations {
            simulation.add_pages(&batch.pages);
            for step in &batch.steps {
                match step {
                    Step::Change(change) => simulation.change(change),
                    Step::Fork { process, shares } => simulation.fork(*process, *shares),
                    Step::Switch { process } => simulation.switch(*process),
                    Step::End { process, next } => simulation.end(*process, *next),
                    Step::Exec => simulation.exec(),
                    Step::UnrecordedFork { shares } => simulation.note_unrecorded_fork(*shares),
                    Step::Runs { thread, block, numbers, range, recorded } => {
                        simulation.runs(*thread, &block.chunk, numbers, range.clone());
                        if range.end == block.chunk.len() {
                            simulation.instructions(*thread, block.instructions, *recorded);
                        }
                    }
                }
            }
        }
    }
}
