//! What came of a measurement.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::measure::{Bench, Counted, Memory, Phase, Seen};
use crate::dist::Target;
use crate::linux::Granule;

/// A measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Base pages of the kernels.
    pub granule: Granule,
    /// Memory that was logged.
    pub memory: Memory,
    /// What KVM split at a time.
    pub chunk_bytes: u64,
    /// The package of the kernels' source, with its version.
    pub source: String,
    /// The compiler.
    pub compiler: String,
    /// The emulator.
    pub emulator: String,
    /// The commit of the program that measured.
    pub commit: String,
    /// The day, as ISO 8601 writes it.
    pub date: String,
    /// Kernel by kernel.
    pub kernels: Vec<Kernel>,
}

/// What one kernel did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// Its name.
    pub variant: String,
    /// What its phases took.
    pub phases: Vec<Phase>,
    /// What the same kernel with counters counted.
    pub counted: Vec<Counted>,
}

impl Record {
    /// One without kernels.
    ///
    /// # Errors
    /// No compiler.
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

    /// Adds a kernel.
    pub fn add(&mut self, variant: &str, seen: Seen, counted: Vec<Counted>) {
        self.commit = seen.commit;
        self.kernels.push(Kernel { variant: variant.to_owned(), phases: seen.phases, counted });
    }
}

impl Kernel {
    /// A phase's instructions in the first cycle.
    pub fn instructions(&self, backing: &str, name: &str) -> Option<f64> {
        let phase = self.phases.iter().find(|phase| phase.backing == backing && phase.name == name)?;
        phase.instructions.first().map(|count| *count as f64)
    }
}

/// The first line of what a program says of its version.
fn version(program: &str) -> String {
    let output = Command::new(program).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned()
}
