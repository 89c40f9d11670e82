//! Checks the traces of a recording after the program has ended ([`EndedRecording`]), and reports what a reader cannot
//! see in a trace.
//!
//! Prints nothing if a single program was recorded without problems, so that the program's output stays undisturbed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use host::if_exists;
use results::input;
use trace::{Block, Call, Event, Image, IndexEntry, PayloadKind, ReadError, Reader, pace};

use super::OUTSIDE;
use super::error::RecordError;
use crate::executed::programs_by_times;
use crate::failure::report;
use crate::table::describe::count;

/// A recording that has ended.
pub struct EndedRecording<'a> {
    /// The path of the first trace.
    pub output: &'a Path,
    /// The PID of the first process.
    pub process: u32,
    pub status: ExitStatus,
    /// Whether the recorder could write everything.
    pub is_written: bool,
}

impl EndedRecording<'_> {
    /// Checks the first trace. Removes an empty trace and returns false for it.
    pub fn check_first(&self) -> Result<bool, RecordError> {
        let output = self.output;
        let unreadable = |error| RecordError::Unreadable { path: output.to_owned(), error };
        let nothing = || {
            let _ = results::files::remove_file(output);
            Ok(false)
        };
        let file = input::open(output).map_err(|error| unreadable(error.into()))?;
        let mut reader = match Reader::new(BufReader::new(file)) {
            Ok(reader) => reader,
            // A file that cannot be read may still contain a trace, so it is kept.
            Err(ReadError::Io(error)) => return Err(unreadable(error)),
            Err(_) => return nothing(),
        };
        let skipped = reader.header().window.map(|window| window.skip_instructions);
        let name = output.display();
        match reader.places().ok().flatten() {
            None if self.is_written => report(format_args!(
                "pagelab: {name}: the program ended ({}) before its last accesses were written; {}",
                self.status,
                cut_off()
            )),
            None => report(format_args!("pagelab: {name}: {}", lost(output))),
            // No part was skipped, so an empty trace means that nothing was recorded.
            Some(places) if skipped.is_none() && !has_runs(&places) => return nothing(),
            Some(places) => {
                if let Some(skipped) = skipped.filter(|_| !has_runs(&places)) {
                    let skipped = count(skipped, "instruction");
                    report(format_args!(
                        "pagelab: {name}: no accesses were recorded: no thread executed more than the {skipped} of --skip; skip fewer"
                    ));
                }
            }
        }
        Ok(true)
    }

    /// Checks the traces of the descendants of the first process, and of the programs that any of them executed.
    pub fn check_others(&self) {
        let other_traces = self.other_traces();
        for other in &other_traces {
            // If chown fails, the file remains root's, but it is complete.
            let _ = results::output::give_as(&other.path, self.output);
            if !other.is_complete {
                self.report_incomplete(other);
            }
        }
        let first = Traced::first(self.output, self.process);
        if let Some(message) = Execs::of(std::iter::once(&first).chain(&other_traces)).message(self.output) {
            report(format_args!("pagelab: {message}"));
        }
    }

    /// The other traces of the recording. Traces of programs without recorded accesses are removed.
    fn other_traces(&self) -> Vec<Traced> {
        let mut found = traces_next_to(self.output);
        let (mut known, mut of_recording) = (BTreeSet::from([self.process]), Vec::new());
        loop {
            let is_known = |trace: &Traced| match trace.image.execs {
                0 => trace.parent.is_some_and(|parent| known.contains(&parent)),
                _ => known.contains(&trace.image.process),
            };
            let (next, rest): (Vec<Traced>, Vec<Traced>) = found.into_iter().partition(is_known);
            if next.is_empty() {
                return of_recording;
            }
            known.extend(next.iter().map(|trace| trace.image.process));
            of_recording.extend(next);
            found = rest;
        }
    }

    fn report_incomplete(&self, trace: &Traced) {
        let (name, what) = (trace.path.display(), trace.what());
        if trace.is_running {
            report(format_args!("pagelab: {name}: {what} still runs; its trace will be complete when it ends"));
        } else if self.is_written {
            report(format_args!("pagelab: {name}: {what} ended before its last accesses were written; {}", cut_off()));
        } else {
            report(format_args!("pagelab: {name}: {}", lost(&trace.path)));
        }
    }
}

/// The part of a trace that is missing if its recorder could not finish it.
fn cut_off() -> String {
    let most = count(pace::MAX_INSTRUCTIONS, "instruction");
    format!("the trace is cut off: up to {most} of each thread are missing")
}

