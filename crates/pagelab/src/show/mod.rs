//! `pagelab show`: shows a stored comparison.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::output::find_store;
use crate::publish::{self, Forms};

/// Arguments of `pagelab show`.
#[derive(Debug, Args)]
pub struct Show {
    /// Its number (`pagelab list comparisons`)
    #[arg(value_name = "NUMBER")]
    number: i64,
    /// Print all ways to adopt the best policy below the table; none of them was tried
    #[arg(long)]
    adopt_all: bool,
    /// Where results are kept; default: pagelab/results.sqlite in the XDG data directory
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    #[command(flatten)]
    forms: Forms,
}

/// Runs `pagelab show`.
///
/// # Errors
/// The store or the comparison does not exist, or an output cannot be written.
pub fn run(arguments: &Show) -> Result<(), Failure> {
    let store = find_store(arguments.store.as_deref())?
        .map_err(|path| Failure::Input(format!("there is no store {}; --store FILE names another", path.display())))?;
    let comparison = store.load(arguments.number).map_err(Failure::input)?;
    let resumptions = store.resumptions(arguments.number).map_err(Failure::input)?;
    arguments.forms.can_be_written()?;
    publish::stored(&comparison, &resumptions, &arguments.forms, arguments.adopt_all)
}
