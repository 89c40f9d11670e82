//! `pagelab show`: shows a stored comparison, or several boots of one comparison of kernels together.

use std::path::PathBuf;

use clap::Args;
use results::required::ArmRequirement;
use results::store::Store;

use crate::failure::Failure;
use crate::kernels::stored;
use crate::output::{find_store, folded, print};
use crate::publish::{Forms, check_requirements, print_attempts, publish_mail, publish_stored};

/// Arguments of `pagelab show`.
#[derive(Debug, Args)]
pub struct Show {
    /// Its number (`pagelab list comparisons`). Several numbers are the boots of one `compare --kernel`, which are shown together
    /// (without --csv and --require, which are for one comparison)
    #[arg(value_name = "NUMBER", required = true)]
    numbers: Vec<i64>,
    /// Show everything: further metrics, the tracing overhead, faults, page tables, all notes and warnings, and the
    /// settings that were tried for advice and did not hold
    #[arg(long, conflicts_with = "json")]
    full: bool,
    /// Print plain text in 72 columns instead of the table, as kernel lists take it
    #[arg(long, conflicts_with_all = ["json", "full"])]
    mail: bool,
    /// Where results are kept; default: pagelab/results.sqlite in the XDG data directory
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// Exit with 5 unless the memory of every policy but the baseline meets this in each of its trials, for example
    /// large>=95% (mapped by page-table entries above the base page), 64K>=80% (in folios of 64K or larger, whatever entries map
    /// them) or thp:large>=95% for one policy. It may be given several times
    #[arg(long, value_name = "[POLICY:]REQUIREMENT", conflicts_with = "mail")]
    require: Vec<ArmRequirement>,
    #[command(flatten)]
    forms: Forms,
}

/// Runs `pagelab show`.
///
/// # Errors
/// The store or a comparison does not exist, an output cannot be written, or a requirement is not met.
pub fn run(arguments: &Show) -> Result<(), Failure> {
    let store = find_store(arguments.store.as_deref())?
        .map_err(|path| Failure::Input(format!("there is no store {}; --store FILE names another", path.display())))?;
    arguments.forms.can_be_written()?;
    let [number] = arguments.numbers[..] else { return show_boots(arguments, &store) };
    let comparison = store.load(number).map_err(Failure::input)?;
    let resumptions = store.resumptions(number).map_err(Failure::input)?;
    if arguments.mail {
        return publish_mail(&comparison, &resumptions, &arguments.forms);
    }
    let require = arguments.require.clone();
    if !require.is_empty() && comparison.design.is_over_boots() {
        return Err(Failure::Input(format!(
            "comparison {number} is a part of one over boots, and --require judges the arms of a whole one; leave it out"
        )));
    }
    require.iter().try_for_each(|one| one.check(&comparison.design)).map_err(Failure::input)?;
    let forms = Forms { is_full: arguments.full, store: arguments.store.clone(), require, ..arguments.forms.clone() };
    publish_stored(&comparison, &resumptions, &forms)?;
    if arguments.full {
        print_attempts(&comparison)?;
        if let Some(command) = results::advice::measuring_command(&comparison) {
            let text = format!("  {command} measures the program with this setting and without it, untraced");
            print(&folded(text), false)?;
        }
    }
    check_requirements(&comparison, &forms)
}

/// Shows the boots of one comparison of kernels together.
fn show_boots(arguments: &Show, store: &Store) -> Result<(), Failure> {
    if !arguments.require.is_empty() || arguments.forms.csv.is_some() {
        return Err(Failure::Input("--require and --csv are for one comparison; give one number".into()));
    }
    let comparisons: Result<Vec<_>, _> = arguments.numbers.iter().map(|number| store.load(*number)).collect();
    let comparisons = comparisons.map_err(Failure::input)?;
    let forms = Forms { is_full: arguments.full, store: arguments.store.clone(), ..arguments.forms.clone() };
    stored::report(&comparisons, &forms, arguments.mail)?.publish(&comparisons)
}
