//! `spec-cpu`: runs a benchmark of SPEC CPU, for users with a licence. SPEC's own `runcpu` or `runspec` runs the
//! benchmark, and the reported time is SPEC's.
//!
//! SPEC verifies the output itself, and a run with wrong output is not a result. pagelab knows no options of SPEC: the
//! arguments after `--` are passed unchanged.

mod error;
mod raw;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, json};
use tracer::child::die_with_parent;
use workloads::random::mix;

pub use error::SpecError;
use raw::{RawFile, Sample};

use super::WorkloadError;
use super::report::Report;

/// The text with which SPEC's tools name the raw file they wrote.
const RAW_FILE_PREFIX: &str = "format: raw ->";
/// The number of output lines shown if there is no result.
const LAST_LINES: usize = 6;
/// A shell script that changes to SPEC's directory, loads its environment, and execs the command.
const SHELL_SCRIPT: &str = "cd \"$1\" && . ./shrc && shift && exec \"$@\"";

/// Arguments of `spec-cpu`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Read an existing raw result file (.rsf), and run nothing
    #[arg(long, value_name = "FILE")]
    raw: Option<PathBuf>,
    /// Where SPEC CPU is installed: the command runs there, in the environment that its shrc sets
    #[arg(long, value_name = "DIR")]
    spec: Option<PathBuf>,
    /// The command: runcpu or runspec with its options and one benchmark
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the command, or reads the file.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let files = match (&arguments.raw, arguments.command.is_empty()) {
        (Some(raw), true) => vec![raw.clone()],
        (None, false) => run_command(arguments)?,
        _ => return Err(SpecError::FileOrCommand.into()),
    };
    let files = files.iter().map(|path| read(path)).collect::<Result<Vec<RawFile>, SpecError>>()?;
    Ok(report(&files))
}

/// Runs the command, and returns the files that its output names.
fn run_command(arguments: &Arguments) -> Result<Vec<PathBuf>, SpecError> {
    let program = arguments.command.first().cloned().unwrap_or_default();
    let mut command = match &arguments.spec {
        Some(spec) => spec_shell(spec, &arguments.command)?,
        None => {
            let mut command = Command::new(&program);
            command.args(&arguments.command[1..]);
            command
        }
    };
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let ended = die_with_parent(&mut command).output();
    let ended = ended.map_err(|source| SpecError::NotStarted { program: program.clone(), source })?;
    let text = String::from_utf8_lossy(&ended.stdout);
    let last_words = || text.lines().rev().take(LAST_LINES).map(str::trim).collect::<Vec<_>>();
    let last_words = || last_words().into_iter().rev().collect::<Vec<_>>().join("; ");
    if !ended.status.success() {
        return Err(SpecError::Failed { program, status: ended.status, last_words: last_words() });
    }
    let files: Vec<PathBuf> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix(RAW_FILE_PREFIX))
        .map(|path| path.trim().into())
        .collect();
    if files.is_empty() { Err(SpecError::NoRawFile { program, last_words: last_words() }) } else { Ok(files) }
}

fn spec_shell(spec: &Path, words: &[String]) -> Result<Command, SpecError> {
    let shrc = spec.join("shrc");
    if !shrc.is_file() {
        return Err(SpecError::NotInstalled { shrc });
    }
    let mut command = Command::new("bash");
    command.args(["-c", SHELL_SCRIPT, "bash"]).arg(spec).args(words);
    Ok(command)
}

fn read(path: &Path) -> Result<RawFile, SpecError> {
    let bytes = std::fs::read(path).map_err(|source| SpecError::Read { path: path.to_path_buf(), source })?;
    RawFile::parse(&String::from_utf8_lossy(&bytes))
        .map_err(|error| SpecError::File { path: path.to_path_buf(), error: Box::new(error) })
}

fn report(files: &[RawFile]) -> Report {
    let samples: Vec<&Sample> = files.iter().flat_map(|file| &file.samples).collect();
    let medians: Vec<((String, String), f64)> = files.iter().flat_map(RawFile::medians_s).collect();
    let names: Vec<String> = medians.iter().map(|((benchmark, tune), _)| format!("{benchmark}/{tune}")).collect();
    let suites: Vec<&str> = files.iter().map(|file| file.suite.as_str()).collect();
    // SPEC has verified the output, so the answer is only which runs SPEC calls valid.
    let checksum = names.join(",").bytes().fold(0, |sum, byte| mix(sum ^ u64::from(byte)));
    let line = |one: &&Sample| {
        let ratio = one.ratio.map(|ratio| format!(", ratio {ratio}")).unwrap_or_default();
        format!("{} {} {:03}: {} s{ratio}", one.benchmark, one.tune, one.iteration, one.reported_s)
    };
    let key = |one: &&Sample| {
        json!({
            "benchmark": one.benchmark, "tune": one.tune, "iteration": one.iteration,
            "reported_s": one.reported_s, "ratio": one.ratio,
        })
    };
    let keys = Map::from_iter([("samples".to_owned(), samples.iter().map(key).collect())]);
    Report::new("spec-cpu", checksum)
        .argument("suite", suites.join(","))
        .argument("benchmarks", names.join(","))
        .figure("samples", samples.len() as f64)
        .figure("reported_s", medians.iter().map(|(_, median)| median).sum())
        .details(samples.iter().map(line).collect::<Vec<_>>().join("\n"), keys)
}
