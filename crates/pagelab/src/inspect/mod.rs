//! `pagelab inspect`: which page sizes map a running program, region by region, and why not larger ones.

mod at_exit;
mod many;

use std::ffi::OsString;
use std::path::PathBuf;

use census::Observer;
use census::inspect::{Detail, Inspector, which};
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
        let inspector = inspector(Observer::open().with_file_folios().with_tlb_runs())?;
        let supply = inspector.supply().map_err(Failure::input)?;
        let inspected = inspector.process(pid, &supply).map_err(Failure::input)?;
        return show(arguments, &inspected);
    }
    let processes = match (&arguments.tree, &arguments.cgroup) {
        (Some(root), _) => which::tree(*root),
        (None, Some(path)) => which::cgroup(path),
        (None, None) => Ok(which::all()),
    };
    many::run(arguments, &processes.map_err(Failure::input)?)
}

fn inspector(observer: Observer) -> Result<Inspector, Failure> {
    let host = Host::open("/").map_err(Failure::input)?;
    Ok(Inspector::new(host, observer, Detail::default()))
}

/// Prints what was found of one process.
fn show(arguments: &Inspect, inspected: &Inspection) -> Result<(), Failure> {
    let base = census::page_sizes::base_page();
    let text = match arguments.json {
        true => format!("{:#}", inspection::json::one(inspected)),
        false => inspection::process(inspected, base, arguments.regions, terminal_width()),
    };
    print(&text, arguments.json)
}
