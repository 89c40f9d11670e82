//! `pagelab advise`: the one setting to adopt, seen to work.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::advice::{self, Program};
use crate::compare;
use crate::failure::Failure;
use crate::output::{find_store, print};
use crate::user;
use crate::words::parse_duration;

/// Arguments of `pagelab advise`.
#[derive(Debug, Args)]
pub struct Advise {
    /// Advice from this stored comparison (`pagelab list comparisons`), with all that was tried; its command is run again, once
    /// for each setting
    #[arg(long, value_name = "NUMBER", required_unless_present = "command", conflicts_with = "command")]
    show: Option<i64>,
    /// Where results are kept; default: pagelab/results.sqlite in the XDG data directory
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// How long to wait for another pagelab that has changed system settings
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    wait: f64,
    /// The command: it is compared under every policy that makes sense here, and advice follows
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// Runs `pagelab advise`.
///
/// # Errors
/// The comparison cannot be read, has no best policy, or its command cannot be run.
pub fn run(arguments: &Advise) -> Result<(), Failure> {
    let Some(number) = arguments.show else {
        let store = arguments.store.iter().flat_map(|store| ["--store".into(), store.clone().into_os_string()]);
        let wait = ["--wait".into(), format!("{}s", arguments.wait).into()];
        let command = std::iter::once("--".into()).chain(arguments.command.iter().cloned());
        return compare::run(compare::parsed(store.chain(wait).chain(command))?);
    };
    let store = find_store(arguments.store.as_deref())?
        .map_err(|path| Failure::Input(format!("there is no store {}; --store FILE names another", path.display())))?;
    let comparison = store.load(number).map_err(Failure::input)?;
    let command = comparison.invocation.command.iter().map(OsString::from).collect();
    let program = Program { command, user: user::to_run_as(None)?, variables: Vec::new(), limit: None };
    let text = advice::whole(&comparison, &program, Duration::from_secs_f64(arguments.wait))?;
    print(&text, false)
}
