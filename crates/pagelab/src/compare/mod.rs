//! `pagelab compare`: checks the request, runs the comparison, stores it and reports it.

mod arguments;
mod backend;
mod boots;
mod design;
mod ending;
#[cfg(debug_assertions)]
mod fake;
mod fragmented;
pub mod in_guest;
pub mod in_study;
mod khugepaged;
mod measure;
mod pattern;
mod progress;
mod recorder;
mod request;
pub mod resumed;
mod trials;
mod variant_word;
mod variants;
mod work;

pub use arguments::Compare;

use std::time::Duration;

use crate::advice::{self, Program};
use crate::failure::Failure;
use crate::output::print;
use crate::{publish, user};
pub use in_study::parsed;
use request::Request;

/// Runs `pagelab compare`.
///
/// # Errors
/// The comparison cannot begin, the command or a policy failed, there is no result, or an output cannot be written.
pub fn run(arguments: Compare) -> Result<(), Failure> {
    let advised = advised(&arguments)?;
    let Request { setup, store, shown } = Request::of(arguments)?;
    let measured = measure::measure(setup, &store)?;
    let exit = ending::exit(&measured.comparison, measured.blame);
    let published = shown.publish(&measured.comparison, &store);
    let advised = match &advised {
        Some((program, patience)) if exit.is_ok() && published.is_ok() => {
            advice::below(&measured.comparison, program, *patience)
                .and_then(|text| text.map_or(Ok(()), |text| print(&text, false)))
        }
        _ => Ok(()),
    };
    let failures = [exit, published, advised].into_iter().filter_map(Result::err);
    publish::first_of(failures.chain(measured.troubles))
}

/// The program that settings are tried on after the comparison, and how long to wait for another pagelab; `None` where none are
/// tried.
fn advised(arguments: &Compare) -> Result<Option<(Program, Duration)>, Failure> {
    let Compare { measuring, keeping, forms, variants, arm_of_boot, .. } = arguments;
    let is_single = measuring.server.is_none() && measuring.prepare.is_none() && measuring.input.is_none();
    let is_plain = variants.is_empty() && !arm_of_boot && measuring.fragmented.is_none() && arguments.is_on_host();
    if !(is_single && is_plain) || keeping.no_advice || forms.json {
        return Ok(None);
    }
    let program = Program {
        command: arguments.command.clone(),
        user: user::to_run_as(measuring.user.as_deref())?,
        variables: user::variables(&measuring.env)?,
        limit: design::trial_time_s(&arguments.stopping).and_then(|limit_s| Duration::try_from_secs_f64(limit_s).ok()),
    };
    Ok(Some((program, Duration::from_secs_f64(measuring.wait))))
}
