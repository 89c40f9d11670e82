//! `pagelab compare`: checks the request, runs the comparison, stores it and reports it.

mod arguments;
mod backend;
mod boots;
pub mod design;
mod ending;
mod explain;
#[cfg(debug_assertions)]
mod fake;
mod fragmented;
pub mod in_guest;
pub mod in_study;
mod khugepaged;
mod measure;
mod own_session;
mod pattern;
mod primary;
pub mod progress;
mod recorder;
mod request;
pub mod resumed;
mod server_hint;
mod setting;
mod shares;
mod time_limit;
mod trials;
mod variant_word;
mod variants;
mod window_order;
mod work;

pub use arguments::{Compare, Keeping, Measuring, Stopping};

use std::time::Duration;

use platform::Work;
use study::comparison::Comparison;

use crate::advice::{Waiting, advice};
use crate::failure::Failure;
use crate::publish;
pub use in_study::parsed;
pub use measure::unix_s;
pub use primary::refuse_auto;
use request::Request;
pub use setting::measure_setting;

/// Runs `pagelab compare`.
///
/// # Errors
/// The comparison cannot begin, the command or a policy failed, there is no result, or an output cannot be written.
pub fn run(arguments: Compare) -> Result<(), Failure> {
    run_with(arguments, false).map(drop)
}

/// Runs `pagelab compare`, and returns the comparison. With `is_advice_requested`, settings are tried however long a trial takes,
/// and all attempts are listed as with `--full`.
///
/// # Errors
/// As [`run`].
pub fn run_with(arguments: Compare, is_advice_requested: bool) -> Result<Comparison, Failure> {
    let program = if arguments.keeping.no_advice { None } else { program(&arguments)? };
    let lists_attempts = (is_advice_requested || arguments.keeping.full) && !arguments.forms.json;
    let Request { mut setup, store, shown } = Request::of(arguments)?;
    setup.keeps_lease = program.is_some();
    let mut measured = measure::measure(setup, &store)?;
    let exit = ending::exit(&measured.comparison, measured.blame);
    let comparison = &mut measured.comparison;
    let advised = program.filter(|_| exit.is_ok()).map_or(Ok(()), |mut program| {
        let waiting = Waiting { patience: program.patience, lease: measured.lease.take() };
        let found = advice(comparison, &mut program.work, waiting, is_advice_requested, None)?;
        store.advise(comparison.id, &found).map_err(Failure::input)?;
        comparison.advice = Some(found);
        Ok(())
    });
    let published = shown
        .publish(&measured.comparison, &store)
        .and_then(|()| if lists_attempts { publish::print_attempts(&measured.comparison) } else { Ok(()) });
    let met = if exit.is_ok() { shown.meets(&measured.comparison) } else { Ok(()) };
    let failures = [exit, published, advised, met].into_iter().filter_map(Result::err);
    publish::first_failure(failures.chain(measured.troubles))?;
    Ok(measured.comparison)
}

/// The program on which settings are tried after a comparison.
pub struct Program {
    /// The command of the program, or its server and client.
    pub work: Work,
    /// How long to wait for another pagelab.
    pub patience: Duration,
}

/// The program of a comparison, for advice; `None` if no settings are tried.
///
/// # Errors
/// As [`work::work`].
pub fn program(arguments: &Compare) -> Result<Option<Program>, Failure> {
    let Compare { measuring, variants, arm_of_boot, .. } = arguments;
    if !variants.is_empty() || *arm_of_boot || measuring.fragmented.is_some() || !arguments.is_on_host() {
        return Ok(None);
    }
    let limit_s = design::trial_time_s(&arguments.stopping);
    let work = work::work(measuring, arguments.command.clone(), limit_s)?;
    Ok(Some(Program { work, patience: Duration::from_secs_f64(arguments.stopping.wait) }))
}
