//! Finds the moment at which the processes of a command have the most memory ([`Sampler`]): memory that a process frees earlier
//! is not seen at its exit.
//!
//! Resident memory is read at an interval, and before large ranges are freed. A process is inspected (a *look*) only when it has
//! grown by a fraction of the largest look so far. So the number of looks depends on how far memory grows, and not on the run
//! time. The fraction is smaller while memory does not grow, because that may be the peak.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use census::inspect::{InspectError, Inspector};
use host::resident_bytes;
use policy::census::Backing;
use policy::inspect::{Inspection, Supply};
use policy::size::{PageSize, format_bytes};
use results::inspection::json;
use serde_json::{Value, json};
use stacks::Moment;

use super::first_touch::FirstTouchRecording;
use crate::failure::{Failure, report};
use crate::short::seconds;

/// The interval at which resident memory is read.
const INTERVAL: Duration = Duration::from_millis(10);
/// A growing process is inspected when it has 1/`GROWTH_DIVISOR` more resident memory than the largest look found.
const GROWTH_DIVISOR: u64 = 8;
/// Like [`GROWTH_DIVISOR`], but for a process that has stopped growing, or is about to free memory.
const PEAK_DIVISOR: u64 = 64;
/// Minimum growth that is worth another look.
const MIN_GROWTH_BYTES: u64 = 1 << 20;

/// Looks for the peak while the command runs.
pub struct Sampler {
    state: Arc<Mutex<State>>,
    processes: Processes,
    is_over: Arc<AtomicBool>,
    thread: Option<io::Result<JoinHandle<()>>>,
}

/// The processes that have executed a program, and their forks. The lock is never held during a look, so the tracer can add a
/// process at once.
type Processes = Arc<Mutex<BTreeSet<u32>>>;

struct State {
    inspector: Inspector,
    at_start: Supply,
    /// With --stacks: records the memory of each look.
    recording: Option<Arc<FirstTouchRecording>>,
    began: Instant,
    processes: Processes,
    /// Resident memory when the largest look began, according to the kernel's counter.
    resident_bytes: u64,
    /// Resident memory of each process at the last reading.
    last_bytes: BTreeMap<u32, u64>,
    peak: Peak,
    /// The first process that could not be inspected, and why.
    refused: Option<(u32, String)>,
}

/// The largest look while the command ran.
#[derive(Default)]
pub struct Peak {
    /// The look, and when it was, counted from the command's start.
    pub largest: Option<(Inspection, Duration)>,
    /// The number of all looks.
    looks: u32,
}

impl Sampler {
    /// A sampler that inspects with `inspector`. `at_start`: the kernel's supply of large pages, with its counters,
    /// when the command started.
    pub fn new(inspector: Inspector, at_start: Supply, recording: Option<Arc<FirstTouchRecording>>) -> Sampler {
        let processes = Processes::default();
        let state = State {
            inspector,
            at_start,
            recording,
            began: Instant::now(),
            processes: Arc::clone(&processes),
            resident_bytes: 0,
            last_bytes: BTreeMap::new(),
            peak: Peak::default(),
            refused: None,
        };
        Sampler { state: Arc::new(Mutex::new(state)), processes, is_over: Arc::default(), thread: None }
    }

    /// Starts the thread that reads resident memory at the interval. Called just before the command executes its
    /// program.
    pub fn begin(&mut self) {
        locked(&self.state).began = Instant::now();
        let (state, is_over) = (Arc::clone(&self.state), Arc::clone(&self.is_over));
        let sample = move || {
            while !is_over.load(Ordering::SeqCst) {
                std::thread::sleep(INTERVAL);
                locked(&state).sample(false);
            }
        };
        self.thread = Some(std::thread::Builder::new().name("peak".into()).spawn(sample));
    }

    pub fn add(&self, process: u32) {
        locked(&self.processes).insert(process);
    }

    /// Reads resident memory at once, because memory is about to be freed.
    pub fn sample(&self) {
        locked(&self.state).sample(true);
    }

    /// Stops the thread after the command has ended.
    pub fn finish(mut self) -> Result<Peak, Failure> {
        self.is_over.store(true, Ordering::SeqCst);
        match self.thread.take() {
            Some(Err(error)) => {
                return Err(Failure::Input(format!(
                    "no thread can be started to look for the peak: {error}; raise the limit of threads (ulimit -u)"
                )));
            }
            Some(Ok(thread)) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            None => {}
        }
        let mut state = locked(&self.state);
        if let Some((process, why)) = state.refused.take() {
            report(format_args!("pagelab: process {process} could not be inspected while it ran: {why}"));
        }
        Ok(std::mem::take(&mut state.peak))
    }
}

