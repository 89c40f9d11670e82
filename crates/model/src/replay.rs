//! From a trace to simulations: one pass over the file serves all of them, and threads share them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use thiserror::Error;
use trace::{Block, Call, Chunk, Event, PAGE_SHIFT, ReadError, Reader};

use crate::layout::Layout;
use crate::simulation::{Hashing, Simulation};

/// Blocks of a thread that wait for what other threads did before; a trace with parts missing would make them wait
/// for ever.
const MOST_WAITING: usize = 64;
/// Batches that wait for a thread of simulations.
const MOST_AHEAD: usize = 2;
// include/uapi/linux/sched.h
const CLONE_VM: u64 = 0x100;
const CLONE_THREAD: u64 = 0x1_0000;
/// Pages that lie no further apart belong to one stretch of memory, where no event says what does: 64K.
const GAP_PAGES: u64 = 16;

/// A trace that cannot be simulated.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// It is of a whole machine, and the policy is one for programs.
    #[error(
        "the trace has physical addresses of a whole machine, which no page tables of a program translate; ask for direct-map-4k, direct-map-2m or direct-map-1g, or record a program (`pagelab record` without --system)"
    )]
    System,
    /// It is of a program, and the policy is one for machines.
    #[error(
        "the trace has virtual addresses of a program, which the direct map does not translate; record a machine (`pagelab record --system`)"
    )]
    Program,
    /// There is nothing in it.
    #[error("the trace has no accesses; expected some: see `pagelab trace info`")]
    Nothing,
}

/// What was met on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Parts of the file that could not be used, in words.
    pub damage: Vec<String>,
    /// No event says which memory there is: it was inferred from what is touched.
    pub inferred: bool,
    /// Events that had to be taken out of their order over threads, because what was before is missing.
    pub out_of_order: u64,
    /// A file was cut off.
    pub cut_off: bool,
    /// Traces of forked processes that were found.
    pub children: u64,
}

/// The memory of a trace whose events do not tell of any: stretches of touched pages, as first and last address. `None`
/// if events tell.
///
/// # Errors
/// The trace cannot be read or is not one of a program.
pub fn infer(from: impl Read) -> Result<Option<Vec<(u64, u64)>>, ReplayError> {
    let mut reader = Reader::new(from)?;
    let mut pages: HashSet<u64, Hashing> = HashSet::default();
    while let Some(block) = reader.next_block()? {
        match block {
            Block::Events { events, .. } if events.iter().any(|event| tells_of_memory(&event.call)) => return Ok(None),
            Block::Runs { chunk, .. } => pages.extend(&chunk.pages),
            Block::Events { .. } | Block::Damaged(_) => {}
        }
    }
    if pages.is_empty() {
        return Err(ReplayError::Nothing);
    }
    let mut pages: Vec<u64> = pages.into_iter().collect();
    pages.sort_unstable();
    let stretches = pages.chunk_by(|page, next| next - page <= GAP_PAGES);
    let ends = stretches.filter_map(|stretch| Some((stretch.first()? << 12, (stretch.last()? + 1) << 12)));
    Ok(Some(ends.collect()))
}

fn tells_of_memory(call: &Call) -> bool {
    matches!(call, Call::Mmap { .. } | Call::Region { .. } | Call::Brk { .. })
}

/// Runs all simulations over a trace, on up to `threads` threads. `inferred` is what [`infer`] found. Processes that the
/// program forks are not there.
///
/// # Errors
/// The trace cannot be read or is not one of a program.
pub fn replay(
    from: impl Read,
    inferred: Option<&[(u64, u64)]>,
    simulations: &mut [Simulation],
    threads: usize,
) -> Result<Replayed, ReplayError> {
    replay_processes(from, &mut |_| None, inferred, simulations, threads)
}

/// A trace of a forked process.
pub type Child = Box<dyn Read>;

