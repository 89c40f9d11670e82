//! Runs Slurm's commands: sbatch, scontrol and squeue.

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// Submits a script, to run in this directory, and after the job `after` if one is given. Returns the number of the new job.
///
/// # Errors
/// Slurm is not installed, or it refuses the job.
pub fn submit(script: &str, directory: &Path, after: Option<&str>) -> Result<String, Failure> {
    let mut command = Command::new("sbatch");
    command.arg("--parsable").current_dir(directory);
    command.args(after.map(|job| format!("--dependency=afterany:{job}")));
    let printed = run(command, script)?;
    // sbatch prints `NUMBER`, or `NUMBER;CLUSTER`.
    let number = printed.trim().split(';').next().unwrap_or_default();
    if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
        Ok(number.to_owned())
    } else {
        Err(Failure::Input(format!("sbatch printed {printed:?}, without a job number")))
    }
}

/// The default of MaxArraySize, if the site sets no other value (slurm.conf(5)). Array indices are below it.
pub const DEFAULT_ARRAY_SIZE: usize = 1001;

/// MaxArraySize at this site: array indices are below it.
///
/// # Errors
/// Slurm is not installed or does not report the limit, or the site has no arrays.
pub fn max_array_size() -> Result<usize, Failure> {
    let mut command = Command::new("scontrol");
    command.args(["show", "config"]);
    let configuration = run(command, "")?;
    let size =
        configuration.lines().find_map(|line| line.trim().strip_prefix("MaxArraySize")?.trim().strip_prefix('='));
    match size.and_then(|size| size.trim().parse().ok()) {
        Some(0) => Err(Failure::Input("this Slurm has no job arrays (MaxArraySize=0 in slurm.conf)".to_owned())),
        Some(size) => Ok(size),
        None => Err(Failure::Input("`scontrol show config` does not report MaxArraySize".to_owned())),
    }
}

/// An array task that waits or runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The number of the task in the study.
    pub task: usize,
    /// The state according to Slurm: `RUNNING on node1`, `PENDING (Resources)`.
    pub state: String,
}

/// The waiting and running tasks of arrays with this name.
///
/// # Errors
/// Slurm is not installed, or squeue fails.
pub fn queued_tasks(name: &str) -> Result<Vec<Queued>, Failure> {
    let mut command = Command::new("squeue");
    command.args(["--noheader", "--array", "--format=%k|%K|%T|%N|%r", "--name", name]);
    Ok(run(command, "")?.lines().filter_map(parse_task).collect())
}

/// Parses a line `COMMENT|INDEX|STATE|NODES|REASON`; the comment is the offset of the array (`script`).
fn parse_task(line: &str) -> Option<Queued> {
    let mut parts = line.trim().splitn(5, '|');
    let (offset, index) = (parts.next()?.parse().unwrap_or(0), parts.next()?.parse::<usize>().ok()?);
    let (state, nodes, reason) = (parts.next()?, parts.next()?, parts.next()?);
    let state = if nodes.is_empty() { format!("{state} ({reason})") } else { format!("{state} on {nodes}") };
    Some(Queued { task: offset + index, state })
}

/// The numbers of waiting and running jobs with these names.
///
/// # Errors
/// Slurm is not installed, or squeue fails.
pub fn queued_jobs(names: &[&str]) -> Result<Vec<String>, Failure> {
    let mut command = Command::new("squeue");
    command.args(["--noheader", "--format=%F", "--name", &names.join(",")]);
    let mut numbers: Vec<String> = run(command, "")?.split_whitespace().map(str::to_owned).collect();
    numbers.sort();
    numbers.dedup();
    Ok(numbers)
}

fn run(mut command: Command, input: &str) -> Result<String, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Failure::Input(format!(
            "there is no {program} in PATH: use a machine of the cluster (on Debian it is in the package slurm-client). The same study runs on this machine without --on slurm"
        )),
        _ => Failure::Input(format!("{program}: {error}")),
    };
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(input.as_bytes()) {
            // A broken pipe is ignored, because sbatch itself reports why it did not read.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
    }
    let output = child.wait_with_output().map_err(failed)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(Failure::Input(format!("{program} ended with {}: {}", output.status, one_line(&text(&output.stderr)))))
    }
}

/// Joins the lines of another program's output into one.
fn one_line(lines: &str) -> String {
    results::printable(&lines.lines().collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_task_number_from_offset_and_index() {
        let parsed = |line| parse_task(line).map(|queued| (queued.task, queued.state));
        assert_eq!(parsed("1000|7|RUNNING|node3|None"), Some((1007, "RUNNING on node3".to_owned())));
        assert_eq!(parsed("(null)|0|PENDING||Resources"), Some((0, "PENDING (Resources)".to_owned())));
        assert_eq!(parsed("0|N/A|PENDING||Dependency"), None, "not a task of an array");
    }
}
