//! Commands that tasks run.

use std::process::Command;

/// Runs a command to its end.
///
/// # Errors
/// It could not be started, or did not succeed.
pub fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}