/// The part of a trace that is missing if its recorder could not write it.
fn lost(path: &Path) -> String {
    let mut most = 0;
    if let Ok(mut reader) =
        input::open(path).map(BufReader::new).map_err(drop).and_then(|file| Reader::new(file).map_err(drop))
    {
        while let Ok(Some(block)) = reader.next_block() {
            if let Block::Runs { instructions, .. } = block {
                most = most.max(instructions);
            }
        }
    }
    let kept = count(most, "instruction");
    format!("it could not be written any further: at most {kept} of each thread are kept, the rest is lost")
}

/// The instructions of all threads of a complete trace; `None` if only a part of them was recorded.
pub fn instructions(path: &Path) -> Option<u64> {
    let mut reader = Reader::new(BufReader::new(input::open(path).ok()?)).ok()?;
    let is_whole = reader.header().window.is_none();
    let places = reader.places().ok().flatten().filter(|_| is_whole)?;
    let mut executed: BTreeMap<u32, u64> = BTreeMap::new();
    for prefix in places.iter().map(|place| place.prefix).filter(|prefix| is_of_thread(prefix.payload_kind)) {
        let known = executed.entry(prefix.thread).or_default();
        *known = (*known).max(prefix.instructions);
    }
    Some(executed.values().fold(0, |sum, executed| sum.saturating_add(*executed)))
}

/// Whether blocks of this kind belong to one thread.
fn is_of_thread(kind: PayloadKind) -> bool {
    matches!(kind, PayloadKind::Runs | PayloadKind::Events)
}

fn has_runs(places: &[IndexEntry]) -> bool {
    places.iter().any(|place| place.prefix.payload_kind == PayloadKind::Runs)
}

/// The trace of one image of a process. An image is what runs between two execs.
struct Traced {
    path: PathBuf,
    image: Image,
    /// The parent process.
    parent: Option<u32>,
    is_running: bool,
    is_complete: bool,
    /// The program that the process executed at the end of this image, and why that program was not recorded, if known.
    executed: Option<(String, Option<String>)>,
}

impl Traced {
    fn first(path: &Path, process: u32) -> Traced {
        Traced {
            path: path.to_owned(),
            image: Image { process, execs: 0 },
            parent: None,
            is_running: false,
            is_complete: true,
            executed: executed(path),
        }
    }

    /// The trace of the image that the file name encodes.
    fn of(path: PathBuf, named: Image) -> Option<Traced> {
        let mut reader = Reader::new(BufReader::new(input::open(&path).ok()?)).ok()?;
        let process = reader.header().process?;
        // This is checked before the trace is read: only the trace of a process that has ended does not change any
        // more.
        let is_running = is_running(process.process);
        let is_complete = reader.places().ok()?.is_some();
        let executed = executed(&path);
        (process.image() == named).then_some(Traced {
            path,
            image: named,
            parent: process.parent,
            is_running,
            is_complete,
            executed,
        })
    }

    /// The kind of process that executes the image, for messages.
    fn what(&self) -> &'static str {
        if self.image.execs == 0 { "the forked process" } else { "the process that executed the program" }
    }
}

/// The program that a process executes at the end of its trace, and why that program was not recorded, if known.
fn executed(path: &Path) -> Option<(String, Option<String>)> {
    let mut reader = Reader::new(BufReader::new(input::open(path).ok()?)).ok()?;
    let last = match reader.places().ok()? {
        Some(places) => {
            reader.seek(places.iter().rev().find(|place| place.prefix.payload_kind == PayloadKind::Events)?).ok()?;
            last_event(reader.next_block().ok()??)
        }
        // There is no index, and the last block may belong to another thread, so the whole trace is read.
        None => {
            let mut last = None;
            while let Ok(Some(block)) = reader.next_block() {
                last = last_event(block).or(last);
            }
            last
        }
    };
    match last? {
        Event { call: Call::Exec { program, unrecorded }, result: 0, .. } => Some((program, unrecorded)),
        _ => None,
    }
}

fn last_event(block: Block) -> Option<Event> {
    if let Block::Events { mut events, .. } = block { events.pop() } else { None }
}

/// The traces in the directory of the first one, of any recording. Empty traces of executed programs are removed.
fn traces_next_to(output: &Path) -> Vec<Traced> {
    let (Some(directory), Some(name)) = (output.parent(), output.file_name()) else { return Vec::new() };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        // Only regular files: opening a FIFO would block.
        let metadata = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let (entry_name, name) = (entry.file_name(), name.as_encoded_bytes());
        let suffix = str::from_utf8(entry_name.as_encoded_bytes().strip_prefix(name)?).ok()?;
        let image = Image::of_suffix(suffix)?;
        if metadata.len() == 0 && image.execs > 0 && !is_running(image.process) {
            let _ = results::files::remove_file(&entry.path());
        }
        Traced::of(entry.path(), image)
    });
    named.collect()
}

