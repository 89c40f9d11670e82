//! Slurm's own programs.

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// Submits a script from a directory, to begin after another job where one is named, and returns the job's number.
///
/// # Errors
/// There is no Slurm here, or it refuses the job.
pub fn submit(script: &str, directory: &Path, after: Option<&str>) -> Result<String, Failure> {
    let mut command = Command::new("sbatch");
    command.arg("--parsable").current_dir(directory);
    command.args(after.map(|job| format!("--dependency=afterany:{job}")));
    let printed = ran(command, script)?;
    // `NUMBER`, or `NUMBER;CLUSTER`.
    let number = printed.trim().split(';').next().unwrap_or_default();
    if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
        Ok(number.to_owned())
    } else {
        Err(Failure::Input(format!("sbatch said {printed:?}, and no number of a job")))
    }
}

/// Numbers of an array are below this where a site does not say otherwise (slurm.conf(5), MaxArraySize).
pub const USUAL_ARRAY_SIZE: usize = 1001;

/// Below what the numbers of an array must be.
///
/// # Errors
/// There is no Slurm here, or it does not say; the site has no arrays.
pub fn array_size() -> Result<usize, Failure> {
    let mut command = Command::new("scontrol");
    command.args(["show", "config"]);
    let told = ran(command, "")?;
    let size = told.lines().find_map(|line| line.trim().strip_prefix("MaxArraySize")?.trim().strip_prefix('='));
    match size.and_then(|size| size.trim().parse().ok()) {
        Some(0) => Err(Failure::Input("this Slurm has no job arrays (MaxArraySize=0 in slurm.conf)".to_owned())),
        Some(size) => Ok(size),
        None => Err(Failure::Input("`scontrol show config` does not say MaxArraySize".to_owned())),
    }
}

/// A task of an array that waits or runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Its number in the study.
    pub task: usize,
    /// What Slurm says of it: `RUNNING on node1`, `PENDING (Resources)`.
    pub told: String,
}

/// The tasks of the arrays of this name that wait or run.
///
/// # Errors
/// There is no Slurm here, or it does not say.
pub fn tasks_queued(name: &str) -> Result<Vec<Queued>, Failure> {
    let mut command = Command::new("squeue");
    command.args(["--noheader", "--array", "--format=%k|%K|%T|%N|%r", "--name", name]);
    Ok(ran(command, "")?.lines().filter_map(task_queued).collect())
}

/// A line `OFFSET|INDEX|STATE|NODES|REASON`.
fn task_queued(line: &str) -> Option<Queued> {
    let mut parts = line.trim().splitn(5, '|');
    let (offset, index) = (parts.next()?.parse().unwrap_or(0), parts.next()?.parse::<usize>().ok()?);
    let (state, nodes, reason) = (parts.next()?, parts.next()?, parts.next()?);
    let told = if nodes.is_empty() { format!("{state} ({reason})") } else { format!("{state} on {nodes}") };
    Some(Queued { task: offset + index, told })
}

/// The numbers of jobs of these names that wait or run.
///
/// # Errors
/// There is no Slurm here, or it does not say.
pub fn queued(names: &[&str]) -> Result<Vec<String>, Failure> {
    let mut command = Command::new("squeue");
    command.args(["--noheader", "--format=%F", "--name", &names.join(",")]);
    let mut numbers: Vec<String> = ran(command, "")?.split_whitespace().map(str::to_owned).collect();
    numbers.sort();
    numbers.dedup();
    Ok(numbers)
}

fn ran(mut command: Command, input: &str) -> Result<String, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Failure::Input(format!(
            "there is no {program} in PATH: submit from a machine of the cluster (on Debian it is in the package slurm-client). The same study runs on this machine without --on slurm"
        )),
        _ => Failure::Input(format!("{program}: {error}")),
    };
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(input.as_bytes()) {
            // It says itself why it did not read.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
    }
    let output = child.wait_with_output().map_err(failed)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(Failure::Input(format!("{program} ended with {}: {}", output.status, told(&text(&output.stderr)))))
    }
}

/// Lines of another program in one of ours.
fn told(lines: &str) -> String {
    results::printable(&lines.lines().collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_known_by_its_array_and_its_place_in_it() {
        let of = |line| task_queued(line).map(|queued| (queued.task, queued.told));
        assert_eq!(of("1000|7|RUNNING|node3|None"), Some((1007, "RUNNING on node3".to_owned())));
        assert_eq!(of("(null)|0|PENDING||Resources"), Some((0, "PENDING (Resources)".to_owned())));
        assert_eq!(of("0|N/A|PENDING||Dependency"), None, "no task of an array");
    }
}
