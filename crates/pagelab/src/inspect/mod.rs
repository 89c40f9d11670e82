//! `pagelab inspect`: which page sizes map a running program, region by region, and why not larger ones.

use census::Observer;
use census::inspect::{Detail, Inspector};
use clap::Args;
use host::Host;
use results::inspection;

use crate::failure::Failure;
use crate::output::{print, terminal_width};

/// Arguments of `pagelab inspect`.
#[derive(Debug, Args)]
pub struct Inspect {
    /// The process
    #[arg(value_name = "PID")]
    pub pid: u32,
}

/// Runs `pagelab inspect`.
pub fn run(arguments: &Inspect) -> Result<(), Failure> {
    let host = Host::open("/").map_err(Failure::input)?;
    let inspector = Inspector::new(host, Observer::open().with_tlb_runs(), Detail::default());
    let supply = inspector.supply().map_err(Failure::input)?;
    let inspected = inspector.process(arguments.pid, &supply).map_err(Failure::input)?;
    let text = format!("{}\n\n{}", inspection::summary(&inspected), inspection::regions(&inspected, terminal_width()));
    print(&text, false)
}
