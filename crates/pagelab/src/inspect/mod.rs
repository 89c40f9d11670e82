//! `pagelab inspect`: which page sizes map a running program, region by region, and why not larger ones.

mod at_exit;
mod every;
mod many;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

use census::Observer;
use census::inspect::{Detail, Inspector, which};
use clap::{ArgGroup, Args};
use host::Host;
use policy::inspect::Inspection;
use policy::size::PageSize;
use results::html::inspection as html;
use results::inspection;

use crate::failure::Failure;
use crate::output::{can_be_written, print, terminal_width, write_page};
use crate::words::parse_duration;
use every::Looks;

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
    /// Write the map of the address space as one HTML page, a cell a window of a large page
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tree", "cgroup", "all"])]
    pub html: Option<PathBuf>,
    /// Look at the process, or the command's, this often until it ends, a row a look
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with_all = ["tree", "cgroup", "all"])]
    pub every: Option<f64>,
    /// With --every: print each look as one line of JSON
    #[arg(long, requires = "every")]
    pub json_lines: bool,
    /// With --every: replace this file by each look, as OpenMetrics text for a collector
    #[arg(long, value_name = "FILE", requires = "every")]
    pub openmetrics: Option<PathBuf>,
    /// Run this command, and look at its processes when they end
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// Runs `pagelab inspect`.
pub fn run(arguments: &Inspect) -> Result<(), Failure> {
    can_be_written(arguments.html.iter().chain(&arguments.openmetrics))?;
    if !arguments.command.is_empty() {
        return at_exit::run(arguments);
    }
    if let (Some(pid), Some(looks)) = (arguments.pid, Looks::of(arguments)) {
        if arguments.html.is_some() || arguments.regions || arguments.json {
            return Err(Failure::Input(
                "--every shows a process over time, in rows or as --json-lines; leave out --html, --regions and --json, which \
                 show one look"
                    .into(),
            ));
        }
        return looks.at(pid);
    }
    if let Some(pid) = arguments.pid {
        let inspector = detailed(arguments)?;
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

/// An inspector of one process, with all that is shown of it.
fn detailed(arguments: &Inspect) -> Result<Inspector, Failure> {
    let host = Host::open("/").map_err(Failure::input)?;
    let detail = Detail { windows: arguments.html.is_some() };
    Ok(Inspector::new(host, Observer::open().with_file_folios().with_tlb_runs(), detail))
}

/// Prints what was found of one process.
fn show(arguments: &Inspect, inspected: &Inspection) -> Result<(), Failure> {
    let base = census::page_sizes::base_page();
    if let Some(file) = &arguments.html {
        write_page(file, &html::report(inspected, &setting(base)))?;
    }
    let text = match arguments.json {
        true => format!("{:#}", inspection::json::one(inspected)),
        false => inspection::process(inspected, base, arguments.regions, terminal_width()),
    };
    print(&text, arguments.json)
}

/// What the page says of where and when it was made.
fn setting(base: PageSize) -> html::Setting {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    html::Setting {
        base,
        pmd: census::page_sizes::pmd_leaf(),
        unix_s: Some(now.as_secs() as i64),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}
