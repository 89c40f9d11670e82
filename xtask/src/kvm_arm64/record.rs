//! What came of a measurement, kept with its date: the last one of each size of base pages.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::measure::{Bench, Counted, Memory, Phase, Seen};
use super::report;
use crate::dist::Target;
use crate::linux::Granule;

/// What is kept.
const KEPT: &str = "docs/evidence/kvm-arm64.json";
/// Where it is shown.
const SHOWN: &str = "docs/evidence/kvm-arm64.md";

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
            emulator: version(bench.emulator()),
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

/// Puts a record in the place of the last one of the same base pages, and shows all of them.
///
/// # Errors
/// A file that cannot be read or written.
pub fn keep(root: &Path, record: Record) -> Result<(), String> {
    let kept = root.join(KEPT);
    let mut all = read(&kept)?;
    all.retain(|one| one.granule != record.granule);
    all.push(record);
    all.sort_by_key(|one| one.granule.page_bytes());
    let text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())? + "\n";
    fs::write(&kept, &text).map_err(|error| format!("{}: {error}", kept.display()))?;
    show(root)
}

/// Writes the page of what is kept.
///
/// # Errors
/// A file that cannot be read or written.
pub fn show(root: &Path) -> Result<(), String> {
    let page = report::page(&read(&root.join(KEPT))?, &report::published(root)?);
    let shown = root.join(SHOWN);
    fs::write(&shown, &page).map_err(|error| format!("{}: {error}", shown.display()))?;
    println!("{}", shown.display());
    Ok(())
}

/// What is kept; nothing where there is no file.
fn read(kept: &Path) -> Result<Vec<Record>, String> {
    match fs::read_to_string(kept) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", kept.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", kept.display())),
    }
}

/// The first line of what a program says of its version.
fn version(program: &str) -> String {
    let output = Command::new(program).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned()
}