/// Locks a mutex even if it is poisoned: a panic of the other thread is resumed when the thread is joined.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Reads the resident memory of every process, and inspects those that have grown. `is_peak`: memory is about to be freed.
    fn sample(&mut self, is_peak: bool) {
        let base = self.inspector.page_sizes().base;
        let processes = locked(&self.processes).clone();
        for process in processes {
            match resident_bytes(process, base) {
                Ok(Some(bytes)) => {
                    let is_still = is_peak || self.last_bytes.insert(process, bytes) == Some(bytes);
                    if has_grown(self.resident_bytes, bytes, if is_still { PEAK_DIVISOR } else { GROWTH_DIVISOR }) {
                        self.look(process, bytes);
                    }
                }
                Ok(None) => self.forget(process),
                Err(error) => self.give_up(process, error.to_string()),
            }
        }
    }

    fn look(&mut self, process: u32, resident_bytes: u64) {
        let elapsed = self.began.elapsed();
        let inspected =
            self.inspector.supply().and_then(|now| self.inspector.process(process, &now.since(&self.at_start)));
        match inspected {
            Ok(inspection) => {
                self.peak.looks += 1;
                self.resident_bytes = resident_bytes;
                let before = self.peak.largest.as_ref().map_or(0, |(largest, _)| largest.resident_bytes());
                if inspection.resident_bytes() >= before {
                    if let Some(recording) = &self.recording {
                        recording.look(process, Moment::Running);
                    }
                    self.peak.largest = Some((inspection, elapsed));
                }
            }
            Err(InspectError::NoSuchProcess { .. } | InspectError::Zombie { .. } | InspectError::Replaced { .. }) => {
                self.forget(process);
            }
            // The process ended during the look, which is no error.
            Err(_) if has_no_memory(process, self.inspector.page_sizes().base) => self.forget(process),
            Err(error) => self.give_up(process, error.to_string()),
        }
    }

    fn forget(&mut self, process: u32) {
        locked(&self.processes).remove(&process);
        self.last_bytes.remove(&process);
    }

    /// Stops sampling a process that cannot be inspected, and keeps the first reason.
    fn give_up(&mut self, process: u32, why: String) {
        self.forget(process);
        self.refused.get_or_insert((process, why));
    }
}

/// Whether a process has no memory any more, because it has ended.
fn has_no_memory(process: u32, base: PageSize) -> bool {
    matches!(resident_bytes(process, base), Ok(None | Some(0)))
}

/// Whether memory has grown enough for another look: by 1/`divisor`.
fn has_grown(from_bytes: u64, to_bytes: u64, divisor: u64) -> bool {
    to_bytes.saturating_sub(from_bytes) >= MIN_GROWTH_BYTES.max(from_bytes / divisor)
}

impl Peak {
    /// The largest look, if it found more memory than the look at the exit.
    pub fn above(&self, exit: &Inspection) -> Option<(&Inspection, Duration)> {
        let (largest, elapsed) = self.largest.as_ref()?;
        has_grown(exit.resident_bytes(), largest.resident_bytes(), PEAK_DIVISOR).then_some((largest, *elapsed))
    }

    /// Like [`Peak::above`], but without the time.
    pub fn into_above(self, exit: &Inspection) -> Option<Inspection> {
        let is_above = self.above(exit).is_some();
        self.largest.filter(|_| is_above).map(|(largest, _)| largest)
    }

    /// Text about the peak: what was seen of it, and how it was looked for. `hwm_bytes` is the peak of the same process by the
    /// kernel's count.
    pub fn text(&self, exit: &Inspection, hwm_bytes: Option<u64>) -> [String; 2] {
        let how = format!(
            "  resident memory was read every {} and before large ranges were freed; looks, one whenever it had grown by an \
             eighth, or by a sixty-fourth and stopped growing: {}",
            seconds(INTERVAL.as_secs_f64()),
            self.looks
        );
        let largest = self.above(exit).map_or(exit, |(largest, _)| largest);
        let has_hugetlb = largest.census().rows().any(|(mapping, _)| mapping.backing == Backing::Hugetlb);
        let without = if has_hugetlb { ", which leaves out hugetlb pages" } else { "" };
        let of_peak =
            hwm_bytes.map_or(String::new(), |bytes| format!(", of a peak of {} (VmHWM{without})", format_bytes(bytes)));
        let seen = match self.above(exit) {
            Some((largest, elapsed)) => format!(
                "the largest look, {} after the start: {} resident{of_peak}",
                seconds(elapsed.as_secs_f64()),
                format_bytes(largest.resident_bytes())
            ),
            None => format!(
                "the largest look was the one at the exit: {} resident{of_peak}",
                format_bytes(exit.resident_bytes())
            ),
        };
        [seen, how]
    }

    /// What [`Peak::text`] describes, as a part of a JSON document.
    pub fn document(&self, exit: &Inspection, hwm_bytes: Option<u64>) -> Value {
        let above = self.above(exit);
        json!({
            "interval_s": INTERVAL.as_secs_f64(),
            "growth_ratio": 1.0 / GROWTH_DIVISOR as f64,
            "peak_growth_ratio": 1.0 / PEAK_DIVISOR as f64,
            "looks": self.looks,
            "hwm_bytes": hwm_bytes,
            "elapsed_s": above.map(|(_, elapsed)| elapsed.as_secs_f64()),
            "process": above.map(|(largest, _)| json::process(largest)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_few_however_far_memory_grows() {
        let (mut resident, mut seen, mut looks, mut looked_at) = (0u64, 0, 0, 0);
        while resident < 64 << 30 {
            resident += 4 << 20;
            if has_grown(seen, resident, GROWTH_DIVISOR) {
                (seen, looks, looked_at) = (resident, looks + 1, looked_at + resident);
            }
        }
        assert!(looks < 100, "{looks}");
        assert!(looked_at < 10 * resident, "all looks together read {looked_at}");
        assert!(resident - seen <= resident / GROWTH_DIVISOR, "{seen} of {resident}");
        assert!(!has_grown(8 << 20, 7 << 20, 8) && !has_grown(100 << 20, 110 << 20, 8) && has_grown(0, 1 << 20, 8));
        assert!(has_grown(100 << 20, 110 << 20, PEAK_DIVISOR) && !has_grown(100 << 20, 101 << 20, PEAK_DIVISOR));
    }
}
