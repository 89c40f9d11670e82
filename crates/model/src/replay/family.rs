//! A process and those that it forks, each in a trace of its own.

use std::collections::HashSet;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use trace::{Block, Call, Header, Image, Process, ReadError, Reader};

use super::error::ReplayError;
use super::order::{Batch, Feeder, Part, Step};
use super::replayed::{Replayed, Unrecorded};
use crate::layout::Change;
use crate::simulation::MOST_PROCESSES;

/// A trace of a forked process, or of a program that a process executes.
pub struct Child {
    /// The name of its file.
    pub name: String,
    /// What is in it.
    pub from: Box<dyn Read>,
}

/// Reads the traces of a process and of those that it forks.
pub(super) struct Family<'a> {
    /// That of the first process.
    header: Header,
    child: &'a mut dyn FnMut(Image) -> io::Result<Option<Child>>,
    /// By addresses: the threads of the simulations that have them.
    workers: &'a [Vec<SyncSender<Arc<Batch>>>],
    replayed: &'a mut Replayed,
    /// Images whose traces were read or are being read.
    met: HashSet<Image>,
    /// Processes that wait for the one that runs.
    waiting: usize,
}

impl<'a> Family<'a> {
    /// The family of the process whose trace has this header.
    pub fn new(
        header: &Header,
        child: &'a mut dyn FnMut(Image) -> io::Result<Option<Child>>,
        workers: &'a [Vec<SyncSender<Arc<Batch>>>],
        replayed: &'a mut Replayed,
    ) -> Family<'a> {
        let met = header.process.iter().map(Process::image).collect();
        Family { header: header.clone(), child, workers, replayed, met, waiting: 0 }
    }

    /// Sends what is in the trace of a process to all workers, and what is in those of the programs that it executes and of the
    /// processes that it forks. Whether any of the process had runs. `name` is that of the file, of all but the first; there is a
    /// feeder for each kind of addresses.
    pub fn feed<R: Read>(
        &mut self,
        reader: Reader<R>,
        mut feeders: Vec<Feeder>,
        name: Option<&str>,
    ) -> Result<bool, ReplayError> {
        let mut process = reader.header().process;
        let mut found_runs = self.feed_image(reader, &mut feeders, name)?;
        while let Some((own, child)) = self.executed(process, &mut feeders)? {
            feeders = feeders.iter().map(|feeder| feeder.image(own.image())).collect();
            self.tell(|| Step::Exec);
            found_runs |= self.within(child, |family, from, name| {
                let reader = family.opened(from, own.image(), own.parent)?;
                family.feed_image(reader, &mut feeders, Some(name))
            })?;
            self.replayed.executed += 1;
            process = Some(own);
        }
        Ok(found_runs)
    }

    /// The same for one image of it.
    fn feed_image<R: Read>(
        &mut self,
        mut reader: Reader<R>,
        feeders: &mut [Feeder],
        name: Option<&str>,
    ) -> Result<bool, ReplayError> {
        let (mut found_runs, mut at_end) = (false, false);
        while !at_end {
            match reader.next_block()? {
                Some(block) => {
                    found_runs |= matches!(block, Block::Runs { .. });
                    let part = Part::from(block);
                    feeders.iter_mut().for_each(|feeder| feeder.take(part.clone()));
                }
                None => at_end = true,
            }
            loop {
                let mut forked = None;
                for (feeder, workers) in feeders.iter_mut().zip(self.workers) {
                    send(workers, feeder.batch(at_end));
                    // The order does not depend on addresses: it is the same for all.
                    forked = feeder.forked.take();
                }
                let Some((process, shares)) = forked else { break };
                let parent = reader.header().process.map(|process| process.process);
                self.fork(process, parent, shares, feeders)?;
            }
        }
        let place = name.map(|name| format!("{name}: ")).unwrap_or_default();
        if let Some(Feeder { replayed, .. }) = feeders.first() {
            self.replayed.damage.extend(replayed.damage.iter().map(|damage| format!("{place}{damage}")));
            self.replayed.out_of_order += replayed.out_of_order;
        }
        match name.filter(|_| !reader.is_whole()) {
            Some(name) => self.replayed.cut_off_children.push(name.to_owned()),
            None => self.replayed.cut_off |= !reader.is_whole(),
        }
        Ok(found_runs)
    }

    /// The program that a process has executed at the end of its trace, and the trace of it, if there is one.
    fn executed(
        &mut self,
        process: Option<Process>,
        feeders: &mut [Feeder],
    ) -> Result<Option<(Process, Child)>, ReplayError> {
        let mut executed = None;
        for feeder in feeders {
            executed = feeder.executed.take().or(executed);
        }
        let Some(event) = executed else { return Ok(None) };
        self.tell(|| Step::Change(Change::Call(event.clone())));
        let next = process.map(|process| Process { execs: process.image().next().execs, ..process });
        let child = next.map(|next| (self.child)(next.image())).transpose().map_err(ReadError::Io)?.flatten();
        if let (None, Call::Exec { program, unrecorded: why }) = (&child, event.call) {
            *self.replayed.unrecorded.entry(Unrecorded { program, why }).or_default() += 1;
        }
        Ok(next.zip(child))
    }

    /// A process was forked: it runs to its end, if there is a trace of it.
    fn fork(&mut self, process: u32, parent: Option<u32>, shares: bool, feeders: &[Feeder]) -> Result<(), ReplayError> {
        let image = Image { process, execs: 0 };
        let Some(child) = (self.child)(image).map_err(ReadError::Io)? else {
            self.tell(|| Step::Missing { shares });
            return Ok(());
        };
        self.tell(|| Step::Enter { shares });
        self.waiting += 1;
        let feeders = feeders.iter().map(Feeder::child).collect();
        self.within(child, |family, from, name| {
            let reader = family.opened(from, image, parent)?;
            family.feed(reader, feeders, Some(name))
        })?;
        self.waiting -= 1;
        self.tell(|| Step::Leave);
        self.replayed.children += 1;
        Ok(())
    }

    /// Reads another trace. The innermost file is the one that something is wrong with.
    fn within<T>(
        &mut self,
        Child { name, from }: Child,
        read: impl FnOnce(&mut Self, Box<dyn Read>, &str) -> Result<T, ReplayError>,
    ) -> Result<T, ReplayError> {
        read(self, from, &name).map_err(|error| match error {
            ReplayError::Child { .. } => error,
            error => ReplayError::Child { name, error: Box::new(error) },
        })
    }

    /// Opens the trace of an image.
    fn opened(
        &mut self,
        from: Box<dyn Read>,
        image: Image,
        parent: Option<u32>,
    ) -> Result<Reader<Box<dyn Read>>, ReplayError> {
        if !self.met.insert(image) {
            return Err(ReplayError::Again { process: image.process });
        }
        if self.waiting >= MOST_PROCESSES {
            return Err(ReplayError::Deep { most: MOST_PROCESSES });
        }
        let reader = Reader::new(from)?;
        self.belongs(reader.header(), image, parent)?;
        Ok(reader)
    }

    /// Refuses a trace that is not of the same recording as the first process's.
    fn belongs(&self, header: &Header, image: Image, parent: Option<u32>) -> Result<(), ReplayError> {
        same("system", header.system, self.header.system)?;
        same("the architecture", &header.architecture, &self.header.architecture)?;
        same("the filter", header.filter, self.header.filter)?;
        let Some(own) = header.process else { return Ok(()) };
        same("the process", own.process, image.process)?;
        same("the number of programs executed", own.execs, image.execs)?;
        match (own.parent, parent) {
            (Some(found), Some(expected)) => same("the parent", found, expected),
            _ => Ok(()),
        }
    }

    /// Sends a step to all.
    fn tell(&self, step: impl Fn() -> Step) {
        self.workers.iter().for_each(|workers| send(workers, Batch::of(step())));
    }
}

fn send(workers: &[SyncSender<Arc<Batch>>], batch: Batch) {
    let batch = Arc::new(batch);
    for worker in workers {
        // A worker ends only when its sender is gone, or with a panic, which the scope passes on.
        let _ = worker.send(Arc::clone(&batch));
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &'static str, found: T, expected: T) -> Result<(), ReplayError> {
    if found == expected {
        return Ok(());
    }
    Err(ReplayError::Foreign { what, found: format!("{found:?}"), expected: format!("{expected:?}") })
}
