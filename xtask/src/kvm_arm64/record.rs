//! [`Record`]: the results of a measurement of KVM's eager page splitting.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::measure::{Bench, Counted, GuestOutput, Memory, Phase};
use crate::dist::Target;
use crate::linux::Granule;

/// The results for kernels of one base page size, and what they were measured with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Base page size of the kernels.
    pub granule: Granule,
    /// Size of the memory with dirty logging.
    pub memory: Memory,
    /// Bytes that KVM splits at a time (KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE).
    pub chunk_bytes: u64,
    /// Package of the kernels' source, with its version.
    pub source: String,
    /// First line of the compiler's `--version` output.
    pub compiler: String,
    /// The emulator's version, and the processor that it emulates.
    pub emulator: String,
    /// Commit of pagelab in the guest; empty until the first kernel is added.
    pub commit: String,
    /// UTC date in ISO 8601 format.
    pub date: String,
    pub kernels: Vec<Kernel>,
}

/// The results of one kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// Name of the kernel variant.
    pub variant: String,
    /// Instructions of each phase.
    pub phases: Vec<Phase>,
    /// Counts from a second build of the same kernel, which has counters.
    pub counted: Vec<Counted>,
}

impl Record {
    /// A record without results.
    pub fn begin(root: &Path, bench: &Bench, source: &str) -> Result<Record, String> {
        Ok(Record {
            granule: bench.granule,
            memory: bench.memory,
            chunk_bytes: bench.chunk_bytes,
            source: source.to_owned(),
            compiler: version(Target::named("arm64")?.compiler()?),
            emulator: format!("{}, processor `{}`", version(bench.emulator()), bench.processor()),
            commit: String::new(),
            date: crate::command::stamp(root).0,
            kernels: Vec::new(),
        })
    }

    /// Adds the results of a kernel.
    pub fn add(&mut self, variant: &str, output: GuestOutput, counted: Vec<Counted>) {
        self.commit = output.commit;
        self.kernels.push(Kernel { variant: variant.to_owned(), phases: output.phases, counted });
    }
}

impl Kernel {
    /// The instructions of a phase in the first cycle; `None` if the phase was not measured.
    pub fn instructions(&self, backing: &str, name: &str) -> Option<f64> {
        let phase = self.phases.iter().find(|phase| phase.backing == backing && phase.name == name)?;
        phase.instructions.first().map(|count| *count as f64)
    }
}

/// The first line of a program's `--version` output; empty if the program cannot be run.
fn version(program: &str) -> String {
    let output = Command::new(program).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned()
}
