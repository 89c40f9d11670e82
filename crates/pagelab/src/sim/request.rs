//! A simulation that was asked for, checked.

use std::collections::HashSet;
use std::path::PathBuf;

use model::machine::Machine;
use model::policy::ModelPolicy;
use model::space::{Kernel, Physical};

use super::arguments::{Replay, threads};
use super::{linux, machines};
use crate::failure::Failure;
use crate::output::can_be_written;

/// The policies that are simulated where none is named.
const USUAL: [&str; 3] = ["base", "mthp-64k", "thp"];

/// Which traces are simulated on what.
pub struct Request {
    /// The traces.
    pub files: Vec<PathBuf>,
    /// The machines that were named, each once; where there is none, each trace has one of its architecture.
    pub machines: Vec<Machine>,
    /// What must be known of this host, where it is one of them.
    pub host: Vec<String>,
    /// The policies, each once.
    pub policies: Vec<ModelPolicy>,
    /// The memory that there is.
    pub physical: Physical,
    /// What the kernel does besides the policy.
    pub kernel: Kernel,
    /// How many layouts of addresses are simulated beside the one without randomisation.
    pub layouts: Option<u32>,
    /// How many threads share the simulations.
    pub threads: usize,
    /// Whether TLBs of every geometry are simulated too.
    pub curves: bool,
    /// Whether no system call is heard.
    pub accesses_only: bool,
}

impl Request {
    /// Checks what was asked for.
    ///
    /// # Errors
    /// A page that cannot be written, a machine or a kernel that there is not.
    pub fn of(arguments: &Replay) -> Result<Request, Failure> {
        can_be_written(&arguments.html)?;
        verbs_come_first(&arguments.files)?;
        Ok(Request {
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
            layouts: arguments.layouts,
            threads: threads(arguments.threads),
            // A page has curves.
            curves: arguments.curves || arguments.html.is_some(),
            accesses_only: arguments.accesses_only,
        })
    }
}

/// Behind an option the name of a verb is that of a file.
fn verbs_come_first(files: &[PathBuf]) -> Result<(), Failure> {
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

/// The policies that were asked for, each once, or the usual ones.
fn policies(named: &[ModelPolicy]) -> Vec<ModelPolicy> {
    if named.is_empty() {
        return USUAL.iter().filter_map(|name| name.parse().ok()).collect();
    }
    let mut seen = HashSet::new();
    named.iter().filter(|policy| seen.insert(*policy)).cloned().collect()
}
