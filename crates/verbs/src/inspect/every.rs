//! Inspects a process periodically, and writes one row for each inspection, a *look* ([`PeriodicInspection`]).

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use census::inspect::{Detail, InspectError, Inspector};
use census::{CensusError, Observer};
use policy::inspect::Summary;
use results::inspection::{json, openmetrics};
use tracer::signals::{self, Forward};

use super::Inspect;
use super::rows::{Figures, Rows};
use crate::failure::{Failure, report};
use crate::looks;
use crate::output::{Reader, print_update, write_update};

/// The end of the message that a process has ended, if its PID has been reused.
const OTHER_PROCESS: &str = ", and its number belongs to another process";

/// How often to inspect a process, and where to write the results.
#[derive(Clone, Debug)]
pub struct PeriodicInspection {
    every: Duration,
    as_json_lines: bool,
    metrics: Option<PathBuf>,
    sizes_only: bool,
}

/// Inspects a process in a separate thread while another thread traces it.
pub struct LookThread {
    thread: io::Result<JoinHandle<Result<(), Failure>>>,
    is_over: Arc<AtomicBool>,
}

impl PeriodicInspection {
    /// The looks that the arguments request.
    pub fn of(arguments: &Inspect) -> Option<PeriodicInspection> {
        let every = looks::interval(arguments.every?);
        let (as_json_lines, metrics) = (arguments.json_lines, arguments.openmetrics.clone());
        Some(PeriodicInspection { every, as_json_lines, metrics, sizes_only: arguments.sizes })
    }

    /// The time between two looks.
    pub fn every(&self) -> Duration {
        self.every
    }

    /// Inspects a process until it ends, the output has no reader, or a signal stops pagelab.
    pub fn run(&self, pid: u32) -> Result<(), Failure> {
        // The handler of `catch` sets an alarm, because a write to a terminal that takes no output (Ctrl-S) blocks.
        signals::catch(Forward::Kill).map_err(Failure::input)?;
        let ended = self.run_until(pid, false, &AtomicBool::new(false));
        if let Some(signal) = signals::arrived() {
            return Err(Failure::Stopped(signal, "the process continues"));
        }
        if let Some(how) = ended? {
            report(format_args!("pagelab: process {pid} has ended{how}"));
        }
        Ok(())
    }

    /// Starts inspecting a process that is about to exec its program. The first look is one interval later.
    pub fn spawn(self, pid: u32) -> LookThread {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = std::thread::Builder::new().name("looks".into()).spawn(move || {
            looks::wait(Instant::now() + self.every, &ends);
            self.run_until(pid, true, &ends).map(drop)
        });
        LookThread { thread, is_over }
    }

    /// Inspects until the process ends or `must_end` is true. `existed`: the process is known to have existed before the first look.
    /// Returns the end of the message that the process has ended; `None` if it has not.
    fn run_until(&self, pid: u32, mut existed: bool, is_over: &AtomicBool) -> Result<Option<&'static str>, Failure> {
        let observer = Observer::open().map_err(Failure::input)?;
        let inspector = super::new_inspector(
            observer.with_file_folios(),
            Detail { sizes_only: self.sizes_only, ..Detail::default() },
        )?;
        let mut series = Series::new(self, Rows::new(inspector.page_sizes().clone()));
        let ended = looks::at_intervals(self.every, is_over, |at| {
            match look(&inspector, pid) {
                Ok(summary) if series.is_other_process(&summary) => return Ok(ControlFlow::Break(Some(OTHER_PROCESS))),
                Ok(summary) => match series.show(&summary, at)? {
                    Reader::Present => {}
                    Reader::Gone => return Ok(ControlFlow::Break(None)),
                },
                Err(error) if existed && how_ended(&error).is_some() => {
                    return Ok(ControlFlow::Break(how_ended(&error)));
                }
                Err(_) if is_over.load(Ordering::SeqCst) => return Ok(ControlFlow::Break(None)),
                Err(error) => return Err(Failure::input(error)),
            }
            existed = true;
            Ok(ControlFlow::Continue(()))
        });
        Ok(ended?.flatten())
    }
}

impl LookThread {
    /// Ends the looks because the process has ended, and waits for the last look.
    pub fn finish(self) -> Result<(), Failure> {
        self.is_over.store(true, Ordering::SeqCst);
        let thread = self.thread.map_err(|error| {
            Failure::Input(format!(
                "--every: no thread can be started: {error}; raise the limit of threads (ulimit -u)"
            ))
        });
        match thread?.join() {
            Ok(looked) => looked,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// If an error means that the process has ended, the end of the message about that. Some of these errors occur only if the process
/// ends during a look.
fn how_ended(error: &InspectError) -> Option<&'static str> {
    match error {
        InspectError::NoSuchProcess { .. } | InspectError::Zombie { .. } => Some(""),
        InspectError::Census(CensusError::Gone { .. } | CensusError::NoAddressSpace { .. }) => Some(""),
        InspectError::Replaced { .. } => Some(OTHER_PROCESS),
        _ => None,
    }
}

fn look(inspector: &Inspector, pid: u32) -> Result<Summary, InspectError> {
    Ok(Summary::of(&inspector.process(pid, &inspector.supply()?)?))
}

/// The state of a series of looks at one process.
struct Series {
    rows: Rows,
    as_json_lines: bool,
    metrics: Option<PathBuf>,
    started_ticks: Option<u64>,
}

impl Series {
    fn new(looks: &PeriodicInspection, rows: Rows) -> Series {
        let (as_json_lines, metrics) = (looks.as_json_lines, looks.metrics.clone());
        Series { rows, as_json_lines, metrics, started_ticks: None }
    }

    /// Whether the PID has been reused by another process.
    fn is_other_process(&mut self, summary: &Summary) -> bool {
        let ticks = summary.process.started_ticks;
        *self.started_ticks.get_or_insert(ticks) != ticks
    }

    /// Writes a look to all outputs. Returns whether all of them still have a reader.
    fn show(&mut self, summary: &Summary, elapsed: Duration) -> Result<Reader, Failure> {
        if let Some(file) = &self.metrics {
            let text = openmetrics::text(std::slice::from_ref(summary));
            if write_update(file, &|to| to.write_all(text.as_bytes()))? == Reader::Gone {
                return Ok(Reader::Gone);
            }
        }
        if self.as_json_lines {
            return print_update(&json::sample(summary, unix_s(), elapsed.as_secs_f64()).to_string(), true);
        }
        let title = || format!("process {} ({})", summary.process.pid, results::printable(&summary.process.name));
        self.rows.print(title, &Figures::of_process(summary), elapsed)
    }
}

/// Seconds since 1970; 0 if the clock is before 1970.
pub fn unix_s() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
