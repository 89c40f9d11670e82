//! `pagelab demo`: the main job on a built-in workload, in under two minutes.

use std::ffi::OsString;

use clap::Parser;

use crate::cli::{Cli, Demo, Verb};
use crate::compare;
use crate::failure::{Failure, say};

/// Memory that is chased through: far beyond the reach of a TLB with base pages, small enough for a
/// small machine.
const BYTES: &str = "256M";
/// Chased steps: some tenths of a second.
const STEPS: &str = "3000000";

/// Runs `pagelab demo`.
pub fn run(arguments: &Demo) -> Result<(), Failure> {
    say(format_args!(
        "A random pointer chase through {BYTES}, one cache line a page, under every policy that makes sense here."
    ));
    let program = std::env::current_exe().map_err(Failure::input)?;
    let mut words: Vec<OsString> =
        ["pagelab", "compare", "--max-time", "75s", "--blocks", "15"].map(OsString::from).to_vec();
    words.extend(["--metric".into(), r"ns_per_access:lower=ns_per_access=([0-9.]+)".into()]);
    words.extend(["--html".into(), arguments.html.clone().into_os_string()]);
    if let Some(store) = &arguments.store {
        words.extend(["--store".into(), store.clone().into_os_string()]);
    }
    words.push("--".into());
    words.push(program.into_os_string());
    words.extend(["workload", "chase", "--bytes", BYTES, "--steps", STEPS].map(OsString::from));
    match Cli::try_parse_from(words).map_err(Failure::input)?.verb {
        Verb::Compare(compare) => compare::run(*compare),
        _ => unreachable!("the words above are those of compare"),
    }
}