/// Counts of the programs that were executed in a recording.
#[derive(Debug, Default, PartialEq, Eq)]
struct Execs {
    /// The number of programs with a trace.
    recorded: u64,
    /// How often each other program was executed, and why it has no trace.
    unrecorded: BTreeMap<(String, Option<String>), u64>,
}

impl Execs {
    fn of<'a>(traces: impl Iterator<Item = &'a Traced> + Clone) -> Execs {
        let images: BTreeSet<Image> = traces.clone().map(|trace| trace.image).collect();
        let mut execs = Execs::default();
        for trace in traces {
            match &trace.executed {
                Some(_) if images.contains(&trace.image.next()) => execs.recorded += 1,
                Some(program) => *execs.unrecorded.entry(program.clone()).or_default() += 1,
                None => {}
            }
        }
        execs
    }

    /// A message, if any program was executed.
    fn message(&self, output: &Path) -> Option<String> {
        let missing: u64 = self.unrecorded.values().sum();
        let all = self.recorded + missing;
        let named = || {
            programs_by_times(
                self.unrecorded.iter().map(|((name, why), times)| (name.as_str(), why.as_deref(), *times)),
            )
        };
        let name = output.display();
        let recorded = format!("{} recorded separately ({name}.PID.execN)", self.recorded);
        let executed = format!("{name}: the recorded processes executed {} (exec)", count(all, "program"));
        match (self.recorded, missing) {
            (0, 0) => None,
            (_, 0) => Some(format!("{executed}, {recorded}")),
            _ => Some(format!("{executed}: {recorded}, {missing} not, which ran {OUTSIDE}: {}", named())),
        }
    }
}

/// Whether a process may still be writing its trace. True if /proc cannot be read.
fn is_running(process: u32) -> bool {
    has_threads(process).unwrap_or(true)
}

/// Whether a process has a live thread. The first thread may exit before the others.
fn has_threads(process: u32) -> io::Result<bool> {
    let Some(tasks) = if_exists(std::fs::read_dir(format!("/proc/{process}/task")))? else { return Ok(false) };
    for task in tasks {
        let task = task?.file_name().to_str().and_then(|task| task.parse().ok());
        let state = task.map_or(Ok(None), host::task_state)?;
        if state.is_some_and(|state| !matches!(state, b'Z' | b'X')) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_runs_until_its_last_thread_has_ended() {
        assert!(has_threads(std::process::id()).unwrap());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let zombie = || host::task_state(child.id() as i32).unwrap() == Some(b'Z');
        while !zombie() {
            std::thread::yield_now();
        }
        assert!(!has_threads(child.id()).unwrap());
        child.wait().unwrap();
        assert!(is_running(std::process::id()) && !is_running(u32::MAX));
    }

    #[test]
    fn programs_that_were_executed_are_counted_and_the_missing_named() {
        let traced = |process: u32, execs: u32, executed: Option<(&str, Option<&str>)>| Traced {
            path: PathBuf::new(),
            image: Image { process, execs },
            parent: None,
            is_running: false,
            is_complete: true,
            executed: executed.map(|(program, why)| (program.to_owned(), why.map(str::to_owned))),
        };
        let output = Path::new("a.trace");
        assert_eq!(Execs::of([traced(1, 0, None)].iter()).message(output), None);
        let whole = [traced(1, 0, Some(("sh", None))), traced(1, 1, None)];
        let message = Execs::of(whole.iter()).message(output).unwrap();
        assert_eq!(
            message,
            "a.trace: the recorded processes executed 1 program (exec), 1 recorded separately (a.trace.PID.execN)"
        );
        let gains = Some(("/bin/su\u{1b}", Some("it gains privileges")));
        let missing = [traced(1, 0, gains), traced(2, 0, Some(("cc", None))), traced(3, 0, Some(("cc", None)))];
        let message = Execs::of(whole[..1].iter().chain(&missing)).message(output).unwrap();
        assert!(message.contains("executed 4 programs (exec): 0 recorded separately"), "{message}");
        assert!(message.contains("4 not, which ran outside the emulation: cc 2 times; "), "{message}");
        assert!(message.contains("(it gains privileges)") && !message.contains('\u{1b}'), "{message}");
    }
}
