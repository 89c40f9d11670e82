//! Everything that determines the outcome of a simulation ([`Subject`]): the request, and the files and builds that it
//! uses.

use std::collections::BTreeMap;
use std::path::Path;

use model::machine::Machine;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use study_files::definition::{Definition, Workload};

use crate::studies::inputs;
use crate::studies::programs::{FileHashes, Programs, rebuilt};

/// The version of this pagelab, with the commit from which it was built.
const PAGELAB: &str = env!("PAGELAB_VERSION");

/// The subject of a simulation, as the store keeps it. Names describe the request; hashes and pagelab's version identify
/// the files and the build that it uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The trace file, if the study names one instead of having the workload recorded.
    trace: Option<Trace>,
    /// The recorded command.
    command: Option<Vec<String>>,
    env: BTreeMap<String, String>,
    /// The maximum number of instructions recorded per thread.
    instructions: Option<u64>,
    /// Instructions of each thread that are skipped before recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<u64>,
    /// Standard input of the recorded command.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<String>,
    /// The recorded programs that this host has.
    programs: Programs,
    /// SHA-256 of the parsed machine; absent in the subject of a recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    pagelab: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Trace {
    /// The file name.
    file: Option<String>,
    /// SHA-256 of the file; absent if this host does not have it.
    sha256: Option<String>,
}

/// The command to record: the command that the workload names for recording, or else the workload's own.
pub fn recorded(workload: &Workload) -> &[String] {
    workload.recorded.as_deref().unwrap_or(&workload.command)
}

/// Whether the command is a whole machine, which is recorded with physical addresses.
pub fn is_machine(recorded: &[String]) -> bool {
    let name = recorded.first().and_then(|first| Path::new(first).file_name());
    name.is_some_and(|name| name.to_string_lossy().starts_with("qemu-system-"))
}

impl Subject {
    /// The subject of a workload, for any machine.
    pub fn of(definition: &Definition, workload: &Workload, files: &mut FileHashes) -> Subject {
        let trace = workload.trace.as_ref().map(|trace| Trace {
            file: Path::new(trace).file_name().map(|name| name.to_string_lossy().into_owned()),
            sha256: files.hash(Path::new(trace)),
        });
        let is_recorded = trace.is_none();
        let placed = workload.with_input_paths(inputs::portable_name);
        let command = recorded(workload).to_vec();
        let runs = Workload { command, server: None, prepare: None, ..workload.clone() };
        Subject {
            command: is_recorded.then(|| recorded(&placed).to_vec()),
            env: placed.env.clone(),
            instructions: definition.stopping.recorded,
            skipped: workload.skipped.filter(|_| is_recorded),
            input: placed.input.clone().filter(|_| is_recorded),
            programs: if is_recorded { files.of(&runs) } else { Programs::new() },
            machine: None,
            pagelab: PAGELAB.to_owned(),
            trace,
        }
    }

    /// The subject on this machine.
    pub fn on(&self, machine: &Machine) -> Subject {
        let read = Sha256::digest(format!("{machine:?}"));
        let machine = read.iter().map(|byte| format!("{byte:02x}")).collect();
        Subject { machine: Some(machine), ..self.clone() }
    }

    /// Parses a stored subject; `None` if it does not describe the simulation of a trace.
    pub fn read(text: &str) -> Option<Subject> {
        serde_json::from_str(text).ok()
    }

    /// The text for the store.
    pub fn text(&self) -> String {
        json!(self).to_string()
    }

    /// The recorded programs, each with the SHA-256 of its file.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Whether both subjects make the same request, whatever their files and builds.
    pub fn has_same_request(&self, other: &Subject) -> bool {
        let asked = |of: &Subject| {
            let file = of.trace.as_ref().map(|trace| trace.file.clone());
            (file, of.command.clone(), of.env.clone(), of.instructions, of.skipped, of.input.clone())
        };
        asked(self) == asked(other)
    }

    /// The files and builds that differ between the subjects. A file or build that only one of them knows does not
    /// count.
    pub fn changed(&self, now: &Subject) -> Vec<String> {
        let mut changed = Vec::new();
        let sha256 = |of: &Subject| of.trace.as_ref().and_then(|trace| trace.sha256.clone());
        let differs =
            |before: Option<String>, now: Option<String>| before.zip(now).is_some_and(|(one, two)| one != two);
        if differs(sha256(self), sha256(now)) {
            changed.push("other content of its trace".to_owned());
        }
        changed.extend(rebuilt(&self.programs, &now.programs).map(|program| format!("another build of {program}")));
        if differs(self.machine.clone(), now.machine.clone()) {
            changed.push("other figures of the machine".to_owned());
        }
        if self.pagelab != now.pagelab {
            changed.push(format!("pagelab {}", self.pagelab));
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(text: &str) -> Subject {
        Subject::read(text).unwrap()
    }

    #[test]
    fn changed_files_and_builds_are_listed_and_leave_the_request_equal() {
        let now = subject(
            r#"{"trace":{"file":"a.trace","sha256":"aa"},"command":null,"env":{},"instructions":null,"machine":"bb",
                "programs":{"sort":"cc"},"pagelab":"1"}"#,
        );
        assert_eq!(Subject::read(&now.text()), Some(now.clone()));
        assert!(now.changed(&now).is_empty());
        let before = subject(
            r#"{"trace":{"file":"a.trace","sha256":"ab"},"command":null,"env":{},"instructions":null,"machine":"bc",
                "programs":{"sort":"cd"},"pagelab":"0"}"#,
        );
        assert!(before.has_same_request(&now));
        let changes =
            ["other content of its trace", "another build of sort", "other figures of the machine", "pagelab 0"];
        assert_eq!(before.changed(&now), changes);
        assert!(!Subject { instructions: Some(5), ..now.clone() }.has_same_request(&now));
    }
}
