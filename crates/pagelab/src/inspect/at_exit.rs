//! Runs a command and inspects its processes when they end.

use std::path::Path;
use std::time::Duration;

use census::inspect::{InspectError, Inspector};
use census::page_sizes;
use host::Host;
use policy::Policy;
use policy::inspect::{Inspection, Summary, Supply};
use policy::size::format_bytes;
use results::inspection;
use study::trial::Exit;
use tracer::signals::{self, PassOn};
use tracer::{Launch, Leftovers, Rewriting, Witness};

use super::Inspect;
use super::every::{LookThread, Looks};
use crate::failure::{Failure, report};
use crate::output::{print, terminal_width};
use crate::user;

/// How long to wait for idle processes that outlive the command.
const PATIENCE: Duration = Duration::from_secs(1);

/// The smallest amount of memory freed before the end that gets a note.
const WORTH_A_NOTE_BYTES: u64 = 1 << 20;

/// Inspects every process of a tree when the last task that uses its memory exits.
struct AtExit {
    inspector: Inspector,
    /// The kernel's supply of large pages when the command started.
    at_start: Supply,
    /// The inspection with the most memory.
    largest: Option<Inspection>,
    summaries: Vec<Summary>,
    unseen: Vec<(u32, InspectError)>,
    /// Requested periodic looks, until they begin.
    looks: Option<Looks>,
    look_thread: Option<LookThread>,
}

impl Witness for AtExit {
    fn begins(&mut self, process: i32) {
        self.look_thread = self.looks.take().map(|looks| looks.spawn(process as u32));
    }

    fn ends(&mut self, task: i32) {
        let looked =
            self.inspector.supply().and_then(|now| self.inspector.process(task as u32, &now.since(&self.at_start)));
        match looked {
            Ok(mut inspection) => {
                note_what_went_before(&mut inspection);
                self.summaries.push(Summary::of(&inspection));
                let bytes = self.largest.as_ref().map_or(0, Inspection::resident_bytes);
                if inspection.resident_bytes() >= bytes {
                    self.largest = Some(inspection);
                }
            }
            Err(error) => self.unseen.push((task as u32, error)),
        }
    }

    fn unmaps(&mut self, _: i32, _: u64, _: u64) {}
}

/// Adds a note if the program freed most of its memory before it exited: little was left to inspect.
fn note_what_went_before(inspection: &mut Inspection) {
    let (Some(peak), resident) = (inspection.process.peak_bytes, inspection.resident_bytes()) else { return };
    if peak / 2 > resident && peak - resident >= WORTH_A_NOTE_BYTES {
        let (peak, resident) = (format_bytes(peak), format_bytes(resident));
        let partial = format!(
            "{peak} was resident at its peak, and {resident} at its end: to see the peak, inspect its PID while it runs"
        );
        inspection.partial.push(partial);
    }
}

/// Runs the command and shows what memory its processes had when they ended. The command shares pagelab's output.
pub fn run(arguments: &Inspect) -> Result<(), Failure> {
    let launch = Launch {
        command: arguments.command.clone(),
        user: user::to_run_as(None)?,
        variables: user::variables(&[])?,
        stdin: None,
        stdout: None,
        stderr: None,
        disable_thp: false,
        limit: None,
    };
    let inspector = super::detailed(Path::new("/"), arguments)?;
    let at_start = inspector.supply().map_err(Failure::input)?;
    let host = Host::open("/").map_err(Failure::input)?;
    let rewriting = Rewriting::of(&Policy::DEFAULT, host.page_sizes());
    let (largest, look_thread, looks) = (None, None, Looks::of(arguments));
    let mut witness =
        AtExit { inspector, at_start, largest, summaries: Vec::new(), unseen: Vec::new(), looks, look_thread };
    signals::catch(PassOn::Same).map_err(Failure::input)?;
    let ended = tracer::run(&launch, &rewriting, Some(&mut witness), Leftovers::KillAfter(PATIENCE));
    // The thread that prints the looks may block in a write; from here on a further signal still ends pagelab.
    signals::release();
    // Processes that end after the signal are not inspected.
    if let Some(signal) = signals::arrived() {
        return Err(Failure::Stopped(signal, "the command with it"));
    }
    let ended = ended.map_err(|error| Failure::launch(&error))?;
    witness.look_thread.take().map_or(Ok(()), LookThread::finish)?;
    for (task, error) in &witness.unseen {
        report(format_args!("pagelab: process {task} was not seen at its end: {error}"));
    }
    if arguments.json_lines {
        return exit(&ended.exit);
    }
    if witness.summaries.len() > 1 && !arguments.json {
        let rows = inspection::processes(&witness.summaries, page_sizes::base_page(), terminal_width());
        print(&format!("{rows}\n"), false)?;
    }
    if let Some(largest) = &mut witness.largest {
        largest.refused_requests = Some(ended.refused_requests);
    }
    match &witness.largest {
        Some(largest) => super::show(arguments, &witness.inspector, largest)?,
        None => return Err(Failure::NoResult("no process of the command was seen at its end".into())),
    }
    exit(&ended.exit)
}

/// Maps the command's exit to pagelab's result.
fn exit(exit: &Exit) -> Result<(), Failure> {
    match exit {
        Exit::Code(0) => Ok(()),
        Exit::Code(code) => Err(Failure::Command(format!("the command ended with exit code {code}"))),
        Exit::Signal(signal) => Err(Failure::Command(format!("the command was ended by signal {signal}"))),
    }
}
