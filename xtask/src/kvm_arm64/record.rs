//! A measurement of KVM's eager split, with its results ([`Record`]).

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::measure::{Bench, Counted, GuestOutput, Memory, Phase};
use crate::dist::Target;
use crate::linux::Granule;

/// A measurement with its results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Base page size of the kernels.
    pub granule: Granule,
    /// Size of the logged memory.
    pub memory: Memory,
    /// The number of bytes that KVM split at a time.
    pub chunk_bytes: u64,
    /// The package of the kernels' source, with its version.
    pub source: String,
    /// The version of the compiler.
    pub compiler: String,
    /// The version of the emulator.
    pub emulator: String,
    /// The commit of the program that measured.
    pub commit: String,
    /// The date in ISO 8601 format.
    pub date: String,
    /// The results of each kernel.
    pub kernels: Vec<Kernel>,
}

/// The results of one kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// The name of the variant.
    pub variant: String,
    /// The duration of its phases.
    pub phases: Vec<Phase>,
    /// The counts of the kernel that is the same except that it has counters.
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
    pub fn add(&mut self, variant: &str, seen: GuestOutput, counted: Vec<Counted>) {
        self.commit = seen.commit;
        self.kernels.push(Kernel { variant: variant.to_owned(), phases: seen.phases, counted });
    }
}

impl Kernel {
    /// The instructions of a phase in the first cycle; `None` if the phase was not measured.
    pub fn instructions(&self, backing: &str, name: &str) -> Option<f64> {
        let phase = self.phases.iter().find(|phase| phase.backing == backing && phase.name == name)?;
        phase.instructions.first().map(|count| *count as f64)
    }
}

/// The first line of a program's `--version` output.
fn version(program: &str) -> String {
    let output = Command::new(program).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned()
}
