//! Records workloads for model machines: once, and again after a change.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use results::files;
use results::store::Store;
use study_files::definition::{Definition, Workload};
use tracer::child::die_with_parent;

use super::subject::{Subject, is_machine, recorded};
use crate::failure::{Failure, report};
use crate::record::OUTSIDE;
use crate::sim;
use crate::studies::inputs;
use crate::studies::programs::FileHashes;

/// The trace of a workload: the earlier recording if nothing has changed since, otherwise a new one.
///
/// # Errors
/// The workload cannot be recorded completely, or a file cannot be written.
pub fn trace_of(definition: &Definition, workload: &Workload, store: &Store) -> Result<PathBuf, Failure> {
    let directory = store.path().with_extension("traces");
    files::make_directories(&directory).map_err(Failure::input)?;
    let plain = |name: &str| -> String {
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
    };
    let name = format!("{}-{}-{}", definition.name, definition.size.name(), plain(&workload.name));
    // Each trace has a directory of its own, because the traces of forked processes are written next to it and found by
    // its name.
    let (complete, partial) = (directory.join(&name), directory.join(format!("{name}.partial")));
    let file = complete.join(TRACE);
    let pagelab = std::env::current_exe().map_err(|error| Failure::about(&file, error))?;
    // Recordings run as the user who runs pagelab, and that user must not execute files of other users.
    let workload = &inputs::prepare(&Workload { user: None, ..workload.clone() })?;
    let mut words: Vec<String> = recorded(workload).to_vec();
    if let Some(first) = words.first_mut().filter(|first| *first == "pagelab") {
        *first = pagelab.to_string_lossy().into_owned();
    }
    // The subject is computed only now, because inputs that were just made may be programs.
    let subject = Subject::of(definition, workload, &mut FileHashes::default()).text();
    let is_of = |known: String| {
        let Workload { skipped, .. } = workload;
        known == subject && sim::is_trace_of(&file, &words, definition.stopping.recorded, *skipped)
    };
    let known = files::open_to_read(&complete.join(SUBJECT)).and_then(std::io::read_to_string);
    if known.is_ok_and(is_of) {
        return Ok(file);
    }
    let mut command = Command::new(&pagelab);
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |error| Failure::about(&path, error)
    };
    files::remove_tree(&partial).map_err(failed(&partial))?;
    files::make_directories(&partial).map_err(Failure::input)?;
    // The rows are counts of the model, which need no CPU time. And a workload may have side effects, which should
    // happen only once.
    command.args(["record", "--no-native-run", "--output"]).arg(partial.join(TRACE));
    command.args(options(definition, workload));
    let stdin =
        workload.input.as_ref().map(|input| File::open(input).map_err(|error| Failure::about(input.as_ref(), error)));
    let stdin = stdin.transpose()?.map_or_else(Stdio::null, Stdio::from);
    command.arg("--").args(&words).envs(&workload.env).stdin(stdin).stdout(Stdio::null());
    let ended = die_with_parent(&mut command).output().map_err(|error| Failure::about(&pagelab, error))?;
    let errors = String::from_utf8_lossy(&ended.stderr);
    errors.lines().for_each(|line| report(results::printable(line)));
    if !ended.status.success() {
        let last = errors.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.map(|line| format!("; its last message: {line}")).unwrap_or_default();
        let status = ended.status;
        return Err(Failure::Input(format!("it cannot be recorded: `pagelab record` ended with {status}{last}")));
    }
    if errors.contains(OUTSIDE) {
        return Err(Failure::Input("the trace lacks programs that were executed".to_owned()));
    }
    files::write(&partial.join(SUBJECT), subject.as_bytes()).map_err(Failure::input)?;
    files::remove_tree(&complete).map_err(failed(&complete))?;
    files::rename(&partial, &complete).map_err(failed(&complete))?;
    Ok(file)
}

/// Arguments of `record` that select what of a workload is recorded.
pub fn options(definition: &Definition, workload: &Workload) -> Vec<String> {
    let system = is_machine(recorded(workload)).then(|| vec!["--system".to_owned()]);
    let number = |name: &str, number: u64| vec![format!("--{name}"), number.to_string()];
    let most = definition.stopping.recorded.map(|most| number("max", most));
    let skipped = workload.skipped.map(|skipped| number("skip", skipped));
    [system, skipped, most].into_iter().flatten().flatten().collect()
}

/// The file name of the first process's trace in the directory of a workload.
const TRACE: &str = "trace";
/// The file next to the trace that describes what was recorded, with which builds.
const SUBJECT: &str = "recorded.json";
