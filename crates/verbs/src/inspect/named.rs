//! Finds the processes that an argument names: by PID, or by name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use census::inspect::which;

use super::Inspect;
use crate::failure::Failure;

/// The number of PIDs that an error lists.
const MAX_LISTED: usize = 10;

/// The process with this PID, or the processes with this name. A number is a PID.
pub fn processes(word: &OsStr, arguments: &Inspect) -> Result<Vec<u32>, Failure> {
    if let Some(pid) = word.to_str().and_then(|word| word.parse().ok()) {
        return Ok(vec![pid]);
    }
    let name = host::read::escaped(word.as_bytes().to_vec());
    if arguments.root.is_some() {
        return Err(Failure::Input(format!("--root: expected the PID of a captured process, found {name:?}")));
    }
    let found = which::named(&name).map_err(Failure::input)?;
    match single_process_option(arguments) {
        Some(option) if found.len() > 1 => Err(Failure::Input(format!(
            "{option} needs one process, and {} have the name {name:?}: {}; give the PID",
            found.len(),
            listed(&found)
        ))),
        _ => Ok(found),
    }
}

/// An option in the arguments that works only for a single process, if there is one.
fn single_process_option(arguments: &Inspect) -> Option<&'static str> {
    let options = [
        ("--every", arguments.every.is_some()),
        ("--regions", arguments.regions),
        ("--contents", arguments.contents),
        ("--html", arguments.html.is_some()),
        ("--collapse", arguments.collapse),
        ("--capture", arguments.capture.is_some()),
    ];
    options.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
}

fn listed(pids: &[u32]) -> String {
    let shown = pids.iter().take(MAX_LISTED).map(u32::to_string);
    let more = pids.len().saturating_sub(MAX_LISTED);
    shown.chain((more > 0).then(|| format!("{more} more"))).collect::<Vec<_>>().join(", ")
}
