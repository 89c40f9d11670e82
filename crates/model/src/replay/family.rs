//! Replays a process and the processes that it forks, each from its own trace.

use std::collections::HashSet;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use trace::{Block, Call, Header, Image, Notes, Process, ReadError, Reader};

use super::batch::{Batch, Step, TracePiece};
use super::error::ReplayError;
use super::instructions::Instructions;
use super::order::ThreadMerger;
use super::replayed::{Replayed, Unrecorded};
use crate::layout::Change;
use crate::simulation::MAX_PROCESSES;

/// The trace of a forked process, or of a program that a process executes.
pub struct Child {
    /// The name of its file.
    pub name: String,
    /// The content of the file.
    pub from: Box<dyn Read>,
}

/// The trace of a process, read block by block.
trait Blocks {
    fn header(&self) -> &Header;
    fn next_block(&mut self) -> Result<Option<Block>, ReadError>;
    fn is_whole(&self) -> bool;
    fn notes(&self) -> Option<&Notes>;
}

impl<R: Read> Blocks for Reader<R> {
    fn header(&self) -> &Header {
        Reader::header(self)
    }

    fn next_block(&mut self) -> Result<Option<Block>, ReadError> {
        Reader::next_block(self)
    }

    fn is_whole(&self) -> bool {
        Reader::is_whole(self)
    }

    fn notes(&self) -> Option<&Notes> {
        Reader::notes(self)
    }
}

/// A process that has not ended.
struct LiveProcess<'a> {
    /// Its number among all processes so far.
    number: u32,
    /// The numbers of its ancestors, its parent last.
    parents: Vec<u32>,
    /// Its process header, if its trace has one.
    process: Option<Process>,
    /// The name of its current trace file; `None` if it is the first process's own trace.
    name: Option<String>,
    blocks: Box<dyn Blocks + 'a>,
    /// One merger for each set of layout parameters.
    mergers: Vec<ThreadMerger>,
    at_end: bool,
    instructions: Instructions,
    /// The number of the child for which this process waits.
    waits_for: Option<u32>,
}

impl LiveProcess<'_> {
    /// The time of its next timestamp; `None` if it is unknown. It does not depend on addresses, so it is the same for all mergers.
    fn time(&self) -> Option<u64> {
        self.mergers.first().and_then(ThreadMerger::time)
    }

    /// Whether its trace has timestamps.
    fn is_timed(&self) -> bool {
        self.mergers.iter().any(ThreadMerger::is_timed)
    }

    /// Whether its whole trace has been replayed.
    fn is_done(&self) -> bool {
        self.at_end && self.mergers.iter().all(ThreadMerger::is_done)
    }

    /// Adds the name of the process's trace to an error, unless the error names a trace already.
    fn attributed(&self, error: ReplayError) -> ReplayError {
        match (&self.name, error) {
            (Some(name), error) if !matches!(error, ReplayError::Child { .. }) => {
                ReplayError::Child { name: name.clone(), error: Box::new(error) }
            }
            (_, error) => error,
        }
    }
}

/// Reads the traces of a process, of the processes that it forks and of the programs that they execute, and merges them into one
/// order: by time, if the traces have timestamps. Without timestamps, a child runs to its end before its parent continues. A child
/// that shares its parent's memory always runs first, to its end or until it executes a program.
pub(super) struct ProcessTree<'a> {
    /// The header of the first process's trace.
    header: Header,
    child: &'a mut dyn FnMut(Image) -> io::Result<Option<Child>>,
    /// For each set of layout parameters, the threads of the simulations that use it.
    workers: &'a [Vec<SyncSender<Arc<Batch>>>],
    replayed: &'a mut Replayed,
    /// Images whose traces were read or are being read.
    images: HashSet<Image>,
    /// Processes that have not ended, in the order in which they were forked.
    live_processes: Vec<LiveProcess<'a>>,
    /// Number of processes so far.
    count: u32,
    /// The number of the process to which the steps belong that were sent last.
    running: u32,
    found_runs: bool,
}

