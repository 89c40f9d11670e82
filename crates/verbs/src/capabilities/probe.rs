//! The probe of `capabilities`: makes the memory of a trial, reports where it is, and sleeps until it is killed.

use std::fs::File;
use std::io::{Write, stdin, stdout};
use std::os::fd::AsFd;

use clap::Args;
use nix::sys::signal::{SigSet, Signal};
use policy::capability::{Kind, Refusal, Way};
use policy::size::PageSize;
use serde::{Deserialize, Serialize};
use workloads::memory::capability::{Probe, prepare};

use super::{parse_kind, parse_way};
use crate::failure::Failure;

/// Arguments of the hidden verb `capability-probe`.
#[derive(Debug, Args)]
pub struct ProbeArguments {
    #[arg(long, value_parser = parse_kind)]
    kind: Kind,
    #[arg(long, value_parser = parse_way)]
    way: Way,
    #[arg(long)]
    size: PageSize,
    /// The leaf of a PMD, to which the memory is aligned
    #[arg(long)]
    pmd: PageSize,
    /// Length of the memory
    #[arg(long)]
    bytes: usize,
    /// Standard input is the file to map
    #[arg(long)]
    file: bool,
}

/// What the probe reports.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The memory is ready to be examined.
    Ready { pid: u32, start: u64, end: u64 },
    /// The kernel refused a call.
    Refused(Refusal),
}

/// The signal at which the probe reads its memory again and repeats its report.
pub const READ_AGAIN: Signal = Signal::SIGUSR1;

/// Runs the probe. It returns only if it cannot report.
pub fn run(arguments: &ProbeArguments) -> Result<(), Failure> {
    let file = arguments.file.then(|| stdin().as_fd().try_clone_to_owned()).transpose().map_err(Failure::input)?;
    let wake = SigSet::from_iter([READ_AGAIN]);
    wake.thread_block().map_err(Failure::input)?;
    let ProbeArguments { kind, way, size, pmd, bytes, .. } = *arguments;
    let prepared = prepare(&Probe { kind, way, size, pmd, bytes, file: file.map(File::from) });
    let message = match &prepared {
        Ok(ready) => Message::Ready { pid: ready.pid, start: ready.start, end: ready.end },
        Err(error) => Message::Refused(Refusal { call: error.call.to_owned(), errno: error.source.raw_os_error() }),
    };
    loop {
        let line = serde_json::to_string(&message).map_err(Failure::input)?;
        let mut to = stdout().lock();
        writeln!(to, "{line}").and_then(|()| to.flush()).map_err(Failure::input)?;
        wake.wait().map_err(Failure::input)?;
        prepared.iter().for_each(workloads::memory::capability::Prepared::read_again);
    }
}