/// As [`replay`], with the traces of forked processes, which `child` opens by their numbers. Which of two processes does
/// what first no trace says: a child runs from its fork to its end before its parent goes on, as it does when the parent
/// waits for it.
///
/// # Errors
/// A trace cannot be read or is not one of a program.
pub fn replay_processes(
    from: impl Read,
    child: &mut dyn FnMut(u32) -> Option<Child>,
    inferred: Option<&[(u64, u64)]>,
    simulations: &mut [Simulation],
    threads: usize,
) -> Result<Replayed, ReplayError> {
    let reader = Reader::new(from)?;
    for simulation in &*simulations {
        match (reader.header().system, simulation.is_direct()) {
            (true, false) => return Err(ReplayError::System),
            (false, true) => return Err(ReplayError::Program),
            _ => {}
        }
    }
    for (begin, end) in inferred.into_iter().flatten() {
        simulations.iter_mut().for_each(|simulation| simulation.assume(*begin, *end));
    }
    let share = simulations.len().div_ceil(threads.max(1)).max(1);
    let mut replayed = Replayed::default();
    std::thread::scope(|scope| {
        let mut workers: Vec<SyncSender<Arc<Batch>>> = Vec::new();
        for simulations in simulations.chunks_mut(share) {
            let (sender, receiver) = sync_channel(MOST_AHEAD);
            scope.spawn(move || work(simulations, &receiver));
            workers.push(sender);
        }
        // Addresses of a program that was emulated are those that the emulator chose.
        let is_emulated = !reader.header().system && reader.header().emulator.is_some();
        let layout = is_emulated.then(Layout::default);
        let feeder = Feeder { layout, ..Feeder::default() };
        let found_runs = feed(reader, feeder, child, &workers, &mut replayed)?;
        if found_runs { Ok(()) } else { Err(ReplayError::Nothing) }
    })?;
    replayed.inferred = inferred.is_some();
    Ok(replayed)
}

/// Sends what is in the trace of a process, and of those that it forks, to all workers. Whether it had runs.
fn feed<R: Read>(
    mut reader: Reader<R>,
    mut feeder: Feeder,
    child: &mut dyn FnMut(u32) -> Option<Child>,
    workers: &[SyncSender<Arc<Batch>>],
    replayed: &mut Replayed,
) -> Result<bool, ReplayError> {
    let (mut found_runs, mut at_end) = (false, false);
    while !at_end {
        match reader.next_block()? {
            Some(block) => {
                found_runs |= matches!(block, Block::Runs { .. });
                feeder.take(block);
            }
            None => at_end = true,
        }
        loop {
            send(workers, feeder.batch(at_end));
            let Some((process, shares)) = feeder.forked.take() else { break };
            match child(process) {
                Some(from) => {
                    send(workers, Batch::of(Step::Enter { shares }));
                    let of_child = Feeder { layout: feeder.layout.clone(), is_forked: true, ..Feeder::default() };
                    feed(Reader::new(from)?, of_child, child, workers, replayed)?;
                    send(workers, Batch::of(Step::Leave));
                    replayed.children += 1;
                }
                None => send(workers, Batch::of(Step::Missing { shares })),
            }
        }
    }
    replayed.damage.append(&mut feeder.replayed.damage);
    replayed.out_of_order += feeder.replayed.out_of_order;
    replayed.cut_off |= !reader.is_whole();
    Ok(found_runs)
}

fn send(workers: &[SyncSender<Arc<Batch>>], batch: Batch) {
    let batch = Arc::new(batch);
    for worker in workers {
        // A worker ends only when its sender is gone, or with a panic, which the scope passes on.
        let _ = worker.send(Arc::clone(&batch));
    }
}

fn work(simulations: &mut [Simulation], batches: &Receiver<Arc<Batch>>) {
    for batch in batches {
        for simulation in &mut *simulations {
            simulation.add_pages(&batch.pages);
            for step in &batch.steps {
                match step {
                    Step::Event(event) => simulation.event(event),
                    Step::Enter { shares } => simulation.enter(*shares),
                    Step::Leave => simulation.leave(),
                    Step::Missing { shares } => simulation.missed(*shares),
                    Step::Runs { thread, block, numbers, range } => {
                        simulation.runs(*thread, &block.chunk, numbers, range.clone());
                        if range.end == block.chunk.len() {
                            simulation.instructions(*thread, block.instructions);
                        }
                    }
                }
            }
        }
    }
}

