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

use crate::failure::Failure;
use crate::publish;
use request::Request;

/// Runs `pagelab compare`.
///
/// # Errors
/// The comparison cannot begin, the command or a policy failed, there is no result, or an output cannot be written.
pub fn run(arguments: Compare) -> Result<(), Failure> {
    let Request { setup, store, shown } = Request::of(arguments)?;
    let measured = measure::measure(setup, &store)?;
    let exit = ending::exit(&measured.comparison, measured.blame);
    let published = shown.publish(&measured.comparison, &store);
    let failures = [exit, published].into_iter().filter_map(Result::err);
    publish::first_of(failures.chain(measured.troubles))
}
