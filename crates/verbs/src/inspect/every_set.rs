//! Inspects a set of processes periodically ([`ProcessSet`]): all processes, a tree or a control group. A row for each
//! look has the totals.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use census::Observer;
use census::inspect::{Detail, InspectError, Inspector, which};
use policy::inspect::{Summary, Totals};
use results::inspection::{json, openmetrics};
use tracer::signals::{self, Forward};

use super::Inspect;
use super::every::{PeriodicInspection, unix_s};
use super::many::is_without_memory;
use super::rows::{Figures, Rows};
use crate::failure::{Failure, report};
use crate::looks;
use crate::output::{Reader, print_update, write_update};

/// A set of processes, which may change from look to look.
pub enum ProcessSet {
    All,
    /// A process and its descendants.
    Tree(u32),
    /// The processes of a control group and of those below it.
    Group(PathBuf),
}

/// One look: the figures of all processes in the set at that moment.
#[derive(Default)]
struct SetLook {
    totals: Totals,
    /// A summary for each process; empty unless processes are exported one by one.
    summaries: Vec<Summary>,
    /// Processes that could not be inspected, and why.
    unseen: Vec<(u32, String)>,
}

impl ProcessSet {
    /// The set that the arguments name; `None` where they name a single process or a command.
    pub fn of(arguments: &Inspect) -> Option<ProcessSet> {
        let group = || arguments.cgroup.clone().map(ProcessSet::Group);
        let all = || arguments.all.then_some(ProcessSet::All);
        arguments.tree.map(ProcessSet::Tree).or_else(group).or_else(all)
    }

    /// The PIDs in the set, sorted.
    pub fn processes(&self) -> Result<Vec<u32>, InspectError> {
        match self {
            ProcessSet::All => which::all(),
            ProcessSet::Tree(root) => which::tree(*root),
            ProcessSet::Group(path) => which::cgroup(path),
        }
    }

    fn title(&self) -> String {
        match self {
            ProcessSet::All => "all processes".into(),
            ProcessSet::Tree(root) => format!("process {root} and its descendants"),
            ProcessSet::Group(path) => format!("control group {}", results::printable(&path.to_string_lossy())),
        }
    }

    /// If an error means that the set is gone, the message about that.
    fn how_gone(&self, error: &InspectError) -> Option<String> {
        match (self, error) {
            (ProcessSet::Tree(root), InspectError::NoSuchProcess { .. }) => Some(format!("process {root} has ended")),
            (ProcessSet::Group(_), InspectError::NoSuchGroup { .. }) => Some(format!("{} was removed", self.title())),
            _ => None,
        }
    }
}

/// Inspects the set until it is gone, the output has no reader, or a signal stops pagelab.
pub fn run(arguments: &Inspect, looks: &PeriodicInspection, set: &ProcessSet) -> Result<(), Failure> {
    // The handler of `catch` sets an alarm, because a write to a terminal that takes no output (Ctrl-S) blocks.
    signals::catch(Forward::Kill).map_err(Failure::input)?;
    let detail = Detail { sizes_only: arguments.sizes, memory_only: true, ..Detail::default() };
    let inspector = super::new_inspector(Observer::open().map_err(Failure::input)?, detail)?;
    let (mut rows, mut existed) = (Rows::new(inspector.page_sizes().clone()), false);
    let ended = looks::at_intervals(looks.every(), &AtomicBool::new(false), |elapsed| {
        let processes = match set.processes() {
            Ok(processes) => processes,
            Err(error) => match set.how_gone(&error).filter(|_| existed) {
                Some(gone) => return Ok(ControlFlow::Break(Some(gone))),
                None => return Err(Failure::input(error)),
            },
        };
        existed = true;
        let look = SetLook::take(&inspector, &processes, arguments.openmetrics.is_some())?;
        Ok(match look.show(arguments, set, &mut rows, elapsed)? {
            Reader::Present => ControlFlow::Continue(()),
            Reader::Gone => ControlFlow::Break(None),
        })
    });
    if let Some(signal) = signals::arrived() {
        return Err(Failure::Stopped(signal, "the processes continue"));
    }
    if let Some(gone) = ended?.flatten() {
        report(format_args!("pagelab: {gone}"));
    }
    Ok(())
}

impl SetLook {
    /// Inspects these processes, except pagelab itself. Processes without memory do not count.
    fn take(inspector: &Inspector, processes: &[u32], keeps_summaries: bool) -> Result<SetLook, Failure> {
        let supply = inspector.supply().map_err(Failure::input)?;
        let mut look = SetLook::default();
        for pid in processes.iter().copied().filter(|pid| *pid != std::process::id()) {
            match inspector.process(pid, &supply) {
                Ok(inspection) => {
                    look.totals.add(&inspection);
                    look.summaries.extend(keeps_summaries.then(|| Summary::of(&inspection)));
                }
                Err(error) if is_without_memory(&error) => {}
                Err(error) => look.unseen.push((pid, error.to_string())),
            }
        }
        Ok(look)
    }

    /// Writes the look to all outputs. Returns whether all of them still have a reader.
    fn show(
        &self,
        arguments: &Inspect,
        set: &ProcessSet,
        rows: &mut Rows,
        elapsed: Duration,
    ) -> Result<Reader, Failure> {
        if let Some(file) = &arguments.openmetrics {
            let text = openmetrics::text(&self.summaries);
            if write_update(file, &|to| to.write_all(text.as_bytes()))? == Reader::Gone {
                return Ok(Reader::Gone);
            }
        }
        if arguments.json_lines {
            let sample = json::set_sample(&self.totals, &self.unseen, unix_s(), elapsed.as_secs_f64());
            return print_update(&sample.to_string(), true);
        }
        rows.print(|| set.title(), &Figures::of_set(&self.totals, self.unseen.len() as u64), elapsed)
    }
}