/// Runs of a block.
#[derive(Debug)]
struct Runs {
    chunk: Chunk,
    instructions: u64,
}

/// What happens next.
#[derive(Debug)]
enum Step {
    Event(Event),
    /// A process was forked, and runs; or it shares the memory.
    Enter {
        shares: bool,
    },
    /// It has ended.
    Leave,
    /// A process was forked of which there is no trace.
    Missing {
        shares: bool,
    },
    Runs {
        thread: usize,
        /// The numbers of the block's pages.
        numbers: Arc<Vec<u32>>,
        block: Arc<Runs>,
        range: Range<usize>,
    },
}

/// Steps in their order, and the pages that they are the first to touch.
#[derive(Debug, Default)]
struct Batch {
    pages: Vec<u64>,
    steps: Vec<Step>,
}

impl Batch {
    fn of(step: Step) -> Batch {
        Batch { pages: Vec::new(), steps: vec![step] }
    }
}

/// A thread of the program: blocks and events that wait for what other threads did before.
#[derive(Debug, Default)]
struct Thread {
    /// With the number of the first run of each.
    blocks: VecDeque<(u64, Arc<Runs>)>,
    events: VecDeque<Event>,
    /// The numbers of the first block's pages, and how many changes of addresses they know.
    numbers: Option<(Arc<Vec<u32>>, usize)>,
    /// Runs of the first block that are done.
    done: usize,
    /// The number of the next run, after all blocks that are done.
    passed: u64,
}

/// Puts blocks and events of all threads into one order.
#[derive(Debug, Default)]
struct Feeder {
    numbers: HashMap<u64, u32, Hashing>,
    new_pages: Vec<u64>,
    threads: Vec<Thread>,
    /// Which of them each number is of, that threads have in the file: any number, whatever is in a file.
    indexes: HashMap<u32, usize, Hashing>,
    /// The order of the next event.
    next: u64,
    /// A process that was forked just now, and whether it shares the memory: nothing goes on before it was looked for.
    forked: Option<(u32, bool)>,
    /// Where Linux would have put what the recorder's emulator put elsewhere.
    layout: Option<Layout>,
    /// The process has its memory from its parent: what its trace says that it began with is known.
    is_forked: bool,
    /// Recorded ranges that were given other addresses, so far.
    changes: Vec<(u64, u64)>,
    replayed: Replayed,
}

impl Feeder {
    fn take(&mut self, block: Block) {
        match block {
            Block::Damaged(damage) => {
                self.replayed
                    .damage
                    .push(format!("{} bytes at offset {}: {}", damage.bytes, damage.offset, damage.why));
            }
            Block::Events { thread, events } => self.thread(thread).events.extend(events),
            Block::Runs { thread, first, instructions, chunk } => {
                let block = Arc::new(Runs { chunk, instructions });
                self.thread(thread).blocks.push_back((first, block));
            }
        }
    }

    fn number(&mut self, page: u64) -> u32 {
        let next = self.numbers.len() as u32;
        let (numbers, new_pages) = (&mut self.numbers, &mut self.new_pages);
        *numbers.entry(page).or_insert_with(|| {
            new_pages.push(page);
            next
        })
    }

    /// The numbers of the pages of a thread's first block, where they lie now.
    fn numbers(&mut self, index: usize, pages: &[u64]) -> Arc<Vec<u32>> {
        let known = self.threads[index].numbers.take();
        let numbers = match known {
            Some((numbers, seen)) if seen == self.changes.len() => numbers,
            Some((numbers, seen)) => {
                let changed: Vec<(u64, u64)> = self.changes[seen..].to_vec();
                let moved =
                    |page: u64| changed.iter().any(|(begin, end)| (*begin..*end).contains(&(page << PAGE_SHIFT)));
                let renumbered = numbers
                    .iter()
                    .zip(pages)
                    .map(|(number, page)| if moved(*page) { self.placed(*page) } else { *number });
                Arc::new(renumbered.collect())
            }
            None => Arc::new(pages.iter().map(|page| self.placed(*page)).collect()),
        };
        self.threads[index].numbers = Some((Arc::clone(&numbers), self.changes.len()));
        numbers
    }

