//! Merges the blocks of a process, each of which has a part of one thread, into one order of all runs and events.
//!
//! A thread advances independently up to its next [`trace::Timestamp`]. There it waits for all earlier timestamps, including those
//! of other processes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use trace::{Call, Event, Image, PAGE_SHIFT};

use super::batch::{Batch, Step, TracePiece};
use super::numbers::Numbers;
use super::replayed::Replayed;
use super::thread::{PendingBlock, Thread};
use crate::call::can_succeed;
use crate::layout::{Change, Layout};
use crate::simulation::Hashing;

/// Maximum number of blocks of a thread that wait for events of other threads. Without a limit, blocks would wait for ever if a
/// part of the trace is missing.
const MAX_WAITING: usize = 64;
/// All addresses of recorded programs are below this. A call with a higher address is not translated.
const ADDRESS_END: u64 = 1 << 56;
// include/uapi/linux/sched.h
const CLONE_VM: u64 = 0x100;
const CLONE_THREAD: u64 = 0x1_0000;

/// Merges the blocks and events of all threads into one order.
#[derive(Debug, Default)]
pub(super) struct ThreadMerger {
    numbers: Numbers,
    new_pages: Vec<u64>,
    threads: Vec<Thread>,
    /// The index in `threads` for each thread number of the file, which may be any number.
    indexes: HashMap<u32, usize, Hashing>,
    /// The order number of the next event.
    next: u64,
    /// The times of timestamps that have not been passed, each with the index of its thread, in order.
    times: VecDeque<(u64, usize)>,
    /// Whether the trace has had timestamps so far.
    is_timed: bool,
    /// Whether the process has forked.
    has_forked: bool,
    /// A process that was just forked, and whether it shares the memory. The merger stops until this is taken.
    pub(super) forked: Option<(u32, bool)>,
    /// The execve that replaces the program. It is the process's last event: all work of other threads comes before it, even work
    /// that is later in the file.
    pub(super) executed: Option<Event>,
    /// The translation of recorded addresses to those that Linux would have chosen.
    layout: Option<Layout>,
    /// Whether calls are ignored.
    accesses_only: bool,
    /// Whether the process was forked. If it was, the memory described at the start of its trace is already known from its
    /// parent.
    is_forked: bool,
    /// All recorded ranges whose translation has changed so far.
    moved_ranges: Vec<(u64, u64)>,
    pub(super) replayed: Replayed,
}

impl ThreadMerger {
    /// The merger of the first process, with a layout if its addresses are translated.
    pub(super) fn new(layout: Option<Layout>) -> ThreadMerger {
        ThreadMerger { layout, ..ThreadMerger::default() }
    }

    /// A merger that ignores calls and does not translate addresses.
    pub(super) fn accesses_only() -> ThreadMerger {
        ThreadMerger { accesses_only: true, ..ThreadMerger::default() }
    }

    /// The merger of a process that this one has just forked.
    pub(super) fn child(&self) -> ThreadMerger {
        ThreadMerger { layout: self.layout.as_ref().map(Layout::forked), is_forked: true, ..ThreadMerger::default() }
    }

    /// The merger of the program that this process has executed.
    pub(super) fn image(&self, image: Image) -> ThreadMerger {
        ThreadMerger { layout: self.layout.as_ref().map(|layout| layout.executed(image)), ..ThreadMerger::default() }
    }

