//! Runs a command and inspects its processes when they end, and the largest while they run.

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
use super::peak::{Peak, Sampler};
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
    /// Looks for the peak, where no periodic looks are requested.
    sampler: Option<Sampler>,
}

impl Witness for AtExit {
    fn begins(&mut self, process: i32) {
        self.look_thread = self.looks.take().map(|looks| looks.spawn(process as u32));
        if let Some(sampler) = &mut self.sampler {
            sampler.begin();
        }
    }

    fn ends(&mut self, task: i32) {
        let looked =
            self.inspector.supply().and_then(|now| self.inspector.process(task as u32, &now.since(&self.at_start)));
        match looked {
            Ok(mut inspection) => {
                note_what_went_before(&mut inspection, self.sampler.is_some());
                self.summaries.push(Summary::of(&inspection));
                let bytes = self.largest.as_ref().map_or(0, Inspection::resident_bytes);
                if inspection.resident_bytes() >= bytes {
                    self.largest = Some(inspection);
                }
            }
            Err(error) => self.unseen.push((task as u32, error)),
        }
    }

    fn unmaps(&mut self, _: i32, _: u64, _: u64) {
        if let Some(sampler) = &self.sampler {
            sampler.sample();
        }
    }

    fn forked(&mut self, _: i32, child: i32) {
        if let Some(sampler) = &self.sampler {
            sampler.add(child as u32);
        }
    }

    fn replaced(&mut self, process: i32) {
        if let Some(sampler) = &self.sampler {
            sampler.add(process as u32);
        }
    }
}

/// Adds a note if the program freed most of its memory before it exited: little was left to inspect.
fn note_what_went_before(inspection: &mut Inspection, is_sampled: bool) {
    let (Some(peak), resident) = (inspection.process.peak_bytes, inspection.resident_bytes()) else { return };
    if peak / 2 > resident && peak - resident >= WORTH_A_NOTE_BYTES {
        let meanwhile =
            if is_sampled { "the largest look while it ran is apart" } else { "the looks of --every are apart" };
        let (peak, resident) = (format_bytes(peak), format_bytes(resident));
        inspection.partial.push(format!("{peak} was resident at its peak, and {resident} at its end; {meanwhile}"));
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
    let looks = Looks::of(arguments);
    let sampler = match looks {
        Some(_) => None,
        None => Some(Sampler::new(super::sampling(arguments)?, at_start.clone())),
    };
    let mut witness = AtExit {
        inspector,
        at_start,
        largest: None,
        summaries: Vec::new(),
        unseen: Vec::new(),
        looks,
        look_thread: None,
        sampler,
    };
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
    let peak = witness.sampler.take().map(Sampler::finish).transpose()?;
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
    let Some(largest) = &witness.largest else {
        return Err(Failure::NoResult("no process of the command was seen at its end".into()));
    };
    match &peak {
        Some(peak) => {
            super::export(arguments, &witness.summaries)?;
            super::write_map(arguments, &witness.inspector, largest)?;
            show(arguments, largest, peak, &witness.summaries)?;
        }
        None => super::show(arguments, &witness.inspector, largest)?,
    }
    exit(&ended.exit)
}

/// Prints the largest look while the command ran, where that had more memory, and the one at the exit.
fn show(arguments: &Inspect, largest: &Inspection, peak: &Peak, summaries: &[Summary]) -> Result<(), Failure> {
    let about = &peak.above(largest).map_or(largest, |(look, _)| look).process;
    // A process that has executed another program since has another peak.
    let at_exit = summaries.iter().map(|one| &one.process).filter(|one| one.pid == about.pid);
    let hwm_bytes = at_exit.chain([about]).filter_map(|one| one.peak_bytes).max();
    if arguments.json {
        let mut document = inspection::json::one(largest);
        document["peak"] = peak.document(largest, hwm_bytes);
        return print(&format!("{document:#}"), true);
    }
    let width = terminal_width();
    let seen = peak.text(largest, hwm_bytes);
    let seen: Vec<String> = seen.iter().map(|line| results::fold(line, width, 4)).collect();
    let seen = seen.join("\n");
    let at_exit = inspection::process(largest, arguments.regions, width);
    let text = match peak.above(largest) {
        Some((look, _)) => {
            let look = inspection::process(look, arguments.regions, width);
            format!("{seen}\n\n{look}\n\nat the exit\n\n{at_exit}")
        }
        None => format!("{at_exit}\n\n{seen}"),
    };
    print(&text, false)
}

/// Maps the command's exit to pagelab's result.
fn exit(exit: &Exit) -> Result<(), Failure> {
    match exit {
        Exit::Code(0) => Ok(()),
        Exit::Code(code) => Err(Failure::Command(format!("the command ended with exit code {code}"))),
        Exit::Signal(signal) => Err(Failure::Command(format!("the command was ended by signal {signal}"))),
    }
}
