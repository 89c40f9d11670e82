//! One order of what all threads of a process do, out of blocks that each have a part of one thread.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use trace::{Block, Call, Chunk, Event, PAGE_SHIFT, Windows};

use super::numbers::Numbers;
use super::replayed::Replayed;
use crate::call::is_sound;
use crate::layout::{Change, Layout};
use crate::simulation::Hashing;

/// Blocks of a thread that wait for what other threads did before; a trace with parts missing would make them wait
/// for ever.
const MOST_WAITING: usize = 64;
/// No recorded program has addresses as large: those of a call below it can be moved.
const ADDRESS_END: u64 = 1 << 56;
// include/uapi/linux/sched.h
const CLONE_VM: u64 = 0x100;
const CLONE_THREAD: u64 = 0x1_0000;

/// Runs of a block.
#[derive(Debug)]
pub(super) struct Runs {
    pub(super) chunk: Chunk,
    pub(super) instructions: u64,
}

/// A block, as each feeder takes it.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Damaged(String),
    Events {
        thread: u32,
        events: Vec<Event>,
    },
    Runs {
        thread: u32,
        /// The number of the first run.
        first: u64,
        block: Arc<Runs>,
    },
}

impl From<Block> for Part {
    fn from(block: Block) -> Part {
        match block {
            Block::Damaged(damage) => {
                Part::Damaged(format!("{} bytes at offset {}: {}", damage.bytes, damage.offset, damage.why))
            }
            Block::Events { thread, events, .. } => Part::Events { thread, events },
            Block::Runs { thread, first, instructions, chunk } => {
                Part::Runs { thread, first, block: Arc::new(Runs { chunk, instructions }) }
            }
        }
    }
}

/// What happens next.
#[derive(Debug)]
pub(super) enum Step {
    Change(Change),
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
        /// Instructions that were recorded in the whole block.
        recorded: u64,
    },
}

/// Steps in their order, and the pages that they are the first to touch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) pages: Vec<u64>,
    pub(super) steps: Vec<Step>,
}

impl Batch {
    pub(super) fn of(step: Step) -> Batch {
        Batch { pages: Vec::new(), steps: vec![step] }
    }
}

/// A block that waits.
#[derive(Debug)]
struct Waiting {
    /// The number of its first run.
    first: u64,
    block: Arc<Runs>,
    /// Instructions that were recorded in it.
    recorded: u64,
}

/// A thread of the program: blocks and events that wait for what other threads did before.
#[derive(Debug, Default)]
struct Thread {
    blocks: VecDeque<Waiting>,
    recorded: Windows,
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
pub(super) struct Feeder {
    numbers: Numbers,
    new_pages: Vec<u64>,
    threads: Vec<Thread>,
    /// Which of them each number is of, that threads have in the file: any number, whatever is in a file.
    indexes: HashMap<u32, usize, Hashing>,
    /// The order of the next event.
    next: u64,
    /// A process that was forked just now, and whether it shares the memory: nothing goes on before it was looked for.
    pub(super) forked: Option<(u32, bool)>,
    /// Where Linux would have put what the recorder's emulator put elsewhere.
    layout: Option<Layout>,
    /// Calls are left out.
    accesses_only: bool,
    /// The process has its memory from its parent: what its trace says that it began with is known.
    is_forked: bool,
    /// Recorded ranges that were given other addresses, so far.
    changes: Vec<(u64, u64)>,
    pub(super) replayed: Replayed,
}

impl Feeder {
    /// For the first process; `layout` where its addresses are to be moved.
    pub(super) fn new(layout: Option<Layout>) -> Feeder {
        Feeder { layout, ..Feeder::default() }
    }

    /// For a process whose calls are left out, with its addresses as they were recorded.
    pub(super) fn accesses_only() -> Feeder {
        Feeder { accesses_only: true, ..Feeder::default() }
    }

    /// For a process that this one has forked just now.
    pub(super) fn child(&self) -> Feeder {
        Feeder { layout: self.layout.as_ref().map(Layout::forked), is_forked: true, ..Feeder::default() }
    }

    pub(super) fn take(&mut self, part: Part) {
        match part {
            Part::Damaged(damage) => self.replayed.damage.push(damage),
            Part::Events { thread, events } => {
                let accesses_only = self.accesses_only;
                let thread = self.thread(thread);
                thread.recorded.events(&events);
                if !accesses_only {
                    thread.events.extend(events);
                }
            }
            Part::Runs { thread, first, block } => {
                let thread = self.thread(thread);
                let end = first.saturating_add(block.chunk.len() as u64);
                let recorded = thread.recorded.block(end, block.instructions);
                thread.blocks.push_back(Waiting { first, block, recorded });
            }
        }
    }

    fn number(&mut self, page: u64) -> u32 {
        let (number, is_new) = self.numbers.number(page);
        if is_new {
            self.new_pages.push(page);
        }
        number
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
    pub(super) fn batch(&mut self, at_end: bool) -> Batch {
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
            let Some(Waiting { first, block, recorded }) = thread.blocks.front() else {
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
            let at = first.saturating_add(thread.done as u64);
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
                    let (first, block, range, recorded) = (*first, Arc::clone(block), thread.done..end, *recorded);
                    thread.done = end;
                    thread.passed = first.saturating_add(end as u64);
                    let is_done = end == block.chunk.len();
                    let numbers = self.numbers(index, &block.chunk.pages);
                    if is_done {
                        let thread = &mut self.threads[index];
                        thread.blocks.pop_front();
                        (thread.done, thread.numbers) = (0, None);
                    }
                    batch.pages.append(&mut self.new_pages);
                    batch.steps.push(Step::Runs { thread: index, block, numbers, range, recorded });
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
                Some(layout) if is_sound(&event, ADDRESS_END) => {
                    batch.steps.extend(layout.translate(&event).into_iter().map(Step::Change));
                    self.changes.extend(layout.take_changed());
                }
                // What no kernel has done is not moved either.
                _ => batch.steps.push(Step::Change(Change::Call(event))),
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
pub(crate) fn forked(event: &Event) -> Option<(u32, bool)> {
    let Call::Clone { flags } = event.call else { return None };
    let process = u32::try_from(event.result).ok().filter(|process| *process > 0 && flags & CLONE_THREAD == 0)?;
    Some((process, flags & CLONE_VM != 0))
}