    /// Adds a piece of the trace.
    pub(super) fn take(&mut self, part: TracePiece) {
        match part {
            TracePiece::Damaged(damage) => self.replayed.damage.push(damage),
            TracePiece::Events { thread, events } => {
                let accesses_only = self.accesses_only;
                let thread = self.thread(thread);
                thread.windows.events(&events);
                if !accesses_only {
                    thread.events.extend(events);
                }
            }
            TracePiece::Timestamps(timestamps) if !self.accesses_only => {
                self.is_timed |= !timestamps.is_empty();
                for timestamp in timestamps.iter() {
                    let index = self.index(timestamp.thread);
                    self.threads[index].timestamps.push_back((timestamp.run, timestamp.event));
                    self.times.push_back((timestamp.time_ns, index));
                }
            }
            TracePiece::Timestamps(_) => {}
            TracePiece::Runs { thread, first, block } => {
                let thread = self.thread(thread);
                let end = first.saturating_add(block.chunk.len() as u64);
                let instructions = thread.windows.block(end, block.instructions);
                thread.blocks.push_back(PendingBlock { first, block, instructions });
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

    /// The numbers of the pages of a thread's first block, according to their current translation.
    fn numbers(&mut self, index: usize, pages: &[u64]) -> Arc<Vec<u32>> {
        let known = self.threads[index].numbers.take();
        let numbers = match known {
            Some((numbers, seen)) if seen == self.moved_ranges.len() => numbers,
            Some((numbers, seen)) => {
                let changed: Vec<(u64, u64)> = self.moved_ranges[seen..].to_vec();
                let moved =
                    |page: u64| changed.iter().any(|(begin, end)| (*begin..*end).contains(&(page << PAGE_SHIFT)));
                let renumbered = numbers
                    .iter()
                    .zip(pages)
                    .map(|(number, page)| if moved(*page) { self.current_number(*page) } else { *number });
                Arc::new(renumbered.collect())
            }
            None => Arc::new(pages.iter().map(|page| self.current_number(*page)).collect()),
        };
        self.threads[index].numbers = Some((Arc::clone(&numbers), self.moved_ranges.len()));
        numbers
    }

    fn current_number(&mut self, page: u64) -> u32 {
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

    /// The time of the next timestamp; `None` if it was not read yet or there is none.
    pub(super) fn time(&self) -> Option<u64> {
        self.times.front().map(|(time, _)| *time)
    }

    /// Whether the trace has had timestamps so far.
    pub(super) fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// Whether the order of threads or processes matters, but there are no timestamps.
    pub(super) fn lacks_times(&self) -> bool {
        !self.is_timed && !self.accesses_only && (self.threads.len() > 1 || self.has_forked)
    }

    /// Whether everything read so far has been replayed.
    pub(super) fn is_done(&self) -> bool {
        self.times.is_empty() && self.threads.iter().all(|thread| thread.blocks.is_empty() && thread.events.is_empty())
    }

    /// All steps up to the time `until` that can be taken now. At the end of the trace, missing parts no longer delay steps.
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
            if moved || self.pass_timestamps(at_end, until, &mut batch) {
                if self.forked.is_some() {
                    return batch;
                }
                continue;
            }
            let waiting = self.threads.iter().map(|thread| thread.blocks.len()).max().unwrap_or(0);
            if self.times.front().is_some_and(|(time, _)| *time > until)
                || !(at_end || waiting > MAX_WAITING)
                || !self.skip_missing()
            {
                return batch;
            }
        }
    }

    /// Passes timestamps in order and advances the thread of each, until other threads may be able to advance. Returns whether any
    /// timestamp was passed.
    fn pass_timestamps(&mut self, at_end: bool, until: u64, batch: &mut Batch) -> bool {
        let mut passed = false;
        while let Some((_, index)) = self.times.front().copied().filter(|(time, _)| *time <= until) {
            let thread = &self.threads[index];
            if !thread.is_at_timestamp() || !thread.has_next() {
                return passed;
            }
            let next = self.next;
            self.drop_timestamp();
            passed = true;
            self.advance(index, at_end, batch);
            // An event may have been replayed for which other threads waited.
            if self.forked.is_some() || self.next != next {
                return true;
            }
        }
        passed
    }

    /// Removes the earliest timestamp.
    fn drop_timestamp(&mut self) {
        if let Some((_, index)) = self.times.pop_front() {
            self.threads[index].timestamps.pop_front();
        }
    }

    /// Advances a thread until it must wait. Returns whether it advanced.
    fn advance(&mut self, index: usize, at_end: bool, batch: &mut Batch) -> bool {
        let mut moved = false;
        while self.forked.is_none() && !self.threads[index].is_at_timestamp() {
            let thread = &mut self.threads[index];
            let place = thread.timestamps.front().map_or(u64::MAX, |(run, _)| *run);
            let event = thread.events.front().map(|event| (event.run, event.order));
            let Some(PendingBlock { first, block, instructions }) = thread.blocks.front() else {
                // Runs that were not read yet may precede the event.
                match event {
                    Some((run, order)) if order <= self.next && (at_end || run <= thread.next_run) => {
                        self.apply(index, batch);
                    }
                    _ => return moved,
                }
                moved = true;
                continue;
            };
            let at = first.saturating_add(thread.replayed_runs as u64);
            match event {
                Some((run, order)) if run <= at => {
                    if order > self.next {
                        return moved;
                    }
                    self.apply(index, batch);
                }
                _ => {
                    // A timestamp among replayed runs waits for an event.
                    let place = if place > at { place } else { u64::MAX };
                    let end = event.map_or(u64::MAX, |(run, _)| run).min(place);
                    let end = (end - first).min(block.chunk.len() as u64) as usize;
                    let (first, block, range, recorded) =
                        (*first, Arc::clone(block), thread.replayed_runs..end, *instructions);
                    thread.replayed_runs = end;
                    thread.next_run = first.saturating_add(end as u64);
                    let is_done = end == block.chunk.len();
                    let numbers = self.numbers(index, &block.chunk.pages);
                    if is_done {
                        let thread = &mut self.threads[index];
                        thread.blocks.pop_front();
                        (thread.replayed_runs, thread.numbers) = (0, None);
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
            self.threads[thread].replayed_events += 1;
            self.next = self.next.max(event.order.saturating_add(1));
            if is_exec(&event) {
                self.executed = Some(event);
                return;
            }
            self.forked = forked(&event);
            self.has_forked |= self.forked.is_some();
            let touched = self.threads[thread].first_touched(&event);
            match &mut self.layout {
                Some(_) if self.is_forked && matches!(event.call, Call::Region { .. }) => {}
                Some(layout) if can_succeed(&event, ADDRESS_END) => {
                    batch.steps.extend(layout.translate(&event).into_iter().map(Step::Change));
                    layout.first_touched(event.result as u64, &touched);
                    self.moved_ranges.extend(layout.take_changed());
                }
                // A call that no kernel allows is not translated.
                _ => batch.steps.push(Step::Change(Change::Call(event))),
            }
        }
    }

    /// Skips missing events or timestamps: continues with the earliest one available. Returns whether there is one.
    fn skip_missing(&mut self) -> bool {
        let orders = self.threads.iter().filter_map(|thread| thread.events.front().map(|event| event.order));
        let order = orders.filter(|order| *order > self.next).min();
        let waits_for_event = |(_, index): &(u64, usize)| {
            let thread = &self.threads[*index];
            thread.events.front().is_some_and(|event| event.run <= thread.position() && event.order > self.next)
        };
        match (self.times.front(), order) {
            (Some(first), Some(order)) if waits_for_event(first) => self.next = order,
            (Some(_), _) => self.drop_timestamp(),
            (None, Some(order)) => self.next = order,
            (None, None) => return false,
        }
        self.replayed.out_of_order += 1;
        true
    }
}

/// Whether a call is a successful execve.
fn is_exec(event: &Event) -> bool {
    matches!(event.call, Call::Exec { .. }) && event.result >= 0
}

/// The program that a successful execve has started.
pub(crate) fn program_of(event: Event) -> Option<String> {
    let executes = is_exec(&event);
    if let Call::Exec { program, .. } = event.call { Some(program).filter(|_| executes) } else { None }
}

/// The process that a clone has created, and whether it shares its parent's memory; `None` for threads and other calls.
pub(crate) fn forked(event: &Event) -> Option<(u32, bool)> {
    let Call::Clone { flags } = event.call else { return None };
    let process = u32::try_from(event.result).ok().filter(|process| *process > 0 && flags & CLONE_THREAD == 0)?;
    Some((process, flags & CLONE_VM != 0))
}
