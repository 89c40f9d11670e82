//! Merges blocks, each of which holds a part of one thread, into one order of everything that the threads of a process do.
//!
//! A thread continues on its own up to a position for which the trace has a [`trace::Timestamp`]. That position waits
//! for all earlier ones, including those of other processes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use trace::{Call, Event, Image, PAGE_SHIFT, Windows};

use super::batch::{Batch, Part, Runs, Step};
use super::numbers::Numbers;
use super::replayed::Replayed;
use crate::call::is_sound;
use crate::layout::{Change, Layout};
use crate::simulation::Hashing;

/// Maximum number of blocks of a thread that wait for events of other threads. If parts of a trace are missing they
/// would wait forever.
const MAX_WAITING: usize = 64;
/// The addresses of recorded programs are below this; calls with such addresses can be moved.
const ADDRESS_END: u64 = 1 << 56;
// include/uapi/linux/sched.h
const CLONE_VM: u64 = 0x100;
const CLONE_THREAD: u64 = 0x1_0000;

/// A block that waits for other threads.
#[derive(Debug)]
struct Waiting {
    /// The number of its first run.
    first: u64,
    block: Arc<Runs>,
    /// Number of instructions that were recorded in it.
    recorded: u64,
}

/// A thread of the program: blocks and events that wait for events of other threads.
#[derive(Debug, Default)]
struct Thread {
    blocks: VecDeque<Waiting>,
    recorded: Windows,
    events: VecDeque<Event>,
    /// The numbers of the first block's pages, and how many address changes they take into account.
    numbers: Option<(Arc<Vec<u32>>, usize)>,
    /// Number of runs of the first block that are done.
    done: usize,
    /// The number of the next run after all blocks that are done.
    passed: u64,
    /// Number of events that are done.
    applied: u64,
    /// The positions of its timestamps that have not been passed: number of runs and events before each.
    places: VecDeque<(u64, u64)>,
}

impl Thread {
    /// The number of the next run.
    fn at(&self) -> u64 {
        let first = self.blocks.front().map(|waiting| waiting.first.saturating_add(self.done as u64));
        first.unwrap_or(self.passed)
    }

    /// Whether it has reached its next timestamp.
    fn is_at_timestamp(&self) -> bool {
        self.places.front().is_some_and(|(run, event)| *run <= self.at() && *event <= self.applied)
    }

    /// Whether its next block or event is available.
    fn has_next(&self) -> bool {
        !self.blocks.is_empty() || self.events.front().is_some_and(|event| event.run <= self.passed)
    }
}

/// Merges the blocks and events of all threads into one order.
#[derive(Debug, Default)]
pub(super) struct Feeder {
    numbers: Numbers,
    new_pages: Vec<u64>,
    threads: Vec<Thread>,
    /// The index in `threads` for each thread number of the file, which may be any number.
    indexes: HashMap<u32, usize, Hashing>,
    /// The order of the next event.
    next: u64,
    /// The times of timestamps that have not been passed, in order, with the index of their thread.
    times: VecDeque<(u64, usize)>,
    /// Whether there were timestamps.
    is_timed: bool,
    /// Whether the process has forked.
    has_forked: bool,
    /// A process that was just forked, and whether it shares the memory. Nothing else continues before its trace was searched.
    pub(super) forked: Option<(u32, bool)>,
    /// The program that the process executes. This is its last event: everything that other threads do comes before it,
    /// wherever it is in the file.
    pub(super) executed: Option<Event>,
    /// The translation of the emulator's addresses to those that Linux would have chosen.
    layout: Option<Layout>,
    /// Whether calls are ignored.
    accesses_only: bool,
    /// Whether the process inherited its memory: the memory described at the beginning of its trace is then already known.
    is_forked: bool,
    /// Recorded ranges whose addresses have changed so far.
    changes: Vec<(u64, u64)>,
    pub(super) replayed: Replayed,
}

impl Feeder {
    /// The feeder of the first process; `layout` if its addresses are moved.
    pub(super) fn new(layout: Option<Layout>) -> Feeder {
        Feeder { layout, ..Feeder::default() }
    }

    /// The feeder of a process whose calls are ignored and whose addresses stay as recorded.
    pub(super) fn accesses_only() -> Feeder {
        Feeder { accesses_only: true, ..Feeder::default() }
    }

    /// The feeder of a process that this one has just forked.
    pub(super) fn child(&self) -> Feeder {
        Feeder { layout: self.layout.as_ref().map(Layout::forked), is_forked: true, ..Feeder::default() }
    }

    /// The feeder of the program that this process executes.
    pub(super) fn image(&self, image: Image) -> Feeder {
        Feeder { layout: self.layout.as_ref().map(|layout| layout.anew(image)), ..Feeder::default() }
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
            Part::Timestamps(timestamps) if !self.accesses_only => {
                self.is_timed |= !timestamps.is_empty();
                for timestamp in timestamps.iter() {
                    let index = self.index(timestamp.thread);
                    self.threads[index].places.push_back((timestamp.run, timestamp.event));
                    self.times.push_back((timestamp.time_ns, index));
                }
            }
            Part::Timestamps(_) => {}
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

    /// The numbers of the pages of a thread's first block, at their current addresses.
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
        let index = self.index(thread);
        &mut self.threads[index]
    }

    fn index(&mut self, thread: u32) -> usize {
        let index = *self.indexes.entry(thread).or_insert(self.threads.len());
        if index == self.threads.len() {
            self.threads.push(Thread::default());
        }
        index
    }

