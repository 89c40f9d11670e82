//! `pagelab inspect -- COMMAND`: inspects each process of the command when it exits, and the largest one also while it
//! runs ([`CommandInspector`]).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use census::inspect::{InspectError, Inspector};
use census::page_sizes;
use host::Host;
use policy::Exit;
use policy::first_touch::FirstTouches;
use policy::inspect::{Inspection, Summary, Supply};
use policy::size::format_bytes;
use policy::{PageSizes, Policy};
use results::{first_touch, inspection};
use stacks::Moment;
use tracer::signals::{self, Forward};
use tracer::{Launch, Leftovers, MappingCall, ObservedMappings, Rewriting, Witness, process_of};

use super::Inspect;
use super::every::{LookThread, PeriodicInspection};
use super::first_touch::FirstTouchRecording;
use super::gate::Judgements;
use super::peak::{Peak, Sampler};
use crate::failure::{Failure, report};
use crate::output::{self, print, terminal_width};
use crate::user;

/// How long processes that outlive the command may be idle before they are killed.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Memory freed before the exit gets a note only if it is at least this much.
const MIN_NOTED_BYTES: u64 = 1 << 20;

/// Inspects every process of a tree when the last task that uses its memory exits. While the tree runs, looks for the
/// peak of memory.
pub struct CommandInspector {
    inspector: Inspector,
    /// The kernel's supply of large pages before the command started.
    at_start: Supply,
    /// The largest of the inspections at exits.
    largest: Option<Inspection>,
    /// An environment variable to look for in each process.
    variable: Option<String>,
    /// Processes that executed a program without this variable.
    without_variable: BTreeSet<i32>,
    summaries: Vec<Summary>,
    unseen: Vec<(u32, InspectError)>,
    /// The requested periodic looks, until their thread starts.
    looks: Option<PeriodicInspection>,
    look_thread: Option<LookThread>,
    /// Finds the peak, if no periodic looks are requested.
    sampler: Option<Sampler>,
    /// Records which code touches memory first, if that was requested.
    recording: Option<Arc<FirstTouchRecording>>,
}

/// The memory of a command's processes.
pub struct CommandMemory {
    /// The process with the most memory at its exit; `None` if no process could be inspected at its exit.
    pub largest: Option<Inspection>,
    /// All inspected processes, at their exits.
    pub summaries: Vec<Summary>,
    /// Processes that could not be inspected at their exits, and why.
    pub unseen: Vec<(u32, InspectError)>,
    /// The largest look while the command ran; `None` with periodic looks.
    pub peak: Option<Peak>,
    /// Whether the process with the most memory was executed with the variable given to
    /// [`CommandInspector::looking_for`].
    pub has_variable: bool,
}

impl CommandInspector {
    /// A witness that inspects with `inspector` at exits, and with `sampling` while the command runs. Periodic `looks`,
    /// if given, replace the sampling.
    pub fn new(
        inspector: Inspector,
        sampling: Inspector,
        looks: Option<PeriodicInspection>,
        recording: Option<Arc<FirstTouchRecording>>,
    ) -> Result<CommandInspector, Failure> {
        let at_start = inspector.supply().map_err(Failure::input)?;
        let sampler = looks.is_none().then(|| Sampler::new(sampling, at_start.clone(), recording.clone()));
        Ok(CommandInspector {
            inspector,
            at_start,
            largest: None,
            variable: None,
            without_variable: BTreeSet::new(),
            summaries: Vec::new(),
            unseen: Vec::new(),
            looks,
            look_thread: None,
            sampler,
            recording,
        })
    }

    /// Also checks for an environment variable whenever a process executes a program.
    pub fn looking_for(self, variable: Option<String>) -> CommandInspector {
        CommandInspector { variable, ..self }
    }

    /// Call after the command has ended. Stops the threads that inspect.
    pub fn finish(mut self) -> Result<CommandMemory, Failure> {
        self.look_thread.take().map_or(Ok(()), LookThread::finish)?;
        let peak = self.sampler.take().map(Sampler::finish).transpose()?;
        let has_variable = |largest: &Inspection| !self.without_variable.contains(&(largest.process.pid as i32));
        let has_variable = self.largest.as_ref().is_some_and(has_variable);
        Ok(CommandMemory { largest: self.largest, summaries: self.summaries, unseen: self.unseen, peak, has_variable })
    }
}

impl CommandMemory {
    /// The inspection that found the most memory in one process.
    pub fn into_largest(self) -> Option<Inspection> {
        let largest = self.largest?;
        let look = self.peak.and_then(|peak| peak.into_above(&largest));
        Some(look.unwrap_or(largest))
    }
}

impl Witness for CommandInspector {
    fn begins(&mut self, process: i32) {
        if let Some(recording) = &self.recording {
            recording.begin(process);
        }
        self.look_thread = self.looks.take().map(|looks| looks.spawn(process as u32));
        if let Some(sampler) = &mut self.sampler {
            sampler.begin();
        }
    }

