//! `pagelab inspect`: which page sizes map a running program, VMA by VMA, and why not larger ones.

pub mod at_exit;
mod collapse;
mod every;
mod every_set;
mod first_touch;
mod gate;
mod many;
mod named;
mod peak;
mod rows;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use census::Observer;
use census::inspect::{CapturedFile, Detail, Inspector};
use clap::{ArgGroup, Args};
use host::Host;
use policy::PageSizes;
use policy::inspect::{Inspection, Summary};
use policy::requirement::Requirement;
use results::files;
use results::html::inspection as html;
use results::inspection;

use crate::failure::Failure;
use crate::output::{self, can_be_written, print, terminal_width, write_page};
use crate::words::{parse_duration, parse_pid};
use every::PeriodicInspection;
use every_set::ProcessSet;
use gate::Judgements;

/// Arguments of `pagelab inspect`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("target").required(true).args(["process", "tree", "cgroup", "all", "command"])))]
pub struct Inspect {
    /// The process, by PID or by name. Several processes of the same name have a row each
    #[arg(value_name = "PID|NAME")]
    pub process: Option<OsString>,
    /// A process and all its descendants, a row each
    #[arg(long, value_name = "PID", value_parser = parse_pid)]
    pub tree: Option<u32>,
    /// All processes of a control group and of those below it, a row each
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// All processes, a row each, sorted by the amount of memory that could be in larger pages, largest first
    #[arg(long)]
    pub all: bool,
    /// Show every region, not only totals by kind of memory
    #[arg(long, conflicts_with_all = ["tree", "cgroup", "all"])]
    pub regions: bool,
    /// Say which sizes map the memory, but not what keeps them from being larger. Faster where much memory is in base pages, because
    /// smaps is not read (Linux 6.7 or newer)
    #[arg(long, conflicts_with_all = ["collapse", "capture"])]
    pub sizes: bool,
    /// Read the contents of large pages, and say how much holds only zeros: the kernel could free that by splitting them. The
    /// process is not stopped
    #[arg(long, conflicts_with_all = ["tree", "cgroup", "all", "collapse", "capture", "root", "sizes", "every"])]
    pub contents: bool,
    /// Print one JSON document instead of tables
    #[arg(long)]
    pub json: bool,
    /// Write a map of the address space as one HTML page: each cell is a range that one large page could map
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tree", "cgroup", "all", "collapse", "capture"])]
    pub html: Option<PathBuf>,
    /// Inspect the process, or the first process of the command, at this interval until it ends, and print a row each time. With --all,
    /// --tree or --cgroup each row has the totals of the processes that exist at that moment
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with_all = ["collapse", "capture", "root"])]
    pub every: Option<f64>,
    /// With --every: print each inspection as one line of JSON
    #[arg(long, requires = "every", conflicts_with_all = ["collapse", "capture", "root"])]
    pub json_lines: bool,
    /// Write the result to this file as OpenMetrics text for a collector; with --every, each inspection overwrites the previous one
    #[arg(long, value_name = "FILE", conflicts_with = "capture")]
    pub openmetrics: Option<PathBuf>,
    /// Ask the kernel for large pages (MADV_COLLAPSE) where they are possible, and say what it did. This changes the
    /// process, and cannot be undone
    #[arg(long, requires = "process", conflicts_with_all = ["capture", "root"])]
    pub collapse: bool,
    /// Exit with 5 unless the memory meets this requirement, for example large>=95%, 2M>=80% (pages of 2M or larger), guest:large>=95% or could-be-larger<=64M.
    /// It may be given several times. Of a command, the process with the most memory is judged
    #[arg(long, value_name = "REQUIREMENT", conflicts_with_all = ["every", "collapse", "capture"])]
    pub require: Vec<Requirement>,
    /// For a bug report: write to a directory what an inspection of the process reads: mappings, their flags, where pages are mapped,
    /// settings and counters of the system; no memory contents and no command line
    #[arg(long, value_name = "DIR", requires = "process", conflicts_with = "root")]
    pub capture: Option<PathBuf>,
    /// Inspect a process that --capture wrote to this directory, not one of this system
    #[arg(long, value_name = "DIR", requires = "process")]
    pub root: Option<PathBuf>,
    /// Show which functions of the command first touched its memory. Page faults are sampled with their call stacks; where perf is not
    /// permitted, the stacks are those of the calls that mapped the memory
    #[arg(long, conflicts_with_all = ["every", "collapse", "capture", "root", "sizes"])]
    pub stacks: bool,
    /// With --stacks: write a line for each call stack, with its bytes by page size, for programs that draw flame graphs
    #[arg(long, requires = "stacks", value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// With --stacks: draw a flame graph, in which each function is as wide as the memory that it first touched
    #[arg(long, requires = "stacks", value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Run the command as this user. Default under sudo: the user who called it
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Run this command, and inspect each of its processes at exit, and the largest also at its peak
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// Runs `pagelab inspect`.
pub fn run(arguments: &Inspect) -> Result<(), Failure> {
    if arguments.user.is_some() && arguments.command.is_empty() {
        return Err(Failure::Input("--user: expected a command to run as this user, after --".into()));
    }
    if arguments.stacks && arguments.command.is_empty() {
        return Err(Failure::Input(
            "--stacks: expected a command to run (pagelab inspect --stacks -- COMMAND), found a process that is running already and has taken its page faults"
                .into(),
        ));
    }
    if arguments.folded.is_some() && arguments.folded == arguments.svg {
        return Err(Failure::Input("--folded and --svg: expected two files, found the same one twice".into()));
    }
    can_be_written([&arguments.html, &arguments.openmetrics, &arguments.folded, &arguments.svg].into_iter().flatten())?;
    if arguments.every.is_some() && (arguments.html.is_some() || arguments.regions || arguments.json) {
        return Err(Failure::Input(
            "--every shows a process over time, in rows or as --json-lines; leave out --html, --regions and --json, which show one \
             inspection"
                .into(),
        ));
    }
    if !arguments.command.is_empty() {
        return at_exit::run(arguments);
    }
    if let Some(set) = ProcessSet::of(arguments) {
        return match PeriodicInspection::of(arguments) {
            Some(looks) => every_set::run(arguments, &looks, &set),
            None => many::run(arguments, &set.processes().map_err(Failure::input)?),
        };
    }
    // Clap requires one of the group, and the others were handled above.
    let Some(word) = &arguments.process else { return Ok(()) };
    match named::processes(word, arguments)?.as_slice() {
        [pid] => one(arguments, *pid),
        several => many::run(arguments, several),
    }
}

