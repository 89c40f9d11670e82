//! `pagelab inspect`: which page sizes map a running program, region by region, and why not larger ones.

mod at_exit;
mod collapse;
mod many;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use census::Observer;
use census::inspect::{CapturedFile, Detail, Inspector, which};
use clap::{ArgGroup, Args};
use host::Host;
use policy::inspect::Inspection;
use results::inspection;

use crate::failure::Failure;
use crate::output::{print, terminal_width};

/// Arguments of `pagelab inspect`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("whom").required(true).args(["pid", "tree", "cgroup", "all", "command"])))]
pub struct Inspect {
    /// The process
    #[arg(value_name = "PID")]
    pub pid: Option<u32>,
    /// A process and all that descend from it, a row each
    #[arg(long, value_name = "PID")]
    pub tree: Option<u32>,
    /// All processes of a control group and of those below it, a row each
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// All processes, a row each, that with most memory that could be larger first
    #[arg(long)]
    pub all: bool,
    /// Show every region, and not only kinds of them
    #[arg(long)]
    pub regions: bool,
    /// Print one JSON document instead of tables
    #[arg(long)]
    pub json: bool,
    /// Ask the kernel for large pages (MADV_COLLAPSE) where there could be some, and say what came of it. This changes the
    /// process, and cannot be undone
    #[arg(long, requires = "pid", conflicts_with_all = ["capture", "root"])]
    pub collapse: bool,
    /// Write what is read of the process to a directory, for a bug report: mappings, flags, which pages are where, settings and
    /// counters of the system; never contents of memory, nor the command line
    #[arg(long, value_name = "DIR", requires = "pid", conflicts_with = "root")]
    pub capture: Option<PathBuf>,
    /// Inspect a process in such a directory, and not one of this system
    #[arg(long, value_name = "DIR", requires = "pid")]
    pub root: Option<PathBuf>,
    /// Run this command, and look at its processes when they end
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// Runs `pagelab inspect`.
pub fn run(arguments: &Inspect) -> Result<(), Failure> {
    if !arguments.command.is_empty() {
        return at_exit::run(arguments);
    }
    if let Some(pid) = arguments.pid {
        let root = arguments.root.as_deref().unwrap_or(Path::new("/"));
        let inspector = inspector(root, Observer::open().with_file_folios().with_tlb_runs())?;
        if let Some(directory) = &arguments.capture {
            return write(directory, &inspector.capture(pid).map_err(Failure::input)?, pid);
        }
        let supply = inspector.supply().map_err(Failure::input)?;
        let inspected = inspector.process(pid, &supply).map_err(Failure::input)?;
        return match arguments.collapse {
            true => collapse::run(arguments, &inspector, &supply, &inspected),
            false => show(arguments, &inspected),
        };
    }
    let processes = match (&arguments.tree, &arguments.cgroup) {
        (Some(root), _) => which::tree(*root),
        (None, Some(path)) => which::cgroup(path),
        (None, None) => Ok(which::all()),
    };
    many::run(arguments, &processes.map_err(Failure::input)?)
}

fn inspector(root: &Path, observer: Observer) -> Result<Inspector, Failure> {
    let host = Host::open(root).map_err(Failure::input)?;
    Ok(Inspector::new(host, observer, Detail::default()))
}

/// Writes a capture, whose files must not be there yet.
fn write(directory: &Path, files: &[CapturedFile], pid: u32) -> Result<(), Failure> {
    for (path, text) in files {
        let file = directory.join(path.trim_start_matches('/'));
        let folder = file.parent().unwrap_or(directory);
        let written = std::fs::create_dir_all(folder)
            .and_then(|()| File::create_new(&file))
            .and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| Failure::about(&file, error))?;
    }
    let again = format!("captured; inspect it: pagelab inspect --root {} {pid}", directory.display());
    print(&results::printable(&again), false)
}

/// Prints what was found of one process.
fn show(arguments: &Inspect, inspected: &Inspection) -> Result<(), Failure> {
    let text = match arguments.json {
        true => format!("{:#}", inspection::json::one(inspected)),
        false => inspection::process(inspected, arguments.regions, terminal_width()),
    };
    print(&text, arguments.json)
}
