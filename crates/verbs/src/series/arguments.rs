//! Arguments of `pagelab series`.

use std::path::PathBuf;

use clap::Args;

use super::workloads::Builtin;
use crate::guest_arguments::{Guests, NamedImage, parse_kernel};
use crate::words::{parse_duration, parse_size};

/// Arguments of `pagelab series`.
#[derive(Debug, Args)]
pub struct SeriesArguments {
    /// A kernel of the series, the oldest first: each is compared with the one before it. Modules are taken from lib/modules/RELEASE
    /// above the image, or from the tree in which the kernel was built
    #[arg(long = "kernel", value_name = "[NAME=]IMAGE", value_parser = parse_kernel, required = true)]
    pub kernels: Vec<NamedImage>,
    /// More words for the kernel's command line: once for all kernels, or once for each --kernel, in the same order
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    pub cmdline: Vec<String>,
    /// Memory of a guest
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub memory: u64,
    /// The root directory of another system, which a guest uses in place of this host's files, for example one for the
    /// architecture of the kernels. It needs a static pagelab in usr/bin
    #[arg(long, value_name = "DIR")]
    pub sysroot: Option<PathBuf>,
    /// The number of boots of each kernel. What they differ by is the bound: a smaller change is not reported
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub boots: u32,
    /// End a guest that takes longer, and keep its console log
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    pub guest_time: f64,
    /// Seed of the order of boots and of trials. Every boot of every kernel has the same order of trials
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Run the built-in workloads with a quarter of their memory
    #[arg(long)]
    pub quick: bool,
    /// The built-in workloads to run, separated by commas; `none`: only the command. Default: all; with --against, those that an
    /// assertion names
    #[arg(long, value_name = "NAME", value_enum, value_delimiter = ',')]
    pub workloads: Vec<Builtin>,
    /// Also try which page each kind of memory can get on each kernel, once per kernel (`pagelab capabilities --quick`), and report
    /// the cells that changed. This takes two to three minutes per kernel
    #[arg(long, conflicts_with = "against")]
    pub capabilities: bool,
    /// Judge one kernel by the last kernel of this file, which --save of another series wrote, with the same command. For `git bisect
    /// run`: exits with 0 if every --assert holds, with 1 if one does not, with 125 if the kernel does not boot or has no
    /// result, and with 255 if the arguments or the file are wrong
    #[arg(long, value_name = "FILE", requires = "assertions")]
    pub against: Option<PathBuf>,
    /// What must hold with --against, as METRIC[@WORKLOAD]<=+N% or METRIC[@WORKLOAD]<=+N, such as 'faults<=+1%' or
    /// 'instructions@fork<=+2%'. Without a workload it is about the command. It may be given several times. Metrics: faults,
    /// instructions, user_instructions, kernel_instructions, page_table_bytes, peak_resident_bytes, leaf_SIZE_bytes,
    /// folio_SIZE_bytes, and the phases of built-in workloads (fork_instructions)
    #[arg(long = "assert", value_name = "ASSERTION", requires = "against")]
    pub assertions: Vec<String>,
    /// Print plain text in 72 columns, for kernel mailing lists
    #[arg(long, conflicts_with_all = ["json", "against"])]
    pub mail: bool,
    /// Print one JSON document
    #[arg(long, conflicts_with = "against")]
    pub json: bool,
    /// Write the document to this file, for --against
    #[arg(long, value_name = "FILE", conflicts_with = "against")]
    pub save: Option<PathBuf>,
    /// The command, which runs in each boot too. Without it, only the built-in workloads run
    #[arg(last = true)]
    pub command: Vec<String>,
}

impl SeriesArguments {
    /// The kernels to boot, in the form of `compare`.
    pub fn guests(&self) -> Guests {
        Guests {
            kernels: self.kernels.clone(),
            cmdline: self.cmdline.clone(),
            memory: Some(self.memory),
            sysroot: self.sysroot.clone(),
            icount: true,
            boots: Some(self.boots),
            guest_time: Some(self.guest_time),
            mail: self.mail,
        }
    }
}