impl<'a> ProcessTree<'a> {
    /// The tree of the process whose trace `reader` reads, with a merger for each set of layout parameters.
    pub fn new<R: Read + 'a>(
        reader: Reader<R>,
        mergers: Vec<ThreadMerger>,
        child: &'a mut dyn FnMut(Image) -> io::Result<Option<Child>>,
        workers: &'a [Vec<SyncSender<Arc<Batch>>>],
        replayed: &'a mut Replayed,
    ) -> ProcessTree<'a> {
        let header = reader.header().clone();
        let images = header.process.iter().map(Process::image).collect();
        replayed.executed_instructions = Some(0);
        let mut tree = ProcessTree {
            header,
            child,
            workers,
            replayed,
            images,
            live_processes: Vec::new(),
            count: 0,
            running: 0,
            found_runs: false,
        };
        tree.join(Vec::new(), None, Box::new(reader), mergers);
        tree
    }

    /// Adds a process and returns its number.
    fn join(
        &mut self,
        parents: Vec<u32>,
        name: Option<String>,
        blocks: Box<dyn Blocks + 'a>,
        mergers: Vec<ThreadMerger>,
    ) -> u32 {
        let number = self.count;
        self.count += 1;
        let process = blocks.header().process;
        let (at_end, instructions, waits_for) = (false, Instructions::default(), None);
        self.live_processes.push(LiveProcess {
            number,
            parents,
            process,
            name,
            blocks,
            mergers,
            at_end,
            instructions,
            waits_for,
        });
        number
    }

    /// Replays all traces. Returns whether the first process's trace has runs.
    pub fn feed(mut self) -> Result<bool, ReplayError> {
        while let Some(index) = self.next() {
            let advanced = self.advance(index);
            advanced.map_err(|error| self.live_processes[index].attributed(error))?;
            if self.live_processes[index].is_done() {
                self.note_read(index);
                if !self.execute(index)? {
                    let ended = self.live_processes.remove(index);
                    self.end(&ended);
                }
            }
        }
        Ok(self.found_runs)
    }

    /// The process to continue with: one whose time is unknown, or else the earliest in time. On a tie it is the youngest.
    fn next(&self) -> Option<usize> {
        let live_processes = self.live_processes.iter().enumerate().rev();
        let free = live_processes.filter(|(_, live_process)| live_process.waits_for.is_none());
        if self.live_processes.len() >= MAX_PROCESSES {
            // All tags are in use, so the youngest process must end first.
            return free.map(|(index, _)| index).next();
        }
        free.min_by_key(|(_, live_process)| live_process.time()).map(|(index, _)| index)
    }

    /// The time up to which a process can continue before another process must run. There is no limit if no other process can
    /// run.
    fn until(&self, index: usize) -> u64 {
        if self.live_processes.len() >= MAX_PROCESSES {
            return u64::MAX;
        }
        let others = self
            .live_processes
            .iter()
            .enumerate()
            .filter(|(other, live_process)| *other != index && live_process.waits_for.is_none());
        // A process whose time is unknown may be earlier than all others.
        others
            .map(|(_, live_process)| {
                if live_process.at_end {
                    live_process.time().unwrap_or(u64::MAX)
                } else {
                    live_process.time().unwrap_or(0)
                }
            })
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Continues a process with the blocks read so far, or else reads one more.
    fn advance(&mut self, index: usize) -> Result<(), ReplayError> {
        if self.send_next(index)? {
            return Ok(());
        }
        let live_process = &mut self.live_processes[index];
        match live_process.blocks.next_block()? {
            Some(block) => {
                live_process.instructions.add(&block);
                self.found_runs |= live_process.number == 0 && matches!(block, Block::Runs { .. });
                let part = TracePiece::from(block);
                live_process.mergers.iter_mut().for_each(|merger| merger.take(part.clone()));
            }
            None => live_process.at_end = true,
        }
        self.send_next(index).map(drop)
    }

    /// Sends the steps that a process can take now, and handles a fork after them. Returns whether the process advanced.
    fn send_next(&mut self, index: usize) -> Result<bool, ReplayError> {
        let until = self.until(index);
        let live_process = &mut self.live_processes[index];
        let (at_end, number, before) = (live_process.at_end, live_process.number, live_process.time());
        let batches: Vec<Batch> = live_process.mergers.iter_mut().map(|merger| merger.batch(at_end, until)).collect();
        let forked = live_process.mergers.iter_mut().fold(None, |forked, merger| merger.forked.take().or(forked));
        let is_empty = batches.iter().all(Batch::is_empty);
        let moved = !is_empty || forked.is_some() || live_process.time() != before;
        if !is_empty {
            self.switch(number);
        }
        for (workers, batch) in self.workers.iter().zip(batches) {
            send(workers, batch);
        }
        if let Some((process, shares)) = forked {
            self.fork(index, process, shares)?;
        }
        Ok(moved)
    }

    /// Makes all following steps belong to a process.
    fn switch(&mut self, number: u32) {
        if self.running != number {
            self.running = number;
            self.send_to_all(|| Step::Switch { process: number });
        }
    }

    /// Adds a forked process if it has a trace.
    fn fork(&mut self, index: usize, process: u32, shares: bool) -> Result<(), ReplayError> {
        let image = Image { process, execs: 0 };
        let Some(Child { name, from }) = (self.child)(image).map_err(ReadError::Io)? else {
            self.send_to_all(|| Step::UnrecordedFork { shares });
            return Ok(());
        };
        let parent = self.live_processes[index].process.map(|process| process.process);
        let reader = self.open(&name, from, image, parent, self.live_processes.len())?;
        let parent = &self.live_processes[index];
        let is_timed = parent.is_timed();
        let parents = parent.parents.iter().copied().chain([parent.number]).collect();
        let mergers = parent.mergers.iter().map(ThreadMerger::child).collect();
        let child = self.join(parents, Some(name), Box::new(reader), mergers);
        if shares || !is_timed {
            self.live_processes[index].waits_for = Some(child);
        }
        self.send_to_all(|| Step::Fork { process: child, shares });
        Ok(())
    }

    /// Continues with the program that a process has executed at the end of its trace. Returns whether that program has a trace.
    fn execute(&mut self, index: usize) -> Result<bool, ReplayError> {
        let live_process = &mut self.live_processes[index];
        let executed =
            live_process.mergers.iter_mut().fold(None, |executed, merger| merger.executed.take().or(executed));
        let (Some(event), number, process) = (executed, live_process.number, live_process.process) else {
            return Ok(false);
        };
        self.switch(number);
        self.send_to_all(|| Step::Change(Change::Call(event.clone())));
        let next = process.map(|process| Process { execs: process.image().next().execs, ..process });
        let child = next.map(|next| (self.child)(next.image())).transpose().map_err(ReadError::Io)?.flatten();
        let Some((own, Child { name, from })) = next.zip(child) else {
            if let Call::Exec { program, unrecorded: why } = event.call {
                *self.replayed.unrecorded.entry(Unrecorded { program, why }).or_default() += 1;
            }
            return Ok(false);
        };
        // `others` does not count the process itself.
        let reader = self.open(&name, from, own.image(), own.parent, self.live_processes.len() - 1)?;
        self.send_to_all(|| Step::Exec);
        self.replayed.executed += 1;
        let live_process = &mut self.live_processes[index];
        live_process.mergers = live_process.mergers.iter().map(|merger| merger.image(own.image())).collect();
        (live_process.blocks, live_process.at_end, live_process.instructions) =
            (Box::new(reader), false, Instructions::default());
        (live_process.process, live_process.name) = (Some(own), Some(name));
        self.release_waiting(number, LiveProcess::is_timed);
        Ok(true)
    }

    /// Opens the trace of an image while `others` other processes are alive. Errors name the trace.
    fn open(
        &mut self,
        name: &str,
        from: Box<dyn Read>,
        image: Image,
        parent: Option<u32>,
        others: usize,
    ) -> Result<Reader<Box<dyn Read>>, ReplayError> {
        let open = || {
            if !self.images.insert(image) {
                return Err(ReplayError::ForkedTwice { process: image.process });
            }
            if others >= MAX_PROCESSES {
                return Err(ReplayError::TooDeep { max: MAX_PROCESSES });
            }
            let reader = Reader::new(from)?;
            self.check_recording(reader.header(), image, parent)?;
            Ok(reader)
        };
        open().map_err(|error| ReplayError::Child { name: name.to_owned(), error: Box::new(error) })
    }

    /// Records what a process's trace contained, at its end.
    fn note_read(&mut self, index: usize) {
        let LiveProcess { name, blocks, mergers, instructions, .. } = &self.live_processes[index];
        let counted = self.replayed.executed_instructions.zip(instructions.total());
        self.replayed.executed_instructions = counted.map(|(sum, count)| sum.saturating_add(count));
        let place = name.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
        if let Some(merger) = mergers.first() {
            self.replayed.damage.extend(merger.replayed.damage.iter().map(|damage| format!("{place}{damage}")));
            self.replayed.out_of_order += merger.replayed.out_of_order;
            self.replayed.untimed += u64::from(merger.lacks_times() && !self.header.system);
        }
        match name.as_ref().filter(|_| !blocks.is_whole()) {
            Some(name) => self.replayed.cut_off_children.push(name.clone()),
            None => self.replayed.cut_off |= !blocks.is_whole(),
        }
        if name.is_none() {
            self.replayed.notes = blocks.notes().cloned();
        }
    }

    /// Handles the end of a process.
    fn end(&mut self, ended: &LiveProcess<'_>) {
        // The outcome reports the final state of the first process, so the first process is not removed.
        if ended.parents.is_empty() {
            return;
        }
        self.replayed.children += 1;
        // The nearest ancestor that has not ended.
        let is_there = |number: &&u32| self.live_processes.iter().any(|live_process| live_process.number == **number);
        self.running = ended.parents.iter().rev().find(is_there).copied().unwrap_or(0);
        let next = self.running;
        self.send_to_all(|| Step::End { process: ended.number, next });
        self.release_waiting(ended.number, |_| true);
    }

    /// Releases the processes that wait for process `number` if `may` returns `true` for them.
    fn release_waiting(&mut self, number: u32, may: impl Fn(&LiveProcess<'a>) -> bool) {
        let waits = self
            .live_processes
            .iter_mut()
            .filter(|live_process| live_process.waits_for == Some(number) && may(live_process));
        waits.for_each(|live_process| live_process.waits_for = None);
    }

    /// Refuses a trace that does not belong to the recording of the first process.
    fn check_recording(&self, header: &Header, image: Image, parent: Option<u32>) -> Result<(), ReplayError> {
        check_same("system", header.system, self.header.system)?;
        check_same("the architecture", &header.architecture, &self.header.architecture)?;
        check_same("the filter", header.filter, self.header.filter)?;
        let Some(own) = header.process else { return Ok(()) };
        check_same("the process", own.process, image.process)?;
        check_same("the number of programs executed", own.execs, image.execs)?;
        match (own.parent, parent) {
            (Some(found), Some(expected)) => check_same("the parent", found, expected),
            _ => Ok(()),
        }
    }

    /// Sends a step to all workers.
    fn send_to_all(&self, step: impl Fn() -> Step) {
        self.workers.iter().for_each(|workers| send(workers, Batch::of(step())));
    }
}

fn send(workers: &[SyncSender<Arc<Batch>>], batch: Batch) {
    let batch = Arc::new(batch);
    for worker in workers {
        // A worker ends only when its sender is dropped, or with a panic, which the thread scope propagates.
        let _ = worker.send(Arc::clone(&batch));
    }
}

fn check_same<T: PartialEq + std::fmt::Debug>(what: &'static str, found: T, expected: T) -> Result<(), ReplayError> {
    if found == expected {
        return Ok(());
    }
    Err(ReplayError::OtherRecording { what, found: format!("{found:?}"), expected: format!("{expected:?}") })
}
