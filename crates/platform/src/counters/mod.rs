//! [`Counters`]: the hardware counters of a process tree, for page walks and the cycles that they take.
//!
//! Counters are opened on a child that is stopped before exec, start at its exec, and are inherited by everything that it forks.
//! They count user mode only, which needs the least privilege and makes the figure the same for root and other users; walks for
//! the kernel's own accesses are not included. A program that gains privilege by exec (setuid) is no longer counted: the kernel
//! then removes the events of its process (`begin_new_exec`, fs/exec.c).
//!
//! A processor may have fewer counters than there are events; the kernel then multiplexes them. Every reading contains the share
//! of the time for which it counted. A figure that was scaled up for the rest is marked as derived, and an event that never ran
//! is absent.

mod encoding;
mod processor;
mod reading;
#[cfg(test)]
mod tests;
mod unavailable;

pub use encoding::Quantity;
pub use reading::{Reading, observations};
pub use unavailable::Unavailable;

use std::io;

use nix::unistd::Pid;
use perf_event::events::Software;
use perf_event::{Builder, Counter};

use encoding::Event;
use processor::Processor;

/// Counters on a process tree.
#[derive(Debug)]
pub struct Counters {
    counters: Vec<(Quantity, Counter)>,
}

impl Counters {
    /// Opens counters for page walks on `pid`, which must be stopped before the exec that starts the counting. An event that this
    /// processor's counters refuse is left out, and with it the metrics that need it.
    pub fn open(pid: Pid) -> Result<Counters, Unavailable> {
        Counters::open_events(pid, &Processor::of_this_machine()?.events()?)
    }

    /// The current counts, event by event; tasks that still run are included.
    pub fn readings(&mut self) -> io::Result<Vec<Reading>> {
        self.counters.iter_mut().map(|(quantity, counter)| Reading::take(*quantity, counter)).collect()
    }

    /// The current counts as observations of the metrics in [`study::metric::names`]. A metric of which a part was not counted is
    /// absent.
    pub fn read(&mut self) -> io::Result<Vec<study::metric::Observation>> {
        Ok(observations(&self.readings()?))
    }

    fn open_events(pid: Pid, events: &[Event]) -> Result<Counters, Unavailable> {
        let mut counters = Vec::new();
        let mut refused = None;
        for event in events {
            match open(pid, event) {
                Ok(counter) => counters.push((event.quantity, counter)),
                Err(error) if unavailable::concerns_one_event(&error) => refused = Some((event, error)),
                Err(error) => return Err(Unavailable::opening(event, &error)),
            }
        }
        match refused {
            Some((event, error)) if counters.is_empty() => Err(Unavailable::opening(event, &error)),
            _ => Ok(Counters { counters }),
        }
    }
}

fn open(pid: Pid, event: &Event) -> io::Result<Counter> {
    // The dummy event gives a builder with its defaults; type and config select the intended event.
    let mut builder = Builder::new(Software::DUMMY);
    builder.attrs_mut().type_ = event.pmu_type;
    builder.attrs_mut().config = event.config;
    builder.observe_pid(pid.as_raw()).any_cpu().inherit(true).enable_on_exec(true);
    builder.exclude_kernel(true).exclude_hv(true);
    builder.build()
}
