//! The command line.

use clap::{Parser, Subcommand};

use crate::advise::Advise;
use crate::capabilities::Capabilities;
use crate::capabilities::probe::ProbeArguments;
use crate::compare::Compare;
use crate::demo::Demo;
use crate::direct_map::DirectMapArguments;
use crate::doctor::Doctor;
use crate::exec::Exec;
use crate::generate::{CompletionsArguments, GenerateArguments, ManArguments};
use crate::inspect::Inspect;
use crate::limits::Limits;
use crate::list::List;
use crate::merge::Merge;
use crate::metrics::Metrics;
use crate::record::RecordArguments;
use crate::restore::Restore;
use crate::series::SeriesArguments;
use crate::show::Show;
use crate::sim::SimArguments;
use crate::studies::StudyArguments;
use crate::table::TableArguments;
use crate::top::TopArguments;
use crate::trace_file::TraceArguments;
use crate::workload::WorkloadArguments;

/// The version and the commit it was built from (set by `build.rs`).
const VERSION: &str = env!("PAGELAB_VERSION");

/// Which page size should this memory be mapped with, what does it gain, what does it cost, and why?
#[derive(Debug, Parser)]
#[command(name = "pagelab", version = VERSION, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Compare page sizes on a built-in workload, with a report
    Demo(Demo),
    /// Measure a command under several policies: the main job
    Compare(Box<Compare>),
    /// Find the least intrusive setting that gives a program the pages of the winning policy, by trying settings
    Advise(Box<Advise>),
    /// Show a stored comparison again
    Show(Show),
    /// Combine `--arm-of-boot` comparisons of several boots and hosts
    Merge(Merge),
    /// Run, resume and report studies: files of workloads, policies and machines
    Study(StudyArguments),
    /// Run a command under one policy, without measuring it
    Exec(Exec),
    /// Find the smallest memory limit with which a command still ends as it should, under each policy; or model the limit of a trace
    Limits(Limits),
    /// Try which page each kind of memory can get on this kernel, and by which way
    Capabilities(Capabilities),
    /// Boot the kernels of a series in emulation, each with its own settings of THP, and count what changed from each to the next
    Series(Box<SeriesArguments>),
    /// Say which page sizes map a running program, region by region, and why not larger ones
    Inspect(Inspect),
    /// Watch which page sizes map the processes of this host, and why not larger ones
    Top(TopArguments),
    /// Export page sizes by control group, with causes and the state of the system, for a collector
    Metrics(Metrics),
    /// Record which memory a command touches, in an emulator
    Record(Box<RecordArguments>),
    /// Recorded traces: summarise, check, cut, dump as text, import from other tools
    Trace(TraceArguments),
    /// Simulate recorded traces: any page-size policy on model machines
    Sim(Box<SimArguments>),
    /// Page tables: explain an entry or an address, build, split, check
    Table(TableArguments),
    /// The kernel's own mapping of all memory: show its leaves, or split them
    DirectMap(DirectMapArguments),
    /// Show policies, machines, settings of Linux, workloads, stored comparisons, page-table formats or QEMU's code
    /// regions
    List(List),
    /// Run a built-in workload, a command like any other
    Workload(WorkloadArguments),
    /// Say what this machine allows, what it does not, and how to get it
    Doctor(Doctor),
    /// Put back system settings that a killed run left
    Restore(Restore),
    /// Print a script that completes pagelab's commands and options in a shell
    Completions(CompletionsArguments),
    /// Write manual pages: pagelab.1, and one for each command
    Man(ManArguments),
    /// Do the job of a guest that `compare --kernel` has booted
    #[command(hide = true)]
    GuestSession,
    /// Be the program behind one cell of `capabilities`
    #[command(hide = true)]
    CapabilityProbe(ProbeArguments),
    /// Write documents about the command line
    #[command(hide = true)]
    Generate(GenerateArguments),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
