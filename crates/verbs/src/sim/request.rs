//! A checked request for a simulation ([`Request`]).

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use model::machine::Machine;
use model::policy::{ModelPolicy, ThpEnabled};
use model::space::{Kernel, Physical};
use policy::Policy;

use super::arguments::{Replay, threads};
use super::{linux, machines};
use crate::failure::Failure;
use crate::output::can_be_written;

/// The default policies.
const DEFAULT_POLICIES: [&str; 3] = ["base", "mthp-64k", "thp"];
/// The memory of a machine unless `--memory` says otherwise.
const DEFAULT_MEMORY_BYTES: u64 = 64 << 30;

/// The traces to simulate, the machines and the settings.
pub struct Request {
    /// The traces.
    pub files: Vec<PathBuf>,
    /// The requested machines, without duplicates. If empty, each trace is simulated on the default machine of its
    /// architecture.
    pub machines: Vec<Machine>,
    /// Notes on this host, if it is one of the machines.
    pub host: Vec<String>,
    /// The policies, without duplicates.
    pub policies: Vec<ModelPolicy>,
    /// The physical memory of the machine.
    pub physical: Physical,
    /// Kernel settings other than the policy.
    pub kernel: Kernel,
    /// The CPU time of the program, if the user gives it, in seconds.
    pub run_time_s: Option<f64>,
    /// The number of randomised address layouts to simulate in addition to the one without randomisation.
    pub layouts: Option<u32>,
    /// The number of threads that share the simulations.
    pub threads: usize,
    /// Whether to simulate TLBs of every geometry, too.
    pub curves: bool,
    /// Whether to ignore the system calls in the trace.
    pub accesses_only: bool,
    /// Whether programs count as linked for every base page size. True for a study, which asks about page sizes, not about this
    /// binary.
    pub is_relinked: bool,
}

impl Request {
    /// Checks the arguments.
    pub fn of(arguments: &Replay) -> Result<Request, Failure> {
        can_be_written(&arguments.html)?;
        refuse_late_verb(&arguments.files)?;
        check_run_time(arguments)?;
        Ok(Request {
            is_relinked: false,
            files: arguments.files.clone(),
            machines: machines::chosen(&arguments.machines)?,
            host: machines::host_notes(&arguments.machines)?,
            policies: policies(&arguments.policy),
            physical: Physical {
                bytes: arguments.memory,
                fragmentation: arguments.fragmentation,
                seed: arguments.seed,
            },
            kernel: linux::kernel(arguments.linux.as_deref())?,
            run_time_s: arguments.run_time,
            layouts: arguments.layouts,
            threads: threads(arguments.threads),
            // The HTML page always shows curves.
            curves: arguments.curves || arguments.html.is_some(),
            accesses_only: arguments.accesses_only,
        })
    }
}

impl Request {
    /// A request for one trace with the default memory, without curves and layouts.
    pub fn of_trace(
        trace: &Path,
        machines: &[String],
        policies: &[ModelPolicy],
        linux: Option<&Path>,
    ) -> Result<Request, Failure> {
        Ok(Request {
            files: vec![trace.to_owned()],
            machines: machines::chosen(machines)?,
            host: machines::host_notes(machines)?,
            policies: self::policies(policies),
            physical: Physical { bytes: DEFAULT_MEMORY_BYTES, fragmentation: 0.0, seed: 0 },
            kernel: linux::kernel(linux)?,
            run_time_s: None,
            layouts: None,
            threads: threads(None),
            curves: false,
            accesses_only: false,
            is_relinked: false,
        })
    }
}

/// Refuses, with a clear message, the name of a verb after an option, which clap takes for a file.
fn refuse_late_verb(files: &[PathBuf]) -> Result<(), Failure> {
    let is_verb = |file: &&PathBuf| ["sweep", "chase"].iter().any(|verb| file.as_os_str() == *verb) && !file.exists();
    match files.iter().find(is_verb) {
        Some(verb) => {
            let verb = verb.display();
            Err(Failure::Input(format!(
                "{verb}: no such trace; the verb comes first: `pagelab sim {verb}`, then its options"
            )))
        }
        None => Ok(()),
    }
}

/// Refuses a CPU time if there are several traces.
fn check_run_time(arguments: &Replay) -> Result<(), Failure> {
    match (arguments.run_time, arguments.files.len()) {
        (Some(_), count @ 2..) => Err(Failure::Input(format!(
            "--run-time: expected one trace, whose CPU time it is, found {count}; simulate one after the other"
        ))),
        _ => Ok(()),
    }
}

/// The requested policies without duplicates, or the default ones. `default` is one for each setting of THP.
fn policies(named: &[ModelPolicy]) -> Vec<ModelPolicy> {
    if named.is_empty() {
        return DEFAULT_POLICIES.iter().filter_map(|name| name.parse().ok()).collect();
    }
    let by_setting = |policy: &ModelPolicy| match policy {
        ModelPolicy::Kernel(policy) if *policy == Policy::DEFAULT => ThpEnabled::ALL.map(ModelPolicy::Default).to_vec(),
        other => vec![other.clone()],
    };
    let mut seen = HashSet::new();
    named.iter().flat_map(by_setting).filter(|policy| seen.insert(policy.clone())).collect()
}
