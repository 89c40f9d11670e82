//! `--fragmented`: free memory in small blocks during a comparison.

use std::process::Command;

use study::comparison::Fragmented;

use crate::failure::Failure;

/// The built-in workload that makes and holds it.
///
/// # Errors
/// Not root, or pagelab does not know where its own program is.
pub fn command(wish: Fragmented) -> Result<Command, Failure> {
    if tracer::user::effective_id() != 0 {
        let why = "which pages lie in which block is told to root only; run pagelab as root, or leave it out";
        return Err(Failure::Input(format!("--fragmented: {why}")));
    }
    let mut command = Command::new(std::env::current_exe().map_err(Failure::input)?);
    let (percent, block) = (wish.percent.to_string(), wish.block.to_string());
    command.args(["workload", "fragments", "--percent", &percent, "--block", &block]);
    Ok(command)
}