    fn ends(&mut self, task: i32) {
        let inspected =
            self.inspector.supply().and_then(|now| self.inspector.process(task as u32, &now.since(&self.at_start)));
        match inspected {
            Ok(mut inspection) => {
                // The last task of a process need not be its first, whose number the process has.
                if let Ok(Some(process)) = process_of(task) {
                    inspection.process.pid = process as u32;
                }
                if let Some(recording) = &self.recording {
                    recording.look(task as u32, Moment::Exit);
                }
                note_freed_memory(&mut inspection, self.sampler.is_some());
                self.summaries.push(Summary::of(&inspection));
                let bytes = self.largest.as_ref().map_or(0, Inspection::resident_bytes);
                if inspection.resident_bytes() >= bytes {
                    self.largest = Some(inspection);
                }
            }
            Err(error) => self.unseen.push((task as u32, error)),
        }
    }

    fn unmaps(&mut self, task: i32, start: u64, end: u64) {
        if let Some(sampler) = &self.sampler {
            sampler.sample();
        }
        if let Some(recording) = &self.recording {
            recording.freed(task, start..end);
        }
    }

    fn observed_mappings(&self) -> ObservedMappings {
        self.recording.as_ref().map(|recording| recording.observed_mappings()).unwrap_or_default()
    }

    fn maps(&mut self, call: MappingCall) {
        if let Some(recording) = &self.recording {
            recording.maps(call);
        }
    }

    fn forked(&mut self, parent: i32, child: i32) {
        if self.without_variable.contains(&parent) {
            self.without_variable.insert(child);
        }
        if let Some(sampler) = &self.sampler {
            sampler.add(child as u32);
        }
        if let Some(recording) = &self.recording {
            recording.forked(parent as u32, child as u32);
        }
    }

    fn replaced(&mut self, process: i32) {
        // The environment is read at the exec, because a program may overwrite it later, as Redis does to set a title.
        match &self.variable {
            Some(name) if !has_variable(process, name) => drop(self.without_variable.insert(process)),
            _ => drop(self.without_variable.remove(&process)),
        }
        if let Some(sampler) = &self.sampler {
            sampler.add(process as u32);
        }
        if let Some(recording) = &self.recording {
            recording.executed(process as u32);
        }
    }
}

/// Whether a process was executed with this variable. True if its environment cannot be read.
fn has_variable(process: i32, name: &str) -> bool {
    let prefix = format!("{name}=");
    let environment = std::fs::read(format!("/proc/{process}/environ"));
    environment.map_or(true, |text| text.split(|byte| *byte == 0).any(|one| one.starts_with(prefix.as_bytes())))
}

/// Adds a note if the program freed most of its memory before it exited, so that little could be inspected.
fn note_freed_memory(inspection: &mut Inspection, is_sampled: bool) {
    let (Some(peak), resident) = (inspection.process.peak_bytes, inspection.resident_bytes()) else { return };
    if peak / 2 > resident && peak - resident >= MIN_NOTED_BYTES {
        let meanwhile =
            if is_sampled { "the largest look while it ran is shown separately" } else { "see the looks of --every" };
        let (peak, resident) = (format_bytes(peak), format_bytes(resident));
        inspection.partial.push(format!("{peak} was resident at the peak, and {resident} at the exit; {meanwhile}"));
    }
}