/// Inspects one process: over time, for a capture, with a collapse, or as it is.
fn one(arguments: &Inspect, pid: u32) -> Result<(), Failure> {
    if let Some(looks) = PeriodicInspection::of(arguments) {
        return looks.run(pid);
    }
    let root = arguments.root.as_deref().unwrap_or(Path::new("/"));
    let inspector = inspector_as_requested(root, arguments)?;
    if let Some(directory) = &arguments.capture {
        return write_capture(directory, &inspector.capture(pid).map_err(Failure::input)?, pid);
    }
    let supply = inspector.supply().map_err(Failure::input)?;
    let inspected = inspector.process(pid, &supply).map_err(Failure::input)?;
    if arguments.collapse {
        return collapse::run(arguments, &inspector, &supply, &inspected);
    }
    export(arguments, &[Summary::of(&inspected)])?;
    show(arguments, inspector.page_sizes(), &inspected)
}

/// An inspector of processes of this system.
fn new_inspector(observer: Observer, detail: Detail) -> Result<Inspector, Failure> {
    let host = Host::open("/").map_err(Failure::input)?;
    Ok(Inspector::new(host, observer, detail))
}

/// An inspector of one process with the requested detail.
fn inspector_as_requested(root: &Path, arguments: &Inspect) -> Result<Inspector, Failure> {
    let host = Host::open(root).map_err(Failure::input)?;
    let detail = Detail {
        windows: arguments.html.is_some() || arguments.collapse,
        sizes_only: arguments.sizes,
        memory_only: false,
        jemalloc: !arguments.sizes,
        contents: arguments.contents,
    };
    let observer = Observer::open().map_err(Failure::input)?;
    Ok(Inspector::new(host, observer.with_file_folios().with_tlb_runs(), detail))
}

/// An inspector of a command while it runs. It collects no windows: the map of the address space is drawn from the inspection at
/// exit.
fn sampling_inspector(arguments: &Inspect) -> Result<Inspector, Failure> {
    let observer = Observer::open().map_err(Failure::input)?;
    let detail = Detail { sizes_only: arguments.sizes, jemalloc: !arguments.sizes, ..Detail::default() };
    new_inspector(observer.with_file_folios().with_tlb_runs(), detail)
}

/// Writes a capture into new files. They contain addresses, so only the user who captures may read them.
fn write_capture(directory: &Path, files: &[CapturedFile], pid: u32) -> Result<(), Failure> {
    for (path, text) in files {
        let file = directory.join(path.trim_start_matches('/'));
        let written = files::create_private(&file).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| Failure::about(&file, error))?;
    }
    let again = format!("captured; inspect it: pagelab inspect --root {} {pid}", directory.display());
    print(&results::printable(&again), false)
}

/// Writes the summaries as OpenMetrics text if --openmetrics is given.
fn export(arguments: &Inspect, summaries: &[Summary]) -> Result<(), Failure> {
    let Some(file) = &arguments.openmetrics else { return Ok(()) };
    let text = inspection::openmetrics::text(summaries);
    output::write(file, &|to| to.write_all(text.as_bytes()))
}

/// Writes the map of the address space if --html is given.
fn write_map(arguments: &Inspect, page_sizes: &PageSizes, inspected: &Inspection) -> Result<(), Failure> {
    let Some(file) = &arguments.html else { return Ok(()) };
    write_page(file, &html::report(inspected, &setting(page_sizes, inspected)))
}

/// Writes and prints the inspection of one process; fails if a requirement is not met.
fn show(arguments: &Inspect, page_sizes: &PageSizes, inspected: &Inspection) -> Result<(), Failure> {
    write_map(arguments, page_sizes, inspected)?;
    let judgements = Judgements::of(arguments, inspected);
    let text = if arguments.json {
        let mut document = inspection::json::one(inspected);
        judgements.add_to(&mut document);
        format!("{document:#}")
    } else {
        judgements.append_to(inspection::process(inspected, arguments.regions, terminal_width()))
    };
    print(&text, arguments.json)?;
    judgements.check()
}

/// The page sizes and the time of the inspection, for the HTML page.
fn setting(page_sizes: &PageSizes, inspected: &Inspection) -> html::Setting {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    html::Setting {
        base: page_sizes.base,
        pmd: page_sizes.pmd,
        unix_s: inspected.sight.is_live.then_some(now.as_secs() as i64),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}
