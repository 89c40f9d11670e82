//! `--fragmented`: keeps free memory in small blocks during a comparison, or during the trials of a variant.

use std::process::Command;

use platform::Fragmenter;
use study::comparison::{Design, Fragmented};

use crate::failure::Failure;

/// What fragments memory and keeps it fragmented: a built-in workload of pagelab. `None` if no arm of the design needs
/// it.
///
/// # Errors
/// The user is not root, or pagelab cannot find its own program file.
pub fn fragmenter(design: &Design) -> Result<Option<Fragmenter>, Failure> {
    let of_variants = design.variants().into_iter().filter_map(|variant| variant.fragmented);
    if of_variants.chain(design.fragmented).next().is_none() {
        return Ok(None);
    }
    if tracer::user::effective_id() != 0 {
        let why = "only root can see which block a page belongs to; run pagelab as root, or leave it out";
        return Err(Failure::Input(format!("--fragmented: {why}")));
    }
    let own = std::env::current_exe().map_err(Failure::input)?;
    Ok(Some(Box::new(move |wish: Fragmented| {
        let mut command = Command::new(&own);
        let (percent, block) = (wish.percent.to_string(), wish.block.to_string());
        command.args(["workload", "fragments", "--percent", &percent, "--block", &block]);
        command
    })))
}