    /// The time of the next timestamp; `None` if that is not known yet, or there is none.
    pub(super) fn time(&self) -> Option<u64> {
        self.times.front().map(|(time, _)| *time)
    }

    /// Whether there were timestamps.
    pub(super) fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// Whether the order of threads or processes matters, but there are no timestamps.
    pub(super) fn lacks_times(&self) -> bool {
        !self.is_timed && !self.accesses_only && (self.threads.len() > 1 || self.has_forked)
    }

    /// Whether nothing is left to do.
    pub(super) fn is_done(&self) -> bool {
        self.times.is_empty() && self.threads.iter().all(|thread| thread.blocks.is_empty() && thread.events.is_empty())
    }

    /// All steps that can be taken now and are not later than `until`; at the end of the trace, all such steps that are left.
    pub(super) fn batch(&mut self, at_end: bool, until: u64) -> Batch {
        let mut batch = Batch { pages: std::mem::take(&mut self.new_pages), steps: Vec::new() };
        loop {
            let mut moved = false;
            for thread in 0..self.threads.len() {
                moved |= self.advance(thread, at_end, &mut batch);
                if self.forked.is_some() {
                    return batch;
                }
            }
            if moved || self.pass(at_end, until, &mut batch) {
                if self.forked.is_some() {
                    return batch;
                }
                continue;
            }
            let waiting = self.threads.iter().map(|thread| thread.blocks.len()).max().unwrap_or(0);
            if self.times.front().is_some_and(|(time, _)| *time > until)
                || !(at_end || waiting > MAX_WAITING)
                || !self.skip()
            {
                return batch;
            }
        }
    }

    /// Passes timestamps in order, and continues the thread of each, until another thread must be checked. Returns
    /// whether any was passed.
    fn pass(&mut self, at_end: bool, until: u64, batch: &mut Batch) -> bool {
        let mut passed = false;
        while let Some((_, index)) = self.times.front().copied().filter(|(time, _)| *time <= until) {
            let thread = &self.threads[index];
            if !thread.is_at_timestamp() || !thread.has_next() {
                return passed;
            }
            let next = self.next;
            self.pass_first();
            passed = true;
            self.advance(index, at_end, batch);
            // Other threads may have waited for an event.
            if self.forked.is_some() || self.next != next {
                return true;
            }
        }
        passed
    }

    /// Removes the first timestamp.
    fn pass_first(&mut self) {
        if let Some((_, index)) = self.times.pop_front() {
            self.threads[index].places.pop_front();
        }
    }

    /// Continues a thread as far as it does not depend on others. Returns whether it continued at all.
    fn advance(&mut self, index: usize, at_end: bool, batch: &mut Batch) -> bool {
        let mut moved = false;
        while self.forked.is_none() && !self.threads[index].is_at_timestamp() {
            let thread = &mut self.threads[index];
            let place = thread.places.front().map_or(u64::MAX, |(run, _)| *run);
            let event = thread.events.front().map(|event| (event.run, event.order));
            let Some(Waiting { first, block, recorded }) = thread.blocks.front() else {
                // Runs that are still to be read may be before the event.
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
                    // A timestamp among runs that are done waits for an event.
                    let place = if place > at { place } else { u64::MAX };
                    let end = event.map_or(u64::MAX, |(run, _)| run).min(place);
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
            self.threads[thread].applied += 1;
            self.next = self.next.max(event.order.saturating_add(1));
            if executes(&event) {
                self.executed = Some(event);
                return;
            }
            self.forked = forked(&event);
            self.has_forked |= self.forked.is_some();
            match &mut self.layout {
                Some(_) if self.is_forked && matches!(event.call, Call::Region { .. }) => {}
                Some(layout) if is_sound(&event, ADDRESS_END) => {
                    batch.steps.extend(layout.translate(&event).into_iter().map(Step::Change));
                    self.changes.extend(layout.take_changed());
                }
                // A call that no kernel allows is not moved either.
                _ => batch.steps.push(Step::Change(Change::Call(event))),
            }
        }
    }

    /// Skips to the earliest event or timestamp available, because those before it are missing. Returns whether there is one.
    fn skip(&mut self) -> bool {
        let orders = self.threads.iter().filter_map(|thread| thread.events.front().map(|event| event.order));
        let order = orders.filter(|order| *order > self.next).min();
        let waits_for_event = |(_, index): &(u64, usize)| {
            let thread = &self.threads[*index];
            thread.events.front().is_some_and(|event| event.run <= thread.at() && event.order > self.next)
        };
        match (self.times.front(), order) {
            (Some(first), Some(order)) if waits_for_event(first) => self.next = order,
            (Some(_), _) => self.pass_first(),
            (None, Some(order)) => self.next = order,
            (None, None) => return false,
        }
        self.replayed.out_of_order += 1;
        true
    }
}

/// Whether a call has started another program.
fn executes(event: &Event) -> bool {
    matches!(event.call, Call::Exec { .. }) && event.result >= 0
}

/// The program that a call has started.
pub(crate) fn program_of(event: Event) -> Option<String> {
    let executes = executes(&event);
    if let Call::Exec { program, .. } = event.call { Some(program).filter(|_| executes) } else { None }
}

/// The process that a call has created, and whether it shares its parent's memory.
pub(crate) fn forked(event: &Event) -> Option<(u32, bool)> {
    let Call::Clone { flags } = event.call else { return None };
    let process = u32::try_from(event.result).ok().filter(|process| *process > 0 && flags & CLONE_THREAD == 0)?;
    Some((process, flags & CLONE_VM != 0))
}