    fn placed(&mut self, page: u64) -> u32 {
        let page = self.layout.as_ref().map_or(page, |layout| layout.address(page << PAGE_SHIFT) >> PAGE_SHIFT);
        self.number(page)
    }

    fn thread(&mut self, thread: u32) -> &mut Thread {
        let index = *self.indexes.entry(thread).or_insert(self.threads.len());
        if index == self.threads.len() {
            self.threads.push(Thread::default());
        }
        &mut self.threads[index]
    }

    /// All that can be done now; at the end of the trace everything.
    fn batch(&mut self, at_end: bool) -> Batch {
        let mut batch = Batch { pages: std::mem::take(&mut self.new_pages), steps: Vec::new() };
        loop {
            let mut moved = false;
            for thread in 0..self.threads.len() {
                moved |= self.advance(thread, at_end, &mut batch);
                if self.forked.is_some() {
                    return batch;
                }
            }
            if moved {
                continue;
            }
            let waiting = self.threads.iter().map(|thread| thread.blocks.len()).max().unwrap_or(0);
            if !(at_end || waiting > MOST_WAITING) || !self.skip() {
                return batch;
            }
        }
    }

    /// Goes on in a thread as far as it does not depend on others. Whether it went on at all.
    fn advance(&mut self, index: usize, at_end: bool, batch: &mut Batch) -> bool {
        let mut moved = false;
        while self.forked.is_none() {
            let thread = &mut self.threads[index];
            let event = thread.events.front().map(|event| (event.run, event.order));
            let Some((first, block)) = thread.blocks.front() else {
                // Runs that are still to come may be before it.
                match event {
                    Some((run, order)) if order <= self.next && (at_end || run <= thread.passed) => {
                        self.apply(index, batch);
                    }
                    _ => return moved,
                }
                moved = true;
                continue;
            };
            let at = first + thread.done as u64;
            match event {
                Some((run, order)) if run <= at => {
                    if order > self.next {
                        return moved;
                    }
                    self.apply(index, batch);
                }
                _ => {
                    let end = event.map_or(u64::MAX, |(run, _)| run);
                    let end = (end - first).min(block.chunk.len() as u64) as usize;
                    let (first, block, range) = (*first, Arc::clone(block), thread.done..end);
                    thread.done = end;
                    thread.passed = first + end as u64;
                    let is_done = end == block.chunk.len();
                    let numbers = self.numbers(index, &block.chunk.pages);
                    if is_done {
                        let thread = &mut self.threads[index];
                        thread.blocks.pop_front();
                        (thread.done, thread.numbers) = (0, None);
                    }
                    batch.pages.append(&mut self.new_pages);
                    batch.steps.push(Step::Runs { thread: index, block, numbers, range });
                }
            }
            moved = true;
        }
        moved
    }

    fn apply(&mut self, thread: usize, batch: &mut Batch) {
        if let Some(event) = self.threads[thread].events.pop_front() {
            self.next = self.next.max(event.order.saturating_add(1));
            self.forked = forked(&event);
            match &mut self.layout {
                Some(_) if self.is_forked && matches!(event.call, Call::Region { .. }) => {}
                Some(layout) => {
                    batch.steps.extend(layout.translate(&event).into_iter().map(Step::Event));
                    self.changes.extend(layout.take_changed());
                }
                None => batch.steps.push(Step::Event(event)),
            }
        }
    }

    /// Goes on to the earliest event that is there, because what was before it is not. Whether there is one.
    fn skip(&mut self) -> bool {
        let orders = self.threads.iter().filter_map(|thread| thread.events.front().map(|event| event.order));
        let Some(order) = orders.filter(|order| *order > self.next).min() else { return false };
        self.next = order;
        self.replayed.out_of_order += 1;
        true
    }
}

/// The process that a call has made, and whether it shares its parent's memory.
fn forked(event: &Event) -> Option<(u32, bool)> {
    let Call::Clone { flags } = event.call else { return None };
    let process = u32::try_from(event.result).ok().filter(|process| *process > 0 && flags & CLONE_THREAD == 0)?;
    Some((process, flags & CLONE_VM != 0))
}
