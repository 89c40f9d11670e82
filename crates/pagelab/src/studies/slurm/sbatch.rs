//! Slurm's own programs.

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// Submits a script from a directory, and returns the job's number.
///
/// # Errors
/// There is no Slurm here, or it refuses the job.
pub fn submit(script: &str, directory: &Path) -> Result<String, Failure> {
    let mut command = Command::new("sbatch");
    command.arg("--parsable").current_dir(directory);
    let printed = ran(command, script)?;
    // `NUMBER`, or `NUMBER;CLUSTER`.
    let number = printed.trim().split(';').next().unwrap_or_default();
    match !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(number.to_owned()),
        false => Err(Failure::Input(format!("sbatch said {printed:?}, and no number of a job"))),
    }
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
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => {
            Err(Failure::Input(format!("{program} ended with {}: {}", output.status, told(&text(&output.stderr)))))
        }
    }
}

/// Lines of another program in one of ours.
fn told(lines: &str) -> String {
    results::printable(&lines.lines().collect::<Vec<_>>().join("; "))
}