/// Runs the command, and shows the memory of its processes at their exits. The command writes to pagelab's own output.
pub fn run(arguments: &Inspect) -> Result<(), Failure> {
    let launch = Launch {
        command: arguments.command.clone(),
        user: user::to_run_as(arguments.user.as_deref())?,
        variables: user::variables(&[])?,
        stdin: None,
        stdout: None,
        stderr: None,
        disable_thp: false,
        own_session: None,
        control_group: None,
        limit: None,
    };
    let host = Host::open("/").map_err(Failure::input)?;
    let rewriting = Rewriting::of(&Policy::DEFAULT, host.page_sizes());
    let inspector = super::inspector_as_requested(Path::new("/"), arguments)?;
    let recording = arguments.stacks.then(FirstTouchRecording::new).transpose()?;
    let (sampling, looks) = (super::sampling_inspector(arguments)?, PeriodicInspection::of(arguments));
    let mut witness = CommandInspector::new(inspector, sampling, looks, recording.clone())?;
    signals::catch(Forward::Same).map_err(Failure::input)?;
    let ended = tracer::run(&launch, &rewriting, Some(&mut witness), Leftovers::KillAfter(PATIENCE));
    // From here on, another signal ends pagelab, even if the thread that prints the looks is blocked in a write.
    signals::restore_defaults();
    // After a signal arrives, the tracer no longer has memory inspected, so there is no complete result.
    if let Some(signal) = signals::arrived() {
        return Err(Failure::Stopped(signal, "the command was stopped too"));
    }
    let ended = ended.map_err(|error| Failure::launch(&error))?;
    let mut seen = witness.finish()?;
    for (task, error) in &seen.unseen {
        report(format_args!("pagelab: process {task} could not be inspected when it exited: {error}"));
    }
    if arguments.json_lines {
        return exit(&ended.exit);
    }
    if seen.summaries.len() > 1 && !arguments.json {
        let rows = inspection::processes(&seen.summaries, page_sizes::base_page(), terminal_width());
        print(&format!("{rows}\n"), false)?;
    }
    if let Some(largest) = &mut seen.largest {
        largest.refused_requests = Some(ended.refused_requests);
    }
    let Some(largest) = &seen.largest else {
        return Err(Failure::NoResult("no process of the command could be inspected when it exited".into()));
    };
    let Some(peak) = &seen.peak else {
        super::show(arguments, host.page_sizes(), largest)?;
        return exit(&ended.exit);
    };
    super::export(arguments, &seen.summaries)?;
    super::write_map(arguments, host.page_sizes(), largest)?;
    let judgements = Judgements::of(arguments, peak.above(largest).map_or(largest, |(look, _)| look));
    let running = peak.above(largest).map(|(look, _)| look.process.pid);
    let first_touches = recording.map(|recording| recording.finish(running)).transpose()?;
    if let Some(found) = &first_touches {
        write_stacks(arguments, host.page_sizes(), found)?;
    }
    show(arguments, largest, peak, &seen.summaries, &judgements, first_touches.as_ref())?;
    exit(&ended.exit)?;
    judgements.check()
}

/// Prints the largest look while the command ran and a line about the exit; with --regions, both in full. If the look
/// at the exit found about as much memory, prints that one in full, and a text about the peak.
fn show(
    arguments: &Inspect,
    largest: &Inspection,
    peak: &Peak,
    summaries: &[Summary],
    judgements: &Judgements,
    first_touches: Option<&FirstTouches>,
) -> Result<(), Failure> {
    let shown = &peak.above(largest).map_or(largest, |(look, _)| look).process;
    // An exec resets VmHWM. If the process has executed another program since the look, the value at its exit is that
    // of the other program.
    let at_exit = summaries.iter().map(|one| &one.process).filter(|one| one.pid == shown.pid);
    let hwm_bytes = at_exit.chain([shown]).filter_map(|one| one.peak_bytes).max();
    if arguments.json {
        let mut document = inspection::json::one(largest);
        document["peak"] = peak.document(largest, hwm_bytes);
        if let Some(found) = first_touches {
            document["first_touches"] = serde_json::to_value(first_touch::document(found)).map_err(Failure::input)?;
        }
        judgements.add_to(&mut document);
        return print(&format!("{document:#}"), true);
    }
    let width = terminal_width();
    let about_peak = peak.text(largest, hwm_bytes);
    let about_peak: Vec<String> = about_peak.iter().map(|line| results::fold(line, width, 4)).collect();
    let about_peak = about_peak.join("\n");
    let whole = |look: &Inspection| inspection::process(look, arguments.regions, width);
    let text = match peak.above(largest) {
        Some((look, _)) if arguments.regions => {
            format!("{about_peak}\n\n{}\n\nat the exit\n\n{}", whole(look), whole(largest))
        }
        Some((look, _)) => {
            let at_exit = format!("at the exit (--regions has all of it): {}", inspection::summary(largest));
            let refused = inspection::refused(largest, width);
            let refused = if refused.is_empty() { refused } else { format!("\n\n{refused}") };
            format!("{about_peak}\n\n{}\n\n{}{refused}", whole(look), results::fold(&at_exit, width, 2))
        }
        None => format!("{}\n\n{about_peak}", whole(largest)),
    };
    let text = match first_touches {
        Some(found) => format!("{text}\n\n{}", first_touch::text(found, width)),
        None => text,
    };
    print(&judgements.append_to(text), false)
}

/// Writes the files of --folded and --svg.
fn write_stacks(arguments: &Inspect, page_sizes: &PageSizes, found: &FirstTouches) -> Result<(), Failure> {
    if let Some(file) = &arguments.folded {
        output::write(file, &|to| to.write_all(first_touch::folded(found).as_bytes()))?;
    }
    if let Some(file) = &arguments.svg {
        let svg = first_touch::svg(found, page_sizes.base, page_sizes.pmd);
        output::write(file, &|to| to.write_all(svg.as_bytes()))?;
    }
    Ok(())
}

/// Maps the command's exit to pagelab's result.
fn exit(exit: &Exit) -> Result<(), Failure> {
    match exit {
        Exit::Code(0) => Ok(()),
        Exit::Code(code) => Err(Failure::Command(format!("the command ended with exit code {code}"))),
        Exit::Signal(signal) => Err(Failure::Command(format!("the command was ended by signal {signal}"))),
    }
}
